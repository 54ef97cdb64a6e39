/* SPDX-License-Identifier: Apache-2.0
 *
 * The last step of sched_vblock.c for halves. First the gaps close: every cell as early as the
 * order allows. Then all is run once more, slot by slot: what stood before the slot of the last
 * forward of rank 0's first chunk keeps its slot; from there on a rank takes, of the passes whose
 * input is there, the one that was laid first, and waits with it when it is a forward without room;
 * whatever slots are free go to W, of the second chunk first, in the order of the microbatches.
 *
 * The drain is packed only if it begins after microbatch 0 is through. With fewer microbatches than
 * that takes, there is no steady part, and the order of the repetition stays.
 */
#include "sched/sched_vblock.h"

#include "base/mem.h"
#include <string.h>

/* Every cell to the first slot that order and inputs allow. Cells are taken up by the slot they
 * have, so that what one needs has been taken up before. */
static void close_gaps(struct vblock_grid *g, const uint16_t *ranks, int *at)
{
    for (int64_t i = 0; i < (int64_t)g->p * g->per_rank; i++) {
        int rank = ranks[i];
        struct vblock_cell *cell = g->put + (int64_t)rank * g->per_rank + at[rank];
        int ready = at[rank]++ > 0 ? cell[-1].slot + 1 : 0;
        if (cell->kind < VBLOCK_PASSES) {
            int input = sched_vblock_ready(g, rank, cell->kind, cell->mb);
            ready = input > ready ? input : ready;
            *vblock_end(g, rank, cell->kind, cell->mb) = ready + 1;
        }
        cell->slot = ready;
    }
}

/* One rank in the last run. */
struct run {
    int at;                 /* in the cells of put: the next pass that keeps its slot */
    int due;                /* that slot, NEVER after the last */
    int n;                  /* written */
    int live;
    int next[VBLOCK_KINDS]; /* microbatch */
};

struct packing {
    struct vblock_grid *g;
    struct run *run;           /* owned; [p] */
    int *wake;                 /* owned; [p] slot before which a rank has nothing to run */
    struct vblock_cell *out;   /* owned; [p * per_rank], which then takes put's place */
    int from;                  /* slot, as laid, from which on passes are of the drain */
    int release;               /* slot before which rank 0 packs nothing: its last F has it */
};

static int laid(const struct packing *k, int rank, int kind, int mb)
{
    return k->g->b->at[rank][kind] + VBLOCK_PERIOD * mb;
}

/* Moves a rank to the pass from place r->at on that keeps its slot. */
static void find_fixed(const struct packing *k, int rank)
{
    const struct vblock_grid *g = k->g;
    struct run *r = &k->run[rank];
    const struct vblock_cell *cell = g->put + (int64_t)rank * g->per_rank;
    while (r->at < g->per_rank && (cell[r->at].kind >= VBLOCK_PASSES ||
                                   laid(k, rank, cell[r->at].kind, cell[r->at].mb) >= k->from))
        r->at++;
    r->due = r->at < g->per_rank ? cell[r->at].slot : VBLOCK_NEVER;
}

/* The pass that keeps this slot, -1: none. */
static int fixed(const struct packing *k, int rank, int slot)
{
    struct run *r = &k->run[rank];
    if (r->due != slot)
        return -1;
    int kind = k->g->put[(int64_t)rank * k->g->per_rank + r->at++].kind;
    find_fixed(k, rank);
    return kind;
}

/* The pass of the drain that runs now, -1: none. When none may before the next fixed pass, the rank
 * wakes up for that. */
static int packed(const struct packing *k, int rank, int slot)
{
    const struct run *r = &k->run[rank];
    int best = -1, best_laid = VBLOCK_NEVER, waiting = 0;
    for (int kind = 0; kind < VBLOCK_PASSES; kind++) {
        int mb = r->next[kind];
        if (mb == k->g->m || laid(k, rank, kind, mb) < k->from)
            continue;
        waiting++;
        if (laid(k, rank, kind, mb) >= best_laid || (rank == 0 && slot < k->release) ||
            sched_vblock_ready(k->g, rank, kind, mb) > slot)
            continue;
        best_laid = laid(k, rank, kind, mb);
        best = kind <= VBLOCK_F1 && r->live == k->g->limit ? -1 : kind;
    }
    k->wake[rank] = waiting ? slot + 1 : r->due;
    return best;
}

