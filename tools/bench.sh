#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Speed, each figure with the command that gave it:
#   1. the programs of bench/ (build/bench/bench_*);
#   2. training GPT-2 124M on this machine's CPU, as one rank and as two, beside PyTorch where it
#      can be imported: the same shape, batch, number type and threads, one after the other, medians
#      of steps; then where the time of each run went, against the best GEMM measured.
#
#   3. bubbles: a llama on two pipeline ranks with each schedule, traced; the bubble measured, that
#      of the simulator with the measured costs, that predicted before the run, and how long a whole
#      step takes, optimizer included. "-ahead": steps that do not wait for the norm.
#
#   4. checkpoints: what their copies take of the demo's steps at a save every 10; writing and
#      loading beside plain copies of as many bytes to the same folder.
#
#     tools/bench.sh               all of them
#     tools/bench.sh programs      only 1
#     tools/bench.sh gpt2          only 2
#     tools/bench.sh bubbles       only 3
#     tools/bench.sh checkpoints   only 4
#
# LAYOUTS="one tp2 pp2 dp2"   (pp2: chimera, two microbatches; pp2-zb-h2 and so on: four)
# THREADS=2 BATCH=4 SEQ=256 STEPS=8
# ROUNDS=3   (of 2: PyTorch and each layout in turn, so often; what is printed are medians over the
#            rounds, for a host whose speed changes by the minute)
# SAVES=/dev/shm              (of 4: the folder that is written to; some 3 GB)
# DTYPE=bf16|f32              (default: bf16 where the processor has it)
# PLAIT_BENCH_PYTHON=...                             a Python that has PyTorch (default python3)
set -eu

cd "$(dirname "$0")/.."
plait=${PLAIT:-build/plait}
what=${1:-all}
threads=${THREADS:-2} batch=${BATCH:-4} seq=${SEQ:-256} steps=${STEPS:-8} rounds=${ROUNDS:-1}
layouts=${LAYOUTS:-one tp2 pp2 dp2}
python=${PLAIT_BENCH_PYTHON:-python3}
warm_up=2
if [ -z "${DTYPE:-}" ]; then
    # Without instructions for it PyTorch's bf16 GEMMs are hundreds of times slower than f32.
    DTYPE=f32
    if grep -qE 'amx_bf16|avx512_bf16' /proc/cpuinfo 2>/dev/null; then DTYPE=bf16; fi
fi
case $DTYPE in
bf16 | f32) ;;
*) echo "bench: DTYPE=$DTYPE; use bf16 or f32" >&2; exit 2 ;;
esac
case $what in
all | programs | gpt2 | bubbles | checkpoints) ;;
*)
    echo "bench: no part $what; use programs, gpt2, bubbles, checkpoints, or nothing for all" >&2
    exit 2
    ;;
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

# The median of the numbers that come in, one a line.
median()
{
    sort -g | awk '{ v[NR] = $1 }
        END { if (NR) print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'
}

# The median of the steps after the warm-up, tokens a second, from a run's metrics.
median_speed()
{
    sed -n 's/.*"tokens_per_s": \([0-9.e+]*\).*/\1/p' "$1" | tail -n "+$((warm_up + 1))" | median
}

# What a layout is, in words of the command line; two ranks share the threads.
layout()
{
    half=$((threads > 1 ? threads / 2 : 1)) quarter=$((batch > 4 ? batch / 4 : 1))
    case $1 in
    one) echo "parallel.microbatch=$batch train.threads=$threads -n 1" ;;
    tp2) echo "parallel.tp=2 parallel.sp=true parallel.microbatch=$batch" \
        "train.threads=$half -n 2" ;;
    pp2) echo "parallel.pp=2 parallel.schedule=chimera parallel.microbatch=$((batch / 2))" \
        "train.threads=$half -n 2" ;;
    pp2-*) echo "parallel.pp=2 parallel.schedule=${1#pp2-} parallel.microbatch=$quarter" \
        "train.threads=$half -n 2" ;;
    dp2) echo "parallel.dp=2 parallel.microbatch=$((batch / 2)) train.threads=$half -n 2" ;;
    *) echo "bench: no layout $1; use one, tp2, pp2, pp2-SCHEDULE, dp2" >&2; exit 2 ;;
    esac
}

# GFLOP/s of the best GEMM on that many threads, measured now.
ceiling()
{
    "${plait%/*}/bench/bench_cpu" "$DTYPE" "$1" ceiling |
        sed -n 's/.*ceiling: \([0-9.]*\).*/\1/p'
}

peer()
{
    f32=
    [ "$DTYPE" = bf16 ] || f32=--f32
    # shellcheck disable=SC2086  # one word or none
    say_and_run "$python" bench/peer_gpt2.py --batch "$batch" --seq "$seq" \
        --threads "$threads" --steps "$steps" $f32 | sed -n 's/.*"tok_s": \([0-9.]*\).*/\1/p'
}

# The table of a run (train.profile), of the rank that reports; GEMMs against the ceiling of the
# threads of one rank.
breakdown()
{
    awk -v top="$2" '/^operation/ { on = 1; print $0 "  of ceiling"; next }
        /^[0-9]+ steps? in/ { on = 0 }
        on && /^GEMM/ { printf "%s  %9.0f %%\n", $0, 100 * $(NF - 1) / top; next }
        on' "$1"
}

