/* SPDX-License-Identifier: Apache-2.0
 *
 * Going on from a checkpoint, on whatever layout: each rank reads what it holds of weights and
 * moments from the boxes that other ranks once wrote. The first rank chooses the checkpoint. All
 * ranks prove that they have opened the same one (hosts may have folders of their own under one
 * name) and agree on whether it is good; nothing is taken over before. A damaged one is named, and
 * run.resume=auto takes the one before.
 */
#include "train/train.h"

#include "config/options.h"
#include "folder/resume_same.h"

#include <stdio.h>

/* ---- what all ranks have ---- */

/* What a rank has of the checkpoint that is tried: an error or none, the file, its digest. */
struct view { int32_t code, there; uint64_t digest; };

/* `bytes` of each rank, in their order. */
static enum err gather(const struct train_rank *r, const void *mine, int64_t bytes, void *all)
{
    if (r->rank.all)
        return comm_all_gather(r->rank.all, all, mine, bytes / 4, DT_I32);
    memcpy(all, mine, (size_t)bytes);
    return ERR_OK;
}

/* An error that ends the run, whichever checkpoint it would be. */
static bool ends(const struct view *v)
{
    return v->code != ERR_OK && v->code != ERR_CHECKPOINT;
}

/* *bad: the first rank where it is not good; -1: none. Another error than that ends the run, and so
 * does a checkpoint that is not the one which the first rank has opened. */
static enum err judge(const struct train_rank *r, const char *dir, const struct view *all, int *bad)
{
    static const char way[] = "all ranks have to read one folder: share it between the hosts, or "
                              "make the copies the same";
    int n = r->s->mesh.world, me = r->rank.me;
    *bad = -1;
    if (ends(&all[me]))
        return ERR_OK; /* its own error says more */
    for (int i = n - 1; i >= 0; i--) {
        if (ends(&all[i]))
            FAIL(ERR_PEER, "run.resume: rank %d cannot go on from %s", i, dir);
        *bad = all[i].code != ERR_OK ? i : *bad;
    }
    for (int i = 1; i < n && all[0].code == ERR_OK; i++) {
        if (!all[i].there)
            FAIL(ERR_MISMATCH, "run.resume: the checkpoint %s that rank 0 has opened is not there "
                               "on rank %d; %s", dir, i, way);
        if (all[i].code == ERR_OK && all[i].digest != all[0].digest)
            FAIL(ERR_MISMATCH, "run.resume: the checkpoint %s differs between rank 0 and rank %d "
                               "(digests %016llx and %016llx); %s", dir, i,
                 (unsigned long long)all[0].digest, (unsigned long long)all[i].digest, way);
    }
    return ERR_OK;
}

/* err: of this rank. One that ends the run is returned as it is, since all may have it. */
static enum err agree(const struct train_rank *r, enum err err, const struct state_index *x,
                      const char *dir, int *bad)
{
    struct view mine = {.code = (int32_t)err, .there = err == ERR_OK || state_exists(dir)}, *all;
    struct err_kept own;
    err_keep(&own, err);
    mine.digest = err == ERR_OK ? state_index_digest(x) : 0;
    TRY(mem_new(r->s->mesh.world, sizeof *all, "what ranks have of a checkpoint", &all));
    err = gather(r, &mine, sizeof mine, all);
    if (err == ERR_OK)
        err = judge(r, dir, all, bad);
    mem_free(all);
    return err == ERR_OK && own.code != ERR_OK ? err_again(&own) : err;
}

/* ---- one checkpoint ---- */

/* It is good on all ranks. Choices of algorithms come before the first GEMM; a device of another
 * kind has none, which is said. */
static enum err take(struct train_rank *r, const struct state_index *x, const struct options *was)
{
    const struct options *o = r->s->o;
    bool taken = false, own = r->rank.is_logger && folder_means_own(o);
    TRY(dev_choose(r->rank.dev, x->head.notes, &taken));
    /* Lengths of warm-up and decay are kept as they were in effect, unless others are asked for. */
    const struct state_head *h = &x->head;
    bool same_decay = was->optim.decay_steps == o->optim.decay_steps &&
                      was->optim.schedule == o->optim.schedule;
    r->resumed = r->taken = r->queued = r->read = r->traced = h->step;
    r->lr.warmup = was->optim.warmup == o->optim.warmup ? h->warmup : r->lr.warmup;
    r->lr.decay = same_decay ? h->decay : r->lr.decay;
    r->lr.steps = o->optim.decay_keep ? h->steps : o->train.steps;
    r->loss = r->result.loss = h->loss;
    memcpy(r->run, h->run, sizeof r->run);
    char plan[96] = "";
    bool moved = was->train.device != o->train.device;
    if (h->step == o->train.steps)
        snprintf(plan, sizeof plan, "; all its %lld steps are done", (long long)h->step);
    else if (r->lr.steps <= h->step && r->lr.kind != LR_CONSTANT)
        snprintf(plan, sizeof plan, "; the decay has ended at step %lld: all steps left have "
                 "optim.lr_min", (long long)h->steps);
    else if (r->lr.steps != h->steps)
        snprintf(plan, sizeof plan, "; the decay is planned anew, from %lld to %lld steps",
                 (long long)h->steps, (long long)r->lr.steps);
    snprintf(r->origin, sizeof r->origin, "behind step %lld, from %s (saved with %s)%s%s",
             (long long)h->step, x->dir, h->layout, plan,
             moved ? "; it was saved with another train.device: last bits may differ" : "");
    if (own && was->train.save_best && !o->train.save_best) /* it goes on without that word */
        log_line(LOG_WARN, "%s was saved with train.save_best true, which is false now: the best "
                           "checkpoint goes like any older one; add train.save_best=true to keep "
                           "it", x->dir);
    size_t n = strlen(r->origin);
    taken = taken || moved;
    TRY(choices_agree(r->rank.all, &taken));
    if (!taken && o->train.deterministic)
        snprintf(r->origin + n, sizeof r->origin - n, "; train.deterministic takes none of its "
                 "choices of GEMM and attention algorithms: last bits may differ");
    else if (!taken)
        snprintf(r->origin + n, sizeof r->origin - n, "; it has no choices of GEMM and attention "
                 "algorithms for this GPU and these versions of the libraries, so they are made "
                 "anew: last bits may differ");
    return ERR_OK;
}

