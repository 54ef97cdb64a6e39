/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading safetensors: 8 bytes N, N bytes of JSON, the data.
 *
 *     { "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ... }
 *
 * The file comes from outside. Nothing of it is believed before it is checked, nothing is allocated
 * before its size is known to be bounded by the bytes that are there, and no tensor is touched. The
 * header is walked twice: once to count the members, once to fill exactly that many entries. Then
 * two sorts prove the rest: by offset, where each tensor has to begin at the end of the one before
 * and the last has to end with the file; by name, where equal neighbours are duplicates.
 *
 * Names go into messages, so control characters in them are refused.
 */
#include "ckpt/ckpt.h"

#include "base/mem.h"
#include "base/text.h"
#include "ckpt/ckpt_json.h"
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, ENTRY_DEPTH = 2 };
static const char metadata[] = "__metadata__";

static const struct { const char *name; int64_t bytes; } types[SAFET_TYPES] = {
    [SAFET_F64] = {"F64", 8},         [SAFET_F32] = {"F32", 4},   [SAFET_F16] = {"F16", 2},
    [SAFET_BF16] = {"BF16", 2},       [SAFET_I64] = {"I64", 8},   [SAFET_U64] = {"U64", 8},
    [SAFET_I32] = {"I32", 4},         [SAFET_U32] = {"U32", 4},   [SAFET_I16] = {"I16", 2},
    [SAFET_U16] = {"U16", 2},         [SAFET_I8] = {"I8", 1},     [SAFET_U8] = {"U8", 1},
    [SAFET_BOOL] = {"BOOL", 1},       [SAFET_F8_E4M3] = {"F8_E4M3", 1},
    [SAFET_F8_E5M2] = {"F8_E5M2", 1},
};

int64_t safet_type_size(enum safet_type type)
{
    return types[type].bytes;
}

const char *safet_type_name(enum safet_type type)
{
    return types[type].name;
}

static enum err bad_header(const struct safet_file *f, int64_t at, const char *why)
{
    FAIL(ERR_CHECKPOINT, "ckpt: the header of %s has %s at byte %lld; the file is damaged or no "
                         "safetensors file", f->path, why, (long long)at);
}

static enum err bad_entry(const struct safet_file *f, const struct safet_entry *e, const char *why)
{
    FAIL(ERR_CHECKPOINT, "ckpt: tensor %s of %s: %s; the file is damaged or of a newer format",
         e->name, f->path, why);
}

/* Why the key can be no name. */
static const char *name_fault(struct ckpt_json_text key)
{
    cJSON *v = ckpt_json_parse(key);
    const char *why = !cJSON_IsString(v)            ? "a name that is not JSON"
                      : !v->valuestring[0]          ? "an empty name"
                      : strlen(v->valuestring) > 127 ? "a name longer than 127 bytes"
                                                    : "a control character in a name";
    cJSON_Delete(v);
    return why;
}

/* Integers are written in digits only, without a zero in front. cJSON would also take 2.4e1 and 024
 * for 24, which other readers refuse. */
static bool plain_integers(struct ckpt_json_text t)
{
    static const char digits[] = "0123456789";
    bool quoted = false, number = false; /* number: the one before is a digit */
    for (int64_t i = 0; i < t.n; i++) {
        char c = t.s[i];
        quoted ^= c == '"';
        bool zero = !quoted && c == '0' && !number && i + 1 < t.n && strchr(digits, t.s[i + 1]);
        if (zero || (!quoted && strchr("+-.eE", c)))
            return false;
        number = strchr(digits, c) != NULL;
    }
    return true;
}

