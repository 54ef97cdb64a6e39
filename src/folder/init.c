/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder to begin from is read as `plait generate` reads it, so what can be asked can be trained
 * further. It says what the model is; a configuration that says so, too, has to agree, for weights
 * of one model are noise in another. Whose ids the weights know is held against the data for the
 * same reason; folders of others say nothing of that which plait understands, which is told.
 */
#include "folder/init.h"

#include "base/mem.h"
#include "data/data.h"
#include "folder/folder.h"
#include "folder/model_folder.h"
#include "config/model_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char init_key[] = "model.init";

/* ---- where they are ---- */

bool init_begins(const struct options *o)
{
    if (!o->model.init[0] || !o->run.resume[0])
        return o->model.init[0] != '\0';
    return strcmp(o->run.resume, "auto") == 0 && !folder_has_checkpoint(o->run.dir);
}

/* What is opened: the model of the weights, and whose ids the folder says they know. */
struct source {
    struct weights weights;
    struct model model;
    char tokenizer[32]; /* data.tokenizer of a run's configuration */
    char unknown[256];  /* model_folder's */
};

static enum err open_folder(const char *dir, struct source *s)
{
    struct model_folder f;
    if (state_exists(dir)) {
        TRY(folder_others(weights_open(&s->weights, dir), dir));
        s->model = s->weights.state.head.model;
        return ERR_OK;
    }
    TRY(model_folder_open(&f, dir));
    TRY(model_folder_filled(&f));
    TRY(model_folder_weights(&f, "", &s->weights));
    s->model = f.model;
    memcpy(s->unknown, f.unknown, sizeof s->unknown);
    memcpy(s->tokenizer, f.options.data.tokenizer, sizeof s->tokenizer);
    return ERR_OK;
}

static enum err open_source(const char *dir, struct source *s)
{
    *s = (struct source){.tokenizer = ""};
    return options_under_key(open_folder(dir, s), init_key);
}

bool init_reads(const char *dir)
{
    struct source s;
    struct err_kept none;
    err_keep(&none, ERR_OK);
    bool good = open_source(dir, &s) == ERR_OK;
    if (good)
        weights_close(&s.weights);
    (void)!err_again(&none);
    return good;
}

/* ---- the model ---- */

/* Does the key say nothing of the weights? */
static bool is_free(const struct model_key *k, enum model_kind kind)
{
    if (!model_traits(kind)->text || k->type == MODEL_LIST)
        return model_traits(kind)->text || k->type != MODEL_LIST;
    return k->at == offsetof(struct model, dropout) || k->at == offsetof(struct model, init_std) ||
           k->at == (model_traits(kind)->positions ? offsetof(struct model, rope_theta)
                                                 : offsetof(struct model, seq));
}

/* One key of the model, and what the weights have for it; differs: those given otherwise. */
static enum err take_key(struct options *o, const char *key, const char *theirs,
                         struct text *differs)
{
    char word[MODEL_VALUE + 80];
    struct text ours = {0};
    double x, y;
    snprintf(word, sizeof word, "model.%s", key);
    bool given = conf_given(&options_table, o, word);
    TRY(conf_get(&options_table, o, word, &ours));
    if (ours.err == ERR_OK && given && strcmp(ours.s, "0") != 0) { /* 0: what follows from others */
        bool same = strcmp(ours.s, theirs) == 0 || /* or one number however it is written */
                    (text_to_double(ours.s, &x) && text_to_double(theirs, &y) && x == y);
        if (!same && differs)
            text_add(differs, "%s%s %s where %s is given", differs->len ? ", " : "", word, theirs,
                     ours.s);
        text_free(&ours);
        return ERR_OK;
    }
    enum err err = ours.err;
    text_free(&ours);
    TRY(err);
    snprintf(word, sizeof word, "model.%s=%s", key, theirs);
    return conf_set_from(&options_table, o, "model.init", word);
}

static enum err take_model(struct options *o, const struct model *a, struct text *differs)
{
    char value[MODEL_VALUE];
    TRY(take_key(o, "kind", model_traits(a->kind)->name, differs));
    for (int i = 0; i < MODEL_KEYS; i++) {
        const struct model_key *k = &model_keys[i];
        if (is_free(k, a->kind) || (k->at == offsetof(struct model, vocab) && a->vocab == 0))
            continue;
        TRY(take_key(o, k->key, model_key_value(k, a, value), differs));
    }
    return ERR_OK;
}

/* The model of the checkpoint that run.resume means, as far as one can be read here: what is wrong
 * with one is said where it is resumed. */
