/* SPDX-License-Identifier: Apache-2.0
 *
 * An order found for given times under a limit of memory: the task of the automatic searches of Qi
 * et al. ("Zero bubble pipeline parallelism", 2023, section 3.1; "Pipeline parallelism with
 * controllable memory", 2024). Orders of F and I come from where they are known to be good, W's are
 * placed anew for the times at hand, all on one clock; what differs between one chunk a rank and
 * two in a V is where an input comes from (input_of) and which orders are tried.
 *
 * Kept is the list whose longest rank, from its first start to its last end, is shortest; the first
 * of equals. Memory by count: with f forwards, i input halves and w weight halves done, a rank
 * keeps (f - i) + keep (i - w) activations of a chunk.
 */
#include "sched/sched_build.h"

#include "base/mem.h"
#include <string.h>

#define LATER 1e300

/* One rank on the clock. */
struct rank {
    int n[VBLOCK_KINDS]; /* microbatches through each pass; one chunk has F0, B0 and W0 alone */
    int length;          /* of its list */
    int ahead;           /* forwards that step 1 of a round trip plans */
    double start, free;  /* of its first pass; when its last one ends */
    double idle, least;  /* between passes; from first to last pass, if it idles no more */
};

struct search {
    int p, m, chunks;
    int row;              /* passes of a rank: where the next one's part of a list begins */
    struct sched_cost c;  /* its limit filled in */
    struct rank *rank;    /* owned; [p] */
    double *end;          /* owned; [2 chunks * p * m] of F's and I's; LATER: not run yet */
    uint8_t *list, *best; /* owned; [p * row] passes that ran; the best of all */
    double cost;          /* of the best; LATER: there is none */
    double worst;         /* most idle time of a rank in this list */
    double fit;           /* how W's are placed, see fill */
    uint8_t *plan;        /* owned; [p * row] passes to be run */
    bool failed;          /* the plan has no room, or is no shorter than the best */
    double *look;         /* owned; [width] when a rank looks for work */
    int *tree;            /* owned; [2 * width] ranks; the root is 1, rank r the leaf width + r */
    int width;            /* a power of two, p or more */
};

/* ---- the clock ---- */

static double time_of(const struct search *s, int rank, int kind)
{
    return sched_cost_time(&s->c, sched_vblock_op(kind), sched_vblock_stage(s->p, rank, kind));
}

static double *end_of(const struct search *s, int rank, int kind, int mb)
{
    return &s->end[((int64_t)(s->chunks == 1 ? kind / 2 : kind) * s->p + rank) * s->m + mb];
}

/* The rank that the input of a pass comes from; `rank` where the pipeline begins or turns. */
static int source(const struct search *s, int rank, int kind)
{
    int from = kind == VBLOCK_F0 || kind == VBLOCK_B1 ? rank - 1 : rank + 1;
    return from < 0 || from == s->p ? rank : from;
}

/* When the input of the rank's next pass of this kind is there; LATER: not known yet. */
static double input_of(const struct search *s, int rank, int kind)
{
    int mb = s->rank[rank].n[kind], from = source(s, rank, kind);
    if (kind == VBLOCK_F0 && rank == 0)
        return 0;
    if (from == rank) /* what the rank itself ran before */
        return *end_of(s, rank, s->chunks == 1 ? VBLOCK_F0 : kind - 1, mb);
    double end = *end_of(s, from, kind, mb);
    return end < LATER ? end + s->c.tc : LATER;
}

static void begin(struct search *s)
{
    s->worst = 0;
    s->failed = false;
    for (int64_t i = 0; i < 2 * (int64_t)s->chunks * s->p * s->m; i++)
        s->end[i] = LATER;
    for (int rank = 0; rank < s->p; rank++) {
        s->rank[rank] = (struct rank){0};
        for (int kind = 0; kind < VBLOCK_KINDS; kind++)
            if (s->chunks == 2 || !sched_vblock_second(kind))
                s->rank[rank].least += s->m * time_of(s, rank, kind);
    }
}

/* Is there a W to run? */
static bool due(const struct rank *r)
{
    return r->n[VBLOCK_W1] < r->n[VBLOCK_B1] || r->n[VBLOCK_W0] < r->n[VBLOCK_B0];
}

/* Has the rank room for one forward more and `spare` activations beside it, now, or once its W's
 * have run? */
