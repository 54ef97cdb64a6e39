# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by the scripts of tests: a folder that goes when they end, a token file, jobs under
# mpirun, verdicts and their sum. Cases may run in the background.
#
# The environment is what a container without privileges needs: running as root, more ranks than
# cores, no attaching to other processes' memory.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_hwloc_base_binding_policy=none
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
: >"$dir/verdicts"

corpus() { # PROGRAM: some text as "$dir/tokens"
    seq 1 800 | sed 's/.*/strand & over strand &&/' >"$dir/text"
    "$1" data prepare "$dir/text" -o "$dir/tokens" >"$dir/log" 2>&1 || {
        cat "$dir/log"
        exit 1
    }
}

# mpirun's own folder is one for all of a user and goes with the first that ends: each has one.
launch() { # SECONDS ARGUMENTS OF mpirun...
    seconds=$1
    shift
    OMPI_MCA_orte_tmpdir_base=$(mktemp -d "$dir/XXXX") timeout "$seconds" mpirun --oversubscribe \
        "$@" </dev/null
}

verdict() { # NAME 0|1 [WHY [FILE]]
    says="ok   $1"
    if [ "$2" -ne 0 ]; then
        says="FAIL $1${3:+: $3}"
        [ -z "${4:-}" ] || says="$says
$(tail -20 "$4" | sed 's/^/    /')"
    fi
    printf '%s\n' "$says"
    echo "${says%% *}" >>"$dir/verdicts"
}

verdicts() { # the last line of a script
    passed=$(grep -c '^ok' "$dir/verdicts")
    failed=$(grep -c '^FAIL' "$dir/verdicts")
    echo "$passed passed, $failed failed, 0 skipped"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
