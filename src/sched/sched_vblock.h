/* SPDX-License-Identifier: Apache-2.0
 *
 * For v_half.c, v_min.c and 1f1b_v.c: schedules that repeat one block (sched_vblock.c).
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

struct vblock {
    const char *name;
    const struct sched_shape *shape;
    bool whole;                 /* B, not I and W */
    int (*at)[VBLOCK_PASSES];   /* owned; [p] slots of microbatch 0, no two of a rank alike
                                   modulo the period; every pass after what it needs */
};

/* Room for the block of a shape, which must have two chunks. Errors: ERR_CONFIG, ERR_MEMORY. */
enum err sched_vblock_open(struct vblock *b, const char *name, const struct sched_shape *shape);
/* Writes the schedule of a filled block and releases the block, after an error too. */
enum err sched_vblock_make(struct vblock *b, struct sched *out);

/* ---- between sched_vblock.c and sched_vblock_end.c ---- */

struct vblock_cell {
    int slot, live; /* live: activations of the rank after it */
    uint16_t mb;
    uint8_t kind;
};

struct vblock_grid {
    const struct vblock *b;
    int p, m, per_rank;       /* cells of a rank: 4 m or 6 m */
    int limit;                /* most activations of a rank in the plain repetition */
    struct vblock_cell *raw;  /* owned; [p * per_rank] the plain repetition, by slot; gone after
                                 pulling */
    struct vblock_cell *put;  /* owned; [p * per_rank] what became of it, by slot */
    int *n;                   /* owned; [p] cells in put */
    int *end;                 /* owned; [PASSES * p * m] first slot after a pass; NEVER: not run */
};
enum { VBLOCK_NEVER = 0x7fffffff };

/* Where the end of a pass is kept. */
static inline int *vblock_end(const struct vblock_grid *g, int rank, int kind, int mb)
{
    return &g->end[((int64_t)kind * g->p + rank) * g->m + mb];
}
/* First slot in which the input of a pass is there; 0 for the first, NEVER while it is not run. */
int sched_vblock_ready(const struct vblock_grid *g, int rank, int kind, int mb);
/* The ranks of all cells [p * per_rank], in the order of their slots and in a slot by rank. The
 * caller frees it. Errors: ERR_MEMORY. */
enum err sched_vblock_order(const struct vblock_grid *g, const struct vblock_cell *cells,
                            uint16_t **out);
/* Closes the gaps of put and packs its end. */
enum err sched_vblock_end(struct vblock_grid *g);

#endif
