/* SPDX-License-Identifier: Apache-2.0
 *
 * An order in a V grown on a clock, for sched_vsearch.c: whichever rank is free first runs what is
 * there for it to run, a W when nothing is, and else sleeps until the next input. Of several passes
 * those of the second chunk go first, for they are nearer to giving memory back; which of F and I,
 * in each chunk, is the choice.
 *
 * Memory: a forward of the first chunk leaves room for one of the second, so the oldest microbatch
 * is never stopped. With a limit L, rank r of p takes L (2 p - 1 - r) / 2 p microbatches or fewer
 * into its first chunk before the first of them is back: so deep is the closed order with its 2 p,
 * and ranks behind, which a microbatch passes sooner again, need less. A forward that has no room
 * for W's due has them before it.
 *
 * The rank that is free first is found in a tree of matches, each node the earlier one of two.
 */
#include "sched/sched_vsearch.h"

#include "base/mem.h"

static const uint8_t preference[VGROW_CHOICES][VBLOCK_PASSES] = {
    {VBLOCK_F1, VBLOCK_B1, VBLOCK_F0, VBLOCK_B0},
    {VBLOCK_F1, VBLOCK_B1, VBLOCK_B0, VBLOCK_F0},
    {VBLOCK_B1, VBLOCK_F1, VBLOCK_F0, VBLOCK_B0},
    {VBLOCK_B1, VBLOCK_F1, VBLOCK_B0, VBLOCK_F0},
};

struct growth {
    struct vsearch *s;
    const uint8_t *preference;
    double *look; /* owned; [width] when a rank looks for work */
    int *tree;    /* owned; [2 * width] ranks; the root is 1, rank r the leaf width + r */
    int width;    /* a power of two, p or more */
};

static void set_look(struct growth *g, int rank, double time)
{
    g->look[rank] = time;
    for (int at = (g->width + rank) / 2; at > 0; at /= 2) {
        int a = g->tree[2 * at], b = g->tree[2 * at + 1];
        g->tree[at] = g->look[b] < g->look[a] ? b : a;
    }
}

/* Could a forward of the chunk begin, W's before it if need be? */
static bool may_enter(const struct growth *g, int rank, int kind)
{
    const struct vsearch *s = g->s;
    const int *n = s->rank[rank].n;
    if (kind == VBLOCK_F1)
        return sched_vsearch_room(s, rank, 0, true);
    double most = s->c.limit * (2 * s->p - 1 - rank) / (2 * s->p);
    int inside = n[VBLOCK_F0] - n[VBLOCK_B0];
    return sched_vsearch_room(s, rank, 1, true) && (inside == 0 || inside + 1 <= most);
}

/* The pass that the rank runs at this time, -1: none; then *soon is when the next is there. */
static int choose(const struct growth *g, int rank, double now, double *soon)
{
    const struct vsearch *s = g->s;
    *soon = VSEARCH_LATER;
    for (int i = 0; i < VBLOCK_PASSES; i++) {
        int kind = g->preference[i];
        if (s->rank[rank].n[kind] == s->m || (kind <= VBLOCK_F1 && !may_enter(g, rank, kind)))
            continue;
        double input = sched_vsearch_input(s, rank, kind);
        if (input <= now)
            return kind;
        *soon = input < *soon ? input : *soon;
    }
    return -1;
}

static void wake(struct growth *g, int rank, double time)
{
    if (rank < 0 || rank >= g->s->p)
        return;
    if (time < g->s->rank[rank].free)
        time = g->s->rank[rank].free;
    if (time < g->look[rank])
        set_look(g, rank, time);
}

/* One pass of the rank that looks first, or its falling asleep. */
static void turn(struct growth *g)
{
    struct vsearch *s = g->s;
    int rank = g->tree[1];
    double now = g->look[rank], soon;
    struct vsearch_rank *r = &s->rank[rank];
    ENSURE(now < VSEARCH_LATER);
    int kind = choose(g, rank, now, &soon);
    bool forward = kind == VBLOCK_F0 || kind == VBLOCK_F1;
    bool full = forward && !sched_vsearch_room(s, rank, kind == VBLOCK_F0, false);
    if (kind < 0 && !sched_vsearch_due(r)) {
        set_look(g, rank, soon);
        return;
    }
    if (kind < 0 || full) {
        sched_vsearch_put_w(s, rank, now);
        set_look(g, rank, r->free);
        return;
    }
    sched_vsearch_put(s, rank, kind, now);
    set_look(g, rank, r->free);
    wake(g, rank - 1, r->free + s->c.tc);
    wake(g, rank + 1, r->free + s->c.tc);
}

static enum err open_growth(struct growth *g)
{
    for (g->width = 1; g->width < g->s->p;)
        g->width *= 2;
    TRY(mem_new(g->width, sizeof *g->look, "schedule search", &g->look));
    TRY(mem_new(2 * g->width, sizeof *g->tree, "schedule search", &g->tree));
    for (int i = 0; i < g->width; i++) {
        g->tree[g->width + i] = i;
        g->look[i] = VSEARCH_LATER;
    }
    for (int i = 0; i < g->width; i++)
        set_look(g, i, i < g->s->p ? 0 : VSEARCH_LATER);
    return ERR_OK;
}

enum err sched_vgrow(struct vsearch *s, int choice)
{
    struct growth g = {.s = s, .preference = preference[choice]};
    enum err err = open_growth(&g);
    int64_t done = 0;
    if (err == ERR_OK)
        sched_vsearch_begin(s);
    while (err == ERR_OK && done < sched_vsearch_row(s, s->p)) {
        int rank = g.tree[1], before = s->rank[rank].length;
        turn(&g);
        done += s->rank[rank].length - before;
    }
    mem_free(g.look);
    mem_free(g.tree);
    return err;
}
