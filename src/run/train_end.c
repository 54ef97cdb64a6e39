/* SPDX-License-Identifier: Apache-2.0
 *
 * How a run ends on one rank: all steps done, stopped, a loss or norm that is not finite, a file
 * that fails. Whatever it is, the weights of the last good step are saved first. Of a step that is
 * not finite no rank updates anything (optim.h), so these are the ones in memory.
 *
 * What fails while an error is dealt with is said behind it: the first error comes first and gives
 * the code.
 */
#include "run/train.h"

#include "run/stop.h"

#include <stdio.h>

bool train_asks(const struct train_rank *r)
{
    return stop_asked() != 0 || r->lost.code != ERR_OK;
}

enum err train_put_off(struct train_rank *r, enum err err)
{
    if (err != ERR_STORAGE && err != ERR_DATA)
        return err;
    if (r->lost.code == ERR_OK)
        err_keep(&r->lost, err);
    return ERR_OK;
}

enum err train_close_files(struct train_rank *r)
{
    struct err_kept first;
    err_keep(&first, fs_log_close(r->metrics, "metrics.jsonl"));
    r->metrics = -1;
    enum err err = trace_close(&r->trace);
    safet_abandon(&r->weights);
    return first.code == ERR_OK ? err : err_again(&first);
}

/* ---- what is said ---- */

/* Has a run that was stopped something left to do? */
static bool work_left(const struct train_rank *r)
{
    int64_t steps = r->s->o->train.steps;
    return r->taken < steps || (r->job->valid.samples && r->validated < steps);
}

/* "stopped by SIGTERM behind step 5 of 10; " */
static void say_stop(const struct train_rank *r, struct text *page)
{
    int why = stop_asked();
    text_add(page, "stopped by %s%s", why ? stop_name(why) : "a request",
             why ? "" : " at another rank");
    if (r->taken == 0)
        text_add(page, " before the first step; ");
    else
        text_add(page, " behind step %lld of %lld; ", (long long)r->taken,
                 (long long)r->s->o->train.steps);
}

/* "stopped by SIGTERM behind step 5 of 10; weights in runs/a/model.safetensors" */
static enum err note_stop(struct train_rank *r)
{
    struct text page = {0};
    if (!r->stop || !work_left(r))
        return ERR_OK;
    atomic_store(&r->job->outcome->stopped, true);
    if (!r->reports)
        return ERR_OK;
    say_stop(r, &page);
    train_say_weights(r, &page);
    if (page.err == ERR_OK)
        snprintf(r->job->outcome->text, sizeof r->job->outcome->text, "%s", page.s);
    enum err err = page.err;
    text_free(&page);
    return err;
}

enum err train_outcome_of(struct train_outcome *o)
{
    return atomic_load(&o->stopped) ? err_adopt(ERR_STOPPED, o->text) : ERR_OK;
}

/* ---- the ends ---- */

/* What the ranks know of the end. */
struct end {
    int speaker;             /* the first rank that has put an error off; -1: none has */
    struct err_kept unsaved; /* why the weights could not be saved */
};

static bool saves(const struct train_rank *r)
{
    return r->taken > 0 && r->s->o->run.save;
}

/* The error once more, with what became of the weights. */
static enum err with_weights(const struct train_rank *r, const struct err_kept *first,
                             const struct end *e)
{
    struct text page = {0};
    text_add(&page, "%s; ", first->text);
    if (e->unsaved.code != ERR_OK)
        text_add(&page, "and the weights of step %lld could not be saved: %s", (long long)r->taken,
                 err_bare(e->unsaved.text));
    else if (saves(r))
        text_add(&page, "the weights of step %lld are in %s/model.safetensors",
                 (long long)r->taken, r->s->o->run.dir);
    else
        train_say_weights(r, &page);
    enum err said = page.err;
    if (said == ERR_OK)
        said = err_set(first->code, __FILE__, __LINE__, "%s", page.s);
    text_free(&page);
    return said;
}

/* Nothing but the weights failed; of a run that was stopped, that too. */
static enum err without_weights(const struct train_rank *r, const struct end *e)
{
    struct text page = {0};
    if (r->stop && work_left(r))
        say_stop(r, &page);
    text_add(&page, "%s", e->unsaved.text);
    enum err said = page.err;
    if (said == ERR_OK)
        said = err_set(e->unsaved.code, __FILE__, __LINE__, "%s", page.s);
    text_free(&page);
    return said;
}

/* Who has an error that it has put off? Collective over the world. */
static enum err find_speaker(const struct train_rank *r, int *speaker)
{
    int n = r->s->mesh.world;
    double place = r->lost.code != ERR_OK ? n - comm_rank(r->world) : 0;
    if (exec_world_group(r->x))
        TRY(comm_all_reduce(exec_world_group(r->x), &place, 1, DT_F64, COMM_MAX));
    *speaker = place > 0 ? n - (int)place : -1;
    return ERR_OK;
}

static enum err keep_weights(struct train_rank *r, struct end *e)
{
    if (saves(r))
        TRY(save_weights(r->s, r->x, r->world, &r->weights, &e->unsaved));
    TRY(train_put_off(r, train_close_files(r)));
    return find_speaker(r, &e->speaker);
}

/* A step's loss or norm is not finite, as all ranks know: with what to do. */
static enum err keep_lost(struct train_rank *r, struct err_kept *out)
{
    const struct options *o = r->s->o;
    struct err_kept said;
    err_keep(&said, ERR_NONFINITE);
    TRY(r->dev->ops->sync(r->dev)); /* a step that was queued behind it changes nothing */
    const char *way = o->optim.clip > 0 ? "lengthen optim.warmup" : "set optim.clip 1";
    err_keep(out, err_set(ERR_NONFINITE, __FILE__, __LINE__,
                          "%s; lower optim.lr or %s, or look at the data of that step", said.text,
                          way));
    return ERR_OK;
}

/* The step that is not finite comes behind an error that was put off. */
static enum err end_put_off(struct train_rank *r, const struct err_kept *lost, const struct end *e)
{
    if (r->lost.code == ERR_OK || comm_rank(r->world) != e->speaker)
        return ERR_OK;
    if (lost->code != ERR_OK) {
        enum err err = err_set(r->lost.code, __FILE__, __LINE__, "%s; then %s", r->lost.text,
                               lost->text);
        err_keep(&r->lost, err);
    }
    return with_weights(r, &r->lost, e);
}

enum err train_end(struct train_rank *r, enum err err)
{
    struct end e = {.speaker = -1};
    struct err_kept lost = {.code = ERR_OK};
    if (err == ERR_NONFINITE)
        TRY(keep_lost(r, &lost));
    else
        TRY(err);
    TRY(keep_weights(r, &e));
    if (e.speaker < 0 && lost.code != ERR_OK)
        return with_weights(r, &lost, &e);
    if (e.speaker < 0 && e.unsaved.code != ERR_OK)
        return r->reports ? without_weights(r, &e) : ERR_OK;
    if (e.speaker < 0)
        TRY(note_stop(r));
    if (r->taken > 0 && lost.code == ERR_OK && e.unsaved.code == ERR_OK)
        TRY(train_report_end(r));
    return end_put_off(r, &lost, &e);
}
