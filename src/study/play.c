/* SPDX-License-Identifier: Apache-2.0
 *
 * name -> schedule -> lowered -> proved -> played. With a model the first three are those of
 * training (setup_make), so that memory and costs are of the very program that would run.
 */
#include "study/play.h"

#include "base/mem.h"
#include "config/costs.h"
#include "config/options.h"
#include "config/schedule.h"
#include <string.h>

/* ---- costs ---- */

/* Factors, one a stage, which multiply the times of F, B, I and W: 1,1,1.5,1. */
static enum err read_factors(const char *list, struct played *x)
{
    const char *at = list, *stop = list + strlen(list);
    char word[COSTS_WORD];
    int n = 0;
    TRY(mem_new(x->s->stages, sizeof *x->scale, "factors of stages", &x->scale));
    for (;; n++) {
        double factor;
        if (!costs_word(&at, stop, ",", word) || !costs_time(word, &factor))
            FAIL(ERR_CONFIG,
                 "simulation: factor %d in scale \"%.80s\" is not a number from 0 to 1e100; write "
                 "one a stage, separated by commas",
                 n + 1, list);
        if (n < x->s->stages)
            x->scale[n] = factor;
        if (at == stop)
            break;
        at++;
    }
    if (n + 1 != x->s->stages)
        FAIL(ERR_CONFIG,
             "simulation: scale has %d factor%s, and the schedule has %d stage%s; write "
             "one a stage",
             n + 1, text_plural(n + 1, "s"), x->s->stages, text_plural(x->s->stages, "s"));
    return ERR_OK;
}

/* The file (costs.c), which the schedule may be made for. */
static enum err read_costs(const struct play_args *a, int stages, struct played *x)
{
    const struct plait_sim *s = a->sim;
    if (s->tf != 0 || s->tb != 0 || s->ti != 0 || s->tw != 0 || s->tr != 0)
        FAIL(ERR_CONFIG,
             "simulation: a costs file has all times in it; leave tf, tb, ti, tw, tr out");
    enum err err = costs_read(s->costs, stages, &x->time);
    if (err != ERR_OK)
        return err_set(err, __FILE__, __LINE__, "simulation: %s", err_bare(err_text()));
    return ERR_OK;
}

/* ---- the schedule ---- */

/* A generator's refusal in the words of the command line. */
static enum err refused(void)
{
    char buf[SCHEDULE_SAID];
    return err_set(ERR_CONFIG, __FILE__, __LINE__, "%s",
                   schedule_say(err_text(), SCHEDULE_OPTIONS, buf));
}

/* By name, for the costs given; without any, one that looks at costs has its own order. */
static enum err make_named(const struct play_args *a, const struct sched_shape *shape,
                           struct played *x)
{
    const struct plait_sim *s = a->sim;
    const struct sim_cost *c = &x->cost;
    double stage = a->share ? 1.0 / shape->v : 1;
    struct sched_cost cost = {.tf = c->tf * stage, .ti = c->ti * stage, .tw = c->tw * stage,
                              .tc = c->latency, .keep = s->keep != 0 ? s->keep : 0.5,
                              .limit = a->share ? a->limit * shape->v : a->limit};
    bool legal = shape->p > 0 && shape->v > 0 && (int64_t)shape->p * shape->v <= SCHED_MAX_STAGES;
    bool looks = s->tf != 0 || s->ti != 0 || s->tw != 0 || s->keep != 0 || s->costs ||
                 a->limit != 0 || c->latency != 0;
    if (s->costs && legal) /* else the schedule says what is wrong */
        TRY(read_costs(a, shape->p * shape->v, x));
    cost.stage = (const double(*)[SCHED_COMPUTE_OPS])x->time;
    enum err err = sched_make(a->schedule, shape, looks ? &cost : NULL, &x->made);
    return err == ERR_CONFIG ? refused() : err;
}

static enum err make_schedule(const struct play_args *a, struct played *x)
{
    struct sched *out = &x->made;
    if (!a->schedule)
        FAIL(ERR_CONFIG,
             "simulation: no schedule is named; use one of plait sim --list or a file");
    if (play_path(a->schedule))
        return play_read_file(play_path(a->schedule), a, out);
    const struct sched_kind *kind = sched_kind_find(a->schedule);
    int v = a->v ? a->v : kind && kind->chunks ? kind->chunks : 1;
    struct sched_shape shape = {.p = a->p, .m = a->m, .v = v, .group = a->group};
    TRY(play_fits(a, v, 0));
    if (a->slices == 0)
        return make_named(a, &shape, x);
    enum err err = sched_make_sliced(a->schedule, &shape, a->slices, out);
    return err == ERR_CONFIG ? refused() : err;
}

static enum err prove(const struct play_args *a, struct played *x)
{
    struct sched *s = &x->made;
    TRY(make_schedule(a, x));
    if (a->sim->recompute != 0) {
        struct sched plain = *s;
        *s = (struct sched){0};
        enum err err = sched_recompute(&plain, s);
        sched_free(&plain);
        TRY(err);
    }
    if (!s->lowered) {
        TRY(sched_lower(s, &(struct sched_lower_args){.step = a->whole && !s->forward_only},
                        &x->lowered));
        s = &x->lowered;
    }
    x->s = s;
    x->report = &x->own_report;
    return sched_check(s, &x->own_report);
}

