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

/* Every cell to the first slot that order and inputs allow. Cells are taken up by the slot they
 * have, so that what one needs has been taken up before. */
static void close_gaps(struct vblock_grid *g, int *at)
{
    int64_t left = (int64_t)g->p * g->per_rank;
    for (int slot = 0; left > 0; slot++)
        for (int rank = 0; rank < g->p; rank++) {
            struct vblock_cell *cell = g->put + (int64_t)rank * g->per_rank + at[rank];
            if (at[rank] == g->per_rank || cell->slot != slot)
                continue;
            int ready = at[rank] > 0 ? cell[-1].slot + 1 : 0;
            if (cell->kind < VBLOCK_PASSES) {
                int input = sched_vblock_ready(g, rank, cell->kind, cell->mb);
                ready = input > ready ? input : ready;
                *vblock_end(g, rank, cell->kind, cell->mb) = ready + 1;
            }
            cell->slot = ready;
            at[rank]++;
            left--;
        }
}

/* One rank in the last run. */
struct run {
    int at;                    /* in the cells of put */
    int n;                     /* written */
    int live;
    int next[VBLOCK_KINDS];    /* microbatch */
};

struct packing {
    struct vblock_grid *g;
    struct run *run;           /* owned; [p] */
    struct vblock_cell *out;   /* owned; [p * per_rank], which then takes put's place */
    int from;                  /* slot, as laid, from which on passes are of the drain */
    int release;               /* slot before which rank 0 packs nothing: its last F has it */
};

static int laid(const struct packing *k, int rank, int kind, int mb)
{
    return k->g->b->at[rank][kind] + VBLOCK_PERIOD * mb;
}

/* The pass that keeps this slot, -1: none. */
static int fixed(struct packing *k, int rank, int slot)
{
    struct vblock_grid *g = k->g;
    struct run *r = &k->run[rank];
    const struct vblock_cell *cell = g->put + (int64_t)rank * g->per_rank;
    while (r->at < g->per_rank && (cell[r->at].kind >= VBLOCK_PASSES ||
                                   laid(k, rank, cell[r->at].kind, cell[r->at].mb) >= k->from))
        r->at++;
    return r->at < g->per_rank && cell[r->at].slot == slot ? cell[r->at++].kind : -1;
}

/* The pass of the drain that runs now, -1: none. */
static int packed(const struct packing *k, int rank, int slot)
{
    const struct run *r = &k->run[rank];
    int best = -1, best_laid = VBLOCK_NEVER;
    if (rank == 0 && slot < k->release)
        return -1;
    for (int kind = 0; kind < VBLOCK_PASSES; kind++) {
        int mb = r->next[kind];
        if (mb == k->g->m || laid(k, rank, kind, mb) < k->from ||
            laid(k, rank, kind, mb) >= best_laid ||
            sched_vblock_ready(k->g, rank, kind, mb) > slot)
            continue;
        best_laid = laid(k, rank, kind, mb);
        best = kind <= VBLOCK_F1 && r->live == k->g->limit ? -1 : kind;
    }
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
        return;
    int mb = r->next[kind]++;
    if (kind < VBLOCK_PASSES)
        *vblock_end(g, rank, kind, mb) = slot + 1;
    r->live += kind <= VBLOCK_F1 ? 1 : kind >= VBLOCK_PASSES ? -1 : 0;
    k->out[(int64_t)rank * g->per_rank + r->n++] =
        (struct vblock_cell){slot, r->live, (uint16_t)mb, (uint8_t)kind};
}

static void pack(struct packing *k)
{
    struct vblock_grid *g = k->g;
    int64_t left = (int64_t)g->p * g->per_rank;
    k->from = laid(k, 0, VBLOCK_F0, g->m - 1);
    k->release = *vblock_end(g, 0, VBLOCK_F0, g->m - 1) - 1;
    if (k->from < g->b->at[0][VBLOCK_B0])
        k->from = VBLOCK_NEVER;
    for (int64_t i = 0; i < (int64_t)VBLOCK_PASSES * g->p * g->m; i++)
        g->end[i] = VBLOCK_NEVER;
    for (int slot = 0; left > 0; slot++)
        for (int rank = 0; rank < g->p; rank++) {
            int before = k->run[rank].n;
            run_slot(k, rank, slot);
            left -= k->run[rank].n - before;
        }
}

enum err sched_vblock_end(struct vblock_grid *g)
{
    struct packing k = {.g = g};
    int64_t cells = (int64_t)g->p * g->per_rank;
    int *at = NULL;
    enum err err = mem_new(g->p, sizeof *at, "schedule block", &at);
    if (err == ERR_OK)
        err = mem_new(g->p, sizeof *k.run, "schedule block", &k.run);
    if (err == ERR_OK)
        err = mem_new(cells, sizeof *k.out, "schedule block", &k.out);
    if (err == ERR_OK) {
        close_gaps(g, at);
        pack(&k);
        struct vblock_cell *old = g->put;
        g->put = k.out;
        k.out = old;
    }
    mem_free(at);
    mem_free(k.run);
    mem_free(k.out);
    return err;
}
