#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# From nothing to a model that writes: a text is split into a training and a validation part,
# turned into token files, a small Llama is trained on four ranks (two pipeline stages of two
# tensor ranks each, all threads of one process), stopped in the middle, resumed, and then continues
# a prompt.
#
#     tools/demo.sh            the King James Bible of Debian's bible-kjv package
#     tools/demo.sh FILE       your own text, any language, 200 KB or more
#
# PROMPT='...' is what the model continues; PLAIT='...' the program; STEPS=N how long to train.
set -eu

text=${1:-}
case $text in
'' | /*) ;;
*) text=$PWD/$text ;;
esac
cd "$(dirname "$0")/.."
plait=${PLAIT:-build/plait}
data=runs/demo-data
run=runs/demo-$(date +%Y%m%d-%H%M%S)

if [ ! -x "$plait" ]; then
    echo "demo: no program at $plait; run: make build" >&2
    exit 1
fi
mkdir -p "$data"
rm -f "$data"/train.txt "$data"/valid.txt

if [ -n "$text" ]; then
    if [ ! -f "$text" ] || [ ! -r "$text" ]; then
        echo "demo: $text is no readable file; give a plain text: make demo TEXT=FILE" >&2
        exit 1
    fi
    cp "$text" "$data/all.txt"
    # The first words of the text itself are a prompt in its own language.
    prompt=${PROMPT:-$(awk 'NF { $0 = $1 " " $2 " " $3; sub(/ +$/, ""); print; exit }' "$text")}
else
    tools/deps.sh demo
    # The program keeps the text compressed and prints any range of verses; this one is all of it.
    # Every verse on lines of its own beneath the name of its chapter, 79 columns.
    bible -l79 gen1:1-rev22:21 </dev/null >"$data/all.txt"
    verses=$(grep -c '^  [0-9][0-9]* ' "$data/all.txt")
    if [ "$verses" -ne 31102 ]; then
        echo "demo: the bible program gave $verses verses, 31102 were expected;" \
            "use make demo TEXT=FILE" >&2
        exit 1
    fi
    prompt=${PROMPT:-In the beginning}
fi

# Of every twenty blocks of some 16 KB, cut at line ends, one is kept from training: all of the text
# is represented on both sides, and no line is.
LC_ALL=C awk -v train="$data/train.txt" -v valid="$data/valid.txt" '
    { n += length($0) + 1; print >(int(n / 16384) % 20 == 10 ? valid : train) }' "$data/all.txt"
if [ ! -s "$data/valid.txt" ]; then
    echo "demo: $text is too short to keep a part for validation; give 200 KB or more" >&2
    exit 1
fi

kb() { echo "$(($(wc -c <"$1") / 1000)) KB"; }
echo "== 1. text to tokens: $(kb "$data/all.txt"), $(kb "$data/valid.txt") of them for validation"
"$plait" data prepare "$data/train.txt" -o "$data/train.tok"
"$plait" data prepare "$data/valid.txt" -o "$data/valid.tok"

echo
echo "== 2. training on 4 ranks: 2 pipeline stages x 2 tensor ranks, 1F1B"
train() {
    exec "$plait" train configs/demo.yaml \
        data.train="$data/train.tok" data.valid="$data/valid.tok" \
        run.dir="$run" ${STEPS:+train.steps="$STEPS" optim.warmup="$((STEPS / 10))"} -n 4 "$@"
}
steps() { grep -c grad_norm "$run/metrics.jsonl" 2>/dev/null || :; }
half=$((${STEPS:-$(sed -n 's/^ *steps: *\([0-9]*\).*/\1/p' configs/demo.yaml)} / 2))
train &
pid=$!
while kill -0 $pid 2>/dev/null && [ "0$(steps)" -lt "$half" ]; do sleep 0.1; done
kill -TERM $pid 2>/dev/null || :
code=0
wait $pid || code=$?
[ $code -eq 0 ] || [ $code -eq 75 ] || exit $code # 75: stopped, with work left
echo
echo "== it was stopped in its middle, and goes on from its checkpoint"
(train run.resume=auto)

echo
echo "== 3. the model writes on from \"$prompt\""
"$plait" generate "$run" --prompt "$prompt" --tokens 400 --temperature 0.8 --top-k 40
echo
echo
echo "The run is in $run; $plait generate $run --prompt '...' asks it for more."
