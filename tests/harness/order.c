/* SPDX-License-Identifier: Apache-2.0
 *
 * For each stage replica its microbatches in the order in which their weight gradients are added,
 * those of the second replica behind those of the first; and where there are two, who is whose,
 * for their sums are added last.
 */
#include "order.h"

#include "base/mem.h"
#include "test.h"
#include <xxhash.h>

uint64_t order_hash(const struct sched *s)
{
    int64_t units = s->forward_only ? 0 : (int64_t)s->stages * s->m;
    int second = sched_microbatches(s, 0); /* place of the second replica's first */
    uint16_t *order = NULL;
    int *done = NULL;
    CHECK_OK(mem_new(units + s->m, sizeof *order, "an order", &order));
    CHECK_OK(mem_new((int64_t)s->replicas * s->stages, sizeof *done, "an order", &done));
    for (int64_t i = 0; i < s->begin[s->p]; i++) {
        struct sched_instr in = s->instr[i];
        if ((in.op != SCHED_B && in.op != SCHED_W) || !sched_ends_stage(in))
            continue;
        int *n = &done[sched_stage_replica(s, in.stage, in.mb)];
        order[(int64_t)in.stage * s->m + (s->way[in.mb] ? second : 0) + (*n)++] = in.mb;
    }
    for (int mb = 0; s->replicas > 1 && mb < s->m; mb++)
        order[units + mb] = s->way[mb];
    uint64_t hash = XXH3_64bits(order, (size_t)(units + (s->replicas > 1 ? s->m : 0)) *
                                           sizeof *order);
    mem_free(order);
    mem_free(done);
    return hash;
}
