/* SPDX-License-Identifier: Apache-2.0
 *
 * Training, one rank's view, in the order in which things are made:
 *
 *     options -> setup -> world -> device -> executor -> weights -> step, step, ... -> files
 *
 * A step reads its samples by one global sample number and runs the program, which ends in the
 * optimizer. The rank that holds the head's first copy reports.
 */
#include "train/train.h"

#include "check/check.h"
#include "setup/setup.h"
#include "folder/init.h"
#include "train/stop.h"

#include <unistd.h>

static double *landing(const struct train_rank *r, int64_t step)
{
    return r->landed + step % TRAIN_AHEAD * SUMS_COUNT;
}

/* What this rank brings to the step under way. */
static void on_step(void *arg, struct optim_step *out)
{
    const struct train_rank *r = arg;
    int64_t tokens = r->s->step_samples * r->job->train.targets;
    *out = (struct optim_step){.step = r->step, .lr = lr_at(&r->lr, r->step),
                               .tokens = r->rank.counts_tokens ? tokens : 0,
                               .stop = train_asks(r), .save = stop_saves() != r->heard,
                               .saved = checkpoint_written(&r->ckpt)};
}

/* ---- when steps end ---- */

/* What is queued from here on belongs to the steps behind this one. */
static enum err timer_end(const struct train_rank *r, int64_t step)
{
    return r->rank.dev->ops->timer_record(r->rank.dev, r->timer + step % TRAIN_TIMERS);
}

/* Waits until the device is through a step behind which an event was recorded. */
static enum err wait_step(const struct train_rank *r, int64_t step)
{
    return r->rank.dev->ops->event_synchronize(r->rank.dev, (int)(step % TRAIN_AHEAD));
}

/* Waits for the steps up to `last` that were queued and not reported, and reports them. One took as
 * long as from the end of the one before, or from where it began when nothing was on its way. */
static enum err take_results(struct train_rank *r, int64_t last)
{
    struct dev *dev = r->rank.dev;
    while (r->taken < num_min(last, r->queued)) {
        struct optim_step step = {.step = r->taken + 1};
        double begin, end;
        TRY(wait_step(r, step.step));
        TRY(optim_judge(&step, landing(r, step.step), &r->result));
        r->taken = step.step;
        r->loss = r->result.loss;
        r->stop = r->stop || r->result.stop > 0;
        r->save = r->save || r->result.save > 0;
        r->all_written = r->ckpt.step > 0 && r->result.saved == r->s->mesh.world;
        TRY(dev->ops->timer_read(dev, r->timer + (r->taken - 1) % TRAIN_TIMERS, &begin));
        TRY(dev->ops->timer_read(dev, r->timer + r->taken % TRAIN_TIMERS, &end));
        r->took = end - begin;
        r->slowest = fmax(r->slowest, r->took);
        TRY(train_report_step(r, r->taken));
    }
    return ERR_OK;
}

/* ---- validation ---- */

static bool is_validated(const struct train_rank *r)
{
    const struct options *o = r->s->o;
    bool last = r->step == o->train.steps;
    bool due = o->train.valid_every > 0 && r->step % o->train.valid_every == 0;
    return r->job->valid.samples && (due || last);
}

static enum err validate(struct train_rank *r)
{
    if (!is_validated(r))
        return ERR_OK;
    TRY(train_validate(r));
    if (r->stop)
        return ERR_OK;
    r->validated = r->step;
    return train_report_valid(r);
}

/* ---- one rank ---- */

