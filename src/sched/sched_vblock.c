/* SPDX-License-Identifier: Apache-2.0
 *
 * A block repeated (Qi et al., "Pipeline parallelism with controllable memory", 2024): how long the
 * block holds activations decides the memory of the schedule, which is chosen that way; the plain
 * repetition then idles more than it must while it fills and drains. Three steps:
 *
 *  1. lay: microbatch k runs 6 k slots after microbatch 0; a free slot takes a W that is due, of
 *     the second chunk first. The most activations that a rank then keeps are the limit.
 *  2. pull: cell by cell, by slot, each goes to the first free slot after its input is there; a
 *     forward only where no rank's activations rise above the limit. With a whole backward this is
 *     done from end to end. With halves it is done up to the slot in which microbatch 0 is through,
 *     from where on the block has no slot free that an F, f, i or I could take.
 *  3. end (sched_vblock_end.c; halves only): the gaps that are left close, and the drain runs what
 *     is ready, W in between.
 *
 *     V-Half, p 2, rank 0, laid:  F0 .. .. .. f0 .. F1 .. i0 w0 f1 .. F2 I0 i1 w1 f2 W0 F3 I1 ...
 *                       pulled:  F0 F1 F2 f0 i0 w0 f1 .. I0 i1 w1 f2 W0 F3 ...
 *
 * A cell is never put later than it was laid: what it needs has not moved back either, and its own
 * slot is free for it. So a slot is always found, and in the last resort the memory is that of the
 * plain repetition.
 */
#include "sched/sched_vblock.h"

#include "base/mem.h"
#include <string.h>

static int slots_of(const struct vblock_grid *g, int kind)
{
    return g->b->whole && (kind == VBLOCK_B1 || kind == VBLOCK_B0) ? 2 : 1;
}

/* Activations that a cell adds to its rank's. */
static int adds(const struct vblock_grid *g, int kind)
{
    if (kind == VBLOCK_F0 || kind == VBLOCK_F1)
        return 1;
    return g->b->whole || kind >= VBLOCK_PASSES ? -1 : 0;
}

int sched_vblock_ready(const struct vblock_grid *g, int rank, int kind, int mb)
{
    bool down = kind == VBLOCK_F0 || kind == VBLOCK_B1; /* comes from the rank before */
    int from = down ? rank - 1 : rank + 1;
    if (kind == VBLOCK_F0 && rank == 0)
        return 0;
    if (from < 0 || from == g->p)
        return *vblock_end(g, rank, kind - 1, mb); /* the V turns here */
    return *vblock_end(g, from, kind, mb);
}

/* ---- lay ---- */

static void lay_rank(struct vblock_grid *g, int rank)
{
    struct vblock_cell *cell = g->raw + (int64_t)rank * g->per_rank;
    const int *at = g->b->at[rank];
    int count[VBLOCK_KINDS] = {0}, of[VBLOCK_PERIOD], live = 0;
    for (int i = 0; i < VBLOCK_PERIOD; i++)
        of[i] = -1;
    for (int kind = 0; kind < VBLOCK_PASSES; kind++)
        of[at[kind] % VBLOCK_PERIOD] = kind;
    for (int slot = 0, n = 0, i = 0; n < g->per_rank; slot++, i++) {
        i = i == VBLOCK_PERIOD ? 0 : i; /* slot modulo the period */
        int kind = of[i];
        if (kind >= 0 && (slot < at[kind] || count[kind] == g->m))
            kind = -1;
        if (kind < 0 && !g->b->whole && count[VBLOCK_W1] < count[VBLOCK_B1])
            kind = VBLOCK_W1;
        else if (kind < 0 && !g->b->whole && count[VBLOCK_W0] < count[VBLOCK_B0])
            kind = VBLOCK_W0;
        if (kind < 0)
            continue;
        live += adds(g, kind);
        g->limit = live > g->limit ? live : g->limit;
        cell[n++] = (struct vblock_cell){slot, live, (uint16_t)count[kind]++, (uint8_t)kind};
    }
}

/* ---- pull ---- */

/* First of the cells put on a rank, from `i` on, before which `need` slots from *slot on are free;
 * *slot is moved there. */
static int find_gap(const struct vblock_grid *g, const struct vblock_cell *put, int n, int need,
                    int *slot)
{
    int i = n;
    while (i > 0 && put[i - 1].slot + slots_of(g, put[i - 1].kind) > *slot)
        i--;
    for (; i < n && put[i].slot < *slot + need; i++)
        *slot = put[i].slot + slots_of(g, put[i].kind);
    return i;
}

/* First slot of a forward from which on one activation more stays within the limit. */
static int room_from(const struct vblock_grid *g, const struct vblock_cell *put, int n, int slot)
{
    for (int i = n - 1; i >= 0; i--) {
        if (put[i].live >= g->limit) { /* all of put keeps less, so one follows */
            int after = put[i + 1].slot + 1;
            return after > slot ? after : slot;
        }
        if (put[i].slot < slot)
            break;
    }
    return slot;
}

static void pull_cell(struct vblock_grid *g, int rank, struct vblock_cell cell)
{
    struct vblock_cell *put = g->put + (int64_t)rank * g->per_rank;
    int n = g->n[rank]++, add = adds(g, cell.kind), slot;
    if (cell.kind < VBLOCK_PASSES)
        slot = sched_vblock_ready(g, rank, cell.kind, cell.mb);
    else
        slot = *vblock_end(g, rank, cell.kind - 2, cell.mb); /* W after its I */
    if (add > 0)
        slot = room_from(g, put, n, slot);
    int i = find_gap(g, put, n, slots_of(g, cell.kind), &slot);
    ENSURE(slot <= cell.slot);
    memmove(put + i + 1, put + i, (size_t)(n - i) * sizeof *put);
    cell.slot = slot;
    cell.live = (i > 0 ? put[i - 1].live : 0) + add;
    put[i] = cell;
    for (i++; i <= n; i++)
        put[i].live += add;
    if (cell.kind < VBLOCK_PASSES)
        *vblock_end(g, rank, cell.kind, cell.mb) = slot + slots_of(g, cell.kind);
}

