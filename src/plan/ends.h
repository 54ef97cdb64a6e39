/* SPDX-License-Identifier: Apache-2.0
 *
 * What the end of a step takes, for the clock (sim_cost.each): sums, gathers, norm and update by
 * their bytes, segments of an action by their share of its stage's FLOPs. And what actions take for
 * the collectives inside their layers (sim_cost.inside). Pure but for memory.
 */
#ifndef PLAIT_PLAN_ENDS_H
#define PLAIT_PLAN_ENDS_H

#include "mesh/caps.h"
#include "plan/traffic.h"
#include "sim/sim.h"

/* The shares of segments alone, of all ranks, into each[instructions of the program]. */
void ends_shares(const struct model *m, const struct sched *s, const struct model_stage *cut,
                 const struct segments *segments, double *each);
/* All of pipeline rank pp, and how long its messages occupy their links, into the same. Errors:
 * ERR_MEMORY. */
enum err ends_plan(const struct traffic_args *a, int pp, const struct caps *c, double *each);
/* What tensor ranks' collectives take in each action of pipeline rank pp: inside[instructions],
 * where actions of a stage take time[stages]: of a collective is hidden what the GEMMs beside it
 * take, by their share of the stage's FLOPs. Errors: ERR_MEMORY. */
enum err ends_inside(const struct traffic_args *a, int pp, const struct caps *c,
                     const double (*time)[SCHED_COMPUTE_OPS], struct sim_inside *inside);

#endif
