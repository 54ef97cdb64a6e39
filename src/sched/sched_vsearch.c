/* SPDX-License-Identifier: Apache-2.0
 *
 * An order of two chunks a rank in a V, found for given times under a limit of memory: the task of
 * the automatic search of Qi et al. ("Zero bubble pipeline parallelism", 2023, table 8; "Pipeline
 * parallelism with controllable memory", 2024), done in another way.
 *
 * What makes an order good falls apart into two questions. In which order a rank runs F and I
 * decides how long a microbatch is on its way, and orders that are good for equal times stay good
 * for others: so these are taken from where they are known, and not searched. Where the W's stand
 * depends on the times alone, and is decided anew for each:
 *
 *     orders      of zb-v (closed), v-half and v-min, and four that sched_vgrow.c grows on a clock
 *     W's         where they stood; and five times more: W's run while a rank waits for its input,
 *                 as long as the rest of the wait is no shorter than 0, 1/4, 1/2, 3/4 or all of a
 *                 W. One that does not fit delays its rank, but leaves less for the end.
 *
 * Of the latter a forward without room has W's before it, and what is left of W ends the list. An
 * order that has no room even so is left out. Nobody waits for an I of rank 0's first chunk: once
 * it has no forward of that chunk left, a W goes before each of them.
 *
 * The list is kept whose longest rank, from its first start to its last end, is shortest; the first
 * of equals. The closed order comes first, so that no list is longer than it, and equal times
 * without messages leave it as it is. A list is run no further than a rank has idled too much.
 *
 * Memory by count: with f forwards, i input halves and w weight halves done, a rank keeps
 * (f - i) + keep (i - w) activations of a chunk.
 */
#include "sched/sched_vsearch.h"

#include "base/mem.h"
#include <string.h>

/* ---- the clock ---- */

double sched_vsearch_input(const struct vsearch *s, int rank, int kind)
{
    int mb = s->rank[rank].n[kind], last = s->p - 1;
    int from = kind == VBLOCK_F0 || kind == VBLOCK_B1 ? rank - 1 : rank + 1;
    if (kind == VBLOCK_F0 && rank == 0)
        return 0;
    if (from < 0 || from > last) /* the V turns: what the rank itself ran before */
        return *sched_vsearch_end(s, rank, kind - 1, mb);
    double end = *sched_vsearch_end(s, from, kind, mb);
    return end < VSEARCH_LATER ? end + s->c.tc : VSEARCH_LATER;
}

static double time_of(const struct vsearch *s, int rank, int kind)
{
    static const enum sched_op op[VBLOCK_KINDS] = {SCHED_F, SCHED_F, SCHED_I,
                                                   SCHED_I, SCHED_W, SCHED_W};
    bool second = kind == VBLOCK_F1 || kind == VBLOCK_B1 || kind == VBLOCK_W1;
    return sched_cost_time(&s->c, op[kind], second ? 2 * s->p - 1 - rank : rank);
}

void sched_vsearch_begin(struct vsearch *s)
{
    for (int64_t i = 0; i < (int64_t)VBLOCK_PASSES * s->p * s->m; i++)
        s->end[i] = VSEARCH_LATER;
    for (int rank = 0; rank < s->p; rank++) {
        s->rank[rank] = (struct vsearch_rank){0};
        for (int kind = 0; kind < VBLOCK_KINDS; kind++)
            s->rank[rank].least += s->m * time_of(s, rank, kind);
    }
}

bool sched_vsearch_room(const struct vsearch *s, int rank, int spare, bool once_run)
{
    const int *n = s->rank[rank].n;
    int i = n[VBLOCK_B0] + n[VBLOCK_B1], kept = once_run ? 0 : i - n[VBLOCK_W0] - n[VBLOCK_W1];
    return n[VBLOCK_F0] + n[VBLOCK_F1] - i + s->c.keep * kept + 1 + spare <= s->c.limit;
}

void sched_vsearch_put(struct vsearch *s, int rank, int kind, double from)
{
    struct vsearch_rank *r = &s->rank[rank];
    if (from < r->free)
        from = r->free;
    if (r->length == 0)
        r->start = from;
    else
        r->least += from - r->free;
    r->free = from + time_of(s, rank, kind);
    s->list[sched_vsearch_row(s, rank) + r->length++] = (uint8_t)kind;
    if (kind < VBLOCK_PASSES)
        *sched_vsearch_end(s, rank, kind, r->n[kind]) = r->free;
    r->n[kind]++;
}

/* The chunk whose W runs next. */
static int next_w(const struct vsearch_rank *r)
{
    bool first = r->n[VBLOCK_W0] < r->n[VBLOCK_B0], second = r->n[VBLOCK_W1] < r->n[VBLOCK_B1];
    if (first && second)
        return r->n[VBLOCK_W1] <= r->n[VBLOCK_W0] ? VBLOCK_W1 : VBLOCK_W0;
    return second ? VBLOCK_W1 : VBLOCK_W0;
}