static bool room(const struct search *s, int rank, int spare, bool once_run)
{
    const int *n = s->rank[rank].n;
    int i = n[VBLOCK_B0] + n[VBLOCK_B1], kept = once_run ? 0 : i - n[VBLOCK_W0] - n[VBLOCK_W1];
    return n[VBLOCK_F0] + n[VBLOCK_F1] + 1 + spare - i + s->c.keep * kept <= s->c.limit;
}

/* Runs a pass when the rank is free, but not before `from`. */
static void put(struct search *s, int rank, int kind, double from)
{
    struct rank *r = &s->rank[rank];
    if (from < r->free)
        from = r->free;
    double gap = r->length > 0 ? from - r->free : 0;
    if (r->length == 0)
        r->start = from;
    r->idle += gap;
    r->least += gap;
    if (r->idle > s->worst)
        s->worst = r->idle;
    r->free = from + time_of(s, rank, kind);
    s->list[(int64_t)rank * s->row + r->length++] = (uint8_t)kind;
    if (kind < VBLOCK_PASSES)
        *end_of(s, rank, kind, r->n[kind]) = r->free;
    r->n[kind]++;
}

/* The W that is due, of the chunk that has run fewer. */
static int next_w(const struct rank *r)
{
    bool first = r->n[VBLOCK_W0] < r->n[VBLOCK_B0], second = r->n[VBLOCK_W1] < r->n[VBLOCK_B1];
    if (first && second)
        return r->n[VBLOCK_W1] <= r->n[VBLOCK_W0] ? VBLOCK_W1 : VBLOCK_W0;
    return second ? VBLOCK_W1 : VBLOCK_W0;
}

static void put_w(struct search *s, int rank, double from)
{
    put(s, rank, next_w(&s->rank[rank]), from);
}

static void put_rest(struct search *s, int rank)
{
    while (due(&s->rank[rank]))
        put_w(s, rank, 0);
}

/* How W's are placed: where the plan has them (below 0); in waits of which they leave no less than
 * this part of a W's time, 0 to 1, beyond which one delays its rank, but leaves less for the end;
 * or evenly: all that fit, and one that does not when the wait is longer than what this rank may
 * idle more, to idle as long as the worst has. */
#define EVENLY 2.0

static void fill(struct search *s, int rank, double input)
{
    struct rank *r = &s->rank[rank];
    double part = s->fit < EVENLY ? s->fit : 1;
    if (s->fit < 0)
        return;
    while (r->free < input && due(r) &&
           r->free + part * time_of(s, rank, next_w(r)) <= input)
        put_w(s, rank, 0);
    double gap = input - r->free;
    if (s->fit >= EVENLY && due(r) && gap > 0 && gap > s->worst - r->idle)
        put_w(s, rank, 0);
}

/* Runs an F or I with the W's before it: a forward without room has them first. Nobody waits for an
 * I of rank 0's first chunk: once it has no forward of that chunk left, a W goes before each of
 * them. False: there is no room. */
static bool run_pass(struct search *s, int rank, int kind, double input)
{
    struct rank *r = &s->rank[rank];
    fill(s, rank, input);
    while (kind <= VBLOCK_F1 && !room(s, rank, 0, false)) {
        if (s->fit < 0 || !due(r))
            return false;
        put_w(s, rank, 0);
    }
    bool last = kind == VBLOCK_B0 && rank == 0 && r->n[VBLOCK_F0] == s->m;
    if (s->fit >= 0 && last && due(r))
        put_w(s, rank, 0);
    put(s, rank, kind, input);
    return true;
}

/* Keeps the list that ran, if it is better. */
static void keep_better(struct search *s)
{
    double cost = 0;
    for (int rank = 0; rank < s->p; rank++) {
        double span = s->rank[rank].free - s->rank[rank].start;
        cost = span > cost ? span : cost;
    }
    if (cost >= s->cost)
        return;
    uint8_t *list = s->list;
    s->cost = cost;
    s->list = s->best;
    s->best = list;
}

/* ---- one chunk: round trips ----
 * The heuristic of 2023, every rank at its own time (docs/design/orders.md): forwards until the
 * first I can arrive, then in each round a forward down the ranks and an I up, W's before each.
 * Three choices have no best answer, so all eight are tried:
 *     early     in step 1, stop before the forward that would delay the first I, not after it
 *     yield     in step 2, no forward for a rank that is two ahead of the next one, when the next
 *               I can be there before that forward could start
 *     gaps      a W that does not fit goes into any gap; else evenly */

enum { EARLY = 1, YIELD = 2, GAPS = 4, ROUND_CHOICES = 8 };

