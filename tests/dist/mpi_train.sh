#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Whole runs of the program, with ranks as threads and as processes under mpirun: losses, gradient
# norms and weights on disk must be the same bits, and generation must write the same text. Then a
# job that cannot go on: one message, the documented exit code, no weights.
#
#     tests/dist/mpi_train.sh PROGRAM         PROGRAM: build/plait
set -u

plait=$1
# shellcheck source=tests/harness/jobs.sh
. "$(dirname "$0")/../harness/jobs.sh"

mpi() { # RANKS ARGUMENTS...
    ranks=$1
    shift
    launch 120 -n "$ranks" "$plait" "$@"
}

# A run's numbers: all of metrics.jsonl but the times, to nine decimals. Digits behind those are of
# f64 sums in the order of the ranks and of the schedule, which differ in some cases.
numbers() {
    sed -e 's/, "tokens_per_s.*//' -e 's/, "time.*//' -e 's/\(\.[0-9]\{9\}\)[0-9]*/\1/g' \
        "$1/metrics.jsonl"
}

common="model.kind=llama model.layers=3 model.hidden=32 model.heads=4 model.kv_heads=2 model.ffn=64
model.seq=16 model.dropout=0.1 model.tied=true train.steps=4 train.batch=6 parallel.microbatch=2
optim.lr=0.01 optim.warmup=1 train.valid_batches=2 train.hang_timeout=60
data.train=$dir/tokens data.valid=$dir/tokens"

on_threads= # words for the one run only
on_mpi=     # words for the other

same_bits() { # RANKS WORDS...
    ranks=$1
    shift
    name="$ranks ranks: $* $on_threads $on_mpi"
    rm -rf "$dir/threads" "$dir/mpi"
    # shellcheck disable=SC2086
    "$plait" train $common "$@" $on_threads run.dir="$dir/threads" >"$dir/log" 2>&1 &&
        mpi "$ranks" train $common "$@" $on_mpi run.dir="$dir/mpi" train.transport=mpi \
            >"$dir/log" 2>&1 &&
        numbers "$dir/threads" >"$dir/a" && numbers "$dir/mpi" >"$dir/b" && [ -s "$dir/a" ] &&
        cmp "$dir/a" "$dir/b" >>"$dir/log" 2>&1 &&
        cmp "$dir/threads/model.safetensors" "$dir/mpi/model.safetensors" >>"$dir/log" 2>&1
    verdict "$name" $? "" "$dir/log"
}

# The run that mpi made last writes the same text on its layout and, as threads, on another.
same_text() { # RANKS WORDS...
    ranks=$1
    shift
    text="--raw --prompt strand --tokens 20 train.device=ref train.dtype=f32"
    # shellcheck disable=SC2086
    "$plait" generate "$dir/mpi" "$@" $text >"$dir/a" 2>"$dir/log" &&
        mpi "$ranks" generate "$dir/mpi" $text >"$dir/b" 2>>"$dir/log" &&
        [ -s "$dir/a" ] && cmp "$dir/a" "$dir/b" >>"$dir/log" 2>&1
    verdict "the same text on $ranks ranks" $? "" "$dir/log"
}

corpus "$plait"

same_bits 2 parallel.tp=2 train.dtype=bf16
same_bits 2 parallel.pp=2 train.device=ref
same_bits 4 parallel.tp=2 parallel.sp=true parallel.pp=2 parallel.schedule=gpipe train.dtype=f32
same_bits 8 parallel.tp=2 parallel.pp=2 parallel.dp=2 parallel.microbatch=1 train.dtype=bf16

# Seven microbatches; schedules that add weight gradients in one order train to the same bits.
seven="parallel.microbatch=1 train.batch=7 train.valid_batches=0 model.layers=4"
on_threads=parallel.schedule=1f1b
# shellcheck disable=SC2086
for on_mpi in parallel.schedule=zb-h1 parallel.schedule=zb-h2; do
    same_bits 3 parallel.pp=3 $seven
