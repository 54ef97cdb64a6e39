/* SPDX-License-Identifier: Apache-2.0
 *
 * Three cuts to begin with: the one there is; items dealt out one by one to the cheapest, as if all
 * but the last cost the same, which is the best cut where they do; and the least cost that the
 * costliest stage can have, found by halving: stages filled from the front hold all items, or they
 * do not. From each, items move as long as that makes ranks, and behind them stages, more even: a
 * bound by one item, two bounds by one each, or all bounds between two stages, so that the one
 * loses what the other gets and those between stay as many. The most even of the three is taken.
 */
#include "model/partition.h"

#include "base/mem.h"
#include "base/num.h"

/* PAIRS_MOST: stages up to which pairs of bounds are tried. REACH: stages that a shift spans at
 * most. HALVINGS: to a part in 10^12. WORK_MOST: stages that are looked at, for an answer within a
 * fraction of a second; wherever the moves end there is a cut. */
enum { PAIRS_MOST = 64, REACH = 64, HALVINGS = 40, WORK_MOST = 8 << 20 };

struct search {
    const struct partition *p;
    int64_t *at;      /* owned; the cut */
    double *sum;      /* owned; [items + 1] cost of all items before one */
    double *total;    /* owned; [stages] cost of a rank; as many more for what deals */
    int64_t work;     /* stages looked at so far */
};

/* How uneven a cut is, the first that differs counts: the costliest rank; ranks; stages; how much
 * of the cost stands late. */
enum { MEASURES = 4 };
struct uneven { double by[MEASURES]; };

/* Rounding is no progress. */
static bool is_less(const struct uneven *a, const struct uneven *b)
{
    double slack = 1e-9;
    for (int i = 0; i < MEASURES; i++) {
        if (a->by[i] < b->by[i] * (1 - slack))
            return true;
        if (a->by[i] > b->by[i] * (1 + slack))
            return false;
    }
    return false;
}

static int rank_of(const struct partition *p, int stage)
{
    return p->rank ? p->rank[stage] : stage;
}

static double cost_of(const struct search *s, int stage)
{
    return s->sum[s->at[stage + 1]] - s->sum[s->at[stage]];
}

static struct uneven uneven_of(struct search *s)
{
    struct uneven u = {0};
    s->work += s->p->stages;
    for (int i = 0; i < s->p->stages; i++)
        s->total[i] = 0;
    for (int i = 0; i < s->p->stages; i++)
        s->total[rank_of(s->p, i)] += cost_of(s, i);
    for (int i = 0; i < s->p->stages; i++) {
        double alone = cost_of(s, i);
        u.by[0] = fmax(u.by[0], s->total[i]);
        u.by[1] += s->total[i] * s->total[i];
        u.by[2] += alone * alone;
        u.by[3] += alone * i;
    }
    return u;
}

/* A move: the bounds first .. last go by one item, forth (by 1) or back (-1). */
struct move { int first, last, by; };

/* Does it; false, and nothing is done: a stage would have nothing left. */
static bool shift(struct search *s, struct move m)
{
    int loses = m.by > 0 ? m.last : m.first - 1;
    if (s->at[loses + 1] - s->at[loses] < 2)
        return false;
    for (int i = m.first; i <= m.last; i++)
        s->at[i] += m.by;
    return true;
}

static void shift_back(struct search *s, struct move m)
{
    for (int i = m.first; i <= m.last; i++)
        s->at[i] -= m.by;
}

/* The best so far: how uneven all is behind it, and one move or two. */
struct found { struct uneven least; struct move move[2]; int moves; };

static void note(struct search *s, struct found *f, struct move a, struct move b, int moves)
{
    struct uneven here = uneven_of(s);
    if (is_less(&here, &f->least))
        *f = (struct found){here, {a, b}, moves};
}

/* Move number n of 2 (stages - 1): one bound, back or forth. */
static struct move single(int n)
{
    return (struct move){1 + n / 2, 1 + n / 2, n % 2 ? -1 : 1};
}

static void try_bounds(struct search *s, bool pairs, struct found *f)
{
    int moves = 2 * (s->p->stages - 1);
    for (int m = 0; m < moves && s->work < WORK_MOST; m++) {
        if (!shift(s, single(m)))
            continue;
        note(s, f, single(m), single(m), 1);
        for (int n = m + 1; pairs && n < moves; n++) {
            if (!shift(s, single(n)))
                continue;
            note(s, f, single(m), single(n), 2);
            shift_back(s, single(n));
        }
        shift_back(s, single(m));
    }
}

static void try_shifts(struct search *s, struct found *f)
{
    int stages = s->p->stages;
    for (int first = 1; first < stages; first++)
        for (int last = first + 1;
             last < stages && last - first < REACH && s->work < WORK_MOST; last++)
            for (int by = -1; by <= 1; by += 2) {
                struct move m = {first, last, by};
                if (!shift(s, m))
                    continue;
                note(s, f, m, m, 1);
                shift_back(s, m);
            }
}

