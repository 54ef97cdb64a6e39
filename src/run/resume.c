/* SPDX-License-Identifier: Apache-2.0
 *
 * Going on from a checkpoint, on whatever layout: each rank reads what it holds of weights and
 * moments from the boxes that other ranks once wrote. All ranks open the same checkpoint and agree
 * on whether it is good; a damaged one is named, and run.resume=auto takes the one before.
 */
#include "run/train.h"

#include "base/log.h"
#include "run/load.h"
#include "run/rates.h"

#include <stdio.h>

/* ---- what may not have changed ---- */

static enum err differs(const char *dir, const char *key, const char *there, const char *here,
                        const char *way)
{
    FAIL(ERR_CONFIG, "run.resume: %s is %s in the checkpoint %s, and %s here; %s", key, there, dir,
         here, way);
}

static enum err same_int(const char *dir, const char *key, int64_t there, int64_t here,
                         const char *way)
{
    char a[32], b[32];
    snprintf(a, sizeof a, "%lld", (long long)there);
    snprintf(b, sizeof b, "%lld", (long long)here);
    return there == here ? ERR_OK : differs(dir, key, a, b, way);
}

static enum err same_real(const char *dir, const char *key, double there, double here)
{
    char a[32], b[32];
    snprintf(a, sizeof a, "%.17g", there);
    snprintf(b, sizeof b, "%.17g", here);
    return there == here ? ERR_OK : differs(dir, key, a, b, "it is another model");
}

/* 0: there is none, or it is not known. */
static enum err same_hash(const char *dir, const char *key, uint64_t there, uint64_t here,
                          const char *way)
{
    char a[32], b[32];
    snprintf(a, sizeof a, "of hash %016llx", (unsigned long long)there);
    snprintf(b, sizeof b, "%016llx", (unsigned long long)here);
    return there == here || there == 0 || here == 0 ? ERR_OK : differs(dir, key, a, b, way);
}

static enum err same_model(const char *dir, const struct arch *a, const struct arch *b)
{
    static const char way[] = "it is another model";
    static const char *const kind[] = {"gpt", "llama"};
    if (a->kind != b->kind)
        return differs(dir, "model.kind", kind[a->kind], kind[b->kind], way);
    TRY(same_int(dir, "model.layers", a->layers, b->layers, way));
    TRY(same_int(dir, "model.hidden", a->hidden, b->hidden, way));
    TRY(same_int(dir, "model.heads", a->heads, b->heads, way));
    TRY(same_int(dir, "model.kv_heads", a->kv_heads, b->kv_heads, way));
    TRY(same_int(dir, "model.head_dim", a->head_dim, b->head_dim, way));
    TRY(same_int(dir, "model.ffn", a->ffn, b->ffn, way));
    TRY(same_int(dir, "model.vocab", a->vocab, b->vocab, way));
    TRY(same_int(dir, "model.seq", a->seq, b->seq, way));
    if (a->tied != b->tied)
        return differs(dir, "model.tied", a->tied ? "true" : "false", b->tied ? "true" : "false",
                       way);
    TRY(same_real(dir, "model.dropout", a->dropout, b->dropout));
    TRY(same_real(dir, "model.norm_eps", a->norm_eps, b->norm_eps));
    TRY(same_real(dir, "model.rope_theta", a->rope_theta, b->rope_theta));
    return same_real(dir, "model.init_std", a->init_std, b->init_std);
}

/* Samples are counted by steps of a batch; the rest one may insist on. */
static enum err same_run(const struct train_rank *r, const struct state_index *x,
                         const struct options *was)
{
    static const char way[] = "give the same, or insist with run.resume_insist=true";
    const struct options *o = r->s->o;
    const struct state_head *h = &x->head;
    TRY(same_model(x->dir, &h->arch, &r->s->arch));
    TRY(same_int(x->dir, "train.batch", was->train.batch, o->train.batch,
                 "the place in the data is counted in batches; give the same"));
    if (h->step > o->train.steps)
        FAIL(ERR_CONFIG, "run.resume: train.steps is %lld, and %s is behind step %lld already; ask "
                         "for more steps, or name an earlier checkpoint", (long long)o->train.steps,
             x->dir, (long long)h->step);
    if (o->run.resume_insist)
        return ERR_OK;
    TRY(same_int(x->dir, "train.seed", (int64_t)h->seed, o->train.seed, way));
    if (strcmp(h->tokenizer, r->s->tokenizer) != 0)
        return differs(x->dir, "data.tokenizer", h->tokenizer, r->s->tokenizer, way);
    TRY(same_hash(x->dir, "data.tokenizer", h->tokenizer_hash, tokenizer_hash(h->tokenizer), way));
    TRY(same_hash(x->dir, "data.train", h->data_hash, r->job->train.hash, way));
    return same_hash(x->dir, "data.valid", h->valid_hash, r->job->valid.hash, way);
}

