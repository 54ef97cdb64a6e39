/* SPDX-License-Identifier: Apache-2.0
 *
 * A block repeated (Qi et al., "Pipeline parallelism with controllable memory", 2024): how long the
 * block holds activations decides the memory of the schedule, which is chosen that way. Three
 * steps (docs/design/orders.md): lay the plain repetition, W's where slots are free; pull each cell
 * to the first free slot after its input, within the repetition's memory; with halves, close the
 * gaps that are left and pack the drain. A cell is never put later than it was laid, for what it
 * needs has not moved back either and its own slot is free for it: so a slot is always found.
 */
#include "sched/sched_build.h"

#include "base/mem.h"
#include <string.h>

enum { NEVER = 0x7fffffff };

struct cell {
    int slot, live; /* live: activations of the rank after it */
    uint16_t mb;
    uint8_t kind;
};

/* One rank in the last run. */
struct run {
    int at;                 /* in the cells of put: the next pass that keeps its slot */
    int due;                /* that slot, NEVER after the last */
    int wake;               /* slot before which the rank has nothing to run */
    int n, live;            /* written; activations */
    int next[VBLOCK_KINDS]; /* microbatch */
};

struct grid {
    const struct vblock *b;
    int p, m, per_rank; /* cells of a rank: 4 m or 6 m */
    int limit;          /* most activations of a rank in the plain repetition */
    struct cell *raw;   /* owned; [p * per_rank] the plain repetition, by slot; then the last run */
    struct cell *put;   /* owned; [p * per_rank] what became of it, by slot */
    int *n;             /* owned; [p] cells of a rank that are dealt with */
    int *end;           /* owned; [PASSES * p * m] first slot after a pass; NEVER: not run */
    uint16_t *ranks;    /* owned; [p * per_rank] of all cells, in the order of their slots */
    struct run *run;    /* owned; [p] */
    int from;           /* slot, as laid, from which on passes are of the drain */
    int release;        /* slot before which rank 0 packs nothing: its last F has it */
};

static struct cell *row(struct cell *cells, const struct grid *g, int rank)
{
    return cells + (int64_t)rank * g->per_rank;
}

/* Where the end of a pass is kept. */
static int *end_of(const struct grid *g, int rank, int kind, int mb)
{
    return &g->end[((int64_t)kind * g->p + rank) * g->m + mb];
}

static int slots_of(const struct grid *g, int kind)
{
    return g->b->whole && (kind == VBLOCK_B1 || kind == VBLOCK_B0) ? 2 : 1;
}

/* Activations that a cell adds to its rank's. */
static int adds(const struct grid *g, int kind)
{
    if (kind == VBLOCK_F0 || kind == VBLOCK_F1)
        return 1;
    return g->b->whole || kind >= VBLOCK_PASSES ? -1 : 0;
}

/* First slot in which the input of a pass is there; 0 for the first, NEVER while it is not run. */
static int ready_at(const struct grid *g, int rank, int kind, int mb)
{
    bool down = kind == VBLOCK_F0 || kind == VBLOCK_B1; /* comes from the rank before */
    int from = down ? rank - 1 : rank + 1;
    if (kind == VBLOCK_F0 && rank == 0)
        return 0;
    if (from < 0 || from == g->p)
        return *end_of(g, rank, kind - 1, mb); /* the V turns here */
    return *end_of(g, from, kind, mb);
}

/* The W that is due, -1: none. */
static int next_w(const int count[VBLOCK_KINDS])
{
    if (count[VBLOCK_W1] < count[VBLOCK_B1])
        return VBLOCK_W1;
    return count[VBLOCK_W0] < count[VBLOCK_B0] ? VBLOCK_W0 : -1;
}

static void forget_ends(struct grid *g)
{
    for (int64_t i = 0; i < (int64_t)VBLOCK_PASSES * g->p * g->m; i++)
        g->end[i] = NEVER;
}

/* ---- lay ---- */

static void lay_rank(struct grid *g, int rank)
{
    struct cell *cell = row(g->raw, g, rank);
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
        if (kind < 0 && !g->b->whole)
            kind = next_w(count);
        if (kind < 0)
            continue;
        live += adds(g, kind);
        g->limit = live > g->limit ? live : g->limit;
        cell[n++] = (struct cell){slot, live, (uint16_t)count[kind]++, (uint8_t)kind};
    }
}

/* ---- pull ---- */

/* First of the cells put on a rank, from `i` on, before which `need` slots from *slot on are free;
 * *slot is moved there. */
