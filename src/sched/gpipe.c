/* SPDX-License-Identifier: Apache-2.0
 *
 * GPipe: all forwards, then all backwards (Huang et al., "GPipe: efficient training of giant neural
 * networks using pipeline parallelism", 2019). The backwards run in the order of the forwards, so
 * gradients are summed in the order 0..m-1 as in every other schedule here.
 *
 *     rank 0  F0 F1 F2 F3 ........ B0 B1 B2 B3
 *     rank 1  .. F0 F1 F2 F3 .. B0 B1 B2 B3 ..
 *     rank 2  ..... F0 F1 F2 F3 B0 ...
 *
 * Bubble (p - 1)(tf + tb) a rank, a share of (p - 1) / (m + p - 1); m activations a rank.
 */
#include "sched/sched_build.h"

static enum err make(const struct sched_shape *shape, struct sched *out)
{
    struct sched_build b;
    sched_build_open(&b, "gpipe", shape);
    for (int rank = 0; rank < shape->p; rank++)
        sched_build_line(&b, shape->m, -1);
    return sched_build_done(&b, out);
}

const struct sched_kind sched_gpipe = {
    .name = "gpipe",
    .doc = "all forwards, then all backwards; keeps m activations a rank",
    .make = make,
};
