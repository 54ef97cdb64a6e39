/* SPDX-License-Identifier: Apache-2.0
 *
 * One forward, one backward (Narayanan et al., "Memory-efficient pipeline-parallel DNN training",
 * 2021, there PipeDream-flush). Rank r first runs as many forwards as there are ranks behind it,
 * then alternates, then drains. The bubble is GPipe's, but a rank keeps min(p - r, m) activations
 * instead of m.
 *
 *     rank 0  F0 F1 F2 .. .. .. B0 F3 B1 .. B2 .. B3
 *     rank 1  .. F0 F1 .. .. B0 F2 B1 F3 B2 .. B3 ..
 *     rank 2  .. .. F0 B0 F1 B1 F2 B2 F3 B3 .. .. ..
 *
 * m may be smaller than p: the warm-up is then all of the forwards.
 */
#include "sched/sched_build.h"

static enum err make(const struct sched_shape *shape, struct sched *out)
{
    struct sched_build b;
    sched_build_open(&b, "1f1b", shape);
    for (int rank = 0; rank < shape->p; rank++)
        sched_build_line(&b, shape->p - 1 - rank, -1);
    return sched_build_done(&b, out);
}

const struct sched_kind sched_1f1b = {
    .name = "1f1b",
    .doc = "one forward, one backward; keeps min(p - rank, m) activations a rank",
    .make = make,
};
