/* SPDX-License-Identifier: Apache-2.0
 *
 * V13: what computes has whole weights. An UPDATE leaves the new ones with their owners alone, a
 * DROP gives up what others own; GATHER starts to bring them back, and whoever computes with them
 * next, or WAIT, waits for it. At the end of the list all are whole, as at its begin.
 */
#include "sched/sched_check.h"

#include "base/mem.h"

enum state { WHOLE, OWN, GATHERED };

struct weights {
    const struct sched_checker *c;
    int rank;
    int64_t *first; /* owned; [replicas * stages] the state of a holding's first segment */
    uint8_t *state; /* owned; enum state of each segment */
};

/* The segments that an instruction names: [*begin, *end) of k->state. */
static void find(const struct weights *k, int held, int seg, int64_t *begin, int64_t *end)
{
    int segments = k->c->s->segments[held % k->c->s->stages];
    *begin = k->first[held] + (seg > 0 ? seg - 1 : 0);
    *end = seg > 0 ? *begin + 1 : *begin + segments;
}

static enum err change(struct weights *k, int64_t i)
{
    struct sched_instr in = k->c->s->instr[i];
    int64_t begin, end;
    find(k, sched_held(k->c->s, in.stage, k->rank), in.seg, &begin, &end);
    for (int64_t at = begin; at < end; at++) {
        uint8_t *state = &k->state[at];
        if (in.op == SCHED_GATHER && *state != OWN)
            return sched_broken(k->c, k->rank, i,
                                *state == WHOLE ? "the weights are whole here; remove it"
                                                : "they are being gathered already; remove it");
        if (in.op != SCHED_GATHER && *state == GATHERED)
            return sched_broken(k->c, k->rank, i,
                                "the weights are still being gathered; put WAIT "
                                "before it");
        if (in.op == SCHED_DROP && *state == OWN)
            return sched_broken(k->c, k->rank, i, "others' weights are not here; remove it");
        *state = in.op == SCHED_GATHER ? GATHERED : OWN;
    }
    return ERR_OK;
}

/* Computing waits for the gathers of what it uses. A head may share the matrix of the embedding
 * that stands on its rank. */
static enum err use(struct weights *k, int64_t i, int stage, int seg)
{
    int64_t begin, end;
    find(k, sched_held(k->c->s, stage, k->rank), seg, &begin, &end);
    for (int64_t at = begin; at < end; at++) {
        if (k->state[at] == OWN)
            return sched_broken(k->c, k->rank, i,
                                "it computes with weights of stage %d that are "
                                "not whole here; put %dGATHER before it",
                                stage, stage);
        k->state[at] = WHOLE;
    }
    return ERR_OK;
}

static enum err take(struct weights *k, int64_t i)
{
    const struct sched *s = k->c->s;
    struct sched_instr in = s->instr[i];
    int64_t all = k->first[s->replicas * s->stages];
    if (in.op == SCHED_WAIT)
        for (int64_t at = 0; at < all; at++)
            k->state[at] = k->state[at] == GATHERED ? WHOLE : k->state[at];
    if (in.op == SCHED_UPDATE || in.op == SCHED_GATHER || in.op == SCHED_DROP)
        return change(k, i);
    if (in.op >= SCHED_COMPUTE_OPS)
        return ERR_OK;
    TRY(use(k, i, in.stage, in.seg));
    bool head = in.stage == s->stages - 1 && sched_begins_stage(s, in);
    return head && sched_held(s, 0, k->rank) >= 0 ? use(k, i, 0, 1) : ERR_OK;
}

static enum err check_end(const struct weights *k)
{
    const struct sched *s = k->c->s;
    for (int h = 0; h < s->replicas * s->stages; h++)
        for (int64_t at = k->first[h]; at < k->first[h + 1]; at++)
            if (s->place[h] == k->rank && k->state[at] != WHOLE)
                return sched_broken(
                    k->c, k->rank, s->begin[k->rank + 1] - 1,
                    "the list ends and weights of stage %d are not whole here; %s", h % s->stages,
                    k->state[at] == OWN ? "gather them, and end it with WAIT" : "end it with WAIT");
    return ERR_OK;
}

enum err sched_check_weights(struct sched_checker *c)
{
    const struct sched *s = c->s;
    int holdings = s->replicas * s->stages;
    struct weights k = {.c = c};
    enum err err = ERR_OK;
    if (!sched_has(s, SCHED_UPDATE) && !sched_has(s, SCHED_GATHER) && !sched_has(s, SCHED_DROP))
        return ERR_OK;
    TRY(mem_new(holdings + 1, sizeof *k.first, "schedule weights", &k.first));
    for (int h = 0; h < holdings; h++)
        k.first[h + 1] = k.first[h] + s->segments[h % s->stages];
    TRY_OR(out, mem_new(k.first[holdings], 1, "schedule weights", &k.state));
    for (k.rank = 0; k.rank < s->p && err == ERR_OK; k.rank++) {
        for (int64_t i = s->begin[k.rank]; i < s->begin[k.rank + 1] && err == ERR_OK; i++)
            err = take(&k, i);
        if (err == ERR_OK)
            err = check_end(&k);
    }
out:
    mem_free(k.first);
    mem_free(k.state);
    return err;
}