/* ---- reading ---- */

/* Bytes of weights and moments that this rank holds. */
static int64_t held_bytes(const struct train_rank *r)
{
    int64_t n = 0;
    for (int i = 0; i < r->optim.stores; i++)
        n += r->store[i]->elements + 2 * r->store[i]->elements / r->store[i]->shares;
    return n * dtype_size(r->dev->at);
}

static enum err load_all(struct train_rank *r, const struct state_index *x)
{
    const struct weights saved = {.state = *x};
    const struct load from = {&r->s->arch, &saved, r->job->threads};
    double begin = log_now();
    TRY(load_stores(&from, (const struct param_store *const *)r->store, r->optim.stores, true));
    r->loaded = held_bytes(r);
    r->load_s = log_now() - begin;
    return ERR_OK;
}

/* ---- choosing ---- */

/* What is wrong with the configuration is wrong with the checkpoint. */
static enum err read_options(const struct state_index *x, struct options *was)
{
    struct err_kept kept;
    TRY(conf_defaults(&options_table, was));
    err_keep(&kept, conf_read_text(&options_table, was, x->path, x->head.config,
                                   (int64_t)strlen(x->head.config)));
    if (kept.code == ERR_CONFIG)
        FAIL(ERR_CHECKPOINT, "ckpt: the configuration in %s cannot be read; it is damaged or of "
                             "another plait: %s", x->path, err_bare(kept.text));
    return err_again(&kept);
}

/* Lengths of warm-up and decay are kept as they were in effect, unless other ones are asked for. */
static void take_head(struct train_rank *r, const struct state_head *h, const struct options *was)
{
    const struct options *o = r->s->o;
    bool same_decay = was->optim.decay_steps == o->optim.decay_steps &&
                      was->optim.schedule == o->optim.schedule;
    r->resumed = h->step;
    r->taken = r->queued = r->read = r->traced = h->step;
    r->ahead.within = h->within;
    r->lr.warmup = was->optim.warmup == o->optim.warmup ? h->warmup : r->lr.warmup;
    r->lr.decay = same_decay ? h->decay : r->lr.decay;
    r->lr.steps = o->optim.decay_keep ? h->steps : o->train.steps;
    r->loss = r->result.loss = h->loss;
    memcpy(r->run, h->run, sizeof r->run);
}

/* What it came to, for people. */
static void say_origin(struct train_rank *r, const char *dir, const struct state_head *h,
                       const struct options *was)
{
    char plan[96] = "";
    const char *moved = was->train.device == r->s->o->train.device ? "" :
                        "; it was saved with another train.device: last bits may differ";
    if (h->step == r->s->o->train.steps)
        snprintf(plan, sizeof plan, "; all its %lld steps are done", (long long)h->step);
    else if (r->lr.steps != h->steps)
        snprintf(plan, sizeof plan, "; the decay is planned anew, from %lld to %lld steps",
                 (long long)h->steps, (long long)r->lr.steps);
    snprintf(r->origin, sizeof r->origin, "behind step %lld, from %s (saved with %s)%s%s",
             (long long)h->step, dir, h->layout, plan, moved);
}

/* Behind that, where a rank's device could not take what the checkpoint has of choices. */
static enum err say_choices(struct train_rank *r, bool taken)
{
    size_t n = strlen(r->origin);
    TRY(choices_agree(exec_world_group(r->x), &taken));
    if (!taken)
        snprintf(r->origin + n, sizeof r->origin - n, "; choices of kernels for GEMM and attention "
                 "are not in it, or of another GPU or other libraries, and are made anew: last "
                 "bits may differ");
    return ERR_OK;
}

/* step: what it has to be of; -1: of any. *taken: the device goes on with its choices, or is one of
 * another kind, which is said. */
