#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Two runs in one folder, started at one moment: as threads, and as processes under mpirun. Of each
# pair exactly one ends with 0, the other with 16 (or with 10, where it came after the first one's
# end), and the folder holds the winner's run and nothing else: the two differ in
# train.seed, so its losses and weights are those of the winner's seed alone.
#
#     tests/fault/pairs.sh PROGRAM [PAIRS] [SEED]   PROGRAM: build/plait; 18 pairs of each kind
set -u

plait=$1
pairs=${2:-18}
seed=${3:-$(date +%s)}
# shellcheck source=tests/harness/jobs.sh
. "$(dirname "$0")/../harness/jobs.sh"

corpus "$plait"
steps=600
words="model.layers=2 model.hidden=16 model.heads=2 model.seq=16 train.steps=$steps train.batch=4
train.threads=1 train.trace=true parallel.pp=2 data.train=$dir/tokens"

seed_of() { # SIDE: a or b
    if [ "$1" = a ]; then echo "$seed"; else echo $((seed + 1)); fi
}

start() { # KIND FOLDER SIDE LOG
    if [ "$1" = mpi ]; then # shellcheck disable=SC2086
        launch 120 -np 2 "$plait" train $words train.transport=mpi train.seed="$(seed_of "$3")" \
            run.dir="$2" >"$4" 2>&1
    else # shellcheck disable=SC2086
        timeout 120 "$plait" train $words train.seed="$(seed_of "$3")" run.dir="$2" >"$4" 2>&1
    fi
}

losses() { # FOLDER: a line a step
    sed -n 's/^\({"step": .*, "loss": [^,]*\), .*}$/\1/p' "$1/metrics.jsonl"
}

whole() { # FOLDER SIDE
    losses "$1" >"$dir/losses"
    losses "$dir/alone-$2" >"$dir/losses-alone"
    [ "$(wc -l <"$1/metrics.jsonl")" -eq "$steps" ] && [ -s "$dir/losses" ] &&
        cmp -s "$dir/losses" "$dir/losses-alone" &&
        cmp -s "$1/model.safetensors" "$dir/alone-$2/model.safetensors" &&
        cmp -s "$1/config.json" "$dir/alone-$2/config.json" &&
        grep -qx "  seed: $(seed_of "$2")" "$1/config.yaml" &&
        "$plait" compare "$1" >"$dir/log" 2>&1 &&
        [ "$(find "$1" -mindepth 1 | wc -l)" -eq 7 ]
}

pair() { # KIND NUMBER
    run=$dir/$1-$2
    start "$1" "$run" a "$run.a" &
    a=$!
    start "$1" "$run" b "$run.b"
    second=$?
    wait "$a"
    first=$?
    case "$first $second" in
    "0 16" | "16 0") locked=$((locked + 1)) ;;
    "0 10" | "10 0") late=$((late + 1)) ;;
    *)
        verdict "$1 $2" 1 "ended with $first and $second" "$run.b"
        return
        ;;
    esac
    winner=a
    [ "$first" -eq 0 ] || winner=b
    if whole "$run" "$winner"; then
        verdict "$1 $2" 0
    else
        verdict "$1 $2" 1 "the files are not those of $winner, whole" "$dir/log"
    fi
}

for side in a b; do
    start threads "$dir/alone-$side" "$side" "$dir/log" || cat "$dir/log"
done
for kind in threads mpi; do
    if [ "$kind" = mpi ] && ! command -v mpirun >"$dir/log"; then
        echo "skip mpi: there is no mpirun"
        continue
    fi
    locked=0 late=0 i=0
    while [ "$i" -lt "$pairs" ]; do
        i=$((i + 1))
        pair "$kind" "$i"
    done
    echo "$kind: $pairs pairs of train.seed $seed and $((seed + 1))"
    echo "$kind: of $locked one refused with 16, of $late one came later (10)"
done
verdicts
