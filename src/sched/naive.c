/* SPDX-License-Identifier: Apache-2.0
 *
 * One microbatch after the other: forward through all stages, backward through all stages, then
 * the next. Nothing overlaps, a rank works 1/p of the time. It is the yardstick for the others and
 * keeps one activation a rank.
 *
 *     rank 0  F0 ........ B0 F1 ........ B1
 *     rank 1  .. F0 .. B0 ...... F1 .. B1 ..
 *     rank 2  ..... F0 B0 ......... F1 B1 ..
 *
 * No rank is told to wait: F1 of rank 0 stands behind its B0, which needs every other stage.
 */
#include "sched/sched_build.h"

static enum err make(const struct sched_shape *shape, struct sched *out)
{
    struct sched_build b;
    sched_build_open(&b, "naive", shape);
    for (int rank = 0; rank < shape->p; rank++)
        sched_build_line(&b, 0, -1);
    return sched_build_done(&b, out);
}

const struct sched_kind sched_naive = {
    .name = "naive",
    .doc = "one microbatch after the other through all stages; nothing overlaps",
    .make = make,
};
