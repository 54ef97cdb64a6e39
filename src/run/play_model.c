/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulation of a configured model. The configuration is read as `plait check` reads it; what
 * the command line says (schedule, p, m, v) replaces what it says, and the number of samples of a
 * step follows from m. From there on everything is what training sets up: the cut, the instructions
 * with their reductions and step, each rank's bytes.
 *
 *     times     in proportion to the FLOPs of a stage, tf that of an average one
 *     messages  the residual stream of a microbatch
 *     memory    all of a rank's bytes that do not move, and its activations as they come and go
 */
#include "run/play.h"

#include "base/mem.h"
#include "run/check.h"
#include <stdio.h>
#include <string.h>

static enum err read_options(const struct play_args *a, struct options *o)
{
    TRY(conf_defaults(&options_table, o));
    TRY(conf_read_file(&options_table, o, a->sim->model));
    if (a->schedule && strncmp(a->schedule, "file:", 5) == 0)
        FAIL(ERR_CONFIG,
             "simulation: a model is played with the schedules that train it, by name, "
             "and %.200s is a file; leave --model out",
             a->schedule);
    if (a->limit != 0 || a->sim->keep != 0)
        FAIL(ERR_CONFIG, "simulation: limit and keep are not of the schedules that train a model; "
                         "leave --limit and --keep out, or --model");
    if (a->schedule && strlen(a->schedule) >= sizeof o->parallel.schedule)
        FAIL(ERR_CONFIG, "simulation: \"%.80s\" is not the name of a schedule", a->schedule);
    if (a->schedule)
        snprintf(o->parallel.schedule, sizeof o->parallel.schedule, "%s", a->schedule);
    if (a->p)
        o->parallel.pp = a->p;
    if (a->v)
        o->parallel.chunks = a->v;
    if (a->group)
        o->parallel.group = a->group;
    if (a->m && (!num_mul(a->m, o->parallel.microbatch, &o->train.batch) ||
                 !num_mul(o->train.batch, o->parallel.dp, &o->train.batch)))
        FAIL(ERR_CONFIG,
             "simulation: %d microbatches of %lld samples on %lld data ranks are too "
             "many",
             a->m, (long long)o->parallel.microbatch, (long long)o->parallel.dp);
    return ERR_OK;
}

static enum err add_bytes(struct played *x)
{
    const struct setup *u = &x->setup;
    struct arch_dims d;
    int stages = x->s->stages, p = x->s->p;
    bool splits = sim_memory_splits(x->s);
    TRY(mem_new(3 * stages + p, sizeof *x->bytes, "bytes of stages", &x->bytes));
    arch_dims(&u->arch, &u->split, u->samples, u->ct, u->at, &d);
    for (int i = 0; i < stages; i++) {
        x->bytes[i] = arch_slot_bytes(&d, &u->cut[i]);
        x->bytes[stages + i] = arch_save_set_bytes(&d, &u->cut[i]);
        x->bytes[2 * stages + i] = splits ? arch_keep_set_bytes(&d, &u->cut[i], true) : 0;
    }
    for (int i = 0; i < p; i++)
        x->bytes[3 * stages + i] =
            sim_memory_total(&u->memory[i]) - u->memory[i].bytes[MEMORY_ACTIVATIONS];
    x->memory = (struct sim_bytes){
        .slot = x->bytes,
        .save = x->bytes + stages,
        .keep = x->bytes + 2 * stages,
        .fixed = x->bytes + 3 * stages,
    };
    if (x->cost.bandwidth > 0 && x->cost.bytes == 0)
        x->cost.bytes = (double)(d.nl * d.c * d.ct);
    return ERR_OK;
}

static enum err add_scale(struct played *x)
{
    double sum = 0;
    TRY(mem_new(x->s->stages, sizeof *x->scale, "factors of stages", &x->scale));
    for (int i = 0; i < x->s->stages; i++) {
        x->scale[i] = setup_stage_flops(&x->setup, i);
        sum += x->scale[i];
    }
    for (int i = 0; i < x->s->stages; i++)
        x->scale[i] *= x->s->stages / sum;
    return ERR_OK;
}

/* The shape that the configuration now has. */
static enum err check_size(const struct options *o)
{
    const struct sched_kind *kind = sched_kind_find(o->parallel.schedule);
    int64_t own = kind && kind->chunks ? kind->chunks : 1;
    struct play_args a = {.p = (int)o->parallel.pp,
                          .m = (int)(o->train.batch / (o->parallel.dp * o->parallel.microbatch))};
    return play_fits(&a, (int)(o->parallel.chunks ? o->parallel.chunks : own), 0);
}

enum err play_model(const struct play_args *a, struct played *x)
{
    int64_t vocab;
    TRY(read_options(a, &x->options));
    TRY(run_check(&x->options, 0, CHECK_PLAN, NULL));
    TRY(check_size(&x->options));
    TRY(check_vocab(&x->options, &vocab));
    x->modelled = true;
    TRY(setup_make(&x->options, vocab, true, &x->setup));
    x->s = &x->setup.sched;
    x->report = &x->setup.report;
    TRY(add_bytes(x));
    return add_scale(x);
}
