/* SPDX-License-Identifier: Apache-2.0
 *
 * What a checkpoint has to be for a run to go on from it, as far as its index says: `plait check`
 * looks with the eyes of training, so both refuse alike. The data of the shards are not read.
 */
#include "folder/resume_same.h"

#include "base/mem.h"
#include "data/data.h"
#include "folder/folder.h"
#include "config/model_keys.h"

#include <stdio.h>
#include <string.h>

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

/* 0: there is none, or it is not known. */
static enum err same_hash(const char *dir, const char *key, uint64_t there, uint64_t here,
                          const char *way)
{
    char a[32], b[32];
    snprintf(a, sizeof a, "of hash %016llx", (unsigned long long)there);
    snprintf(b, sizeof b, "%016llx", (unsigned long long)here);
    return there == here || there == 0 || here == 0 ? ERR_OK : differs(dir, key, a, b, way);
}

enum err resume_same(const struct resume_here *here, const struct state_index *x,
                     const struct options *was)
{
    static const char way[] = "give the same, or insist with run.resume_insist=true";
    const struct options *o = here->o;
    const struct state_head *h = &x->head;
    const struct model *its = &h->model, *ours = here->model;
    char name[32], a[MODEL_VALUE], b[MODEL_VALUE];
    if (its->kind != ours->kind)
        return differs(x->dir, "model.kind", model_traits(its->kind)->name,
                       model_traits(ours->kind)->name, "it is another model");
    const struct model_key *k = model_keys_differ(its, ours, false, a, b);
    if (k) {
        snprintf(name, sizeof name, "model.%s", k->key);
        return differs(x->dir, name, a, b, "it is another model");
    }
    TRY(same_int(x->dir, "train.batch", was->train.batch, o->train.batch,
                 "the place in the data is counted in batches; give the same"));
    if (h->step > o->train.steps)
        FAIL(ERR_CONFIG, "run.resume: train.steps is %lld, and %s is behind step %lld already; ask "
                         "for more steps, or name an earlier checkpoint", (long long)o->train.steps,
             x->dir, (long long)h->step);
    if (o->run.resume_insist)
        return ERR_OK;
    TRY(same_int(x->dir, "train.seed", (int64_t)h->seed, o->train.seed, way));
    if (!here->tokenizer)
        return ERR_OK;
    if (strcmp(h->tokenizer, here->tokenizer) != 0)
        return differs(x->dir, "data.tokenizer", h->tokenizer, here->tokenizer, way);
    TRY(same_hash(x->dir, "data.tokenizer", h->tokenizer_hash, tokenizer_hash(h->tokenizer), way));
    TRY(same_hash(x->dir, "data.train", h->data_hash, here->train, way));
    return same_hash(x->dir, "data.valid", h->valid_hash, here->valid, way);
}

/* ---- one checkpoint ---- */

enum err resume_open(struct state_index *x, const char *dir, int64_t step, struct options *was)
{
    struct err_kept kept;
    TRY(state_index_open(x, dir));
    if (step >= 0 && x->head.step != step)
        FAIL(ERR_CHECKPOINT, "ckpt: %s holds step %lld; its folder has the name of another", dir,
             (long long)x->head.step);
    TRY(conf_defaults(&options_table, was));
    err_keep(&kept, conf_read_text(&options_table, was, x->path, x->head.config,
                                   (int64_t)strlen(x->head.config)));
    if (kept.code == ERR_CONFIG)
        FAIL(ERR_CHECKPOINT, "ckpt: the configuration in %s cannot be read; it is damaged or of "
                             "another plait: %s", x->path, err_bare(kept.text));
    return err_again(&kept);
}

/* ---- before there are ranks ---- */

static enum err look(const struct resume_here *here, const char *dir, int64_t step,
                     struct text *out)
{
    struct state_index x = {.dir = NULL};
    struct options was;
    enum err err = resume_open(&x, dir, step, &was);
    if (err == ERR_OK)
        err = resume_same(here, &x, &was);
    if (err == ERR_OK)
        text_add(out, "behind step %lld, from %s (saved with %s)", (long long)x.head.step, dir,
                 x.head.layout);
    state_index_close(&x);
    return err == ERR_OK ? out->err : err;
}

enum err resume_none_good(const struct options *o, int n)
{
    struct hf_weights weights;
    const char *dir = o->run.dir;
    if (hf_weights_open(&weights, dir) != ERR_OK)
        FAIL(ERR_CHECKPOINT, "run.resume: none of the %d checkpoints in %s/checkpoints is good; "
                             "begin a new run in another folder", n, dir);
    hf_weights_close(&weights);
    FAIL(ERR_CHECKPOINT, "run.resume: none of the %d checkpoints in %s/checkpoints is good, but "
                         "%s/model.safetensors can be read; move %s/checkpoints away, and begin "
                         "with these weights by model.init=%s in another run.dir", n, dir, dir,
         dir, dir);
}

enum err resume_say(const struct resume_here *here, struct text *out)
{
    const char *run = here->o->run.dir;
    struct state_found *found;
    char dir[FS_PATH];
    int64_t step;
    int n;
    if (strcmp(here->o->run.resume, "auto") != 0) {
        TRY(folder_resumed(here->o, dir, &step));
        return folder_others(look(here, dir, step, out), dir);
    }
    TRY(state_list(run, true, &found, &n));
    enum err err = ERR_CHECKPOINT; /* until one is good, the newest first */
    for (int i = 0; i < n && err == ERR_CHECKPOINT; i++) {
        err = look(here, state_dir(dir, run, found[i].step), found[i].step, out);
        if (err == ERR_CHECKPOINT)
            text_add(out, "%s; the checkpoint before it is tried: ", err_bare(err_text()));
    }
    mem_free(found);
    if (n == 0)
        text_add(out, "there is no checkpoint in %s/checkpoints: from the start", run);
    return n == 0 ? out->err : err == ERR_CHECKPOINT ? resume_none_good(here->o, n) : err;
}
