/* SPDX-License-Identifier: Apache-2.0
 *
 * A schedule taken the whole way that a user's goes: made, lowered, proved, played on the clock.
 */
#ifndef PLAIT_TEST_TIMED_H
#define PLAIT_TEST_TIMED_H

#include "sim/sim.h"

struct timed {
    struct sched made, s; /* as it was made; lowered */
    struct sched_report report;
    struct sim_result r; /* with events */
};

/* Takes over `made`. A failed check, and false, where a step of the way fails. Released by
 * timed_free in any case. */
bool timed_play(struct sched *made, const struct sched_lower_args *ends,
                const struct sim_cost *cost, struct timed *out);
void timed_free(struct timed *x);
/* The chart of a result with events in the terminal. */
void timed_gantt(const struct sched *s, const struct sim_result *r, int width, bool color,
                 struct text *out);

#endif