static void run_next(struct search *s, int rank, int kind)
{
    bool ran = run_pass(s, rank, kind, input_of(s, rank, kind));
    ENSURE(ran);
}

/* Step 1's forwards after F0. */
static void plan_ahead(struct search *s, int choice)
{
    int last = s->p - 1;
    /* When it ends on the rank behind. */
    double first_i = s->rank[last].free + time_of(s, last, VBLOCK_B0);
    for (int j = last - 1; j >= 0; j--) {
        double input = first_i + s->c.tc, end = s->rank[j].free, tf = time_of(s, j, VBLOCK_F0);
        int n = 0;
        while (1 + n < s->m && 2 + n <= s->c.limit &&
               ((choice & EARLY) ? end + tf <= input : end < input)) {
            end += tf;
            n++;
        }
        s->rank[j].ahead = n;
        first_i = (end > input ? end : input) + time_of(s, j, VBLOCK_B0);
    }
    for (int j = 1; j < s->p; j++) {
        int before = s->rank[j - 1].ahead;
        if (s->rank[j].ahead >= before && before + 1 < s->m)
            s->rank[j].ahead = before > 0 ? before - 1 : 0;
    }
}

static void run_rounds(struct search *s, int choice)
{
    s->fit = choice & GAPS ? 0 : EVENLY;
    begin(s);
    for (int j = 0; j < s->p; j++)
        run_next(s, j, VBLOCK_F0);
    plan_ahead(s, choice);
    for (int j = 0; j < s->p; j++)
        for (int n = 0; n < s->rank[j].ahead; n++)
            run_next(s, j, VBLOCK_F0);
    for (int mb = 0; mb < s->m; mb++) {
        for (int j = 0; mb > 0 && j < s->p; j++) {
            const struct rank *r = &s->rank[j];
            int f = r->n[VBLOCK_F0];
            if (f == s->m || (j > 0 && f >= r[-1].n[VBLOCK_F0]))
                continue;
            double next = j == s->p - 1 ? LATER
                                        : r[1].free + time_of(s, j + 1, VBLOCK_F0) +
                                              time_of(s, j + 1, VBLOCK_B0) + s->c.tc;
            if (!(choice & YIELD) || j == s->p - 1 || f < r[1].n[VBLOCK_F0] + 2 || r->free < next)
                run_next(s, j, VBLOCK_F0);
        }
        for (int j = s->p - 1; j >= 0; j--)
            run_next(s, j, VBLOCK_B0);
    }
    for (int j = 0; j < s->p; j++)
        put_rest(s, j);
    keep_better(s);
}

/* ---- two chunks in a V: an order grown on the clock ----
 * Whichever rank is free first runs what is there for it to run, a W when nothing is, and else
 * sleeps until the next input. Of several passes those of the second chunk go first, for they are
 * nearer to giving memory back; which of F and I, in each chunk, is the choice. The rank that is
 * free first is found in a tree of matches, each node the earlier one of two. */

static const uint8_t preference[][VBLOCK_PASSES] = {
    {VBLOCK_F1, VBLOCK_B1, VBLOCK_F0, VBLOCK_B0},
    {VBLOCK_F1, VBLOCK_B1, VBLOCK_B0, VBLOCK_F0},
    {VBLOCK_B1, VBLOCK_F1, VBLOCK_F0, VBLOCK_B0},
    {VBLOCK_B1, VBLOCK_F1, VBLOCK_B0, VBLOCK_F0},
};
enum { GROWN = sizeof preference / sizeof *preference };

static void set_look(struct search *s, int rank, double time)
{
    s->look[rank] = time;
    for (int at = (s->width + rank) / 2; at > 0; at /= 2) {
        int a = s->tree[2 * at], b = s->tree[2 * at + 1];
        s->tree[at] = s->look[b] < s->look[a] ? b : a;
    }
}

static void wake(struct search *s, int rank, double time)
{
    if (rank < 0 || rank >= s->p)
        return;
    if (time < s->rank[rank].free)
        time = s->rank[rank].free;
    if (time < s->look[rank])
        set_look(s, rank, time);
}

/* Could a forward of the chunk begin, W's before it if need be? One of the first chunk leaves room
 * for one of the second, so the oldest microbatch is never stopped. */