static enum err try_one(struct train_rank *r, const char *dir, int64_t step, int *bad)
{
    struct state_index x = {.dir = NULL};
    struct options was;
    enum err err = agree(r, resume_open(&x, dir, step, &was), &x, dir, bad);
    if (err == ERR_OK && *bad < 0) {
        struct resume_here here = {r->s->o, &r->s->model, r->s->tokenizer, r->job->train.hash,
                                   r->job->valid.hash};
        const struct weights saved = {.state = x};
        err = resume_same(&here, &x, &was);
        double begin = log_now();
        if (err == ERR_OK)
            err = load_stores(&r->rank, &saved, true);
        r->load_s = log_now() - begin;
        err = agree(r, err, &x, dir, bad);
    }
    r->loaded = 0;
    for (int i = 0; i < r->rank.x->stages_here && err == ERR_OK && *bad < 0; i++) {
        const struct param_store *of = r->rank.x->store[i];
        r->loaded += of->elements + 2 * of->elements / of->num_shards;
    }
    r->loaded *= dtype_size(r->rank.dev->at);
    if (err == ERR_OK && *bad < 0)
        err = take(r, &x, &was);
    state_index_close(&x);
    return err;
}

/* ---- choosing ---- */

/* The checkpoints of run.dir, as the first rank sees them. No rank may see a newer one than that:
 * it would go as if it were damaged. */
static enum err list(struct train_rank *r, struct state_found **found, int *n)
{
    char first[40] = "none";
    TRY(state_list(r->s->o->run.dir, true, found, n));
    int mine = *n;
    int64_t newest = mine > 0 ? (*found)[0].step : -1, *all = NULL;
    enum err err = mem_new(r->s->mesh.world, sizeof *all, "the ranks' newest checkpoints", &all);
    if (err == ERR_OK)
        err = gather(r, &newest, sizeof newest, all);
    if (err == ERR_OK && all[0] >= 0)
        snprintf(first, sizeof first, "step %lld", (long long)all[0]);
    for (int i = 1; i < r->s->mesh.world && err == ERR_OK; i++)
        if (all[i] > all[0])
            err = err_set(ERR_MISMATCH, __FILE__, __LINE__, "run.resume: the newest checkpoint in "
                          "%s/checkpoints is of step %lld on rank %d, and rank 0 sees %s; run.dir "
                          "has to be one folder that all ranks share", r->s->o->run.dir,
                          (long long)all[i], i, first);
    mem_free(all);
    if (err == ERR_OK)
        err = comm_broadcast(r->rank.all, 0, n, sizeof *n);
    if (err == ERR_OK && *n > mine)
        err = mem_grow(mine, *n, sizeof **found, "the checkpoints of a run", found);
    if (err == ERR_OK && *n > 0)
        err = comm_broadcast(r->rank.all, 0, *found, *n * (int64_t)sizeof **found);
    if (err != ERR_OK)
        mem_free(*found);
    return err;
}

/* auto: the newest that is good. A damaged one is named by the first rank that has found it so. */
static enum err try_newest(struct train_rank *r)
{
    struct state_found *found;
    int n, bad = 0;
    enum err err = ERR_OK;
    TRY(list(r, &found, &n));
    for (int i = 0; i < n && bad >= 0 && err == ERR_OK; i++) {
        char dir[FS_PATH];
        state_dir(dir, r->s->o->run.dir, found[i].step);
        err = try_one(r, dir, found[i].step, &bad);
        if (err == ERR_CHECKPOINT && bad == r->rank.me)
            log_line(LOG_WARN, "%s; the checkpoint before it is tried", err_bare(err_text()));
        err = err == ERR_CHECKPOINT ? ERR_OK : err;
    }
    mem_free(found);
    if (err == ERR_OK && n == 0)
        snprintf(r->origin, sizeof r->origin, "there is no checkpoint in %s/checkpoints: from the "
                 "start", r->s->o->run.dir);
    return err == ERR_OK && n > 0 && bad >= 0 ? resume_none_good(r->s->o, n) : err;
}

enum err train_resume(struct train_rank *r)
{
    const struct options *o = r->s->o;
    char dir[FS_PATH];
    int64_t step;
    int bad;
    r->lr = rates_planned(o);
    if (!o->run.resume[0])
        return ERR_OK;
    if (strcmp(o->run.resume, "auto") == 0)
        return try_newest(r);
    /* The first rank chooses; whether the others have it is seen when they open it. */
    if (r->rank.me == 0)
        TRY(folder_resumed(o, dir, &step));
    TRY(comm_broadcast(r->rank.all, 0, &step, sizeof step));
    if (step < 0)
        snprintf(dir, sizeof dir, "%s", o->run.resume);
    else
        state_dir(dir, o->run.dir, step);
    TRY(folder_others(try_one(r, dir, step, &bad), dir));
    if (bad >= 0)
        FAIL(ERR_PEER, "run.resume: rank %d cannot read the checkpoint", bad);
    return ERR_OK;
}
