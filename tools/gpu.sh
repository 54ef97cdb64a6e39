#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# On a machine with GPUs, in one run of under ten minutes: the tests that need one, and the speed of
# the models of configs/ beside the peers on the same machine. It ends with a table of the speeds.
#
#     tools/gpu.sh                      everything
#     tools/gpu.sh test 124m            only these parts, of:
#
# test          tests/parity and tests/cuda                                             96 s
# bench         plait bench of three models: what kernels reach of their ceilings       16
# 124m 1.5b 1b  a model on one GPU, and its peer                                12, 61, 81
# dp            the first two on all GPUs as data ranks that shard the optimizer          74
# 8b            llama 8B on all GPUs: pp by two schedules with their bubbles, tp       177
#
# and not among "everything", each a run of its own of at most eight minutes:
#
# save dpsave   GPT-2 1.5B on one GPU, or on all as data ranks that shard the optimizer, that saves
#               to SAVES: what it costs steps, writing and loading beside plain copies
# layouts       two GPUs, a small GPT-2: losses of every layout by copies, by NCCL and under mpirun
#               against each other, resumption on another layout, the same text of each
# old           this tree beside OLD, an older one, in turn: both GPT-2s as data ranks on all GPUs,
#               which shard the optimizer, llama 8B by pp with zb-v and by tp; on one GPU both
#               GPT-2s and llama 1B
# soak          every schedule on two GPUs, recorded and not, SOAKED=200 steps of a small GPT-2:
#               none may hang, and all end with one loss
# nccl          test_nccl NCCL_RUNS=100 times, NCCL_LOT=12 side by side: some 100 s a lot
#
# The seconds are of two H200, the tree built and both peers there, which are some half of it: 517
# in all, of a run of 549 with a third schedule of 32. Four H200 should take 600, by what parts took
# there by themselves. Each part says what it took.
#
# BUILD=DIR     a built tree; nothing is built then. Else the preset "release" is, in build/
# OUT=DIR       where results go (default build/gpu): DATE-gpu.jsonl, a row a figure, and logs
# PEER=FILE     torch_gpt.py, run with PYTHON (default python3): PyTorch on the same shapes
# LLMC=DIR      a built llm.c (train_gpt2cu): in its place for the GPT-2 rows
# MPIRUN=mpirun with what it needs here
# OLD=DIR       another built tree, of commit OLD_COMMIT; TURNS="old new new old"
# RESUME=1      leave out what has a row of this commit in OUT: a list that was cut off goes on
# GPUS=N        of parts that take two or more (default: all that nvidia-smi lists)
# SAVES=/dev/shm  the folder of saves: two checkpoints of 18.7 GB, beside as much memory;
#               EVERY=30 steps between them; SAVED="48 1600" what is held against plain copies
# STEPS=14      of a run; the median is of the second half
# COMMIT=...    for the rows, where this is no git tree
# DEVICE=cpu WORDS="model.layers=1 ..."   to try this script without a GPU: other keys of all runs
set -eu

cd "$(dirname "$0")/.."
steps=${STEPS:-14} device=${DEVICE:-cuda} words=${WORDS:-} python=${PYTHON:-python3}
mpirun=${MPIRUN:-mpirun}
out=${OUT:-build/gpu} peer=${PEER:-} llmc=${LLMC:-}
parts=${*:-test bench 124m 1.5b 1b dp 8b}
today=$(date +%F)
commit=${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
for part in $parts; do
    case $part in
    test | bench | 124m | 1.5b | 1b | dp | 8b | save | dpsave | layouts | old | soak | nccl) ;;
    *)
        echo "gpu: no part $part; use test, bench, 124m, 1.5b, 1b, dp, 8b, save, dpsave, layouts," \
            "old, soak, nccl" >&2
        exit 2 ;;
    esac
done
if [ -z "${BUILD:-}" ]; then
    cmake --preset release && cmake --build build -j "$(nproc)"
    BUILD=build
