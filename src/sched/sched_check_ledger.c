/* SPDX-License-Identifier: Apache-2.0
 *
 * V8 ledger, and how many buffers messages leave from.
 *
 * The ledger counts activations in (stage, mb) units, on each rank and in each stage replica. One
 * lives from its F to its B or W. Forward only, it ends when its result has left: with its send,
 * with the F of the next stage when that is on the same rank, at once at the last stage. A stage's
 * slots are counted from RECV_F on, its save sets, which hold what the forward makes for the
 * backward, from F on; what an R makes again is not kept between the two. The peaks are what the
 * executor allocates by; they are proved here once instead of counted there.
 *
 * I and W apart leave a gradient to be kept between them; grad_peak counts those, and a B, which is
 * both, for its own moment.
 */
#include "sched/sched_check.h"

#include "base/mem.h"
#include "base/num.h"

struct ledger {
    const struct sched_checker *c;
    bool *alive; /* owned; [units] */
    /* owned; [replicas * stages] received or alive; alive with all that the forward saves; between
     * I and W */
    struct live { int slots, saves, grads; } *live;
    int rank_live; /* alive on the rank that is being counted */
    int rank_full; /* of these, with all that their forward saves */
};

static void count_up(int *live, int *peak)
{
    ++*live;
    if (*live > *peak)
        *peak = *live;
}

/* All that the forward of this instruction's unit saves is made, by F or R; and given back. */
static void keep_saves(struct ledger *l, struct sched_instr in)
{
    int h = sched_stage_replica(l->c->s, in.stage, in.mb);
    count_up(&l->live[h].saves, &l->c->report->save_peak[h]);
    count_up(&l->rank_full, &l->c->report->full_peak[l->c->s->place[h]]);
}

static void give_saves(struct ledger *l, struct sched_instr in)
{
    l->live[sched_stage_replica(l->c->s, in.stage, in.mb)].saves--;
    l->rank_full--;
}

/* Does the stage that gets the activation of this one stand on the same rank? */
static bool stays(const struct sched *s, int stage, int mb)
{
    return stage + 1 < s->stages && sched_rank_of(s, stage + 1, mb) == sched_rank_of(s, stage, mb);
}

static enum err end_life(struct ledger *l, int64_t i, int stage)
{
    const struct sched *s = l->c->s;
    int mb = s->instr[i].mb;
    bool *alive = &l->alive[sched_unit(s, stage, mb)];
    if (!*alive)
        return sched_broken(l->c, sched_rank_of(s, stage, mb), i,
                            "the activation of %dF%d is not alive here; keep F before", stage, mb);
    *alive = false;
    l->live[sched_stage_replica(s, stage, mb)].slots--;
    l->rank_live--;
    return ERR_OK;
}

static enum err forward(struct ledger *l, int64_t i)
{
    const struct sched *s = l->c->s;
    struct sched_report *r = l->c->report;
    struct sched_instr in = s->instr[i];
    int h = sched_stage_replica(s, in.stage, in.mb);
    bool local = in.stage > 0 && stays(s, in.stage - 1, in.mb);
    bool received = s->lowered && in.stage > 0 && !local;
    if (!received)
        count_up(&l->live[h].slots, &r->stage_peak[h]);
    count_up(&l->rank_live, &r->peak[s->place[h]]);
    keep_saves(l, in);
    if (s->forward_only || l->c->at[SCHED_R][sched_unit(s, in.stage, in.mb)])
        give_saves(l, in);
    l->alive[sched_unit(s, in.stage, in.mb)] = true;
    if (!s->forward_only)
        return ERR_OK;
    if (local)
        TRY(end_life(l, i, in.stage - 1));
    bool sends = s->lowered && sched_sent_to(s, 0, in.stage, in.mb) >= 0;
    return sends || stays(s, in.stage, in.mb) ? ERR_OK : end_life(l, i, in.stage);
}

