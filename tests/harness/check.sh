# shellcheck shell=sh disable=SC2154
# SPDX-License-Identifier: Apache-2.0
#
# Conditions of a script, counted: begin with `. tests/harness/check.sh` and a function on_failure,
# which shows what there is to see, and end with checks_end.

passed=0
failed=0

check() { # NAME CONDITION...
    name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok   $name"
    else
        failed=$((failed + 1))
        echo "FAIL $name"
        on_failure
    fi
}

checks_end() { # the last line of a script, and its status
    echo "$passed passed, $failed failed, 0 skipped"
    [ "$failed" -eq 0 ]
}
