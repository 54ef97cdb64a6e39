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
 */
#include "study/bench.h"

#include "base/mem.h"
#include "comm/comm.h"
#include "check/check.h"
#include "folder/files.h"
#include <stdio.h>

/* The step's layout is one rank: what a data rank takes of the batch, all stages, whole tensors. */
static void make_shape(struct bench *b)
{
    struct options *s = &b->shape;
    *s = *b->o;
    s->train.batch = options_samples(b->o);
    s->train.transport = COMM_THREAD;
    s->train.canonical_accumulation = false;
    s->parallel.tp = s->parallel.pp = s->parallel.dp = 1;
    s->parallel.sp = false;
    s->parallel.chunks = s->parallel.group = 0;
    s->parallel.memory_limit = 0;
    s->parallel.split.n = 0;
    s->parallel.costs[0] = '\0';
    snprintf(s->parallel.schedule, sizeof s->parallel.schedule, "1f1b");
}

static enum err check(struct bench *b)
{
    const struct plait_bench *a = b->a;
    int ranks = a->ranks ? a->ranks : (int)options_ranks(b->o);
    if ((a->product > 0) != (a->copy > 0))
        FAIL(ERR_CONFIG, "bench: one ceiling was given and two make a floor; give both, FLOP/s of "
                         "GEMMs and bytes/s of a copy, or none to measure them");
    if (a->product > 0 && a->out)
        FAIL(ERR_CONFIG, "bench: with given ceilings nothing is measured that could go into %s; "
                         "leave the ceilings out, or the file", a->out);
    struct file_use in[FILES_OPTIONS];
    TRY(files_apart("bench", a->out, in, files_of_options(b->o, in)));
    TRY(check_run(b->o, 0, CHECK_PLAN, NULL, NULL));
    if (a->product == 0 && b->o->train.device == OPTIONS_NULL)
        FAIL(ERR_CONFIG, "train.device null computes nothing that could be measured; use another "
                         "device, or give the ceilings");
    if (a->product == 0)
        TRY(check_launch(b->o, &ranks));
    b->ranks = ranks;
    make_shape(b);
    return ERR_OK;
}

static enum err measure_device(struct bench *b)
{
    struct dev *d;
    TRY(dev_open(&(struct dev_args){.kind = options_device(b->o), .ct = b->types.ct,
                                    .threads = options_threads(b->o, 1),
                                    .attn_grad = b->o->env.attn_grad, .cache = b->o->env.cache,
                                    .deterministic = b->o->train.deterministic}, &d));
    d->ops->describe(d, b->device, sizeof b->device);
    enum err err = bench_ceilings(b, d);
    if (err == ERR_OK)
        err = bench_kernels(b, d);
    dev_close(d);
    return err;
}

/* What needs one rank alone. */
static enum err run_alone(struct bench *b)
{
    TRY(bench_step(b));
    b->gemm = b->a->product;
    b->copy = b->a->copy;
    if (b->a->product == 0)
        TRY(measure_device(b));
    bench_report_classes(b);
    return ERR_OK;
}

static enum err links_body(void *arg, struct comm_world *w)
{
    return bench_links(arg, w);
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
        TRY(comm_thread_run(b->ranks, b->o->train.hang_timeout, links_body, b));
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
