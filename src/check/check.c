/* SPDX-License-Identifier: Apache-2.0
 *
 * The check, and its report of what is about to be run: the planner's table, then machine, data,
 * and warnings about what is legal but hardly meant. Labels take eight columns.
 *
 * The bubble in a warning is no formula: setup.c makes and proves the schedule and plays it on the
 * simulator's clock with each stage weighed by its FLOPs.
 */
#include "check/rules.h"

#include "base/thread.h"
#include "comm/comm.h"
#include "folder/folder.h"
#include "folder/init.h"
#include "folder/resume_same.h"
#include "sim/sim.h"

static void add_machine(const struct options *o, const struct check_facts *f, struct text *out)
{
    int threads = options_threads(o, f->ranks);
    bool processes = o->train.transport == COMM_MPI, launched = comm_mpi_launched_size() > 0;
    text_add(out, "machine %d rank%s of %d thread%s, transport %s", f->ranks,
             text_plural(f->ranks, "s"), threads, text_plural(threads, "s"),
             processes ? "mpi" : "thread");
    if (options_device(o) == DEV_CUDA && o->train.share_gpus)
        text_add(out, "; needs 1 GPU, which the ranks share");
    else if (options_device(o) == DEV_CUDA)
        text_add(out, "; needs %d GPU%s%s", f->ranks, text_plural(f->ranks, "s"),
                 f->ranks > 1 && o->train.transport == COMM_THREAD ? " of one machine" : "");
    text_add(out, "\n");
    /* More threads than cores? Processes may each be bound to some cores, and all of a machine have
     * no more than that; how many machines there will be, only a launcher knows. */
    int ranks = processes && launched ? comm_mpi_launched_here() : f->ranks;
    int cores = processes ? cores_of_machine() : cores_usable();
    if (processes && launched && threads > cores_usable()) {
        ranks = 1;
        cores = cores_usable();
    }
    if ((int64_t)threads * ranks <= cores)
        return;
    text_add(out, "warning %d rank%s of %d thread%s", ranks, text_plural(ranks, "s"), threads,
             text_plural(threads, "s"));
    if (ranks == 1)
        text_add(out, " has %d core%s, on which its threads take turns", cores,
                 text_plural(cores, "s"));
    else
        text_add(out, "%s share %d core%s and wait for each other",
                 processes && !launched ? " on one machine like this" : "", cores,
                 text_plural(cores, "s"));
    text_add(out, "%s\n",
             o->train.threads > 1 ? "; train.threads 0 takes as many as there are" : "");
}

static void add_file(const char *label, const char *path, const struct check_data *d,
                     struct text *out)
{
    char tokens[32], samples[32];
    text_add(out, "%-7s %s: %s %s%s", label, path, text_count(d->count, tokens),
             d->vocab > 0 ? "token" : "row", text_plural(d->count, "s"));
    if (d->vocab > 0)
        text_add(out, ", %s sample%s", text_count(d->samples, samples),
                 text_plural(d->samples, "s"));
}

static void add_files(const struct options *o, const struct check_facts *f, struct text *out)
{
    long long has = (long long)f->train.vocab, model = (long long)f->model.vocab;
    if (f->train.count > 0) {
        add_file("data", o->data.train, &f->train, out);
        text_add(out, "; %lld step%s, epochs %.3g\n", (long long)o->train.steps,
                 text_plural(o->train.steps, "s"),
                 (double)o->train.steps * (double)o->train.batch / (double)f->train.samples);
        /* Rounding a vocabulary up to a size that divides well is no mistake; far more is. */
        if (has > 0 && model > has + has / 4 + 128)
            text_add(out, "warning model.vocab is %lld, and data.train was made with %lld ids: the "
                          "others are never trained, and cost memory and time; model.vocab %lld or "
                          "0 takes the file's\n", model, has, has);
    } else {
        text_add(out, "warning data.train is empty: this can be planned, not trained\n");
    }
    if (f->valid.count > 0) {
        add_file("valid", o->data.valid, &f->valid, out);
        text_add(out, "\n");
    } else if (o->train.valid_every > 0 || o->train.valid_batches > 0) {
        text_add(out, "warning train.valid_every and train.valid_batches ask for validation, and "
                      "data.valid is empty: training will refuse this\n");
    }
}

