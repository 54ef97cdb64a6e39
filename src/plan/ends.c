/* SPDX-License-Identifier: Apache-2.0
 *
 * The walk over the program is that of its traffic, which says for each instruction what it starts
 * and moves; here that becomes time.
 */
#include "plan/ends.h"

#include "base/mem.h"

struct rates {
    const struct traffic_args *a;
    const struct caps *c;
    double *each;
};

static struct caps_link link_of(const struct traffic_args *a, const struct caps *c,
                                enum group_kind g)
{
    return caps_across(c, a->of.mesh, a->group[g].axes);
}

static void add_said(void *arg, int64_t i, enum group_kind g, enum traffic_kind k, int64_t bytes)
{
    struct rates *x = arg;
    struct caps_link l = link_of(x->a, x->c, g);
    x->each[i] += caps_time(&l, k, x->a->group[g].members, (struct traffic){1, bytes});
}

static void add_moved(void *arg, int64_t i, int64_t bytes)
{
    struct rates *x = arg;
    if (x->c->memory > 0)
        x->each[i] += (double)bytes / x->c->memory;
}

/* Layers of the segment, or stage, that an instruction works on. */
static struct model_stage layers_of(const struct model_stage *st, const struct segments *g,
                                    struct sched_instr in)
{
    struct model_stage own = *st;
    int first, end;
    segments_range(g, model_stage_parts(st), in.seg, &first, &end);
    own.first = st->first + first;
    own.end = st->first + end;
    return own;
}

void ends_shares(const struct model *m, const struct sched *s, const struct model_stage *cut,
                 const struct segments *segments, double *each)
{
    for (int64_t i = 0; i < s->begin[s->p]; i++) {
        struct sched_instr in = s->instr[i];
        if (in.op >= SCHED_COMPUTE_OPS || in.seg == 0)
            continue;
        const struct model_stage *st = &cut[in.stage];
        struct model_stage own = layers_of(st, &segments[in.stage], in);
        bool again = in.op == SCHED_R;
        double all = model_flops(m, st, again);
        each[i] = all > 0 ? model_flops(m, &own, again) / all : 0;
    }
}

enum err ends_plan(const struct traffic_args *a, int pp, const struct caps *c, double *each)
{
    struct rates x = {a, c, each};
    const struct traffic_ends ends = {&x, add_said, add_moved};
    const struct sched *s = a->of.sched;
    double wide = c->axis[AXIS_PP].bandwidth;
    struct traffic_args asked = *a;
    struct step_traffic unused;
    asked.ends = &ends;
    for (int64_t i = s->begin[pp]; i < s->begin[pp + 1] && wide > 0; i++)
        if (s->instr[i].op == SCHED_SEND_F || s->instr[i].op == SCHED_SEND_B)
            each[i] = (double)traffic_message_bytes(a, s->instr[i]) / wide;
    return traffic_plan(&asked, pp, &unused);
}

/* ---- inside actions ---- */

struct inside {
    const struct traffic_args *a;
    struct caps_link link;
    double a_flop; /* what a FLOP of this rank takes; 0: nothing runs beside */
    double late;   /* of what was told last the time behind the GEMMs beside it; < 0: it is early */
    struct sim_inside *to;
};

static void add_inside(void *arg, enum traffic_kind k, struct traffic t, double beside,
                       double shared)
{
    struct inside *x = arg;
    double time = caps_time(&x->link, k, x->a->of.split.tp, t);
    double taken = fmin(fmax(0, x->late + shared * x->a_flop), shared * x->a_flop);
    x->late = time - (beside * x->a_flop - taken);
    x->to->all += time;
    x->to->exposed += fmax(0, x->late);
}

enum err ends_inside(const struct traffic_args *a, int pp, const struct caps *c,
                     const double (*time)[SCHED_COMPUTE_OPS], struct sim_inside *inside)
{
    const struct sched *s = a->of.sched;
    struct inside x = {.a = a, .link = link_of(a, c, GROUP_TP)};
    int64_t *whole; /* the first action of each kind that is not cut, and 1: others are like it */
    TRY(mem_new((int64_t)s->stages * SCHED_COMPUTE_OPS * 2, sizeof *whole, "costs of actions",
                &whole));
    for (int64_t i = s->begin[pp]; i < s->begin[pp + 1]; i++) {
        struct sched_instr in = s->instr[i];
        if (in.op >= SCHED_COMPUTE_OPS)
            continue;
        int64_t *like = &whole[(in.stage * SCHED_COMPUTE_OPS + in.op) * 2 + traffic_short(a, in)];
        if (in.seg == 0 && *like > 0) {
            inside[i] = inside[*like - 1];
            continue;
        }
        const struct model_stage *st = &a->of.cut[in.stage];
        struct model_stage own = layers_of(st, &a->segments[in.stage], in);
        struct model_said said = {.each = add_inside, .arg = &x};
        /* A whole backward has the FLOPs of two forwards, its halves those of one each. */
        double flops = model_flops(a->of.model, st, in.op == SCHED_R) * (double)a->of.samples /
                       a->of.split.tp * (in.op == SCHED_B ? 2 : 1);
        x.a_flop = flops > 0 && c->overlaps ? time[in.stage][in.op] / flops : 0;
        x.to = &inside[i];
        *x.to = (struct sim_inside){0};
        traffic_layers(a, &own, (enum sched_op)in.op, traffic_short(a, in), &said);
        if (in.seg == 0)
            *like = i + 1;
    }
    mem_free(whole);
    return ERR_OK;
}
