#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Drivers and libraries that do not fit, without a GPU: stubs stand in for them, and the program
# says one line and ends with code 10, before it writes anything.
#
#     tests/fault/machine_check.sh PROGRAM STUBS [cudnn] [nccl]     what is built in
set -u

plait=$1
stubs=$2
shift 2
passed=0
failed=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$plait" data random --vocab 64 --tokens 1000 -o "$dir/tokens" >/dev/null || exit 1
model="model.kind=gpt model.layers=1 model.hidden=32 model.heads=2 model.ffn=64 model.seq=16
train.steps=1 train.device=cuda data.train=$dir/tokens run.dir=$dir/run"

refused() { # NAME PATTERN ENVIRONMENT WORDS
    # shellcheck disable=SC2086
    env $3 "$plait" train $model $4 >"$dir/out" 2>"$dir/err"
    code=$?
    if [ $code -eq 10 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && [ ! -s "$dir/out" ] &&
        grep -qE "$2" "$dir/err"; then
        passed=$((passed + 1))
        echo "ok   $1"
    else
        failed=$((failed + 1))
        echo "FAIL $1: code $code, wanted 10 and one line with \"$2\""
        cat "$dir/out" "$dir/err"
    fi
}

driver="LD_LIBRARY_PATH=$stubs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
refused "an old driver" "driver knows CUDA 11\.0 and this program was built with [1-9]" \
    "$driver STUB_DRIVER=11000 STUB_START=0" ""
refused "a driver that finds no GPU" "sees no GPU \(no CUDA-capable device is detected\)" \
    "$driver STUB_DRIVER=99000 STUB_START=100" ""
refused "a driver that does not start" "sees no GPU \(unknown error\)" \
    "$driver STUB_DRIVER=99000 STUB_START=999" ""
refused "a driver beside another's kernel module" "unsupported display driver" \
    "$driver STUB_DRIVER=99000 STUB_START=803" ""

preload="LD_PRELOAD=$stubs/libraries.so"
refused "cuBLASLt of another version" "built for cuBLASLt [0-9.]+ and finds version 110000;" \
    "$preload STUB_CUBLASLT=110000" ""
for built in "$@"; do
    case $built in
    cudnn)
        refused "cuDNN of another version" "built for cuDNN [0-9.]+ and finds version 8907;" \
            "$preload STUB_CUDNN=8907" "train.dtype=bf16"
        refused "cuDNN before what is needed" "finds version 90501; install a cuDNN 9 of at least" \
            "$preload STUB_CUDNN=90501" "train.dtype=bf16"
        ;;
    nccl)
        refused "NCCL before the one built with" "built for NCCL [0-9.]+ and finds version 21805;" \
            "$preload STUB_NCCL=21805" "parallel.dp=2 train.batch=2"
        refused "NCCL of another version" "and finds version 30100; install NCCL" \
            "$preload STUB_NCCL=30100" "parallel.dp=2 train.batch=2"
        ;;
    esac
done

if [ -z "$(ls -A "$dir/run" 2>/dev/null)" ]; then
    passed=$((passed + 1))
    echo "ok   nothing was written"
else
    failed=$((failed + 1))
    echo "FAIL a run was begun: $(ls -A "$dir/run")"
fi

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
