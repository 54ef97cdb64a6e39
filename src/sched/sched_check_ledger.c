/* SPDX-License-Identifier: Apache-2.0
 *
 * V8 ledger and V9 reduction.
 *
 * The ledger counts activations in (stage, mb) units. One lives from its F to its B or W. Forward
 * only, it ends when its result has left: with its send, with the F of the next stage when that is
 * on the same rank, at once at the last stage. A stage's slots are counted from RECV_F on. The
 * peaks are what the executor allocates by; they are proved here once instead of counted there.
 *
 * I and W apart leave a gradient to be kept between them; grad_peak counts those, and a B, which is
 * both, for its own moment.
 */
#include "sched/sched_check.h"

#include "base/mem.h"

struct ledger {
    const struct sched_checker *c;
    bool *alive;   /* owned; [units] */
    int *slots;    /* owned; [stages] received or alive */
    int *grads;    /* owned; [stages] between I and W */
    int rank_live; /* alive on the rank that is being counted */
};

static void count_up(int *live, int *peak)
{
    ++*live;
    if (*live > *peak)
        *peak = *live;
}

/* The stage that gets the activation of this one and stands on the same rank; -1: none. */
static int local_next(const struct sched *s, int stage)
{
    return stage + 1 < s->stages && s->place[stage + 1] == s->place[stage] ? stage + 1 : -1;
}

static enum err end_life(struct ledger *l, int64_t i, int stage)
{
    int mb = l->c->s->instr[i].mb;
    bool *alive = &l->alive[sched_unit(l->c->s, stage, mb)];
    if (!*alive)
        return sched_broken(l->c, l->c->s->place[stage], i,
                            "the activation of %dF%d is not alive here; keep F before", stage, mb);
    *alive = false;
    l->slots[stage]--;
    l->rank_live--;
    return ERR_OK;
}

static enum err forward(struct ledger *l, int64_t i)
{
    const struct sched *s = l->c->s;
    struct sched_report *r = l->c->report;
    struct sched_instr in = s->instr[i];
    bool received = s->lowered && in.stage > 0 && local_next(s, in.stage - 1) < 0;
    if (!received)
        count_up(&l->slots[in.stage], &r->stage_peak[in.stage]);
    count_up(&l->rank_live, &r->peak[s->place[in.stage]]);
    l->alive[sched_unit(s, in.stage, in.mb)] = true;
    if (!s->forward_only)
        return ERR_OK;
    if (in.stage > 0 && local_next(s, in.stage - 1) >= 0)
        TRY(end_life(l, i, in.stage - 1));
    bool sends = s->lowered && sched_sent_to(s, 0, in.stage) >= 0;
    return sends || local_next(s, in.stage) >= 0 ? ERR_OK : end_life(l, i, in.stage);
}

static enum err account(struct ledger *l, int64_t i)
{
    struct sched_report *r = l->c->report;
    struct sched_instr in = l->c->s->instr[i];
    switch (in.op) {
    case SCHED_F:
        return forward(l, i);
    case SCHED_RECV_F:
        count_up(&l->slots[in.stage], &r->stage_peak[in.stage]);
        return ERR_OK;
    case SCHED_SEND_F:
        return l->c->s->forward_only ? end_life(l, i, in.stage) : ERR_OK;
    case SCHED_I:
        count_up(&l->grads[in.stage], &r->grad_peak[in.stage]);
        return ERR_OK;
    case SCHED_W:
        l->grads[in.stage]--;
        return end_life(l, i, in.stage);
    case SCHED_B: /* both halves at once: a keep set for the moment */
        count_up(&l->grads[in.stage], &r->grad_peak[in.stage]);
        l->grads[in.stage]--;
        return end_life(l, i, in.stage);
    default:
        return ERR_OK;
    }
}

static enum err play_ledger(struct ledger *l)
{
    const struct sched *s = l->c->s;
    for (int rank = 0; rank < s->p; rank++) {
        l->rank_live = 0;
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++)
            TRY(account(l, i));
        if (l->rank_live != 0)
            return sched_broken(l->c, rank, s->begin[rank + 1] - 1,
                                "%d activations are alive at the end; add what reads them",
                                l->rank_live);
    }
    return ERR_OK;
}

enum err sched_check_ledger(struct sched_checker *c)
{
    struct ledger l = {.c = c};
    enum err err = ERR_OK;
    TRY_OR(out_free, mem_new(c->units, sizeof *l.alive, "schedule ledger", &l.alive));
    TRY_OR(out_free, mem_new(c->s->stages, sizeof *l.slots, "schedule ledger", &l.slots));
    TRY_OR(out_free, mem_new(c->s->stages, sizeof *l.grads, "schedule ledger", &l.grads));
    TRY_OR(out_free, play_ledger(&l));
out_free:
    mem_free(l.alive);
    mem_free(l.slots);
    mem_free(l.grads);
    return err;
}

/* REDUCE: on all stages or none, each after m summands. */
static enum err check_reduces(const struct sched_checker *c)
{
    const struct sched *s = c->s;
    bool any = false;
    for (int stage = 0; stage < s->stages; stage++)
        any |= c->reduce[stage] != 0;
    for (int stage = 0; any && stage < s->stages; stage++) {
        int rank = s->place[stage], added = 0;
        if (!c->reduce[stage])
            return sched_broken(c, rank, s->begin[rank + 1] - 1,
                                "other stages are reduced, but there is no %dREDUCE; add it",
                                stage);
        for (int mb = 0; mb < s->m; mb++) {
            int64_t unit = sched_unit(s, stage, mb);
            uint32_t b = c->at[SCHED_B][unit], w = c->at[SCHED_W][unit];
            added += (b ? b : w) < c->reduce[stage];
        }
        if (added < s->m)
            return sched_broken(c, rank, s->begin[rank] + c->reduce[stage] - 1,
                                "only %d of %d weight gradients of stage %d are added before; move "
                                "it after the last",
                                added, s->m, stage);
    }
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

/* STEP: on all ranks or none, and last. */
static enum err check_steps(const struct sched_checker *c)
{
    const struct sched *s = c->s;
    bool any = false;
    for (int rank = 0; rank < s->p; rank++)
        any |= c->step[rank] != 0;
    for (int rank = 0; any && rank < s->p; rank++) {
        int64_t last = s->begin[rank + 1] - 1;
        if (!c->step[rank])
            return sched_broken(c, rank, last,
                                "other ranks step, this one does not; end its list with STEP");
        if (s->begin[rank] + c->step[rank] - 1 != last)
            return sched_broken(c, rank, s->begin[rank] + c->step[rank] - 1,
                                "%lld instructions follow; move it to the end",
                                (long long)(last - s->begin[rank] - c->step[rank] + 1));
    }
    return ERR_OK;
}

enum err sched_check_reduction(struct sched_checker *c)
{
    TRY(check_reduces(c));
    TRY(check_tied(c));
    TRY(check_steps(c));
    return ERR_OK;
}
