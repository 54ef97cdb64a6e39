/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run says of itself, and keeps. The table before the first step; for each step and
 * validation a call and a line of metrics.jsonl (docs/metrics.md), a JSON object that leaves with
 * one write; the summary behind the last. log.txt, what it said, with lines of steps as seldom as
 * on a standard error that is no terminal; run.json, what it is and how each start ended. The
 * reporting rank alone writes and calls back. Numbers of metrics have all their digits; one that is
 * not finite is null, for JSON has no word for it. Steps take no memory.
 */
#include "train/train.h"

#include "base/thread.h"
#include "config/machine.h"
#include "setup/setup.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* ---- metrics.jsonl ---- */

/* A line: its members, and behind them when it was, and how long the run had taken. */
static enum err put(struct train_rank *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static enum err put(struct train_rank *r, const char *fmt, ...)
{
    struct metrics_late *late = &r->late;
    bool broken = late->n > 0;
    char s[METRICS_LINE];
    va_list ap;
    late->begin = broken ? late->begin : fs_sys_end(r->metrics, "metrics.jsonl");
    va_start(ap, fmt);
    int n = vsnprintf(s, sizeof s, fmt, ap);
    va_end(ap);
    ENSURE(n < METRICS_LINE);
    n += snprintf(s + n, sizeof s - (size_t)n, ", \"time\": %.6f, \"elapsed\": %.6f}\n",
                  log_date(), log_now() - r->job->began);
    ENSURE(n < METRICS_LINE);
    enum err err = broken ? ERR_OK : fs_append(r->metrics, "metrics.jsonl", s, n);
    if ((broken || err == ERR_STORAGE) && late->n + n <= (int)sizeof late->s) {
        late->first = late->n == 0 ? n : late->first; /* the run ends behind a step or two */
        memcpy(late->s + late->n, s, (size_t)n);
        late->n += n;
    }
    return train_put_off(r, err);
}

/* What fails is said already, and by a resume that lacks the lines. What a disk took of the first
 * and could not give back (fs_append) goes, so that the file is whole up to there. */
void train_metrics_again(struct train_rank *r)
{
    static const char name[] = "metrics.jsonl";
    const struct metrics_late *late = &r->late;
    int64_t end = late->n > 0 ? fs_sys_end(r->metrics, name) : 0;
    bool part = late->begin >= 0 && end > late->begin && end - late->begin < late->first;
    if (late->n > 0 && (!part || fs_sys_cut(r->metrics, name, late->begin) == 0))
        (void)fs_append(r->metrics, name, late->s, late->n);
    r->late.n = 0;
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

void train_record_facts(const struct train_rank *r, struct text *t)
{
    const struct options *o = r->s->o;
    char layout[96], host[65] = "", device[256];
    struct text processor = {0}, units = {0};
    add_word(t, "version", PLAIT_VERSION);
    add_word(t, "commit", PLAIT_COMMIT[0] ? PLAIT_COMMIT : NULL);
    (void)gethostname(host, sizeof host - 1);
    machine_processor(&processor);
    dev_describe_kind(options_device(o), device, sizeof device);
    add_word(t, "host", host);
    add_word(t, "processor", processor.s);
    text_add(t, "\"cores\": %d,\n", cores_usable());
    add_word(t, "device", device);
    dev_describe_units(options_device(o), &units); /* as GPUs; none of a processor */
    text_add(t, "\"devices\": [");
    for (char *s = units.s, *end; s && (end = strchr(s, '\n')) != NULL; s = end + 1) {
        *end = '\0';
        text_add(t, "%s", s == units.s ? "" : ", ");
        text_add_json(t, s);
    }
    text_add(t, "],\n");
    t->err = t->err != ERR_OK ? t->err : processor.err != ERR_OK ? processor.err : units.err;
    text_free(&processor);
    text_free(&units);
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

/* ---- what is said ---- */

/* The file that callers write reports to, as far as is known here: a terminal that stands still is
 * no hang. */
#define OUTPUT "the output of the run (a report)"

/* By this rank's own count. */
static int64_t taken(const struct rank *k)
{
    return exec_bytes(k->x) + k->dev->workspace_bytes + comm_device_taken(k->world);
}

enum err train_report_start(struct train_rank *r)
{
    const struct rank *k = &r->rank;
    struct text table = {0};
    double *all;
    int n = r->s->mesh.world;
    TRY(mem_new(n + 1, sizeof *all, "the memory of all ranks", &all));
    all[n] = train_asks(r);
    all[k->me] = (double)taken(k);
    enum err err = comm_all_reduce(k->all, all, n + 1, DT_F64, COMM_SUM);
    r->stop = all[n] > 0;
    if (err == ERR_OK && r->rank.is_logger && r->job->call->on_start) {
        setup_table(r->s, all, &table);
        if (r->origin[0])
            text_add(&table, "resume          %s\n", r->origin);
        text_add(&table, "%s", r->job->notes);
        if (r->s->o->run.resume[0])
            rates_warn(r->s->o, &r->lr, &table);
        err = table.err;
        fs_call_begin(OUTPUT);
        if (err == ERR_OK)
            r->job->call->on_start(r->job->call->arg, table.s);
        fs_call_end();
    }
    text_free(&table);
    mem_free(all);
    return err;
}

enum err train_report_step(struct train_rank *r, int64_t step)
{
    const struct options *o = r->s->o;
    int64_t targets = o->train.batch * r->job->train.targets;
    struct plait_step p = {.step = step, .steps = o->train.steps, .loss = r->result.loss,
                           .grad_norm = r->result.grad_norm, .lr = lr_at(&r->lr, step),
                           .rows = !model_traits(r->s->model.kind)->text,
                           .tokens = step * targets, .seconds = r->took};
    r->seconds += r->took;
    p.tokens_per_s = (double)targets / r->took;
    p.seconds_left = r->seconds / (double)(step - r->resumed) *
                     (double)(o->train.steps - step);
    if (!r->rank.is_logger)
        return ERR_OK;
    const double pause = 2; /* seconds between lines of log.txt, with train.log_every 0 */
    int64_t every = o->train.log_every;
    double now = log_now();
    bool edge = step == r->resumed + 1 || step == p.steps;
    if (edge || (every > 0 ? step % every == 0 : now - r->logged >= pause)) {
        r->logged = now;
        log_kept("step %lld/%lld  loss %.4f  norm %.3g  lr %.3g  %.0f %s/s", (long long)step,
                 (long long)p.steps, p.loss, p.grad_norm, p.lr, p.tokens_per_s,
                 p.rows ? "rows" : "tok");
    }
    char number[5][32];
    TRY(put(r, "{\"step\": %lld, \"loss\": %s, \"grad_norm\": %s, \"lr\": %s, \"tokens\": %lld, "
               "\"tokens_per_s\": %s, \"seconds\": %s", (long long)step,
            text_json_real(p.loss, number[0]), text_json_real(p.grad_norm, number[1]),
            text_json_real(p.lr, number[2]), (long long)p.tokens,
            text_json_real(p.tokens_per_s, number[3]), text_json_real(p.seconds, number[4])));
    fs_call_begin(OUTPUT);
    if (r->job->call->on_step)
        r->job->call->on_step(r->job->call->arg, &p);
    fs_call_end();
    return ERR_OK;
}

/* Schedules take microbatches in any order, so those that have begun are counted. Of a step that is
 * done again there are no more than that. */
void train_report_within(void *arg, struct sched_instr in)
{
    struct train_rank *r = arg;
    bool backward = in.op == SCHED_B || in.op == SCHED_I;
    if (in.stage != r->s->sched.stages - 1 || (in.op != SCHED_F && !backward) ||
        !sched_begins_stage(&r->s->sched, in))
        return;
    if (r->within != r->step)
        r->begun[0] = r->begun[1] = 0;
    r->within = r->step;
    struct plait_microbatch m = {.step = r->step, .steps = r->s->o->train.steps,
                                 .microbatches = sched_microbatches(&r->s->sched, 0),
                                 .backward = backward};
    m.microbatch = num_min(++r->begun[backward], m.microbatches);
    fs_call_begin(OUTPUT);
    r->job->call->on_microbatch(r->job->call->arg, &m);
    fs_call_end();
}

enum err train_report_valid(struct train_rank *r)
{
    bool bytes = strcmp(r->job->valid.tokenizer, "bytes") == 0; /* a token is a byte */
    double bits = bytes ? r->valid_loss / log(2.0) : NAN;
    if (!r->rank.is_logger)
        return ERR_OK;
    log_kept("valid at step %lld: loss %.4f", (long long)r->step, r->valid_loss);
    char loss[32], more[64] = "", number[32];
    if (bytes)
        snprintf(more, sizeof more, ", \"bits_per_byte\": %s", text_json_real(bits, number));
    TRY(put(r, "{\"step\": %lld, \"valid_loss\": %s, \"valid_tokens\": %lld%s", (long long)r->step,
            text_json_real(r->valid_loss, loss), (long long)r->valid_tokens, more));
    fs_call_begin(OUTPUT);
    if (r->job->call->on_valid)
        r->job->call->on_valid(r->job->call->arg, r->step, r->valid_loss, bits);
    fs_call_end();
    return ERR_OK;
}

void train_say_weights(const struct train_rank *r, struct text *page)
{
    if (r->taken == 0)
        text_add(page, "there are no weights, since no step has ended");
    else if (!r->opened)
        text_add(page, "nothing was written, and the checkpoint stays");
    else if (r->s->o->run.save)
        text_add(page, "weights in %s/model.safetensors", r->s->o->run.dir);
    else
        text_add(page, "no weights kept (run.save false)");
}

/* What ranks have used of planned memory, where devices have their own; what came of the steps. */
enum err train_report_end(struct train_rank *r)
{
    const struct rank *k = &r->rank;
    int64_t left, total, steps = r->taken - r->resumed;
    struct text page = {0};
    double *used = NULL;
    enum err err = ERR_OK;
    char t[32];
    if (k->total_bytes > 0) {
        TRY(k->dev->ops->mem_info(k->dev, &left, &total));
        TRY(mem_new(r->s->mesh.world, sizeof *used, "the memory of all ranks", &used));
        bool shared = r->s->o->train.share_gpus; /* its count would be that of all ranks */
        used[k->me] =
            (double)(shared ? taken(k)
                            : k->free_bytes + k->dev->workspace_bytes - k->dev->graph_bytes - left);
        err = comm_all_reduce(k->all, used, r->s->mesh.world, DT_F64, COMM_SUM);
        if (err == ERR_OK)
            room_table(r->s, used, &page);
        mem_free(used);
    }
    if (err == ERR_OK && k->is_logger && r->job->call->on_done) {
        if (k->profile)
            dev_profile_table(k->profile, &page);
        if (r->s->decided[DECIDED_GRAPH].value)
            text_add(&page, "%lld of %lld steps were replays of a recorded one\n",
                     (long long)r->replayed, (long long)steps);
        if (r->loaded > 0)
            text_add(&page, "loaded: %s in %.2f s, %.2f GB/s\n", text_bytes(r->loaded, t),
                     r->load_s, (double)r->loaded / fmax(r->load_s, 1e-9) / 1e9);
        checkpoint_report(&r->ckpt, &page);
        text_add(&page, "%lld step%s in %s, loss %.4f; ", (long long)steps, text_plural(steps, "s"),
                 text_seconds(r->seconds, t), r->result.loss);
        train_say_weights(r, &page);
        err = page.err;
        fs_call_begin(OUTPUT);
        if (err == ERR_OK)
            r->job->call->on_done(r->job->call->arg, page.s);
        fs_call_end();
    }
    text_free(&page);
    return err;
}
