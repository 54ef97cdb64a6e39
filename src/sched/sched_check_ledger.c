/* SPDX-License-Identifier: Apache-2.0
 *
 * V8 ledger and V9 reduction.
 *
 * The ledger counts activations in (stage, mb) units, on each rank and in each holding. One lives
 * from its F to its B or W. Forward only, it ends when its result has left: with its send, with the
 * F of the next stage when that is on the same rank, at once at the last stage. A stage's slots are
 * counted from RECV_F on, its save sets, which hold what the forward makes for the backward, from F
 * on; what an R makes again is not kept between the two. The peaks are what the executor allocates
 * by; they are proved here once instead of counted there.
 *
 * I and W apart leave a gradient to be kept between them; grad_peak counts those, and a B, which is
 * both, for its own moment.
 */
#include "sched/sched_check.h"

#include "base/mem.h"

struct ledger {
    const struct sched_checker *c;
    bool *alive;   /* owned; [units] */
    int *slots;    /* owned; [replicas * stages] received or alive */
    int *saves;    /* owned; [replicas * stages] alive with all that the forward saves */
    int *grads;    /* owned; [replicas * stages] between I and W */
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
    int h = sched_holding(l->c->s, in.stage, in.mb);
    count_up(&l->saves[h], &l->c->report->save_peak[h]);
    count_up(&l->rank_full, &l->c->report->full_peak[l->c->s->place[h]]);
}

static void give_saves(struct ledger *l, struct sched_instr in)
{
    l->saves[sched_holding(l->c->s, in.stage, in.mb)]--;
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
    l->slots[sched_holding(s, stage, mb)]--;
    l->rank_live--;
    return ERR_OK;
}

static enum err forward(struct ledger *l, int64_t i)
{
    const struct sched *s = l->c->s;
    struct sched_report *r = l->c->report;
    struct sched_instr in = s->instr[i];
    int h = sched_holding(s, in.stage, in.mb);
    bool local = in.stage > 0 && stays(s, in.stage - 1, in.mb);
    bool received = s->lowered && in.stage > 0 && !local;
    if (!received)
        count_up(&l->slots[h], &r->stage_peak[h]);
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
    int h = sched_holding(l->c->s, in.stage, in.mb);
    if (!sched_ends_stage(in))
        return ERR_OK;
    switch (in.op) {
    case SCHED_F:
        return forward(l, i);
    case SCHED_RECV_F:
        count_up(&l->slots[h], &r->stage_peak[h]);
        return ERR_OK;
    case SCHED_SEND_F:
        return l->c->s->forward_only ? end_life(l, i, in.stage) : ERR_OK;
    case SCHED_R:
        keep_saves(l, in);
        return ERR_OK;
    case SCHED_I:
        count_up(&l->grads[h], &r->grad_peak[h]);
        return ERR_OK;
    case SCHED_W:
        l->grads[h]--;
        give_saves(l, in);
        return end_life(l, i, in.stage);
    case SCHED_B: /* both halves at once: a keep set for the moment */
        count_up(&l->grads[h], &r->grad_peak[h]);
        l->grads[h]--;
        give_saves(l, in);
        return end_life(l, i, in.stage);
    default:
        return ERR_OK;
    }
}

static enum err play_ledger(struct ledger *l)
{
    const struct sched *s = l->c->s;
    for (int rank = 0; rank < s->p; rank++) {
        l->rank_live = l->rank_full = 0;
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++)
            TRY(account(l, i));
        if (l->rank_live != 0)
            return sched_broken(l->c, rank, s->begin[rank + 1] - 1,
                                "activations alive at the end: %d; add what reads them",
                                l->rank_live);
    }
    return ERR_OK;
}

