/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan decides that no key says alone: a number that the run goes by, in words, and why.
 * Made in one place, and read by the plan, the run and its tables.
 */
#ifndef PLAIT_SETUP_DECISION_H
#define PLAIT_SETUP_DECISION_H

#include <stdbool.h>
#include <stdint.h>

struct setup;

enum decided {
    DECIDED_GRAPH,     /* 1: steps are replays of a recorded one */
    DECIDED_OVERLAP,   /* fewest rows of a piece of a GEMM, where tensor ranks communicate beside
                          their GEMMs; 0: they do not */
    DECIDED_MOVES,     /* 1: GPUs of one process move by copies */
    DECIDED_ZERO,      /* data ranks that share an update; 1: each makes all of it */
    DECIDED_CUT,       /* stages that begin within a layer */
    DECIDED_RECOMPUTE, /* 1: forwards are run again */
    DECIDED_COPIES,    /* 1: checkpoints are written from a copy of the state */
    DECIDED_ATTENTION, /* enum dev_attn_grad */
    DECISIONS
};

struct decision {
    int64_t value;
    bool told; /* the start-up table has a line for it */
    const char *words, *reason;
};

const char *decision_name(enum decided which);
/* All of them, of a setup whose mesh, schedule and cut are made. Pure. */
void decision_make(const struct setup *s, struct decision out[DECISIONS]);

#endif
