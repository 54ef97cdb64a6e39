/* SPDX-License-Identifier: Apache-2.0
 *
 * How a run ends on one rank: all steps done, stopped, a loss or norm that is not finite, a file
 * that fails. Whatever it is, the weights of the last good step are saved first, where they are
 * finite. Of a step that is not finite no rank updates anything (optim.h), so these are the ones in
 * memory, and it can be run again to say where it became so (nonfinite.c).
 *
 * What fails while an error is dealt with is said behind it: the first error comes first and gives
 * the code.
 */
#include "train/train.h"

#include "train/stop.h"

#include <stdio.h>

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
    if (!why && train_out_of_time(r))
        text_add(page, "stopped by train.time_limit %g s", r->s->o->train.time_limit);
    else
        text_add(page, "stopped by %s%s", why ? stop_name(why) : "a request",
                 why ? "" : " at another rank");
    if (r->taken == 0)
        text_add(page, " before the first step; ");
    else
        text_add(page, " behind step %lld of %lld; ", (long long)r->taken,
                 (long long)r->s->o->train.steps);
}

/* "stopped by SIGTERM behind step 5 of 10; weights in runs/a/model.safetensors, and a checkpoint,
 * from which run.resume=auto goes on" */
static enum err note_stop(struct train_rank *r)
{
    struct text page = {0};
    if (!r->stop || !work_left(r))
        return ERR_OK;
    atomic_store(&r->job->outcome->stopped, true);
    if (!r->rank.is_logger)
        return ERR_OK;
    say_stop(r, &page);
    train_say_weights(r, &page);
    if (r->ckpt.whole > 0 && r->ckpt.whole == r->taken)
        text_add(&page, ", and a checkpoint, from which run.resume=auto goes on");
    if (page.err == ERR_OK)
        snprintf(r->job->outcome->text, sizeof r->job->outcome->text, "%s", page.s);
    enum err err = page.err;
    text_free(&page);
    return err;
}

/* ---- the ends ---- */

/* What the ranks know of the end. */
struct end {
    int reporter;            /* the first rank that has put an error off; -1: none has */
    struct err_kept first;   /* that one; else what is not finite, on all ranks */
    bool diverged;           /* the weights are not finite: they are not saved */
    struct save_lost unsaved; /* why the weights could not be saved */
};

static bool saves(const struct train_rank *r)
{
    return r->taken > 0 && r->opened && r->s->o->run.save;
}

/* The first error, and one that came while it was dealt with. Who only heard that a peer has failed
 * leaves the word to that one, which knows the first as well: `shared`. */
static enum err both(const struct err_kept *first, enum err second, const char *between,
                     bool shared)
{
    struct err_kept then;
    err_keep(&then, second);
    return err_set(shared && second == ERR_PEER ? ERR_PEER : first->code, __FILE__, __LINE__,
                   "%s; %s: %s", first->text, between, err_bare(then.text));
}

/* The first error, with what became of the weights. */
static enum err with_weights(const struct train_rank *r, const struct end *e)
{
    struct text page = {0};
    if (saves(r) && e->diverged)
        text_add(&page, "these weights are not saved");
    else if (saves(r))
        text_add(&page, "the weights of step %lld are in %s/model.safetensors",
                 (long long)r->taken, r->s->o->run.dir);
    else
        train_say_weights(r, &page);
    if (r->ckpt.s && r->ckpt.whole != r->taken && r->ckpt.whole > 0)
        text_add(&page, "; run.resume=auto goes on from step %lld", (long long)r->ckpt.whole);
    else if (r->ckpt.s && r->ckpt.whole != r->taken)
        text_add(&page, "; there is no checkpoint to go on from");
    enum err said = page.err == ERR_OK ? err_set(e->first.code, __FILE__, __LINE__, "%s; %s",
                                                 e->first.text, page.s) : err_again(&e->first);
    text_free(&page);
    return said;
}

/* Who has an error that it has put off, and which? late: it came behind e->first, if there is one.
 * Collective over the world. */
static enum err find_first(struct train_rank *r, struct end *e, bool late)
{
    int n = r->s->mesh.world, me = r->rank.me;
    double place = r->lost.code != ERR_OK ? n - me : 0;
    TRY(comm_all_reduce(r->rank.all, &place, 1, DT_F64, COMM_MAX));
    e->reporter = place > 0 ? n - (int)place : -1;
    if (e->reporter < 0)
        return ERR_OK;
    struct err_kept told = r->lost;
    TRY(comm_broadcast(r->rank.all, e->reporter, &told, (int64_t)sizeof told));
    if (me != e->reporter)
        err_keep(&told, err_set(told.code, __FILE__, __LINE__, "rank %d: %s", e->reporter,
                                err_bare(told.text)));
    const struct err_kept *one = late ? &e->first : &told, *then = late ? &told : &e->first;
    if (e->first.code != ERR_OK)
        err_keep(&told, err_set(one->code, __FILE__, __LINE__, "%s; then %s", one->text,
                                late ? err_bare(then->text) : then->text));
    e->first = told;
    return ERR_OK;
}

/* One rank says how the run ends; the others end well. */
static bool is_reporter(const struct train_rank *r, const struct end *e)
{
    return e->reporter < 0 ? r->rank.is_logger : e->reporter == r->rank.me;
}

