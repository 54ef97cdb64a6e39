/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of a folder, in one file or in several.
 *
 * The index of several is {"metadata": {"total_size": bytes}, "weight_map": {tensor: file}}. It
 * comes from outside and names files to open, so a name is one part of a path and no link, the
 * index is walked member by member in memory of its own size, and what it says of a tensor is held
 * against the shards in both directions: each tensor of the index lies where it says, once, and a
 * shard has no other. Then a shard of another model, or of another save, does not go unseen.
 */
#include "ckpt/ckpt.h"

#include "base/mem.h"
#include "ckpt/ckpt_json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { INDEX_MAX = 1 << 28, INDEX_DEPTH = 8, METADATA_MAX = 1 << 16 /* bytes */ };
enum { SHARDS_MAX = 10000, NAME_MAX_BYTES = 128 };
static const char single[] = "model.safetensors", index_name[] = "model.safetensors.index.json";

/* One member of weight_map. */
struct claim { char tensor[NAME_MAX_BYTES], shard[NAME_MAX_BYTES]; };

/* The index while it is read. */
struct index {
    const char *path, *dir; /* borrowed */
    struct claim *claim;    /* owned; [n], by shard and tensor when read */
    int n;
    int64_t total; /* -1: it does not say */
};

static enum err bad(const struct index *x, const char *why)
{
    FAIL(ERR_CHECKPOINT, "ckpt: %s %s; it is damaged or no index of weights, copy it again",
         x->path, why);
}

/* ---- the index ---- */

static int by_tensor(const void *a, const void *b)
{
    return strcmp(((const struct claim *)a)->tensor, ((const struct claim *)b)->tensor);
}

static int by_shard(const void *a, const void *b)
{
    int order = strcmp(((const struct claim *)a)->shard, ((const struct claim *)b)->shard);
    return order ? order : by_tensor(a, b);
}

static enum err read_index(struct index *x, const struct fs_map *m)
{
    struct ckpt_json_text map = {0};
    struct ckpt_json w = {.depth_max = INDEX_DEPTH};
    int metadata = 0;
    if (m->size > INDEX_MAX)
        return bad(x, "has more than 256 MiB");
    TRY(ckpt_json_text(x->path, m, &w.of));
    while (ckpt_json_next(&w)) {
        if (ckpt_json_is(w.key, "weight_map")) {
            if (map.s)
                return bad(x, "has weight_map twice");
            map = w.value;
        } else if (ckpt_json_is(w.key, "metadata")) {
            if (metadata++)
                return bad(x, "has metadata twice");
            cJSON *v = w.value.n < METADATA_MAX ? ckpt_json_parse(w.value) : NULL;
            const cJSON *total = cJSON_GetObjectItemCaseSensitive(v, "total_size");
            bool good = v && cJSON_IsObject(v) && (!total || ckpt_json_int(total, &x->total));
            cJSON_Delete(v);
            if (!good)
                return bad(x, "has a metadata whose total_size is no count of bytes");
        }
    }
    if (w.why)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has %s at byte %lld; it is damaged or no index of weights, "
                             "copy it again", x->path, w.why, (long long)(m->size - w.of.n + w.at));
    if (!map.s)
        return bad(x, "has no weight_map");
    w = (struct ckpt_json){.of = map, .depth_max = 1};
    while (ckpt_json_next(&w)) {
        if (x->n == SAFET_TENSORS_MAX)
            return bad(x, "has a weight_map of more tensors than a file can hold");
        TRY(mem_more(x->n, sizeof *x->claim, "the index of the weights", &x->claim));
        struct claim *c = &x->claim[x->n++];
        if (!ckpt_json_word(w.key, c->tensor, NAME_MAX_BYTES) || !c->tensor[0])
            return bad(x, "has a tensor's name in weight_map that is not 1 to 127 bytes of text");
        if (!ckpt_json_word(w.value, c->shard, NAME_MAX_BYTES) || !c->shard[0])
            return bad(x, "has a file's name in weight_map that is not 1 to 127 bytes of text");
    }
    if (w.why)
        return bad(x, "has a weight_map that is no object of names");
    if (x->n == 0)
        return bad(x, "names no tensor");
    qsort(x->claim, (size_t)x->n, sizeof *x->claim, by_tensor); /* each once; then by shard */
    for (int i = 1; i < x->n; i++)
        if (by_tensor(&x->claim[i - 1], &x->claim[i]) == 0)
            FAIL(ERR_CHECKPOINT, "ckpt: %s names tensor %s twice, in %s and %s; keep one", x->path,
                 x->claim[i].tensor, x->claim[i - 1].shard, x->claim[i].shard);
    qsort(x->claim, (size_t)x->n, sizeof *x->claim, by_shard);
    return ERR_OK;
}

/* ---- the shards ---- */

