/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures what planning must know of a machine and what a step leaves on the table:
 *
 *     ceilings   the best GEMM and a copy, of one device
 *     calls      each kind of call of the model's step alone, its share of its ceiling
 *     classes    the same added up over the step, beside the floor that the ceilings give
 *     links      collectives and messages over sizes, with two ranks or more
 *
 * Everything goes through the device table and comm, so a new device or transport is measured as it
 * stands. With ceilings given (GEMM, copy) nothing is measured: the step is counted, and its
 * floor on a machine that is not at hand comes out.
 *
 * The calls of a step are those of the executor, which runs the model's step on a null device that
 * notes what it is asked for. So the list is what training does, chunks of the head and the
 * optimizer included, and cannot go out of date. Nothing is allocated but host tables, so any model
 * fits. The layout is one rank: of a data rank its share of the batch, of a pipeline all of its
 * stages, of tensor ranks the whole tensors.
 */
#include "study/bench.h"

#include "base/mem.h"
#include "check/check.h"
#include "folder/files.h"
#include "train/rank.h"
#include <stdio.h>

/* ---- the step ---- */

struct step {
    struct bench *b;
    struct setup s;             /* owned */
    struct rank rank;           /* owned */
    struct calls_list list;
    int32_t *input;             /* owned; host: zeros, the targets, too */
};

static void on_step(void *arg, struct optim_step *out)
{
    const struct step *t = arg;
    *out = (struct optim_step){.step = 1, .lr = 1, .tokens = t->s.step_samples * t->s.model.seq};
}

static enum err note_calls(struct step *t)
{
    struct bench *b = t->b;
    struct exec_hooks hooks = {.step = on_step, .arg = t};
    TRY(rank_open(&t->rank, &(struct rank_args){.null = true}));
    calls_record(&t->list, t->rank.dev, t->s.model.vocab); /* opening is no part of a step */
    b->tokens = t->s.step_samples * t->s.model.seq;
    TRY(mem_new(b->tokens * num_max(1, model_floats(&t->s.model)), sizeof *t->input,
                "the step's input", &t->input));
    struct exec_batch batch = {.input = t->input, .targets = t->input, .samples = t->s.step_samples,
                               .t = t->s.model.seq, .step = 1};
    exec_zero_grads(t->rank.x);
    TRY(exec_run(t->rank.x, &t->s.sched, &batch, &hooks));
    b->calls = t->list.n;
    TRY(mem_new(b->calls, sizeof *b->call, "the calls of a step", &b->call));
    for (int i = 0; i < b->calls; i++)
        b->call[i].call = t->list.call[i];
    return ERR_OK;
}

static void release(void *arg)
{
    struct step *t = arg;
    calls_free(&t->list, t->rank.dev);
    mem_free(t->input);
}

static enum err step_body(void *arg, struct comm_world *world)
{
    struct step *t = arg;
    t->rank = rank_at(&t->s, world);
    return rank_close(&t->rank, note_calls(t), release, t);
}

enum err bench_step(struct bench *b)
{
    struct options o = *b->o;
    struct step t = {.b = b};
    int64_t vocab;
    o.train.batch = options_samples(b->o);
    o.train.transport = COMM_THREAD;
    o.train.canonical_accumulation = false;
    o.parallel.tp = o.parallel.pp = o.parallel.dp = 1;
    o.parallel.sp = false;
    o.parallel.chunks = o.parallel.group = 0;
    o.parallel.memory_limit = 0;
    o.parallel.split.n = 0;
    o.parallel.costs[0] = '\0';
    snprintf(o.parallel.schedule, sizeof o.parallel.schedule, "1f1b");
    TRY(check_vocab(&o, &vocab));
    enum err err = setup_make(&o, vocab, true, &t.s);
    if (err == ERR_OK)
        err = comm_thread_run(1, 0, step_body, &t);
    setup_free(&t.s);
    return err;
}

/* ---- all ---- */

static enum err check(struct bench *b)
{
    const struct plait_bench *a = b->a;
    struct file_use in[FILES_OPTIONS];
    b->ranks = a->ranks ? a->ranks : (int)options_ranks(b->o);
    if ((a->product > 0) != (a->copy > 0))
        FAIL(ERR_CONFIG, "bench: one ceiling was given and two make a floor; give both, FLOP/s of "
                         "GEMMs and bytes/s of a copy, or none to measure them");
    if (a->product > 0 && a->out)
        FAIL(ERR_CONFIG, "bench: with given ceilings nothing is measured that could go into %s; "
                         "leave the ceilings out, or the file", a->out);
    TRY(files_apart("bench", a->out, in, files_of_options(b->o, in)));
    TRY(check_run(b->o, 0, CHECK_PLAN, NULL, NULL));
    if (a->product == 0 && b->o->train.device == OPTIONS_NULL)
        FAIL(ERR_CONFIG, "train.device null computes nothing that could be measured; use another "
                         "device, or give the ceilings");
    return a->product == 0 ? check_launch(b->o, &b->ranks) : ERR_OK;
}

/* What needs one rank alone. */
static enum err run_alone(struct bench *b)
{
    struct dev *d;
    TRY(bench_step(b));
    b->gemm = b->a->product;
    b->copy = b->a->copy;
    if (b->a->product == 0) {
        TRY(dev_open(&(struct dev_args){.kind = options_device(b->o), .ct = b->types.ct,
                                        .threads = options_threads(b->o, 1),
                                        .attn_grad = b->o->env.attn_grad, .cache = b->o->env.cache,
                                        .deterministic = b->o->train.deterministic}, &d));
        d->ops->describe(d, b->device, sizeof b->device);
        enum err err = bench_ceilings(b, d);
        if (err == ERR_OK)
            err = bench_kernels(b, d);
        dev_close(d);
        TRY(err);
    }
    bench_report_classes(b);
    return ERR_OK;
}

/* What comes of it all, by the one who has it. */
static enum err finish(struct bench *b)
{
    if (b->points[LINK_SEND] > 0)
        bench_report_links(b);
    return b->a->out ? bench_profile(b, b->a->out) : ERR_OK;
}

/* Processes of a launcher: the first measures its device, and the others wait for it without a
 * limit, for nobody knows how long that takes. */
static enum err process_body(void *arg, struct comm_world *w)
{
    struct bench *b = arg;
    enum err err = comm_rank(w) == 0 ? run_alone(b) : ERR_OK;
    if (err != ERR_OK) {
        comm_abort(w, err);
        return err;
    }
    if (comm_size(w) > 1)
        TRY(bench_links(b, w));
    return comm_rank(w) == 0 ? finish(b) : ERR_OK;
}

static enum err run(struct bench *b)
{
    TRY(check(b));
    b->types = options_types(b->o);
    comm_environment();
    if (b->a->product > 0 && !comm_launch_first())
        return ERR_OK; /* counting takes one process */
    if (b->o->train.transport == COMM_MPI && b->a->product == 0)
        return comm_mpi_run("plait bench", 0, process_body, b);
    TRY(run_alone(b));
    if (b->a->product == 0 && b->ranks > 1)
        TRY(comm_thread_run(b->ranks, b->o->train.hang_timeout, bench_links, b));
    return finish(b);
}

enum err bench_run(const struct options *o, const struct plait_bench *a)
{
    struct bench *b;
    TRY(mem_new(1, sizeof *b, "measurements", &b));
    b->o = o;
    b->a = a;
    enum err err = run(b);
    mem_free(b->call);
    mem_free(b);
    return err;
}
