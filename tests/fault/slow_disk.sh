#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A disk that is slow in one call: longer than train.hang_timeout, which is no hang, so the run
# ends well and leaves its weights; longer than run.io_timeout, which ends it with 17 and the
# file's name; one that is in the way of weights behind another error ends with that one's code, and
# both are said.
# Ranks as threads and, with mpi, as processes under mpirun. Calls that only look wait for a disk as
# those that write do.
#
#     tests/fault/slow_disk.sh PROGRAM WRAPPER [mpi] [all]
#     PROGRAM: build/plait; WRAPPER: the library made of slow_disk.c; all: every call, not a few
set -u

plait=$1
wrapper=$2
shift 2
# shellcheck source=tests/harness/jobs.sh
. "$(dirname "$0")/../harness/jobs.sh"

corpus "$plait"
words="model.kind=llama model.layers=2 model.hidden=32 model.heads=4 model.seq=16 train.steps=3
train.batch=4 parallel.microbatch=1 parallel.pp=2 parallel.tp=2 data.train=$dir/tokens
train.hang_timeout=1"

# NAME TRANSPORT CODE TEXT SECONDS CALL FILE [N]. The wrapper's words go to the ranks alone, those
# in $more are the run's.
more=
one() {
    name=$1 transport=$2 code=$3 text=$4
    slow="LD_PRELOAD=$wrapper SLOW_S=$5 SLOW_CALL=$6 SLOW_FILE=$7 SLOW_N=${8:-}"
    [ -n "${8:-}" ] || slow="LD_PRELOAD=$wrapper SLOW_S=$5 SLOW_CALL=$6 SLOW_FILE=$7"
    limit=60
    [ "$code" = 0 ] || limit=1
    runs=$((runs + 1))
    run="$dir/run$runs.$code.$transport"
    log="$dir/$runs.$code.$transport" # a name without the file's
    begin=$(date +%s)
    start="launch 100 -n 4"
    [ "$transport" = mpi ] || start="timeout 100"
    # shellcheck disable=SC2086
    $start env $slow "$plait" train $words train.transport="$transport" run.io_timeout=$limit \
        run.dir="$run" $more >"$log.out" 2>"$log.err"
    got=$?
    took=$(($(date +%s) - begin))
    said=$(grep -c '^plait: error: ' "$log.err")
    why=
    if [ "$got" -ne "$code" ]; then
        why="code $got, wanted $code"
    elif [ "$code" -eq 0 ] && [ "$took" -lt 2 ]; then
        why="not slow: $took s"
    elif [ "$code" -eq 0 ] && [ ! -s "$run/model.safetensors" ]; then
        why="no weights"
    elif [ "$code" -ne 0 ] && ! grep -q "$text.*has not returned" "$log.err"; then
        why="$text is not named"
    elif [ "$code" -ne 0 ] && [ "$said" -ne 1 ]; then
        why="said $said times"
    fi
    [ -z "$why" ]
    verdict "$name" $? "$why" "$log.err"
}

# Going on from a checkpoint of two shards, whose files are mapped by the threads that read them.
saved="model.kind=gpt model.layers=1 model.hidden=256 model.heads=2 model.seq=8 model.vocab=65536
train.batch=2 train.threads=4 parallel.dp=2 data.train=$dir/tokens train.hang_timeout=1"
# TRANSPORT RUN SECONDS SHARD N WORDS...: under mpi the wrapper is in front of the first rank.
resume() {
    transport=$1 run=$2
    slow="env LD_PRELOAD=$wrapper SLOW_S=$3 SLOW_CALL=mmap SLOW_FILE=$4"
    [ "$5" = all ] || slow="$slow SLOW_N=$5"
    shift 5
    set -- train.transport="$transport" run.dir="$run" run.resume=auto train.steps=2 "$@"
    begin=$(date +%s)
    if [ "$transport" = mpi ]; then
        # shellcheck disable=SC2086
        launch 100 -n 1 $slow "$plait" train $saved "$@" : -n 1 "$plait" train $saved "$@" \
            >"$log" 2>&1
    else
        # shellcheck disable=SC2086
        timeout 100 $slow "$plait" train $saved "$@" >"$log" 2>&1
    fi
    code=$?
    took=$(($(date +%s) - begin))
}
of_readers() { # TRANSPORT
    log="$dir/readers.$1"
    once=3 # the map behind those that look at the index
    [ "$1" = thread ] || once=2
    # shellcheck disable=SC2086
    "$plait" train $saved train.steps=1 run.dir="$dir/good.$1" >"$log" 2>&1
    cp -r "$dir/good.$1" "$dir/bad.$1"
    shard="$dir/bad.$1/checkpoints/step-1/rank-00000.safetensors"
    dd if=/dev/zero of="$shard" bs=65536 seek=1000 conv=notrunc \
        count=$(($(wc -c <"$shard") / 65536 - 1001)) 2>/dev/null

    resume "$1" "$dir/good.$1" 30 rank-00001 $once run.io_timeout=1
    [ $code -eq 17 ] && grep -q 'rank-00001.safetensors: a call .* has not returned' "$log"
    verdict "$1.readers.stuck" $? "code $code" "$log"

    # Each call is shorter than the limit, and one range takes two.
    resume "$1" "$dir/good.$1" 2 rank-0 all run.io_timeout=3
    [ $code -eq 0 ] && [ $took -ge 8 ]
    verdict "$1.readers.move" $? "code $code in $took s" "$log"

    # One shard is damaged wherever one looks, and the other is slow on one rank, whose readers are
    # still in it when it knows of the damage; its peer, which has met the same, waits for it. Which
    # reader comes first is chance.
    code=14 took=0 i=0
    while [ $code -eq 14 ] && [ $took -lt 4 ] && [ $i -lt 8 ]; do
        i=$((i + 1))
        resume "$1" "$dir/bad.$1" 4 rank-00001 $once
    done
    [ $code -eq 14 ] && [ $took -ge 4 ] && grep -q 'rank-00000.safetensors has the hash' "$log"
    verdict "$1.readers.damaged" $? "code $code in $took s, try $i" "$log"
}

kinds=thread
few="fsync:model.safetensors write:metrics.jsonl:2 pread:tokens:9 lstat:model.safetensors:3
opendir:/run"
many="write:model.safetensors rename:model.safetensors open:model.safetensors write:config.yaml
pwrite:rank-00001
open:metrics.jsonl fstat:model.safetensors fallocate:model.safetensors close:model.safetensors
lstat:config.yaml:1 lstat:config.json:2 statvfs:/run mkdir:/run access:/tmp.:1
readdir:/run rename:plait.lock fcntl:plait.lock:1 lseek:plait.lock:1 unlink:plait.lock:1"
for word; do
    [ "$word" = mpi ] && kinds="thread mpi"
    [ "$word" = all ] && few="$few $many"
done
runs=0
for transport in $kinds; do
    for place in $few; do
        call=${place%%:*} rest=${place#*:}
        file=${rest%%:*} n=
        [ "$rest" = "$file" ] || n=${rest#*:}
        runs=$((runs + 1))
        one "$transport.$call.$file.slow" "$transport" 0 "$file" 3 "$call" "$file" "$n" &
        one "$transport.$call.$file.stuck" "$transport" 17 "$file" 30 "$call" "$file" "$n" &
    done
    more="optim.lr=100 optim.clip=0 optim.warmup=0 optim.schedule=constant"
    one "$transport.behind_a_loss" "$transport" 18 "has loss .*; then .*model.safetensors" 30 \
        fsync model.safetensors &
    more=
    wait
    of_readers "$transport"
done
verdicts
