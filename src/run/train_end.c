/* SPDX-License-Identifier: Apache-2.0
 *
 * How a run ends on one rank: all steps done, stopped, a loss or norm that is not finite, a file of
 * its reports that cannot be written. Whatever it is, the weights of the last good step are saved
 * first. Of a step that is not finite no rank updates anything (optim.h), so these are the ones in
 * memory.
 */
#include "run/train.h"

#include "run/stop.h"

#include <stdio.h>

bool train_asks(const struct train_rank *r)
{
    return stop_asked() != 0 || r->lost != ERR_OK;
}

enum err train_put_off(struct train_rank *r, enum err err)
{
    if (err != ERR_STORAGE)
        return err;
    if (r->lost == ERR_OK)
        snprintf(r->lost_text, sizeof r->lost_text, "%s", err_text());
    r->lost = err;
    return ERR_OK;
}

/* ---- the ends ---- */

/* Has a run that was stopped something left to do? */
static bool work_left(const struct train_rank *r)
{
    int64_t steps = r->s->o->train.steps;
    return r->taken < steps || (r->job->valid.samples && r->validated < steps);
}

/* "stopped by SIGTERM behind step 5 of 10; weights in runs/a/model.safetensors" */
static enum err note_stop(struct train_rank *r)
{
    struct text page = {0};
    int why = stop_asked();
    if (!r->stop || !work_left(r))
        return ERR_OK;
    atomic_store(&r->job->outcome->stopped, true);
    if (!r->reports)
        return ERR_OK;
    text_add(&page, "stopped by %s%s", why ? stop_name(why) : "a request",
             why ? "" : " at another rank");
    if (r->taken == 0)
        text_add(&page, " before the first step");
    else
        text_add(&page, " behind step %lld of %lld", (long long)r->taken,
                 (long long)r->s->o->train.steps);
    text_add(&page, "; ");
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

static enum err keep_weights(struct train_rank *r)
{
    return r->taken > 0 && r->s->o->run.save ? save_weights(r->s, r->x, r->world, r->s->o->run.dir)
                                             : ERR_OK;
}

/* The error once more, with what became of the weights. */
static enum err with_weights(const struct train_rank *r, enum err err, const char *text)
{
    struct text page = {0};
    text_add(&page, "%s; ", text);
    if (r->taken > 0 && r->s->o->run.save)
        text_add(&page, "the weights of step %lld are in %s/model.safetensors",
                 (long long)r->taken, r->s->o->run.dir);
    else
        train_say_weights(r, &page);
    enum err said = page.err == ERR_OK ? err_set(err, __FILE__, __LINE__, "%s", page.s) : page.err;
    text_free(&page);
    return said;
}

/* A step's loss or norm is not finite, as all ranks know. */
static enum err end_lost(struct train_rank *r)
{
    const struct options *o = r->s->o;
    struct text page = {0};
    text_add(&page, "%s; lower optim.lr%s, or look at the data of that step", err_text(),
             o->optim.clip > 0 ? " or lengthen optim.warmup" : " or set optim.clip 1");
    enum err err = r->dev->ops->sync(r->dev); /* a step that was queued behind it changes nothing */
    if (err == ERR_OK)
        err = keep_weights(r);
    if (err == ERR_OK && exec_world_group(r->x))
        err = comm_barrier(exec_world_group(r->x)); /* a rank that fails ends the writer's work */
    if (err == ERR_OK)
        err = page.err;
    if (err == ERR_OK)
        err = with_weights(r, ERR_NONFINITE, page.s);
    text_free(&page);
    return err;
}

enum err train_end(struct train_rank *r, enum err err)
{
    if (err == ERR_NONFINITE)
        return end_lost(r);
    TRY(err);
    TRY(keep_weights(r));
    TRY(note_stop(r));
    if (r->taken > 0)
        TRY(train_report_end(r));
    return r->lost == ERR_OK ? ERR_OK : with_weights(r, r->lost, r->lost_text);
}
