#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# transformers 4.57 and 5.24 as judges of the folders that plait reads and leaves (hf_judge.py), in
# environments of pinned versions under build-judges/. The first call installs them with pip: torch
# from the registry brings libraries for GPUs, about 7 GB in all. Some two minutes after that.
#
#     tests/oracle/judges.sh PLAIT            judge the program
#     tests/oracle/judges.sh --fixtures DIR   write the fixtures anew, each by its version
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
envs=$here/../../build-judges
export CUDA_VISIBLE_DEVICES="" HF_HUB_OFFLINE=1
passed=0 failed=0

# venv NAME PACKAGES...
venv()
{
    local dir=$envs/$1
    shift
    [ -e "$dir/ready" ] && return
    python3 -m venv "$dir"
    "$dir/bin/pip" install --quiet --no-cache-dir "$@"
    touch "$dir/ready"
}

site()
{
    "$1/bin/python" -c 'import site; print(site.getsitepackages()[0])'
}

venv torch torch==2.8.0 numpy==2.4.6
for version in 4.57.6 5.24.0; do
    venv "transformers-$version" "transformers==$version" safetensors==0.8.0 numpy==2.4.6
    site "$envs/torch" >"$(site "$envs/transformers-$version")/torch.pth"
done

for version in 4.57.6 5.24.0; do
    log=$envs/$version.log
    "$envs/transformers-$version/bin/python" "$here/hf_judge.py" "$@" 2>&1 | tee "$log" |
        grep -v '^ok' || true
    sum=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1 || true)
    if [ "$1" != --fixtures ] && [ -z "$sum" ]; then
        echo "judges: $version did not end"
        failed=$((failed + 1))
    fi
    read -r p _ f _ <<<"${sum:-0 passed, 0 failed}"
    passed=$((passed + p)) failed=$((failed + f))
done
[ "$1" = --fixtures ] || echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