/* A counting sort. */
enum err sched_vblock_order(const struct vblock_grid *g, const struct vblock_cell *cells,
                            uint16_t **out)
{
    int64_t n = (int64_t)g->p * g->per_rank, *first, last = 0;
    uint16_t *ranks = NULL;
    for (int64_t i = 0; i < n; i++)
        last = cells[i].slot > last ? cells[i].slot : last;
    TRY(mem_new(last + 2, sizeof *first, "schedule block", &first));
    enum err err = mem_new(n, sizeof *ranks, "schedule block", &ranks);
    if (err == ERR_OK) {
        for (int64_t i = 0; i < n; i++)
            first[cells[i].slot + 1]++;
        for (int64_t slot = 0; slot < last; slot++)
            first[slot + 1] += first[slot];
        for (int64_t i = 0; i < n; i++)
            ranks[first[cells[i].slot]++] = (uint16_t)(i / g->per_rank);
    }
    mem_free(first);
    *out = ranks;
    return err;
}

/* All cells laid before slot `until`, whose inputs are laid in slots before theirs. */
static enum err pull(struct vblock_grid *g, int until)
{
    uint16_t *ranks;
    TRY(sched_vblock_order(g, g->raw, &ranks));
    for (int64_t i = 0; i < (int64_t)g->p * g->per_rank; i++) {
        struct vblock_cell cell = g->raw[(int64_t)ranks[i] * g->per_rank + g->n[ranks[i]]];
        if (cell.slot >= until)
            break;
        pull_cell(g, ranks[i], cell);
    }
    mem_free(ranks);
    return ERR_OK;
}

/* What was not pulled stays where it was laid. */
static void keep_rest(struct vblock_grid *g)
{
    for (int rank = 0; rank < g->p; rank++) {
        int64_t first = (int64_t)rank * g->per_rank, n = g->n[rank];
        memcpy(g->put + first + n, g->raw + first + n,
               (size_t)(g->per_rank - n) * sizeof *g->put);
        g->n[rank] = g->per_rank;
    }
}

/* ---- the whole ---- */

static enum err open_grid(struct vblock_grid *g, const struct vblock *b)
{
    int64_t p = b->shape->p, m = b->shape->m;
    *g = (struct vblock_grid){.b = b, .p = (int)p, .m = (int)m};
    g->per_rank = (int)((b->whole ? VBLOCK_PASSES : VBLOCK_KINDS) * m);
    TRY(mem_new(p * g->per_rank, sizeof *g->raw, "schedule block", &g->raw));
    TRY(mem_new(p * g->per_rank, sizeof *g->put, "schedule block", &g->put));
    TRY(mem_new(p, sizeof *g->n, "schedule block", &g->n));
    TRY(mem_new(VBLOCK_PASSES * p * m, sizeof *g->end, "schedule block", &g->end));
    for (int64_t i = 0; i < VBLOCK_PASSES * p * m; i++)
        g->end[i] = VBLOCK_NEVER;
    return ERR_OK;
}

static void close_grid(struct vblock_grid *g)
{
    mem_free(g->raw);
    mem_free(g->put);
    mem_free(g->n);
    mem_free(g->end);
}

static enum err fill_grid(struct vblock_grid *g)
{
    for (int rank = 0; rank < g->p; rank++)
        lay_rank(g, rank);
    TRY(pull(g, g->b->whole ? VBLOCK_NEVER : g->b->at[0][VBLOCK_B0]));
    keep_rest(g);
    mem_free(g->raw);
    g->raw = NULL;
    return g->b->whole ? ERR_OK : sched_vblock_end(g);
}

static enum err emit(const struct vblock_grid *g, struct sched *out)
{
    static const enum sched_op op[VBLOCK_KINDS] = {SCHED_F, SCHED_F, SCHED_I,
                                                   SCHED_I, SCHED_W, SCHED_W};
    static const bool second[VBLOCK_KINDS] = {false, true, true, false, true, false};
    struct sched_build build;
    sched_build_open(&build, g->b->name, g->b->shape);
    sched_build_zigzag(&build);
    for (int rank = 0; rank < g->p; rank++) {
        const struct vblock_cell *cell = g->put + (int64_t)rank * g->per_rank;
        sched_build_rank(&build);
        for (int i = 0; i < g->per_rank; i++) {
            bool back = cell[i].kind == VBLOCK_B1 || cell[i].kind == VBLOCK_B0;
            sched_build_add(&build, g->b->whole && back ? SCHED_B : op[cell[i].kind],
                            second[cell[i].kind] ? 2 * g->p - 1 - rank : rank, cell[i].mb);
        }
    }
    return sched_build_done(&build, out);
}

enum err sched_vblock_open(struct vblock *b, const char *name, const struct sched_shape *shape)
{
    *b = (struct vblock){.name = name, .shape = shape};
    TRY(sched_shape_two_chunks(name, shape));
    return mem_new(shape->p, sizeof *b->at, "schedule block", &b->at);
}

enum err sched_vblock_make(struct vblock *b, struct sched *out)
{
    struct vblock_grid g;
    enum err err = open_grid(&g, b);
    if (err == ERR_OK)
        err = fill_grid(&g);
    if (err == ERR_OK)
        err = emit(&g, out);
    close_grid(&g);
    mem_free(b->at);
    return err;
}
