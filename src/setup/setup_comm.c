/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks have to do with one another, of what is planned: sums of gradients by segments,
 * groups, what a step starts in them.
 * The table is of one rank: ranks that differ on other axes than the pipeline's have the same.
 */
#include "setup/setup.h"

#include "base/mem.h"
#include "comm/comm.h"

enum err setup_plan_segments(struct setup *s)
{
    struct segments_args a = {.model = &s->model, .split = s->split,
                              .element = dtype_size(s->types.at),
                              .num_shards = s->training ? (int)options_shards(s->o) : 1};
    int recompute = s->training ? s->o->train.recompute : OPTIONS_RECOMPUTE_NONE;
    /* What is worth a sum of its own, by keys alone, so that all who plan the run have one program,
     * whatever GPUs they see. */
    bool copied = comm_would_copy((enum comm_kind)s->o->train.transport, s->mesh.size[AXIS_DP]);
    if (options_device(s->o) == DEV_CUDA)
        a.bytes = copied ? SEGMENT_BYTES_COPIES : SEGMENT_BYTES_NCCL;
    if (conf_word_index(recompute) == OPTIONS_RECOMPUTE_EVERY)
        a.every = conf_word_number(recompute);
    else if (recompute == OPTIONS_RECOMPUTE_SQRT)
        a.every = SEGMENTS_SQRT;
    s->recompute = a.every != 0;
    TRY(segments_make(&a, s->cut, s->sched.stages, &s->segments));
    if (!s->recompute && (!s->training || s->mesh.size[AXIS_DP] == 1))
        return ERR_OK;
    enum err err = segments_cut(s->segments, s->recompute, a.num_shards > 1, &s->sched, &s->report);
    return err == ERR_CONFIG && s->recompute
               ? ERR(err, "train.recompute: %s", err_bare(err_text())) : err;
}

static struct traffic_args traffic_args_of(const struct setup *s, int pp)
{
    bool copied = options_device(s->o) == DEV_CUDA && !s->tp_no_p2p && !s->o->env.no_copies &&
                  comm_would_copy((enum comm_kind)s->o->train.transport, s->split.tp);
    return (struct traffic_args){.of = {.model = &s->model,
                                        .split = s->split,
                                        .mesh = &s->mesh,
                                        .sched = &s->sched,
                                        .cut = s->cut,
                                        .types = s->types,
                                        .samples = s->samples,
                                        .num_shards = (int)s->decided[DECIDED_ZERO].value,
                                        .overlapped = s->decided[DECIDED_OVERLAP].value > 0},
                                 .group = s->groups[pp],
                                 .step_samples = s->step_samples,
                                 .rows = s->decided[DECIDED_OVERLAP].value,
                                 .chunked = copied,
                                 .segments = s->segments};
}

enum err setup_plan_comm(struct setup *s, int pp)
{
    struct group *g = s->groups[pp];
    struct traffic_args a = traffic_args_of(s, pp);
    groups_make(&a.of, pp, g);
    for (int k = 0; k < GROUP_KINDS; k++)
        g[k].scratch = comm_scratch_bytes((enum comm_kind)s->o->train.transport, g[k].members,
                                          g[k].max_bytes);
    return traffic_plan(&a, pp, &s->traffic[pp]);
}

/* In host memory ranks move and add by themselves, inside calls, on every transport. */
struct caps setup_caps(const struct setup *s)
{
    struct caps c = s->o->caps;
    c.overlaps = options_device(s->o) == DEV_CUDA;
    return c;
}

enum err setup_ends(const struct setup *s, double **each)
{
    TRY(mem_new(s->sched.begin[s->sched.p], sizeof **each, "the end of a step", each));
    ends_shares(&s->model, &s->sched, s->cut, s->segments, *each);
    for (int pp = 0; pp < s->sched.p; pp++) {
        struct traffic_args a = traffic_args_of(s, pp);
        TRY(ends_plan(&a, pp, &s->o->caps, *each));
    }
    return ERR_OK;
}

enum err setup_inside(const struct setup *s, const double (*time)[SCHED_COMPUTE_OPS],
                      struct sim_inside **inside)
{
    struct caps caps = setup_caps(s);
    TRY(mem_new(s->sched.begin[s->sched.p], sizeof **inside, "costs of actions", inside));
    for (int pp = 0; pp < s->sched.p; pp++) {
        struct traffic_args a = traffic_args_of(s, pp);
        TRY(ends_inside(&a, pp, &caps, time, *inside));
    }
    return ERR_OK;
}

/* The pipeline rank that starts the most bytes, and what it starts. */
static int most(const struct setup *s, struct axis_traffic *out)
{
    int at = 0;
    traffic_by_axis(&s->traffic[0], s->groups[0], out);
    for (int pp = 1; pp < s->sched.p; pp++) {
        struct axis_traffic t;
        traffic_by_axis(&s->traffic[pp], s->groups[pp], &t);
        if (traffic_bytes(&t) > traffic_bytes(out)) {
            at = pp;
            *out = t;
        }
    }
    return at;
}

void setup_traffic_table(const struct setup *s, struct text *out)
{
    struct axis_traffic t;
    char buf[32];
    double time[TRAFFIC_AXES][TRAFFIC_KINDS];
    int pp = most(s, &t);
    bool timed = caps_any_link(&s->o->caps);
    if (s->mesh.world == 1)
        return;
    traffic_times(&s->traffic[pp], s->groups[pp], &s->o->caps, &s->mesh, time);
    text_add(out, "traffic a step              messages          bytes%s",
             timed ? "            ms" : "");
    if (s->sched.p > 1)
        text_add(out, "  (a rank of pp %d, which has the most)", pp);
    text_add(out, "\n");
    for (int i = 0; i < TRAFFIC_AXES; i++)
        for (int k = 0; k < TRAFFIC_KINDS; k++) {
            const struct traffic *of = &t.kind[i][k];
            if (of->messages == 0)
                continue;
            text_add(out, "  %-14s over %-5s %8lld %14lld B",
                     mesh_traffic_name((enum traffic_kind)k), traffic_axis_name(i),
                     (long long)of->messages, (long long)of->bytes);
            if (timed)
                text_add(out, " %11.3f", 1e3 * time[i][k]);
            text_add(out, "  (%s)\n", text_bytes(of->bytes, buf));
        }
}
