/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of gradients that start while the backward before them still computes. The last weight
 * gradients of a stage complete its sums, those of its last layers first; so the instruction that
 * makes them is cut in segments, runs of layers, and each segment's sum starts behind it:
 *
 *     0B6 0B7 0REDUCE WAIT    ->    0B6 0.3B7 0.3REDUCE 0.2B7 0.2REDUCE 0.1B7 0.1REDUCE WAIT
 *
 * (Li et al.: PyTorch Distributed, 2020, calls a segment's gradients a bucket.) The segments stand
 * in a row, so nothing else need know that what lies between them is half done. It is no half of a
 * pair: when a stage has its last gradient, no forward is left. The stages of two replicas stay
 * whole: their sums wait for what a rank does for the other replica. So does a sum that the list
 * has elsewhere than behind its last gradient.
 *
 * With recompute by segments every backward is cut, and each segment makes what it needs right
 * before it (Chen et al.: Training Deep Nets with Sublinear Memory Cost, 2016): of a microbatch the
 * segments' inputs are kept, and one of them at a time has all.
 */
#include "sched/sched_build.h"

#include "base/mem.h"

struct cutting {
    const struct sched *s;
    const uint8_t *segments; /* borrowed; [stages] */
    bool *apart;             /* owned; [stages] between the last gradient and its sum the rank
                                computes: the list says where the sum starts */
    bool summed, redo;
    struct sched_build out;
};

/* All segments of a backward, each with its recompute before it and its sum behind it. */
static void add_segments(struct cutting *k, struct sched_instr in, bool last)
{
    for (int seg = k->segments[in.stage]; seg > 0; seg--) {
        struct sched_instr redo = in, sum = {.op = SCHED_REDUCE, .stage = in.stage};
        in.seg = redo.seg = sum.seg = (uint8_t)seg;
        redo.op = SCHED_R;
        if (k->redo)
            sched_build_copy(&k->out, redo);
        sched_build_copy(&k->out, in);
        if (last && k->summed && !k->apart[in.stage])
            sched_build_copy(&k->out, sum);
    }
}

static enum err write_ranks(struct cutting *k)
{
    const struct sched *s = k->s;
    int64_t *last; /* [stages] place of the last B or W */
    int64_t computed = 0; /* the last that computes */
    TRY(mem_new(s->stages, sizeof *last, "schedule segments", &last));
    for (int64_t i = 0; i < s->begin[s->p]; i++) {
        struct sched_instr in = s->instr[i];
        computed = in.op < SCHED_COMPUTE_OPS ? i : computed;
        if (in.op == SCHED_B || in.op == SCHED_W)
            last[in.stage] = i;
        if (in.op == SCHED_REDUCE)
            k->apart[in.stage] = computed != last[in.stage];
    }
    k->summed = s->replicas == 1 && sched_has(s, SCHED_REDUCE);
    for (int stage = 0; (k->summed || k->redo) && stage < s->stages; stage++)
        k->out.s.segments[stage] = k->segments[stage];
    for (int rank = 0; rank < s->p; rank++) {
        sched_build_rank(&k->out);
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            struct sched_instr in = s->instr[i];
            bool cut = sched_op_names_stage(in.op) && k->out.s.segments[in.stage] > 1;
            bool ends = cut && i == last[in.stage];
            if (ends || (cut && k->redo && in.op == SCHED_B))
                add_segments(k, in, ends);
            else if (!(cut && ((in.op == SCHED_REDUCE && !k->apart[in.stage]) ||
                               (k->redo && in.op == SCHED_R))))
                sched_build_copy(&k->out, in);
        }
    }
    mem_free(last);
    return k->out.err;
}

const char *sched_not_whole(const struct sched *s)
{
    if (sched_has(s, SCHED_I))
        return "are in halves, of which the second needs all that a forward saves";
    if (s->replicas > 1 || sched_has(s, SCHED_OVERLAP_F_B))
        return "are halves of pairs, or go both ways";
    return NULL;
}

enum err sched_segment(const struct sched *s, const uint8_t *segments, bool redo,
                       struct sched *out)
{
    struct cutting k = {.s = s, .segments = segments, .redo = redo};
    const char *why = redo ? sched_not_whole(s) : NULL;
    if (why)
        FAIL(ERR_CONFIG, "schedule %s: recompute by segments is asked for, and its backwards %s; "
                         "recompute whole stages, or use a schedule of whole backwards, as 1f1b",
             s->name, why);
    if (!s->lowered)
        FAIL(ERR_INTERNAL, "schedule %s is not lowered and has no sums to cut", s->name);
    for (int stage = 0; stage < s->stages; stage++)
        if (s->segments[stage] > 1 || segments[stage] < 1)
            FAIL(ERR_INTERNAL, "schedule %s: stage %d is cut already, or in no segments", s->name,
                 stage);
    sched_build_from(&k.out, s);
    if (k.out.err == ERR_OK)
        k.out.err = mem_new(s->stages, sizeof *k.apart, "schedule segments", &k.apart);
    if (k.out.err == ERR_OK)
        k.out.err = write_ranks(&k);
    mem_free(k.apart);
    return sched_build_done(&k.out, out);
}
