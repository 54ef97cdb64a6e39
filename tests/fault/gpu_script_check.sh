#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# tools/gpu.sh on the CPU with a tiny model: every part that times models makes its rows, each one
# JSON object with the members that a result has, and a run that fails is told by the exit status.
# What stands in for the peer has one speed and fails in the pipeline: the table at the end has it.
# Its part "test" has programs of two cases in the place of the true ones, which need a GPU: each is
# run, by case where it should be, and one that fails is told. What MPI's own libraries leak is not
# looked for.
#
#     tests/fault/gpu_script_check.sh BUILD
set -u
# shellcheck source=tests/harness/check.sh
. "$(dirname "$0")/../harness/check.sh"

build=$1
programs='' peer='' python='' llmc='' # in the place of the true ones, where a check has some
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
words="model.layers=4 model.hidden=32 model.heads=2 model.kv_heads=2 model.head_dim=16"
words="$words model.ffn=32 model.seq=16 train.batch=4 parallel.microbatch=2 train.threads=1"

script() { # WORDS PART...
    more=$1
    shift
    BUILD=${programs:-$build} OUT=$dir/out DEVICE=cpu GPUS=2 STEPS=4 COMMIT=${commit:-none} \
        PEER=$peer PYTHON=${python:-python3} LLMC=$llmc OLD=$build OLD_COMMIT=older \
        MPIRUN="mpirun --oversubscribe -x ASAN_OPTIONS=detect_leaks=0" \
        WORDS="$words $more" "$(dirname "$0")/../../tools/gpu.sh" "$@" >"$dir/said" 2>&1
}

on_failure() {
    cat "$dir/said"
}

line() { grep -qxE "$1" "$dir/said"; } # REGEX: said, as a whole line