fi
plait=$BUILD/plait
mkdir -p "$out"
rows=$out/$today-gpu.jsonl
card=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 || true)
card=${card:-$device}
gpus=${GPUS:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true)}
[ "${gpus:-0}" -gt 0 ] || gpus=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# undone NAME: to do, since it has no row of this commit, or since nothing is left out.
undone()
{
    [ -z "${RESUME:-}" ] || ! cat "$out"/*-gpu.jsonl 2>/dev/null |
        grep -F "\"work\": \"$1\"" | grep -qF "\"commit\": \"$commit\""
}

# note NAME GPUS COMMAND MEMBERS...: a row of what is no speed of training.
note()
{
    head="{\"work\": \"$1\", \"card\": \"$card\", \"gpus\": $2"
    foot="\"date\": \"$today\", \"commit\": \"$commit\", \"command\": \"$3\"}"
    shift 3
    echo "$head, $*, $foot" >>"$rows"
}

# one PROGRAM LOG CASE...: a test program, or cases of it; LOG.code is there if it did not pass.
one()
{
    program=$1 log=$2
    shift 2
    undone "$program${1:+: $*}" || return 0
    rm -f "$log.code"
    code=0 from=$(date +%s)
    timeout 300 "$BUILD/tests/$program" "$@" >"$log" 2>&1 || code=$?
    [ "$code" = 0 ] || echo "$code" >"$log.code"
    note "$program${1:+: $*}" "$gpus" "$program${1:+ '$*'}" \
        "\"code\": $code, \"said\": \"$(tail -n 1 "$log" | tr -cd 'A-Za-z0-9 ,.:')\"," \
        "$(seconds_since "$from")"
}

seconds_since()
{
    echo "\"seconds\": $(($(date +%s) - $1))"
}

# Each case of PROGRAM as a run of its own, beside whatever else runs.
cases_of()
{
    "$BUILD/tests/$1" --list >"$work/cases"
    number=0
    while read -r name; do
        number=$((number + 1))
        one "$1" "$out/$1-$number.log" "$name" &
    done <"$work/cases"
}

# Programs of tests/parity and tests/cuda, by name, so that the tree may stand anywhere, and the
# checkpoints that move between layouts on GPUs. Most run side by side, those that take longest by
# case: the law's cases make many layouts, and for attention's the host works out in double what
# GPUs are held against. What measures time comes last and alone.
tests()
{
    echo "== tests"
    [ -n "${RESUME:-}" ] || rm -f "$out"/test_*.log "$out"/test_*.log.code
    for program in test_cuda_law test_parity_attn; do
        cases_of "$program"
    done
    for source in tests/parity/test_*.c tests/cuda/test_*.c; do
        name=$(basename "$source" .c)
        case $name in
        test_cuda_law | test_parity_attn | test_cuda_trace) ;;
        *) [ ! -e "$source" ] || one "$name" "$out/$name.log" & ;;
        esac
    done
    wait
    for type in f32 bf16; do
        one test_reshard "$out/test_reshard-$type.log" "on GPUs, $type" &
    done
    wait
    one test_cuda_trace "$out/test_cuda_trace.log"
    for log in "$out"/test_*.log; do
        echo "$(basename "$log" .log): $(tail -n 1 "$log")"
        grep '^FAIL' "$log" || true
        [ ! -e "$log.code" ] || { failed=1; echo "$(basename "$log"): code $(cat "$log.code")"; }
    done
    "$plait" info | grep -q 'gpu 0:' && return 0
    echo "gpu: no GPU can be used here (see plait info), so nothing of one was tested" >&2
    failed=1
}

# The median of the numbers that come in, one a line.
median()
{
    sort -g | awk '{ v[NR] = $1 }
        END { if (NR) print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2; else print 0 }'
}

# FLOPs a token as the peers count them: 6 for each weight of a GEMM, attention in full.
# layers hidden kv-width ffn vocab gated(0|1) tokens
flops_of()
{
    echo "$@" | awk '{ print 6 * ($1 * (2 * $2 * $2 + 2 * $2 * $3 + (2 + $6) * $2 * $4) + $2 * $5) \
        + 12 * $1 * $2 * $7 }'
}

# Random tokens of a vocabulary, made once; their path.
tokens_of()
{
    [ -e "$work/$1.tok" ] ||
        "$plait" data random --vocab "$1" --tokens 2000000 -o "$work/$1.tok" >/dev/null
    echo "$work/$1.tok"
}

# ours NAME CONFIG VOCAB RANKS KEY=VALUE...: a run; its median tokens a second into $speed, what it
# predicted and used into $bubble $bubble_measured $planned $used, its words into $command.
ours()
{
    name=$1 config=$2 vocab=$3 ranks=$4
    shift 4
    data=$(tokens_of "$vocab")
    # shellcheck disable=SC2086  # words of a command line
    set -- "$@" train.device="$device" optim.warmup=1 run.save=false $words
    command="plait train $config train.steps=$steps $* -n $ranks"
    echo "\$ $command"
    ok=1
    timeout 170 "$plait" train "$config" train.steps="$steps" "$@" data.train="$data" \
        run.dir="$work/$name" -n "$ranks" >"$out/$name.log" 2>&1 || ok=0
    speed=0 bubble=0 bubble_measured=null planned=0 used=0
    if [ "$ok" = 0 ]; then
        failed=1
        tail -n 3 "$out/$name.log"
        return
    fi
    speed=$(sed -n 's/.*"tokens_per_s": \([0-9.e+]*\).*/\1/p' "$work/$name/metrics.jsonl" |
        tail -n "$((steps - steps / 2))" | median)
    bubble=$(sed -n 's/.*predicted bubble \([0-9.]*\) %.*/\1/p' "$out/$name.log" | head -n 1)
    # of the rank that is planned the most; what the device said it took
    planned=$(awk '$1 == "rank" && $4 == "B" && $6 == "B" && $3 > m { m = $3 }
        END { printf "%.0f", m }' "$out/$name.log")
    used=$(awk '$1 == "rank" && $4 == "B" && $6 == "B" && $3 > m { m = $3; u = $5 }
        END { printf "%.0f", u }' "$out/$name.log")
}

# bubble_of NAME: of the run that ours has just made, with train.trace=true, the bubble as
# $bubble_measured, of all steps but the first two. Clipping does not bear on it: a step's bubble
# ends with its last backward, before the optimizer, which scales by another factor if it clips.
bubble_of()
{
    [ "$speed" != 0 ] || return 0
    "$plait" compare "$work/$1" --json >"$out/$1-bubble.json" || { failed=1; return 0; }
    bubble_measured=$(sed -n 's/.*"bubble_measured": \([-0-9.e]*\).*/\1/p' \
        "$out/$1-bubble.json" | awk '{ print 100 * $1 }' | head -n 1)
}

# torch WORDS...: PyTorch on as many GPUs as $ranks; $peer_speed a GPU, 0 where it failed.
torch()
{
    peer_speed=0
    [ -n "$peer" ] || return 0
    set -- "$peer" "$@"
    [ "$ranks" = 1 ] || set -- -m torch.distributed.run --nproc-per-node "$ranks" "$@"
    timeout 170 "$python" "$@" >"$work/peer" 2>"$out/peer.err" || : >"$work/peer"
    peer_speed=$(sed -n 's/.*"tok_s_gpu": \([0-9.]*\).*/\1/p' "$work/peer" | tail -n 1)
    peer_speed=${peer_speed:-0}
    [ "$peer_speed" != 0 ] ||
        echo "gpu: no speed from $python $*: $(tail -n 1 "$out/peer.err")" >&2
}

# llm.c's token file: 256 numbers of header, then tokens of 16 bits.
llmc_data()
{
    [ -e "$work/llmc.bin" ] || "$python" - "$work/llmc.bin" <<'END'
import array, random, sys
n = 4000000
head = array.array("i", [0] * 256)
head[0], head[1], head[2] = 20240520, 1, n
random.seed(1)
with open(sys.argv[1], "wb") as f:
    head.tofile(f)
    array.array("H", random.choices(range(50257), k=n)).tofile(f)
END
}

# llm_c DEPTH BATCH: llm.c on as many GPUs as $ranks; $peer_speed a GPU. Its processes meet in a
# folder; it validates at its first and last step, which -m 1 keeps short.
llm_c()
{
    peer_speed=0
    [ -n "$llmc" ] || return 0
    llmc_data || return 0
    log=$out/llmc-d$1-$ranks.log
    rm -rf "$work/llmc"
    mkdir "$work/llmc"
    rank=0
    while [ "$rank" -lt "$ranks" ]; do
        timeout 170 "$llmc/train_gpt2cu" -i "$work/llmc.bin" -j "$work/llmc.bin" -e "d$1" \
            -b "$2" -t 1024 -d "$(($2 * 1024 * ranks))" -x "$steps" -v 100000 -m 1 -s 0 -h 0 -r 0 \
            -z 1 -ge 2 -pi fs -pf "$work/llmc" -pn "$ranks" -pr "$rank" -pg "$ranks" \
            >"$log.$rank" 2>&1 &
        rank=$((rank + 1))
    done
    wait
    mv "$log.0" "$log"
    rm -f "$log".[0-9]*
    # the median of the second half, as ours; the tokens a second that it prints are an average
    # over steps that has the slow ones of the beginning in it
    ms=$(sed -n 's/.*| \([0-9.]*\) ms |.*/\1/p' "$log" | tail -n "$((steps - steps / 2))" | median)
    peer_speed=$(echo "${ms:-0}" | awk -v rows="$(($2 * 1024))" \
        '{ print ($1 > 0 ? rows * 1000 / $1 : 0) }')
    [ "$peer_speed" != 0 ] || echo "gpu: no speed from llm.c; see $log" >&2
}

# row WORK LAYOUT FLOPS PEER: one object from what ours and the peer have left, and a line for the
# table. Without a peer its members are null; a run that failed has no row. With WORDS the model is
# another, and says so.
row()
{
    [ "$speed" != 0 ] || return 0
    awk -v work="$1${words:+ ($words)}" -v trial="$words" -v layout="$2" -v flops="$3" \
        -v peer="$4" -v speed="$speed" \
        -v ranks="$ranks" -v theirs="$peer_speed" -v card="$card" -v bubble="$bubble" \
        -v measured="${bubble_measured:-null}" -v planned="$planned" -v used="$used" \
        -v date="$today" -v commit="$commit" -v command="$command" -v plain="$1" \
        -v table="$work/table" 'BEGIN {
        each = speed / ranks; has = theirs > 0
        printf "{\"work\": \"%s\", \"card\": \"%s\", \"gpus\": %d, \"layout\": \"%s\", ", work,
            card, ranks, layout
        printf "\"tok_s_gpu\": %.0f, \"tflops_gpu\": %s, ", each,
            trial == "" ? sprintf("%.1f", each * flops * 1e-12) : "null"
        if (has) printf "\"peer\": \"%s\", \"peer_tok_s_gpu\": %.0f, \"ratio\": %.3f, ", peer,
            theirs, each / theirs
        else printf "\"peer\": null, \"peer_tok_s_gpu\": null, \"ratio\": null, "
        printf "\"bubble_predicted\": %s, \"bubble_measured\": %s, ", bubble + 0, measured
        printf "\"memory_predicted\": %s, \"memory_used\": %s, ",
            (planned > 0 ? planned : "null"), (used > 0 ? used : "null")
        printf "\"date\": \"%s\", \"commit\": \"%s\", \"command\": \"%s\"}\n", date, commit, command
        printf "%s\t%s\t%.0f\t%s\t%s\n", plain, layout, each,
            has ? sprintf("%s %.0f", peer, theirs) : "-",
            has ? sprintf("%.2f", each / theirs) : "-" >>table
    }' | tee -a "$rows"
}

