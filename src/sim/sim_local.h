/* SPDX-License-Identifier: Apache-2.0
 *
 * For src/sim alone: the clock of a schedule (sim.c), and what ends its step (sim_end.c).
 */
#ifndef PLAIT_SIM_LOCAL_H
#define PLAIT_SIM_LOCAL_H

#include "sim/sim.h"

/* An input: when it was made and when it is there; negative: not yet known. */
struct sim_input {
    double made, there;
};

/* The way from one rank to another. */
struct sim_link {
    int to, next;
    double free;
};

struct sim_play {
    const struct sched *s;
    struct sim_result *r;
    const struct sim_cost *cost; /* borrowed */
    double (*time)[SCHED_COMPUTE_OPS]; /* owned; [stages] of F, B, I, W, R */
    double overlap;              /* time of a pair as a share of its halves' apart */
    bool pairs;                  /* are there any? */
    double *clock;               /* owned; [p] when the rank is free */
    struct sim_input *ready[2];      /* owned; [stages * m] the activation, the gradient for it */
    int *first_link;             /* owned; [p] links of a rank, a list; -1: none */
    struct sim_link *link;           /* owned */
    int64_t links, link_cap;
    /* Where the end of the step has costs, else NULL: */
    double *engine;              /* owned; [p] when a rank's own sums and gathers are through */
    double *met[2];              /* owned; [replicas * stages] when a rank came to EMBED_REDUCE,
                                    REPLICA_REDUCE; < 0: it has not */
    int64_t *norm;               /* owned; [p] the rank's NORM; -1: it has not come to one */
};

enum err sim_end_open(struct sim_play *k);
void sim_end_close(struct sim_play *k);
/* Takes up an instruction that is no action and no message, where such have costs. -1: it has its
 * times; else the rank it waits for. */
int sim_end_take(struct sim_play *k, int rank, int64_t i);
/* Behind the lists: NORM, and what follows it. */
void sim_end_finish(struct sim_play *k);

#endif