static enum err try_one(struct train_rank *r, const char *dir, int64_t step, bool *taken)
{
    struct state_index x;
    struct options was;
    TRY(state_index_open(&x, dir));
    enum err err = read_options(&x, &was);
    if (err == ERR_OK && step >= 0 && x.head.step != step)
        err = err_set(ERR_CHECKPOINT, __FILE__, __LINE__, "ckpt: %s holds step %lld; its folder "
                      "has the name of another", dir, (long long)x.head.step);
    if (err == ERR_OK)
        err = same_run(r, &x, &was);
    if (err == ERR_OK)
        err = load_all(r, &x);
    if (err == ERR_OK) /* before the first GEMM */
        err = dev_choose(r->dev, x.head.notes, taken);
    if (err == ERR_OK)
        take_head(r, &x.head, &was);
    if (err == ERR_OK)
        say_origin(r, dir, &x.head, &was);
    if (err == ERR_OK)
        *taken = *taken || was.train.device != r->s->o->train.device;
    state_index_close(&x);
    return err;
}

/* Is it good on all ranks? *speaks: this is the first rank where it is not. */
static enum err agree(struct train_rank *r, enum err err, bool *good, bool *speaks)
{
    int n = r->s->mesh.world, me = comm_rank(r->world);
    double first = err != ERR_OK ? n - me : 0;
    struct err_kept mine;
    err_keep(&mine, err);
    if (exec_world_group(r->x))
        TRY(comm_all_reduce(exec_world_group(r->x), &first, 1, DT_F64, COMM_MAX));
    *good = first == 0;
    *speaks = first > 0 && n - (int)first == me;
    return err == ERR_OK ? ERR_OK : err_again(&mine);
}

/* The checkpoints of run.dir, as the first rank sees them. */
static enum err list(struct train_rank *r, struct state_found **found, int *n)
{
    struct comm_group *all = exec_world_group(r->x);
    TRY(state_list(r->s->o->run.dir, found, n));
    if (!all)
        return ERR_OK;
    int mine = *n;
    enum err err = comm_broadcast(all, 0, n, sizeof *n);
    if (err == ERR_OK && *n > mine)
        err = mem_grow(mine, *n, sizeof **found, "the checkpoints of a run", found);
    if (err == ERR_OK && *n > 0)
        err = comm_broadcast(all, 0, *found, *n * (int64_t)sizeof **found);
    if (err != ERR_OK)
        mem_free(*found);
    return err;
}

/* auto: the newest that is good. A damaged one is named by the first rank that has found it so. */
static enum err try_newest(struct train_rank *r)
{
    struct state_found *found;
    bool good = false, taken = false, speaks;
    int n, whole = 0;
    enum err err = ERR_OK;
    TRY(list(r, &found, &n));
    for (int i = 0; i < n && !good && err == ERR_OK; i++) {
        char *dir;
        if (!found[i].whole)
            continue;
        whole++;
        err = state_dir(r->s->o->run.dir, found[i].step, &dir);
        if (err != ERR_OK)
            break;
        err = agree(r, try_one(r, dir, found[i].step, &taken), &good, &speaks);
        if (err == ERR_CHECKPOINT && speaks)
            log_line(LOG_WARN, "%s; the checkpoint before it is tried", err_bare(err_text()));
        err = err == ERR_CHECKPOINT ? ERR_OK : err;
        mem_free(dir);
    }
    mem_free(found);
    if (err == ERR_OK && good)
        err = say_choices(r, taken);
    if (err == ERR_OK && whole == 0)
        snprintf(r->origin, sizeof r->origin, "there is no checkpoint in %s/checkpoints: from the "
                 "start", r->s->o->run.dir);
    if (err == ERR_OK && whole > 0 && !good)
        FAIL(ERR_CHECKPOINT, "run.resume: none of the %d checkpoints in %s/checkpoints is good; "
                             "begin a new run in another folder", whole, r->s->o->run.dir);
    return err;
}

static enum err try_named(struct train_rank *r)
{
    char *dir = NULL;
    bool good, taken = false, speaks;
    int64_t step;
    enum err err = folder_resumed(r->s->o, &dir, &step);
    if (err == ERR_OK)
        err = try_one(r, dir, step, &taken);
    err = agree(r, err, &good, &speaks);
    mem_free(dir);
    TRY(err);
    if (!good)
        FAIL(ERR_PEER, "run.resume: another rank cannot read the checkpoint");
    return say_choices(r, taken);
}

enum err train_resume(struct train_rank *r)
{
    const struct options *o = r->s->o;
    r->lr = rates_planned(o);
    if (!o->run.resume[0])
        return ERR_OK;
    TRY(strcmp(o->run.resume, "auto") == 0 ? try_newest(r) : try_named(r));
    return ERR_OK;
}
