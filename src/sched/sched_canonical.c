/* SPDX-License-Identifier: Apache-2.0
 *
 * Weight gradients in one order, whatever the schedule: this pass rewrites a compute-only list so
 * that every stage adds them in the order of the microbatches, as one rank does.
 *
 *     looped-bfs, 1 rank, 3 microbatches     0F0 0F1 0F2 0B2 0B1 0B0
 *     the same, canonical                    0F0 0F1 0F2 0I2 0I1 0B0 0W1 0W2
 *
 * Only weight gradients move, and only backwards; nothing else waits for them, so no move makes a
 * cycle. What it costs in memory the check counts. Forwards of the last stage out of order, and a
 * tied head on the rank of its embedding, are refused (docs/design/passes.md).
 */
#include "sched/sched_build.h"

#include "base/mem.h"
#include "base/num.h"

struct canonical {
    const struct sched *s;
    struct sched_build out;
    /* owned; [m] of a microbatch: its place among those that go its way; of that place in the rows
     * of each way: the microbatch that has it */
    struct order { int turn, at[SCHED_MAX_REPLICAS]; } *order;
    int count[SCHED_MAX_REPLICAS]; /* microbatches of each way */
    int *added; /* owned; [replicas * stages] gradients that a stage replica has added */
    bool *late; /* owned; [stages * m] its place in the list is passed, its turn is not */
};

/* Is it the turn of this microbatch's gradient in its stage replica? */
static bool has_turn(const struct canonical *c, struct sched_instr in)
{
    return c->order[in.mb].turn == c->added[sched_stage_replica(c->s, in.stage, in.mb)];
}

/* A weight gradient, alone or in a whole backward, when the list comes to it; and then what waits
 * in its stage replica and has its turn. */
static void weight(struct canonical *c, struct sched_instr in)
{
    int way = c->s->way[in.mb], mb;
    int *added = &c->added[sched_stage_replica(c->s, in.stage, in.mb)];
    bool *late = &c->late[(int64_t)in.stage * c->s->m];
    if (!has_turn(c, in)) {
        late[in.mb] = true;
        if (in.op == SCHED_B)
            sched_build_add(&c->out, SCHED_I, in.stage, in.mb);
        return;
    }
    sched_build_add(&c->out, (enum sched_op)in.op, in.stage, in.mb);
    while (++*added < c->count[way] && late[mb = c->order[*added].at[way]])
        sched_build_add(&c->out, SCHED_W, in.stage, mb);
}

/* The gradient of the head's matrix comes with the forwards of the last stage. */
static enum err check_head(const struct sched *s, int rank)
{
    int next[SCHED_MAX_REPLICAS] = {0};
    for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
        struct sched_instr in = s->instr[i];
        int *least = &next[s->way[in.mb]];
        if (in.op != SCHED_F || in.stage != s->stages - 1)
            continue;
        if (in.mb < *least)
            FAIL(ERR_CONFIG,
                 "schedule %s: canonical accumulation needs the forwards of the last stage in the "
                 "order of the microbatches, for they add the head's gradient, and %dF%d comes "
                 "behind %dF%d; write it before",
                 s->name, in.stage, in.mb, in.stage, *least - 1);
        *least = in.mb + 1;
    }
    return ERR_OK;
}

static enum err write_ranks(struct canonical *c)
{
    const struct sched *s = c->s;
    TRY(mem_new(s->m, sizeof *c->order, "schedule order", &c->order));
    TRY(mem_new((int64_t)s->replicas * s->stages, sizeof *c->added, "schedule order", &c->added));
    TRY(mem_new((int64_t)s->stages * s->m, sizeof *c->late, "schedule order", &c->late));
    /* Microbatches rise; the slices of one fall, for its backward runs in that order. */
    for (int first = 0; first < s->m; first += s->slices)
        for (int slice = (int)num_min(s->slices, s->m - first) - 1; slice >= 0; slice--) {
            int mb = first + slice, way = s->way[mb];
            c->order[c->count[way]].at[way] = mb;
            c->order[mb].turn = c->count[way]++;
        }
    for (int rank = 0; rank < s->p; rank++) {
        sched_build_rank(&c->out);
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            struct sched_instr in = s->instr[i];
            if (in.op == SCHED_B || in.op == SCHED_W)
                weight(c, in); /* a pair without its turn is written apart */
            else if (in.op != SCHED_OVERLAP_F_B || has_turn(c, s->instr[i + 2]))
                sched_build_add(&c->out, (enum sched_op)in.op, in.stage, in.mb);
        }
    }
    for (int h = 0; !s->forward_only && h < s->replicas * s->stages; h++)
        ENSURE(c->added[h] == c->count[h / s->stages]);
    return c->out.err;
}

enum err sched_canonical(const struct sched *s, bool tied, struct sched *out)
{
    if (s->lowered)
        FAIL(ERR_INTERNAL, "schedule %s is lowered already", s->name);
    TRY(sched_check_compute(s));
    if (tied && sched_ends_meet(s))
        FAIL(ERR_CONFIG,
             "schedule %s: canonical accumulation is asked for, and a tied head on the rank of its "
             "embedding adds to the same sum, in the order of the schedule; untie them, or use a "
             "schedule whose first and last stage stand on two ranks",
             s->name);
    for (int rank = 0; rank < s->p; rank++)
        TRY(check_head(s, rank));
    struct canonical c = {.s = s};
    sched_build_from(&c.out, s);
    if (c.out.err == ERR_OK)
        c.out.err = write_ranks(&c);
    enum err err = sched_build_done(&c.out, out);
    mem_free(c.order);
    mem_free(c.added);
    mem_free(c.late);
    return err;
}
