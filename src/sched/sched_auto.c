/* SPDX-License-Identifier: Apache-2.0
 *
 * An order found for given times under a limit of memory, after the heuristic of Qi et al., "Zero
 * bubble pipeline parallelism", 2023, section 3.1. One chunk a rank, backward in halves. The lists
 * are grown on a clock, every rank at its own time:
 *
 *  1. Each rank runs F0. From the last rank to the first, as many forwards more are planned as run
 *     before the first I can arrive, within the limit; a rank plans more than the next one only.
 *     Then I0 passes from the last rank to the first.
 *  2. Round after round, one forward goes down the ranks and one I comes up. Before each of them
 *     W's fill the time in which the rank would wait for its input: all that fit, and then perhaps
 *     one that does not fit, whose delay is hoped to cost less than the gap. A forward without room
 *     has W's before it too.
 *  3. What is left of W ends the lists.
 *
 * Memory by count: with f forwards, i input halves and w weight halves done, a rank keeps
 * (f - i) + keep (i - w) activations. Every round adds at most one of each, so after all W's due
 * there is room for the forward that comes: step 1 kept to the limit.
 *
 * No rank waits for an I of rank 0. Once it has no forward left, its W's therefore go first, each
 * before the next I.
 *
 * Three choices have no best answer, so all eight are tried, and the first with the shortest time
 * of a rank from its first start to its last end is kept:
 *     early     in step 1, stop before the forward that would delay the first I, not after it
 *     yield     in step 2, no forward for a rank that is two ahead of the next one, when the next
 *               I can be there before that forward could start
 *     fill      a W that does not fit goes into any gap; else only when the gap is longer than
 *               what this rank may idle more, to idle as long as the worst rank has
 */
#include "sched/sched_auto.h"

#include "base/mem.h"

enum { EARLY = 1, YIELD = 2, FILL = 4, CHOICES = 8 };

struct rank {
    int f, i, w;          /* done */
    int n;                /* instructions in the list */
    double free;          /* when it has run them */
    double start, idle;   /* of the first; waiting since */
};

struct search {
    int p, m;
    struct sched_cost c;
    int choice;
    double worst;         /* most idle time of a rank so far */
    struct rank *rank;    /* owned; [p] */
    int *plan;            /* owned; [p] forwards planned in step 1 */
    double *f_end, *i_end; /* owned; [p * m] */
    uint8_t *list, *best; /* owned; [p * 3 m] enum sched_op */
};

static double time_of(const struct search *s, int rank, enum sched_op op)
{
    return sched_cost_time(&s->c, op, rank);
}

static double *at(double *table, const struct search *s, int rank, int mb)
{
    return &table[(int64_t)rank * s->m + mb];
}

static void put(struct search *s, int rank, enum sched_op op, double input)
{
    struct rank *r = &s->rank[rank];
    double from = input > r->free ? input : r->free;
    if (r->n == 0)
        r->start = from;
    else
        r->idle += from - r->free;
    if (r->idle > s->worst)
        s->worst = r->idle;
    s->list[(int64_t)rank * 3 * s->m + r->n++] = (uint8_t)op;
    r->free = from + time_of(s, rank, op);
    if (op == SCHED_F)
        *at(s->f_end, s, rank, r->f++) = r->free;
    else if (op == SCHED_I)
        *at(s->i_end, s, rank, r->i++) = r->free;
    else
        r->w++;
}

/* Is there a W to run? */
static bool due(const struct rank *r)
{
    return r->w < r->i;
}

static void put_w(struct search *s, int rank)
{
    put(s, rank, SCHED_W, 0);
}

/* W's until the input is there. */
static void fill_gap(struct search *s, int rank, double input)
{
    struct rank *r = &s->rank[rank];
    while (due(r) && r->free + time_of(s, rank, SCHED_W) <= input)
        put_w(s, rank);
    double gap = input - r->free;
    if (due(r) && gap > 0 && ((s->choice & FILL) || gap > s->worst - r->idle))
        put_w(s, rank);
}

static bool has_room(const struct search *s, const struct rank *r)
{
    return r->f + 1 - r->i + s->c.keep * (r->i - r->w) <= s->c.limit;
}

static void put_f(struct search *s, int rank)
{
    struct rank *r = &s->rank[rank];
    double input = rank > 0 ? *at(s->f_end, s, rank - 1, r->f) + s->c.tc : 0;
    fill_gap(s, rank, input);
    while (!has_room(s, r)) {
        ENSURE(due(r));
        put_w(s, rank);
    }
    put(s, rank, SCHED_F, input);
}

static void put_i(struct search *s, int rank)
{
    struct rank *r = &s->rank[rank];
    double input = rank < s->p - 1 ? *at(s->i_end, s, rank + 1, r->i) + s->c.tc
                                   : *at(s->f_end, s, rank, r->i);
    fill_gap(s, rank, input);
    if (rank == 0 && r->f == s->m && due(r))
        put_w(s, rank);
    put(s, rank, SCHED_I, input);
}

