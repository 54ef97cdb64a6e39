/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing safetensors. All entries are known before the first byte, so offsets and header are made
 * once and the data need no second copy: a tensor may come in pieces, as it is gathered from the
 * ranks that hold it, and they come from front to back, or each to its place.
 *
 * The header is filled up with spaces to a multiple of 8, so the data begin aligned. Readers map
 * the file and look at tensors where they lie; that is why a tensor has to begin at a multiple of
 * its element's size, which holds whenever wider types come first.
 */
#include "ckpt/ckpt.h"

#include "base/mem.h"
#include "base/text.h"
#include "ckpt/ckpt_json.h"
#include <string.h>
#include <xxhash.h>

static enum err check_names(const struct safet_entry *e, int n)
{
    const char *twice;
    for (int i = 0; i < n; i++) {
        size_t length = strnlen(e[i].name, sizeof e[i].name);
        if (length == 0 || length == sizeof e[i].name || strcmp(e[i].name, "__metadata__") == 0 ||
            ckpt_json_utf8((const uint8_t *)e[i].name, (int64_t)length) < (int64_t)length)
            FAIL(ERR_INTERNAL, "ckpt: tensor %d of %d has no legal name; give it 1 to 127 bytes of "
                               "UTF-8 other than __metadata__", i, n);
    }
    TRY(ckpt_json_twice((const char *)e, n, sizeof *e, &twice));
    if (twice)
        FAIL(ERR_INTERNAL, "ckpt: two tensors are named %s; give each its own name", twice);
    return ERR_OK;
}

/* begin and end of all entries; *total bytes of data. */
static enum err place(struct safet_entry *e, int n, int64_t *total)
{
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        int64_t bytes = safet_type_size(e[i].type);
        bool fits = e[i].nd >= 0 && e[i].nd <= 4;
        if (at % bytes != 0)
            FAIL(ERR_INTERNAL, "ckpt: tensor %s would begin at byte %lld, its elements have %lld; "
                               "write wider types first", e[i].name, (long long)at,
                 (long long)bytes);
        for (int d = 0; d < e[i].nd && fits; d++)
            fits = num_mul(bytes, e[i].shape[d], &bytes);
        e[i].begin = at;
        if (!fits || !num_add(at, bytes, &at) || at >= (int64_t)1 << 53)
            FAIL(ERR_INTERNAL, "ckpt: tensor %s has %d extents and ends beyond 2^53 bytes, or its "
                               "extents are not legal; write fewer or smaller tensors", e[i].name,
                 e[i].nd);
        e[i].end = at;
    }
    *total = at;
    return ERR_OK;
}

/* The JSON, filled up so that 8 bytes of length and it are a multiple of 8. */
static enum err make_header(const struct safet_entry *e, int n, const char *const *notes,
                            char **out, int64_t *bytes)
{
    struct text t = {0};
    text_add(&t, "{\"__metadata__\":{\"format\":\"pt\"");
    for (; notes && *notes; notes += 2) {
        text_add(&t, ",");
        text_add_json(&t, notes[0]);
        text_add(&t, ":");
        text_add_json(&t, notes[1]);
    }
    text_add(&t, "}");
    for (int i = 0; i < n; i++) {
        text_add(&t, ",");
        text_add_json(&t, e[i].name);
        text_add(&t, ":{\"dtype\":\"%s\",\"shape\":[", safet_type_name(e[i].type));
        for (int d = 0; d < e[i].nd; d++)
            text_add(&t, "%s%lld", d ? "," : "", (long long)e[i].shape[d]);
        text_add(&t, "],\"data_offsets\":[%lld,%lld]}", (long long)e[i].begin, (long long)e[i].end);
    }
    text_add(&t, "}");
    text_add_char(&t, ' ', (8 - t.len % 8) % 8);
    *bytes = t.len;
    return text_done(&t, out);
}

enum err safet_create(struct safet_writer *w, const char *path, bool fresh, struct safet_entry *e,
                      int n, const char *const *notes)
{
    *w = (struct safet_writer){.file.fd = -1};
    int64_t bytes = 0;
    char *header = NULL;
    uint8_t length[8];
    enum err err;
    if (n < 0 || n > SAFET_TENSORS_MAX)
        FAIL(ERR_INTERNAL, "ckpt: %d tensors are asked for, a file takes 0 to %d", n,
             SAFET_TENSORS_MAX);
    TRY(fresh ? fs_create_new(&w->file, path) : fs_create(&w->file, path));
    TRY_OR(out, check_names(e, n));
    TRY_OR(out, place(e, n, &w->total));
    TRY_OR(out, make_header(e, n, notes, &header, &bytes));
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)bytes >> (8 * i));
    if (bytes > SAFET_HEADER_MAX)
        TRY_OR(out, err_set(ERR_INTERNAL, __FILE__, __LINE__,
                            "ckpt: %d tensors make a header of %lld bytes, the format's limit is "
                            "%d; write several files", n, (long long)bytes, SAFET_HEADER_MAX));
    TRY_OR(out, fs_write(&w->file, length, sizeof length));
    TRY_OR(out, fs_write(&w->file, header, bytes));
    w->front = (int64_t)sizeof length + bytes;
    w->header_hash = XXH3_64bits(header, (size_t)bytes);
out:
    mem_free(header);
    if (err != ERR_OK)
        safet_abandon(w);
    return err;
}

enum err safet_keep_room(struct safet_writer *w)
{
    int64_t so_far = atomic_load(&w->file.written) + w->file.used;
    return fs_keep_room(&w->file, so_far + w->total - atomic_load(&w->written));
}

enum err safet_write(struct safet_writer *w, const void *p, int64_t bytes)
{
    long long written = atomic_load(&w->written);
    if (bytes < 0 || bytes > w->total - written)
        FAIL(ERR_INTERNAL, "ckpt: %lld bytes of tensors are written and %lld more are given, the "
                           "entries take %lld", written, (long long)bytes, (long long)w->total);
    TRY(fs_write(&w->file, p, bytes));
    atomic_fetch_add(&w->written, bytes);
    return ERR_OK;
}

enum err safet_write_at(struct safet_writer *w, int64_t at, const void *p, int64_t bytes)
{
    if (at < 0 || bytes < 0 || at > w->total - bytes)
        FAIL(ERR_INTERNAL, "ckpt: %lld bytes are given for byte %lld of the tensors, the entries "
                           "take %lld", (long long)bytes, (long long)at, (long long)w->total);
    TRY(fs_write_at(&w->file, w->front + at, p, bytes));
    atomic_fetch_add(&w->written, bytes);
    return ERR_OK;
}

enum err safet_commit(struct safet_writer *w)
{
    long long written = atomic_load(&w->written);
    if (written != w->total) {
        fs_abandon(&w->file);
        FAIL(ERR_INTERNAL, "ckpt: %lld bytes of tensors are written, the entries take %lld; the "
                           "file is given up", written, (long long)w->total);
    }
    return fs_commit(&w->file);
}

void safet_abandon(struct safet_writer *w)
{
    if (w->file.path) /* a writer that is all zero has no file; its descriptor 0 is not ours */
        fs_abandon(&w->file);
}