static enum err open_rank(struct train_rank *r)
{
    const struct setup *s = r->s;
    struct rank *k = &r->rank;
    struct rank_args a = {.read = {.train = r->job->train.hash, .valid = r->job->valid.hash,
                                   .weights = r->job->init ? weights_digest(r->job->init) : 0},
                          .trace = s->o->train.trace, .profile = s->o->train.profile};
    if (comm_kind(k->world) == COMM_MPI && k->is_logger) /* others wait in rank_agree */
        TRY(folder_take(r->job->folder, s->o, &s->model));
    TRY(rank_open(k, &a));
    TRY(exec_init(k->x, (uint64_t)s->o->train.seed, k->threads));
    r->records = s->decided[DECIDED_GRAPH].value && k->dev->ops->graph_begin;
    TRY(k->dev->ops->host_alloc(k->dev,
                                (TRAIN_AHEAD * SUMS_COUNT + 1) * (int64_t)sizeof *r->landed,
                                "results of steps", (void **)&r->landed));
    TRY(train_resume(r));
    if (s->o->model.init[0] && r->resumed == 0) {
        if (!r->job->init)
            FAIL(ERR_CHECKPOINT, "run.resume: the checkpoints that were in %s/checkpoints at the "
                                 "start are gone, and model.init was not read for them; start "
                                 "again", s->o->run.dir);
        TRY(folder_others(load_stores(k, r->job->init, false), r->job->init->state.dir));
    }
    TRY(exec_weights_keep(k->x));
    TRY(train_save_open(r));
    TRY(k->dev->ops->timer_alloc(k->dev, TRAIN_TIMERS, &r->timer));
    int64_t read = TRAIN_READ * s->step_samples;
    TRY(mem_new(read * r->job->train.inputs, sizeof *r->inputs, "the steps' inputs", &r->inputs));
    TRY(mem_new(read * r->job->train.targets, sizeof *r->targets, "the steps' targets",
                &r->targets));
    struct exec_batch zeros = train_batch(r, 0);
    if (k->dev->async)
        TRY(exec_rehearse(k->x, &zeros));
    return train_valid_open(r);
}

/* Once every rank is ready to run. */
static enum err open_files(struct train_rank *r)
{
    const struct rank *k = &r->rank;
    const struct trace_head head = {
        .rank = (uint32_t)k->me, .world = (uint32_t)comm_size(k->world),
        .pp = (uint32_t)k->coord[AXIS_PP], .tp = (uint32_t)k->coord[AXIS_TP],
        .dp = (uint32_t)k->coord[AXIS_DP], .hash = r->s->report.hash,
    };
    struct text facts = {0};
    struct folder *f = r->job->folder;
    if (k->is_logger) {
        train_record_facts(r, &facts);
        enum err err = folder_begin(f, r->s, r->resumed, &facts, &r->metrics);
        text_free(&facts);
        TRY(err);
        if (f->log >= 0)
            log_keep_to(r->job->log, f->log, f->log_path);
        else
            log_keep_close(r->job->log);
    }
    if (k->is_logger && r->s->o->run.save)
        TRY(save_begin(r->s, &r->weights));
    if (!r->s->o->train.trace)
        return ERR_OK;
    return trace_open(k->world, k->x, &head, r->s->o->run.dir, &r->trace);
}

/* The host queues a step before it knows the result of the last one, unless what it then does needs
 * it. */
static bool runs_ahead(const struct train_rank *r)
{
    return r->rank.dev->async && !r->s->o->train.profile;
}

static enum err run_step(struct train_rank *r, const struct exec_batch *b,
                         const struct exec_hooks *hooks)
{
    if (r->records && r->step == r->resumed + OPTIONS_RECORDED) {
        /* It is recorded, and not done by that. Steps before it are waited for, once, so that what
         * one takes is known. */
        TRY(take_results(r, r->step - 1));
        exec_zero_grads(r->rank.x);
        TRY(exec_record(r->rank.x, b, hooks, &r->records));
        if (!r->records && r->s->o->train.graph == OPTIONS_GRAPH_ON)
            FAIL(ERR_INTERNAL, "train.graph on: step %lld cannot be recorded on every rank; use "
                               "auto or off", (long long)r->step);
    }
    if (r->rank.x->graph) {
        r->replayed++;
        return exec_replay(r->rank.x, b, hooks, r->slowest);
    }
    exec_zero_grads(r->rank.x);
    TRY(exec_run(r->rank.x, &r->s->sched, b, hooks));
    return exec_count_check(r->rank.x);
}

