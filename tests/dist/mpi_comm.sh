#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The MPI transport under mpirun: the same results as threads, bit for bit, with 2, 4 and 8 ranks;
# and every way of failing: the job ends soon, with the failing rank's code, its message said once.
#
#     tests/dist/mpi_comm.sh PROGRAM          PROGRAM: build/tests/mpi_comm
set -u

program=$1
# shellcheck source=tests/harness/jobs.sh
. "$(dirname "$0")/../harness/jobs.sh"
err="$dir/err"

job() { # RANKS ARGUMENTS...
    ranks=$1
    shift
    launch 60 -n "$ranks" "$program" "$@"
}

law() { # RANKS SEED
    want=$("$program" law "$2" 300 "$1" 2>"$err")
    got=$(job "$1" law "$2" 300 2>"$err")
    code=$?
    [ "$code" -eq 0 ] && [ -n "$want" ] && [ "$got" = "$want" ]
    verdict "law_of_$1_seed_$2" $? "code $code, mpi '$got', threads '$want'" "$err"
}

# A job of 3 ranks that must end within 8 s, and what starting and ending one takes on this machine
# now, with CODE and exactly one logged message, which contains TEXT.
fails() { # HOW CODE TEXT
    begin=$(date +%s)
    job 3 fail "$1" >/dev/null 2>"$err"
    code=$?
    took=$(($(date +%s) - begin))
    said=$(grep -c '^plait: error: ' "$err")
    [ "$code" -eq "$2" ] && [ "$took" -le $((8 + start)) ] && [ "$said" -eq 1 ] &&
        grep -q "$3" "$err"
    verdict "fail_$1" $? "code $code (wanted $2), $took s, said $said times (wanted: $3)" "$err"
}

for ranks in 2 4 8; do
    law $ranks 1
    law $ranks 2
done
begin=$(date +%s)
job 3 wide 20 2>"$err"
code=$?
start=$(($(date +%s) - begin))
verdict wide_of_3 $code "code $code" "$err"
fails data 12 'error: rank 1: shard 7 is short'
fails busy 12 'error: rank 1: shard 7 is short'
fails abort 17 'error: rank 1: no room'
fails early 21 'rank 1 has ended without taking part in all_reduce of 100 f32 elements'
fails hang 20 'error: rank 1 (process .*) does not answer: .* waits for rank 1, '
fails stopped 20 'error: rank 1 (process .*) does not answer: .* waits for rank 1, '
fails gone 12 'error: rank 0: shard 7 is short'
fails count 11 'all_reduce of 99 f32 elements on rank 1'
fails kind 11 'barrier on rank 1'
fails root 11 'reduce of 100 f32 elements to member 1 on rank 1'
fails parts 11 'all_to_all: rank 1 sends 2 elements to rank 2, but rank 2 receives 3'
fails parted 21 'rank 1 has ended without taking part in all_to_all of 9 i32 elements'
fails unmet 21 'rank 1 has ended without taking part in reduce of 100 f32 elements to member 0'
fails long 11 'rank 1 sends more bytes with tag 4, but rank 0 receives 8'
fails short 11 'rank 1 sends 1 byte with tag 4, but rank 0 receives 64'
fails left 70 '1 unfinished operation'

verdicts