void sched_vsearch_put_w(struct vsearch *s, int rank, double from)
{
    sched_vsearch_put(s, rank, next_w(&s->rank[rank]), from);
}

/* ---- one list ---- */

/* Where the ranks stand in the plan. */
struct plan_walk {
    int *at;     /* owned; [p] passes run */
    int *stack;  /* owned; [p] ranks that may go on */
    bool *awake; /* owned; [p] on the stack? */
    int depth;
};

/* How W's are placed: where the plan has them, or in waits that leave this part of a W's time. */
#define AS_PLANNED (-1.0)

/* Runs one pass of the plan with the W's before it; false: there is no room. */
static bool run_pass(struct vsearch *s, int rank, int kind, double input, double fit)
{
    struct vsearch_rank *r = &s->rank[rank];
    while (fit >= 0 && r->free < input && sched_vsearch_due(r) &&
           r->free + fit * time_of(s, rank, next_w(r)) <= input)
        sched_vsearch_put_w(s, rank, 0);
    while (kind <= VBLOCK_F1 && !sched_vsearch_room(s, rank, 0, false)) {
        if (fit < 0 || !sched_vsearch_due(r))
            return false;
        sched_vsearch_put_w(s, rank, 0);
    }
    bool last = kind == VBLOCK_B0 && rank == 0 && r->n[VBLOCK_F0] == s->m;
    if (fit >= 0 && last && sched_vsearch_due(r))
        sched_vsearch_put_w(s, rank, 0);
    sched_vsearch_put(s, rank, kind, input);
    return true;
}

/* Runs a rank's plan, at[rank] of `n` passes, as far as its inputs are known; false: the list has
 * no room, or is no shorter than the best. */
static bool run_rank(struct vsearch *s, int rank, int *at, int n, double fit)
{
    struct vsearch_rank *r = &s->rank[rank];
    for (; at[rank] < n; at[rank]++) {
        int kind = s->plan[sched_vsearch_row(s, rank) + at[rank]];
        double input = kind < VBLOCK_PASSES ? sched_vsearch_input(s, rank, kind) : 0;
        if (input >= VSEARCH_LATER)
            break;
        if (!run_pass(s, rank, kind, input, fit) || r->least >= s->cost)
            return false;
    }
    while (at[rank] == n && sched_vsearch_due(r))
        sched_vsearch_put_w(s, rank, 0);
    return r->free - r->start < s->cost;
}

static void wake(struct plan_walk *k, int rank, int p)
{
    if (rank < 0 || rank >= p || k->awake[rank])
        return;
    k->awake[rank] = true;
    k->stack[k->depth++] = rank;
}

/* All ranks, each as far as it goes, and again when a neighbour went on. */
static bool run_all(struct vsearch *s, struct plan_walk *k, int n, double fit)
{
    sched_vsearch_begin(s);
    memset(k->at, 0, (size_t)s->p * sizeof *k->at);
    memset(k->awake, 0, (size_t)s->p * sizeof *k->awake);
    k->depth = 0;
    for (int rank = s->p - 1; rank >= 0; rank--)
        wake(k, rank, s->p);
    while (k->depth > 0) {
        int rank = k->stack[--k->depth], before = k->at[rank];
        k->awake[rank] = false;
        if (!run_rank(s, rank, k->at, n, fit))
            return false;
        if (k->at[rank] > before) {
            wake(k, rank + 1, s->p);
            wake(k, rank - 1, s->p);
        }
    }
    return true;
}

/* Keeps what ran, if it is better. */
static void try(struct vsearch *s, struct plan_walk *k, int n, double fit)
{
    if (!run_all(s, k, n, fit))
        return;
    s->cost = 0;
    for (int rank = 0; rank < s->p; rank++) {
        double span = s->rank[rank].free - s->rank[rank].start;
        s->cost = span > s->cost ? span : s->cost;
    }
    uint8_t *list = s->list;
    s->list = s->best;
    s->best = list;
}

static void leave_w_out(struct vsearch *s)
{
    for (int rank = 0; rank < s->p; rank++) {
        uint8_t *plan = s->plan + sched_vsearch_row(s, rank);
        for (int i = 0, n = 0; i < VBLOCK_KINDS * s->m; i++)
            if (plan[i] < VBLOCK_PASSES)
                plan[n++] = plan[i];
    }
}

