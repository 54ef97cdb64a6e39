#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# tools/format in a copy of the sources: rows that are added to every table of them stay as they
# were written, and a function's line that was changed is formatted, staged or not.
#
#     tests/fault/format_check.sh
set -u
# shellcheck source=tests/harness/check.sh
. "$(dirname "$0")/../harness/check.sh"

for program in git clang-format python3; do
    command -v $program >/dev/null || {
        echo "skip format: $program is not installed"
        echo "0 passed, 0 failed, 1 skipped"
        exit 0
    }
done
top=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

on_failure() {
    git diff HEAD | head -40
}

keep() {
    git -c user.name=test -c user.email=test@example.org commit -qm "$1"
}

cp -r "$top/src" "$top/tests" "$top/cmd" "$top/.clang-format" "$dir/" && cd "$dir" || exit 2
git init -q . && git add src tests cmd .clang-format && keep sources || exit 2

# A row more behind each that begins with a word, as long as a line may be.
git ls-files '*.c' '*.h' | xargs sed -i '/^    {".*},$/p'
rows=$(git diff HEAD | grep -c '^+    {')
git diff HEAD >.rows
"$top/tools/format" >.said 2>&1
git diff HEAD >.after
check "hundreds of tables have a row more" test "$rows" -gt 500
check "tables stay as they are laid" cmp -s .rows .after
git checkout -q .

for staged in no yes; do
    sed -i 's/^    return KIND_COUNT;/    return   KIND_COUNT ;/' src/sched/sched_kinds.c
    [ $staged = no ] || git add src
    check "a line that wants it is there" grep -q 'return   KIND' src/sched/sched_kinds.c
    "$top/tools/format" >.said 2>&1
    check "it is formatted, staged: $staged" git diff --quiet HEAD
    check "and its file named" grep -qx 'format: src/sched/sched_kinds.c' .said
    git checkout -q HEAD .
done

sed -i 's/^    return KIND_COUNT;/    return   KIND_COUNT ;/' src/sched/sched_kinds.c
git add src && keep "a line of bad form" || exit 2
"$top/tools/format" HEAD~1 >.said 2>&1
check "lines since another commit" grep -qx '    return KIND_COUNT;' src/sched/sched_kinds.c

checks_end
