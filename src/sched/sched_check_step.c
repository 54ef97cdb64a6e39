/* SPDX-License-Identifier: Apache-2.0
 *
 * V10: all ranks step or none, and in one way. Behind NORM, which needs every gradient, stand the
 * updates of weights alone: one STEP, or an UPDATE of each segment, from the first to the last.
 */
#include "sched/sched_check.h"

#include "base/mem.h"

struct steps {
    const struct sched_checker *c;
    int rank;
    bool norm, step, update;
    uint16_t *next; /* owned; [replicas * stages] the segment that is updated next */
};

static enum err take_update(struct steps *k, int64_t i)
{
    const struct sched *s = k->c->s;
    struct sched_instr in = s->instr[i];
    int segments = s->segments[in.stage];
    uint16_t *next = &k->next[sched_held(s, in.stage, k->rank)];
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

static enum err take(struct steps *k, int64_t i)
{
    int op = k->c->s->instr[i].op;
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
    return op == SCHED_UPDATE ? take_update(k, i) : ERR_OK;
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

/* As rank 0 does. */
static enum err check_alike(const struct steps *k, const struct steps *first)
{
    int64_t last = k->c->s->begin[k->rank + 1] - 1;
    if (k->norm != first->norm)
        return sched_broken(k->c, k->rank, last,
                            k->norm
                                ? "rank 0 does not step, this one does; let all or none"
                                : "rank 0 steps, this one does not; end its list with NORM, STEP");
    if (k->update != first->update)
        return sched_broken(k->c, k->rank, last,
                            "rank 0 steps by %s, this one by %s; let all do "
                            "the same",
                            first->update ? "UPDATE" : "STEP", k->update ? "UPDATE" : "STEP");
    return ERR_OK;
}

enum err sched_check_step(struct sched_checker *c)
{
    const struct sched *s = c->s;
    int holdings = s->replicas * s->stages;
    struct steps first = {0}, k = {.c = c};
    enum err err = ERR_OK;
    TRY(mem_new(holdings, sizeof *k.next, "schedule steps", &k.next));
    for (int h = 0; h < holdings; h++)
        k.next[h] = 1;
    for (int rank = 0; rank < s->p && err == ERR_OK; rank++) {
        k = (struct steps){.c = c, .rank = rank, .next = k.next};
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1] && err == ERR_OK; i++)
            err = take(&k, i);
        if (err == ERR_OK)
            err = check_whole(&k);
        if (rank == 0)
            first = k;
        if (err == ERR_OK)
            err = check_alike(&k, &first);
    }
    mem_free(k.next);
    return err;
}
