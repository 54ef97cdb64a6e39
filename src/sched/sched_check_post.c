/* SPDX-License-Identifier: Apache-2.0
 *
 * V13 validation: steps that go ahead of the norm can be taken back.
 *
 * Every rank has NORM before STEP and PV_CHECK in front, each with the messages to its neighbours,
 * or none has. Behind NORM no gradient changes. Before PV_CHECK gradients of the step before are
 * whole, since a step that is done again needs them: there stand forwards only, and none of the
 * last stage, whose head makes gradients. And what comes in before a check was sent before one, so
 * that ranks which begin anew agree on what is on its way.
 */
#include "sched/sched_check.h"

static uint32_t at(const struct sched_checker *c, enum sched_op op, int rank)
{
    return c->post[op - SCHED_NORM_RECV][rank];
}

static bool any(const struct sched_checker *c)
{
    for (int op = 0; op < SCHED_POST_OPS; op++)
        for (int rank = 0; rank < c->s->p; rank++)
            if (c->post[op][rank])
                return true;
    return false;
}

/* What a rank must have: the ends of the row lack a neighbour. */
static enum err check_presence(const struct sched_checker *c, int rank)
{
    const struct sched *s = c->s;
    for (int op = SCHED_NORM_RECV; op <= SCHED_PV_CHECK; op++) {
        bool message = op != SCHED_NORM && op != SCHED_PV_CHECK;
        struct sched_instr in = {.op = (uint8_t)op};
        int peer = sched_peer(s, in, rank);
        uint32_t place = at(c, (enum sched_op)op, rank);
        int64_t i = s->begin[rank] + place - 1;
        if (message && peer == rank) {
            if (place)
                return sched_broken(c, rank, i, "there is no rank on its other side; remove it");
            continue;
        }
        if (!place)
            return sched_broken(c, rank, s->begin[rank + 1] - 1,
                                "steps are post-validated, but this rank has no %s; add it",
                                sched_op_name((enum sched_op)op));
        if (message && s->instr[i].peer != peer)
            return sched_broken(c, rank, i, "its peer is rank %d, the neighbour is rank %d; use "
                                            "that", s->instr[i].peer, peer);
    }
    if (!c->step[rank])
        return sched_broken(c, rank, s->begin[rank + 1] - 1,
                            "there is a norm, but no step that waits for none; end with STEP");
    return ERR_OK;
}

static enum err check_sequence(const struct sched_checker *c, int rank)
{
    static const enum sched_op first_then[][2] = {
        {SCHED_NORM_RECV, SCHED_NORM}, {SCHED_NORM, SCHED_NORM_SEND},
        {SCHED_PV_RECV, SCHED_PV_SEND}, {SCHED_PV_RECV, SCHED_PV_CHECK},
        {SCHED_PV_SEND, SCHED_PV_CHECK},
    };
    for (size_t k = 0; k < sizeof first_then / sizeof *first_then; k++) {
        uint32_t a = at(c, first_then[k][0], rank), b = at(c, first_then[k][1], rank);
        if (a && b && a > b)
            return sched_broken(c, rank, c->s->begin[rank] + b - 1,
                                "%s comes later, at place %u; move it before",
                                sched_op_name(first_then[k][0]), a - 1);
    }
    return ERR_OK;
}

/* Gradients are complete at NORM and stay so until the check of the next run. */
static enum err check_gradients(const struct sched_checker *c, int rank)
{
    const struct sched *s = c->s;
    int64_t norm = s->begin[rank] + at(c, SCHED_NORM, rank) - 1;
    int64_t check = s->begin[rank] + at(c, SCHED_PV_CHECK, rank) - 1;
    for (int64_t i = norm + 1; i < s->begin[rank + 1]; i++)
        if (s->instr[i].op != SCHED_NORM_SEND && s->instr[i].op != SCHED_STEP)
            return sched_broken(c, rank, i, "the norm is taken before, at place %lld; move it "
                                            "before that", (long long)(norm - s->begin[rank]));
    for (int64_t i = s->begin[rank]; i < check; i++) {
        struct sched_instr in = s->instr[i];
        bool forward = in.op == SCHED_SEND_F || in.op == SCHED_RECV_F ||
                       (in.op == SCHED_F && in.stage < s->stages - 1);
        if (!forward && in.op != SCHED_PV_RECV && in.op != SCHED_PV_SEND)
            return sched_broken(c, rank, i, "the step before is not proved yet and may need its "
                                            "gradients; move PV_CHECK, at place %lld, before",
                                (long long)(check - s->begin[rank]));
    }
    return ERR_OK;
}

static enum err check_messages(const struct sched_checker *c, int rank)
{
    const struct sched *s = c->s;
    int64_t check = s->begin[rank] + at(c, SCHED_PV_CHECK, rank) - 1;
    for (int64_t i = s->begin[rank]; i < check; i++) {
        struct sched_instr in = s->instr[i];
        if (in.op != SCHED_RECV_F)
            continue;
        uint32_t sent = c->at[SCHED_SEND_F][sched_unit(s, in.stage - 1, in.mb)];
        if (sent > at(c, SCHED_PV_CHECK, in.peer))
            return sched_broken(c, rank, i, "rank %d sends it after its PV_CHECK, but this rank "
                                            "takes it before; move PV_CHECK, at place %lld, before",
                                in.peer, (long long)(check - s->begin[rank]));
    }
    return ERR_OK;
}

enum err sched_check_post(struct sched_checker *c)
{
    c->report->ahead = any(c);
    if (!c->report->ahead)
        return ERR_OK;
    for (int rank = 0; rank < c->s->p; rank++)
        TRY(check_presence(c, rank));
    for (int rank = 0; rank < c->s->p; rank++) {
        TRY(check_sequence(c, rank));
        TRY(check_gradients(c, rank));
        TRY(check_messages(c, rank));
    }
    return ERR_OK;
}