/* The three fields of an entry, each once and no other. */
static enum err read_fields(const struct safet_file *f, const cJSON *v, struct safet_entry *e)
{
    static const char *const key[3] = {"dtype", "shape", "data_offsets"};
    const cJSON *field[3] = {NULL}, *x;
    if (!cJSON_IsObject(v))
        return bad_entry(f, e, "its value is no object");
    cJSON_ArrayForEach(x, v)
    {
        int i = 0;
        while (i < 3 && strcmp(x->string, key[i]) != 0)
            i++;
        if (i == 3)
            return bad_entry(f, e, "it has a field that is none of dtype, shape, data_offsets");
        if (field[i])
            return bad_entry(f, e, "it has a field twice");
        field[i] = x;
    }
    if (!field[0] || !field[1] || !field[2])
        return bad_entry(f, e, "it lacks one of dtype, shape, data_offsets");
    if (!cJSON_IsString(field[0]))
        return bad_entry(f, e, "its dtype is no string");
    const char *type = field[0]->valuestring;
    while (e->type < SAFET_TYPES && strcmp(type, types[e->type].name) != 0)
        e->type++;
    if (e->type == SAFET_TYPES)
        FAIL(ERR_CHECKPOINT, "ckpt: tensor %s of %s has dtype %.16s, which plait does not know; "
                             "convert it to F32, F16 or BF16", e->name, f->path, type);
    if (!cJSON_IsArray(field[1]))
        return bad_entry(f, e, "its shape is no list");
    cJSON_ArrayForEach(x, field[1])
    {
        if (e->nd == 4)
            return bad_entry(f, e, "its shape has more than 4 extents");
        if (!ckpt_json_int(x, &e->shape[e->nd++]))
            return bad_entry(f, e, "an extent is no whole number from 0 to 2^53 - 1");
    }
    if (!cJSON_IsArray(field[2]) || cJSON_GetArraySize(field[2]) != 2 ||
        !ckpt_json_int(cJSON_GetArrayItem(field[2], 0), &e->begin) ||
        !ckpt_json_int(cJSON_GetArrayItem(field[2], 1), &e->end))
        return bad_entry(f, e, "its data_offsets are not two whole numbers from 0 to 2^53 - 1");
    return ERR_OK;
}

/* An entry, the fields of which agree with each other and with the file. */
static enum err read_entry(const struct safet_file *f, struct ckpt_json_text value,
                           struct safet_entry *e)
{
    enum { VALUE_MAX = 4096 }; /* a served entry has far less; bounds the tree */
    bool fits = true;
    if (value.n > VALUE_MAX)
        return bad_entry(f, e, "its entry is longer than 4096 bytes");
    if (!plain_integers(value))
        return bad_entry(f, e, "a number of its entry is not written in digits alone");
    cJSON *v = ckpt_json_parse(value);
    if (!v)
        return bad_entry(f, e, "its entry is no JSON");
    enum err err = read_fields(f, v, e);
    cJSON_Delete(v);
    TRY(err);
    int64_t bytes = safet_type_size(e->type);
    for (int i = 0; i < e->nd && fits; i++)
        fits = num_mul(bytes, e->shape[i], &bytes);
    if (!fits)
        return bad_entry(f, e, "its shape takes more than 2^63 bytes");
    if (e->begin > e->end || e->end > f->bytes)
        FAIL(ERR_CHECKPOINT, "ckpt: tensor %s of %s lies at bytes %lld to %lld, the file has %lld "
                             "bytes of data; it is cut or damaged, copy it again", e->name,
             f->path, (long long)e->begin, (long long)e->end, (long long)f->bytes);
    if (e->end - e->begin != bytes)
        FAIL(ERR_CHECKPOINT, "ckpt: tensor %s of %s has %lld byte%s, its shape and dtype take "
                             "%lld; the file is damaged", e->name, f->path,
             (long long)(e->end - e->begin), text_plural(e->end - e->begin, "s"),
             (long long)bytes);
    return ERR_OK;
}

/* {"key": "text", ...}; what it says does not matter here. */
static enum err check_metadata(const struct safet_file *f, struct ckpt_json_text value)
{
    struct ckpt_json w = {.of = value, .depth_max = 1};
    while (!w.why && ckpt_json_next(&w))
        if (w.value.s[0] != '"')
            w.why = "a value of __metadata__ that is no string";
    return w.why ? bad_header(f, LENGTH_BYTES + (value.s - f->header) + w.at, w.why) : ERR_OK;
}

