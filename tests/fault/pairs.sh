#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Two runs in one folder, started at one moment: as threads, and as processes under mpirun. Of each
# pair exactly one ends with 0, the other with 16 (or with 10, where it came after the first one's
# end), and the folder holds one whole run: each step once, the weights, no half-written file.
#
#     tests/fault/pairs.sh PROGRAM [PAIRS]          PROGRAM: build/plait; 18 pairs of each kind
set -u

plait=$1
pairs=${2:-18}
# shellcheck source=tests/harness/jobs.sh
. "$(dirname "$0")/../harness/jobs.sh"

corpus "$plait"
steps=600
words="model.layers=2 model.hidden=16 model.heads=2 model.seq=16 train.steps=$steps train.batch=4
train.threads=1 parallel.pp=2 data.train=$dir/tokens"

start() { # KIND FOLDER LOG
    if [ "$1" = mpi ]; then # shellcheck disable=SC2086
        launch 120 -np 2 "$plait" train $words train.transport=mpi run.dir="$2" >"$3" 2>&1
    else # shellcheck disable=SC2086
        timeout 120 "$plait" train $words run.dir="$2" >"$3" 2>&1
    fi
}

whole() { # FOLDER
    [ "$(find "$1" -mindepth 1 | wc -l)" -eq 4 ] && [ -s "$1/model.safetensors" ] &&
        [ -s "$1/config.yaml" ] && [ -s "$1/config.json" ] &&
        awk -v n="$steps" '!/^[{]"step": .*[}]$/ { exit 1 }
            /"loss"/ { if ($2 + 0 != ++at) exit 1 } END { exit at != n }' "$1/metrics.jsonl"
}

pair() { # KIND NUMBER
    run=$dir/$1-$2
    start "$1" "$run" "$run.a" &
    a=$!
    start "$1" "$run" "$run.b"
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
    if whole "$run"; then verdict "$1 $2" 0; else verdict "$1 $2" 1 "files are not whole"; fi
}

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
    echo "$kind: $pairs pairs, of $locked one refused with 16, of $late one came later (10)"
done
verdicts