ours()
{
    for name in $layouts; do
        words=$(layout "$name")
        rm -rf "${work:?}/$name"
        # shellcheck disable=SC2086  # words of a command line
        say_and_run "$plait" train configs/gpt2-124m.yaml model.seq="$seq" train.batch="$batch" \
            train.dtype="$DTYPE" train.steps="$((steps + warm_up))" optim.warmup=1 \
            train.profile=true data.train="$work/text.tok" run.dir="$work/$name" run.save=false \
            $words >"$work/$name.log" 2>&1 || { cat "$work/$name.log" >&2; exit 1; }
        median_speed "$work/$name/metrics.jsonl" >>"$work/$name.speed"
    done
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
    "$python" -c 'import torch' 2>/dev/null && has_peer=1 || has_peer=
    : >"$work/peer.speed"
    for _ in $(seq "$rounds"); do
        [ -z "$has_peer" ] || peer >>"$work/peer.speed"
        ours
    done
    if [ -n "$has_peer" ]; then
        peer >>"$work/peer.speed"
        echo "    PyTorch  $(tr '\n' ' ' <"$work/peer.speed")tok/s, before each round and after"
    else
        echo "    PyTorch  not measured: $python cannot import torch;" \
            "PLAIT_BENCH_PYTHON=... names one that can"
    fi
    for name in $layouts; do
        awk -v name="$name" -v x="$(median <"$work/$name.speed")" \
            -v all="$(tr '\n' ' ' <"$work/$name.speed")" \
            -v p="$(median <"$work/peer.speed")" 'BEGIN {
            printf "    %-8s %.1f tok/s", name, x
            if (p) printf ", %.2f of the median of PyTorch", x / p
            print "  (rounds: " all ")" }'
    done
    for name in $layouts; do
        words=$(layout "$name")
        each=${words##*threads=} each=${each%% *}
        top=$(ceiling "$each")
        echo
        echo "$name: where the time went; ceiling $top GFLOP/s on $each thread(s) of a rank"
        breakdown "$work/$name.log" "$top"
    done
}

# A number of the JSON object in a file.
number()
{
    sed -n "s/.*\"$2\": \([-0-9.e]*\).*/\1/p" "$1"
}

bubbles()
{
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cat src/*/*.c >"$work/text"
    "$plait" data prepare "$work/text" -o "$work/text.tok" >/dev/null
    echo
    echo "llama, 8 layers of 192, 128 tokens, 8 microbatches of 1, f32, 2 ranks of 1 thread:"
    echo "    schedule      measured  simulated  predicted   a step"
    for name in gpipe 1f1b interleaved zb-h1 zb-h2 zb-v; do
        chunks=0
        [ "$name" = interleaved ] && chunks=2
        say_and_run "$plait" train model.kind=llama model.layers=8 model.hidden=192 model.heads=4 \
            model.seq=128 model.vocab=257 train.batch=8 train.steps=24 train.threads=1 \
            parallel.pp=2 parallel.schedule="$name" parallel.chunks=$chunks train.trace=true \
            model.tied=false optim.clip=0 \
            data.train="$work/text.tok" run.dir="$work/$name" run.save=false \
            >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
        "$plait" compare "$work/$name" --json >"$work/json"
        awk -v s=$name -v m="$(number "$work/json" bubble_measured)" \
            -v p="$(number "$work/json" bubble_predicted)" \
            -v c="$(number "$work/json" bubble_simulated)" \
            -v t="$(median_speed "$work/$name/metrics.jsonl")" 'BEGIN {
            printf "    %-12s %7.2f %%  %7.2f %%  %7.2f %%  %6.1f ms\n",
                s, 100 * m, 100 * c, 100 * p, 1000 * 8 * 128 / t }'
    done
}

checkpoints()
{
    saves=${SAVES:-/dev/shm}
    work=$(mktemp -d "$saves/bench-saves-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    cat src/*/*.c >"$work/text"
    "$plait" data prepare "$work/text" -o "$work/text.tok" >/dev/null
    echo
    echo "checkpoints, to $saves:"
    say_and_run "$plait" train configs/demo.yaml data.train="$work/text.tok" data.valid= \
        train.valid_every=0 train.valid_batches=0 train.steps=100 optim.warmup=1 \
        train.save_every=10 train.save_keep=1 run.dir="$work/run" \
        >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    awk -v took="$(number "$work/run/metrics.jsonl" elapsed | tail -n 1)" '/^saves: / {
        for (i = 1; i < NF; i++) {
            if ($i == "copied") ms = $(i + 2)
            if ($i == "still") still = $(i + 2)
        }
        n = $2 + 0
        printf "    demo, a save every 10 steps: copies %.1f ms each, %.2f %% of the time", ms,
            n * ms / took / 10
        printf "; steps stood still for %.2f %%\n", 100 * still / took }' "$work/log"
    say_and_run "${plait%/*}/bench/bench_ckpt" "$work" 6 768
}

machine
case $what in all | programs) programs ;; esac
case $what in all | gpt2) (gpt2) ;; esac
case $what in all | bubbles) (bubbles) ;; esac
case $what in all | checkpoints) (checkpoints) ;; esac