enum err safet_note(const struct safet_file *f, const char *key, char out[SAFET_NOTE])
{
    struct ckpt_json w = {.of = {f->header, f->header_bytes}, .depth_max = ENTRY_DEPTH}, m = {0};
    out[0] = '\0';
    while (!m.of.s && ckpt_json_next(&w))
        if (ckpt_json_is(w.key, metadata))
            m = (struct ckpt_json){.of = w.value, .depth_max = 1};
    while (m.of.s && ckpt_json_next(&m))
        if (ckpt_json_is(m.key, key)) {
            if (ckpt_json_word(m.value, out, SAFET_NOTE))
                return ERR_OK;
            FAIL(ERR_CHECKPOINT,
                 "ckpt: __metadata__ of %s has a %s that is longer than %d bytes or no plain text; "
                 "the file is damaged or not plait's", f->path, key, SAFET_NOTE - 1);
        }
    return ERR_OK;
}

/* One walk over the header. entry NULL: only count the tensors into *n. */
static enum err walk(const struct safet_file *f, struct safet_entry *entry, int *n)
{
    struct ckpt_json w = {.of = {f->header, f->header_bytes}, .depth_max = ENTRY_DEPTH};
    int count = 0, notes = 0;
    while (ckpt_json_next(&w)) {
        int64_t at = LENGTH_BYTES + (w.key.s - f->header);
        if (ckpt_json_is(w.key, metadata)) {
            if (notes++)
                return bad_header(f, at, "__metadata__ twice");
            if (!entry)
                TRY(check_metadata(f, w.value));
            continue;
        }
        if (count == SAFET_TENSORS_MAX)
            FAIL(ERR_CHECKPOINT, "ckpt: %s has more than %d tensors; split it into several files",
                 f->path, SAFET_TENSORS_MAX);
        struct safet_entry *e = entry ? &entry[count] : NULL;
        if (e && (!ckpt_json_word(w.key, e->name, sizeof e->name) || !e->name[0]))
            return bad_header(f, at, name_fault(w.key));
        if (e)
            TRY(read_entry(f, w.value, e));
        count++;
    }
    if (w.why)
        return bad_header(f, LENGTH_BYTES + w.at, w.why);
    *n = count;
    return ERR_OK;
}

static int by_offset(const void *pa, const void *pb)
{
    const struct safet_entry *a = pa, *b = pb;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end); /* empty tensors before the one at their place */
}

/* An entry begins with its name. */
static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Do the tensors cover the data, each byte once? Leaves the entries sorted by name. */
static enum err check_cover(struct safet_file *f)
{
    int64_t at = 0;
    qsort(f->entry, (size_t)f->n, sizeof *f->entry, by_offset);
    for (int i = 0; i < f->n; i++) {
        const struct safet_entry *e = &f->entry[i];
        if (e->begin != at)
            FAIL(ERR_CHECKPOINT, "ckpt: tensor %s of %s begins at byte %lld of the data, the one "
                                 "before it ends at %lld, and neither overlap nor hole is "
                                 "allowed; the file is damaged", e->name, f->path,
                 (long long)e->begin, (long long)at);
        at = e->end;
    }
    if (at != f->bytes)
        FAIL(ERR_CHECKPOINT, "ckpt: the tensors of %s end at byte %lld, its data at byte %lld; the "
                             "file is cut, grown or damaged, copy it again", f->path,
             (long long)at, (long long)f->bytes);
    safet_sort(f->entry, f->n);
    for (int i = 1; i < f->n; i++)
        if (by_name(&f->entry[i - 1], &f->entry[i]) == 0)
            FAIL(ERR_CHECKPOINT, "ckpt: %s has two tensors named %s; the file is damaged", f->path,
                 f->entry[i].name);
    return ERR_OK;
}

