/* SPDX-License-Identifier: Apache-2.0
 *
 * Chimera: two pipelines over the same ranks in opposite directions, half of the microbatches each
 * (Li and Hoefler, "Chimera: efficiently training large-scale neural networks with bidirectional
 * pipelines", SC 2021). Where one pipeline leaves a rank idle while it fills, the other works.
 * Every rank holds one stage of either, so the parameters are held twice.
 *
 * The order comes from a lattice of slots in which a forward and a backward take one slot each. A
 * unit is p microbatches, p / 2 a direction; a direction sends one off every second slot. In the
 * first unit the i-th of the direction in which the rank holds stage s has
 *
 *     forward at slot   s + 2 i              (s hops from the input)
 *     backward at slot  2 p - 1 - s + 2 i    (p - 1 forwards, then p - 1 - s backwards before)
 *
 * and the next unit stands 2 p slots later, where its forwards fall into the holes that this one's
 * last backwards leave.
 *
 *     rank 0  F0 .. F1 F2 B2 F3 B3 B0 .. B1            microbatches 0 and 1 go down,
 *     rank 1  .. F0 F2 F1 F3 B2 B0 B3 B1 ..            2 and 3 up
 *     rank 2  .. F2 F0 F3 F1 B0 B2 B1 B3 ..
 *     rank 3  F2 .. F3 F0 B0 F1 B1 B2 .. B3
 *
 * No slot is taken twice: with p even forwards of one direction and backwards of the other start p
 * slots apart and last p - 2. With p odd forwards would meet forwards, so p is even. Any m will do:
 * where it is not a multiple of p, slots at the end of a unit stay empty.
 */
#include "sched/sched_build.h"

/* The stage of one replica on one rank, played slot by slot. */
struct lane { int stage, first, count; /* its microbatches */ };

/* Microbatch of the lane whose turn of 2 p slots begins at `from`, is it at `slot`? -1: none. */
static int at_slot(const struct lane *l, int p, int slot, int from)
{
    int since = slot - from;
    if (since < 0 || since % (2 * p) >= p || since % 2 != 0)
        return -1;
    int nth = since / (2 * p) * (p / 2) + since % (2 * p) / 2;
    return nth < l->count ? l->first + nth : -1;
}

static enum err make(const struct sched_shape *shape, struct sched *out)
{
    struct sched_build b;
    int p = shape->p, down = shape->m - shape->m / 2;
    TRY(sched_shape_even("chimera", shape));
    sched_build_open(&b, "chimera", shape);
    sched_build_mirror(&b);
    int units = (down + p / 2 - 1) / (p / 2);
    for (int rank = 0; rank < p; rank++) {
        struct lane lane[2] = {{rank, 0, down}, {p - 1 - rank, down, shape->m / 2}};
        sched_build_rank(&b);
        for (int slot = 0; slot < 2 * p * (units + 1); slot++)
            for (int way = 0; way < 2; way++) {
                int stage = lane[way].stage, f = at_slot(&lane[way], p, slot, stage);
                int w = at_slot(&lane[way], p, slot, 2 * p - 1 - stage);
                if (f >= 0)
                    sched_build_add(&b, SCHED_F, stage, f);
                if (w >= 0)
                    sched_build_add(&b, SCHED_B, stage, w);
            }
    }
    return sched_build_done(&b, out);
}

const struct sched_kind sched_chimera = {
    .name = "chimera",
    .doc = "two pipelines in opposite directions; parameters held twice, p even",
    .make = make,
};
