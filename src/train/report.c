/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run says of itself: the table before the first step, a line of metrics.jsonl and a call
 * for each step and validation, the summary behind the last. The reporting rank alone writes and
 * calls back.
 */
#include "train/train.h"

#include "device/profile.h"
#include "config/rates.h"
#include "setup/room.h"

/* The file that callers write reports to, as far as is known here: a terminal that stands still is
 * no hang. */
#define OUTPUT "the output of the run (a report)"

enum err train_report_start(struct train_rank *r)
{
    const struct rank *k = &r->rank;
    struct text table = {0};
    double *all;
    int n = r->s->mesh.world;
    TRY(mem_new(n + 1, sizeof *all, "the memory of all ranks", &all));
    all[n] = train_asks(r);
    all[k->me] =
        (double)(exec_bytes(k->x) + k->dev->workspace_bytes + comm_device_taken(k->world));
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
    train_log_step(r, &p);
    TRY(train_put_off(r, metrics_step(r, &p)));
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
    TRY(train_put_off(r, metrics_valid(r, bytes ? &bits : NULL)));
    fs_call_begin(OUTPUT);
    if (r->job->call->on_valid)
        r->job->call->on_valid(r->job->call->arg, r->step, r->valid_loss, bits);
    fs_call_end();
    return ERR_OK;
}

/* Planned and used memory of all ranks, where devices have their own. Collective over the world. */
static enum err report_room(struct train_rank *r, struct text *page)
{
    const struct rank *k = &r->rank;
    double *used;
    int64_t left, total;
    if (k->total_bytes == 0)
        return ERR_OK;
    TRY(k->dev->ops->mem_info(k->dev, &left, &total));
    TRY(mem_new(r->s->mesh.world, sizeof *used, "the memory of all ranks", &used));
    used[k->me] =
        (double)(k->free_bytes + k->dev->workspace_bytes - k->dev->graph_bytes - left);
    enum err err = comm_all_reduce(k->all, used, r->s->mesh.world, DT_F64, COMM_SUM);
    if (err == ERR_OK)
        room_table(r->s, used, page);
    mem_free(used);
    return err;
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

static void summarize(const struct train_rank *r, struct text *page)
{
    char t[32];
    if (r->rank.profile)
        dev_profile_table(r->rank.profile, page);
    if (r->s->decided[DECIDED_GRAPH].value)
        text_add(page, "%lld of %lld steps were replays of a recorded one\n",
                 (long long)r->replayed, (long long)(r->taken - r->resumed));
    if (r->loaded > 0)
        text_add(page, "loaded: %s in %.2f s, %.2f GB/s\n", text_bytes(r->loaded, t), r->load_s,
                 (double)r->loaded / fmax(r->load_s, 1e-9) / 1e9);
    checkpoint_report(&r->ckpt, page);
    text_add(page, "%lld step%s in %s, loss %.4f; ", (long long)(r->taken - r->resumed),
             text_plural(r->taken - r->resumed, "s"), text_seconds(r->seconds, t), r->result.loss);
    train_say_weights(r, page);
}

enum err train_report_end(struct train_rank *r)
{
    struct text page = {0};
    enum err err = report_room(r, &page);
    if (err == ERR_OK && r->rank.is_logger && r->job->call->on_done) {
        summarize(r, &page);
        err = page.err;
        fs_call_begin(OUTPUT);
        if (err == ERR_OK)
            r->job->call->on_done(r->job->call->arg, page.s);
        fs_call_end();
    }
    text_free(&page);
    return err;
}
