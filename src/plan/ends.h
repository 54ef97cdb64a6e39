/* SPDX-License-Identifier: Apache-2.0
 *
 * What the end of a step takes, for the clock (sim_cost.each): sums, gathers, norm and update by
 * their bytes, segments of an action by their share of its stage's FLOPs. And what actions take for
 * the collectives inside their layers (sim_cost.inside). Pure but for memory.
 */
#ifndef PLAIT_PLAN_ENDS_H
#define PLAIT_PLAN_ENDS_H

#include "plan/traffic.h"
#include "sim/sim.h"

/* In any unit of time. A collective of n ranks moves what a ring does: of an all-reduce 2 (n - 1) /
 * n of its bytes, of a reduce-scatter or an all-gather half of that. */
struct ends_rates {
    double latency;   /* of a collective */
    double bandwidth; /* bytes that a rank sends in a unit of time; 0: no time but the latency */
    double memory;    /* bytes that a rank's memory reads and writes in it; 0: no time */
};
/* The shares of segments alone, of all ranks, into each[instructions of the program]. */
void ends_shares(const struct model *m, const struct sched *s, const struct model_stage *cut,
                 const struct segments *segments, double *each);
/* All of pipeline rank pp, into the same. Errors: ERR_MEMORY. */
enum err ends_plan(const struct traffic_args *a, int pp, const struct ends_rates *r, double *each);
/* What tensor ranks' collectives take in each action of pipeline rank pp: inside[instructions],
 * where actions of a stage take time[stages]: of a collective is hidden what the GEMMs beside it
 * take, by their share of the stage's FLOPs. Errors: ERR_MEMORY. */
enum err ends_inside(const struct traffic_args *a, int pp, const struct ends_rates *r,
                     const double (*time)[SCHED_COMPUTE_OPS], struct sim_inside *inside);

#endif