/* Keys that were set and do nothing here. */
static enum err warn_idle(const struct options *o, struct text *out)
{
    struct options untouched;
    TRY(conf_defaults(&options_table, &untouched));
    for (int i = 0; i < options_table.n; i++) {
        const char *key = options_table.row[i].key, *why = options_idle(o, key);
        struct text set = {0}, preset = {0};
        if (!why)
            continue;
        enum err err = conf_get(&options_table, o, key, &set);
        err = err ? err : conf_get(&options_table, &untouched, key, &preset);
        err = err ? err : set.err ? set.err : preset.err;
        if (err == ERR_OK && strcmp(set.s, preset.s) != 0)
            text_add(out, "warning %s %s has no effect: %s\n", key, set.s, why);
        text_free(&set);
        text_free(&preset);
        TRY(err);
    }
    return ERR_OK;
}

/* bubble < 0: not predicted. */
static void warn_pipeline(const struct options *o, const struct check_facts *f, double bubble,
                          struct text *out)
{
    int64_t samples = options_samples(o), fill = samples / o->parallel.pp;
    char words[SIM_BUBBLE_MAX];
    if (f->microbatches >= o->parallel.pp)
        return;
    text_add(out, "warning %lld microbatch%s cannot keep parallel.pp %lld ranks busy",
             (long long)f->microbatches, text_plural(f->microbatches, "es"),
             (long long)o->parallel.pp);
    if (bubble >= 0)
        text_add(out, ", predicted bubble %s", sim_bubble_words(bubble, 1, words));
    if (fill >= 1)
        text_add(out, "; parallel.microbatch %lld makes %lld of them\n", (long long)fill,
                 (long long)num_ceil_div(samples, fill));
    else
        text_add(out, "; train.batch %lld or more can make enough of them\n",
                 (long long)(o->parallel.pp * o->parallel.dp));
}

/* A schedule that is made for several chunks, with one. */
static void warn_chunks(const struct options *o, const struct check_facts *f, struct text *out)
{
    int64_t two = 2 * o->parallel.pp;
    if (!sched_lacks_chunks(o->parallel.schedule, (int)o->parallel.pp, (int)options_chunks(o)))
        return;
    text_add(out, "warning parallel.schedule %s gains by several chunks a rank, and "
                  "parallel.chunks %lld makes one; ", o->parallel.schedule,
             (long long)o->parallel.chunks);
    if (two <= f->model.layers)
        text_add(out, "parallel.chunks=2 makes two\n");
    else
        text_add(out, "parallel.chunks=2 needs model.layers %lld or more\n", (long long)two);
}

/* Keys that count steps, or batches, beyond what there is: what truly happens. */
static void note_periods(const struct options *o, const struct check_facts *f, struct text *out)
{
    long long steps = (long long)o->train.steps, valid = (long long)o->train.valid_every;
    long long lines = (long long)o->train.log_every;
    int64_t batches = num_ceil_div(f->valid.samples, o->train.batch);
    const char *s = text_plural(steps, "s");
    if (valid > steps && f->valid.count > 0)
        text_add(out, "note    train.valid_every %lld is beyond the run's %lld step%s: the only "
                      "validation is at the end\n", valid, steps, s);
    if (o->train.valid_batches > batches && f->valid.count > 0)
        text_add(out, "note    train.valid_batches %lld is beyond the %lld batch%s of data.valid: "
                      "a validation takes the whole file\n", (long long)o->train.valid_batches,
                 (long long)batches, text_plural(batches, "es"));
    if (lines > steps)
        text_add(out, "note    train.log_every %lld is beyond the run's %lld step%s: the only "
                      "lines of progress are of the first and the last step (on a terminal "
                      "the bar alone)\n", lines, steps, s);
}

/* The planner's part. */
static void add_plan(const struct options *o, const struct check_facts *f,
                     const struct setup *plan, struct text *out)
{
    if (!plan)
        text_add(out, "warning %lld stages x %lld microbatch%s are too many to be played here, so "
                      "memory and bubble are not predicted%s\n",
                 (long long)(o->parallel.pp * options_chunks(o)), (long long)f->microbatches,
                 text_plural(f->microbatches, "es"),
                 f->made ? "" : ", and the schedule's shape is proved at the start of training");
    else if (f->purpose == CHECK_PLAN) {
        setup_table(plan, NULL, out);
        setup_traffic_table(plan, out);
        (void)!host_check(plan, out);
    }
}

