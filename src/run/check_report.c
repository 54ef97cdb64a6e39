/* SPDX-License-Identifier: Apache-2.0
 *
 * What is about to be run, in a few lines, and warnings about what is legal but hardly meant: a
 * pipeline with fewer microbatches than ranks, more threads than cores, data that is not named yet.
 * Lines are "label  text", so that they read as one table with what the planner adds below.
 *
 * The bubble in a warning is not a formula: the schedule itself is made, proved and played on the
 * simulator's clock with F and B as 1 and 2 and each stage weighed by its FLOPs.
 */
#include "run/check_local.h"

#include "base/mem.h"
#include "comm/comm.h"
#include "run/machine.h"
#include "sched/sched.h"
#include "sim/sim.h"
#include <string.h>

static const char *device_name(const struct options *o)
{
    static const char *const name[] = {"cpu", "ref", "null"};
    return name[o->train.device];
}

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

static void add_model(const struct check_facts *f, struct text *out)
{
    const struct arch *a = &f->arch;
    char count[32];
    text_add(out, "model     %s, %lld layer%s, hidden %lld, %lld head%s of %lld",
             a->kind == ARCH_GPT ? "gpt" : "llama", (long long)a->layers, plural(a->layers),
             (long long)a->hidden, (long long)a->heads, plural(a->heads), (long long)a->head_dim);
    if (a->kv_heads != a->heads)
        text_add(out, " (%lld for keys and values)", (long long)a->kv_heads);
    text_add(out, ", ffn %lld, vocabulary %lld%s; %s parameters\n", (long long)a->ffn,
             (long long)a->vocab, a->tied ? " (tied)" : "", text_count(arch_params(a), count));
}

static void add_layout(const struct options *o, const struct check_facts *f, struct text *out)
{
    int threads = options_threads(o, f->ranks);
    text_add(out, "layout    %d rank%s = tp %lld x pp %lld x dp %lld%s; transport %s, device %s, "
                  "%s, %d thread%s a rank\n",
             f->ranks, plural(f->ranks), (long long)o->parallel.tp, (long long)o->parallel.pp,
             (long long)o->parallel.dp, o->parallel.sp ? " with sp" : "",
             o->train.transport == COMM_MPI ? "mpi" : "thread", device_name(o),
             dtype_name(options_compute_type(o)), threads, plural(threads));
}

static void add_step(const struct options *o, const struct check_facts *f, struct text *out)
{
    int64_t last = options_microbatch_samples(o, f->microbatches - 1);
    char count[32];
    text_add(out, "step      %lld samples of %lld tokens = dp %lld x %lld microbatch%s of %lld",
             (long long)o->train.batch, (long long)o->model.seq, (long long)o->parallel.dp,
             (long long)f->microbatches, f->microbatches == 1 ? "" : "es",
             (long long)o->parallel.microbatch);
    if (last != o->parallel.microbatch)
        text_add(out, ", the last of %lld", (long long)last);
    text_add(out, "; %lld step%s, %s tokens\n", (long long)o->train.steps, plural(o->train.steps),
             text_count(o->train.steps * o->train.batch * o->model.seq, count));
    text_add(out, "schedule  %s, %lld stage%s\n", o->parallel.schedule,
             (long long)(o->parallel.pp * o->parallel.chunks),
             plural(o->parallel.pp * o->parallel.chunks));
}

static void add_data(const char *label, const char *path, const struct check_data *d,
                     struct text *out)
{
    char tokens[32], samples[32];
    if (d->count > 0)
        text_add(out, "%s%s: %s tokens, %s samples", label, path, text_count(d->count, tokens),
                 text_count(d->samples, samples));
}

static void add_files(const struct options *o, const struct check_facts *f, struct text *out)
{
    add_data("data      ", o->data.train, &f->train, out);
    if (f->train.samples > 0)
        text_add(out, "; %.3g epochs\n", (double)o->train.steps * (double)o->train.batch /
                                             (double)f->train.samples);
    add_data("validate  ", o->data.valid, &f->valid, out);
    if (f->valid.samples > 0)
        text_add(out, "\n");
}

/* ---- warnings ---- */