static bool resumed_model(const struct options *o, struct model *out)
{
    struct state_index x = {.dir = NULL};
    struct state_found *found = NULL;
    struct err_kept none;
    char dir[FS_PATH];
    int64_t step;
    int n = 0;
    bool good = false;
    err_keep(&none, ERR_OK);
    if (strcmp(o->run.resume, "auto") != 0)
        good = folder_resumed(o, dir, &step) == ERR_OK && state_index_open(&x, dir) == ERR_OK;
    else if (state_list(o->run.dir, true, &found, &n) != ERR_OK)
        n = 0;
    for (int i = 0; i < n && !good; i++)
        good = state_index_open(&x, state_dir(dir, o->run.dir, found[i].step)) == ERR_OK;
    if (good)
        *out = x.head.model;
    state_index_close(&x);
    mem_free(found);
    (void)!err_again(&none);
    return good;
}

enum err init_take(struct options *o)
{
    struct source s;
    struct model a;
    struct text differs = {0};
    if (!o->model.init[0])
        return ERR_OK;
    if (!init_begins(o))
        return resumed_model(o, &a) ? take_model(o, &a, NULL) : ERR_OK;
    TRY(open_source(o->model.init, &s));
    weights_close(&s.weights);
    enum err err = take_model(o, &s.model, &differs);
    if (err == ERR_OK)
        err = differs.err;
    if (err == ERR_OK && differs.len > 0)
        err = err_set(ERR_CONFIG, __FILE__, __LINE__,
                      "model.init: the weights in %s have %s; give the same, or leave that out",
                      o->model.init, differs.s);
    text_free(&differs);
    return err;
}

/* ---- the ids ---- */

/* Name and hash as the weights have them, or the configuration of their run. */
static enum err its_tokenizer(const struct source *s, struct weights_tokenizer *out)
{
    TRY(options_under_key(weights_tokenizer(&s->weights, out), init_key));
    if (!out->name[0])
        snprintf(out->name, sizeof out->name, "%s", s->tokenizer);
    return ERR_OK;
}

/* name: of the data's. */
static enum err check_tokenizer(const struct options *o, const struct source *s, const char *name)
{
    struct weights_tokenizer its;
    char ours[32];
    TRY(its_tokenizer(s, &its));
    if (!its.name[0] || !name[0])
        return ERR_OK;
    if (strcmp(its.name, name) != 0)
        FAIL(ERR_TOKEN, "model.init: the weights in %s know the ids of tokenizer %s, and the data "
                        "have those of %s; prepare the text with %s", o->model.init, its.name, name,
             its.name);
    snprintf(ours, sizeof ours, "%016" PRIx64, tokenizer_hash(name));
    if (its.hash[0] && tokenizer_hash(name) != 0 && strcmp(its.hash, ours) != 0)
        FAIL(ERR_TOKEN, "model.init: the weights in %s are of a tokenizer %s with hash %s, plait's "
                        "%s has %s; use weights of this one", o->model.init, name, its.hash, name,
             ours);
    return ERR_OK;
}

/* ---- for a run ---- */

enum err init_open(const struct options *o, const struct model *a, const char *tokenizer,
                   struct weights *out)
{
    struct source s;
    TRY(open_source(o->model.init, &s));
    enum err err = options_under_key(weights_check(&s.weights, a), init_key);
    if (err == ERR_OK)
        err = check_tokenizer(o, &s, tokenizer);
    if (err != ERR_OK)
        weights_close(&s.weights);
    else
        *out = s.weights;
    return err;
}

enum err init_say(const struct options *o, struct text *out)
{
    struct source s;
    struct weights_tokenizer its;
    if (!o->model.init[0])
        return ERR_OK;
    if (!init_begins(o)) {
        text_add(out, "%s is not read again: the run goes on from a checkpoint", o->model.init);
        return out->err;
    }
    TRY(open_source(o->model.init, &s));
    const struct state_index *x = &s.weights.state;
    bool ids = model_traits(s.model.kind)->text;
    enum err err;
    TRY_OR(out_close, its_tokenizer(&s, &its));
    if (x->dir)
        text_add(out, "%s, behind step %lld (saved with %s)", x->dir, (long long)x->head.step,
                 x->head.layout);
    else
        text_add(out, "%s%s", s.weights.files.file[0].path,
                 s.weights.files.files > 1 ? " and other shards" : "");
    if (ids && its.name[0])
        text_add(out, ", ids of %s", its.name);
    else if (ids)
        text_add(out, "; whose ids they know is not said there: the data have to be of the same "
                      "tokenizer");
    if (s.unknown[0])
        text_add(out, "; config.json has keys that plait does not know and passes over: %s",
                 s.unknown);
    err = out->err;
out_close:
    weights_close(&s.weights);
    return err;
}