/* One more step; r->stop: it is the last. Behind a step that others do not follow at once, all that
 * is on its way is waited for. */
static enum err take_step(struct train_rank *r, const struct exec_hooks *hooks)
{
    struct dev *dev = r->rank.dev;
    /* A file that fails ends the run behind steps whose samples are there; before the first there
     * is nothing to keep. */
    if (r->read == r->resumed)
        TRY(train_read(r, r->step));
    for (int64_t last = num_min(r->step + TRAIN_AHEAD, r->s->o->train.steps);
         r->read < last && r->lost.code == ERR_OK;)
        TRY(train_put_off(r, train_read(r, r->read + 1)));
    ENSURE(r->read >= r->step);
    struct exec_batch b = train_batch(r, r->step);
    TRY(run_step(r, &b, hooks));
    if (r->step == r->resumed + WARM_STEPS)
        comm_warmup_end(r->rank.world);
    TRY(optim_land(&r->rank.x->optim, landing(r, r->step))); /* its sums are on their way */
    r->queued = r->step;
    TRY(timer_end(r, r->step));
    TRY(dev->ops->event_record(dev, (int)(r->step % TRAIN_AHEAD)));
    /* Nothing takes it back: where it is due to be saved, the copy follows its update, before the
     * host knows what it came to. */
    if (runs_ahead(r) && r->ckpt.s && r->ckpt.step == 0 && train_save_due(r))
        TRY(checkpoint_copy(&r->ckpt, r->step));
    bool still = r->step == r->s->o->train.steps || is_validated(r) || train_save_due(r);
    TRY(take_results(r, still || !runs_ahead(r) ? r->step : r->step - 1));
    still = still || r->stop || r->save;
    TRY(take_results(r, still ? r->step : 0));
    int64_t last = still || !dev->async ? r->step : r->step - 1;
    while (r->s->o->train.trace && !r->trace_broken && r->traced < last) {
        TRY(wait_step(r, ++r->traced));
        enum err err = trace_step(&r->trace, r->rank.x, r->traced, (int)(r->step - r->traced));
        r->trace_broken = err == ERR_STORAGE;
        TRY(train_put_off(r, err));
    }
    return ERR_OK;
}

static enum err run_steps(struct train_rank *r)
{
    bool told = r->rank.is_logger && r->job->call->on_microbatch;
    struct exec_hooks hooks = {.step = on_step,
                               .begins = told ? train_report_within : NULL, .arg = r};
    r->step = r->resumed;
    if (r->resumed > 0 && is_validated(r)) {
        /* Unless it was made before the stop: the reporting rank knows by the lines of metrics. */
        double made = r->rank.is_logger && r->job->folder->validated;
        TRY(comm_all_reduce(r->rank.all, &made, 1, DT_F64, COMM_MAX));
        if (made == 0)
            TRY(validate(r));
        else
            r->validated = r->step;
    }
    /* The checkpoint that the run goes on from was saved without the validation, which a stop had
     * cut. NaN: it was not made by this start. */
    if (r->ckpt.s && r->ckpt.ended == r->resumed && r->validated == r->resumed &&
        !isnan(r->valid_loss))
        TRY(checkpoint_validated(&r->ckpt, r->resumed, r->valid_loss));
    dev_profile_begin(r->rank.profile, comm_spent(r->rank.world));
    for (r->step = r->resumed + 1; r->step <= r->s->o->train.steps && !r->stop; r->step++) {
        if (r->taken + 1 == r->step)
            TRY(timer_end(r, r->taken));
        TRY(take_step(r, &hooks));
        if (!r->stop)
            TRY(validate(r));
        TRY(train_save_step(r));
    }
    dev_profile_end(r->rank.profile, comm_spent(r->rank.world));
    return ERR_OK;
}

static enum err run_rank(struct train_rank *r)
{
    TRY(open_rank(r));
    TRY(train_report_start(r));
    if (!r->stop)
        TRY(open_files(r));
    r->opened = !r->stop;
    return train_end(r, run_steps(r));
}

