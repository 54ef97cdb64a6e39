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

/* Both lists are sorted. */
static enum err check_known(const struct state_index *x, const struct state_tensor *known, int n,
                            const struct model *a)
{
    for (int i = 0, j = 0; i < x->tensors; i++) {
        while (j < n && strcmp(known[j].name, x->tensor[i].name) < 0)
            j++;
        if (j == n || strcmp(known[j].name, x->tensor[i].name) != 0)
            FAIL(ERR_CHECKPOINT,
                 "ckpt: %s has tensor %s, which the model, of %lld layers, would not read; "
                 "use weights of this model, or set model.* to those of the weights", x->dir,
                 x->tensor[i].name, (long long)a->layers);
    }
    return ERR_OK;
}

enum err weights_check_rest(const struct weights *w, const struct model *a)
{
    struct state_tensor *known;
    int n;
    if (!is_state(w))
        return hf_check_rest(&w->files, a);
    TRY(state_model_tensors(a, &known, &n));
    enum err err = check_known(&w->state, known, n, a);
    mem_free(known);
    return err;
}

/* ---- a tensor ---- */

static enum err find_state(const struct state_index *x, const struct hf_place *at)
{
    const struct state_tensor *t = state_index_find(x, at->tensor);
    if (!t)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has no tensor %s among its %d; use weights of this model, "
                             "or set model.* to those of the weights", x->dir, at->tensor,
             x->tensors);
    if (t->nd == at->nd && t->shape[0] == at->shape[0] && t->shape[1] == at->shape[1])
        return ERR_OK;
    FAIL(ERR_CHECKPOINT, "ckpt: tensor %s of %s has shape (%" PRId64 ", %" PRId64 "), the model "
                         "has (%" PRId64 ", %" PRId64 "); use weights of this model, or set "
                         "model.* to those of the weights", at->tensor, x->dir, t->shape[0],
         t->shape[1], at->shape[0], at->shape[1]);
}

enum err weights_find(const struct weights *w, const struct hf_place *place,
                      struct weights_tensor *out)
{
    struct hf_tensor file = {NULL, NULL};
    *out = (struct weights_tensor){w, place, file, place->tensor, w->state.dir};
    if (is_state(w))
        return find_state(&w->state, place);
    TRY(hf_find(&w->files, place, &out->file));
    out->name = out->file.entry->name;
    out->path = out->file.file->path;
    return ERR_OK;
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

/* A box of the tensor; turned: `out` has it the other way round. */
static void read_file(const struct weights_tensor *t, const struct state_want *want,
                      enum safet_type type, void *out)
{
    const struct safet_entry *e = t->file.entry;
    const struct state_box *b = &want->box;
    int64_t cols = t->place->nd == 2 ? t->place->shape[1] : 1;
    struct state_span to = {out, type, {b->n[1], 1}}, from = {NULL, e->type, {cols, 1}};
    if (want->transposed)
        to.step[0] = 1, to.step[1] = b->n[0];
    from.p = (uint8_t *)(uintptr_t)t->file.file->data + e->begin +
             (b->at[0] * cols + b->at[1]) * safet_type_size(e->type);
    fs_call_begin(t->path); /* a map waits for the disk here */
    state_copy(&to, &from, b->n);
    fs_call_end();
}

enum err weights_read(const struct weights_tensor *t, const struct state_box *box,
                      enum safet_type type, void *out)
{
    const struct hf_place *at = t->place;
    struct state_want want = {.tensor = at->tensor, .kind = STATE_WEIGHT,
                              .box = state_place_box(at, box), .transposed = at->transposed};
    if (is_state(t->from))
        return state_read(&t->from->state, &want, type, out);
    for (int i = 0; i < 2; i++)
        ENSURE(want.box.at[i] >= 0 && want.box.n[i] >= 0 &&
               want.box.at[i] + want.box.n[i] <= (i < at->nd ? at->shape[i] : 1));
    read_file(t, &want, type, out);
    return ERR_OK;
}