# The rows of this run for a reader: the peer with its speed, ours as a multiple of it, and for data
# ranks ours as a part of what one GPU made of the same work in this run.
table()
{
    [ -e "$work/table" ] || return 0
    echo "== $card, commit $commit${words:+, with $words}"
    awk -F '\t' 'BEGIN { form = "%-36s  %-11s  %11s  %-18s  %5s  %10s\n"
            printf form, "work", "layout", "tok/s a GPU", "peer", "ratio", "of one GPU" }
        NR == FNR { if ($2 == "dp 1") one[$1] = $3; next }
        { data = $2 ~ /^dp / && $2 != "dp 1" && $1 in one
          printf form, $1, $2, $3, $4, $5, data ? sprintf("%.3f", $3 / one[$1]) : "-"
        }' "$work/table" "$work/table"
}

f124=$(flops_of 12 768 768 3072 50304 0 1024)
f1500=$(flops_of 48 1600 1600 6400 50304 0 1024)
f1b=$(flops_of 16 2048 512 8192 128256 1 4096)
f8b=$(flops_of 32 4096 1024 14336 128256 1 4096)

# gpt2 NAME DEPTH BATCH FLOPS DP MODE: GPT-2 on DP GPUs, which shard the optimizer as those of llm.c
# do, beside that, or PyTorch where it is not there.
gpt2()
{
    zero='' layout="dp $5"
    [ "$5" = 1 ] || zero=parallel.zero=1 layout="dp $5 zero 1"
    # shellcheck disable=SC2086  # a word or none
    ours "gpt2-$1-dp$5" "configs/gpt2-$1.yaml" 50304 "$5" parallel.dp="$5" \
        parallel.microbatch="$3" train.batch="$(($3 * $5))" $zero
    work_name="gpt2-$1 B $3 T 1024"
    if [ -n "$llmc" ]; then
        llm_c "$2" "$3"
        row "$work_name" "$layout" "$4" llm.c
    else
        torch --model "gpt2-$1" --mode "$6" --mb "$3" --seq 1024 --steps "$steps"
        row "$work_name" "$layout" "$4" PyTorch
    fi
}

