/* SPDX-License-Identifier: Apache-2.0
 *
 * MPI starts once in a process and ends with it. The first exchange there is whether a process has
 * an error already: one that refuses its configuration or its files knows nothing of its peers, who
 * may have the same error, so it starts MPI, too, and all learn all errors. Of those with the same
 * text the lowest rank reports. Nobody ends before: MPI_Finalize waits for all, and the exit code
 * is the same on each, that of the lowest rank with an error. A process without ranks to run takes
 * part, too, by comm_report_error; where others have some, they would wait for it for ever.
 */
#include "comm/host/mpi_start.h"

#include "base/mem.h"
#include "comm/core/board.h"
#include "comm/core/launch.h"
#include "comm/host/mpi.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* What a process brings to the start. */
enum { WHAT_WORDS = 4, REPORT_WORDS = 2 + WHAT_WORDS };
struct start_report { uint64_t code, text_hash; char what[8 * WHAT_WORDS]; };
_Static_assert(sizeof(struct start_report) == 8 * REPORT_WORDS, "a report has holes");

static struct {
    double limit_s; /* of starting and ending; 0: none */
    bool agreed;    /* all know who has an error */
    enum err code;  /* agreed: that of the job */
    int rank;       /* code: the lowest rank that has it */
    bool to_report; /* this process has yet to do so */
} start;

static void finalize(void)
{
    int done = 0;
    MPI_Finalized(&done);
    if (done)
        return;
    comm_mpi_limit(start.limit_s, &(struct comm_mpi_late){.what = "the end of MPI (all is done)"});
    MPI_Finalize();
    comm_mpi_limit_end();
}

/* A program that has started MPI itself also ends it itself, and agrees on nothing here. */
static enum err initialise(void)
{
    int there = 0, level = MPI_THREAD_SINGLE;
    TRY_MPI(MPI_Initialized(&there));
    if (there) {
        start.agreed = true;
        return ERR_OK;
    }
    TRY_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level));
    if (level < MPI_THREAD_FUNNELED)
        FAIL(ERR_CONFIG, "comm: this MPI serves level %d of threads, %d is needed; use another "
                         "build of MPI", level, MPI_THREAD_FUNNELED);
    if (atexit(finalize) != 0)
        FAIL(ERR_MEMORY, "comm: MPI's end cannot be put behind the process's end");
    return ERR_OK;
}

/* ---- whether all can start ---- */

struct agreement {
    int rank, size;
    int same;  /* processes with this one's error */
    int first; /* the lowest of these */
    struct comm_names others;   /* which run something else than start.rank does, ... */
    char other[8 * WHAT_WORDS]; /* and what the first of them runs */
};

/* Do all run what the first runs that runs something? */
static void hold_together(const struct start_report *all, struct agreement *a)
{
    int first = 0;
    while (first < a->size && !all[first].what[0])
        first++;
    for (int i = 0; i < a->size && first < a->size; i++) {
        bool same = strcmp(all[i].what, all[first].what) == 0;
        if (!same && !a->other[0])
            memcpy(a->other, all[i].what, sizeof a->other);
        if (!same)
            comm_names_add(&a->others, i);
    }
    comm_names_end(&a->others);
    if (!a->others.named)
        return;
    start.code = ERR_MISMATCH;
    start.rank = first;
    start.to_report = first == a->rank;
}

/* Collective over the launch. what "": this process runs nothing. */
static enum err agree(enum err code, const char *text, const char *what, struct agreement *a)
{
    struct start_report *all, mine = {.code = (uint64_t)code};
    mine.text_hash = code ? XXH3_64bits(text, strlen(text)) : 0;
    *a = (struct agreement){.same = 0};
    snprintf(mine.what, sizeof mine.what, "%s", what);
    TRY_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &a->rank));
    TRY_MPI(MPI_Comm_size(MPI_COMM_WORLD, &a->size));
    TRY(mem_new(a->size, sizeof *all, "the errors of a launch", &all));
    int rc = MPI_Allgather(&mine, REPORT_WORDS, MPI_UINT64_T, all, REPORT_WORDS, MPI_UINT64_T,
                           MPI_COMM_WORLD);
    a->first = a->size;
    for (int i = a->size - 1; i >= 0 && rc == MPI_SUCCESS; i--) {
        if (all[i].code != 0) {
            start.code = (enum err)all[i].code;
            start.rank = i;
        }
        if (all[i].code == mine.code && all[i].text_hash == mine.text_hash) {
            a->first = i;
            a->same++;
        }
    }
    if (rc == MPI_SUCCESS && start.code == ERR_OK)
        hold_together(all, a);
    start.agreed = true;
    mem_free(all);
    TRY_MPI(rc);
    return ERR_OK;
}

/* Other processes of the launch run something else, or nothing that has ranks. */
static enum err differ(const struct agreement *a, const char *what)
{
    FAIL(ERR_MISMATCH, "comm: rank %s of the launch run%s %s, and rank %d runs %s; start the same "
                       "command on all", a->others.text, a->others.named == 1 ? "s" : "",
         a->other[0] ? a->other : "something else, which needs no other ranks", start.rank, what);
}

enum err comm_mpi_start(const char *what, double limit_s)
{
    struct agreement a;
    start.limit_s = limit_s;
    comm_mpi_limit(limit_s, &(struct comm_mpi_late){.what = "the start of MPI"});
    TRY(initialise());
    if (!start.agreed) {
        TRY(agree(ERR_OK, "", what, &a));
        if (a.others.named)
            return differ(&a, what);
    }
    if (start.code != ERR_OK)
        FAIL(start.code, "comm: rank %d cannot start", start.rank);
    return ERR_OK;
}

/* The error of this process, with its rank where not all have it. */
static void print_own(const struct agreement *a, const char *text, void (*print)(const char *text))
{
    struct comm_world w = {.rank = a->rank, .size = a->size};
    char buf[COMM_RANK_TEXT];
    print(a->same == a->size ? text : comm_rank_error(&w, text, buf));
}

enum err comm_mpi_report_error(enum err code, const char *given, void (*print)(const char *text))
{
    struct agreement a;
    char text[ERR_TEXT]; /* MPI may fail, too, and `given` be the last error's */
    int there = 0;
    if (start.agreed && start.code != ERR_OK) {
        if (start.to_report)
            print(given);
        start.to_report = false;
        return start.code; /* it has been reported */
    }
    MPI_Initialized(&there);
    if (there || comm_mpi_launched_size() < 2) {
        if (code != ERR_OK)
            print(given);
        return code;
    }
    snprintf(text, sizeof text, "%s", given);
    start.limit_s = COMM_MPI_START_S;
    comm_mpi_limit(start.limit_s, &(struct comm_mpi_late){
        .what = "the end", .text = code ? text : NULL, .print = print, .code = code});
    enum err err = initialise();
    if (err == ERR_OK)
        err = agree(code, text, "", &a);
    comm_mpi_limit_end();
    if (err != ERR_OK && code != ERR_OK)
        print(text);
    else if (err == ERR_OK && code != ERR_OK && a.first == a.rank)
        print_own(&a, text, print);
    return err == ERR_OK ? start.code : code;
}
