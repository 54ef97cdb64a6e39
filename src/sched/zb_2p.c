/* SPDX-License-Identifier: Apache-2.0
 *
 * ZB-2p (Qi et al., "Zero bubble pipeline parallelism", 2023): the automatic order (sched_search.c)
 * under a limit of 2 p activations a rank. That is enough for next to no bubble when a message is
 * quick and F, I and W take about the same time: the ranks start one after the other and end so.
 *
 *     rank 0  F0 F1 F2 I0 F3 W0 I1 W1 I2 W2 I3 W3
 *     rank 1  .. F0 I0 F1 I1 F2 I2 F3 I3 W0 W1 W2 W3
 */
#include "sched/sched_build.h"

static enum err make_for(const struct sched_shape *shape, const struct sched_cost *cost,
                         struct sched *out)
{
    return sched_search(&sched_zb_2p, shape, cost, NULL, out);
}

const struct sched_kind sched_zb_2p = {
    .name = "zb-2p",
    .doc = "made for the costs, backward in halves, next to no bubble; keeps at most 2 p "
           "activations a rank",
    .limit = 2,
    .make_for = make_for,
};