llama_1b()
{
    ours llama-1b configs/llama-1b.yaml 128256 1
    torch --model llama-1b --mode single --mb 4 --seq 4096 --steps "$steps"
    row "llama-1b B 4 T 4096" "dp 1" "$f1b" PyTorch
}

# The 8B shape over $gpus pipeline ranks, then over as many tensor ranks. A step takes seconds and a
# start ten of them, so there are few, and one run of a schedule gives speed and bubble. It is
# traced and so queued call by call, which steps this long hardly feel: on two H200 23.1k tokens/s
# traced beside 23.2k plain, and 23.9k beside 23.9k.
llama_8b()
{
    best='' kept=$steps steps=6
    for schedule in 1f1b zb-v; do
        ours "llama-8b-pp$gpus-$schedule" configs/llama-8b.yaml 128256 "$gpus" \
            parallel.pp="$gpus" parallel.schedule="$schedule" train.trace=true
        bubble_of "llama-8b-pp$gpus-$schedule"
        if [ -z "$best" ]; then
            torch --model llama-8b --mode pp --mb 1 --accum 16 --seq 4096 --schedule 1F1B --steps 6
            best=$peer_speed
        fi
        peer_speed=$best
        row "llama-8b 16 microbatches of 1 T 4096" "pp $gpus $schedule" "$f8b" "PyTorch 1F1B"
    done
    ours "llama-8b-tp$gpus" configs/llama-8b.yaml 128256 "$gpus" parallel.pp=1 \
        parallel.tp="$gpus" parallel.sp=true train.batch=2 parallel.microbatch=2
    torch --model llama-8b --mode tp --mb 2 --seq 4096 --steps 6
    row "llama-8b B 2 T 4096" "tp $gpus sp" "$f8b" PyTorch
    steps=$kept
}

