/* SPDX-License-Identifier: Apache-2.0
 *
 * What fails behind a step that is not finite, and on one process of several: the first error is
 * said first, and has the code.
 */
#include "endings.h"

#define DIVERGES "optim.lr=100 optim.clip=0 train.steps=50"

/* The step that is not finite is run again, and its samples cannot be read then. n: the pread that
 * fails. Was that so? */
static bool search_that_fails(const char *launcher, int n, int *code)
{
    char fault[64], said[SAID];
    snprintf(fault, sizeof fault, "pread@corpus:%d:EIO", n);
    *code = train("run", launcher, fault, launcher[0] ? DIVERGES " train.transport=mpi" : DIVERGES,
                  said);
    const char *lost = strstr(said, " has loss "), *why = strstr(said, "cannot be said: ");
    bool of_disk = strstr(said, "input/output error");
    test_check(*code == PLAIT_NONFINITE ? lost && (!why || (of_disk && lost < why))
                                        : *code == PLAIT_DATA && of_disk,
               __FILE__, __LINE__, "%s %s: code %d: %s", launcher, fault, *code, said);
    *code = *code == PLAIT_NONFINITE && !why ? 0 : *code;
    return why;
}

/* The last preads before the run has its end: those of the search. */
static void last_reads(const char *launcher, int behind, int count)
{
    int before = 0, searched = 0, code;
    while (behind - before > 1) { /* the first that no run comes to */
        int n = (before + behind) / 2;
        (void)search_that_fails(launcher, n, &code);
        *(code == 0 ? &behind : &before) = n;
    }
    for (int n = before; n > 0 && n > before - count; n--)
        searched += search_that_fails(launcher, n, &code);
    test_check(searched > 0, __FILE__, __LINE__, "%s: none of %d in a search", launcher, before);
}

static void a_search_that_fails(void)
{
    last_reads("", 128, 12);
}

static void behind_a_step_that_is_not_finite(void)
{
    char said[SAID];
    int code = train("run", "", "close@metrics.jsonl:1:EIO",
                     DIVERGES, said);
    const char *first = strstr(said, " has loss "), *then = strstr(said, "; then ");
    test_check(code == PLAIT_NONFINITE && first && then && first < then &&
                   strstr(then, "metrics.jsonl"), __FILE__, __LINE__, "code %d: %s", code, said);
}

/* A start that fails on one process leaves nothing of the others; a search leaves the first
 * error. */
static void of_processes(void)
{
    static const char first[] = "mpirun -n 2 --oversubscribe sh -c '[ $OMPI_COMM_WORLD_RANK = 0 ] "
                                "|| unset PLAIT_FAIL_FS; \"$@\"' sh";
    char said[SAID];
    if (!folder_mpirun())
        return;
    for (int i = 0; i < 2; i++) {
        int code = train("run", "mpirun -n 2 --oversubscribe", "keep@model.safetensors:1:ENOSPC",
                         "train.trace=true train.transport=mpi", said);
        test_check(code == PLAIT_STORAGE && folder_count("run", "") <= 2, __FILE__, __LINE__,
                   "code %d, %d names: %s", code, folder_count("run", ""), said);
    }
    last_reads(first, 64, 2);
}

static const struct test_case cases[] = {
    {"a search that fails", a_search_that_fails},
    {"behind a step that is not finite", behind_a_step_that_is_not_finite},
    {"of processes", of_processes},
};
TEST_MAIN(cases)
