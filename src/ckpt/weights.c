/* SPDX-License-Identifier: Apache-2.0
 *
 * One reader of a tensor's box, two sources. In both, tensors have the names and the orientation of
 * Hugging Face, so a parameter's place says where its elements are.
 */
#include "ckpt/weights.h"

#include "base/mem.h"
#include "ckpt/state_local.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the whole ---- */

static bool is_state(const struct weights *w)
{
    return w->state.dir != NULL;
}

enum err weights_open(struct weights *w, const char *dir)
{
    *w = (struct weights){.files = {NULL, 0}};
    return state_exists(dir) ? state_index_open(&w->state, dir) : hf_weights_open(&w->files, dir);
}

void weights_close(struct weights *w)
{
    hf_weights_close(&w->files);
    state_index_close(&w->state);
}

enum err weights_tokenizer(const struct weights *w, struct weights_tokenizer *out)
{
    const struct state_head *head = &w->state.head;
    *out = (struct weights_tokenizer){.name = ""};
    if (is_state(w)) {
        snprintf(out->name, sizeof out->name, "%s", head->tokenizer);
        if (head->tokenizer_hash)
            snprintf(out->hash, sizeof out->hash, "%016" PRIx64, head->tokenizer_hash);
        return ERR_OK;
    }
    TRY(hf_weights_note(&w->files, HF_TOKENIZER, out->name));
    return hf_weights_note(&w->files, HF_TOKENIZER_HASH, out->hash);
}

uint64_t weights_digest(const struct weights *w)
{
    return is_state(w) ? state_index_digest(&w->state) : hf_weights_digest(&w->files);
}

/* ---- a tensor ---- */

/* Which files of the bare models lack. */
static const char *const prefix[] = {"transformer.", "model."};

/* "(768, 2304)" of a shape. */
static const char *shape_text(int nd, const int64_t *shape, char buf[96])
{
    size_t used = (size_t)snprintf(buf, 96, "(");
    for (int i = 0; i < nd; i++)
        used += (size_t)snprintf(buf + used, 96 - used, "%s%" PRId64, i ? ", " : "", shape[i]);
    snprintf(buf + used, 96 - used, ")");
    return buf;
}

static struct hf_tensor find(const struct weights *w, const char *name)
{
    if (is_state(w))
        return (struct hf_tensor){NULL, safet_find(w->state.tensor, w->state.tensors, name)};
    struct hf_tensor t = hf_weights_find(&w->files, name);
    for (int i = 0; i < 2 && !t.entry; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0)
            t = hf_weights_find(&w->files, name + strlen(prefix[i]));
    return t;
}

enum err weights_find(const struct weights *w, const struct hf_place *place,
                      struct weights_tensor *out)
{
    const char *path = is_state(w) ? w->state.dir : w->files.file[0].path;
    struct hf_tensor t = find(w, place->tensor);
    const struct safet_entry *e = t.entry;
    char want[96], found[96];
    int n = w->state.tensors;
    for (int i = 0; i < w->files.files; i++)
        n += w->files.file[i].n;
    if (!e)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has no tensor %s among its %d; use weights of this model, "
                             "or set model.* to those of the weights", path, place->tensor, n);
    if (t.file)
        path = t.file->path;
    bool same = e->nd == place->nd;
    for (int i = 0; i < place->nd && same; i++)
        same = e->shape[i] == place->shape[i];
    if (!same)
        FAIL(ERR_CHECKPOINT, "ckpt: tensor %s of %s has shape %s, the model has %s; use weights of "
                             "this model, or set model.* to those of the weights", e->name, path,
             shape_text(e->nd, e->shape, found), shape_text(place->nd, place->shape, want));
    if (e->type > SAFET_BF16)
        FAIL(ERR_CHECKPOINT, "ckpt: tensor %s of %s is of dtype %s; weights are F64, F32, F16 or "
                             "BF16", e->name, path, safet_type_name(e->type));
    *out = (struct weights_tensor){w, place, t, e->name, path};
    return ERR_OK;
}

/* ---- the rest ---- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* The tensors that a model reads, by name. */
struct known { const struct model *model; struct safet_entry *entry; int n; };

/* Does the model read a tensor of this name, which is there? Or make it itself, and some versions
 * of transformers saved it? */