rows() { cat "$dir"/out/*-gpu.jsonl 2>/dev/null; }
whole_rows() {
    rows | grep -c '^{"work": ".*", "card": "cpu", "gpus": [12], "layout": "[^"]*", "tok_s_gpu": '\
'[1-9][0-9]*, "tflops_gpu": null, "peer": null, "peer_tok_s_gpu": null, "ratio": null, '\
'"bubble_predicted": [0-9.]*, "bubble_measured": [-a-z0-9.]*, "memory_predicted": null, '\
'"memory_used": null, "date": "[-0-9]*", "commit": "none", "command": "plait train [^"]*"}$'
}

script "" 124m dp 8b
check "it ends well" [ $? -eq 0 ]
check "six rows" [ "$(rows | wc -l)" -eq 6 ]
check "each a whole object" [ "$(whole_rows)" -eq 6 ]
check "bubbles of the pipelines, of the runs that are timed" [ "$(rows |
    grep -c '"pp 2 .*"bubble_measured": [0-9.]*, .*train.trace=true')" -eq 2 ]
check "of no other" [ "$(rows | grep -v '"pp 2 ' | grep -c '"bubble_measured": null')" -eq 4 ]
check "and no other run is traced" [ "$(rows | grep -c 'train.trace=true')" -eq 2 ]
check "a run each, no more" [ "$(find "$dir/out" -name '*.log' | wc -l)" -eq 6 ]
check "without peers, data ranks beside one" line \
    'gpt2-124m B 64 T 1024 +dp 2 zero 1 +[1-9][0-9]* +- +- +[0-9]+\.[0-9]{3}'
check "and nothing where none was" line 'gpt2-1.5b B 16 T 1024 +dp 2 zero 1 +[1-9][0-9]* +- +- +-'
rm -rf "$dir/out"

EVERY=5 SAVED="2 64" SAVES=$dir
export EVERY SAVED SAVES
script "" save
check "it ends well" [ $? -eq 0 ]
check "a row of what saves cost" [ "$(rows | grep -c '^{"work": "saves of .*", "card": "cpu", '\
'"gpus": 1, "save_every": 5, "bytes": [1-9][0-9]*, "step_ms": [0-9.]*, "stall_ms": [-0-9.]*, '\
'"shortest_interval_s": [0-9.]*, "share_at_it": [-0-9.]*, "waits": [0-9]*, "copied_ms": [0-9.]*, '\
'"write_gb_s": [0-9.]*, "load_gb_s": [0-9.]*, "date": "[-0-9]*", "commit": "none", '\
'"command": "plait train [^"]*"}$')" -eq 1 ]
check "a row of plain copies" [ "$(rows | grep -c '"write_ratio": [0-9.]*, .*"commit": "none"}$')" \
    -eq 1 ]
check "and nothing is left" [ -z "$(find "$dir" -name 'gpu-saves-*')" ]
script "" dpsave
check "of data ranks, too: it ends well" [ $? -eq 0 ]
check "a row of them" [ "$(rows | grep -c '^{"work": "saves of .*, dp 2 zero 1", "card": "cpu", '\
'"gpus": 2, .*parallel.dp=2 parallel.zero=1 .* -n 2"}$')" -eq 1 ]
rm -rf "$dir/out"

script "" old
check "old: it ends well" [ $? -eq 0 ]
check "four rows of two trees in turn" [ "$(rows | grep -c '^{"work": ".*, beside older", '\
'"card": "cpu", "gpus": 2, "tok_s_gpu": [1-9][0-9]*, "old_tok_s_gpu": [1-9][0-9]*, '\
'"ratio": [0-9.]*, "turns": \[[0-9]*, [0-9]*, [0-9]*, [0-9]*\], "date": .*"}$')" -eq 4 ]
check "with the keys of each layout" [ "$(rows | grep -cE 'dp 2 zero 1, .*parallel.zero=1|'\
'pp 2 zb-v, .*schedule=zb-v|tp 2 sp, .*parallel.sp=true')" -eq 4 ]
RESUME=1 script "" old
check "none again" [ "$(rows | wc -l)" -eq 4 ]
RESUME=1 commit=another script "" old
check "but of another commit" [ "$(rows | wc -l)" -eq 8 ]
rm -rf "$dir/out"

# Under mpirun where it is there and plait can.
runs=12 texts=4
! "$build/plait" info | grep -q '^transports.* mpi' || runs=20 texts=6
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
script "" layouts
check "layouts: it ends well" [ $? -eq 0 ]
check "a row a run, each with what it differs by" [ "$(rows | grep -c '^{"work": "layouts: .* '\
'beside .*", "card": "cpu", "gpus": 2, "code": 0, "differs": [0-9.e-]*, "limit": [0-9.]*, ')" \
    -eq "$runs" ]
check "and a text" [ "$(rows | grep -c '"layouts: text, .*"code": 0, "same": true, ')" \
    -eq "$texts" ]
rm -rf "$dir/out"
# A program that goes another way by NCCL is told, by each run and each text.
programs=$dir/other
mkdir "$programs"
cat >"$programs/plait" <<END
#!/bin/sh
[ "\${PLAIT_COPIES:-on}" = on ] || case \$1 in
train) set -- "\$@" train.seed=2 ;;
generate) set -- "\$@" --seed 5 ;;
esac
exec "$build/plait" "\$@"
END
chmod +x "$programs/plait"
script "" layouts
check "another way is told" [ $? -eq 1 ]
check "by each run" [ "$(rows | grep 'layouts: [a-z]*-nccl beside' | grep -vc '"differs": 0,')" \
    -eq 4 ]
check "and each text" [ "$(rows | grep -c 'layouts: text, nccl .*"same": false')" -eq 2 ]
rm -rf "$dir/out" "$programs"
programs=''

SOAKED=3
export SOAKED
script "train.batch=16 train.graph=auto" soak
check "soak: it ends well" [ $? -eq 0 ]
check "a row a run, each with a loss" [ "$(rows | grep -c '^{"work": "soak of .*", "card": "cpu", '\
'"gpus": 2, "code": 0, "loss": [0-9.]*, "seconds": [0-9]*, .*"command": "plait train [^"]*"}$')" \
    -eq 32 ]
RESUME=1 script "train.batch=16 train.graph=auto" soak
check "none twice" [ "$(rows | wc -l)" -eq 32 ]
rm -rf "$dir/out"

python=$dir/python peer=torch_gpt.py
cat >"$python" <<'END'
#!/bin/sh
echo "$*" >>"$0.called"
case $* in
*"--mode pp"*) echo "no pipeline here" >&2; exit 1 ;;
*) echo '{"tok_s_gpu": 7.0}' ;;
esac
END
chmod +x "$python"
script "" 8b 1b
check "peers: it ends well" [ $? -eq 0 ]
check "a speed" [ "$(rows |
    grep -c '"peer": "PyTorch", "peer_tok_s_gpu": 7, "ratio": [0-9]')" -eq 2 ]
check "none is said" grep -q '^gpu: no speed from .*--mode pp.*: no pipeline here$' "$dir/said"
check "each asked once" [ "$(wc -l <"$python.called")" -eq 3 ]
check "on all GPUs" grep -q 'nproc-per-node 2 torch_gpt.py .*--mode tp' "$python.called"
check "the table has them" line 'llama-8b B 2 T 4096 +tp 2 sp +[1-9][0-9]* +PyTorch 7 +[0-9.]+ +-'
check "and where there is none" line 'llama-8b 16 .* +pp 2 zb-v +[1-9][0-9]* +- +- +-'
check "four lines and their head" [ "$(sed -n '/^== cpu, commit none/,/^-- /p' "$dir/said" |
    wc -l)" -eq 7 ]
rm -rf "$dir/out"
python='' peer=''

# Four steps, of which the last two count, and an average that is to be passed over; with no steps
# it is one that failed.
llmc=$dir/llmc python=$dir/python
mkdir "$llmc"
cat >"$llmc/train_gpt2cu" <<'END'
#!/bin/sh
for ms in $(cat "$(dirname "$0")/steps"); do
    echo "step 1/4 | loss 1.0 (+nanz)| lr 3.00e-04 | $ms ms | -100.0% bf16 MFU | 5 tok/s"
done
END
chmod +x "$llmc/train_gpt2cu"
echo "900.0 800.0 100.0 300.0" >"$llmc/steps"
script "" dp
check "llm.c: it ends well" [ $? -eq 0 ]
check "the median of its last steps, a GPU" [ "$(rows |
    sed -n 's/.*"dp 2 zero 1".*"peer": "llm.c", "peer_tok_s_gpu": \([0-9]*\), .*/\1/p' |
    tr '\n' ' ')" = \
    "327680 81920 " ]
