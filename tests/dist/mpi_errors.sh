#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every kind of failing job under mpirun, at its start, while it runs and at its end, on several
# numbers of ranks: one message, said once, and its code is the job's (128 and the signal of a
# process that is killed, as mpirun has it). As many jobs as one has ranks share
# the cores, and ranks from the third on come late and outlive the end of the first ones. And what
# verbs print without ranks: of a job as of one process, to the byte.
#
#     tests/dist/mpi_errors.sh PROGRAM [ROUNDS]     PROGRAM: build/plait
set -u

plait=$1
rounds=${2:-1}
# shellcheck source=tests/harness/jobs.sh
. "$(dirname "$0")/../harness/jobs.sh"

corpus "$plait"
cat >"$dir/c.yaml" <<END
model: {kind: gpt, layers: 8, hidden: 32, heads: 4, seq: 16}
train: {steps: 3, batch: 8, transport: mpi, hang_timeout: 20}
parallel: {microbatch: 1}
data: {train: $dir/tokens}
END
head -c 5000 "$dir/tokens" >"$dir/cut"
"$plait" train "$dir/c.yaml" train.transport=thread run.dir="$dir/whole" >"$dir/log" 2>&1 ||
    verdict "a run" 1 "does not end well" "$dir/log"

# KIND, CODE, a word of the message, what a shell does in each process. c: the configuration; t: to
# train it on n ranks, in a folder of its own; short: limits; d: the folder of all jobs; last: the
# last rank is it; await: until there is a step; searched: or a search for what is not finite.
cat >"$dir/kinds" <<'END'
key 10 model.layer $t model.layer=2
option 10 sped $t --sped
config 10 none.yaml $plait train $d/none.yaml
words 10 key=value $plait train $c oops
verb 10 trian $plait trian $c
layout 10 parallel.pp $t parallel.tp=2
transport 10 launcher $t train.transport=thread
file 12 none.tok $t data.train=$d/none.tok
cut 12 cut $t data.train=$d/cut
vocab 13 vocab $t model.vocab=10
tokenizer 13 gpt2 $t data.tokenizer=gpt2
below 17 folder $t run.dir=$c/below
foreign 10 config.json $t run.dir=$d/foreign
taken 16 takeover $t run.dir=$d/taken
held 16 use.by.the.run $t run.dir=$d/held
folder 10 there.is.no.folder $plait generate $d/none
weights 14 safetensors $plait generate $d/weights train.transport=mpi parallel.pp=$n
sim 10 1f1b $plait sim 1f1 -p 2 -m 4
simfile 10 none.csv $plait sim $d/none.csv
simout 17 out.svg $plait sim 1f1b -p 2 -m 4 --svg $d/none/out.svg
part 10 prepare $plait data prepar
text 12 none.txt $plait data prepare $d/none.txt -o $d/none.tok
output 10 same.file $plait data prepare $d/text -o $d/text
random 10 vocab $plait data random --tokens 9
info 12 cut $plait data info $d/cut
about 10 words $plait info oops
compare 10 there.is.no.folder $plait compare $d/none
untraced 10 trace $plait compare $d/whole
bench 10 model.layer $plait bench $c model.layer=2
benches 10 launcher $plait bench $c train.transport=thread
counts 10 ceiling $plait bench $c --product 1
help 10 lists $plait help nix
helps 10 one.thing $plait help sim data
check 10 model.layer $plait check $c model.layer=2
checks 12 none.tok $last && c="$c data.train=$d/none.tok"; $plait check $c parallel.pp=$n
ids 10 ids $plait generate $d/whole --ids 1,x
other 11 configuration $t optim.lr=0.00$((1 + OMPI_COMM_WORLD_RANK))
nonfinite 18 norm $t optim.lr=100 optim.lr_min=0 optim.warmup=0 train.steps=500
search 18 ended.by.SIGTERM $last && searched && kill $$ & exec $t $ill $wide
full 17 space PLAIT_FAIL_FS=34+:ENOSPC $t
takeover 0 died $t run.takeover=true
stop 75 stopped $last && await && kill $$ & exec $t train.steps=1000000
kill 137 died $last && await && kill -9 $$ & exec $t train.steps=1000000
hang 20 answer $last && await && kill -STOP $$ & exec $t train.steps=1000000 $short
END
# A run that lives and holds its folder, and takes no time.
"$plait" train "$dir/c.yaml" train.transport=thread run.dir="$dir/held" train.steps=1000000 \
    >"$dir/log" 2>&1 &