# stall_of METRICS STEPS EVERY: ms that a save costs the steps: what the first three behind it take
# longer than the median of those that are further from any; by the clock of the host, which sees
# what lies between steps too. The last save ends the run, and no step is behind it.
stall_of()
{
    sed -n 's/.*"step": \([0-9]*\).*"elapsed": \([0-9.]*\).*/\1 \2/p' "$1" |
        awk -v every="$3" 'NR > 1 { took[$1] = $2 - last } { last = $2; n = $1 }
            END {
                for (s = every + 4; s <= n; s++)
                    if ((s - 1) % every >= 3) print took[s] >"/dev/stderr"
                for (s = 2 * every; s < n; s += every) {
                    for (k = 1; k <= 3; k++) sum += took[s + k]
                    saves++
                }
                print sum, saves
            }' 2>"$work/far" >"$work/near"
    awk -v far="$(median <"$work/far")" '{ printf "%.1f", 1000 * ($1 / $2 - 3 * far) }' \
        "$work/near"
}

# field LABEL LOG: the number behind a word of the line about saves or loading.
field()
{
    sed -n "s/^$1: .*$2 \([0-9.]*\).*/\1/p" "$3" | tail -n 1
}

# save RANKS: files in memory. The first save is left out: it opens what later ones have open.
save()
{
    name="saves of gpt2-1.5b B 16 T 1024" zero=''
    [ "$1" = 1 ] || name="$name, dp $1 zero 1" zero="parallel.dp=$1 parallel.zero=1"
    undone "$name" || return 0
    ranks=$1
    saves=$(mktemp -d "${SAVES:-/dev/shm}/gpu-saves-XXXXXX")
    trap 'rm -rf "$work" "$saves"' EXIT
    data=$(tokens_of 50304) every=${EVERY:-30}
    for run in first again; do
        more="train.steps=$((every * 4))"
        [ "$run" = first ] || more="train.steps=$((every * 4 + 2)) run.resume=auto"
        # shellcheck disable=SC2086  # words of a command line
        set -- train.batch="$((16 * ranks))" parallel.microbatch=16 $zero train.device="$device" \
            optim.warmup=1 optim.schedule=constant optim.lr_min=0 train.save_every="$every" \
            train.save_keep=1 $more $words
        command="plait train configs/gpt2-1.5b.yaml $* -n $ranks"
        echo "\$ $command"
        timeout 280 "$plait" train configs/gpt2-1.5b.yaml "$@" data.train="$data" \
            run.dir="$saves/run" -n "$ranks" >"$out/save-$run.log" 2>&1 ||
            { failed=1; tail -n 3 "$out/save-$run.log"; return 0; }
        grep -E '^(saves|loaded): ' "$out/save-$run.log"
        [ "$run" = again ] || cp "$saves/run/metrics.jsonl" "$out/save.jsonl"
    done
    first="$out/save-first.log"
    awk -v stall="$(stall_of "$out/save.jsonl" "$((every * 4))" "$every")" \
        -v bytes="$(du -sb "$saves/run/checkpoints" | cut -f 1)" -v every="$every" \
        -v copied="$(field saves copied\ in "$first")" \
        -v rate="$(field saves written\ at "$first")" \
        -v interval="$(field saves longest\ in "$first")" \
        -v waits="$(grep -c 'waits until that of' "$first" || true)" \
        -v step="$(median <"$work/far")" -v load="$(field loaded s, "$out/save-again.log")" \
        -v card="$card" -v date="$today" -v commit="$commit" -v command="$command" \
        -v name="$name" -v ranks="$ranks" 'BEGIN {
        printf "{\"work\": \"%s\", \"card\": \"%s\", \"gpus\": %d, ", name, card, ranks
        printf "\"save_every\": %d, \"bytes\": %.0f, ", every, bytes
        printf "\"step_ms\": %.1f, \"stall_ms\": %s, ", 1000 * step, stall
        printf "\"shortest_interval_s\": %.2f, \"share_at_it\": %.4f, \"waits\": %d, ", interval,
            stall / 1000 / interval, waits
        printf "\"copied_ms\": %s, \"write_gb_s\": %s, \"load_gb_s\": %s, ", copied, rate, load
        printf "\"date\": \"%s\", \"commit\": \"%s\", ", date, commit
        printf "\"command\": \"%s\"}\n", command
    }' | tee -a "$rows"
    rm -rf "$saves/run"
    # shellcheck disable=SC2086  # two numbers
    "$BUILD/bench/bench_ckpt" "$saves" ${SAVED:-48 1600} "$ranks" 2 8 | tee "$out/save-copies.log"
    tail -n 1 "$out/save-copies.log" |
        sed "s/}\$/, \"date\": \"$today\", \"commit\": \"$commit\"}/" >>"$rows"
    rm -rf "$saves"
}

