/* SPDX-License-Identifier: Apache-2.0
 *
 * From computing to a program: sends, receives, reductions and the optimizer step are derived from
 * placement and order, so no generator can get them wrong. A SEND follows its producer, a RECV
 * stands right before its user, behind all receives of its channel that were sent before; sums
 * come when nothing is left to compute, on all ranks in the order of the stages. Why that brings in
 * no deadlock: docs/design/passes.md.
 */
#include "sched/sched_build.h"

#include "base/mem.h"

struct lowering {
    const struct sched *s;
    const struct sched_lower_args *args;
    struct sched_build out;
    struct sched_channels channels;
    /* owned; [channels + 1] start of each channel's messages; next message to receive */
    struct queue { int64_t start, head; } *queue;
    struct sched_instr *sent; /* owned; in the order of sending, channel after channel; the stage
                                 that uses it */
    uint8_t *got;         /* owned; [2 * stages * m] by kind, using stage, mb */
    int *left;            /* owned; [stages] weight gradients still to come, before a REDUCE */
    /* owned; [replicas * stages] place of the list's last GATHER; weights are dropped */
    struct weights { int64_t gathered; bool away; } *weights;
};

/* Does this instruction make a message, and of which kind? -1: no. What it is for in *to, and its
 * channel in *channel. */
static int makes(const struct lowering *l, struct sched_instr in, struct sched_instr *to,
                 int *channel)
{
    if (in.op == SCHED_W || in.op >= SCHED_R)
        return -1;
    int kind = sched_kind_of(in.op), stage = sched_sent_to(l->s, kind, in.stage, in.mb);
    if (stage < 0)
        return -1;
    *to = (struct sched_instr){.stage = (uint16_t)stage, .mb = in.mb};
    *channel = sched_channel_of(l->s, &l->channels, kind, *to);
    return kind;
}

/* Fills every channel's queue: one pass counts, one writes. head is used as the write position. */
static enum err fill_queues(struct lowering *l)
{
    const struct sched *s = l->s;
    struct sched_instr to;
    int channel, channels = l->channels.n;
    for (int64_t i = 0; i < s->begin[s->p]; i++)
        if (makes(l, s->instr[i], &to, &channel) >= 0)
            l->queue[channel + 1].start++;
    for (int c = 0; c < channels; c++) {
        l->queue[c + 1].start += l->queue[c].start;
        l->queue[c].head = l->queue[c].start;
    }
    TRY(mem_new(l->queue[channels].start, sizeof *l->sent, "schedule messages", &l->sent));
    for (int64_t i = 0; i < s->begin[s->p]; i++)
        if (makes(l, s->instr[i], &to, &channel) >= 0)
            l->sent[l->queue[channel].head++] = to;
    for (int c = 0; c < channels; c++)
        l->queue[c].head = l->queue[c].start;
    return ERR_OK;
}

/* Before F, B or I its input: messages are taken from the channel until that is there. */
static void receive(struct lowering *l, struct sched_instr in)
{
    if (in.op != SCHED_F && in.op != SCHED_B && in.op != SCHED_I)
        return;
    int kind = sched_kind_of(in.op), channel = sched_channel_of(l->s, &l->channels, kind, in);
    uint8_t *got = l->got + (int64_t)kind * l->s->stages * l->s->m;
    while (channel >= 0 && !got[(int64_t)in.stage * l->s->m + in.mb]) {
        ENSURE(l->queue[channel].head < l->queue[channel + 1].start);
        struct sched_instr next = l->sent[l->queue[channel].head++];
        got[(int64_t)next.stage * l->s->m + next.mb] = 1;
        sched_build_add(&l->out, kind == 0 ? SCHED_RECV_F : SCHED_RECV_B, next.stage, next.mb);
    }
}

/* Does instruction i, which says something about shards, stay? */
static bool stays(struct lowering *l, int64_t i)
{
    struct sched_instr in = l->s->instr[i];
    struct weights *w = &l->weights[sched_stage_replica_on(l->s, in.stage, l->out.rank)];
    bool used = in.op == SCHED_REDUCE ? l->args->reduce && l->s->replicas == 1 : l->args->shared;
    l->out.s.passed[sched_shards_name(in.op)] += !used;
    if (!used || in.op == SCHED_REDUCE)
        return used;
    bool whole = !w->away;
    w->away = in.op == SCHED_DROP;
    return in.op == SCHED_DROP ? i < w->gathered : !whole;
}

/* One instruction, or a pair, with all R in front of it, of which none is last in a list, by V3;
 * returns how many those are. */
