/* SPDX-License-Identifier: Apache-2.0
 *
 * ZB-H2 (Qi et al., "Zero bubble pipeline parallelism", 2023): the backward split as in ZB-H1, and
 * the pipeline filled twice as deep, until the first gradient is back. W of rank r follow 2r
 * microbatches after their I.
 *
 *     rank 0  F0 F1 F2 F3 F4 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4
 *     rank 1  .. F0 F1 F2 I0 F3 I1 F4 I2 W0 I3 W1 I4 W2 W3 W4
 *     rank 2  .. .. F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 W1 W2 W3 W4
 *
 * From its first to its last action a rank is idle (p - 1)(tf + ti - 2 tw), nothing when the three
 * are equal and m is 2p - 1 or more: each rank's work is a parallelogram, which begins with the
 * rank's place and ends by it. The step's end is still as late as its last rank, unless optimizer
 * steps may be as staggered as the ranks. It keeps min(2p - 1, m) activations on every rank. W come
 * in the order of the microbatches.
 */
#include "sched/sched_build.h"

static enum err make(const struct sched_shape *shape, struct sched *out)
{
    struct sched_build b;
    sched_build_open(&b, "zb-h2", shape);
    for (int rank = 0; rank < shape->p; rank++)
        sched_build_line(&b, 2 * (shape->p - 1 - rank), 2 * rank);
    return sched_build_done(&b, out);
}

const struct sched_kind sched_zb_h2 = {
    .name = "zb-h2",
    .doc = "zb-h1 filled twice as deep: no rank idles amid its work; keeps 2p - 1 activations",
    .make = make,
};