/* Time of each stage relative to their mean. */
static enum err stage_scales(const struct options *o, const struct arch *a, int stages,
                             double *scale)
{
    struct arch_stage *cut;
    double sum = 0;
    TRY(mem_new(stages, sizeof *cut, "the pipeline stages", &cut));
    enum err err = arch_cut(a, stages, cut);
    for (int i = 0; i < stages && err == ERR_OK; i++) {
        int64_t block;
        scale[i] = 0;
        for (int p = 0; p < arch_stage_parts(&cut[i]); p++)
            scale[i] += arch_part_flops(a, arch_stage_part(&cut[i], p, &block),
                                        o->parallel.microbatch * a->seq, a->seq);
        sum += scale[i];
    }
    for (int i = 0; i < stages; i++)
        scale[i] *= stages / sum;
    mem_free(cut);
    return err;
}

/* Idle share of the ranks' time under the configured schedule. */
static enum err predict_bubble(const struct options *o, const struct check_facts *f, double *bubble)
{
    struct sched_shape shape = {(int)o->parallel.pp, (int)f->microbatches, (int)o->parallel.chunks};
    struct sched made = {0}, low = {0};
    struct sched_report proof = {0};
    struct sim_result result = {0};
    double *scale = NULL;
    enum err err;
    int stages = shape.p * shape.v;
    TRY_OR(out_all, mem_new(stages, sizeof *scale, "the cost of stages", &scale));
    TRY_OR(out_all, stage_scales(o, &f->arch, stages, scale));
    TRY_OR(out_all, sched_make(o->parallel.schedule, &shape, &made));
    TRY_OR(out_all, sched_lower(&made, &(struct sched_lower_args){.step = true}, &low));
    TRY_OR(out_all, sched_check(&low, &proof));
    struct sim_cost cost = {.tf = 1, .tb = 2, .ti = 1, .tw = 1, .stage_scale = scale};
    TRY_OR(out_all, sim_run(&low, &proof, &cost, false, &result));
    *bubble = result.bubble_fraction;
out_all:
    sim_result_free(&result);
    sched_report_free(&proof);
    sched_free(&low);
    sched_free(&made);
    mem_free(scale);
    return err;
}

static enum err warn_pipeline(const struct options *o, const struct check_facts *f,
                              struct text *out)
{
    double bubble;
    if (f->microbatches >= o->parallel.pp)
        return ERR_OK;
    text_add(out, "warning   %lld microbatch%s cannot keep parallel.pp %lld ranks busy: ",
             (long long)f->microbatches, f->microbatches == 1 ? "" : "es",
             (long long)o->parallel.pp);
    if (o->parallel.pp * o->parallel.chunks * f->microbatches > CHECK_MAX_UNITS) {
        text_add(out, "the bubble is not predicted for a schedule of this size; ");
    } else {
        TRY(predict_bubble(o, f, &bubble));
        text_add(out, "predicted bubble %.1f %%; ", 100 * bubble);
    }
    int64_t samples = options_samples(o), fill = samples / o->parallel.pp;
    if (fill >= 1)
        text_add(out, "parallel.microbatch %lld makes %lld of them\n", (long long)fill,
                 (long long)num_ceil_div(samples, fill));
    else
        text_add(out, "train.batch %lld or more makes enough of them\n",
                 (long long)(o->parallel.pp * o->parallel.dp));
    return ERR_OK;
}

static void warn_machine(const struct options *o, const struct check_facts *f, struct text *out)
{
    int64_t threads = (int64_t)options_threads(o, f->ranks) * f->ranks;
    if (f->purpose == CHECK_TRAIN && o->train.transport == COMM_THREAD &&
        threads > machine_cores())
        text_add(out, "warning   %d ranks of %d threads share %d cores; ranks wait for each other\n",
                 f->ranks, options_threads(o, f->ranks), machine_cores());
}

static void warn_data(const struct options *o, struct text *out)
{
    if (!o->data.train[0])
        text_add(out, "warning   data.train is empty: this can be planned, not trained\n");
    if (!o->data.valid[0] && (o->train.valid_every > 0 || o->train.valid_batches > 0))
        text_add(out, "warning   train.valid_every and valid_batches ask for validation, and "
                      "data.valid is empty: training will refuse this\n");
}

enum err check_report(const struct options *o, const struct check_facts *f, struct text *out)
{
    struct text t = {0};
    char *page;
    add_model(f, &t);
    add_layout(o, f, &t);
    add_step(o, f, &t);
    add_files(o, f, &t);
    warn_machine(o, f, &t);
    warn_data(o, &t);
    enum err err = warn_pipeline(o, f, &t);
    if (err != ERR_OK) {
        text_free(&t);
        err_trail(__FILE__, __LINE__);
        return err;
    }
    TRY(text_done(&t, &page));
    text_add(out, "%s", page);
    mem_free(page);
    return out->err;
}