static struct sim_cost default_costs(const struct plait_sim *a, const struct caps_link *link)
{
    struct sim_cost c = {.tf = a->tf, .tb = a->tb, .ti = a->ti, .tw = a->tw, .tr = a->tr,
                         .tov = a->tov, .latency = link->latency, .bandwidth = link->bandwidth,
                         .bytes = a->bytes};
    c.tf = c.tf != 0 ? c.tf : 1;
    c.ti = c.ti != 0 ? c.ti : c.tf;
    c.tw = c.tw != 0 ? c.tw : c.tf;
    c.tb = c.tb != 0 ? c.tb : c.ti + c.tw;
    c.tr = c.tr != 0 ? c.tr : c.tf;
    return c;
}

/* Chunks take 1/v of the time of a rank's share, and keep 1/v of its activations; slices of k the
 * k-th part of that. */
static enum err share_out(struct played *x)
{
    int parts = x->s->v * x->s->slices;
    if (!x->scale) {
        TRY(mem_new(x->s->stages, sizeof *x->scale, "factors of stages", &x->scale));
        for (int i = 0; i < x->s->stages; i++)
            x->scale[i] = 1;
    }
    for (int i = 0; i < x->s->stages; i++) {
        x->scale[i] /= parts;
        if (x->recompute)
            x->recompute[i] /= parts;
    }
    x->memory.activation = 1.0 / parts;
    return ERR_OK;
}

enum err play_make(const struct play_args *a, struct played *out)
{
    const struct plait_sim *s = a->sim;
    struct sim_cost *c = &out->cost;
    const struct caps_link *pp = &out->caps.axis[AXIS_PP];
    *out = (struct played){0};
    TRY(links_read("simulation", s->rates.latency, s->rates.bandwidth, s->rates.memory_bandwidth,
                   &out->caps));
    if (out->caps.memory > 0 && !s->model)
        FAIL(ERR_CONFIG, "simulation: memory bandwidth of %g bytes a unit of time is for the "
                         "weights of a model, and there is none; give one (--model FILE), or leave "
                         "it out", out->caps.memory);
    for (int i = 0; i < AXIS_COUNT && !s->model; i++) /* there are pipeline ranks alone */
        if (out->caps.axis[i].latency != pp->latency ||
            out->caps.axis[i].bandwidth != pp->bandwidth)
            FAIL(ERR_CONFIG, "simulation: a rate of %s is not that of pp, and without a model "
                             "(--model FILE) ranks differ on pp alone; write one number",
                 mesh_axis_name((enum axis)i));
    if ((s->scale != NULL) + (s->costs != NULL) + (s->model != NULL) > 1)
        FAIL(ERR_CONFIG, "simulation: scale, costs and model each say what stages cost; use one, "
                         "or a model whose configuration has parallel.costs");
    *c = default_costs(s, pp);
    TRY(s->model ? play_model(a, out) : prove(a, out));
    if (c->bandwidth > 0 && !(c->bytes > 0) && !s->model) /* whose one stage sends nothing */
        FAIL(ERR_CONFIG, "simulation: bandwidth %g needs the size of a message; add bytes "
                         "(--bytes), or a model (--model)", c->bandwidth);
    if (s->bytes > 0 && c->bandwidth == 0)
        FAIL(ERR_CONFIG, "simulation: messages of %g bytes need the speed of a link; add bandwidth "
                         "(--bandwidth), in bytes a unit of time", s->bytes);
    if (s->scale)
        TRY(read_factors(s->scale, out));
    else if (s->costs && !out->time)
        TRY(read_costs(a, out->s->stages, out));
    if (a->share && out->s->v * out->s->slices > 1)
        TRY(share_out(out));
    c->stage_scale = out->scale;
    c->recompute_scale = out->recompute;
    c->stage_time = (const double(*)[SCHED_COMPUTE_OPS])out->time;
    if (out->modelled)
        TRY(play_inside(out));
    return sim_run(out->s, out->report, c, a->events, &out->result);
}

const int *play_peaks(const struct played *x)
{
    return sched_has(x->s, SCHED_R) ? x->result.full_peak : x->result.peak;
}

double play_kept(const struct played *x)
{
    int peak = 0;
    for (int rank = 0; rank < x->result.p; rank++)
        peak = (int)num_max(peak, play_peaks(x)[rank]);
    return (double)peak / (x->s->v * x->s->slices);
}

void play_free(struct played *x)
{
    sched_free(&x->made);
    sched_free(&x->lowered);
    sched_report_free(&x->own_report);
    if (x->modelled)
        setup_free(&x->setup);
    mem_free(x->scale);
    mem_free(x->recompute);
    mem_free(x->time);
    mem_free(x->bytes);
    mem_free(x->ends);
    mem_free(x->inside);
    sim_result_free(&x->result);
    *x = (struct played){0};
}