# pair WORK LAYOUT NAME CONFIG VOCAB RANKS KEY=VALUE...: ours of OLD and of this tree, in TURNS; a
# row with the means of both.
pair()
{
    pair_of="$1, $2, beside ${OLD_COMMIT:-another tree}"
    undone "$pair_of" || return 0
    turn=$3
    shift 3
    : >"$work/pair"
    count=0
    for tree in ${TURNS:-old new new old}; do
        [ "$tree" = new ] || plait=$OLD/plait
        count=$((count + 1))
        ours "$turn-$count-$tree" "$@"
        plait=$BUILD/plait
        rm -rf "$work/$turn-$count-$tree"
        [ "$speed" != 0 ] || return 0
        echo "$tree $speed" >>"$work/pair"
    done
    figures=$(awk -v ranks="$ranks" '
        { v = $2 / ranks; all = all (NR > 1 ? ", " : "") sprintf("%.0f", v) }
        { sum[$1] += v; n[$1]++ }
        END { now = sum["new"] / n["new"]; old = sum["old"] / n["old"]
              printf "\"tok_s_gpu\": %.0f, \"old_tok_s_gpu\": %.0f, ", now, old
              printf "\"ratio\": %.4f, \"turns\": [%s]", now / old, all }' "$work/pair")
    note "$pair_of" "$ranks" "$command" "$figures"
    echo "$pair_of: $figures"
}

old()
{
    if [ -z "${OLD:-}" ]; then
        echo "gpu: old needs OLD, another built tree" >&2
        failed=1
        return
    fi
    if [ "$gpus" = 1 ]; then
        pair "gpt2-124m B 64 T 1024" "dp 1" 124m configs/gpt2-124m.yaml 50304 1 \
            parallel.microbatch=64 train.batch=64
        pair "gpt2-1.5b B 16 T 1024" "dp 1" 1.5b configs/gpt2-1.5b.yaml 50304 1 \
            parallel.microbatch=16 train.batch=16
        pair "llama-1b B 4 T 4096" "dp 1" 1b configs/llama-1b.yaml 128256 1
        return
    fi
    dp="parallel.dp=$gpus parallel.zero=1"
    # shellcheck disable=SC2086  # words of a command line
    pair "gpt2-124m B 64 T 1024" "dp $gpus zero 1" 124m configs/gpt2-124m.yaml 50304 "$gpus" $dp \
        parallel.microbatch=64 train.batch="$((64 * gpus))"
    # shellcheck disable=SC2086  # words of a command line
    pair "gpt2-1.5b B 16 T 1024" "dp $gpus zero 1" 1.5b configs/gpt2-1.5b.yaml 50304 "$gpus" $dp \
        parallel.microbatch=16 train.batch="$((16 * gpus))"
    kept=$steps steps=6
    pair "llama-8b 16 microbatches of 1 T 4096" "pp $gpus zb-v" 8b-pp configs/llama-8b.yaml 128256 \
        "$gpus" parallel.pp="$gpus" parallel.schedule=zb-v
    pair "llama-8b B 2 T 4096" "tp $gpus sp" 8b-tp configs/llama-8b.yaml 128256 "$gpus" \
        parallel.pp=1 parallel.tp="$gpus" parallel.sp=true train.batch=2 parallel.microbatch=2
    steps=$kept
}

# ---- the same run by every layout and transport ----

# plait_by HOW LAYOUT VERB WORDS...: HOW: ranks that are threads, whose GPUs copy; threads by NCCL;
# or processes.
plait_by()
{
    how=$1
    case $2 in
    one) layout="parallel.dp=1" ;;
    dp) layout="parallel.dp=2" ;;
    zero) layout="parallel.dp=2 parallel.zero=1" ;;
    tp) layout="parallel.tp=2 parallel.sp=true" ;;
    pp) layout="parallel.pp=2 parallel.schedule=zb-v" ;;
    esac
    shift 2
    # shellcheck disable=SC2086  # words of a command line
    set -- "$@" $layout train.device="$device" $words
    case $how in
    copies) timeout 120 "$plait" "$@" ;;
    nccl) PLAIT_COPIES=off timeout 120 "$plait" "$@" ;;
    mpi) # its own folder is one for all, else, and goes with the first that ends
        # shellcheck disable=SC2086  # words of a command line
        OMPI_MCA_orte_tmpdir_base=$(mktemp -d "$work/XXXX") timeout 120 \
            $mpirun --bind-to none -n 2 "$plait" "$@" train.transport=mpi </dev/null ;;
    esac
}

# trains HOW LAYOUT RUN WORDS...: a GPT-2 of four layers on the text of docs, 24 steps, without what
# may sum in another order from time to time; its log and code lie beside its folder.
trains()
{
    at=$work/$3 by=$1 of=$2
    shift 3
    code=0
    plait_by "$by" "$of" train configs/gpt2-124m.yaml model.seq=128 model.layers=4 model.vocab=512 \
        train.batch=16 parallel.microbatch=4 train.steps=24 optim.warmup=4 optim.clip=0 \
        optim.schedule=constant optim.lr_min=0 train.deterministic=true train.hang_timeout=30 \
        data.train="$work/text.tok" run.dir="$at" "$@" >"$at.log" 2>&1 || code=$?
    echo "$code" >"$at.code"
}