/* The frame: length and first byte. */
static enum err read_frame(struct safet_file *f, const uint8_t *p, int64_t size)
{
    uint64_t n = 0;
    if (size < LENGTH_BYTES + 2)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has %lld byte%s, a safetensors file has at least %d; it is "
                             "cut, copy it again", f->path, (long long)size,
             text_plural(size, "s"), LENGTH_BYTES + 2);
    for (int i = LENGTH_BYTES; i-- > 0;)
        n = n << 8 | p[i];
    if (n > SAFET_HEADER_MAX)
        FAIL(ERR_CHECKPOINT, "ckpt: %s says that its header has %llu bytes, the limit is %d; it is "
                             "damaged or no safetensors file", f->path, (unsigned long long)n,
             SAFET_HEADER_MAX);
    f->bytes = size - LENGTH_BYTES - (int64_t)n;
    if (f->bytes < 0)
        FAIL(ERR_CHECKPOINT, "ckpt: %s says that its header has %llu bytes, and behind this stand "
                             "%lld; it is cut or no safetensors file", f->path,
             (unsigned long long)n, (long long)(size - LENGTH_BYTES));
    f->header = (const char *)p + LENGTH_BYTES;
    f->header_bytes = (int64_t)n;
    f->data = p + LENGTH_BYTES + n;
    if (n < 2 || f->header[0] != '{')
        return bad_header(f, LENGTH_BYTES, "no opening brace");
    int64_t good = ckpt_json_utf8(p + LENGTH_BYTES, f->header_bytes);
    return good == f->header_bytes ? ERR_OK : bad_header(f, LENGTH_BYTES + good, "no UTF-8");
}

enum err safet_open_bytes(struct safet_file *f, const char *name, const void *p, int64_t size)
{
    struct safet_file made = {0};
    enum err err;
    int n;
    if (strlen(name) >= sizeof made.path)
        FAIL(ERR_CHECKPOINT, "ckpt: the path of the weights has %zu bytes, at most %zu are taken; "
                             "use a shorter path", strlen(name), sizeof made.path - 1);
    memcpy(made.path, name, strlen(name));
    TRY_OR(out_close, read_frame(&made, p, size));
    TRY_OR(out_close, walk(&made, NULL, &n));
    TRY_OR(out_close, mem_new(n, sizeof *made.entry, "the list of tensors", &made.entry));
    TRY_OR(out_close, walk(&made, made.entry, &made.n));
    TRY_OR(out_close, check_cover(&made));
    *f = made;
    return ERR_OK;
out_close:
    safet_close(&made);
    return err;
}

static enum err open_map(struct safet_file *f, const char *path, struct fs_map *m)
{
    enum err err = safet_open_bytes(f, path, m->data, m->size);
    if (err == ERR_OK)
        f->map = *m;
    else
        fs_map_close(m);
    return err;
}

enum err safet_open(struct safet_file *f, const char *path)
{
    struct fs_map m;
    TRY(fs_map_open(&m, path, ERR_CHECKPOINT));
    return open_map(f, path, &m);
}

enum err safet_open_in(struct safet_file *f, const char *dir, const char *name)
{
    struct fs_map m;
    char path[FS_PATH];
    TRY(fs_map_open_in(&m, dir, name, ERR_CHECKPOINT));
    return open_map(f, fs_path(path, dir, name), &m);
}

void safet_close(struct safet_file *f)
{
    mem_free(f->entry);
    fs_map_close(&f->map);
    *f = (struct safet_file){0};
}

const struct safet_entry *safet_find(const struct safet_entry *e, int n, const char *name)
{
    return n > 0 ? bsearch(name, e, (size_t)n, sizeof *e, by_name) : NULL;
}

void safet_sort(struct safet_entry *e, int n)
{
    qsort(e, (size_t)n, sizeof *e, by_name);
}