/* Append the readable lines. plan NULL: it takes longer than an answer may. Errors: ERR_MEMORY. */
static enum err add_report(const struct options *o, const struct check_facts *f,
                           const struct setup *plan, struct text *out)
{
    struct text t = {0}, note = {0};
    struct lr planned = rates_planned(o);
    enum err err;
    add_plan(o, f, plan, &t);
    add_machine(o, f, &t);
    add_files(o, f, &t);
    warn_pipeline(o, f, plan ? plan->bubble : -1, &t);
    warn_chunks(o, f, &t);
    if (f->purpose == CHECK_PLAN || !o->run.resume[0]) /* else with its checkpoint's lengths */
        rates_warn(o, &planned, &t);
    note_periods(o, f, &t);
    TRY_OR(out_text, warn_idle(o, &t));
    if (o->model.init[0]) {
        text_add(&t, "init    ");
        TRY_OR(out_text, init_say(o, &t));
        text_add(&t, "\n");
    }
    if (f->resume.len > 0)
        text_add(&t, "resume  %s\n", f->resume.s);
    if (f->purpose == CHECK_PLAN) /* what training there would say */
        TRY_OR(out_text, folder_note(o, &f->model, &note));
    if (note.len > 0)
        text_add(&t, "note    %s: training refuses it\n", note.s);
    TRY_OR(out_text, t.err);
    text_add(out, "%s", t.s);
    err = out->err;
out_text:
    text_free(&t);
    text_free(&note);
    return err;
}

/* ---- the check ---- */

static enum err check(const struct options *o, int ranks, struct check_facts *f)
{
    int launched = ranks; /* becomes what a launcher started */
    enum err err = check_rules(o, ranks, f);
    if (err != ERR_OK)
        return advice_give(o, ranks, f, err);
    /* What only a start needs: all else has been looked at, so check and train refuse alike. */
    if (f->purpose == CHECK_TRAIN)
        TRY(check_launch(o, &launched));
    if (f->purpose == CHECK_TRAIN && !o->data.train[0])
        FAIL(ERR_CONFIG, "data.train is empty, and training needs a %s -o FILE` and give "
                         "data.train=FILE", model_traits(o->model.kind)->text
                 ? "token file; make one with `plait data prepare TEXT"
                 : "row file; make one with `plait data import TABLE");
    f->rule = f->rule_of_ranks;
    err = check_ranks(o, launched);
    if (err != ERR_OK)
        return advice_give(o, launched, f, err);
    f->ranks = (int)options_ranks(o);
    f->microbatches = options_microbatches(o);
    /* What a run would go on from; training looks itself, when all ranks have the same in view. */
    struct resume_here here = {o, &f->model, f->train.count > 0 ? f->tokenizer : NULL,
                               f->train.hash, f->valid.hash};
    if (f->purpose != CHECK_PLAN || !o->run.resume[0] || !o->run.dir[0])
        return ERR_OK;
    return resume_say(&here, &f->resume);
}

enum err check_run(const struct options *o, int ranks, enum check_for purpose, struct text *report,
                   struct setup *plan)
{
    struct check_facts f = {.purpose = purpose};
    struct setup own = {0}, *s = plan ? plan : &own;
    enum err err = check(o, ranks, &f);
    int64_t units = err ? 0 : o->parallel.pp * options_chunks(o) * options_microbatches(o);
    bool brief = units <= CHECK_PLAY_UNITS && units * o->parallel.pp <= CHECK_PLAN_READS;
    bool planned = err == ERR_OK && (plan || (report && brief)); /* within an answer */
    *s = own;
    if (planned)
        err = setup_make_with(o, f.model.vocab, &f.schedule, s);
    if (err == ERR_OK && report)
        err = add_report(o, &f, planned ? s : NULL, report);
    setup_free(&own);
    check_free(&f);
    return err;
}
