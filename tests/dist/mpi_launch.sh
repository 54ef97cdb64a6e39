#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What goes wrong under mpirun before there is a world of ranks and one process alone is to blame:
# its error is said by it; a process that is not plait, or never comes to MPI, ends the job within
# the limit with 20 and is named; one that runs another verb, with 11. mpi_errors.sh has errors of
# whole jobs.
#
#     tests/dist/mpi_launch.sh PROGRAM          PROGRAM: build/plait
set -u

plait=$1
# shellcheck source=tests/harness/jobs.sh
. "$(dirname "$0")/../harness/jobs.sh"

corpus "$plait"
cat >"$dir/config.yaml" <<END
model: {kind: llama, layers: 2, hidden: 32, heads: 4, seq: 16}
train: {steps: 2, batch: 4, transport: mpi, hang_timeout: 3}
data: {train: $dir/tokens}
END
train="$plait train $dir/config.yaml"
check="$plait check $dir/config.yaml"
bench="$plait bench $dir/config.yaml"
# mpirun itself ends a job (1) of which a process ends while another is in MPI_Init, not before.
printf '#!/bin/sh\nsleep 2\nexec "$@"\n' >"$dir/late"
chmod +x "$dir/late"
late=$dir/late

# NAME CODE TEXT LAUNCH...: the job ends with CODE, and its processes say one line, with TEXT.
job() {
    name=$1 code=$2 text=$3
    shift 3
    launch 60 "$@" >"$dir/$name.out" 2>"$dir/$name.err"
    got=$?
    said=$(grep -c '^plait: ' "$dir/$name.err")
    [ "$got" -eq "$code" ] && [ "$said" -eq 1 ] && grep -q "^plait: .*$text" "$dir/$name.err"
    verdict "$name" $? "code $got, wanted $code; said $said times ($text)" "$dir/$name.err"
}

# The first five wait for their peers for 15 s, the others meanwhile.
# shellcheck disable=SC2086
{
    job not_plait 20 'have not come: rank 1;' -n 1 $train parallel.pp=2 run.dir="$dir/r1" : \
        -n 1 sleep 50 &
    job ends_well 20 'have not come: rank 0, 2;' -n 1 true : -n 1 $late $train parallel.pp=3 \
        model.layers=3 run.dir="$dir/r2" : -n 1 true &
    job other_verb 20 'have not come: rank 1;' -n 1 $late $train parallel.pp=2 \
        run.dir="$dir/r3" : -n 1 "$plait" info &
    job two_wait 20 'have not come: rank 1;' -n 1 $train parallel.pp=3 model.layers=3 \
        run.dir="$dir/r4" : -n 1 sleep 50 : -n 1 $train parallel.pp=3 model.layers=3 \
        run.dir="$dir/r4" &
    job key_and_not_plait 10 'model.layer' -n 2 $train model.layer=2 run.dir="$dir/r5" : \
        -n 1 sleep 50 &
    job one_key 10 'rank 1: .*model.layer' -n 1 $train parallel.pp=2 run.dir="$dir/r9" : -n 1 \
        $train model.layer=2 parallel.pp=2 run.dir="$dir/r9"
    job one_file 12 'rank 1: .*none.tok' -n 1 $train parallel.pp=2 run.dir="$dir/r10" : -n 1 \
        $train data.train="$dir/none.tok" parallel.pp=2 run.dir="$dir/r10"
    job two_of_three 12 'rank 0: .*none.tok' -n 2 $train data.train="$dir/none.tok" parallel.pp=3 \
        model.layers=3 run.dir="$dir/r11" : -n 1 $train parallel.pp=3 model.layers=3 \
        run.dir="$dir/r11"
    job one_transport 10 'rank 1: a launcher started 2' -n 1 $train parallel.pp=2 \
        run.dir="$dir/r12" : -n 1 $train parallel.pp=2 train.transport=thread run.dir="$dir/r12"
    # Each of them is plait, without an error, and they have nothing to do with each other.
    job train_check 11 'rank 1 of.*something else.*rank 0 runs plait train;' -n 1 $train \
        parallel.pp=2 run.dir="$dir/r13" : -n 1 $check parallel.pp=2
    job check_train 11 'rank 0 of.*something else.*rank 1 runs plait train;' -n 1 $check \
        parallel.pp=2 : -n 1 $train parallel.pp=2 run.dir="$dir/r14"
    job train_bench 11 'rank 1 of the launch runs plait bench, and rank 0 runs plait train;' -n 1 \
        $train parallel.pp=2 run.dir="$dir/r15" : -n 1 $bench parallel.pp=2
    job bench_check 11 'rank 1 of.*something else.*rank 0 runs plait bench;' -n 1 $bench \
        parallel.pp=2 : -n 1 $check parallel.pp=2
    job two_check 11 'rank 0, 2 of the launch run something else.*rank 1' -n 1 $check \
        parallel.pp=2 : -n 1 $train parallel.pp=3 model.layers=3 run.dir="$dir/r16" : -n 1 \
        $check parallel.pp=2
    job two_bench 11 'rank 2 of the launch runs plait bench, and rank 0' -n 2 $train parallel.pp=3 \
        model.layers=3 run.dir="$dir/r17" : -n 1 $bench parallel.pp=2
    [ ! -e "$dir/r13" ] && [ ! -e "$dir/r15" ] && [ ! -e "$dir/r17" ]
    verdict no_folder $? "a launch that does not start has made its folder"
}
wait
verdicts