static bool may_enter(const struct search *s, int rank, int kind)
{
    const int *n = s->rank[rank].n;
    if (kind == VBLOCK_F1)
        return room(s, rank, 0, true);
    double most = s->c.limit * (2 * s->p - 1 - rank) / (2 * s->p);
    int inside = n[VBLOCK_F0] - n[VBLOCK_B0];
    return room(s, rank, 1, true) && (inside == 0 || inside + 1 <= most);
}

/* The pass that the rank runs at this time, -1: none; then *soon is when the next is there. */
static int choose(const struct search *s, const uint8_t *prefer, int rank, double now,
                  double *soon)
{
    *soon = LATER;
    for (int i = 0; i < VBLOCK_PASSES; i++) {
        int kind = prefer[i];
        if (s->rank[rank].n[kind] == s->m || (kind <= VBLOCK_F1 && !may_enter(s, rank, kind)))
            continue;
        double input = input_of(s, rank, kind);
        if (input <= now)
            return kind;
        *soon = input < *soon ? input : *soon;
    }
    return -1;
}

/* Grows the list of all ranks. */
static void grow(struct search *s, const uint8_t *prefer)
{
    begin(s);
    for (int i = 0; i < s->width; i++)
        s->tree[s->width + i] = i;
    for (int i = 0; i < s->width; i++)
        set_look(s, i, i < s->p ? 0 : LATER);
    for (int64_t left = (int64_t)s->p * s->row; left > 0;) {
        int rank = s->tree[1];
        double now = s->look[rank], soon;
        ENSURE(now < LATER);
        int kind = choose(s, prefer, rank, now, &soon);
        bool forward = kind == VBLOCK_F0 || kind == VBLOCK_F1;
        bool full = forward && !room(s, rank, kind == VBLOCK_F0, false);
        if (kind < 0 && !due(&s->rank[rank])) {
            set_look(s, rank, soon);
            continue;
        }
        if (kind < 0 || full)
            put_w(s, rank, now);
        else
            put(s, rank, kind, now);
        left--;
        double end = s->rank[rank].free;
        set_look(s, rank, end);
        if (kind >= 0 && !full) {
            wake(s, rank - 1, end + s->c.tc);
            wake(s, rank + 1, end + s->c.tc);
        }
    }
}

/* ---- two chunks in a V: W's placed into given orders ----
 * In which order a rank runs F and I decides how long a microbatch is on its way, and orders that
 * are good for equal times stay good for others: so these are taken as they are, the closed order
 * of zb-v, those of v-half and v-min, and the four that are grown. Where the W's stand depends on
 * the times alone, and is tried in six ways for each. The closed order comes first, so that no list
 * is longer than it, and equal times without messages leave it as it is. */

/* Runs pass i of the plan, for sched_walk: a rank that waits for itself stops for good. */
static int step(void *arg, int rank, int64_t i)
{
    struct search *s = arg;
    struct rank *r = &s->rank[rank];
    int kind = s->plan[i];
    if (s->failed)
        return rank;
    if (kind < VBLOCK_PASSES) {
        double input = input_of(s, rank, kind);
        if (input >= LATER)
            return source(s, rank, kind);
        s->failed = !run_pass(s, rank, kind, input);
    } else if (s->fit < 0) {
        put(s, rank, kind, 0);
    }
    if (i + 1 == (int64_t)(rank + 1) * s->row)
        put_rest(s, rank);
    s->failed = s->failed || r->least >= s->cost;
    return s->failed ? rank : -1;
}

static void try_plan(struct search *s, struct sched_walk *w)
{
    for (int quarters = -1; quarters <= 4; quarters++) {
        s->fit = quarters / 4.0;
        begin(s);
        if (sched_walk_run(w))
            keep_better(s);
    }
}

static enum err search_v(struct search *s, const struct sched_shape *shape,
                         const struct sched *first)
{
    static const struct sched_kind *const blocks[] = {&sched_v_half, &sched_v_min};
    static const uint8_t kind[2][SCHED_W + 1] = {{VBLOCK_F0, 0, VBLOCK_B0, VBLOCK_W0},
                                                 {VBLOCK_F1, 0, VBLOCK_B1, VBLOCK_W1}};
    struct sched_walk w = {0};
    enum err err = ERR_OK;
    for (s->width = 1; s->width < s->p;)
        s->width *= 2;
    TRY(mem_new(s->width, sizeof *s->look, "schedule search", &s->look));
    TRY(mem_new(2 * s->width, sizeof *s->tree, "schedule search", &s->tree));
    TRY(mem_new((int64_t)s->p * s->row, 1, "schedule search", &s->plan));
    TRY_OR(out_close, sched_walk_open(&w, first));
    w.step = step;
    w.arg = s;
    for (int k = 0; k < 3; k++) {
        struct sched made = {0};
        if (k > 0)
            TRY_OR(out_close, blocks[k - 1]->make(shape, &made));
        const struct sched *from = k > 0 ? &made : first;
        for (int64_t i = 0; i < from->begin[from->p]; i++)
            s->plan[i] = kind[from->instr[i].stage >= s->p][from->instr[i].op];
        sched_free(&made);
        try_plan(s, &w);
    }
    for (int i = 0; i < GROWN; i++) {
        grow(s, preference[i]);
        memcpy(s->plan, s->list, (size_t)s->p * (size_t)s->row);
        try_plan(s, &w);
    }
out_close:
    sched_walk_close(&w);
    return err;
}