static int find_gap(const struct grid *g, const struct cell *put, int n, int need, int *slot)
{
    int i = n;
    while (i > 0 && put[i - 1].slot + slots_of(g, put[i - 1].kind) > *slot)
        i--;
    for (; i < n && put[i].slot < *slot + need; i++)
        *slot = put[i].slot + slots_of(g, put[i].kind);
    return i;
}

/* First slot of a forward from which on one activation more stays within the limit. */
static int room_from(const struct grid *g, const struct cell *put, int n, int slot)
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

static void pull_cell(struct grid *g, int rank, struct cell cell)
{
    struct cell *put = row(g->put, g, rank);
    int n = g->n[rank], add = adds(g, cell.kind), slot;
    if (cell.kind < VBLOCK_PASSES)
        slot = ready_at(g, rank, cell.kind, cell.mb);
    else
        slot = *end_of(g, rank, cell.kind - 2, cell.mb); /* W after its I */
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
        *end_of(g, rank, cell.kind, cell.mb) = slot + slots_of(g, cell.kind);
}

/* Fills g->ranks, in a slot by rank: a counting sort. */
static enum err order(struct grid *g, const struct cell *cells)
{
    int64_t n = (int64_t)g->p * g->per_rank, *first, last = 0;
    for (int64_t i = 0; i < n; i++)
        last = cells[i].slot > last ? cells[i].slot : last;
    TRY(mem_new(last + 2, sizeof *first, "schedule block", &first));
    for (int64_t i = 0; i < n; i++)
        first[cells[i].slot + 1]++;
    for (int64_t slot = 0; slot < last; slot++)
        first[slot + 1] += first[slot];
    for (int64_t i = 0; i < n; i++)
        g->ranks[first[cells[i].slot]++] = (uint16_t)(i / g->per_rank);
    mem_free(first);
    return ERR_OK;
}

/* All cells laid before slot `until`, whose inputs are laid in slots before theirs. What is laid
 * later stays there. */
static enum err pull(struct grid *g, int until)
{
    TRY(order(g, g->raw));
    for (int64_t i = 0; i < (int64_t)g->p * g->per_rank; i++) {
        int rank = g->ranks[i];
        struct cell cell = row(g->raw, g, rank)[g->n[rank]];
        if (cell.slot < until)
            pull_cell(g, rank, cell);
        else
            row(g->put, g, rank)[g->n[rank]] = cell;
        g->n[rank]++;
    }
    return ERR_OK;
}

/* ---- end, of halves ---- */

/* Every cell to the first slot that order and inputs allow. Cells are taken up by the slot they
 * have, so that what one needs has been taken up before. */
static enum err close_gaps(struct grid *g)
{
    TRY(order(g, g->put));
    memset(g->n, 0, (size_t)g->p * sizeof *g->n);
    for (int64_t i = 0; i < (int64_t)g->p * g->per_rank; i++) {
        int rank = g->ranks[i];
        struct cell *cell = row(g->put, g, rank) + g->n[rank];
        int ready = g->n[rank]++ > 0 ? cell[-1].slot + 1 : 0;
        if (cell->kind < VBLOCK_PASSES) {
            int input = ready_at(g, rank, cell->kind, cell->mb);
            ready = input > ready ? input : ready;
            *end_of(g, rank, cell->kind, cell->mb) = ready + 1;
        }
        cell->slot = ready;
    }
    return ERR_OK;
}

static int laid(const struct grid *g, int rank, int kind, int mb)
{
    return g->b->at[rank][kind] + VBLOCK_PERIOD * mb;
}

/* Moves a rank to the pass from place r->at on that keeps its slot. */
static void find_fixed(const struct grid *g, int rank)
{
    struct run *r = &g->run[rank];
    const struct cell *cell = row(g->put, g, rank);
    while (r->at < g->per_rank && (cell[r->at].kind >= VBLOCK_PASSES ||
                                   laid(g, rank, cell[r->at].kind, cell[r->at].mb) >= g->from))
        r->at++;
    r->due = r->at < g->per_rank ? cell[r->at].slot : NEVER;
}

/* The pass of the drain that may run in this slot, -1: none. When none may before the next fixed
 * pass, the rank wakes up for that. */
static int packed(const struct grid *g, int rank, int slot)
{
    struct run *r = &g->run[rank];
    int best = -1, best_laid = NEVER, waiting = 0;
    for (int kind = 0; kind < VBLOCK_PASSES; kind++) {
        int mb = r->next[kind], at = laid(g, rank, kind, mb);
        if (mb == g->m || at < g->from)
            continue;
        waiting++;
        if (at >= best_laid || (rank == 0 && slot < g->release) ||
            ready_at(g, rank, kind, mb) > slot)
            continue;
        best_laid = at;
        best = kind <= VBLOCK_F1 && r->live == g->limit ? -1 : kind;
    }
    r->wake = waiting ? slot + 1 : r->due;
    return best;
}

