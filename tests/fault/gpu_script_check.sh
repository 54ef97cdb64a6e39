#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# tools/gpu.sh on the CPU with a tiny model: every part that times models makes its rows, each one
# JSON object with the members that a result has, and a run that fails is told by the exit status.
# Its part "test" has programs of two cases in the place of the true ones, which need a GPU: each is
# run, by case where it should be, and one that fails is told.
#
#     tests/fault/gpu_script_check.sh BUILD
set -u

build=$1
passed=0
failed=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
words="model.layers=4 model.hidden=32 model.heads=2 model.kv_heads=2 model.head_dim=16"
words="$words model.ffn=32 model.seq=16 train.batch=4 parallel.microbatch=2 train.threads=1"

script() { # WORDS PART...
    more=$1
    shift
    BUILD=${programs:-$build} OUT=$dir/out DEVICE=cpu GPUS=2 STEPS=4 COMMIT=none PEER='' LLMC='' \
        WORDS="$words $more" "$(dirname "$0")/../../tools/gpu.sh" "$@" >"$dir/said" 2>&1
}

check() { # NAME CONDITION...
    name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok   $name"
    else
        failed=$((failed + 1))
        echo "FAIL $name"
        cat "$dir/said"
    fi
}

rows() { cat "$dir"/out/*-gpu.jsonl 2>/dev/null; }
whole_rows() {
    rows | grep -c '^{"work": ".*", "card": "cpu", "gpus": [12], "layout": "[^"]*", "tok_s_gpu": '\
'[1-9][0-9]*, "tflops_gpu": null, "peer": null, "peer_tok_s_gpu": null, "ratio": null, '\
'"bubble_predicted": [0-9.]*, "bubble_measured": [-a-z0-9.]*, "memory_predicted": null, '\
'"memory_used": null, "date": "[-0-9]*", "commit": "none", "command": "plait train [^"]*"}$'
}

script "" 124m dp 8b
check "it ends well" [ $? -eq 0 ]
check "seven rows" [ "$(rows | wc -l)" -eq 7 ]
check "each a whole object" [ "$(whole_rows)" -eq 7 ]
check "bubbles of the pipelines, of the runs that are timed" [ "$(rows |
    grep -c '"pp 2 .*"bubble_measured": [0-9.]*, .*train.trace=true')" -eq 3 ]
check "of no other" [ "$(rows | grep -v '"pp 2 ' | grep -c '"bubble_measured": null')" -eq 4 ]
check "and no other run is traced" [ "$(rows | grep -c 'train.trace=true')" -eq 3 ]
check "a run each, no more" [ "$(find "$dir/out" -name '*.log' | wc -l)" -eq 7 ]
rm -rf "$dir/out"
script "model.heads=3" 124m
check "a run that fails is told" [ $? -eq 1 ]
check "and has no row" [ "$(rows | wc -l)" -eq 0 ]
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
for file in "$source"/parity/test_*.c "$source"/cuda/test_*.c; do
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
check "the others once" others
echo "test_parity_attn a case: second" >"$dir/bad"
script "" test
check "a case that fails is told" [ $? -eq 1 ]
check "by its name" grep -qx "FAIL a case: second" "$dir/said"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