# apart RUN OTHER: the largest relative difference of losses of the same step, if all are there.
apart()
{
    for run in "$1" "$2"; do
        sed -n 's/.*"step": \([0-9]*\), "loss": \([-0-9.e]*\),.*/\1 \2/p' \
            "$work/$run/metrics.jsonl" >"$work/$run.losses" 2>/dev/null || true
    done
    awk 'NR == FNR { want[$1] = $2; next }
        $1 in want { d = ($2 - want[$1]) / want[$1]; d = d < 0 ? -d : d
                     if (d > most) most = d
                     last = $1 }
        END { if (last == 24) printf "%.3g", most }' "$work/$1.losses" "$work/$2.losses"
}

# alike RUN WANT LIMIT: the row of a run whose losses may be so far from those of another.
alike()
{
    code=$(cat "$work/$1.code") far=$(apart "$2" "$1")
    note "layouts: $1 beside $2" 2 "tools/gpu.sh layouts" \
        "\"code\": $code, \"differs\": ${far:-null}, \"limit\": $3"
    echo "$1 beside $2: code $code, losses differ by ${far:-?}, at most $3"
    ! echo "$code ${far:-1} $3" | awk '{ exit !($1 == 0 && $2 <= $3) }' || return 0
    failed=1
    cp "$work/$1.log" "$out/layouts-$1.log"
    tail -n 3 "$work/$1.log"
}

# writes HOW LAYOUT: the text of the first run's weights, in f32, as bytes, for mpirun gives ranks a
# terminal, which is spared control characters; its code beside it.
writes()
{
    code=0
    plait_by "$1" "$2" generate "$work/one" --raw --prompt "The " --tokens 60 --top-k 40 \
        train.dtype=f32 >"$work/text-$1-$2" 2>"$work/text-$1-$2.log" || code=$?
    echo "$code" >"$work/text-$1-$2.code"
}

# same_text HOW LAYOUT: beside what one rank writes.
same_text()
{
    code=$(cat "$work/text-$1-$2.code") same=false
    ! cmp -s "$work/text-copies-one" "$work/text-$1-$2" || same=true
    note "layouts: text, $1 $2" 2 "tools/gpu.sh layouts" "\"code\": $code, \"same\": $same"
    echo "text, $1 $2: code $code, same $same"
    [ "$code$same" != 0true ] || return 0
    failed=1
    cp "$work/text-$1-$2.log" "$out/layouts-text-$1-$2.log"
}

# Bit by bit are: who shards the optimizer and who does not, copies and NCCL (of two ranks), threads
# and processes, replayed and not, stopped and not. Layouts differ by the rounding of bf16.
layouts()
{
    undone "layouts" || return 0
    processes='' before=$failed failed=0
    if command -v "${mpirun%% *}" >/dev/null && ! "$plait" info | grep -q 'mpi: not built in'; then
        processes=mpi
    else
        echo "gpu: no mpirun here, or none in this build, so no run of processes"
    fi
    "$plait" data prepare docs/*.md -o "$work/text.tok" >/dev/null
    trains copies one one &
    trains copies dp dp &
    trains copies zero zero train.save_every=12 &
    trains copies tp tp &
    trains copies pp pp &
    wait
    for next in one zero tp pp; do
        cp -r "$work/zero" "$work/zero-then-$next"
        trains copies "$next" "zero-then-$next" run.resume=12 run.save=false &
    done
    for layout in dp zero tp pp; do
        trains nccl "$layout" "$layout-nccl" run.save=false &
    done
    wait
    for layout in ${processes:+dp zero tp pp}; do
        trains mpi "$layout" "$layout-mpi" run.save=false &
        trains mpi "$layout" "$layout-mpi-calls" run.save=false train.graph=off &
    done
    wait
    for how in copies nccl $processes; do
        for layout in one tp pp; do
            [ "$how$layout" = mpione ] || writes "$how" "$layout" &
        done
    done
    wait
    compare_layouts
    note "layouts" 2 "tools/gpu.sh layouts" "\"code\": $failed"
    failed=$((failed || before))
}

compare_layouts()
{
    for other in dp tp pp tp-nccl; do
        alike "$other" one 0.005
    done
    alike zero dp 0
    for layout in dp zero pp; do
        alike "$layout-nccl" "$layout" 0
    done
    alike zero-then-zero zero 0
    for next in one tp pp; do
        alike "zero-then-$next" zero 0.005
    done
    for layout in ${processes:+dp zero tp pp}; do
        alike "$layout-mpi" "$layout-nccl" 0
        alike "$layout-mpi-calls" "$layout-nccl" 0
    done
    for how in copies nccl $processes; do
        same_text "$how" tp
        same_text "$how" pp
    done
}

# ---- what may happen seldom ----

# soak_of SCHEDULE GRAPH: its row.
soak_of()
{
    name="soak of $1, train.graph $2"
    undone "$name" || return 0
    # shellcheck disable=SC2086  # words of a command line
    set -- parallel.pp=2 parallel.schedule="$1" train.graph="$2" model.seq=128 model.layers=8 \
        train.batch=16 parallel.microbatch=2 train.steps="$soaked" train.device="$device" \
        optim.warmup=20 run.save=false train.hang_timeout=20 $words
    command="plait train configs/gpt2-124m.yaml $*"
    from=$(date +%s)
    code=0
    timeout 90 "$plait" train configs/gpt2-124m.yaml "$@" data.train="$data" \
        run.dir="$work/soak" >"$out/soak.log" 2>&1 || code=$?
    loss=$(sed -n 's/.*"step": '"$soaked"', .*"loss": \([-0-9.e]*\).*/\1/p' \
        "$work/soak/metrics.jsonl" 2>/dev/null || true)
    rm -rf "$work/soak"
    if [ "$code" != 0 ]; then
        failed=1
        echo "gpu: $command: code $code"
        tail -n 3 "$out/soak.log"
    fi
    note "$name" 2 "$command" "\"code\": $code, \"loss\": ${loss:-null}, $(seconds_since "$from")"
}

