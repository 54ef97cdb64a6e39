/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of forward passes alone, for any placement: a pipeline played with equal times. At each
 * tick every rank runs one stage whose next microbatch is there, of several the last in the row of
 * layers, so that what is begun is brought to an end and little waits. With a loop of stages that
 * is the order of interleaved schedules, groups of p microbatches chunk by chunk; with a V, ranks
 * take their two stages in turn.
 *
 *     p 2, v 2   rank 0  0F0 0F1 2F0 2F1 0F2 0F3 2F2 2F3
 *                rank 1  ... 1F0 1F1 3F0 3F1 1F2 1F3 3F2 3F3
 *
 * A stage stays at most AHEAD microbatches before the one behind it, which bounds the memory. A
 * later microbatch never goes before an earlier one, so a list of fewer is a list of more with the
 * last ones left out (docs/design/orders.md).
 */
#include "sched/sched_build.h"

#include "base/mem.h"

enum { AHEAD = 2, NONE = -1 };

struct forward {
    const struct sched *s;
    /* owned; [p] the last stage on a rank, NONE: it has none; end of its stages in order */
    struct own { int last; int64_t end; } *rank;
    /* owned; [stages] the stage before this one on the same rank, or NONE; microbatches run so far,
     * and before this tick */
    struct run { int below, done, there; } *stage;
    uint16_t *order; /* owned; [stages * m] stages in the order of each rank, rank after rank */
};

static enum err make(struct forward *f, struct sched_build *b)
{
    const struct sched *s = f->s;
    const struct run *of;
    int64_t left = (int64_t)s->stages * s->m, end = 0, i = 0;
    TRY(mem_new(s->p, sizeof *f->rank, "the forward list", &f->rank));
    TRY(mem_new(s->stages, sizeof *f->stage, "the forward list", &f->stage));
    TRY(mem_new(left, sizeof *f->order, "the forward list", &f->order));
    for (int rank = 0; rank < s->p; rank++)
        f->rank[rank].last = NONE;
    for (int stage = 0; stage < s->stages; stage++) {
        f->stage[stage].below = f->rank[s->place[stage]].last;
        f->rank[s->place[stage]].last = stage;
    }
    for (int rank = 0; rank < s->p; rank++) {
        f->rank[rank].end = end;
        for (int stage = f->rank[rank].last; stage != NONE; stage = f->stage[stage].below)
            end += s->m;
    }
    while (left > 0) { /* the last stage that is not done can always run: each tick runs some */
        for (int rank = 0; rank < s->p; rank++) {
            int stage = f->rank[rank].last; /* that is fed, and has room in front of it */
            for (of = f->stage; stage != NONE; stage = of[stage].below)
                if (of[stage].done < s->m &&
                    (stage == 0 || of[stage - 1].there > of[stage].done) &&
                    (stage + 1 == s->stages || of[stage].done < of[stage + 1].there + AHEAD))
                    break;
            if (stage == NONE)
                continue;
            f->order[f->rank[rank].end++] = (uint16_t)stage;
            f->stage[stage].done++;
            left--;
        }
        for (int stage = 0; stage < s->stages; stage++)
            f->stage[stage].there = f->stage[stage].done;
    }
    for (int stage = 0; stage < s->stages; stage++)
        f->stage[stage].done = 0;
    for (int rank = 0; rank < s->p; rank++) {
        sched_build_rank(b);
        for (; i < f->rank[rank].end; i++)
            sched_build_add(b, SCHED_F, f->order[i], f->stage[f->order[i]].done++);
    }
    return b->err;
}

enum err sched_make_forward(const struct sched_shape *shape, const uint16_t *place,
                            struct sched *out)
{
    struct sched_build b;
    TRY(sched_shape_check("forward", shape));
    sched_build_open(&b, "forward", shape);
    b.s.forward_only = true;
    for (int stage = 0; place && b.err == ERR_OK && stage < b.s.stages; stage++)
        b.s.place[stage] = place[stage];
    struct forward f = {.s = &b.s};
    if (b.err == ERR_OK)
        b.err = make(&f, &b);
    mem_free(f.rank);
    mem_free(f.stage);
    mem_free(f.order);
    return sched_build_done(&b, out);
}

enum err sched_first(const struct sched *s, int m, struct sched *out)
{
    struct sched_build b;
    ENSURE(s->forward_only && s->replicas == 1 && m >= 1 && m <= s->m);
    sched_build_from(&b, s);
    b.s.m = m;
    for (int rank = 0; rank < s->p; rank++) {
        sched_build_rank(&b);
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++)
            if (s->instr[i].mb < m)
                sched_build_copy(&b, s->instr[i]);
    }
    return sched_build_done(&b, out);
}
