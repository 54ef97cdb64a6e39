/* SPDX-License-Identifier: Apache-2.0
 *
 * ZB-1p (Qi et al., "Zero bubble pipeline parallelism", 2023): the automatic order (sched_search.c)
 * under a limit of p activations a rank, what rank 0 keeps in 1F1B. Its bubble is then about a
 * third of 1F1B's.
 *
 *     rank 0  F0 F1 .. I0 W0 F2 I1 W1 F3 I2 W2 I3 W3
 *     rank 1  .. F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3
 */
#include "sched/sched_build.h"

static enum err make_for(const struct sched_shape *shape, const struct sched_cost *cost,
                         struct sched *out)
{
    return sched_search(&sched_zb_1p, shape, cost, NULL, out);
}

const struct sched_kind sched_zb_1p = {
    .name = "zb-1p",
    .doc = "made for the costs, backward in halves; keeps at most p activations a rank",
    .limit = 1,
    .make_for = make_for,
};