done
on_threads="" on_mpi=""
# shellcheck disable=SC2086
same_bits 2 parallel.pp=2 parallel.chunks=2 parallel.schedule=looped-bfs $seven
on_threads=parallel.group=5
# shellcheck disable=SC2086
same_bits 2 parallel.pp=2 parallel.chunks=2 parallel.schedule=interleaved $seven train.device=ref
on_threads=""
same_text 2 parallel.pp=1 parallel.chunks=1

# Measured costs: all ranks make the same list of them, and one that has others is told.
printf 'stage,F,B,I,W\n0,1,4,3,1\n1,1,4,3,1\n2,1,4,3,1\n3,1.5,4,3,1\n' >"$dir/costs.csv"
sed 's/^3,1.5/3,2.5/' "$dir/costs.csv" >"$dir/other.csv"
measured="parallel.pp=2 parallel.schedule=zb-v parallel.costs=$dir/costs.csv"
# shellcheck disable=SC2086
same_bits 2 $measured $seven
# shellcheck disable=SC2086
mpi 1 train $common $measured $seven train.transport=mpi run.dir="$dir/bad" : -n 1 "$plait" train \
    $common $measured $seven train.transport=mpi run.dir="$dir/bad" \
    parallel.costs="$dir/other.csv" >"$dir/log" 2>&1
[ $? -eq 11 ] && grep -q 'parallel.costs differs between rank 0 and rank 1' "$dir/log"
verdict "ranks with other costs are refused" $? "" "$dir/log"

# Ranks that are asked for different texts, or have other weights.
ask="parallel.pp=2 parallel.chunks=1 parallel.schedule=1f1b train.transport=mpi"
# The files of a folder without checkpoints, which would be read instead.
cp -r "$dir/mpi" "$dir/files"
rm -r "$dir/files/checkpoints"
cp -r "$dir/files" "$dir/copy"
head -c -4 "$dir/files/model.safetensors" >"$dir/copy/model.safetensors"
printf '\1\2\3\4' >>"$dir/copy/model.safetensors"
other_rank() { # NAME FOLDER OTHER WORDS...
    what=$1
    mine=$2
    from=$3
    shift 3
    # shellcheck disable=SC2086
    mpi 1 generate "$mine" $ask --prompt ab --tokens 5 : -n 1 "$plait" generate "$from" $ask \
        --prompt ab --tokens 5 "$@" >"$dir/log" 2>&1
    [ $? -eq 11 ] && grep -q "$what differs between rank 0 and rank 1" "$dir/log"
    verdict "$what: ranks that differ are refused ($*)" $? "" "$dir/log"
}
for words in "--prompt ac" "--prompt abc" "--tokens 6" "--temperature 0.7" "--top-k 3" "--seed 2" \
    --ignore-eot; do
    # shellcheck disable=SC2086
    other_rank "the prompt or an option" "$dir/mpi" "$dir/mpi" $words
done
other_rank "the weights" "$dir/files" "$dir/copy"
other_rank "the weights" "$dir/mpi" "$dir/files"

same_bits 2 parallel.pp=2 parallel.schedule=dualpipe parallel.microbatch=1 train.device=ref
same_bits 2 parallel.pp=2 parallel.chunks=2 parallel.schedule=dualpipev model.layers=4
same_bits 4 parallel.pp=4 parallel.schedule=chimera parallel.microbatch=1 model.layers=4
same_bits 8 parallel.tp=2 parallel.pp=2 parallel.dp=2 parallel.schedule=dualpipe train.dtype=bf16

# Overlapped tensor-parallel communication there, none here; kv heads held twice.
on_mpi="parallel.tp_overlap=on parallel.tp_rows=5"
same_bits 2 parallel.tp=2 parallel.sp=true train.dtype=bf16
same_bits 4 parallel.tp=4 train.device=ref
same_bits 4 parallel.tp=4 parallel.sp=true train.dtype=f32
same_bits 4 parallel.tp=2 parallel.sp=true parallel.pp=2 parallel.schedule=zb-h1 train.dtype=f32
on_mpi=

