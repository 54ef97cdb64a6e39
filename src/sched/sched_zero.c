/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates that data ranks share (ZeRO stage 1; Rajbhandari et al.: ZeRO, 2020) as a pass over the
 * program. Each rank updates what it owns, and all gather the weights; while a segment's are on
 * their way the next one is updated:
 *
 *     NORM STEP    ->    NORM 0.1UPDATE 0.1GATHER 0.2UPDATE 0.2GATHER 1UPDATE 1GATHER WAIT
 */
#include "sched/sched_build.h"

enum err sched_zero(const struct sched *s, struct sched *out)
{
    struct sched_build b;
    if (!s->lowered)
        FAIL(ERR_INTERNAL, "schedule %s is not lowered and has no step to share", s->name);
    sched_build_from(&b, s);
    for (int rank = 0; b.err == ERR_OK && rank < s->p; rank++) {
        sched_build_rank(&b);
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            if (s->instr[i].op != SCHED_STEP) {
                sched_build_copy(&b, s->instr[i]);
                continue;
            }
            /* In the order of the stages, those of the second replica behind all of the first. */
            for (int h = 0; h < s->replicas * s->stages; h++) {
                int stage = h % s->stages, segments = s->segments[stage];
                for (int seg = 1; s->place[h] == rank && seg <= segments; seg++) {
                    struct sched_instr in = {.op = SCHED_UPDATE, .stage = (uint16_t)stage,
                                             .seg = (uint8_t)(segments > 1 ? seg : 0)};
                    sched_build_copy(&b, in);
                    in.op = SCHED_GATHER;
                    sched_build_copy(&b, in);
                }
            }
            sched_build_add(&b, SCHED_WAIT, 0, 0);
        }
    }
    return sched_build_done(&b, out);
}