enum err sched_check_ledger(struct sched_checker *c)
{
    struct ledger l = {.c = c};
    int64_t holdings = (int64_t)c->s->replicas * c->s->stages;
    enum err err = ERR_OK;
    TRY_OR(out_free, mem_new(c->units, sizeof *l.alive, "schedule ledger", &l.alive));
    TRY_OR(out_free, mem_new(holdings, sizeof *l.slots, "schedule ledger", &l.slots));
    TRY_OR(out_free, mem_new(holdings, sizeof *l.saves, "schedule ledger", &l.saves));
    TRY_OR(out_free, mem_new(holdings, sizeof *l.grads, "schedule ledger", &l.grads));
    TRY_OR(out_free, play_ledger(&l));
out_free:
    mem_free(l.alive);
    mem_free(l.slots);
    mem_free(l.saves);
    mem_free(l.grads);
    return err;
}

static bool any_of(const uint32_t *at, int n)
{
    for (int i = 0; i < n; i++)
        if (at[i])
            return true;
    return false;
}

/* The sum of holding h at place `at` of its rank (from 1) must follow all its weight gradients. */
static enum err check_summands(const struct sched_checker *c, int h, uint32_t at)
{
    const struct sched *s = c->s;
    int rank = s->place[h], stage = h % s->stages, added = 0, all = 0;
    for (int mb = 0; mb < s->m; mb++) {
        int64_t unit = sched_unit(s, stage, mb);
        uint32_t b = c->at[SCHED_B][unit], w = c->at[SCHED_W][unit];
        if (sched_holding(s, stage, mb) != h)
            continue;
        all++;
        added += (b ? b : w) < at;
    }
    if (added < all)
        return sched_broken(c, rank, s->begin[rank] + at - 1,
                            "only %d of %d weight gradients of stage %d are added before; move it "
                            "after the last",
                            added, all, stage);
    return ERR_OK;
}

/* REDUCE: on all holdings or none, each after its summands. */
static enum err check_reduces(const struct sched_checker *c)
{
    const struct sched *s = c->s;
    int holdings = s->replicas * s->stages;
    for (int h = 0; any_of(c->reduce, holdings) && h < holdings; h++) {
        int rank = s->place[h];
        if (!c->reduce[h])
            return sched_broken(c, rank, s->begin[rank + 1] - 1,
                                "other stages are reduced, but there is no %dREDUCE; add it",
                                h % s->stages);
        if (s->replicas > 1)
            TRY(check_summands(c, h, c->reduce[h]));
    }
    return sched_check_segment_sums(c);
}

/* The error of a sum, of which something reads at `reader` or the list ends with it (-1). */
static enum err broken_wait(const struct sched_checker *c, int rank, int64_t sum, int64_t reader)
{
    const struct sched *s = c->s;
    int64_t first = s->begin[rank], last = s->begin[rank + 1] - 1, wait = sum;
    while (wait <= last && s->instr[wait].op != SCHED_WAIT)
        wait++;
    if (wait <= last)
        return sched_broken(c, rank, reader,
                            "WAIT is at place %lld; move it before what reads the "
                            "sums",
                            (long long)(wait - first));
    for (wait = sum; wait >= first && s->instr[wait].op != SCHED_WAIT;)
        wait--;
    if (wait >= first)
        return sched_broken(c, rank, sum, "WAIT is at place %lld; move it behind every REDUCE",
                            (long long)(wait - first));
    return sched_broken(c, rank, last,
                        "sums are started here and nothing waits for them; add WAIT "
                        "behind the last REDUCE");
}

/* WAIT: where anything is summed, behind that and before what reads the sums. */
static enum err check_waits(const struct sched_checker *c)
{
    const struct sched *s = c->s;
    for (int rank = 0; rank < s->p; rank++) {
        int64_t sum = -1;
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            int op = s->instr[i].op;
            bool reads = op == SCHED_TIED || op == SCHED_MERGE || op == SCHED_NORM ||
                         op == SCHED_STEP || op == SCHED_UPDATE;
            if (sum >= 0 && reads)
                return broken_wait(c, rank, sum, i);
            sum = op == SCHED_REDUCE ? i : op == SCHED_WAIT ? -1 : sum;
        }
        if (sum >= 0)
            return broken_wait(c, rank, sum, -1);
    }
    return ERR_OK;
}

