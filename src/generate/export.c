/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint's weights as a folder of transformers, tensor by tensor and of each some rows at a
 * time: memory does not grow with the model. Tensors have their names and their orientation in the
 * checkpoint already, so no device and no layout are needed.
 *
 * The files are those that a run writes at its end, by the same lists (ckpt/hf_names.c).
 */
#include "generate/generate.h"

#include "base/mem.h"
#include "folder/folder.h"
#include "train/stop.h"

#include <stdio.h>

enum { PIECE = 64 << 20 }; /* bytes of f32 that are converted at once, a row at least */
static const int64_t shard_default = 5000000000; /* as transformers has it */

struct export {
    const struct plait_export *call;
    struct state_index x;       /* owned */
    enum safet_type type;       /* of the files */
    struct safet_entry *entry;  /* owned; [entries] */
    int *shard;                 /* owned; [entries]: the file of each, from 0 */
    int entries, shards;
    struct hf_notes notes;
    struct fs_dir dir;
    float *piece;               /* owned */
    int64_t done, all;          /* elements */
};

/* ---- what is asked for ---- */

static enum err check_call(const struct plait_export *c, enum safet_type *type)
{
    static const struct { const char *word; enum safet_type type; } known[] = {
        {"f32", SAFET_F32}, {"f16", SAFET_F16}, {"bf16", SAFET_BF16}};
    const char *word = c->dtype && *c->dtype ? c->dtype : "f32";
    int i = 0;
    if (!c->out || !*c->out)
        FAIL(ERR_CONFIG, "export: no folder is named for the answer; name one that is not there");
    if (c->shard_bytes < 0)
        FAIL(ERR_CONFIG, "export: files of at most %lld bytes are asked for; use 1 or more",
             (long long)c->shard_bytes);
    while (i < 3 && strcmp(word, known[i].word) != 0)
        i++;
    if (i == 3)
        FAIL(ERR_CONFIG, "export: dtype is \"%.40s\"; use f32, bf16 or f16", word);
    *type = known[i].type;
    return ERR_OK;
}

static enum err open_state(struct export *e)
{
    const struct plait_export *c = e->call;
    char dir[FS_PATH];
    int64_t behind;
    struct options o;
    TRY(folder_find("export", c->run, false));
    TRY(folder_checkpoint("export", c->run, c->step ? c->step : "", dir, &behind));
    if (dir[0])
        return folder_others(state_index_open(&e->x, dir), dir);
    if (hf_weights_exist(c->run)) /* a run may have them and no checkpoint */
        FAIL(ERR_CHECKPOINT, "export: %s has no whole checkpoint (train.save_keep); it has "
                             "model.safetensors and config.json, which transformers reads as they "
                             "are", c->run);
    TRY(options_read_run(c->run, &o));
    return folder_lacks(ERR_CHECKPOINT, "export", "checkpoint", c->run, &o);
}

/* ---- the files ---- */

/* Tensors in their order, as many to a file as fit; one that is larger has a file of its own. */
static enum err plan_files(struct export *e)
{
    int64_t most = e->call->shard_bytes > 0 ? e->call->shard_bytes : shard_default, used = 0;
    int64_t largest = 1;
    TRY(hf_entries(&e->x.head.model, e->type, &e->entry, &e->entries));
    TRY(mem_new(e->entries, sizeof *e->shard, "the files of an export", &e->shard));
    e->shards = 1;
    for (int i = 0; i < e->entries; i++) {
        int64_t cols = e->entry[i].shape[1], n = e->entry[i].shape[0] * cols;
        int64_t bytes = n * safet_type_size(e->type);
        if (used > 0 && bytes > most - num_min(most, used)) {
            e->shards++;
            used = 0;
        }
        e->shard[i] = e->shards - 1;
        used += bytes;
        e->all += n;
        largest = num_max(largest, num_min(n, num_max(PIECE / 4, cols)));
    }
    return mem_new(largest, sizeof *e->piece, "a piece of a tensor", &e->piece);
}

static void file_name(const struct export *e, int shard, char out[64])
{
    if (e->shards == 1)
        snprintf(out, 64, "model.safetensors");
    else
        snprintf(out, 64, "model-%05d-of-%05d.safetensors", shard + 1, e->shards);
}

/* In place: 16 bits take the place of what they were rounded from. */
static enum err convert(const struct export *e, const struct safet_entry *t, int64_t from,
                        int64_t n)
{
    uint16_t half;
    for (int64_t i = 0; i < n; i++) {
        float v = e->piece[i];
        half = e->type == SAFET_F16 ? f16_from_f32(v) : bf16_from_f32(v);
        float read = e->type == SAFET_F32   ? v
                     : e->type == SAFET_F16 ? f16_to_f32(half) : bf16_to_f32(half);
        if (!isfinite(read))
            FAIL(ERR_CHECKPOINT, "export: element %lld of tensor %s of %s is %g, which is no "
                                 "number in %s; %s", (long long)(from + i), t->name, e->x.dir,
                 isnan(v) ? NAN : (double)v, e->type == SAFET_F32 ? "f32" : e->call->dtype,
                 isfinite(v) ? "use --dtype f32 or bf16" : "the run diverged, use an earlier step");
        if (e->type != SAFET_F32)
            memcpy((char *)e->piece + 2 * i, &half, sizeof half);
    }
    return ERR_OK;
}