# Data ranks that shard the optimizer. The sums of a large store go in pieces, so bf16 has no master
# weights but the owners', which are gathered to be written.
same_bits 3 parallel.dp=3 parallel.zero=1 train.dtype=bf16
same_bits 4 parallel.dp=2 parallel.zero=1 parallel.pp=2 parallel.microbatch=1 train.dtype=bf16
same_bits 4 parallel.dp=2 parallel.zero=1 parallel.tp=2 parallel.sp=true train.device=ref

# With recompute here and without there.
on_mpi=train.recompute=full
same_bits 4 parallel.tp=2 parallel.sp=true parallel.pp=2 parallel.schedule=gpipe train.dtype=f32
same_bits 2 parallel.pp=2 parallel.chunks=2 parallel.schedule=zb-v model.layers=4 train.dtype=bf16
same_bits 4 parallel.tp=2 parallel.pp=2 parallel.schedule=dualpipe train.device=ref
on_mpi=

same_text 4 parallel.tp=1 parallel.pp=1

# The best by validation, an early one: the same steps stay under mpirun, and from it the
# run comes to the same ones once more.
kept() { # RUN
    for at in "$1"/checkpoints/*; do
        echo "${at##*/} $(grep -o '"valid_loss":[^,}]*' "$at/index.json")"
    done | sed 's/\(\.[0-9]\{9\}\)[0-9]*/\1/g'
}
best="train.save_best=true train.valid_every=1 train.save_keep=1 train.steps=6 optim.lr=0.5
optim.warmup=12 optim.schedule=constant"
for layout in "parallel.dp=2 parallel.zero=1 train.dtype=bf16" "parallel.pp=2 train.device=ref"; do
    # shellcheck disable=SC2086
    same_bits 2 $layout $best
    kept "$dir/threads" >"$dir/a"
    kept "$dir/mpi" >"$dir/b"
    [ "$(wc -l <"$dir/a")" -eq 2 ] && grep -q step-6 "$dir/a" &&
        cmp "$dir/a" "$dir/b" >"$dir/log" 2>&1
    verdict "the best stays beside the newest" $? "$(cat "$dir/a" "$dir/b")" "$dir/log"
    early=$(grep -v step-6 "$dir/b")
    # shellcheck disable=SC2086
    mpi 2 train $common $layout $best run.dir="$dir/mpi" train.transport=mpi run.resume=best \
        >"$dir/log" 2>&1
    [ $? -eq 0 ] && early=${early%% *} && grep -q "behind step ${early#step-}, " "$dir/log" &&
        kept "$dir/mpi" >"$dir/b" && cmp "$dir/a" "$dir/b" >>"$dir/log" 2>&1
    verdict "the best is gone on from" $? "$(cat "$dir/a" "$dir/b")" "$dir/log"
done

# shellcheck disable=SC2086
mpi 2 train $common parallel.pp=2 train.transport=mpi run.dir="$dir/bad" model.kind=gpt \
    model.kv_heads=4 model.layers=8 optim.lr=100 optim.lr_min=0 train.steps=500 >"$dir/log" 2>&1
[ $? -eq 18 ] && [ "$(grep -c 'gradient norm' "$dir/log")" -eq 1 ] &&
    grep -Eq 'not finite is on rank [01] .* microbatch [0-9]+, stage [01], layer [0-7], [a-z]+: ' \
        "$dir/log" &&
    grep -q "the weights of step $(grep -c grad_norm "$dir/bad/metrics.jsonl") are" "$dir/log" &&
    [ -s "$dir/bad/model.safetensors" ]
rc=$?
rm -rf "$dir/bad"
[ $rc -eq 0 ]
verdict "numbers that overflow end the job" $? "" "$dir/log"

# shellcheck disable=SC2086
mpi 2 train $common parallel.pp=3 train.transport=mpi run.dir="$dir/bad" >"$dir/log" 2>&1
[ $? -eq 10 ] && grep -q 'parallel.pp 3' "$dir/log"
verdict "a wrong number of ranks is refused" $? "" "$dir/log"

verdicts