static enum err account(struct ledger *l, int64_t i)
{
    struct sched_report *r = l->c->report;
    struct sched_instr in = l->c->s->instr[i];
    int h = sched_stage_replica(l->c->s, in.stage, in.mb);
    if (!sched_ends_stage(in))
        return ERR_OK;
    switch (in.op) {
    case SCHED_F:
        return forward(l, i);
    case SCHED_RECV_F:
        count_up(&l->live[h].slots, &r->stage_peak[h]);
        return ERR_OK;
    case SCHED_SEND_F:
        return l->c->s->forward_only ? end_life(l, i, in.stage) : ERR_OK;
    case SCHED_R:
        keep_saves(l, in);
        return ERR_OK;
    case SCHED_I:
        count_up(&l->live[h].grads, &r->grad_peak[h]);
        return ERR_OK;
    case SCHED_W:
        l->live[h].grads--;
        give_saves(l, in);
        return end_life(l, i, in.stage);
    case SCHED_B: /* both halves at once: a keep set for the moment */
        count_up(&l->live[h].grads, &r->grad_peak[h]);
        l->live[h].grads--;
        give_saves(l, in);
        return end_life(l, i, in.stage);
    default:
        return ERR_OK;
    }
}

enum err sched_check_ledger(struct sched_checker *c)
{
    const struct sched *s = c->s;
    struct ledger l = {.c = c};
    enum err err = ERR_OK;
    TRY_OR(out_free, mem_new(c->units, sizeof *l.alive, "schedule ledger", &l.alive));
    TRY_OR(out_free, mem_new((int64_t)s->replicas * s->stages, sizeof *l.live, "schedule ledger",
                             &l.live));
    for (int rank = 0; rank < s->p; rank++) {
        l.rank_live = l.rank_full = 0;
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++)
            TRY_OR(out_free, account(&l, i));
        if (l.rank_live != 0)
            TRY_OR(out_free, sched_broken(c, rank, s->begin[rank + 1] - 1,
                                          "activations alive at the end: %d; add what reads them",
                                          l.rank_live));
    }
out_free:
    mem_free(l.alive);
    mem_free(l.live);
    return err;
}

/* ---- buffers ----
 * How many buffers messages leave from. The proof of V7 lets a send go at once and for good; a real
 * one leaves from memory, which is free again when the receiver has asked for it. So the list is
 * played on a clock on which F, R, I and W take 1, B takes 2 and messages no time, with as many
 * buffers as it likes, and then counted how many it had in use (docs/design/orders.md). In training
 * these are gradients of inputs, from the ring that all stages of a rank share; forward only
 * activations, each stage's from its slots. A pair is played one half after the other. */

enum { LEAST_RING = 2 }; /* one on its way while the next is made */

struct buffers {
    const struct sched_checker *c;
    const struct sched *s;
    /* owned; [p] the rank's time, and when it asked for its last message */
    struct hand { uint32_t clock, asked; } *rank;
    /* owned; [units] 1 + when the input by kind is there, 0: not yet known; when the unit's buffer
     * is taken, and when it is free again, 0: it takes none */
    struct slot { uint32_t ready[2], taken, given; } *unit;
    int64_t *turn; /* owned; [units] units in the order of taking, for one ring or stage */
};

static struct slot *slot_of(const struct buffers *b, int stage, int mb)
{
    return &b->unit[sched_unit(b->s, stage, mb)];
}

static void later(uint32_t *at, uint32_t when)
{
    if (when > *at)
        *at = when;
}

static void deliver(struct buffers *b, const struct sched_instr *in, uint32_t when)
{
    int kind = sched_kind_of(in->op), to = in->stage + (kind == 0 ? 1 : -1);
    if (to >= 0 && to < b->s->stages)
        slot_of(b, to, in->mb)->ready[kind] = 1 + when;
}

/* Does this computing take the buffer of its result? */
static bool takes(const struct buffers *b, const struct sched_instr *in)
{
    bool makes = in->op == SCHED_B || in->op == SCHED_I;
    if (!b->s->forward_only)
        return makes && sched_sent_to(b->s, 1, in->stage, in->mb) >= 0;
    return !b->c->at[SCHED_RECV_F][sched_unit(b->s, in->stage, in->mb)];
}

/* Runs F, B, I, W or R; `from` is when its input was there. */
static void compute(struct buffers *b, const struct sched_instr *in, uint32_t from)
{
    const struct sched *s = b->s;
    struct slot *own = slot_of(b, in->stage, in->mb);
    uint32_t *clock = &b->rank[sched_rank_of(s, in->stage, in->mb)].clock;
    later(clock, from);
    if (takes(b, in))
        own->taken = *clock;
    if (s->forward_only && in->stage > 0 &&
        !b->c->at[SCHED_RECV_F][sched_unit(s, in->stage, in->mb)])
        later(&slot_of(b, in->stage - 1, in->mb)->given, *clock); /* copied: free */
    *clock += in->op == SCHED_B ? 2 : 1;
    if (s->forward_only)
        later(&own->given, *clock);
    if (in->op < SCHED_W && sched_sent_to(s, sched_kind_of(in->op), in->stage, in->mb) < 0)
        deliver(b, in, *clock);
}