/* All placements of W in the order of the plan. */
static void try_plan(struct vsearch *s, struct plan_walk *k)
{
    try(s, k, VBLOCK_KINDS * s->m, AS_PLANNED);
    leave_w_out(s);
    for (int quarters = 0; quarters <= 4; quarters++)
        try(s, k, VBLOCK_PASSES * s->m, quarters / 4.0);
}

/* ---- the orders ---- */

static void plan_list(struct vsearch *s, const struct sched *from)
{
    static const uint8_t kind[2][SCHED_W + 1] = {{VBLOCK_F0, 0, VBLOCK_B0, VBLOCK_W0},
                                                 {VBLOCK_F1, 0, VBLOCK_B1, VBLOCK_W1}};
    for (int rank = 0; rank < s->p; rank++)
        for (int i = 0; i < VBLOCK_KINDS * s->m; i++) {
            struct sched_instr in = from->instr[from->begin[rank] + i];
            s->plan[sched_vsearch_row(s, rank) + i] = kind[in.stage >= s->p][in.op];
        }
}

static enum err search(struct vsearch *s, const struct sched_shape *shape,
                       const struct sched *first, struct plan_walk *k)
{
    static const struct sched_kind *const blocks[] = {&sched_v_half, &sched_v_min};
    s->cost = VSEARCH_LATER;
    plan_list(s, first);
    try_plan(s, k);
    for (int i = 0; i < 2; i++) {
        struct sched made;
        TRY(blocks[i]->make(shape, &made));
        plan_list(s, &made);
        sched_free(&made);
        try_plan(s, k);
    }
    for (int choice = 0; choice < VGROW_CHOICES; choice++) {
        TRY(sched_vgrow(s, choice));
        memcpy(s->plan, s->list, (size_t)sched_vsearch_row(s, s->p));
        try_plan(s, k);
    }
    ENSURE(s->cost < VSEARCH_LATER); /* what is grown has room */
    return ERR_OK;
}

static enum err emit(const struct vsearch *s, const char *name, const struct sched_shape *shape,
                     struct sched *out)
{
    static const enum sched_op op[VBLOCK_KINDS] = {SCHED_F, SCHED_F, SCHED_I,
                                                   SCHED_I, SCHED_W, SCHED_W};
    struct sched_build b;
    sched_build_open(&b, name, shape);
    sched_build_zigzag(&b);
    for (int rank = 0; rank < s->p; rank++) {
        int next[VBLOCK_KINDS] = {0};
        const uint8_t *list = s->best + sched_vsearch_row(s, rank);
        sched_build_rank(&b);
        for (int i = 0; i < VBLOCK_KINDS * s->m; i++) {
            int kind = list[i];
            bool second = kind == VBLOCK_F1 || kind == VBLOCK_B1 || kind == VBLOCK_W1;
            sched_build_add(&b, op[kind], second ? 2 * s->p - 1 - rank : rank, next[kind]++);
        }
    }
    return sched_build_done(&b, out);
}

static enum err open_search(struct vsearch *s, struct plan_walk *k)
{
    int64_t units = (int64_t)s->p * s->m;
    TRY(mem_new(s->p, sizeof *s->rank, "schedule search", &s->rank));
    TRY(mem_new(s->p, sizeof *k->at, "schedule search", &k->at));
    TRY(mem_new(s->p, sizeof *k->stack, "schedule search", &k->stack));
    TRY(mem_new(s->p, sizeof *k->awake, "schedule search", &k->awake));
    TRY(mem_new(VBLOCK_PASSES * units, sizeof *s->end, "schedule search", &s->end));
    TRY(mem_new(VBLOCK_KINDS * units, sizeof *s->plan, "schedule search", &s->plan));
    TRY(mem_new(VBLOCK_KINDS * units, sizeof *s->list, "schedule search", &s->list));
    return mem_new(VBLOCK_KINDS * units, sizeof *s->best, "schedule search", &s->best);
}

static void close_search(struct vsearch *s, struct plan_walk *k)
{
    mem_free(k->at);
    mem_free(k->stack);
    mem_free(k->awake);
    mem_free(s->rank);
    mem_free(s->end);
    mem_free(s->plan);
    mem_free(s->list);
    mem_free(s->best);
}

enum err sched_vsearch_make(const char *name, const struct sched_shape *shape,
                            const struct sched_cost *cost, const struct sched *first,
                            struct sched *out)
{
    struct vsearch s = {.p = shape->p, .m = shape->m, .c = *cost};
    struct plan_walk k = {0};
    if (s.c.limit == 0)
        s.c.limit = 2.0 * shape->p;
    TRY(sched_cost_check(name, &s.c, 2 * shape->p, 2));
    enum err err = open_search(&s, &k);
    if (err == ERR_OK)
        err = search(&s, shape, first, &k);
    if (err == ERR_OK)
        err = emit(&s, name, shape, out);
    close_search(&s, &k);
    return err;
}