enum moves { BOUNDS, PAIRS, SHIFTS };

/* The best move of a kind, if it helps. */
static bool improve(struct search *s, enum moves kind)
{
    struct found f = {.least = uneven_of(s)};
    if (kind == SHIFTS)
        try_shifts(s, &f);
    else
        try_bounds(s, kind == PAIRS, &f);
    for (int i = 0; i < f.moves; i++)
        ENSURE(shift(s, f.move[i]));
    return f.moves > 0;
}

/* The stage that one more item hurts least. */
static int cheapest(const struct search *s, const double *alone)
{
    int best = 0;
    for (int i = 1; i < s->p->stages; i++) {
        double here = s->total[rank_of(s->p, i)], least = s->total[rank_of(s->p, best)];
        if (here < least || (here == least && alone[i] < alone[best]))
            best = i;
    }
    return best;
}

/* Every stage begins with an item, the last one with what the last item costs besides; alone:
 * [stages] for use here. Counts stand in s->at[i + 1] until all are dealt. */
static void deal(struct search *s, double *alone)
{
    const struct partition *p = s->p;
    double each = p->items > 1 ? s->sum[p->items - 1] / (double)(p->items - 1) : 0;
    for (int i = 0; i < p->stages; i++)
        s->total[i] = 0;
    for (int i = 0; i < p->stages; i++) {
        s->at[i + 1] = 1;
        alone[i] = i < p->stages - 1 ? each : p->cost[p->items - 1];
        s->total[rank_of(p, i)] += alone[i];
    }
    for (int64_t left = p->items - p->stages; left > 0; left--) {
        int i = cheapest(s, alone);
        s->at[i + 1]++;
        alone[i] += each;
        s->total[rank_of(p, i)] += each;
    }
    for (int i = 0; i < p->stages; i++)
        s->at[i + 1] += s->at[i];
}

/* Stages filled from the front, each with one item at least and as many as cost no more than
 * `most`. False: they do not hold all. */
static bool fill(struct search *s, double most)
{
    const struct partition *p = s->p;
    int64_t k = 0;
    bool holds = true;
    for (int i = 0; i < p->stages; i++) {
        int64_t behind = p->stages - 1 - i, begin = k;
        while (k < p->items - behind && (k == begin || s->sum[k + 1] - s->sum[begin] <= most))
            k++;
        holds = holds && s->sum[k] - s->sum[begin] <= most;
        s->at[i + 1] = k;
    }
    return holds && k == p->items;
}

/* The least costliest stage that there is, to rounding. */
static void halve(struct search *s)
{
    double good = s->sum[s->p->items], bad = 0;
    for (int i = 0; i < HALVINGS; i++) {
        double most = (good + bad) / 2;
        bool holds = fill(s, most);
        good = holds ? most : good;
        bad = holds ? bad : most;
    }
    ENSURE(fill(s, good * (1 + 1e-12)));
}

enum err partition_improve(const struct partition *p, int64_t *at, double most[2])
{
    struct search s = {.p = p};
    size_t bytes = (size_t)(p->stages + 1) * sizeof *at;
    enum err err;
    ENSURE(p->stages >= 1 && p->stages <= p->items && at[0] == 0 && at[p->stages] == p->items);
    for (int i = 0; p->rank && i < p->stages; i++)
        ENSURE(p->rank[i] < p->stages);
    TRY_OR(out, mem_new(p->items + 1, sizeof *s.sum, "the cut", &s.sum));
    TRY_OR(out, mem_new(2 * p->stages, sizeof *s.total, "the cut", &s.total));
    TRY_OR(out, mem_new(p->stages + 1, sizeof *s.at, "the cut", &s.at));
    for (int64_t i = 0; i < p->items; i++)
        s.sum[i + 1] = s.sum[i] + p->cost[i];
    memcpy(s.at, at, bytes);
    struct uneven best = uneven_of(&s);
    most[0] = best.by[0];
    for (int start = 0; start < 3; start++) {
        s.work = 0;
        if (start == 1)
            deal(&s, s.total + p->stages);
        if (start == 2)
            halve(&s);
        while (s.work < WORK_MOST &&
               (improve(&s, BOUNDS) || (p->stages <= PAIRS_MOST && improve(&s, PAIRS)) ||
                improve(&s, SHIFTS)))
            ;
        struct uneven here = uneven_of(&s);
        if (is_less(&here, &best)) {
            best = here;
            memcpy(at, s.at, bytes);
        }
    }
    most[1] = best.by[0];
out:
    mem_free(s.sum);
    mem_free(s.total);
    mem_free(s.at);
    return err;
}