/* Weights that are not finite: the cause of a step that is not, or, left by the last update, seen
 * nowhere else. */
static enum err look_at_weights(const struct train_rank *r, struct end *e)
{
    const bool lost = e->first.code == ERR_NONFINITE, fails = e->first.code != ERR_OK;
    struct text words = {0};
    bool finite = true;
    char whose[64] = "at the start";
    if (r->taken == 0 && !lost)
        return ERR_OK;
    enum err err = train_weights_finite(r, &finite, &words);
    e->diverged = !finite;
    if (r->taken > 0)
        snprintf(whose, sizeof whose, "that step %lld left", (long long)r->taken);
    if (!finite && lost)
        err_keep(&e->first, err_set(ERR_NONFINITE, __FILE__, __LINE__, "%s; already the weights "
                                    "%s are not: %s", e->first.text, whose, words.s));
    else if (!finite)
        err_keep(&e->first, err_set(fails ? e->first.code : ERR_NONFINITE, __FILE__, __LINE__,
                                    "%s%sstep %lld left weights that are not finite: %s; lower "
                                    "optim.lr", e->first.text, fails ? "; and " : "",
                                    (long long)r->taken, words.s));
    text_free(&words);
    return err;
}

static enum err keep_weights(struct train_rank *r, struct end *e)
{
    TRY(find_first(r, e, false));
    TRY(look_at_weights(r, e));
    if (e->first.code != ERR_OK)
        train_deal_with(r, &e->first, is_reporter(r, e));
    train_metrics_again(r);
    if (saves(r))
        TRY(train_save_last(r, !e->diverged));
    if (saves(r) && !e->diverged)
        TRY(save_weights(&r->rank, &r->weights, &r->job->folder->lock, &e->unsaved));
    TRY(train_put_off(r, train_close_files(r)));
    return e->reporter < 0 ? find_first(r, e, true) : ERR_OK;
}

/* Behind a saving that failed with `err`, of the file or of anything else. */
static enum err say_unsaved(const struct train_rank *r, const struct end *e, enum err err)
{
    const struct err_kept *first = e->first.code != ERR_OK ? &e->first : &r->lost;
    char between[96];
    snprintf(between, sizeof between, e->unsaved.placed ? "and of the weights of step %lld"
                                      : "and the weights of step %lld could not be saved",
             (long long)r->taken);
    if (first->code != ERR_OK)
        return both(first, err, between, true);
    if (err != e->unsaved.why.code)
        return err;
    /* Nothing but the weights failed; of a run that was stopped, that too. */
    struct text page = {0};
    if (r->stop && work_left(r))
        say_stop(r, &page);
    err = err_set(err, __FILE__, __LINE__, "%s%s", page.err == ERR_OK && page.s ? page.s : "",
                  e->unsaved.why.text);
    text_free(&page);
    return err;
}

/* The first error, with where the first number that is not finite comes from. A search that fails
 * leaves it as it is, with a word why, on the rank that knows; false: then this rank has failed
 * amid what others wait for, and must say so. */
static bool say_where(struct train_rank *r, struct err_kept *first)
{
    struct text where = {0};
    enum err err = train_locate(r, &where);
    if (err == ERR_OK)
        err = comm_barrier(r->rank.all); /* a rank that ends ends what its peers do */
    bool done = err == ERR_OK;
    if (done)
        err = err_set(first->code, __FILE__, __LINE__, "%s; %s", first->text, where.s);
    else
        err = both(first, err, "where it comes from cannot be said", true);
    err_keep(first, err);
    text_free(&where);
    return done;
}

enum err train_end(struct train_rank *r, enum err err)
{
    struct end e = {.reporter = -1};
    bool finite = err != ERR_NONFINITE, done = true;
    if (!finite) { /* a step's loss or norm, or a validation's loss, as all ranks know */
        const char *way = r->s->o->optim.clip > 0 ? "lengthen optim.warmup" : "set optim.clip 1";
        err_keep(&e.first, err);
        err_keep(&e.first, err_set(err, __FILE__, __LINE__, "%s; lower optim.lr or %s, or look at "
                                   "the data of that %s", e.first.text, way,
                                   r->bad_round < 0 ? "step" : "batch"));
        err = r->rank.dev->ops->sync(r->rank.dev); /* a step queued behind it changes nothing */
        if (err != ERR_OK)
            return both(&e.first, err, "then", true);
    } else if (err != ERR_OK && r->lost.code != ERR_OK)
        return both(&r->lost, err, "then, before weights were saved", false);
    else
        TRY(err);
    err = keep_weights(r, &e);
    if (err != ERR_OK)
        return say_unsaved(r, &e, err);
    r->told = e.unsaved.why;
    if (e.unsaved.why.code != ERR_OK)
        return is_reporter(r, &e) ? say_unsaved(r, &e, err_again(&e.unsaved.why)) : ERR_OK;
    if (!finite && !e.diverged)
        done = say_where(r, &e.first);
    r->told = e.first;
    if (e.first.code == ERR_OK)
        TRY(note_stop(r));
    if (r->taken > 0 && finite)
        err = train_report_end(r);
    if (e.first.code == ERR_OK)
        return err;
    if (err != ERR_OK)
        return both(&e.first, err, "then", true);
    return is_reporter(r, &e) || !done ? with_weights(r, &e) : ERR_OK;
}
