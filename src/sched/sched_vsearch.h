/* SPDX-License-Identifier: Apache-2.0
 *
 * For zb_v.c: an order of two chunks a rank in a V, searched for given costs under a limit of
 * memory (sched_vsearch.c; sched_vgrow.c grows orders of its own). Passes are named as in
 * sched_vblock.h.
 */
#ifndef PLAIT_SCHED_SCHED_VSEARCH_H
#define PLAIT_SCHED_SCHED_VSEARCH_H

#include "sched/sched_vblock.h"

/* The list of two chunks a rank whose longest rank is shortest among those that the search knows;
 * of `first`, a list of the shape that keeps at most 2 p activations, when none is shorter. cost is
 * not NULL. Errors: ERR_CONFIG for a cost that is none; ERR_MEMORY. */
enum err sched_vsearch_make(const char *name, const struct sched_shape *shape,
                            const struct sched_cost *cost, const struct sched *first,
                            struct sched *out);

/* ---- between sched_vsearch.c and sched_vgrow.c ---- */

/* One rank on the clock. */
struct vsearch_rank {
    int n[VBLOCK_KINDS]; /* microbatches through each pass */
    int length;          /* of its list */
    double start, free;  /* of its first pass; when its last one ends */
    double least;        /* its time from first to last pass, if it idles no more than so far */
};

struct vsearch {
    int p, m;
    struct sched_cost c;       /* its limit filled in */
    struct vsearch_rank *rank; /* owned; [p] */
    double *end;               /* owned; [PASSES * p * m] VSEARCH_LATER: not run yet */
    uint8_t *plan;             /* owned; [p * 6 m] passes to be run */
    uint8_t *list, *best;      /* owned; [p * 6 m] what ran; the best of all */
    double cost;               /* of the best; VSEARCH_LATER: there is none */
};
#define VSEARCH_LATER 1e300

static inline double *sched_vsearch_end(const struct vsearch *s, int rank, int kind, int mb)
{
    return &s->end[((int64_t)kind * s->p + rank) * s->m + mb];
}
/* Where a rank's part of plan, list or best begins. */
static inline int64_t sched_vsearch_row(const struct vsearch *s, int rank)
{
    return (int64_t)rank * VBLOCK_KINDS * s->m;
}
/* Is there a W to run? */
static inline bool sched_vsearch_due(const struct vsearch_rank *r)
{
    return r->n[VBLOCK_W1] < r->n[VBLOCK_B1] || r->n[VBLOCK_W0] < r->n[VBLOCK_B0];
}
/* Clears the clock and the list. */
void sched_vsearch_begin(struct vsearch *s);
/* When the input of the rank's next pass of this kind is there; VSEARCH_LATER: not known yet. */
double sched_vsearch_input(const struct vsearch *s, int rank, int kind);
/* Has the rank room for one forward more and `spare` activations beside it, now, or once its W's
 * have run? */
bool sched_vsearch_room(const struct vsearch *s, int rank, int spare, bool once_run);
/* Runs a pass when the rank is free, but not before `from`. */
void sched_vsearch_put(struct vsearch *s, int rank, int kind, double from);
/* Runs a W that is due, of the chunk that has run fewer. */
void sched_vsearch_put_w(struct vsearch *s, int rank, double from);

enum { VGROW_CHOICES = 4 };
/* Grows the list of all ranks by one choice of VGROW_CHOICES. Errors: ERR_MEMORY. */
enum err sched_vgrow(struct vsearch *s, int choice);

#endif
