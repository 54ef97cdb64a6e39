/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank's shard: a safetensors file of its chunks, hashed as they go by, so the bytes are read
 * once. Its header says of which step and run it is, and the index has the header's hash: a shard
 * of another save is told from a damaged one.
 */
#include "ckpt/state_local.h"

#include "base/mem.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the state's size */
#include <xxhash.h>

enum { STRIP = 1 << 20 }; /* bytes that are hashed, then written; fs_write copies none as large */

static int64_t chunk_bytes(const struct state_shard *s)
{
    return s->at < s->n ? state_box_elements(&s->chunk[s->at].box) * safet_type_size(s->type) : 0;
}

static enum err make_entries(const struct state_shard *s, struct safet_entry *e)
{
    for (int i = 0; i < s->n; i++) {
        const struct state_chunk *c = &s->chunk[i];
        const char *why = state_chunk_fault(c);
        if (!why && !state_chunk_name(c, e[i].name))
            why = "its name is empty or too long";
        if (why)
            FAIL(ERR_INTERNAL, "ckpt: chunk %d of %d, of tensor %.127s, cannot be written: %s", i,
                 s->n, c->tensor, why);
        e[i].type = s->type;
        e[i].nd = c->nd;
        memcpy(e[i].shape, c->box.n, sizeof c->box.n);
    }
    return ERR_OK;
}

static enum err open_file(struct state_shard *s, const struct state_save *save,
                          struct safet_entry *e)
{
    char step[24], *path;
    const char *notes[] = {"plait", STATE_FORMAT, "step", step, "run", save->run, NULL};
    snprintf(step, sizeof step, "%" PRId64, save->step);
    TRY(make_entries(s, e));
    TRY(fs_join(save->dir, s->name, &path));
    enum err err = safet_create(&s->file, path, e, s->n, notes);
    mem_free(path);
    return err;
}

static enum err create(struct state_shard *s, const struct state_save *save,
                       const struct state_chunk *chunk)
{
    struct safet_entry *e;
    TRY(mem_new(s->n, sizeof *s->chunk, "the chunks of a shard", &s->chunk));
    if (s->n > 0)
        memcpy(s->chunk, chunk, (size_t)s->n * sizeof *chunk);
    TRY(mem_new(1, sizeof(XXH3_state_t), "the hash of a chunk", &s->hash));
    XXH3_64bits_reset(s->hash);
    TRY(mem_new(s->n, sizeof *e, "the entries of a shard", &e));
    enum err err = open_file(s, save, e);
    mem_free(e);
    return err;
}

enum err state_shard_create(struct state_shard *s, const struct state_save *save, const char *name,
                            const struct state_chunk *chunk, int n)
{
    *s = (struct state_shard){.type = save->type, .n = n};
    ENSURE(n >= 0 && strlen(name) < STATE_FILE && save->type <= SAFET_F32);
    memcpy(s->name, name, strlen(name) + 1);
    enum err err = create(s, save, chunk);
    if (err == ERR_OK) {
        s->header = s->file.header_hash;
        s->bytes = s->file.front + s->file.total;
        s->left = chunk_bytes(s);
    } else {
        state_shard_close(s);
    }
    return err;
}

enum err state_shard_keep_room(struct state_shard *s)
{
    return safet_keep_room(&s->file);
}

/* The chunk is whole. */
static void finish_chunk(struct state_shard *s)
{
    s->chunk[s->at++].hash = XXH3_64bits_digest(s->hash);
    XXH3_64bits_reset(s->hash);
    s->left = chunk_bytes(s);
}

enum err state_shard_write(struct state_shard *s, const void *p, int64_t bytes)
{
    const uint8_t *at = p;
    if (bytes < 0 || bytes > s->file.total - s->file.written)
        FAIL(ERR_INTERNAL, "ckpt: %" PRId64 " bytes of shard %s are written and %" PRId64
                           " more are given, its %d chunks take %" PRId64, s->file.written,
             s->name, bytes, s->n, s->file.total);
    while (bytes > 0) {
        int64_t n = num_min(bytes, s->left);
        n = n < 2 * STRIP ? n : STRIP;
        XXH3_64bits_update(s->hash, at, (size_t)n);
        TRY(safet_write(&s->file, at, n));
        at += n;
        bytes -= n;
        s->left -= n;
        if (s->left == 0)
            finish_chunk(s);
    }
    return ERR_OK;
}

/* By strips of rows, each turned in memory of its own. */
static enum err put_turned(struct state_shard *s, const uint8_t *p)
{
    const struct state_box b = s->chunk[s->at].box;
    int64_t size = safet_type_size(s->type), rows = num_max(1, STRIP / (b.n[1] * size));
    uint8_t *strip;
    enum err err = ERR_OK;
    rows = num_min(rows, b.n[0]);
    TRY(mem_new(rows * b.n[1], (size_t)size, "a strip of a chunk", &strip));
    for (int64_t r = 0; r < b.n[0] && err == ERR_OK; r += rows) {
        int64_t n[2] = {num_min(rows, b.n[0] - r), b.n[1]};
        struct state_span to = {strip, s->type, {n[1], 1}};
        struct state_span from = {(uint8_t *)(uintptr_t)p + r * size, s->type, {1, b.n[0]}};
        state_copy(&to, &from, n);
        err = state_shard_write(s, strip, n[0] * n[1] * size);
    }
    mem_free(strip);
    return err;
}

enum err state_shard_put(struct state_shard *s, const void *p, bool transposed)
{
    if (s->at == s->n || s->left != chunk_bytes(s))
        FAIL(ERR_INTERNAL, "ckpt: shard %s has %d chunks, %d of them are written, and the next is "
                           "given as a whole when %" PRId64 " bytes of it are missing", s->name,
             s->n, s->at, s->left);
    const struct state_box *b = &s->chunk[s->at].box;
    if (transposed && b->n[0] > 1 && b->n[1] > 1)
        return put_turned(s, p);
    return state_shard_write(s, p, s->left);
}

enum err state_shard_commit(struct state_shard *s)
{
    return safet_commit(&s->file);
}

enum err state_shard_text(const struct state_shard *s, char **out)
{
    struct text t = {0};
    text_add(&t, "{\"file\":\"%s\",\"bytes\":%" PRId64 ",\"hash\":\"%016" PRIx64 "\",\"chunks\":[",
             s->name, s->bytes, s->header);
    for (int i = 0; i < s->n; i++) {
        const struct state_chunk *c = &s->chunk[i];
        text_add(&t, "%s\n[", i ? "," : "");
        text_add_json(&t, c->tensor);
        text_add(&t, ",\"%s\",", state_kind_name(c->kind));
        for (int j = 0; j < 2; j++) {
            const int64_t *v = j ? c->box.n : c->box.at;
            text_add(&t, c->nd == 2 ? "[%" PRId64 ",%" PRId64 "]," : "[%" PRId64 "],", v[0], v[1]);
        }
        text_add(&t, "\"%016" PRIx64 "\"]", c->hash);
    }
    text_add(&t, "]}");
    return text_done(&t, out);
}

void state_shard_close(struct state_shard *s)
{
    safet_abandon(&s->file);
    mem_free(s->chunk);
    mem_free(s->hash);
    *s = (struct state_shard){0};
}
