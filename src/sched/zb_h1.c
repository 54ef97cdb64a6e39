/* SPDX-License-Identifier: Apache-2.0
 *
 * ZB-H1 (Qi et al., "Zero bubble pipeline parallelism", 2023): 1F1B with the backward split. Only
 * the gradient of the input, I, is waited for by the rank before; the weight gradients, W, of rank
 * r follow r microbatches later and fill what would be idle.
 *
 *     rank 0  F0 F1 F2 .. .. I0 W0 F3 I1 W1 I2 W2 I3 W3
 *     rank 1  .. F0 F1 .. I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
 *     rank 2  .. .. F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
 *
 * Bubble (p - 1)(tf + ti - tw) a rank, a third of 1F1B's when the three are equal, and min(p, m)
 * activations on every rank: as many as 1F1B keeps on its first. W come in the order of the
 * microbatches, so the sums are those of 1F1B to the bit.
 */
#include "sched/sched_build.h"

static enum err make(const struct sched_shape *shape, struct sched *out)
{
    struct sched_build b;
    sched_build_open(&b, "zb-h1", shape);
    for (int rank = 0; rank < shape->p; rank++)
        sched_build_line(&b, shape->p - 1 - rank, rank);
    return sched_build_done(&b, out);
}

const struct sched_kind sched_zb_h1 = {
    .name = "zb-h1",
    .doc = "1f1b with weight gradients put where ranks were idle; a third of the bubble",
    .make = make,
};