static int lower_action(struct lowering *l, const struct sched_instr *in)
{
    int lead = 0;
    while (in[lead].op == SCHED_R)
        lead++;
    bool pair = in[lead].op == SCHED_OVERLAP_F_B;
    int first = lead + pair, n = lead + (pair ? 3 : 1);
    for (int i = first; i < n; i++)
        receive(l, in[i]);
    for (int i = 0; i < n; i++)
        if (!sched_op_shards(in[i].op) || stays(l, in + i - l->s->instr))
            sched_build_copy(&l->out, in[i]);
    for (int i = first; i < n; i++) {
        struct sched_instr to;
        int channel, kind = makes(l, in[i], &to, &channel);
        if (kind >= 0)
            sched_build_add(&l->out, kind == 0 ? SCHED_SEND_F : SCHED_SEND_B, in[i].stage,
                            in[i].mb);
        if (in[i].op != SCHED_B && in[i].op != SCHED_W)
            continue;
        if (--l->left[in[i].stage] == 0 && l->args->reduce && l->s->replicas == 1)
            sched_build_add(&l->out, SCHED_REDUCE, in[i].stage, 0);
    }
    return n;
}

/* Of a bidirectional schedule, in the order of the stages on every rank. */
static void add_each(struct lowering *l, int rank, enum sched_op op)
{
    for (int stage = 0; stage < l->s->stages; stage++)
        if (l->s->replicas > 1 && sched_stage_replica_on(l->s, stage, rank) >= 0)
            sched_build_add(&l->out, op, stage, 0);
}

static void end_rank(struct lowering *l, int rank)
{
    int first = 0, last = l->s->stages - 1;
    bool tied = l->args->tied && l->s->replicas == 1 && l->s->place[first] != l->s->place[last];
    if (l->args->reduce) {
        add_each(l, rank, SCHED_REDUCE);
        sched_build_add(&l->out, SCHED_WAIT, 0, 0);
    }
    if (l->args->step)
        add_each(l, rank, SCHED_REPLICA_REDUCE);
    if (tied && l->s->place[first] == rank)
        sched_build_add(&l->out, SCHED_EMBED_REDUCE, first, 0);
    if (tied && l->s->place[last] == rank)
        sched_build_add(&l->out, SCHED_EMBED_REDUCE, last, 0);
    if (l->args->step) {
        sched_build_add(&l->out, SCHED_NORM, 0, 0);
        sched_build_add(&l->out, SCHED_STEP, 0, 0);
    }
}

static enum err lower(struct lowering *l)
{
    const struct sched *s = l->s;
    static const char what[] = "schedule messages";
    TRY(sched_channels_make(s, &l->channels));
    TRY(mem_new(l->channels.n + 1, sizeof *l->queue, what, &l->queue));
    TRY(mem_new(2 * (int64_t)s->stages * s->m, 1, what, &l->got));
    TRY(mem_new(s->stages, sizeof *l->left, what, &l->left));
    TRY(mem_new((int64_t)s->replicas * s->stages, sizeof *l->weights, what, &l->weights));
    TRY(fill_queues(l));
    for (int stage = 0; stage < s->stages; stage++)
        l->left[stage] = s->m;
    for (int rank = 0; rank < s->p; rank++)
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            int stage = s->instr[i].stage;
            if (s->instr[i].op == SCHED_REDUCE)
                l->left[stage] = 0; /* it stands there: none is added */
            if (s->instr[i].op == SCHED_GATHER)
                l->weights[sched_stage_replica_on(s, stage, rank)].gathered = i;
        }
    for (int rank = 0; rank < s->p; rank++) {
        sched_build_rank(&l->out);
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1];)
            i += lower_action(l, &s->instr[i]);
        end_rank(l, rank);
    }
    return l->out.err;
}

enum err sched_lower(const struct sched *s, const struct sched_lower_args *a, struct sched *out)
{
    if (s->lowered)
        FAIL(ERR_INTERNAL, "schedule %s is lowered already", s->name);
    if (s->forward_only && (a->reduce || a->tied || a->step))
        FAIL(ERR_INTERNAL, "schedule %s is forward only and has no gradients to sum", s->name);
    if (s->replicas > 1 && a->tied && !sched_ends_meet(s))
        FAIL(ERR_CONFIG,
             "schedule %s has two replicas and a tied embedding, and the last stage of one is on a "
             "rank without a first stage; let the second replica mirror the first",
             s->name);
    TRY(sched_check_compute(s));
    struct lowering l = {.s = s, .args = a};
    sched_build_from(&l.out, s);
    l.out.s.lowered = true;
    if (l.out.err == ERR_OK)
        l.out.err = lower(&l);
    enum err err = sched_build_done(&l.out, out);
    sched_channels_free(&l.channels);
    mem_free(l.queue);
    mem_free(l.sent);
    mem_free(l.got);
    mem_free(l.left);
    mem_free(l.weights);
    return err;
}
