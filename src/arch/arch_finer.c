/* SPDX-License-Identifier: Apache-2.0
 *
 * A cut of layers into stages made finer. With 32 layers and a head that weighs as much as two and
 * a half, four ranks have 9 layers at most where 8.6 would be even, and a pipeline is as fast as
 * its slowest rank. Between the attention and the mlp of a block a stage may end as well, since
 * what passes there is the same residual stream.
 *
 * Where each rank has one stage, the costliest is found by halving: stages filled from the front up
 * to a cost either hold all or do not. Then, and from the cut between layers where ranks have
 * several, bounds of neighbouring stages move by one attn or mlp as long as that lowers the
 * costliest rank, or leaves it and makes the sum of squares less. Where single moves end, two at a
 * time are tried: what a rank gets from one neighbour it may have to give to the other.
 */
#include "arch/arch.h"

#include "base/mem.h"

/* PAIRS_MOST: stages up to which pairs of moves are tried. HALVINGS: to a part in 10^12. WORK_MOST:
 * costs of stages that are looked at, for an answer within a fraction of a second; wherever the
 * moves end there is a cut. */
enum { PAIRS_MOST = 64, HALVINGS = 40, WORK_MOST = 100 << 20 };

struct bounds {
    int stages;
    const uint16_t *rank; /* of each stage; NULL: each is its own */
    double cost[2], head; /* of an attn, an mlp; what the last stage has besides */
    int64_t *at;          /* owned; [stages + 1] of these before a stage */
    double *total;        /* owned; [stages] cost of a rank */
    int64_t work;         /* costs looked at so far */
};

/* How uneven: the costliest, then the sum of squares. */
struct uneven { double most, squares; };

/* Rounding is no progress. */
static bool is_less(struct uneven a, struct uneven b)
{
    double slack = 1e-9;
    if (a.most < b.most * (1 - slack))
        return true;
    return a.most <= b.most * (1 + slack) && a.squares < b.squares * (1 - slack);
}

static struct uneven uneven_of(struct bounds *b)
{
    struct uneven u = {0, 0};
    b->work += b->stages;
    for (int i = 0; i < b->stages; i++) {
        u.most = fmax(u.most, b->total[i]);
        u.squares += b->total[i] * b->total[i];
    }
    return u;
}

static int rank_of(const struct bounds *b, int stage)
{
    return b->rank ? b->rank[stage] : stage;
}

/* Move m of 2 (stages - 1): a bound forth or back. False, and nothing done: a stage would have
 * nothing left. Moves 2 k and 2 k + 1 undo each other. */
static bool move(struct bounds *b, int m)
{
    int i = 1 + m / 2, d = m % 2 ? -1 : 1;
    int64_t to = b->at[i] + d, what = d > 0 ? b->at[i] : to;
    if (to <= b->at[i - 1] || to >= b->at[i + 1])
        return false;
    double cost = d * b->cost[what % 2];
    b->total[rank_of(b, i - 1)] += cost;
    b->total[rank_of(b, i)] -= cost;
    b->at[i] = to;
    return true;
}

/* The best so far: how uneven all is behind it, and one move or two; -1: none. */
struct found { struct uneven least; int move[2]; };

/* What stands now, behind these moves, if it is better. */
static void note(struct bounds *b, struct found *f, int m, int n)
{
    struct uneven here = uneven_of(b);
    if (is_less(here, f->least))
        *f = (struct found){here, {m, n}};
}

/* The best move, or pair of them, if it helps. */
static bool improve(struct bounds *b, bool pairs)
{
    int moves = 2 * (b->stages - 1);
    struct found f = {uneven_of(b), {-1, -1}};
    for (int m = 0; m < moves; m++) {
        if (!move(b, m))
            continue;
        note(b, &f, m, -1);
        for (int n = m + 1; pairs && n < moves; n++) {
            if (!move(b, n))
                continue;
            note(b, &f, m, n);
            ENSURE(move(b, n ^ 1));
        }
        ENSURE(move(b, m ^ 1));
    }
    for (int i = 0; i < 2 && f.move[i] >= 0; i++)
        ENSURE(move(b, f.move[i]));
    return f.move[0] >= 0;
}

static void add_up(struct bounds *b)
{
    for (int i = 0; i < b->stages; i++)
        b->total[i] = 0;
    for (int i = 0; i < b->stages; i++)
        for (int64_t k = b->at[i]; k < b->at[i + 1]; k++)
            b->total[rank_of(b, i)] += b->cost[k % 2];
    b->total[rank_of(b, b->stages - 1)] += b->head;
}

/* Stages filled from the front, each with one at least and as many as cost no more than `most`.
 * False: they do not hold all. */
static bool fill(struct bounds *b, double most)
{
    int64_t all = b->at[b->stages], k = 0;
    bool holds = true;
    for (int i = 0; i < b->stages; i++) {
        int64_t behind = b->stages - 1 - i, begin = k;
        double sum = behind ? 0 : b->head;
        while (k < all - behind && (k == begin || sum + b->cost[k % 2] <= most))
            sum += b->cost[k++ % 2];
        holds = holds && sum <= most;
        b->at[i + 1] = k;
    }
    holds = holds && k == all;
    b->at[b->stages] = all;
    return holds;
}

/* The least cost of the costliest stage, to rounding, by a cut that has it. */
static void halve(struct bounds *b)
{
    double good = uneven_of(b).most, bad = 0;
    for (int i = 0; i < HALVINGS; i++) {
        double most = (good + bad) / 2;
        if (fill(b, most))
            good = most;
        else
            bad = most;
    }
    ENSURE(fill(b, good * (1 + 1e-12))); /* of the first `good`: a sum in another order */
    add_up(b);
}

static void read_cut(struct bounds *b, const struct arch_stage *cut)
{
    for (int i = 0; i < b->stages; i++)
        b->at[i + 1] = cut[i].end - 1 - (i == b->stages - 1); /* the embed; the head */
    add_up(b);
}

static void write_cut(const struct bounds *b, struct arch_stage *cut)
{
    for (int i = 1; i < b->stages; i++)
        cut[i - 1].end = cut[i].first = 1 + b->at[i];
}

static void close_bounds(struct bounds *b)
{
    mem_free(b->at);
    mem_free(b->total);
}

static enum err open_bounds(struct bounds *b, const struct arch *a, const struct arch_stage *cut)
{
    b->cost[0] = arch_part_flops(a, PART_ATTN, a->seq, a->seq);
    b->cost[1] = arch_part_flops(a, PART_MLP, a->seq, a->seq);
    b->head = arch_part_flops(a, PART_HEAD, a->seq, a->seq);
    enum err err = mem_new(b->stages + 1, sizeof *b->at, "the cut", &b->at);
    if (err == ERR_OK)
        err = mem_new(b->stages, sizeof *b->total, "the cut", &b->total);
    if (err == ERR_OK)
        read_cut(b, cut);
    else
        close_bounds(b);
    return err;
}

/* long: see arch.h */
enum err arch_cut_finer(const struct arch *a, int stages, const uint16_t *rank, double worth,
                        struct arch_stage *cut, bool *finer)
{
    struct bounds b = {.stages = stages, .rank = rank};
    TRY(open_bounds(&b, a, cut));
    double before = uneven_of(&b).most;
    if (!rank)
        halve(&b);
    *finer = rank || uneven_of(&b).most <= before * (1 - worth);
    if (*finer) {
        while (b.work < WORK_MOST &&
               (improve(&b, false) || (stages <= PAIRS_MOST && improve(&b, true))))
            ;
        write_cut(&b, cut);
    }
    close_bounds(&b);
    return ERR_OK;
}