static enum err open_shards(struct hf_weights *w, const struct index *x)
{
    int64_t total = 0;
    int shards = 1;
    for (int i = 1; i < x->n; i++)
        shards += strcmp(x->claim[i - 1].shard, x->claim[i].shard) != 0;
    if (shards > SHARDS_MAX)
        return bad(x, "names more than 10000 files");
    TRY(mem_new(shards, sizeof *w->file, "the shards of the weights", &w->file));
    for (int i = 0, next; i < x->n; i = next) {
        for (next = i + 1; next < x->n && strcmp(x->claim[i].shard, x->claim[next].shard) == 0;)
            next++;
        struct safet_file *f = &w->file[w->files];
        TRY(safet_open_in(f, x->dir, x->claim[i].shard));
        w->files++;
        total += f->bytes;
        for (int j = 0; j < next - i || j < f->n; j++) { /* sorted by name, both */
            const struct claim *c = &x->claim[i + j];
            int order = j == next - i ? 1 : j == f->n ? -1 : strcmp(c->tensor, f->entry[j].name);
            if (order < 0)
                FAIL(ERR_CHECKPOINT, "ckpt: tensor %s is missing in %s, where %s has it; the "
                                     "shards are not of one save, copy them again", c->tensor,
                     f->path, x->path);
            if (order > 0)
                FAIL(ERR_CHECKPOINT, "ckpt: %s has tensor %s, which %s has elsewhere or not at "
                                     "all; the shards are not of one save, copy them again",
                     f->path, f->entry[j].name, x->path);
        }
    }
    if (x->total >= 0 && x->total != total)
        FAIL(ERR_CHECKPOINT, "ckpt: %s says total_size %lld, its %d files hold %lld bytes of "
                             "tensors; the shards are not of one save, copy them again", x->path,
             (long long)x->total, w->files, (long long)total);
    return ERR_OK;
}

/* ---- the folder ---- */

bool hf_weights_exist(const char *dir)
{
    char path[FS_PATH];
    return fs_named(fs_path(path, dir, single)) || fs_named(fs_path(path, dir, index_name));
}

enum err hf_weights_open(struct hf_weights *w, const char *dir)
{
    char one[FS_PATH], many[FS_PATH];
    bool whole = fs_named(fs_path(one, dir, single));
    bool shards = fs_named(fs_path(many, dir, index_name));
    struct index x = {.path = many, .dir = dir, .total = -1};
    struct fs_map m = {0};
    enum err err;
    *w = (struct hf_weights){0};
    if (whole && shards)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has both %s and %s; keep those that belong to the model",
             dir, single, index_name);
    if (shards) {
        TRY_OR(out, fs_map_open(&m, many, ERR_CHECKPOINT));
        TRY_OR(out, read_index(&x, &m));
        TRY_OR(out, open_shards(w, &x));
    } else {
        TRY_OR(out, mem_new(1, sizeof *w->file, "the weights", &w->file));
        TRY_OR(out, safet_open(w->file, one));
        w->files = 1;
    }
out:
    mem_free(x.claim);
    fs_map_close(&m);
    if (err != ERR_OK)
        hf_weights_close(w);
    return err;
}

void hf_weights_close(struct hf_weights *w)
{
    for (int i = 0; i < w->files; i++)
        safet_close(&w->file[i]);
    mem_free(w->file);
    *w = (struct hf_weights){0};
}

struct hf_tensor hf_weights_find(const struct hf_weights *w, const char *name)
{
    struct hf_tensor t = {0};
    for (int i = 0; i < w->files && !t.entry; i++)
        t = (struct hf_tensor){&w->file[i], safet_find(w->file[i].entry, w->file[i].n, name)};
    return t;
}

enum err hf_weights_note(const struct hf_weights *w, const char *key, char out[SAFET_NOTE])
{
    char other[SAFET_NOTE];
    TRY(safet_note(&w->file[0], key, out));
    for (int i = 1; i < w->files; i++) {
        TRY(safet_note(&w->file[i], key, other));
        if (strcmp(out, other) != 0)
            FAIL(ERR_CHECKPOINT, "ckpt: %s says %s \"%s\" and %s \"%s\"; the shards are not of one "
                                 "save, copy them again", w->file[0].path, key, out,
                 w->file[i].path, other);
    }
    return ERR_OK;
}

uint64_t hf_weights_digest(const struct hf_weights *w)
{
    enum { PLACES = 64, WIDTH = 8 };
    uint64_t sum = 0;
    for (int i = 0; i < w->files; i++) {
        const struct safet_file *f = &w->file[i];
        sum = XXH3_64bits_withSeed(f->header, (size_t)f->header_bytes, sum);
        for (int j = 0; j < f->n; j++) {
            int64_t bytes = f->entry[j].end - f->entry[j].begin;
            int64_t step = num_max(bytes / PLACES, WIDTH);
            for (int64_t at = 0; at < bytes; at += step)
                sum = XXH3_64bits_withSeed(f->data + f->entry[j].begin + at,
                                           (size_t)num_min(WIDTH, bytes - at), sum);
        }
    }
    return sum;
}
