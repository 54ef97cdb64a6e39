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

static enum err write_ranks(const struct sched *s, const uint8_t *segments, bool recompute,
                            struct sched_build *out)
{
    /* [stages] Place of the last B or W. Between that and its sum the rank computes: the list says
     * where the sum starts. */
    struct end { int64_t last; bool apart; } *end;
    int64_t computed = 0; /* the last that computes */
    bool summed = s->replicas == 1 && sched_has(s, SCHED_REDUCE);
    TRY(mem_new(s->stages, sizeof *end, "schedule segments", &end));
    for (int64_t i = 0; i < s->begin[s->p]; i++) {
        struct sched_instr in = s->instr[i];
        computed = in.op < SCHED_COMPUTE_OPS ? i : computed;
        if (in.op == SCHED_B || in.op == SCHED_W)
            end[in.stage].last = i;
        if (in.op == SCHED_REDUCE)
            end[in.stage].apart = computed != end[in.stage].last;
    }
    for (int stage = 0; (summed || recompute) && stage < s->stages; stage++)
        out->s.segments[stage] = segments[stage];
    for (int rank = 0; rank < s->p; rank++) {
        sched_build_rank(out);
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            struct sched_instr in = s->instr[i], again = in, sum = in;
            bool cut = sched_op_names_stage(in.op) && out->s.segments[in.stage] > 1;
            bool last = cut && i == end[in.stage].last;
            bool apart = cut && end[in.stage].apart;
            if (!last && !(cut && recompute && in.op == SCHED_B)) {
                bool written = (in.op == SCHED_REDUCE && !apart) || (recompute && in.op == SCHED_R);
                if (!(cut && written)) /* by its segments */
                    sched_build_copy(out, in);
                continue;
            }
            /* All segments of a backward, each with its recompute before it and its sum behind. */
            again.op = SCHED_R;
            sum.op = SCHED_REDUCE;
            sum.mb = 0;
            for (int seg = out->s.segments[in.stage]; seg > 0; seg--) {
                in.seg = again.seg = sum.seg = (uint8_t)seg;
                if (recompute)
                    sched_build_copy(out, again);
                sched_build_copy(out, in);
                if (last && summed && !apart)
                    sched_build_copy(out, sum);
            }
        }
    }
    mem_free(end);
    return out->err;
}

const char *sched_not_whole(const struct sched *s)
{
    if (sched_has(s, SCHED_I))
        return "are in halves, of which the second needs all that a forward saves";
    if (s->replicas > 1 || sched_has(s, SCHED_OVERLAP_F_B))
        return "are halves of pairs, or go both ways";
    return NULL;
}

enum err sched_segment(const struct sched *s, const uint8_t *segments, bool recompute,
                       struct sched *out)
{
    struct sched_build b;
    const char *why = recompute ? sched_not_whole(s) : NULL;
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
    sched_build_from(&b, s);
    if (b.err == ERR_OK)
        b.err = write_ranks(s, segments, recompute, &b);
    return sched_build_done(&b, out);
}
