/* SPDX-License-Identifier: Apache-2.0
 *
 * V8 ledger and V9 reduction.
 *
 * The ledger counts activations in (stage, mb) units. One begins to live at its F. It ends when
 * everything that reads it is over: the B or W of the same unit, and the send of its result, should
 * a hand-written list put that later. Forward only, an activation ends with its send, with the F of
 * the next stage when that is on the same rank, and at once at the last stage. The peaks are what
 * the executor allocates slots by; they are proved here once instead of counted there.
 *
 * I and W apart leave a gradient to be kept between them; grad_peak counts those. A receive that
 * the channel's order has put ahead of its user needs a buffer until then; recv_peak counts those.
 */
#include "sched/sched_check.h"

#include "base/mem.h"

struct ledger {
    const struct sched_checker *c;
    uint8_t *holds; /* owned; [units] readers that are still to come */
    int *live;      /* owned; [stages] */
    int *grads;     /* owned; [stages] between I and W */
    int *received;  /* owned; [2 * stages] by kind, received and not yet used */
    int rank_live;
};

/* How many instructions read the activation of a unit after its F. */
static uint8_t readers(const struct sched *s, int stage)
{
    bool sends = s->lowered && sched_sent_to(s, 0, stage) >= 0;
    bool sends_back = s->lowered && sched_sent_to(s, 1, stage) >= 0;
    bool local = stage + 1 < s->stages && s->place[stage + 1] == s->place[stage];
    if (s->forward_only)
        return sends || local;
    return (uint8_t)(1 + sends + sends_back);
}

static void count_up(int *live, int *peak)
{
    ++*live;
    if (*live > *peak)
        *peak = *live;
}

static void begin(struct ledger *l, int stage, int mb)
{
    struct sched_report *r = l->c->report;
    int rank = l->c->s->place[stage];
    uint8_t *holds = &l->holds[sched_unit(l->c->s, stage, mb)];
    count_up(&l->live[stage], &r->stage_peak[stage]);
    count_up(&l->rank_live, &r->peak[rank]);
    *holds = readers(l->c->s, stage);
    if (*holds == 0) {
        l->live[stage]--;
        l->rank_live--;
    }
}

static enum err release(struct ledger *l, int64_t i, int stage)
{
    struct sched_instr in = l->c->s->instr[i];
    uint8_t *holds = &l->holds[sched_unit(l->c->s, stage, in.mb)];
    int rank = l->c->s->place[stage];
    if (*holds == 0)
        return sched_check_broken(l->c, rank, i, "the activation of %dF%d is not alive here; move its "
                                  "forward before", stage, in.mb);
    if (--*holds == 0) {
        l->live[stage]--;
        l->rank_live--;
    }
    return ERR_OK;
}

/* Messages that wait in a buffer of the stage, kind 0 activations, 1 gradients. */
static void account_received(struct ledger *l, struct sched_instr in)
{
    const struct sched *s = l->c->s;
    int kind = in.op == SCHED_F || in.op == SCHED_RECV_F ? 0 : 1;
    int slot = kind * s->stages + in.stage;
    if (in.op == SCHED_RECV_F || in.op == SCHED_RECV_B)
        count_up(&l->received[slot], &l->c->report->recv_peak[slot]);
    else if (s->lowered && l->c->channels.of[slot] >= 0 &&
             (in.op == SCHED_F || in.op == SCHED_B || in.op == SCHED_I))
        l->received[slot]--;
}

static enum err account(struct ledger *l, int64_t i)
{
    const struct sched *s = l->c->s;
    struct sched_instr in = s->instr[i];
    account_received(l, in);
    switch (in.op) {
    case SCHED_F:
        begin(l, in.stage, in.mb);
        if (s->forward_only && in.stage > 0 && s->place[in.stage - 1] == s->place[in.stage])
            TRY(release(l, i, in.stage - 1));
        return ERR_OK;
    case SCHED_I:
        count_up(&l->grads[in.stage], &l->c->report->grad_peak[in.stage]);
        return ERR_OK;
    case SCHED_W:
        l->grads[in.stage]--;
        return release(l, i, in.stage);
    case SCHED_B:
    case SCHED_SEND_F:
    case SCHED_SEND_B:
        return release(l, i, in.stage);
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
            return sched_check_broken(l->c, rank, s->begin[rank + 1] - 1, "%d activations are alive at "
                                      "the end; add what reads them", l->rank_live);
    }
    return ERR_OK;
}

enum err sched_check_ledger(struct sched_checker *c)
{
    struct ledger l = {.c = c};
    enum err err = ERR_OK;
    TRY_OR(out_free, mem_new(c->units, 1, "schedule ledger", &l.holds));
    TRY_OR(out_free, mem_new(c->s->stages, sizeof *l.live, "schedule ledger", &l.live));
    TRY_OR(out_free, mem_new(c->s->stages, sizeof *l.grads, "schedule ledger", &l.grads));
    TRY_OR(out_free, mem_new(2 * c->s->stages, sizeof *l.received, "schedule ledger", &l.received));
    TRY_OR(out_free, play_ledger(&l));
out_free:
    mem_free(l.holds);
    mem_free(l.live);
    mem_free(l.grads);
    mem_free(l.received);
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
            return sched_check_broken(c, rank, s->begin[rank + 1] - 1, "other stages are reduced, but "
                                      "there is no %dREDUCE; add it", stage);
        for (int mb = 0; mb < s->m; mb++) {
            int64_t unit = sched_unit(s, stage, mb);
            uint32_t b = c->at[SCHED_B][unit], w = c->at[SCHED_W][unit];
            added += (b ? b : w) < c->reduce[stage];
        }
        if (added < s->m)
            return sched_check_broken(c, rank, s->begin[rank] + c->reduce[stage] - 1, "only %d of %d "
                                      "weight gradients of stage %d are added before; move it after "
                                      "the last", added, s->m, stage);
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
            return sched_check_broken(c, rank, i, "first and last stage stand on one rank; remove it");
        if (s->instr[i].peer != other)
            return sched_check_broken(c, rank, i, "its peer is rank %d, the other holder is rank %d; "
                                      "use that", s->instr[i].peer, other);
        if (!c->tied[1 - k])
            return sched_check_broken(c, rank, i, "rank %d has no %dTIED; add it", other,
                                      holder[1 - k]);
        if (c->reduce[stage] > c->tied[k])
            return sched_check_broken(c, rank, i, "stage %d is reduced later, at place %u; move it "
                                      "after", stage, c->reduce[stage] - 1);
        for (int mb = 0; mb < s->m; mb++) {
            int64_t unit = sched_unit(s, stage, mb);
            uint32_t b = c->at[SCHED_B][unit], w = c->at[SCHED_W][unit];
            if ((b ? b : w) > c->tied[k])
                return sched_check_broken(c, rank, i, "the weight gradient of microbatch %d is added "
                                          "later, at place %u; move it after", mb, (b ? b : w) - 1);
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
            return sched_check_broken(c, rank, last, "other ranks step, this one does not; end its list "
                                      "with STEP");
        if (s->begin[rank] + c->step[rank] - 1 != last)
            return sched_check_broken(c, rank, s->begin[rank] + c->step[rank] - 1, "%lld instructions "
                                      "follow; move it to the end",
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