/* What lies on the device, and the threads that read it. */
static void release(void *arg)
{
    struct train_rank *r = arg;
    sched_free(&r->last_round);
    checkpoint_close(&r->ckpt);
    choices_close(&r->choices);
    if (r->landed)
        r->rank.dev->ops->host_free(r->rank.dev, r->landed);
}

/* ERR_STOPPED where work is left. */
static enum err outcome_of(struct train_outcome *o)
{
    return atomic_load(&o->stopped) ? err_adopt(ERR_STOPPED, o->text) : ERR_OK;
}

static enum err rank_body(void *arg, struct comm_world *world)
{
    const struct train_job *job = arg;
    struct train_rank r = {.rank = rank_at(job->setup, world), .job = job, .s = job->setup,
                           .metrics = -1, .heard = job->saves, .trace = {.fd = -1},
                           .valid_loss = NAN, .bad_round = -1};
    struct err_kept end; /* what follows may fail for the same reason, or another */
    log_keep_set(job->log);
    err_keep(&end, rank_close(&r.rank, run_rank(&r), release, &r));
    enum err last = train_close_files(&r);
    if (end.code == ERR_OK)
        err_keep(&end, last);
    if (r.rank.is_logger)
        job->folder->done = r.taken;
    if (comm_kind(world) == COMM_MPI) { /* the process may end with the job, by a rank that fails */
        enum err code = err_again(&end);
        if (code == ERR_OK)
            code = err_again(&r.told);
        if (code == ERR_OK)
            code = outcome_of(job->outcome);
        if (r.rank.is_logger)
            train_record_end(job, code);
        log_keep_close(job->log);
        folder_leave(job->folder);
    }
    mem_free(r.inputs);
    mem_free(r.targets);
    return err_again(&end);
}

/* ---- the run ---- */

enum err train_run(const struct options *o, const struct plait_train *call)
{
    struct setup s = {0};
    struct folder folder = {.lock = {.fd = -1}};
    struct log_keep log;
    struct train_outcome outcome = {.stopped = false};
    struct train_job job = {.setup = &s, .call = call, .folder = &folder, .began = log_now(),
                            .log = &log, .saves = stop_saves(), .outcome = &outcome};
    struct text notes = {0};
    struct weights init = {.files = {NULL, 0}};
    struct data_want want;
    char *page = NULL, host[65] = "";
    enum err err;
    (void)gethostname(host, sizeof host - 1);
    log_keep_open(&log); /* lines wait for the file from here on */
    log_keep_set(&log);
    log_kept(FOLDER_LOG_BEGINS "on host %s: plait %s", (long)getpid(), host, PLAIT_VERSION);
    TRY_OR(out_run, check_run(o, call->ranks, CHECK_TRAIN, &notes, &s));
    TRY_OR(out_run, text_done(&notes, &page));
    job.notes = page;
    comm_environment();
    TRY_OR(out_run, setup_ask_gpus(&s, comm_gpus_reach));
    TRY_OR(out_run, host_check(&s, NULL));
    if (o->train.transport != COMM_MPI)
        TRY_OR(out_run, folder_take(&folder, o, &s.model));
    options_want(&s.model, &want);
    TRY_OR(out_run, data_open(o->data.train, &want, true, &job.train));
    if (o->data.valid[0])
        TRY_OR(out_run, data_open(o->data.valid, &want, true, &job.valid));
    s.tokenizer = job.train.tokenizer;
    if (init_begins(o)) {
        TRY_OR(out_run, init_open(o, &s.model, s.tokenizer, &init));
        job.init = &init;
    }
    TRY_OR(out_run, rank_run("plait train", o, s.mesh.world, rank_body, &job));
    err = outcome_of(&outcome);
out_run:
    train_record_end(&job, err);
    log_keep_close(&log);
    log_keep_set(NULL);
    folder_leave(&folder);
    stop_pending(NULL);
    data_close(&job.train);
    data_close(&job.valid);
    weights_close(&init);
    setup_free(&s);
    text_free(&notes);
    mem_free(page);
    return err;
}
