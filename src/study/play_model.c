/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulation of a configured model. The configuration is read as `plait check` reads it, a file
 * and key=value words; what else is asked for (schedule, p, m, v; a file says its own) replaces
 * what it says, and the number of samples of a step follows from m. From there on everything is
 * what training sets up: the cut, the instructions with their reductions and step, each rank's
 * bytes.
 *
 *     times     in proportion to the FLOPs of a stage, tf that of an average one; with
 *               parallel.costs those of that file
 *     messages  what stands between two stages, of a microbatch
 *     memory    all of a rank's bytes that do not move, and its activations as they come and go
 */
#include "study/play.h"

#include "base/mem.h"
#include "check/check.h"
#include "folder/files.h"
#include "folder/init.h"
#include <stdio.h>
#include <string.h>

/* What the command line says takes the place of what the configuration says; a schedule's file says
 * its own shape. */
static enum err read_options(const struct play_args *a, struct options *o)
{
    struct file_use in[FILES_OPTIONS];
    const char *path = a->schedule ? play_path(a->schedule) : NULL;
    int m = a->m;
    TRY(options_fresh(o));
    TRY(conf_read_file(&options_table, o, a->sim->model));
    for (int i = 0; i < a->sim->sets; i++)
        TRY(conf_set(&options_table, o, a->sim->set[i]));
    /* None of the files that will be written is one that the configuration names: asked before a
     * schedule of the call takes the place of its own. */
    int n = files_of_options(o, in);
    TRY(files_apart("simulation", a->sim->svg, in, n));
    TRY(files_apart("simulation", a->sim->html, in, n));
    TRY(files_apart("simulation", a->sim->perfetto, in, n));
    if (a->sim->keep != 0)
        FAIL(ERR_CONFIG, "simulation: training keeps an activation whole until its W; leave --keep "
                         "out, or --model");
    if (a->schedule) {
        n = snprintf(o->parallel.schedule, sizeof o->parallel.schedule, "%s%s",
                     path ? "file:" : "", path ? path : a->schedule);
        if (n >= (int)sizeof o->parallel.schedule)
            FAIL(ERR_CONFIG, "simulation: \"%.80s\" is not the name of a schedule", a->schedule);
    }
    if (a->sim->recompute != 0 && o->train.recompute == OPTIONS_RECOMPUTE_NONE)
        o->train.recompute = OPTIONS_RECOMPUTE_FULL;
    if (a->p)
        o->parallel.pp = a->p;
    if (a->v)
        o->parallel.chunks = a->v;
    if (a->group)
        o->parallel.group = a->group;
    if (a->limit != 0)
        o->parallel.memory_limit = a->share ? a->limit * (double)options_chunks(o) : a->limit;
    if (path) {
        struct sched s;
        TRY(play_read_file(path, a, &s));
        m = s.m;
        o->parallel.pp = s.p;
        o->parallel.chunks = s.v;
        sched_free(&s);
    }
    if (m && (!num_mul(m, o->parallel.microbatch, &o->train.batch) ||
              !num_mul(o->train.batch, o->parallel.dp, &o->train.batch)))
        FAIL(ERR_CONFIG, "simulation: %d microbatches of %lld samples on %lld data ranks are too "
                         "many", m, (long long)o->parallel.microbatch, (long long)o->parallel.dp);
    if (o->parallel.costs[0] && (a->sim->tf != 0 || a->sim->tb != 0 || a->sim->ti != 0 ||
                                 a->sim->tw != 0 || a->sim->tr != 0))
        FAIL(ERR_CONFIG, "simulation: the model's parallel.costs %.200s has all times in it; leave "
                         "tf, tb, ti, tw, tr out", o->parallel.costs);
    return ERR_OK;
}

static enum err add_bytes(struct played *x)
{
    const struct setup *u = &x->setup;
    struct buffers_args a;
    struct stage_bytes *of;
    int stages = x->s->stages, p = x->s->p;
    TRY(mem_new(3 * stages + p, sizeof *x->bytes, "bytes of stages", &x->bytes));
    TRY(mem_new(stages, sizeof *of, "bytes of stages", &of));
    setup_buffers(u, &a);
    enum err err = ERR_OK;
    for (int pp = 0; pp < p && err == ERR_OK; pp++)
        err = memory_stages(&a, pp, of);
    for (int i = 0; i < stages; i++) {
        x->bytes[i] = of[i].slot;
        x->bytes[stages + i] = of[i].saves;
        x->bytes[2 * stages + i] = of[i].keep;
    }
    mem_free(of);
    TRY(err);
    for (int i = 0; i < p; i++)
        x->bytes[3 * stages + i] =
            memory_total(&u->memory[i]) - u->memory[i].bytes[MEMORY_ACTIVATIONS];
    x->memory = (struct sim_bytes){.slot = x->bytes, .save = x->bytes + stages,
                                   .keep = x->bytes + 2 * stages, .fixed = x->bytes + 3 * stages};
    return ERR_OK;
}

enum err play_model(const struct play_args *a, struct played *x)
{
    struct options *o = &x->options;
    TRY(read_options(a, o));
    o->caps = x->caps;
    TRY(init_take(o));
    const struct sched_kind *kind = sched_kind_find(o->parallel.schedule);
    int64_t own = kind && kind->chunks ? kind->chunks : 1;
    struct play_args now = {.p = (int)o->parallel.pp,
                            .m = (int)(o->train.batch / (o->parallel.dp * o->parallel.microbatch))};
    TRY(play_fits(&now, (int)(o->parallel.chunks ? o->parallel.chunks : own), 0));
    x->modelled = true;
    TRY(check_run(o, 0, CHECK_PLAN, NULL, &x->setup));
    x->s = &x->setup.sched;
    x->report = &x->setup.report;
    TRY(add_bytes(x));
    if (x->setup.time) { /* measured times, or factors */
        TRY(mem_new(x->s->stages, sizeof *x->time, "costs of stages", &x->time));
        memcpy(x->time, x->setup.time, (size_t)x->s->stages * sizeof *x->time);
    } else {
        double sum = 0;
        TRY(mem_new(x->s->stages, sizeof *x->scale, "factors of stages", &x->scale));
        TRY(mem_new(x->s->stages, sizeof *x->recompute, "factors of stages", &x->recompute));
        for (int i = 0; i < x->s->stages; i++) {
            x->scale[i] = model_flops(&x->setup.model, &x->setup.cut[i], false);
            x->recompute[i] = model_flops(&x->setup.model, &x->setup.cut[i], true);
            sum += x->scale[i];
        }
        for (int i = 0; i < x->s->stages; i++) {
            x->scale[i] *= x->s->stages / sum;
            x->recompute[i] *= x->s->stages / sum;
        }
    }
    TRY(setup_ends(&x->setup, &x->ends)); /* no time where links and memory take none */
    x->cost.each = x->ends;
    x->cost.overlaps = setup_caps(&x->setup).overlaps;
    return ERR_OK;
}

/* Measured times have them in them. */
enum err play_inside(struct played *x)
{
    const struct caps_link *link = &x->caps.axis[AXIS_TP];
    double (*time)[SCHED_COMPUTE_OPS];
    bool known = link->latency > 0 || link->bandwidth > 0;
    if (x->setup.time || x->setup.split.tp == 1 || !known)
        return ERR_OK;
    TRY(mem_new(x->s->stages, sizeof *time, "costs of stages", &time));
    sim_times(x->s, &x->cost, time);
    enum err err = setup_inside(&x->setup, (const double(*)[SCHED_COMPUTE_OPS])time,
                                &x->inside);
    mem_free(time);
    x->cost.inside = x->inside;
    return err;
}
