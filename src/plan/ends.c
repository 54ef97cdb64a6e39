/* SPDX-License-Identifier: Apache-2.0
 *
 * The walk over the program is that of its traffic, which says for each instruction what it starts
 * and moves; here that becomes time.
 */
#include "plan/ends.h"

struct rates {
    const struct traffic_args *a;
    const struct ends_rates *r;
    double *each;
};

static void add_said(void *arg, int64_t i, enum group_kind g, enum traffic_kind k, int64_t bytes)
{
    struct rates *x = arg;
    double n = x->a->group[g].members, ring = (n - 1) / n;
    if (k == TRAFFIC_ALL_REDUCE || k == TRAFFIC_ALL_REDUCE_MAX)
        ring *= 2;
    x->each[i] += x->r->latency;
    if (x->r->bandwidth > 0)
        x->each[i] += ring * (double)bytes / x->r->bandwidth;
}

static void add_moved(void *arg, int64_t i, int64_t bytes)
{
    struct rates *x = arg;
    if (x->r->memory > 0)
        x->each[i] += (double)bytes / x->r->memory;
}

void ends_shares(const struct model *m, const struct sched *s, const struct model_stage *cut,
                 const struct segments *segments, double *each)
{
    for (int64_t i = 0; i < s->begin[s->p]; i++) {
        struct sched_instr in = s->instr[i];
        if (in.op >= SCHED_COMPUTE_OPS || in.seg == 0)
            continue;
        const struct model_stage *st = &cut[in.stage];
        const struct segments *g = &segments[in.stage];
        struct model_stage own = *st;
        bool again = in.op == SCHED_R;
        int first, end;
        segments_range(g, model_stage_parts(st), in.seg, &first, &end);
        own.first = st->first + first;
        own.end = st->first + end;
        double all = model_flops(m, st, again);
        each[i] = all > 0 ? model_flops(m, &own, again) / all : 0;
    }
}

enum err ends_plan(const struct traffic_args *a, int pp, const struct ends_rates *r, double *each)
{
    struct rates x = {a, r, each};
    const struct traffic_ends ends = {&x, add_said, add_moved};
    struct traffic_args asked = *a;
    struct step_traffic unused;
    asked.ends = &ends;
    return traffic_plan(&asked, pp, &unused);
}
