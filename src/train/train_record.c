/* SPDX-License-Identifier: Apache-2.0
 *
 * What a training run keeps of itself beside the metrics: run.json, what it is and how each start
 * ended, and log.txt, what it said. Lines of steps go to the log as seldom as to a standard error
 * that is no terminal.
 */
#include "train/train.h"

#include "base/cores.h"
#include "base/log.h"
#include "config/machine.h"

#include <stdio.h>
#include <unistd.h>

static const double line_pause = 2; /* seconds between lines of steps, with train.log_every 0 */

void train_log_open(struct log_keep *log)
{
    char host[65] = "";
    (void)gethostname(host, sizeof host - 1);
    log_keep_open(log);
    log_keep_set(log);
    log_kept(FOLDER_LOG_BEGINS "on host %s: plait %s", (long)getpid(), host, PLAIT_VERSION);
}

void train_log_close(struct log_keep *log)
{
    log_keep_close(log);
    log_keep_set(NULL);
}

/* ---- run.json ---- */

static void add_word(struct text *t, const char *name, const char *value)
{
    text_add(t, "\"%s\": ", name);
    if (value)
        text_add_json(t, value);
    else
        text_add(t, "null");
    text_add(t, ",\n");
}

static void add_hash(struct text *t, const char *name, uint64_t hash)
{
    char word[24];
    snprintf(word, sizeof word, "%016llx", (unsigned long long)hash);
    add_word(t, name, hash ? word : NULL);
}

/* The units of the device that this host has, as GPUs; none of a processor. */
static void add_devices(const struct options *o, struct text *t)
{
    struct text units = {0};
    bool first = true;
    dev_describe_units(options_device(o), &units);
    text_add(t, "\"devices\": [");
    for (char *s = units.s, *end; s && (end = strchr(s, '\n')) != NULL; s = end + 1) {
        *end = '\0';
        text_add(t, "%s", first ? "" : ", ");
        text_add_json(t, s);
        first = false;
    }
    text_add(t, "],\n");
    t->err = t->err != ERR_OK ? t->err : units.err;
    text_free(&units);
}

static void add_machine(const struct train_rank *r, struct text *t)
{
    char host[65] = "", device[256];
    struct text processor = {0};
    (void)gethostname(host, sizeof host - 1);
    machine_processor(&processor);
    dev_describe_kind(options_device(r->s->o), device, sizeof device);
    add_word(t, "host", host);
    add_word(t, "processor", processor.s);
    text_add(t, "\"cores\": %d,\n", cores_usable());
    add_word(t, "device", device);
    add_devices(r->s->o, t);
    t->err = t->err != ERR_OK ? t->err : processor.err;
    text_free(&processor);
}

void train_record_facts(const struct train_rank *r, struct text *t)
{
    const struct options *o = r->s->o;
    char layout[96];
#ifdef PLAIT_COMMIT
    const char *commit = PLAIT_COMMIT;
#else
    const char *commit = NULL;
#endif
    add_word(t, "version", PLAIT_VERSION);
    add_word(t, "commit", commit);
    add_machine(r, t);
    text_add(t, "\"ranks\": %d,\n", r->s->mesh.world);
    snprintf(layout, sizeof layout, "tp %lld, pp %lld, dp %lld", (long long)o->parallel.tp,
             (long long)o->parallel.pp, (long long)o->parallel.dp);
    add_word(t, "layout", layout);
    add_word(t, "schedule", r->s->sched.name);
    add_word(t, "transport", comm_kind(r->rank.world) == COMM_MPI ? "mpi" : "thread");
    text_add(t, "\"steps\": %lld,\n", (long long)o->train.steps);
    add_hash(t, "data_hash", r->job->train.hash);
    add_hash(t, "valid_hash", r->job->valid.hash);
    add_word(t, "tokenizer", r->s->tokenizer);
}

/* ---- log.txt ---- */

void train_log_step(struct train_rank *r, const struct plait_step *p)
{
    int64_t every = r->s->o->train.log_every;
    double now = log_now();
    bool edge = p->step == r->resumed + 1 || p->step == p->steps;
    if (!edge && (every > 0 ? p->step % every != 0 : now - r->logged < line_pause))
        return;
    r->logged = now;
    log_kept("step %lld/%lld  loss %.4f  norm %.3g  lr %.3g  %.0f %s/s", (long long)p->step,
             (long long)p->steps, p->loss, p->grad_norm, p->lr, p->tokens_per_s,
             p->rows ? "rows" : "tok");
}

/* ---- the end ---- */

void train_record_end(const struct train_job *job, enum err code)
{
    struct err_kept kept;
    err_keep(&kept, code);
    if (job->folder->begun && code == ERR_OK)
        log_kept("ended behind step %lld", (long long)job->folder->done);
    else if (job->folder->begun)
        log_kept("ended with code %d behind step %lld: %s", (int)code,
                 (long long)job->folder->done, err_bare(kept.text));
    if (job->folder->begun)
        folder_end(job->folder, code, kept.text);
    (void)!err_again(&kept);
}

void train_record_rank(const struct train_rank *r, const struct err_kept *end)
{
    enum err code = err_again(end);
    if (code == ERR_OK)
        code = err_again(&r->told);
    if (code == ERR_OK)
        code = train_outcome_of(r->job->outcome);
    if (r->rank.is_logger)
        train_record_end(r->job, code);
}
