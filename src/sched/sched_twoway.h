/* SPDX-License-Identifier: Apache-2.0
 *
 * For dualpipe.c and dualpipev.c: the order of one rank, see sched_twoway.c.
 */
#ifndef PLAIT_SCHED_SCHED_TWOWAY_H
#define PLAIT_SCHED_SCHED_TWOWAY_H

#include "sched/sched_build.h"

struct sched_twoway_side {
    int stage;        /* here */
    int first, count; /* its microbatches */
};

struct sched_twoway {
    int h, q;                         /* q of 0 .. h - 1: hops from the input of the near stage */
    struct sched_twoway_side side[2]; /* near, far */
};

/* Appends the list of the rank that b is at. */
void sched_twoway_write(struct sched_build *b, const struct sched_twoway *t);

#endif