/* With two replicas an embedding may also get the gradients of a head on its rank that belongs to
 * the other one, so a sum of stage 0 follows what the rank computes of the last stage too. */
static enum err check_shared(const struct sched_checker *c, int h, uint32_t at)
{
    const struct sched *s = c->s;
    int head = h % s->stages == 0 ? sched_held(s, s->stages - 1, s->place[h]) : -1;
    return head < 0 ? ERR_OK : check_summands(c, head, at);
}

static enum err check_merge(const struct sched_checker *c, int h)
{
    const struct sched *s = c->s;
    int rank = s->place[h], stage = h % s->stages;
    int64_t i = s->begin[rank] + c->merge[h] - 1;
    struct sched_instr in = {.op = SCHED_MERGE, .stage = (uint16_t)stage};
    int peer = sched_peer(s, in, rank);
    if (!c->merge[h])
        return sched_broken(c, rank, s->begin[rank + 1] - 1,
                            "the replicas of stage %d must be summed, but there is no %dMERGE; add "
                            "it", stage, stage);
    if (s->instr[i].peer != peer)
        return sched_broken(c, rank, i, "its peer is rank %d, the other replica is on rank %d; "
                                        "use that", s->instr[i].peer, peer);
    if (c->reduce[h] > c->merge[h])
        return sched_broken(c, rank, i, "stage %d is reduced later, at place %u; move it after",
                            stage, c->reduce[h] - 1);
    TRY(check_summands(c, h, c->merge[h]));
    return check_shared(c, h, c->merge[h]);
}

/* MERGE: on all holdings when there are two replicas that are stepped or any is summed, each after
 * its summands and its REDUCE. */
static enum err check_merges(const struct sched_checker *c)
{
    const struct sched *s = c->s;
    int holdings = s->replicas * s->stages;
    if (s->replicas == 1)
        return ERR_OK;
    for (int h = 0; h < holdings; h++)
        if (c->reduce[h])
            TRY(check_shared(c, h, c->reduce[h]));
    if (!any_of(c->merge, holdings) && !any_of(c->norm, s->p) && !any_of(c->step, s->p))
        return ERR_OK;
    for (int h = 0; h < holdings; h++)
        TRY(check_merge(c, h));
    return ERR_OK;
}

/* TIED: both or none, on two ranks, each after the sum it continues. */
static enum err check_tied(const struct sched_checker *c)
{
    const struct sched *s = c->s;
    int holder[2] = {0, s->stages - 1};
    for (int k = 0; k < 2; k++) {
        int stage = holder[k], rank = s->place[stage], other = s->place[holder[1 - k]];
        int64_t i = s->begin[rank] + c->tied[k] - 1;
        if (!c->tied[k])
            continue;
        if (rank == other)
            return sched_broken(c, rank, i, "first and last stage stand on one rank; remove it");
        if (s->instr[i].peer != other)
            return sched_broken(c, rank, i,
                                "its peer is rank %d, the other holder is rank %d; use that",
                                s->instr[i].peer, other);
        if (!c->tied[1 - k])
            return sched_broken(c, rank, i, "rank %d has no %dTIED; add it", other, holder[1 - k]);
        if (c->reduce[stage] > c->tied[k])
            return sched_broken(c, rank, i,
                                "stage %d is reduced later, at place %u; move it after",
                                stage, c->reduce[stage] - 1);
        for (int mb = 0; mb < s->m; mb++) {
            int64_t unit = sched_unit(s, stage, mb);
            uint32_t b = c->at[SCHED_B][unit], w = c->at[SCHED_W][unit];
            if ((b ? b : w) > c->tied[k])
                return sched_broken(c, rank, i,
                                    "the weight gradient of microbatch %d is added later, at place "
                                    "%u; move it after",
                                    mb, (b ? b : w) - 1);
        }
    }
    return ERR_OK;
}

enum err sched_check_reduction(struct sched_checker *c)
{
    TRY(check_reduces(c));
    TRY(check_waits(c));
    TRY(check_merges(c));
    return check_tied(c);
}
