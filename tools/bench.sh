#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Speed, each figure with the command that gave it:
#   1. the programs of bench/ (build/bench/bench_*);
#   2. training GPT-2 124M on this machine's CPU, beside PyTorch where it can be imported: the same
#      shape, batch, number type and threads, one after the other, medians of steps.
#
#     tools/bench.sh               both
#     tools/bench.sh programs      only 1
#     tools/bench.sh gpt2          only 2
#
# THREADS=2 BATCH=4 SEQ=256 STEPS=8 DTYPE=bf16|f32   (default type: bf16 where the processor has it)
# PLAIT_BENCH_PYTHON=...                             a Python that has PyTorch (default python3)
set -eu

cd "$(dirname "$0")/.."
plait=${PLAIT:-build/plait}
what=${1:-all}
threads=${THREADS:-2} batch=${BATCH:-4} seq=${SEQ:-256} steps=${STEPS:-8}
python=${PLAIT_BENCH_PYTHON:-python3}
warm_up=2
if [ -z "${DTYPE:-}" ]; then
    # Without instructions for it PyTorch's bf16 products are hundreds of times slower than f32.
    DTYPE=f32
    if grep -qE 'amx_bf16|avx512_bf16' /proc/cpuinfo 2>/dev/null; then DTYPE=bf16; fi
fi
case $DTYPE in
bf16 | f32) ;;
*) echo "bench: DTYPE=$DTYPE; use bf16 or f32" >&2; exit 2 ;;
esac
case $what in
all | programs | gpt2) ;;
*) echo "bench: no part $what; use programs, gpt2, or nothing for both" >&2; exit 2 ;;
esac

machine()
{
    name=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)
    load=$(cut -d ' ' -f 1 /proc/loadavg 2>/dev/null)
    echo "machine: ${name:-unknown}, $(nproc) cores, load ${load:-unknown}"
}

programs()
{
    for program in build/bench/bench_*; do
        [ -x "$program" ] || continue
        echo
        echo "\$ $program"
        "$program"
    done
}

# Says what it runs, whatever becomes of its output, then runs it.
exec 3>&1
say_and_run()
{
    echo "\$ $*" >&3
    "$@"
}

# The median of the steps after the warm-up, tokens a second, from a run's metrics.
median_speed()
{
    sed -n 's/.*"tokens_per_s": \([0-9.e+]*\).*/\1/p' "$1" | tail -n "+$((warm_up + 1))" | sort -g |
        awk '{ v[NR] = $1 }
            END { if (NR) print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'
}

gpt2()
{
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # What the tokens are does not change the work; these sources are a text that is always there.
    cat src/*/*.c src/*/*.h >"$work/text"
    "$plait" data prepare "$work/text" -o "$work/text.tok" >/dev/null
    echo
    echo "GPT-2 124M, batch $batch, $seq tokens, $DTYPE, $threads threads, median of $steps steps:"
    say_and_run "$plait" train configs/gpt2-124m.yaml model.seq="$seq" train.batch="$batch" \
        parallel.microbatch="$batch" train.dtype="$DTYPE" train.threads="$threads" \
        train.steps="$((steps + warm_up))" optim.warmup=1 \
        data.train="$work/text.tok" run.dir="$work/run" \
        >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    ours=$(median_speed "$work/run/metrics.jsonl")
    echo "    plait    $ours tok/s"

    if ! "$python" -c 'import torch' 2>/dev/null; then
        echo "    PyTorch  not measured: $python cannot import torch;" \
            "PLAIT_BENCH_PYTHON=... names one that can"
        return
    fi
    f32=
    [ "$DTYPE" = bf16 ] || f32=--f32
    # shellcheck disable=SC2086  # one word or none
    peer=$(say_and_run "$python" bench/peer_gpt2.py --batch "$batch" --seq "$seq" \
        --threads "$threads" --steps "$steps" $f32)
    theirs=$(echo "$peer" | sed -n 's/.*"tok_s": \([0-9.]*\).*/\1/p')
    echo "    PyTorch  $theirs tok/s    $peer"
    awk -v a="$ours" -v b="$theirs" \
        'BEGIN { printf "    ratio    %.2f (plait / PyTorch)\n", a / b }'
}

machine
[ "$what" = gpt2 ] || programs
[ "$what" = programs ] || gpt2