soak()
{
    data=$(tokens_of 50304) soaked=${SOAKED:-200}
    for schedule in $("$plait" help schedules | awk '$1 != "seq1f1b" { print $1 }'); do
        for graph in auto off; do
            soak_of "$schedule" "$graph"
        done
    done
    # In bf16 the order of sums, another in each schedule and by chance in attention's gradient of
    # cuDNN, is some hundredths behind 200 steps; a message that is lost is more.
    cat "$out"/*-gpu.jsonl | grep -F "\"commit\": \"$commit\"" |
        sed -n 's/.*"work": "soak .*"loss": \([-0-9.e]*\),.*/\1/p' | sort -g |
        awk 'NR == 1 { low = $1 } { high = $1 }
            END { printf "soak: %d runs, losses from %s to %s\n", NR, low, high
                  exit !(NR > 0 && high - low < 0.05) }' || failed=1
}

# Side by side, as beside other work of a machine.
nccl()
{
    lot=0 left=${NCCL_RUNS:-100} most=${NCCL_LOT:-12}
    while [ "$left" -gt 0 ]; do
        lot=$((lot + 1)) here=$((left < most ? left : most))
        left=$((left - here))
        undone "test_nccl, lot $lot" || continue
        from=$(date +%s) number=0
        while [ "$number" -lt "$here" ]; do
            number=$((number + 1))
            { code=0
              timeout 300 "$BUILD/tests/test_nccl" >"$out/nccl-$lot-$number.log" 2>&1 || code=$?
              echo "$code" >"$work/nccl-$number"; } &
        done
        wait
        codes=$(cat "$work"/nccl-* | tr '\n' ' ')
        rm -f "$work"/nccl-*
        note "test_nccl, lot $lot" 2 test_nccl \
            "\"runs\": $here, \"codes\": \"${codes% }\", $(seconds_since "$from")"
        echo "test_nccl, lot $lot: codes $codes"
        ! echo "$codes" | grep -q '[1-9]' || failed=1
    done
}

begun=$(date +%s)
for part in $parts; do
    since=$(date +%s)
    case $part in
    test) tests ;;
    bench)
        for name in gpt2-124m gpt2-1.5b llama-1b; do
            set --
            [ "$name" != gpt2-124m ] || set -- train.batch=64 parallel.microbatch=64
            # shellcheck disable=SC2086  # words of a command line
            timeout 170 "$plait" bench "configs/$name.yaml" "$@" train.device="$device" \
                --seconds 0.05 $words >"$out/bench-$name.log" 2>&1 || failed=1
            echo "== $name"
            cat "$out/bench-$name.log"
        done ;;
    124m) gpt2 124m 12 64 "$f124" 1 single ;;
    1.5b) gpt2 1.5b 48 16 "$f1500" 1 single ;;
    1b) llama_1b ;;
    save) save 1 ;;
    old) old ;;
    *)
        if [ "$gpus" -lt 2 ]; then
            echo "gpu: $part needs two GPUs or more, and there is $gpus"
            continue
        fi
        case $part in
        dp)
            gpt2 124m 12 64 "$f124" "$gpus" ddp
            gpt2 1.5b 48 16 "$f1500" "$gpus" fsdp ;;
        8b) llama_8b ;;
        dpsave) save "$gpus" ;;
        layouts) layouts ;;
        soak) soak ;;
        nccl) nccl ;;
        esac ;;
    esac
    echo "-- $part took $(($(date +%s) - since)) s"
done
table
echo "-- in all $(($(date +%s) - begun)) s"
[ "$failed" = 0 ] || echo "gpu: not all of it went well; see above, and the logs in $out" >&2
exit "$failed"
