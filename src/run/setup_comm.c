/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks have to do with one another, of what is planned: groups, what a step starts in them.
 */
#include "run/setup.h"

#include "comm/comm.h"
#include "parallel/dp.h"

/* Do GPUs move by copies what n of them have between them? */
static bool copies(const struct setup *s, int n, bool apart)
{
    return options_device(s->o) == DEV_CUDA && !apart && !s->o->env.no_copies &&
           comm_would_copy((enum comm_kind)s->o->train.transport, n);
}

/* Bytes of gradients that are worth a sum (parallel/dp.c). */
static int64_t bucket_bytes(const struct setup *s)
{
    if (options_device(s->o) != DEV_CUDA)
        return 0;
    return copies(s, s->mesh.size[AXIS_DP], s->apart) ? DP_BUCKET_COPIES : DP_BUCKET_NCCL;
}

enum err setup_plan_comm(struct setup *s, int pp)
{
    struct group *g = s->groups[pp];
    struct traffic_args a = {
        .of = {.model = &s->model, .split = s->split, .mesh = &s->mesh, .sched = &s->sched,
               .cut = s->cut, .types = s->types, .samples = s->samples,
               .shares = (int)s->decided[DECIDED_ZERO].value, .ahead = s->report.ahead,
               .beside = s->decided[DECIDED_OVERLAP].value > 0},
        .group = g, .share = s->share, .rows = s->decided[DECIDED_OVERLAP].value,
        .steps = copies(s, s->split.tp, s->tp_apart), .bucket = bucket_bytes(s)};
    groups_make(&a.of, pp, g);
    for (int k = 0; k < GROUP_KINDS; k++)
        g[k].scratch = comm_scratch_bytes((enum comm_kind)s->o->train.transport, g[k].members,
                                          g[k].max_bytes);
    return traffic_plan(&a, pp, &s->traffic[pp]);
}
