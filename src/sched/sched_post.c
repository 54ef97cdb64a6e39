/* SPDX-License-Identifier: Apache-2.0
 *
 * Post-validated optimizer steps (Qi et al., "Zero bubble pipeline parallelism", 2023, section 4).
 *
 * An optimizer step needs the norm of the whole gradient, for clipping and to see what is not
 * finite, and a sum over all ranks makes them meet: whoever is done early waits for the last. That
 * costs schedules like zb-h2 what they gained, for their ranks end one after the other:
 *
 *     met at STEP                              post-validated
 *     rank 0  ########....|######## ....      rank 0  ########S########S
 *     rank 1  .########...|.########...       rank 1  .########S########S
 *     rank 2  ..########..|..########..       rank 2  ..########S########S
 *
 * Clipping is rare, so a rank does not wait. The norm goes down the ranks as a running sum (NORM,
 * rank after rank, as they end), each steps at once as if nothing were clipped, and the last rank,
 * which has the whole sum, sends it back up (PV) in the next run of the list. A rank checks there:
 * if the norm is above the limit, the step is done again from a copy and the list begun anew.
 *
 * PV_CHECK stands as late as it can. Before it, gradients may not be touched, since a step that is
 * done again needs them: so it stands before the first backward, and before the first forward of
 * the last stage, whose head makes gradients. Two things move it up, until both hold everywhere.
 * What a rank received before its check must have been sent before the sender's, or a rank that
 * begins anew would wait for what never comes. And the proof travels with the data: the message
 * from the next rank that lets a rank come to its check is sent after that rank's own check, so
 * that no rank waits for the proof when its input is there.
 */
#include "sched/sched_build.h"

#include "base/mem.h"

struct post {
    const struct sched *s;
    struct sched_build out;
    int64_t *check; /* owned; [p] instruction before which PV_CHECK goes */
    int64_t *sent;  /* owned; [stages * m] where the activation of (stage, mb) is sent, or -1 */
};

/* May this stand before the check? */
static bool waits_for_nothing(const struct sched *s, struct sched_instr in)
{
    return in.op == SCHED_SEND_F || in.op == SCHED_RECV_F ||
           (in.op == SCHED_F && in.stage < s->stages - 1);
}

static void place_latest(struct post *k)
{
    const struct sched *s = k->s;
    for (int64_t unit = 0; unit < (int64_t)s->stages * s->m; unit++)
        k->sent[unit] = -1;
    for (int rank = 0; rank < s->p; rank++) {
        int64_t i = s->begin[rank];
        while (waits_for_nothing(s, s->instr[i])) /* a STEP ends the list at the latest */
            i++;
        k->check[rank] = i;
        for (i = s->begin[rank]; i < s->begin[rank + 1]; i++)
            if (s->instr[i].op == SCHED_SEND_F)
                k->sent[(int64_t)s->instr[i].stage * s->m + s->instr[i].mb] = i;
    }
}

/* Moves the check of a rank before the first receive of what its sender sends after its own. */
static bool move_up(struct post *k, int rank)
{
    const struct sched *s = k->s;
    for (int64_t i = s->begin[rank]; i < k->check[rank]; i++) {
        struct sched_instr in = s->instr[i];
        if (in.op != SCHED_RECV_F)
            continue;
        if (k->sent[(int64_t)(in.stage - 1) * s->m + in.mb] < k->check[in.peer])
            continue;
        k->check[rank] = i;
        return true;
    }
    return false;
}

/* Moves the check of the next rank before the last message from there that this rank needs to come
 * to its own. */
static bool move_next(struct post *k, int rank)
{
    const struct sched *s = k->s;
    for (int64_t i = k->check[rank]; i >= s->begin[rank]; i--) {
        struct sched_instr in = s->instr[i];
        if (in.op != SCHED_RECV_F || in.peer != rank + 1)
            continue;
        int64_t sent = k->sent[(int64_t)(in.stage - 1) * s->m + in.mb];
        bool moves = sent < k->check[rank + 1];
        if (moves)
            k->check[rank + 1] = sent;
        return moves;
    }
    return false;
}

static void add_check(struct post *k, int rank)
{
    if (rank < k->s->p - 1)
        sched_build_add(&k->out, SCHED_PV_RECV, 0, 0);
    if (rank > 0)
        sched_build_add(&k->out, SCHED_PV_SEND, 0, 0);
    sched_build_add(&k->out, SCHED_PV_CHECK, 0, 0);
}

static void add_norm(struct post *k, int rank)
{
    if (rank > 0)
        sched_build_add(&k->out, SCHED_NORM_RECV, 0, 0);
    sched_build_add(&k->out, SCHED_NORM, 0, 0);
    if (rank < k->s->p - 1)
        sched_build_add(&k->out, SCHED_NORM_SEND, 0, 0);
}

static enum err insert(struct post *k)
{
    const struct sched *s = k->s;
    TRY(mem_new(s->p, sizeof *k->check, "post-validation", &k->check));
    TRY(mem_new((int64_t)s->stages * s->m, sizeof *k->sent, "post-validation", &k->sent));
    place_latest(k);
    for (bool moved = true; moved;) { /* each round moves a check up by one place or more */
        moved = false;
        for (int rank = 0; rank < s->p; rank++)
            moved = move_up(k, rank) || move_next(k, rank) || moved;
    }
    for (int rank = 0; rank < s->p; rank++) {
        sched_build_rank(&k->out);
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            struct sched_instr in = s->instr[i];
            if (i == k->check[rank])
                add_check(k, rank);
            if (in.op == SCHED_STEP)
                add_norm(k, rank);
            sched_build_copy(&k->out, in);
        }
    }
    return ERR_OK;
}

enum err sched_post_validate(const struct sched *s, struct sched *out)
{
    struct post k = {.s = s};
    if (!s->lowered || !sched_has(s, SCHED_STEP) || sched_has(s, SCHED_NORM))
        FAIL(ERR_INTERNAL, "schedule %s cannot be post-validated: it is not lowered, does not "
                           "step, or is so already", s->name);
    if (s->replicas > 1)
        FAIL(ERR_CONFIG, "schedule %s has two replicas, whose ranks meet at every step; "
                         "post-validate one with a single replica, as zb-h2 or zb-v", s->name);
    sched_build_open(&k.out, s->name, &(struct sched_shape){s->p, s->m, s->v, 0});
    k.out.s.lowered = true;
    sched_build_place(&k.out, s);
    enum err err = k.out.err == ERR_OK ? insert(&k) : k.out.err;
    if (err == ERR_OK)
        err = sched_build_done(&k.out, out);
    else
        sched_free(&k.out.s);
    mem_free(k.check);
    mem_free(k.sent);
    return err;
}
