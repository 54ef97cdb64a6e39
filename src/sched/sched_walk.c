/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine behind proofs and simulation: p programs that wait for one another. A rank runs until
 * its next instruction has to wait; it then joins the list of the rank it waits for, and is asked
 * again when that one has moved. No clock, no queue of events: the order in which ranks are taken
 * up does not change what any of them sees, because an instruction waits for facts that never
 * become false again.
 *
 * A stop asks the ranks in one list again, which are neighbours of the stopped one's stages, 2 v at
 * most. So the time is linear in instructions for a fixed v, whatever p is.
 */
#include "sched/sched.h"

#include "base/mem.h"

enum err sched_walk_open(struct sched_walk *w, const struct sched *s)
{
    *w = (struct sched_walk){.s = s};
    TRY(mem_new(s->p, sizeof *w->at, "schedule walk", &w->at));
    TRY(mem_new(s->p, sizeof *w->next, "schedule walk", &w->next));
    TRY(mem_new(s->p, sizeof *w->head, "schedule walk", &w->head));
    TRY(mem_new(s->p, sizeof *w->ready, "schedule walk", &w->ready));
    return ERR_OK;
}

void sched_walk_close(struct sched_walk *w)
{
    mem_free(w->at);
    mem_free(w->next);
    mem_free(w->head);
    mem_free(w->ready);
    *w = (struct sched_walk){0};
}

bool sched_walk_run(struct sched_walk *w)
{
    int p = w->s->p, count = p, ended = 0;
    for (int rank = 0; rank < p; rank++) {
        w->at[rank] = w->s->begin[rank];
        w->head[rank] = -1;
        w->ready[rank] = p - 1 - rank; /* a stack: rank 0 on top */
    }
    while (count > 0) {
        int rank = w->ready[--count];
        int64_t before = w->at[rank];
        int waits = -1; /* for this rank; -1 at the end of the list */
        while (w->at[rank] < w->s->begin[rank + 1] &&
               (waits = w->step(w->arg, rank, w->at[rank])) < 0)
            w->at[rank]++;
        if (w->at[rank] > before) {
            for (int r = w->head[rank]; r >= 0; r = w->next[r])
                w->ready[count++] = r;
            w->head[rank] = -1;
        }
        if (waits < 0) {
            ended++;
        } else {
            w->next[rank] = w->head[waits];
            w->head[waits] = rank;
        }
    }
    return ended == p;
}
