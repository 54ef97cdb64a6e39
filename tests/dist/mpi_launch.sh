#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What goes wrong under mpirun before there is a world of ranks: an error that all processes see is
# said once, one that a single process sees is said, too; a process that is not plait, or never
# comes to MPI, ends the job within the limit with 20 and is named.
#
#     tests/dist/mpi_launch.sh PROGRAM          PROGRAM: build/plait
set -u

plait=$1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_hwloc_base_binding_policy=none
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

seq 1 800 | sed 's/.*/strand & over strand &&/' >"$dir/text"
"$plait" data prepare "$dir/text" -o "$dir/tokens" >/dev/null 2>&1 || exit 1
cat >"$dir/config.yaml" <<END
model: {kind: llama, layers: 2, hidden: 32, heads: 4, seq: 16}
train: {steps: 2, batch: 4, transport: mpi, hang_timeout: 3}
data: {train: $dir/tokens}
END
train="$plait train $dir/config.yaml"
# mpirun itself ends a job (1) of which a process ends while another is in MPI_Init, not before.
printf '#!/bin/sh\nsleep 2\nexec "$@"\n' >"$dir/late"
chmod +x "$dir/late"
late=$dir/late

# NAME CODE LINES TEXT LAUNCH...: the job ends with CODE, and LINES lines of its processes have
# TEXT in them. In the background.
job() {
    name=$1 code=$2 lines=$3 text=$4
    shift 4
    timeout 60 mpirun --oversubscribe "$@" >"$dir/$name.out" 2>"$dir/$name.err" </dev/null
    got=$?
    said=$(grep -c '^plait: ' "$dir/$name.err")
    found=$(grep '^plait: ' "$dir/$name.err" | grep -c -- "$text")
    if [ "$got" -eq "$code" ] && [ "$said" -eq "$lines" ] && [ "$found" -eq "$lines" ]; then
        echo "ok   $name" >"$dir/$name.verdict"
    else
        { echo "FAIL $name: code $got, wanted $code; said $said times, $found of them '$text'"
            sed 's/^/    /' "$dir/$name.err" | head -20; } >"$dir/$name.verdict"
    fi
}

# The first three wait for their peers for 15 s, the others meanwhile.
# shellcheck disable=SC2086
{
    job not_plait 20 1 'have not come: rank 1;' -n 1 $train parallel.pp=2 run.dir="$dir/r1" : \
        -n 1 sleep 50 &
    job ends_well 20 1 'have not come: rank 0, 2;' -n 1 true : -n 1 $late $train parallel.pp=3 \
        model.layers=3 run.dir="$dir/r2" : -n 1 true &
    job other_verb 20 1 'have not come: rank 1;' -n 1 $late $train parallel.pp=2 \
        run.dir="$dir/r3" : -n 1 "$plait" info &
    job same_key 10 1 'model.layer' -n 3 $train model.layer=2 run.dir="$dir/r4"
    job same_option 10 1 'there is no option' -n 3 $train --sped run.dir="$dir/r5"
    job same_layout 10 1 'ranks started: 3' -n 3 $train parallel.pp=2 run.dir="$dir/r6"
    job same_transport 10 1 'a launcher started 3' -n 3 $train train.transport=thread \
        run.dir="$dir/r7"
    job same_file 12 1 'none.tok' -n 3 $train parallel.pp=3 model.layers=3 \
        data.train="$dir/none.tok" run.dir="$dir/r8"
    job one_key 10 1 'model.layer' -n 1 $train parallel.pp=2 run.dir="$dir/r9" : -n 1 $train \
        model.layer=2 parallel.pp=2 run.dir="$dir/r9"
    job one_file 12 1 'none.tok' -n 1 $train parallel.pp=2 run.dir="$dir/r10" : -n 1 $train \
        data.train="$dir/none.tok" parallel.pp=2 run.dir="$dir/r10"
    job one_transport 10 1 'a launcher started 2' -n 1 $train parallel.pp=2 run.dir="$dir/r11" : \
        -n 1 $train parallel.pp=2 train.transport=thread run.dir="$dir/r11"
}
wait
cat "$dir"/*.verdict
passed=$(cat "$dir"/*.verdict | grep -c '^ok')
failed=$(cat "$dir"/*.verdict | grep -c '^FAIL')
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
