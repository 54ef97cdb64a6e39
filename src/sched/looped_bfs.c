/* SPDX-License-Identifier: Apache-2.0
 *
 * Looped breadth-first pipeline (Lamy-Poirier, "Breadth-first pipeline parallelism", 2022): v
 * stages a rank, all microbatches through the first, then all through the second; backward the
 * other way, stages and microbatches reversed.
 *
 *     p 2, m 3, v 2   rank 0  0F0 0F1 0F2 2F0 2F1 2F2 2B2 2B1 2B0 0B2 0B1 0B0
 *                     rank 1  1F0 1F1 1F2 3F0 3F1 3F2 3B2 3B1 3B0 1B2 1B1 1B0
 *
 * Bubble (p - 1)(tf + tb) / v of a rank's whole times, like interleaved 1F1B, and of all such
 * schedules the fewest waits for messages: 2 (p - 1) a step, since only filling and draining wait.
 * Each stage's weights are used in one run forward and one backward, so that sharded weights are
 * gathered, and gradients reduced, once a step. It keeps all m v activations.
 *
 * The microbatches of a backward come in reverse, so weight gradients are summed in the order m - 1
 * .. 0: same numbers, other rounding than the other schedules.
 */
#include "sched/sched_build.h"

static enum err make(const struct sched_shape *shape, struct sched *out)
{
    struct sched_build b;
    sched_build_open(&b, "looped-bfs", shape);
    for (int rank = 0; rank < shape->p; rank++) {
        sched_build_rank(&b);
        for (int chunk = 0; chunk < shape->v; chunk++)
            for (int mb = 0; mb < shape->m; mb++)
                sched_build_add(&b, SCHED_F, chunk * shape->p + rank, mb);
        for (int chunk = shape->v - 1; chunk >= 0; chunk--)
            for (int mb = shape->m - 1; mb >= 0; mb--)
                sched_build_add(&b, SCHED_B, chunk * shape->p + rank, mb);
    }
    return sched_build_done(&b, out);
}

const struct sched_kind sched_looped_bfs = {
    .name = "looped-bfs",
    .doc = "v stages a rank, all microbatches through one before the next; keeps m v activations",
    .make = make,
    .loops = true,
};
