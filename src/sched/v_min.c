/* SPDX-License-Identifier: Apache-2.0
 *
 * V-Min (Qi et al., "Pipeline parallelism with controllable memory", 2024): the block goes down and
 * up the V as fast as it can, so activations are held as shortly as they can be: a rank keeps at
 * most 2 floor((p + 4) / 3) of a chunk, about a third of 1F1B's 2 p. Its bubble is about two thirds
 * of 1F1B's when forward, I and W take equal times, and grows when they do not: the block is tight.
 *
 *     rank 0  F0 F1 .. f0 i0 w0 .. I0 W0 f1 i1 w1 F2 I1 W1 f2 i2 w2 F3 I2 W2 f3 i3 w3 .. I3 W3
 *     rank 1  .. F0 f0 .. .. i0 I0 F1 f1 w0 W0 i1 I1 F2 f2 ...
 *
 * When 3 divides p, the way back starts two slots later; else two passes would want one slot.
 */
#include "sched/sched_build.h"

static enum err make(const struct sched_shape *shape, struct sched *out)
{
    struct vblock b;
    int p = shape->p, late = p % 3 == 0 ? 2 : 0;
    TRY(sched_vblock_open(&b, "v-min", shape));
    for (int rank = 0; rank < p; rank++) {
        b.at[rank][VBLOCK_F0] = rank;
        b.at[rank][VBLOCK_F1] = 2 * p - 1 - rank;
        b.at[rank][VBLOCK_B1] = 2 * p + late + rank;
        b.at[rank][VBLOCK_B0] = 4 * p + late - 1 - rank;
    }
    return sched_vblock_make(&b, out);
}

const struct sched_kind sched_v_min = {
    .name = "v-min",
    .doc = "two chunks a rank in a V; about a third of 1f1b's activations, two thirds of its "
           "bubble",
    .chunks = 2,
    .make = make,
};