static bool is_known(const struct weights *w, const struct known *k, const char *name)
{
    char full[160];
    bool gpt = k->model->kind == MODEL_GPT;
    bool is = gpt ? ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias")
                  : ends_with(name, ".rotary_emb.inv_freq");
    is = is || safet_find(k->entry, k->n, name);
    for (int i = 0; i < 2 && !is; i++) {
        snprintf(full, sizeof full, "%s%s", prefix[i], name);
        is = safet_find(k->entry, k->n, full) && !hf_weights_find(&w->files, full).entry;
    }
    return is;
}

/* A tied model's output matrix has to be its embedding. */
static enum err check_tied(const struct weights *w, const struct model *a, struct hf_tensor head)
{
    struct hf_place at;
    hf_place(a, &(struct model_param){.part = LAYER_EMBED, .role = PARAM_TOKENS, .block = -1}, &at);
    struct hf_tensor tokens = find(w, at.tensor);
    if (!tokens.entry)
        return ERR_OK;
    int64_t bytes = tokens.entry->end - tokens.entry->begin;
    bool same = head.entry->type == tokens.entry->type &&
                head.entry->end - head.entry->begin == bytes;
    if (!same || memcmp(head.file->data + head.entry->begin,
                        tokens.file->data + tokens.entry->begin, (size_t)bytes) != 0)
        FAIL(ERR_CHECKPOINT, "ckpt: %s of %s is not the embedding, which model.tied true would use "
                             "in its place; set model.tied=false", head.entry->name,
             head.file->path);
    return ERR_OK;
}

/* The n entries of a file; NULL: of the checkpoint. */
static enum err check_rest(const struct weights *w, const struct known *k,
                           const struct safet_file *file, const struct safet_entry *entry, int n)
{
    for (int i = 0; i < n; i++) {
        const char *name = entry[i].name;
        if (is_known(w, k, name))
            continue;
        if (file && k->model->tied && strcmp(name, "lm_head.weight") == 0)
            TRY(check_tied(w, k->model, (struct hf_tensor){file, &entry[i]}));
        else
            FAIL(ERR_CHECKPOINT, "ckpt: %s has tensor %s, which the model, of %" PRId64 " layers, "
                                 "would not read; use weights of this model, or set model.* to "
                                 "those of the weights", file ? file->path : w->state.dir, name,
                 k->model->layers);
    }
    return ERR_OK;
}

enum err weights_check_rest(const struct weights *w, const struct model *a)
{
    struct known k = {.model = a};
    TRY(hf_sorted_entries(a, &k.entry, &k.n));
    enum err err = check_rest(w, &k, NULL, w->state.tensor, w->state.tensors);
    for (int i = 0; i < w->files.files && err == ERR_OK; i++) {
        const struct safet_file *f = &w->files.file[i];
        err = check_rest(w, &k, f, f->entry, f->n);
    }
    mem_free(k.entry);
    return err;
}

enum err weights_check(const struct weights *w, const struct model *a)
{
    struct model_param *param;
    struct weights_tensor t;
    struct hf_place at;
    enum err err = ERR_OK;
    int n;
    TRY(model_param_list(a, &param, &n));
    for (int i = 0; i < n && err == ERR_OK; i++) {
        hf_place(a, &param[i], &at);
        err = weights_find(w, &at, &t);
    }
    mem_free(param);
    return err == ERR_OK ? weights_check_rest(w, a) : err;
}

enum err weights_read(const struct weights_tensor *t, const struct state_box *box,
                      enum safet_type type, void *out)
{
    const struct hf_place *at = t->place;
    const struct safet_entry *e = t->found.entry;
    struct state_want want = {.tensor = at->tensor, .kind = STATE_WEIGHT,
                              .box = state_place_box(at, box), .transposed = at->transposed};
    const struct state_box *b = &want.box;
    if (is_state(t->from))
        return state_read(&t->from->state, &want, type, out);
    for (int i = 0; i < 2; i++)
        ENSURE(b->at[i] >= 0 && b->n[i] >= 0 &&
               b->at[i] + b->n[i] <= (i < at->nd ? at->shape[i] : 1));
    const struct state_part all = {{{0, 0}, {at->shape[0], at->nd == 2 ? at->shape[1] : 1}},
                                   e->type, t->found.file->data + e->begin};
    fs_call_begin(t->path); /* a map waits for the disk here */
    state_take(&want, type, out, &all, &all.box);
    fs_call_end();
    return ERR_OK;
}
