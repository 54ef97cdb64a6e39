/* SPDX-License-Identifier: Apache-2.0
 *
 * Full recompute (Chen, Xu, Zhang, Guestrin: Training Deep Nets with Sublinear Memory Cost, 2016;
 * in pipelines Huang et al.: GPipe, 2019): between its forward and its backward a stage keeps of a
 * microbatch what it was given, and makes the rest again when the backward wants it.
 *
 *     1f1b, rank 0 of 2, 3 microbatches    0F0 0F1 0B0     0F2 0B1     0B2
 *     the same with recompute              0F0 0F1 0R0 0B0 0F2 0R1 0B1 0R2 0B2
 *
 * An R stands right before the B or I that reads it: earlier, what it makes would be kept for
 * nothing; later there is nothing. It waits for no other rank, so it runs while the gradient is
 * still on its way, and where a rank waits long enough for that it costs no time. Before a pair it
 * stands alone. A backward that directly follows its forward gets none, for then nothing would be
 * given back that is not taken again at once; that is all of the last rank of 1f1b.
 *
 * This pass comes behind that of canonical accumulation, which splits and moves backwards, and
 * before the lowering. The order of weight gradients, and so the bits of training, stay.
 */
#include "sched/sched_build.h"

#include "base/mem.h"

static enum err write_ranks(const struct sched *s, struct sched_build *out)
{
    bool *has; /* [stages * m] an R already? */
    TRY(mem_new((int64_t)s->stages * s->m, sizeof *has, "schedule recompute", &has));
    for (int64_t i = 0; i < s->begin[s->p]; i++)
        if (s->instr[i].op == SCHED_R)
            has[(int64_t)s->instr[i].stage * s->m + s->instr[i].mb] = true;
    for (int rank = 0; rank < s->p; rank++) {
        sched_build_rank(out);
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1];) {
            int n = s->instr[i].op == SCHED_OVERLAP_F_B ? 3 : 1;
            const struct sched_instr *in = &s->instr[i + n - 1];
            int64_t before = i + n - 2; /* the last that computes */
            while (before >= s->begin[rank] && sched_op_shards(s->instr[before].op))
                before--;
            bool backward = in->op == SCHED_B || in->op == SCHED_I;
            bool directly = before >= s->begin[rank] && s->instr[before].op == SCHED_F &&
                            s->instr[before].stage == in->stage && s->instr[before].mb == in->mb;
            if (backward && !directly && !has[(int64_t)in->stage * s->m + in->mb])
                sched_build_add(out, SCHED_R, in->stage, in->mb);
            for (int k = 0; k < n; k++, i++)
                sched_build_copy(out, s->instr[i]);
        }
    }
    mem_free(has);
    return out->err;
}

enum err sched_recompute(const struct sched *s, struct sched *out)
{
    struct sched_build b;
    if (s->lowered || s->forward_only)
        FAIL(ERR_CONFIG, "schedule %s: recompute is asked for, and the list has %s; use a list of "
                         "F and B, or of F, I and W",
             s->name, s->lowered ? "messages" : "forward passes only");
    if (s->slices > 1)
        FAIL(ERR_CONFIG, "schedule %s: recompute is asked for, and each of the %d slices of a "
                         "sequence needs the keys and values of those before it, which recompute "
                         "gives back; use slices 1, or leave recompute out",
             s->name, s->slices);
    TRY(sched_check_compute(s));
    sched_build_from(&b, s);
    if (b.err == ERR_OK)
        b.err = write_ranks(s, &b);
    return sched_build_done(&b, out);
}