holder=$!
trap 'kill -KILL "$holder"; rm -rf "$dir"' EXIT
tries=0
while [ ! -s "$dir/held/metrics.jsonl" ] && [ "$tries" -lt 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -STOP "$holder"
mkdir "$dir/foreign" "$dir/taken" "$dir/weights"
echo mine >"$dir/foreign/config.json"
printf 'plait run\nhost elsewhere\npid 5\nsince 2026-01-01T00:00:00Z\n' >"$dir/lock"
cp "$dir/lock" "$dir/taken/plait.lock"
cp "$dir/whole/config.yaml" "$dir/whole/config.json" "$dir/weights"
head -c 100 "$dir/whole/model.safetensors" >"$dir/weights/model.safetensors"

one() { # NAME CODE TEXT RANKS COMMAND
    name=$1 code=$2 text=$3
    run="$dir/run.$name"
    mkdir "$run"
    [ "${name%%.*}" != takeover ] || cp "$dir/lock" "$run/plait.lock"
    cat >"$dir/$name.sh" <<END
plait="$plait" c="$dir/c.yaml" d="$dir" n=$4
t="$plait train $dir/c.yaml parallel.pp=$4 run.dir=$run"
short="train.hang_timeout=2 run.io_timeout=10"
last="[ \$OMPI_COMM_WORLD_RANK = $(($4 - 1)) ]"
ill="optim.lr=100 optim.clip=0 train.steps=50" wide="model.hidden=256 model.seq=64 train.batch=60"
searched() { until grep -q once.more "$dir/$name.err" || ! kill -0 \$\$; do sleep 0.05; done; }
await() { while [ ! -s "$run/metrics.jsonl" ]; do sleep 0.1; done; }
[ \$OMPI_COMM_WORLD_RANK -lt 2 ] || { trap "" TERM; sleep 0.\$OMPI_COMM_WORLD_RANK; trap - TERM; }
$5
END
    launch 100 -n "$4" sh "$dir/$name.sh" >"$dir/$name.out" 2>"$dir/$name.err"
    got=$?
    said=$(grep '^plait: ' "$dir/$name.err" | grep -vc 'lock cannot be removed')
    [ "$got" -eq "$code" ] && [ "$said" -eq 1 ] && grep -q "^plait: .*$text" "$dir/$name.err"
    verdict "$name" $? "code $got, wanted $code; said $said times ($text)" "$dir/$name.err"
}

for round in $(seq "$rounds"); do
    for ranks in 2 5; do
        under_way=0 jobs=
        while read -r kind code text command; do
            one "$kind.$ranks.$round" "$code" "$text" "$ranks" "$command" &
            under_way=$((under_way + 1))
            jobs="$jobs $!"
            # shellcheck disable=SC2086
            [ $((under_way % ranks)) -ne 0 ] || wait $jobs
        done <"$dir/kinds"
        # shellcheck disable=SC2086
        wait $jobs
    done
done

# What verbs print when all is well, their pages, and the list of verbs. Whatever each process of a
# job says goes to the job's output. A line of info names the launcher; a bench that measures has no
# two answers alike. mpirun gives processes a terminal, and cat is none.
"$plait" train "$dir/c.yaml" train.transport=thread run.dir="$dir/traced" --trace >"$dir/log" 2>&1
{
    cat <<END
info
--version
sim --list
sim 1f1b -p 2 -m 4 --gantt --svg $dir/same.svg
data info $dir/tokens
data prepare $dir/text -o $dir/same.tok
data random --vocab 9 --tokens 99 -o $dir/random.tok
compare $dir/traced
bench $dir/c.yaml --product 1 --copy 1
check $dir/c.yaml train.threads=1
help model.layers

END
    "$plait" help | sed -n 's/^  plait \([a-z]*\) .*/\1 --help/p'
} >"$dir/words"
cat >"$dir/say.sh" <<END
$plait "\$@" 2>&1 | cat
END

# Lines that are of a job: who launched it, and how many share the cores.
of_job='^launcher \|^warning .* cores\{0,1\} and wait'
same() { # NUMBER WORDS
    # shellcheck disable=SC2086
    sh "$dir/say.sh" $2 | grep -v "$of_job" >"$dir/alone.$1"
    # shellcheck disable=SC2086
    launch 100 -n 3 sh "$dir/say.sh" $2 2>"$dir/err.$1" |
        grep -v "$of_job" >"$dir/job.$1"
    cmp -s "$dir/alone.$1" "$dir/job.$1" && grep -q . "$dir/job.$1"
    verdict "plait $2" $? "of a job is not as of one process" "$dir/job.$1"
}

number=0 jobs=
while read -r words; do
    number=$((number + 1))
    same "$number" "$words" &
    jobs="$jobs $!"
    # shellcheck disable=SC2086
    [ $((number % 3)) -ne 0 ] || wait $jobs
done <"$dir/words"
# shellcheck disable=SC2086
wait $jobs
[ "$number" -ge 21 ]
verdict "pages" $? "$number were asked for"
verdicts
