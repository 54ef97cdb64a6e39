#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Each case of each test program alone, in a process of its own: none may rest on what another has
# left, be it a file, a count or a setting.
#
#     tests/harness/alone.sh FOLDER [WORD]     FOLDER: build/tests; WORD: of the programs' names
set -u

log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0
for program in "$1"/test_*"${2:-}"*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    while IFS= read -r name; do
        if "$program" "$name" >"$log" 2>&1; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "FAIL $program '$name'"
            tail -20 "$log" | sed 's/^/    /'
        fi
    done <<END
$("$program" --list)
END
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
