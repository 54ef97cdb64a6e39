/* SPDX-License-Identifier: Apache-2.0
 *
 * For v_half.c, v_min.c and 1f1b_v.c: schedules that repeat one block (sched_vblock.c); and what
 * passes are called there and in sched_search.c.
 *
 * Two chunks a rank in a V. A block says in which slot each rank runs microbatch 0 through its
 * first chunk and, on the way back, its second; microbatch k follows 6 k slots later. A forward
 * takes a slot; the backward either two as a whole (F, f, b, B fill the period of six), or one for
 * its input half, and then W goes where the block leaves slots free.
 */
#ifndef PLAIT_SCHED_SCHED_VBLOCK_H
#define PLAIT_SCHED_SCHED_VBLOCK_H

#include "sched/sched_build.h"

/* What a rank runs, in the order in which a microbatch meets it. */
enum {
    VBLOCK_F0, VBLOCK_F1, /* forward of the first and of the second chunk */
    VBLOCK_B1, VBLOCK_B0, /* backward (whole, or I) of the second and of the first chunk */
    VBLOCK_PASSES,
    VBLOCK_W1 = VBLOCK_PASSES, VBLOCK_W0,
    VBLOCK_KINDS,
    VBLOCK_PERIOD = 6
};

/* Of the second chunk? */
static inline bool sched_vblock_second(int kind)
{
    return kind == VBLOCK_F1 || kind == VBLOCK_B1 || kind == VBLOCK_W1;
}
static inline int sched_vblock_stage(int p, int rank, int kind)
{
    return sched_vblock_second(kind) ? 2 * p - 1 - rank : rank;
}
/* Backward in halves. */
static inline enum sched_op sched_vblock_op(int kind)
{
    return kind <= VBLOCK_F1 ? SCHED_F : kind < VBLOCK_PASSES ? SCHED_I : SCHED_W;
}

struct vblock {
    const char *name;
    const struct sched_shape *shape;
    bool whole;                 /* B, not I and W */
    int (*at)[VBLOCK_PASSES];   /* owned; [p] slots of microbatch 0, no two of a rank alike
                                   modulo the period; every pass after what it needs */
};

/* Room for the block of a shape, of two chunks a rank. Errors: ERR_MEMORY. */
enum err sched_vblock_open(struct vblock *b, const char *name, const struct sched_shape *shape);
/* Writes the schedule of a filled block and releases the block, after an error too. */
enum err sched_vblock_make(struct vblock *b, struct sched *out);

#endif
