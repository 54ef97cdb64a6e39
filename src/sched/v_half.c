/* SPDX-License-Identifier: Apache-2.0
 *
 * V-Half (Qi et al., "Pipeline parallelism with controllable memory", 2024): the block moves a
 * forward of the first chunk to the next rank every other slot and everything else in the next
 * slot, or as fast as the turn allows, so that all ranks keep 2 floor((p + 2) / 2) activations of a
 * chunk, about half of 1F1B's 2 p. With equal times the bubble is about half of 1F1B's too.
 *
 *     rank 0  F0 F1 F2 f0 i0 w0 f1 .. I0 i1 w1 f2 W0 F3 I1 i2 w2 f3 i3 I2 w3 I3 W1 W2 W3
 *     rank 1  .. F0 f0 F1 f1 i0 w0 I0 W0 F2 f2 i1 I1 w1 F3 W1 f3 i2 I2 i3 I3 w2 w3 W2 W3
 *
 * p of either kind gives each rank four different slots of the period: for even p the way back
 * starts three slots later.
 */
#include "sched/sched_build.h"

static enum err make(const struct sched_shape *shape, struct sched *out)
{
    struct vblock b;
    int p = shape->p, late = p % 2 == 0 ? 3 : 0;
    TRY(sched_vblock_open(&b, "v-half", shape));
    for (int rank = 0; rank < p; rank++) {
        b.at[rank][VBLOCK_F0] = 2 * rank;
        b.at[rank][VBLOCK_F1] = 3 * p - 2 - rank;
        b.at[rank][VBLOCK_B1] = 3 * p + late + 2 * rank - 1;
        b.at[rank][VBLOCK_B0] = 6 * p + late - 2 - rank;
    }
    return sched_vblock_make(&b, out);
}

const struct sched_kind sched_v_half = {
    .name = "v-half",
    .doc = "two chunks a rank in a V; about half of 1f1b's activations and half of its bubble",
    .chunks = 2,
    .make = make,
};
