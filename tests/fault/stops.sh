#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Ranks that are processes are stopped (SIGSTOP) or killed (SIGKILL) at moments drawn at random, on
# layouts and schedules drawn at random. Of a stopped one the job must end with 20 and name it
# first, of a killed one say that it has died; both once. tests/fault/test_stops.c has ranks that
# are threads.
#
#     tests/fault/stops.sh PROGRAM [STOPS] [SEED]          PROGRAM: build/plait
set -u

plait=$1
stops=${2:-4}
seed=${3:-1}
# shellcheck source=tests/harness/jobs.sh
. "$(dirname "$0")/../harness/jobs.sh"

corpus "$plait"
common="model.kind=llama model.layers=4 model.hidden=32 model.heads=4 model.ffn=64 model.seq=16
train.steps=1000000 train.batch=16 parallel.microbatch=1 data.train=$dir/tokens
data.valid=$dir/tokens train.valid_every=40 train.valid_batches=1 train.hang_timeout=1.5
train.transport=mpi"

# All draws, a line a stop: rank, signal, delay in hundredths of a second, ranks, words.
awk -v n="$stops" -v seed="$seed" 'BEGIN {
    srand(seed)
    split("2 pp=2 parallel.schedule=gpipe|2 dp=2|2 tp=2 parallel.sp=true|" \
          "3 pp=3 parallel.schedule=zb-h1|4 pp=4 parallel.schedule=1f1b|4 dp=4|" \
          "4 pp=2 parallel.chunks=2 parallel.schedule=zb-v parallel.tp=2|" \
          "4 pp=2 parallel.dp=2 parallel.zero=1|4 tp=2 parallel.dp=2|" \
          "4 pp=2 parallel.schedule=dualpipe parallel.dp=2|" \
          "4 pp=4 parallel.schedule=zb-h2|" \
          "4 pp=2 parallel.chunks=2 parallel.schedule=interleaved parallel.dp=2", layout, "|")
    for (i = 0; i < n; i++) {
        l = layout[1 + int(rand() * 12)]
        split(l, word, " ")
        sub(/^[0-9] /, "parallel.", l)
        print int(rand() * word[1]), i % 2 ? "KILL" : "STOP", int(rand() * 100), word[1], l
    }
}' >"$dir/draws"

# The process of a rank, of those that the launcher has started.
process_of() { # LAUNCHER RANK
    for child in $(pgrep -P "$1"); do
        if tr '\0' '\n' <"/proc/$child/environ" 2>/dev/null |
            grep -qx "OMPI_COMM_WORLD_RANK=$2"; then
            echo "$child"
            return
        fi
    done
}

named=0 wrong=0 codes=0
while read -r rank signal delay ranks words; do
    rm -rf "$dir/run"
    # shellcheck disable=SC2086
    launch 120 -n "$ranks" "$plait" train $common $words run.dir="$dir/run" >"$dir/out" \
        2>"$dir/err" &
    job=$!
    tries=0
    while [ ! -s "$dir/run/metrics.jsonl" ] && [ "$tries" -lt 600 ] && kill -0 "$job"; do
        sleep 0.1
        tries=$((tries + 1))
    done
    sleep "$(printf '%d.%02d' $((delay / 100)) $((delay % 100)))"
    launcher=$(pgrep -P "$(pgrep -P "$job" timeout)" mpirun)
    process=$(process_of "$launcher" "$rank")
    kill -"$signal" "$process"
    wait "$job"
    code=$?
    said=$(grep -c '^plait: error: ' "$dir/err")
    says="does not answer"
    [ "$signal" = STOP ] || says="has died"
    want="^plait: error: rank $rank (process $process on .*) $says"
    [ "$signal" = STOP ] && [ "$code" -ne 20 ] && codes=$((codes + 1))
    [ "$signal" = KILL ] && [ "$code" -eq 0 ] && codes=$((codes + 1))
    if [ "$said" -eq 1 ] && grep -q "$want" "$dir/err"; then
        named=$((named + 1))
    else
        wrong=$((wrong + 1))
        echo "rank $rank, $signal, $words: code $code, said $said times"
        grep '^plait: ' "$dir/err" | sed 's/^/    /' | head -5
    fi
done <"$dir/draws"

echo "$stops stops: $named named right, $wrong not; $codes other codes"
[ "$((wrong * 20))" -le "$stops" ] && [ "$codes" -eq 0 ] && [ "$((named + wrong))" -gt 0 ]
verdict "stopped and killed ranks are named" $?
verdicts