: >"$llmc/steps"
script "" 124m
check "none is said" grep -q '^gpu: no speed from llm.c; see .*llmc-d12-1.log' "$dir/said"
rm -rf "$dir/out"
llmc='' python=''

script "model.heads=3" 124m
check "a run that fails is told" [ $? -eq 1 ]
check "and has no row" [ "$(rows | wc -l)" -eq 0 ]
check "and is said at the end" line "gpu: not all of it went well; see above, .*$dir/out"
script "" nothing
check "no such part" [ $? -eq 2 ]

# The programs of part "test": of plait the line that it looks for; of each test its cases, which
# say what they were called with and pass but for the word in $dir/bad.
programs=$dir/programs
source=$(dirname "$0")/..
mkdir -p "$programs/tests"
: >"$dir/bad"
printf '#!/bin/sh\necho "gpu 0: one"\n' >"$programs/plait"
cat >"$dir/program" <<END
#!/bin/sh
[ "\$*" != --list ] || { echo "a case: first"; echo "a case: second"; exit 0; }
echo "called with (\$*)"
grep -qF "\$(basename "\$0") \$*" "$dir/bad" && { echo "FAIL \$*"; exit 1; }
exit 0
END
for file in "$source"/parity/test_*.c "$source"/cuda/test_*.c test_reshard.c; do
    cp "$dir/program" "$programs/tests/$(basename "$file" .c)"
done
chmod +x "$programs"/plait "$programs"/tests/*
called() { # PROGRAM: what its runs were called with
    cat "$dir/out/$1".log "$dir/out/$1"-*.log 2>/dev/null | tr '\n' ' '
}
apart() {
    [ "$(called "$1")" = "called with (a case: first) called with (a case: second) " ]
}
others() { # all but those two ran once and whole
    count=$(find "$source/parity" "$source/cuda" -name 'test_*.c' | wc -l)
    [ "$(cat "$dir"/out/test_*.log | grep -cxF 'called with ()')" -eq $((count - 2)) ]
}
script "" test
check "tests that pass end well" [ $? -eq 0 ]
check "the law's cases run apart" apart test_cuda_law
check "attention's, too" apart test_parity_attn
check "checkpoints, on GPUs alone, a type each" [ "$(called test_reshard)" = \
    "called with (on GPUs, bf16) called with (on GPUs, f32) " ]
check "the others once" others
echo "test_parity_attn a case: second" >"$dir/bad"
script "" test
check "a case that fails is told" [ $? -eq 1 ]
check "by its name" grep -qx "FAIL a case: second" "$dir/said"

rm -rf "$dir/out"

# And of part "nccl": a run each, in lots.
NCCL_RUNS=5 NCCL_LOT=3
export NCCL_RUNS NCCL_LOT
script "" nccl
check "test_nccl: it ends well" [ $? -eq 0 ]
check "a row a lot" [ "$(rows | sed -n 's/.*"runs": \([0-9]*\), "codes": "\([0 ]*\)".*/\1: \2;/p' |
    tr '\n' ' ')" = "3: 0 0 0; 2: 0 0; " ]
echo "test_nccl " >"$dir/bad"
script "" nccl
check "one that fails is told" [ $? -eq 1 ]

checks_end
