/* SPDX-License-Identifier: Apache-2.0
 *
 * 1F1B-V (Qi et al., "Pipeline parallelism with controllable memory", 2024): 1F1B over two chunks
 * laid in a V, backward whole. F, f, b, B take one, one, two and two slots and so fill the period
 * of six; rank r starts F in slot r and f in 2 p - 1 - r. The backward follows microbatch 0 up and
 * down the V: on each rank it takes the first two free neighbouring slots of the period after those
 * of the rank before. The activations held are about two thirds of 1F1B's 2 p of a chunk, the
 * bubble is smaller as well.
 *
 *     rank 0  F0 F1 F2 f0 b0   f1 b1   F3 B0   f2 b2   .. B1   f3 b3   .. B2   .. .. B3
 *     rank 1  .. F0 f0 F1 f1 .. b0   B0   F2 f2 b1   B1   F3 f3 b2   B2   b3   B3   .. ..
 *
 * A place is always found: counted from f, modulo the period, F, b and B are in slots 5 1 3, 1 4 2
 * and 3 1 4 in turn from rank to rank (1 2 4 on rank 0 when 3 divides p).
 */
#include "sched/sched_build.h"

/* First slot from `slot` on where a backward fits; it is marked. */
static int fit(bool used[VBLOCK_PERIOD], int slot)
{
    while (used[slot % VBLOCK_PERIOD] || used[(slot + 1) % VBLOCK_PERIOD])
        slot++;
    used[slot % VBLOCK_PERIOD] = used[(slot + 1) % VBLOCK_PERIOD] = true;
    return slot;
}

/* The slots of the period that a rank's passes before `kind` take. */
static void mark(const int at[VBLOCK_PASSES], int kind, bool used[VBLOCK_PERIOD])
{
    for (int i = 0; i < VBLOCK_PERIOD; i++)
        used[i] = false;
    used[at[VBLOCK_F0] % VBLOCK_PERIOD] = used[at[VBLOCK_F1] % VBLOCK_PERIOD] = true;
    if (kind == VBLOCK_B0)
        fit(used, at[VBLOCK_B1]);
}

static enum err make(const struct sched_shape *shape, struct sched *out)
{
    struct vblock b;
    bool used[VBLOCK_PERIOD];
    int p = shape->p, slot = 2 * p;
    TRY(sched_vblock_open(&b, "1f1b-v", shape));
    b.whole = true;
    for (int rank = 0; rank < p; rank++, slot += 2) {
        b.at[rank][VBLOCK_F0] = rank;
        b.at[rank][VBLOCK_F1] = 2 * p - 1 - rank;
        mark(b.at[rank], VBLOCK_B1, used);
        b.at[rank][VBLOCK_B1] = slot = fit(used, slot);
    }
    for (int rank = p - 1; rank >= 0; rank--, slot += 2) {
        mark(b.at[rank], VBLOCK_B0, used);
        b.at[rank][VBLOCK_B0] = slot = fit(used, slot);
    }
    return sched_vblock_make(&b, out);
}

const struct sched_kind sched_1f1b_v = {
    .name = "1f1b-v",
    .doc = "two chunks a rank in a V, backward whole; about two thirds of 1f1b's activations",
    .chunks = 2,
    .make = make,
};
