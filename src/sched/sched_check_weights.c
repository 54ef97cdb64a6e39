/* SPDX-License-Identifier: Apache-2.0
 *
 * V10: all ranks step or none, and in one way. Behind NORM, which needs every gradient, stand the
 * updates of weights alone: one STEP, or an UPDATE of each segment, from the first to the last.
 *
 * V13: what computes has whole weights. An UPDATE leaves the new ones with their owners alone, a
 * DROP gives up what others own; GATHER starts to bring them back, and whoever computes with them
 * next, or WAIT, waits for it. At the end of the list all are whole, as at its begin; of a
 * compute-only list what is dropped at the end waits for the updates that the passes add.
 */
#include "sched/sched_check.h"

#include "base/mem.h"

struct steps {
    const struct sched_checker *c;
    int rank;
    bool norm, step, update;
    uint16_t *next; /* owned; [replicas * stages] the segment that is updated next */
};

static enum err take_step(struct steps *k, int64_t i)
{
    const struct sched *s = k->c->s;
    struct sched_instr in = s->instr[i];
    int op = in.op, segments = s->segments[in.stage];
    bool updates = op == SCHED_STEP || op == SCHED_UPDATE;
    bool behind = updates || sched_op_moves_weights(op) || op == SCHED_WAIT;
    if (updates && !k->norm)
        return sched_broken(k->c, k->rank, i,
                            "weights are updated with the norm of all gradients; "
                            "put NORM before it");
    if (k->norm && !behind)
        return sched_broken(k->c, k->rank, i,
                            "behind NORM weights are updated, and nothing else "
                            "is done; move it before NORM");
    if (updates && k->step)
        return sched_broken(k->c, k->rank, i, "STEP before it has updated all weights; remove one");
    if (op == SCHED_STEP && k->update)
        return sched_broken(k->c, k->rank, i, "weights are updated before it; remove one");
    k->norm = k->norm || op == SCHED_NORM;
    k->step = k->step || op == SCHED_STEP;
    k->update = k->update || op == SCHED_UPDATE;
    if (op != SCHED_UPDATE)
        return ERR_OK;
    uint16_t *next = &k->next[sched_stage_replica_on(s, in.stage, k->rank)];
    if (*next > segments)
        return sched_broken(k->c, k->rank, i, "all of stage %d is updated already; remove it",
                            in.stage);
    if (in.seg == 0 ? *next != 1 : in.seg != *next)
        return sched_broken(k->c, k->rank, i,
                            "of the %d segments of stage %d the next to be "
                            "updated is %d; update each once, from 1 to the last",
                            segments, in.stage, *next);
    *next = (uint16_t)(in.seg == 0 ? segments + 1 : in.seg + 1);
    return ERR_OK;
}

/* Of each stage here all segments are updated, where any is. */
static enum err check_whole(const struct steps *k)
{
    const struct sched *s = k->c->s;
    int64_t last = s->begin[k->rank + 1] - 1;
    if (k->norm && !k->step && !k->update)
        return sched_broken(k->c, k->rank, last, "the list ends without STEP behind NORM; add it");
    for (int h = 0; k->update && h < s->replicas * s->stages; h++) {
        int stage = h % s->stages, segments = s->segments[stage];
        char cell[SCHED_CELL];
        struct sched_instr in = {.op = SCHED_UPDATE, .stage = (uint16_t)stage,
                                 .seg = (uint8_t)(segments > 1 ? k->next[h] : 0)};
        if (s->place[h] == k->rank && k->next[h] <= segments)
            return sched_broken(k->c, k->rank, last, "the list ends without %s; add it",
                                sched_cell(&in, cell));
    }
    return ERR_OK;
}

enum err sched_check_step(struct sched_checker *c)
{
    const struct sched *s = c->s;
    int stage_replicas = s->replicas * s->stages;
    struct steps first = {0}, k = {.c = c};
    enum err err = ERR_OK;
    TRY(mem_new(stage_replicas, sizeof *k.next, "schedule steps", &k.next));
    for (int h = 0; h < stage_replicas; h++)
        k.next[h] = 1;
    for (int rank = 0; rank < s->p && err == ERR_OK; rank++) {
        k = (struct steps){.c = c, .rank = rank, .next = k.next};
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1] && err == ERR_OK; i++)
            err = take_step(&k, i);
        if (err == ERR_OK)
            err = check_whole(&k);
        if (rank == 0)
            first = k;
        int64_t last = s->begin[rank + 1] - 1;
        if (err == ERR_OK && k.norm != first.norm)
            err = sched_broken(c, rank, last,
                               k.norm
                                   ? "rank 0 does not step, this one does; let all or none"
                                   : "rank 0 steps, this one does not; end its list with NORM, "
                                     "STEP");
        if (err == ERR_OK && k.update != first.update)
            err = sched_broken(c, rank, last,
                               "rank 0 steps by %s, this one by %s; let all do the same",
                               first.update ? "UPDATE" : "STEP", k.update ? "UPDATE" : "STEP");
    }
    mem_free(k.next);
    return err;
}

/* ---- V13 ---- */

enum state { WHOLE, OWN, GATHERED };

/* Of a segment; GATHERED by which instruction. */
struct held {
    uint8_t state;
    int64_t by;
};

/* Of a stage replica: its first segment in `held`, how many of them are OWN, and the last
 * instruction that computed with all of them. */
struct stage_replica {
    int64_t first, own, used;
};

/* Whatever was gathered before the last WAIT, or was computed with since, is whole: so none of
 * these need go through the segments, and the time is linear in the instructions. */