/* A receive asks for its message when that was sent, for a sender may have to say first where it
 * lies (comm/gpu/mailbox.c), and in the list's order; computing does not wait for that. What it
 * comes to is taken at once. */
static void ask(struct buffers *b, const struct sched_instr *in, int from)
{
    struct hand *rank = &b->rank[sched_rank_of(b->s, in->stage, in->mb)];
    struct slot *own = slot_of(b, in->stage, in->mb);
    later(&rank->asked, rank->clock);
    later(&rank->asked, own->ready[sched_kind_of(in->op)] - 1);
    if (b->s->forward_only)
        own->taken = rank->clock;
    if (b->s->forward_only || in->op == SCHED_RECV_B)
        later(&slot_of(b, from, in->mb)->given, rank->asked);
}

static int step(void *arg, int rank, int64_t i)
{
    struct buffers *b = arg;
    const struct sched_instr *in = &b->s->instr[i];
    int from = sched_input_of(b->s, *in);
    bool receives = in->op == SCHED_RECV_F || in->op == SCHED_RECV_B;
    bool computes = in->op < SCHED_COMPUTE_OPS && sched_ends_stage(*in);
    uint32_t ready = 1;
    if (receives || (computes && from >= 0))
        ready = slot_of(b, in->stage, in->mb)->ready[sched_kind_of(in->op)];
    if (ready == 0)
        return sched_rank_of(b->s, from, in->mb);
    if (receives)
        ask(b, in, from);
    else if (in->op == SCHED_SEND_F || in->op == SCHED_SEND_B)
        deliver(b, in, b->rank[rank].clock);
    else if (computes)
        compute(b, in, ready - 1);
    return -1;
}

/* Buffers for n units that are taken in this order. Times of taking rise, so the furthest one that
 * comes too early for each is found by halving. */
static int count(const struct buffers *b, int64_t n)
{
    int64_t most = n > 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t low = i, high = n; /* low: taken before i is given; high: not */
        while (high - low > 1) {
            int64_t j = low + (high - low) / 2;
            if (b->unit[b->turn[j]].taken < b->unit[b->turn[i]].given)
                low = j;
            else
                high = j;
        }
        most = num_max(most, low - i + 1);
    }
    return (int)most;
}

/* The ring of all ranks; forward only, slots of stage replicas, which may have to be more than are
 * alive at once. */
static void count_all(struct buffers *b)
{
    const struct sched *s = b->s;
    struct sched_report *r = b->c->report;
    bool forward = s->forward_only;
    r->ring = forward ? r->ring : LEAST_RING;
    for (int k = 0; k < (forward ? s->replicas * s->stages : s->p); k++) {
        int rank = forward ? s->place[k] : k, *most = forward ? &r->stage_peak[k] : &r->ring;
        int64_t n = 0;
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            const struct sched_instr *in = &s->instr[i];
            bool taker = forward ? in->op == SCHED_RECV_F || (in->op == SCHED_F && takes(b, in))
                                 : takes(b, in) && sched_ends_stage(*in);
            if (taker && (!forward || sched_stage_replica(s, in->stage, in->mb) == k))
                b->turn[n++] = sched_unit(s, in->stage, in->mb);
        }
        *most = (int)num_max(*most, count(b, n));
    }
}

enum err sched_check_buffers(struct sched_checker *c)
{
    struct buffers b = {.c = c, .s = c->s};
    struct sched_walk walk = {0};
    enum err err = ERR_OK;
    TRY_OR(out_free, mem_new(c->s->p, sizeof *b.rank, "schedule buffers", &b.rank));
    TRY_OR(out_free, mem_new(c->units, sizeof *b.unit, "schedule buffers", &b.unit));
    TRY_OR(out_free, mem_new(c->units, sizeof *b.turn, "schedule buffers", &b.turn));
    TRY_OR(out_free, sched_walk_open(&walk, c->s));
    walk.step = step;
    walk.arg = &b;
    bool ended = sched_walk_run(&walk);
    ENSURE(ended); /* rule V7 */
    count_all(&b);
out_free:
    sched_walk_close(&walk);
    mem_free(b.rank);
    mem_free(b.unit);
    mem_free(b.turn);
    return err;
}