static enum err stopped(const struct export *e)
{
    if (stop_asked())
        FAIL(ERR_STOPPED, "export: stopped by %s; nothing is left of %s", stop_name(stop_asked()),
             e->call->out);
    return ERR_OK;
}

static enum err write_tensor(struct export *e, const struct safet_entry *t, struct safet_writer *w)
{
    int64_t cols = t->shape[1], rows = num_max(1, PIECE / 4 / cols);
    for (int64_t r = 0; r < t->shape[0]; r += rows) {
        struct state_want want = {.tensor = t->name, .kind = STATE_WEIGHT,
                                  .box = {{r, 0}, {num_min(rows, t->shape[0] - r), cols}}};
        int64_t n = state_box_elements(&want.box);
        TRY(stopped(e));
        TRY(state_read(&e->x, &want, SAFET_F32, e->piece));
        TRY(convert(e, t, r * cols, n));
        TRY(safet_write(w, e->piece, n * safet_type_size(e->type)));
        e->done += n;
        if (e->call->progress)
            e->call->progress(e->call->arg, e->done, e->all);
    }
    return ERR_OK;
}

static enum err write_shard(struct export *e, int shard, int first, int n)
{
    struct safet_writer w;
    char name[64], *path;
    file_name(e, shard, name);
    TRY(fs_dir_name(&e->dir, name, &path));
    enum err err = safet_create(&w, path, false, e->entry + first, n, e->notes.word);
    mem_free(path);
    TRY(err);
    TRY_OR(out_file, safet_keep_room(&w));
    for (int i = 0; i < n; i++)
        TRY_OR(out_file, write_tensor(e, &e->entry[first + i], &w));
    err = safet_commit(&w);
out_file:
    safet_abandon(&w);
    return err;
}

/* A small file of text, which is given back. */
static enum err put_text(struct export *e, const char *name, struct text *t)
{
    char *path = NULL;
    enum err err = t->err;
    if (err == ERR_OK)
        err = fs_dir_name(&e->dir, name, &path);
    if (err == ERR_OK)
        err = fs_put(path, t->s, t->len);
    mem_free(path);
    text_free(t);
    return err;
}

static enum err write_all(struct export *e)
{
    const struct state_head *head = &e->x.head;
    struct text map = {0}, config = {0}, generation = {0};
    char name[64];
    int32_t end = tokenizer_end(head->tokenizer);
    hf_notes(head->tokenizer, head->tokenizer_hash, &e->notes);
    for (int first = 0, next; first < e->entries; first = next) {
        for (next = first; next < e->entries && e->shard[next] == e->shard[first];)
            next++;
        TRY(write_shard(e, e->shard[first], first, next - first));
    }
    if (e->shards > 1) { /* which tensor is in which file */
        text_add(&map, "{\n  \"metadata\": {\n    \"total_parameters\": %lld,\n    "
                       "\"total_size\": %lld\n  },\n  \"weight_map\": {", (long long)e->all,
                 (long long)(e->all * safet_type_size(e->type)));
        for (int i = 0; i < e->entries; i++) {
            file_name(e, e->shard[i], name);
            text_add(&map, "%s\n    \"%s\": \"%s\"", i ? "," : "", e->entry[i].name, name);
        }
        text_add(&map, "\n  }\n}\n");
        TRY(put_text(e, "model.safetensors.index.json", &map));
    }
    (void)hf_config_text(&head->model, e->type, end, &config);
    TRY(put_text(e, "config.json", &config));
    if (model_traits(head->model.kind)->text) {
        (void)hf_generation_text(end, &generation);
        TRY(put_text(e, "generation_config.json", &generation));
    }
    TRY(stopped(e));
    return fs_dir_commit(&e->dir);
}

enum err export_run(const struct plait_export *call, struct text *page)
{
    struct export e = {.call = call};
    char count[32], size[32];
    enum err err;
    TRY(check_call(call, &e.type));
    TRY_OR(out_state, open_state(&e));
    TRY_OR(out_state, plan_files(&e));
    TRY_OR(out_state, fs_dir_create(&e.dir, call->out));
    err = folder_others(write_all(&e), e.x.dir);
    fs_dir_abandon(&e.dir);
    if (err != ERR_OK)
        goto out_state;
    text_add(page, "step %lld of ", (long long)e.x.head.step);
    text_add_printable(page, call->run);
    text_add(page, " in ");
    text_add_printable(page, call->out);
    text_add(page, ": %s parameters, %s in %d file%s of weights\n", text_count(e.all, count),
             text_bytes(e.all * safet_type_size(e.type), size), e.shards,
             text_plural(e.shards, "s"));
out_state:
    state_index_close(&e.x);
    mem_free(e.entry);
    mem_free(e.shard);
    mem_free(e.piece);
    return err;
}
