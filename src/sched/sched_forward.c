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
 * Going through all microbatches of a chunk before the next chunk would be simpler, but then m
 * activations lie between the two; with fewer buffers, senders wait for receivers that wait for
 * them.
 *
 * A stage stays at most AHEAD microbatches before the one behind it, which bounds the memory.
 * A later microbatch never goes before an earlier one, so a list of fewer is a list of more with
 * the last ones left out. When that is done after lowering (sched_first), what remains can take the
 * very course that it takes in the whole list, in the same buffers.
 */
#include "sched/sched_build.h"

#include "base/mem.h"
#include <string.h>

enum { AHEAD = 2, NONE = -1 };

struct forward {
    const struct sched *s;
    int *last;       /* owned; [p] the last stage on a rank, NONE: it has none */
    int *below;      /* owned; [stages] the stage before this one on the same rank, or NONE */
    int *done;       /* owned; [stages] microbatches run so far */
    int *there;      /* owned; [stages] the same before this tick */
    uint16_t *order; /* owned; [stages * m] stages in the order of each rank, rank after rank */
    int64_t *end;    /* owned; [p] in order */
};

static int choose(const struct forward *f, int rank)
{
    int m = f->s->m;
    for (int stage = f->last[rank]; stage != NONE; stage = f->below[stage]) {
        int mb = f->done[stage];
        bool fed = stage == 0 || f->there[stage - 1] > mb;
        bool room = stage + 1 == f->s->stages || mb < f->there[stage + 1] + AHEAD;
        if (mb < m && fed && room)
            return stage;
    }
    return NONE;
}

/* Fills order. */
static void play(struct forward *f)
{
    const struct sched *s = f->s;
    int64_t left = (int64_t)s->stages * s->m, end = 0;
    for (int rank = 0; rank < s->p; rank++)
        f->last[rank] = NONE;
    for (int stage = 0; stage < s->stages; stage++) {
        f->below[stage] = f->last[s->place[stage]];
        f->last[s->place[stage]] = stage;
    }
    for (int rank = 0; rank < s->p; rank++) {
        f->end[rank] = end;
        for (int stage = f->last[rank]; stage != NONE; stage = f->below[stage])
            end += s->m;
    }
    while (left > 0) { /* the last stage that is not done can always run: each tick runs some */
        for (int rank = 0; rank < s->p; rank++) {
            int stage = choose(f, rank);
            if (stage == NONE)
                continue;
            f->order[f->end[rank]++] = (uint16_t)stage;
            f->done[stage]++;
            left--;
        }
        memcpy(f->there, f->done, (size_t)s->stages * sizeof *f->there);
    }
}

static enum err make(struct forward *f, struct sched_build *b)
{
    const struct sched *s = f->s;
    TRY(mem_new(s->p, sizeof *f->last, "the forward list", &f->last));
    TRY(mem_new(s->p, sizeof *f->end, "the forward list", &f->end));
    TRY(mem_new(s->stages, sizeof *f->below, "the forward list", &f->below));
    TRY(mem_new(s->stages, sizeof *f->done, "the forward list", &f->done));
    TRY(mem_new(s->stages, sizeof *f->there, "the forward list", &f->there));
    TRY(mem_new((int64_t)s->stages * s->m, sizeof *f->order, "the forward list", &f->order));
    play(f);
    memset(f->done, 0, (size_t)s->stages * sizeof *f->done);
    int64_t i = 0;
    for (int rank = 0; rank < s->p; rank++) {
        sched_build_rank(b);
        for (; i < f->end[rank]; i++)
            sched_build_add(b, SCHED_F, f->order[i], f->done[f->order[i]]++);
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
    mem_free(f.last);
    mem_free(f.end);
    mem_free(f.below);
    mem_free(f.done);
    mem_free(f.there);
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
