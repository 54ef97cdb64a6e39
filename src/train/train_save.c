/* SPDX-License-Identifier: Apache-2.0
 *
 * When a training run saves checkpoints, and what it says of itself in them.
 */
#include "train/train.h"

#include "train/stop.h"

#include <stdio.h>
#include <unistd.h>
#include <xxhash.h>

enum err train_save_open(struct train_rank *r)
{
    const struct setup *s = r->s;
    const struct rank *k = &r->rank;
    char host[65] = "", words[128];
    if (!r->run[0]) { /* its name is its begin: host, process, time; the same on all ranks */
        (void)gethostname(host, sizeof host - 1);
        int n = snprintf(words, sizeof words, "%s %ld %.6f", host, (long)getpid(), log_date());
        snprintf(r->run, sizeof r->run, "%016llx",
                 (unsigned long long)XXH3_64bits(words, (size_t)n));
        TRY(comm_broadcast(k->all, 0, r->run, sizeof r->run));
    }
    if (!options_checkpoints(s->o))
        return ERR_OK;
    bool mine = comm_kind(k->world) == COMM_THREAD || k->is_logger;
    TRY(checkpoint_open(&r->ckpt, k, r->run, mine ? &r->job->folder->lock : NULL));
    r->ckpt.ended = r->ckpt.whole = folder_means_own(s->o) ? r->resumed : 0;
    return s->o->train.save_best ? checkpoint_find_best(&r->ckpt, r->ckpt.ended) : ERR_OK;
}

/* Are checkpoints saved? None is behind a state that was not finite. */
static bool saves(const struct train_rank *r)
{
    return r->ckpt.s && r->ckpt.refused == 0;
}

bool train_save_due(const struct train_rank *r)
{
    int64_t every = r->s->o->train.save_every;
    return saves(r) && (r->save || (every > 0 && r->step % every == 0));
}

static enum err begin(struct train_rank *r)
{
    const struct options *o = r->s->o;
    struct state_head h = {.step = r->taken,
                           .type = checkpoint_type(r->rank.dev->at),
                           .model = r->s->model,
                           .seed = (uint64_t)o->train.seed,
                           .data_hash = r->job->train.hash,
                           .valid_hash = r->job->valid.hash,
                           .tokenizer_hash = tokenizer_hash(r->s->tokenizer),
                           .warmup = r->lr.warmup,
                           .decay = r->lr.decay,
                           .steps = r->lr.steps,
                           .loss = r->loss,
                           .valid_loss = r->validated == r->taken ? r->valid_loss : NAN,
                           .world = r->s->mesh.world};
    memcpy(h.run, r->run, sizeof h.run);
    snprintf(h.tokenizer, sizeof h.tokenizer, "%s", r->s->tokenizer);
    snprintf(h.layout, sizeof h.layout, "tp %lld, pp %lld, dp %lld", (long long)o->parallel.tp,
             (long long)o->parallel.pp, (long long)o->parallel.dp);
    if (options_device(o) == DEV_CUDA) /* the others measure nothing */
        TRY(choices_gather(&r->choices, r->rank.dev, r->rank.all));
    h.notes = choices_text(&r->choices);
    return checkpoint_begin(&r->ckpt, &h);
}

enum err train_save_step(struct train_rank *r)
{
    enum err err = ERR_OK;
    if (r->all_written && r->ckpt.step > 0)
        err = checkpoint_end(&r->ckpt);
    r->all_written = false;
    TRY(train_put_off(r, err));
    bool best = saves(r) && r->s->o->train.save_best && r->validated == r->step &&
                checkpoint_would_be_best(&r->ckpt, r->valid_loss); /* none was better */
    bool due = train_save_due(r) || best;
    if (r->taken != r->step)
        return ERR_OK;
    if (r->save && !r->stop) { /* requests until now are answered behind this step */
        const char *then = r->taken == r->s->o->train.steps ? "it is the last step"
                                                            : "the run goes on";
        r->heard = stop_saves();
        r->save = false;
        if (r->rank.is_logger && saves(r))
            log_line(LOG_WARN, "a checkpoint is saved behind step %lld, as was asked%s%s",
                     (long long)r->taken, r->taken == r->s->o->train.steps ? "; " : ", and ", then);
        else if (r->rank.is_logger && !r->ckpt.s) /* else the run ends with why */
            log_line(LOG_WARN, "asked to save behind step %lld, and no checkpoint is saved, since "
                               "%s; %s", (long long)r->taken,
                     r->s->o->run.save ? "train.save_keep is 0" : "run.save is false", then);
    }
    if (due && saves(r))
        TRY(train_put_off(r, begin(r)));
    r->stop = r->stop || (r->ckpt.s && r->ckpt.refused > 0);
    return ERR_OK;
}

/* Ends the save under way. finite: the weights are; else it is known why that one is refused. */
static enum err end_save(struct train_rank *r, bool finite)
{
    enum err err = r->ckpt.step > 0 ? checkpoint_end(&r->ckpt) : ERR_OK;
    return !finite && err == ERR_NONFINITE ? ERR_OK : train_put_off(r, err);
}

enum err train_save_last(struct train_rank *r, bool finite)
{
    if (!r->ckpt.s)
        return ERR_OK;
    TRY(end_save(r, finite));
    if (!finite || !saves(r) || r->ckpt.ended == r->taken)
        return ERR_OK;
    TRY(checkpoint_make_room(&r->ckpt));
    TRY(train_put_off(r, begin(r)));
    return end_save(r, true);
}