struct weights {
    const struct sched_checker *c;
    int rank;
    int64_t waited;     /* the rank's last WAIT */
    struct stage_replica *of; /* owned; [replicas * stages + 1] */
    struct held *held;  /* owned */
};

static enum state state_of(const struct weights *k, int h, int64_t at)
{
    const struct held *x = &k->held[at];
    bool through = x->state == GATHERED && (x->by < k->waited || x->by < k->of[h].used);
    return through ? WHOLE : (enum state)x->state;
}

/* The segments that an instruction names: [*begin, *end) of k->held. */
static void find(const struct weights *k, int held, int seg, int64_t *begin, int64_t *end)
{
    int segments = k->c->s->segments[held % k->c->s->stages];
    *begin = k->of[held].first + (seg > 0 ? seg - 1 : 0);
    *end = seg > 0 ? *begin + 1 : *begin + segments;
}

static enum err change(struct weights *k, int64_t i)
{
    struct sched_instr in = k->c->s->instr[i];
    int64_t begin, end;
    int h = sched_stage_replica_on(k->c->s, in.stage, k->rank);
    bool lowered = k->c->s->lowered;
    if (in.seg > k->c->s->segments[in.stage])
        return sched_broken(k->c, k->rank, i, "stage %d has segments up to %d; use one of these",
                            in.stage, k->c->s->segments[in.stage]);
    find(k, h, in.seg, &begin, &end);
    for (int64_t at = begin; at < end; at++) {
        enum state state = state_of(k, h, at);
        if (in.op == SCHED_GATHER && state == WHOLE && !lowered)
            continue; /* the lowering leaves it out */
        if (in.op == SCHED_GATHER && state != OWN)
            return sched_broken(k->c, k->rank, i,
                                state == WHOLE ? "the weights are whole here; remove it"
                                               : "they are being gathered already; remove it");
        if (in.op != SCHED_GATHER && state == GATHERED)
            return sched_broken(k->c, k->rank, i,
                                lowered ? "the weights are still being gathered; put WAIT before it"
                                        : "nothing has used the weights that are gathered; remove "
                                          "it");
        if (in.op == SCHED_DROP && state == OWN)
            return sched_broken(k->c, k->rank, i, "others' weights are not here; remove it");
        k->held[at] = (struct held){in.op == SCHED_GATHER ? GATHERED : OWN, i};
        k->of[h].own += (in.op != SCHED_GATHER) - (state == OWN);
    }
    return ERR_OK;
}

/* Computing waits for the gathers of what it uses. A head may share the matrix of the embedding
 * that stands on its rank. */
static enum err use(struct weights *k, int64_t i, int stage, int seg)
{
    int64_t begin, end;
    int h = sched_stage_replica_on(k->c->s, stage, k->rank);
    find(k, h, seg, &begin, &end);
    if (end - begin > 1 ? k->of[h].own > 0 : state_of(k, h, begin) == OWN)
        return sched_broken(k->c, k->rank, i,
                            "it computes with weights of stage %d that are not "
                            "whole here; put %d%s before it",
                            stage, stage, k->c->s->lowered ? "GATHER" : "UNSHARD");
    if (end - begin > 1)
        k->of[h].used = i;
    else
        k->held[begin].state = WHOLE;
    return ERR_OK;
}

enum err sched_check_weights(struct sched_checker *c)
{
    const struct sched *s = c->s;
    int stage_replicas = s->replicas * s->stages;
    struct weights k = {.c = c};
    enum err err = ERR_OK;
    if (!sched_has(s, SCHED_UPDATE) && !sched_has(s, SCHED_GATHER) && !sched_has(s, SCHED_DROP))
        return ERR_OK;
    TRY(mem_new(stage_replicas + 1, sizeof *k.of, "schedule weights", &k.of));
    for (int h = 0; h < stage_replicas; h++)
        k.of[h + 1].first = k.of[h].first + s->segments[h % s->stages];
    TRY_OR(out, mem_new(k.of[stage_replicas].first, sizeof *k.held, "schedule weights", &k.held));
    for (k.rank = 0; k.rank < s->p && err == ERR_OK; k.rank++) {
        k.waited = -1;
        for (int64_t i = s->begin[k.rank]; i < s->begin[k.rank + 1] && err == ERR_OK; i++) {
            struct sched_instr in = s->instr[i];
            k.waited = in.op == SCHED_WAIT ? i : k.waited;
            if (sched_op_moves_weights(in.op))
                err = change(&k, i);
            if (in.op >= SCHED_COMPUTE_OPS)
                continue;
            err = use(&k, i, in.stage, in.seg);
            bool head = in.stage == s->stages - 1 && sched_begins_stage(s, in);
            if (err == ERR_OK && head && sched_stage_replica_on(s, 0, k.rank) >= 0)
                err = use(&k, i, 0, 1);
        }
        for (int64_t h = 0, at = 0; h < stage_replicas; h++) /* the list has ended */
            for (; at < k.of[h + 1].first && err == ERR_OK; at++) {
                enum state state = state_of(&k, (int)h, at);
                if (!s->lowered || s->place[h] != k.rank || state == WHOLE)
                    continue; /* not lowered: the updates are to come */
                err = sched_broken(c, k.rank, s->begin[k.rank + 1] - 1,
                                   "the list ends and weights of stage %d are not whole here; %s",
                                   (int)h % s->stages,
                                   state == OWN ? "gather them, and end it with WAIT"
                                                : "end it with WAIT");
            }
    }
out:
    mem_free(k.of);
    mem_free(k.held);
    return err;
}