/* ---- the whole ---- */

static enum err check_time(const char *name, const char *what, double time)
{
    if (!(time >= 0 && time <= 1e100))
        FAIL(ERR_CONFIG, "schedule %s: %s %g is not a time; use 0 to 1e100", name, what, time);
    return ERR_OK;
}

static enum err check_cost(const char *name, const struct sched_cost *c, int stages, int chunks)
{
    TRY(check_time(name, "tf", c->tf));
    TRY(check_time(name, "ti", c->ti));
    TRY(check_time(name, "tw", c->tw));
    TRY(check_time(name, "tc", c->tc));
    for (int i = 0; c->stage && i < stages; i++)
        for (int op = SCHED_F; op <= SCHED_W; op++)
            if (op != SCHED_B)
                TRY(check_time(name, "time of a stage", c->stage[i][op]));
    if (!(c->keep >= 0 && c->keep <= 1))
        FAIL(ERR_CONFIG, "schedule %s: keep %g is not a part of an activation; use 0 to 1", name,
             c->keep);
    if (!(c->limit >= chunks))
        FAIL(ERR_CONFIG, "schedule %s: limit %g leaves no room for %s; use %d or more", name,
             c->limit, chunks > 1 ? "a microbatch in both chunks" : "an activation", chunks);
    return ERR_OK;
}

enum err sched_search(const struct sched_kind *kind, const struct sched_shape *shape,
                      const struct sched_cost *cost, const struct sched *first,
                      struct sched *out)
{
    static const char what[] = "schedule search";
    struct search s = {.p = shape->p, .m = shape->m, .chunks = shape->v, .cost = LATER,
                       .row = 3 * shape->v * shape->m, .c = {1, 1, 1, 0, 0.5, 0, NULL}};
    struct sched_build b = {0};
    if (cost)
        s.c = *cost;
    if (s.c.limit == 0)
        s.c.limit = (double)kind->limit * shape->p;
    TRY(check_cost(kind->name, &s.c, shape->v * shape->p, shape->v));
    sched_build_open(&b, kind->name, shape);
    if (s.chunks == 2)
        sched_build_zigzag(&b);
    int64_t passes = (int64_t)s.p * s.row, ends = 2 * (int64_t)s.chunks * s.p * s.m;
    enum err err = b.err;
    TRY_OR(out, err);
    TRY_OR(out, mem_new(s.p, sizeof *s.rank, what, &s.rank));
    TRY_OR(out, mem_new(ends, sizeof *s.end, what, &s.end));
    TRY_OR(out, mem_new(passes, 1, what, &s.list));
    TRY_OR(out, mem_new(passes, 1, what, &s.best));
    if (s.chunks == 2)
        TRY_OR(out, search_v(&s, shape, first));
    for (int choice = ROUND_CHOICES - 1; s.chunks == 1 && choice >= 0; choice--)
        run_rounds(&s, choice);
    ENSURE(s.cost < LATER); /* what is grown has room */
    for (int rank = 0; rank < s.p; rank++) {
        int next[VBLOCK_KINDS] = {0};
        sched_build_rank(&b);
        for (int i = 0; i < s.row; i++) {
            int pass = s.best[(int64_t)rank * s.row + i];
            sched_build_add(&b, sched_vblock_op(pass), sched_vblock_stage(s.p, rank, pass),
                            next[pass]++);
        }
    }
out:
    b.err = b.err == ERR_OK ? err : b.err;
    mem_free(s.rank);
    mem_free(s.end);
    mem_free(s.list);
    mem_free(s.best);
    mem_free(s.plan);
    mem_free(s.look);
    mem_free(s.tree);
    return sched_build_done(&b, out);
}