/* What keeps this slot, or else the drain, or a W. */
static void run_slot(struct grid *g, int rank, int slot)
{
    struct run *r = &g->run[rank];
    int kind = -1;
    if (r->due == slot) {
        kind = row(g->put, g, rank)[r->at++].kind;
        find_fixed(g, rank);
    }
    if (kind < 0)
        kind = packed(g, rank, slot);
    if (kind < 0)
        kind = next_w(r->next);
    if (kind < 0)
        return; /* and it sleeps until r->wake */
    r->wake = slot + 1;
    int mb = r->next[kind]++;
    if (kind < VBLOCK_PASSES)
        *end_of(g, rank, kind, mb) = slot + 1;
    r->live += adds(g, kind);
    row(g->raw, g, rank)[r->n++] = (struct cell){slot, r->live, (uint16_t)mb, (uint8_t)kind};
}

/* From put to raw. */
static void pack(struct grid *g)
{
    g->from = laid(g, 0, VBLOCK_F0, g->m - 1);
    g->release = *end_of(g, 0, VBLOCK_F0, g->m - 1) - 1;
    if (g->from < g->b->at[0][VBLOCK_B0])
        g->from = NEVER;
    forget_ends(g);
    for (int rank = 0; rank < g->p; rank++)
        find_fixed(g, rank);
    int64_t left = (int64_t)g->p * g->per_rank;
    for (int slot = 0; left > 0; slot++)
        for (int rank = 0; rank < g->p; rank++) {
            int before = g->run[rank].n;
            if (slot >= g->run[rank].wake)
                run_slot(g, rank, slot);
            left -= g->run[rank].n - before;
        }
}

/* ---- the whole ---- */

enum err sched_vblock_open(struct vblock *b, const char *name, const struct sched_shape *shape)
{
    *b = (struct vblock){.name = name, .shape = shape};
    return mem_new(shape->p, sizeof *b->at, "schedule block", &b->at);
}

static enum err fill_grid(struct grid *g)
{
    static const char what[] = "schedule block";
    int64_t cells = (int64_t)g->p * g->per_rank;
    TRY(mem_new(cells, sizeof *g->raw, what, &g->raw));
    TRY(mem_new(cells, sizeof *g->put, what, &g->put));
    TRY(mem_new(cells, sizeof *g->ranks, what, &g->ranks));
    TRY(mem_new(g->p, sizeof *g->n, what, &g->n));
    TRY(mem_new(g->p, sizeof *g->run, what, &g->run));
    TRY(mem_new((int64_t)VBLOCK_PASSES * g->p * g->m, sizeof *g->end, what, &g->end));
    forget_ends(g);
    for (int rank = 0; rank < g->p; rank++)
        lay_rank(g, rank);
    TRY(pull(g, g->b->whole ? NEVER : g->b->at[0][VBLOCK_B0]));
    if (g->b->whole)
        return ERR_OK;
    TRY(close_gaps(g));
    pack(g);
    return ERR_OK;
}

enum err sched_vblock_make(struct vblock *b, struct sched *out)
{
    struct grid g = {.b = b, .p = b->shape->p, .m = b->shape->m};
    struct sched_build build;
    g.per_rank = (b->whole ? VBLOCK_PASSES : VBLOCK_KINDS) * g.m;
    sched_build_open(&build, b->name, b->shape);
    sched_build_zigzag(&build);
    if (build.err == ERR_OK)
        build.err = fill_grid(&g);
    for (int rank = 0; build.err == ERR_OK && rank < g.p; rank++) {
        const struct cell *cell = row(b->whole ? g.put : g.raw, &g, rank);
        sched_build_rank(&build);
        for (int i = 0; i < g.per_rank; i++) {
            enum sched_op op = sched_vblock_op(cell[i].kind);
            sched_build_add(&build, b->whole && op == SCHED_I ? SCHED_B : op,
                            sched_vblock_stage(g.p, rank, cell[i].kind), cell[i].mb);
        }
    }
    mem_free(g.raw);
    mem_free(g.put);
    mem_free(g.ranks);
    mem_free(g.n);
    mem_free(g.run);
    mem_free(g.end);
    mem_free(b->at);
    return sched_build_done(&build, out);
}
