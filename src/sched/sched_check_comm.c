/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules about messages: V5 pairing, V6 channel, V7 deadlock.
 *
 * V7 is proved on the machine that transports here are: a send never waits (with the buffers that
 * sched_check_buffers counts), a receive waits for its send, a tied or merged sum waits until the
 * other holder has come to it. REDUCE is no edge between the ranks of one pipeline: its partners
 * are the same rank of other replicas, which run the same list.
 */
#include "sched/sched_check.h"

#include "base/mem.h"

enum { FORWARD, BACKWARD, KINDS };
static const uint8_t send_op[KINDS] = {SCHED_SEND_F, SCHED_SEND_B};
static const uint8_t recv_op[KINDS] = {SCHED_RECV_F, SCHED_RECV_B};

static uint32_t producer(const struct sched_checker *c, int kind, int64_t unit)
{
    return kind == FORWARD ? c->at[SCHED_F][unit] : sched_check_dgrad(c, unit);
}

/* The message that `stage` sends for `mb`: both ends there, after its producer, before its user. */
static enum err check_edge(const struct sched_checker *c, int kind, int stage, int mb)
{
    const struct sched *s = c->s;
    int to = sched_sent_to(s, kind, stage, mb);
    if (to < 0)
        return ERR_OK;
    int64_t unit = sched_unit(s, stage, mb), far = sched_unit(s, to, mb);
    int from_rank = sched_rank_of(s, stage, mb), to_rank = sched_rank_of(s, to, mb);
    int64_t made = s->begin[from_rank] + producer(c, kind, unit) - 1;
    int64_t used = s->begin[to_rank] + producer(c, kind, far) - 1;
    uint32_t send = c->at[send_op[kind]][unit], recv = c->at[recv_op[kind]][far];
    const char *letter = kind == FORWARD ? "F" : "B";
    if (!send)
        return sched_broken(c, from_rank, made,
                            "rank %d needs its result, but there is no %dSEND_%s%d; add it",
                            to_rank, stage, letter, mb);
    if (!recv)
        return sched_broken(c, to_rank, used,
                            "its input comes from rank %d, but there is no %dRECV_%s%d; add it",
                            from_rank, to, letter, mb);
    if (send < producer(c, kind, unit))
        return sched_broken(c, from_rank, s->begin[from_rank] + send - 1,
                            "what it sends is made later, at place %lld; move it after",
                            (long long)(made - s->begin[from_rank]));
    if (recv > producer(c, kind, far))
        return sched_broken(c, to_rank, s->begin[to_rank] + recv - 1,
                            "it is used before, at place %lld; move it there",
                            (long long)(used - s->begin[to_rank]));
    return ERR_OK;
}

/* A send or receive that stands somewhere belongs to an edge and names the right peer; and every
 * edge has both. */
enum err sched_check_pairing(struct sched_checker *c)
{
    const struct sched *s = c->s;
    for (int rank = 0; rank < s->p; rank++)
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            const struct sched_instr *in = &s->instr[i];
            int want = sched_peer(s, *in, rank);
            if (in->op < SCHED_SEND_F || in->op > SCHED_RECV_B)
                continue;
            if (want == rank)
                return sched_broken(c, rank, i,
                                    "the other side of this message is on no other rank; remove "
                                    "it");
            if (in->peer != want)
                return sched_broken(c, rank, i,
                                    "its peer is rank %d, the neighbour stage stands on rank %d; "
                                    "use that", in->peer, want);
        }
    for (int kind = FORWARD; kind < (s->forward_only ? BACKWARD : KINDS); kind++)
        for (int stage = 0; stage < s->stages; stage++)
            for (int mb = 0; mb < s->m; mb++)
                TRY(check_edge(c, kind, stage, mb));
    return ERR_OK;
}

/* Numbers the sends of each channel, by kind and sending unit, and holds the receives to that. */
enum err sched_check_channel(struct sched_checker *c)
{
    const struct sched *s = c->s;
    uint32_t *order = NULL, *sent = NULL, *received = NULL;
    enum err err = ERR_OK;
    TRY_OR(out_free, mem_new(2 * c->units, sizeof *order, "schedule channels", &order));
    TRY_OR(out_free, mem_new(c->channels.n, sizeof *sent, "schedule channels", &sent));
    TRY_OR(out_free, mem_new(c->channels.n, sizeof *received, "schedule channels", &received));
    for (int64_t i = 0; i < s->begin[s->p]; i++) {
        struct sched_instr in = s->instr[i], to = in;
        int kind = sched_kind_of(in.op);
        if (in.op != SCHED_SEND_F && in.op != SCHED_SEND_B)
            continue;
        to.stage = (uint16_t)sched_sent_to(s, kind, in.stage, in.mb);
        order[kind * c->units + sched_unit(s, in.stage, in.mb)] =
            sent[sched_channel_of(s, &c->channels, kind, to)]++;
    }
    for (int rank = 0; rank < s->p; rank++)
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            struct sched_instr in = s->instr[i];
            if (in.op != SCHED_RECV_F && in.op != SCHED_RECV_B)
                continue;
            int kind = sched_kind_of(in.op), from = sched_input_of(s, in);
            uint32_t have = received[sched_channel_of(s, &c->channels, kind, in)]++;
            uint32_t want = order[kind * c->units + sched_unit(s, from, in.mb)];
            if (have != want)
                TRY_OR(out_free, sched_broken(c, rank, i,
                                              "it is receive %u of the channel from rank %d, which "
                                              "sends it as message %u; use the order of the sender",
                                              have, in.peer, want));
        }
out_free:
    mem_free(order);
    mem_free(sent);
    mem_free(received);
    return err;
}

/* A receive needs its send. The other holder of a tied or merged sum must have come to its own:
 * count - 1 instructions lie before it. A sum without its other half is rule V9's, and so is a tied
 * one on the same rank. */
static bool message_need(const struct sched_checker *c, const struct sched_instr *in,
                       struct sched_need *out)
{
    const struct sched *s = c->s;
    if (in->op == SCHED_EMBED_REDUCE) {
        uint16_t stage = in->stage == 0 ? (uint16_t)(s->stages - 1) : 0;
        if (!c->tied[stage != 0] || s->place[stage] == s->place[in->stage])
            return false;
        out->rank = s->place[stage];
        out->count = c->tied[stage != 0] - 1;
        out->on = (struct sched_instr){.op = in->op, .stage = stage, .peer = s->place[in->stage]};
        return true;
    }
    if (in->op == SCHED_REPLICA_REDUCE) {
        int held = sched_stage_replica_on(s, in->stage, in->peer);
        if (held < 0 || !c->merge[held])
            return false;
        out->rank = in->peer;
        out->count = c->merge[held] - 1;
        out->on = *in;
        return true;
    }
    if (in->op != SCHED_RECV_F && in->op != SCHED_RECV_B)
        return false;
    int kind = sched_kind_of(in->op), from = sched_input_of(s, *in);
    out->rank = sched_rank_of(s, from, in->mb);
    out->count = c->at[send_op[kind]][sched_unit(s, from, in->mb)];
    out->on = (struct sched_instr){.op = send_op[kind], .stage = (uint16_t)from, .mb = in->mb,
                                   .peer = (uint16_t)sched_rank_of(s, in->stage, in->mb)};
    return true;
}

enum err sched_check_deadlock(struct sched_checker *c)
{
    return sched_check_walk(c, message_need, "the ranks wait for one another");
}