static void run_slot(struct packing *k, int rank, int slot)
{
    struct vblock_grid *g = k->g;
    struct run *r = &k->run[rank];
    int kind = fixed(k, rank, slot);
    if (kind < 0)
        kind = packed(k, rank, slot);
    if (kind < 0 && r->next[VBLOCK_W1] < r->next[VBLOCK_B1])
        kind = VBLOCK_W1;
    else if (kind < 0 && r->next[VBLOCK_W0] < r->next[VBLOCK_B0])
        kind = VBLOCK_W0;
    if (kind < 0)
        return; /* and it sleeps until k->wake */
    k->wake[rank] = slot + 1;
    int mb = r->next[kind]++;
    if (kind < VBLOCK_PASSES)
        *vblock_end(g, rank, kind, mb) = slot + 1;
    r->live += kind <= VBLOCK_F1 ? 1 : kind >= VBLOCK_PASSES ? -1 : 0;
    k->out[(int64_t)rank * g->per_rank + r->n++] =
        (struct vblock_cell){slot, r->live, (uint16_t)mb, (uint8_t)kind};
}

/* Without a drain no rank looks at another, and each skips the slots in which it sleeps. */
static void run_fixed(struct packing *k)
{
    for (int rank = 0; rank < k->g->p; rank++)
        for (int slot = 0; k->run[rank].n < k->g->per_rank;) {
            run_slot(k, rank, slot);
            slot = k->wake[rank];
        }
}

static void run_drain(struct packing *k)
{
    int64_t left = (int64_t)k->g->p * k->g->per_rank;
    for (int slot = 0; left > 0; slot++)
        for (int rank = 0; rank < k->g->p; rank++) {
            if (slot < k->wake[rank])
                continue;
            int before = k->run[rank].n;
            run_slot(k, rank, slot);
            left -= k->run[rank].n - before;
        }
}

static void pack(struct packing *k)
{
    struct vblock_grid *g = k->g;
    k->from = laid(k, 0, VBLOCK_F0, g->m - 1);
    k->release = *vblock_end(g, 0, VBLOCK_F0, g->m - 1) - 1;
    if (k->from < g->b->at[0][VBLOCK_B0])
        k->from = VBLOCK_NEVER;
    for (int64_t i = 0; i < (int64_t)VBLOCK_PASSES * g->p * g->m; i++)
        g->end[i] = VBLOCK_NEVER;
    for (int rank = 0; rank < g->p; rank++)
        find_fixed(k, rank);
    if (k->from == VBLOCK_NEVER)
        run_fixed(k);
    else
        run_drain(k);
}

static enum err open_packing(struct packing *k, struct vblock_grid *g)
{
    *k = (struct packing){.g = g};
    TRY(mem_new(g->p, sizeof *k->run, "schedule block", &k->run));
    TRY(mem_new(g->p, sizeof *k->wake, "schedule block", &k->wake));
    return mem_new((int64_t)g->p * g->per_rank, sizeof *k->out, "schedule block", &k->out);
}

enum err sched_vblock_end(struct vblock_grid *g)
{
    struct packing k;
    uint16_t *ranks = NULL;
    enum err err = open_packing(&k, g);
    if (err == ERR_OK)
        err = sched_vblock_order(g, g->put, &ranks);
    if (err == ERR_OK) {
        close_gaps(g, ranks, k.wake);
        memset(k.wake, 0, (size_t)g->p * sizeof *k.wake);
        pack(&k);
        struct vblock_cell *old = g->put;
        g->put = k.out;
        k.out = old;
    }
    mem_free(ranks);
    mem_free(k.run);
    mem_free(k.wake);
    mem_free(k.out);
    return err;
}