/* Step 1's forwards after F0. */
static void plan_forwards(struct search *s)
{
    int last = s->p - 1;
    /* When it ends on the rank behind. */
    double first_i = s->rank[last].free + time_of(s, last, SCHED_I);
    s->plan[last] = 0;
    for (int j = last - 1; j >= 0; j--) {
        double input = first_i + s->c.tc, end = s->rank[j].free, tf = time_of(s, j, SCHED_F);
        int n = 0;
        while (1 + n < s->m && 2 + n <= s->c.limit &&
               ((s->choice & EARLY) ? end + tf <= input : end < input)) {
            end += tf;
            n++;
        }
        s->plan[j] = n;
        first_i = (end > input ? end : input) + time_of(s, j, SCHED_I);
    }
    for (int j = 1; j < s->p; j++)
        if (s->plan[j] >= s->plan[j - 1] && s->plan[j - 1] + 1 < s->m)
            s->plan[j] = s->plan[j - 1] > 0 ? s->plan[j - 1] - 1 : 0;
}

static void begin(struct search *s)
{
    for (int j = 0; j < s->p; j++)
        put_f(s, j);
    plan_forwards(s);
    for (int j = 0; j < s->p; j++)
        for (int n = 0; n < s->plan[j]; n++)
            put_f(s, j);
    for (int j = s->p - 1; j >= 0; j--)
        put_i(s, j);
}

static bool yields(const struct search *s, int rank)
{
    const struct rank *r = &s->rank[rank];
    if (!(s->choice & YIELD) || rank == s->p - 1 || r->f < r[1].f + 2)
        return false;
    double next = r[1].free + time_of(s, rank + 1, SCHED_F) + time_of(s, rank + 1, SCHED_I);
    return r->free >= next + s->c.tc;
}

static void round_trip(struct search *s)
{
    for (int j = 0; j < s->p; j++)
        if (s->rank[j].f < s->m && (j == 0 || s->rank[j].f < s->rank[j - 1].f) && !yields(s, j))
            put_f(s, j);
    for (int j = s->p - 1; j >= 0; j--)
        put_i(s, j);
}

/* Grows all lists by one choice; returns the longest time of a rank. */
static double grow(struct search *s, int choice)
{
    double cost = 0;
    s->choice = choice;
    s->worst = 0;
    for (int j = 0; j < s->p; j++)
        s->rank[j] = (struct rank){0};
    begin(s);
    for (int mb = 1; mb < s->m; mb++)
        round_trip(s);
    for (int j = 0; j < s->p; j++) {
        while (due(&s->rank[j]))
            put_w(s, j);
        double span = s->rank[j].free - s->rank[j].start;
        cost = span > cost ? span : cost;
    }
    return cost;
}

static void search_all(struct search *s)
{
    double best = 0;
    for (int choice = CHOICES - 1; choice >= 0; choice--) {
        double cost = grow(s, choice);
        if (choice < CHOICES - 1 && cost >= best)
            continue;
        uint8_t *list = s->list;
        best = cost;
        s->list = s->best;
        s->best = list;
    }
}

static void emit(const struct search *s, struct sched_build *b)
{
    for (int rank = 0; rank < s->p; rank++) {
        int next[SCHED_W + 1] = {0};
        sched_build_rank(b);
        for (int n = 0; n < 3 * s->m; n++) {
            int op = s->best[(int64_t)rank * 3 * s->m + n];
            sched_build_add(b, (enum sched_op)op, rank, next[op]++);
        }
    }
}

static enum err open_search(struct search *s)
{
    int64_t units = (int64_t)s->p * s->m;
    TRY(mem_new(s->p, sizeof *s->rank, "schedule search", &s->rank));
    TRY(mem_new(s->p, sizeof *s->plan, "schedule search", &s->plan));
    TRY(mem_new(units, sizeof *s->f_end, "schedule search", &s->f_end));
    TRY(mem_new(units, sizeof *s->i_end, "schedule search", &s->i_end));
    TRY(mem_new(3 * units, sizeof *s->list, "schedule search", &s->list));
    return mem_new(3 * units, sizeof *s->best, "schedule search", &s->best);
}

static void close_search(struct search *s)
{
    mem_free(s->rank);
    mem_free(s->plan);
    mem_free(s->f_end);
    mem_free(s->i_end);
    mem_free(s->list);
    mem_free(s->best);
}

enum err sched_auto_make(const struct sched_auto *a, struct sched *out)
{
    struct sched_build b;
    struct search s = {.p = a->shape->p, .m = a->shape->m, .c = {1, 1, 1, 0, 0.5, 0, NULL}};
    if (a->cost)
        s.c = *a->cost;
    if (s.c.limit == 0)
        s.c.limit = a->limit;
    TRY(sched_shape_one_chunk(a->name, a->shape));
    TRY(sched_cost_check(a->name, &s.c, s.p, 1));
    enum err err = open_search(&s);
    if (err == ERR_OK) {
        sched_build_open(&b, a->name, a->shape);
        search_all(&s);
        emit(&s, &b);
        err = sched_build_done(&b, out);
    }
    close_search(&s);
    return err;
}
