#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Resuming where the processes of a job see different folders, as hosts do that share none: each
# process works in a folder of its own, with run.dir of one name. The first rank chooses; all prove
# that they have opened the same checkpoint, and what differs is one message and code 11, with
# nothing changed on any side.
#
#     tests/dist/mpi_resume.sh PROGRAM         PROGRAM: build/plait
set -u

plait=$1
# shellcheck source=tests/harness/jobs.sh
. "$(dirname "$0")/../harness/jobs.sh"

corpus "$plait"
common="model.layers=2 model.hidden=16 model.heads=2 model.seq=8 train.batch=4 train.steps=8
train.save_every=2 train.save_keep=9 train.threads=1 train.valid_every=2 train.valid_batches=1
parallel.dp=2 run.dir=run data.train=$dir/tokens data.valid=$dir/tokens"

# Two hosts with the same run of eight steps.
train() { # FOLDER WORDS...
    rm -rf "$1"
    mkdir "$1"
    # shellcheck disable=SC2086
    (cd "$1" && shift && "$plait" train $common "$@" >log 2>&1) || {
        cat "$1/log"
        exit 1
    }
}
train "$dir/one"
train "$dir/other" optim.lr=0.02 # of the same steps
hosts() { # both as they were
    rm -rf "$dir/host0" "$dir/host1"
    cp -r "$dir/one" "$dir/host0"
    cp -r "$dir/one" "$dir/host1"
}
cat >"$dir/on_host" <<'END'
#!/bin/sh
cd "$(dirname "$0")/host$OMPI_COMM_WORLD_RANK" && exec "$@"
END
chmod +x "$dir/on_host"
resume() { # WORDS...
    cp -r "$dir/host0" "$dir/kept0"
    cp -r "$dir/host1" "$dir/kept1"
    # shellcheck disable=SC2086
    launch 100 -n 2 "$dir/on_host" "$plait" train $common train.transport=mpi "$@" \
        >"$dir/log" 2>&1
}

# Refused: code 11, these words, once; and both folders are as before.
refused() { # NAME WORDS_SAID WORDS...
    name=$1 said=$2
    shift 2
    resume "$@"
    code=$?
    [ $code -eq 11 ] && [ "$(grep -c "$said" "$dir/log")" -eq 1 ] &&
        [ "$(grep -c 'plait: error: ' "$dir/log")" -eq 1 ] &&
        diff -r -x plait.lock "$dir/host0/run" "$dir/kept0/run" >>"$dir/log" 2>&1 &&
        diff -r -x plait.lock "$dir/host1/run" "$dir/kept1/run" >>"$dir/log" 2>&1
    verdict "$name" $? "code $code" "$dir/log"
    rm -rf "$dir/kept0" "$dir/kept1"
}

# Goes on behind that step; hosts that share no folder cannot save.
unsaved="train.save_every=0 train.save_keep=0 train.steps=10"
goes_on() { # NAME STEP WORDS...
    name=$1 step=$2
    shift 2
    # shellcheck disable=SC2086
    resume "$@" $unsaved && grep -q "behind step $step, from run/checkpoints/step-$step " "$dir/log"
    verdict "$name" $? "" "$dir/log"
    rm -rf "$dir/kept0" "$dir/kept1"
}

for word in auto 8 best run/checkpoints/step-8; do
    hosts
    rm -rf "$dir/host1/run"
    cp -r "$dir/other/run" "$dir/host1/run"
    refused "another run's checkpoint ($word)" \
        "checkpoint run/checkpoints/step-[0-9]* differs between rank 0 and rank 1 (digests " \
        run.resume=$word
done

hosts
rm -r "$dir/host1/run/checkpoints/step-8"
refused "the newest is not there on another rank" \
    "checkpoint run/checkpoints/step-8 that rank 0 has opened is not there on rank 1" \
    run.resume=auto
# One that is named is looked for before there are ranks, and who lacks it says so.
hosts
rm -r "$dir/host1/run/checkpoints/step-8"
resume run.resume=8
code=$?
said='rank 1: .*has no whole checkpoint of step 8; it has those of: 2, 4, 6'
[ $code -eq 14 ] && [ "$(grep -c "$said" "$dir/log")" -eq 1 ]
verdict "a step that is not there on another rank" $? "code $code" "$dir/log"
rm -rf "$dir/kept0" "$dir/kept1"
hosts
rm -r "$dir/host0/run/checkpoints/step-8"
refused "the first rank does not see the newest" \
    "run/checkpoints is of step 8 on rank 1, and rank 0 sees step 6" run.resume=auto
hosts
rm -r "$dir/host0/run/checkpoints" "$dir/host0/run/model.safetensors"
refused "the first rank sees none" \
    "run/checkpoints is of step 8 on rank 1, and rank 0 sees none" run.resume=auto

# The best is the first rank's: here the other one has a better one, which the first does not see.
hosts
best=$(sed -n 's/.*"step": \([0-9]*\), "valid_loss": \([^,}]*\).*/\2 \1/p' \
    "$dir/host0/run/metrics.jsonl" | sort -g | sed 's/.* //')
first=$(echo "$best" | sed -n 1p) second=$(echo "$best" | sed -n 2p)
rm -r "$dir/host0/run/checkpoints/step-$first"
goes_on "the best of the first rank" "$second" run.resume=best
hosts
goes_on "copies that are the same" 8 run.resume=auto

# A shard that is damaged on one side alone: all take the one before, and it is said once.
hosts
shard="$dir/host1/run/checkpoints/step-8/rank-00000.safetensors"
printf 'xxxx' | dd of="$shard" bs=1 seek=$(($(wc -c <"$shard") - 100)) conv=notrunc 2>/dev/null
goes_on "damaged on one rank" 6 run.resume=auto
[ "$(grep -c 'the checkpoint before it is tried' "$dir/log")" -eq 1 ]
verdict "that is said once" $? "" "$dir/log"

# Weights to begin with, which each rank reads, too.
hosts
cp -r "$dir/other/run/checkpoints/step-8" "$dir/host1/from"
cp -r "$dir/one/run/checkpoints/step-8" "$dir/host0/from"
refused "other weights to begin with" "the weights differs between rank 0 and rank 1" \
    run.dir=new model.init=from

verdicts
