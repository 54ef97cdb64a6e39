/* SPDX-License-Identifier: Apache-2.0
 *
 * The scalars of a checkpoint as JSON. Two tables say which there are, of what form and within what
 * bounds; writing and reading both walk them, so what is written can be read again. Each stands in
 * the index once and there is no other: a newer plait that adds one names another format.
 *
 * Whole numbers are of digits alone and are not read as doubles, so all 64 bits of them count.
 */
#include "ckpt/state_local.h"

#include "base/mem.h"
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum form {
    WHOLE,  /* int64_t, 0 .. most */
    COUNT,  /* int, 1 .. most */
    WIDE,   /* uint64_t */
    HASH,   /* uint64_t as 16 hexadecimal digits */
    REAL,   /* double, finite and not below 0 */
    MAYBE,  /* double, null for what is not finite */
    WORD,   /* char [most] */
    TEXT,   /* const char *, owned */
    FLAG,   /* bool */
    TYPE,   /* enum safet_type, of the first two */
    KIND,   /* enum model_kind */
    WIDTHS, /* int64_t [MODEL_WIDTHS] as one text; left out where the first is 0 */
};

struct field {
    const char *key;
    enum form form;
    size_t at;
    int64_t most;
};

#define HEAD(member) offsetof(struct state_head, member)
#define WORD_AT(member) HEAD(member), sizeof(((struct state_head *)0)->member)
enum { STATE_FIELDS = 18, MODEL_FIELDS = 15 };
static const struct field head_field[STATE_FIELDS] = {
    {"step", WHOLE, HEAD(step), 0},
    {"run", WORD, WORD_AT(run)},
    {"dtype", TYPE, HEAD(type), 0},
    {"config", TEXT, HEAD(config), 0},
    {"notes", TEXT, HEAD(notes), 0},
    {"seed", WIDE, HEAD(seed), 0},
    {"data_hash", HASH, HEAD(data_hash), 0},
    {"valid_hash", HASH, HEAD(valid_hash), 0},
    {"tokenizer", WORD, WORD_AT(tokenizer)},
    {"tokenizer_hash", HASH, HEAD(tokenizer_hash), 0},
    {"warmup", WHOLE, HEAD(warmup), 0},
    {"decay", WHOLE, HEAD(decay), 0},
    {"steps", WHOLE, HEAD(steps), 0},
    {"within", WHOLE, HEAD(within), 0},
    {"loss", MAYBE, HEAD(loss), 0},
    {"valid_loss", MAYBE, HEAD(valid_loss), 0},
    {"world", COUNT, HEAD(world), 1 << 20},
    {"layout", WORD, WORD_AT(layout)},
};

#define FIELD_OF(member) offsetof(struct model, member)
static const struct field model_field[MODEL_FIELDS] = {
    {"kind", KIND, FIELD_OF(kind), 0},
    {"layers", WHOLE, FIELD_OF(layers), 0},
    {"hidden", WHOLE, FIELD_OF(hidden), 0},
    {"heads", WHOLE, FIELD_OF(heads), 0},
    {"kv_heads", WHOLE, FIELD_OF(kv_heads), 0},
    {"head_dim", WHOLE, FIELD_OF(head_dim), 0},
    {"ffn", WHOLE, FIELD_OF(ffn), 0},
    {"vocab", WHOLE, FIELD_OF(vocab), 0},
    {"seq", WHOLE, FIELD_OF(seq), 0},
    {"tied", FLAG, FIELD_OF(tied), 0},
    {"dropout", REAL, FIELD_OF(dropout), 0},
    {"norm_eps", REAL, FIELD_OF(norm_eps), 0},
    {"rope_theta", REAL, FIELD_OF(rope_theta), 0},
    {"init_std", REAL, FIELD_OF(init_std), 0},
    {"widths", WIDTHS, FIELD_OF(width), 0},
};
static const char *const type_word[] = {[SAFET_F64] = "F64", [SAFET_F32] = "F32"};

/* ---- writing ---- */

static void add_value(const struct field *f, const void *p, struct text *out)
{
    char number[32];
    const char *s = p;
    double real = NAN;
    if (f->form == REAL || f->form == MAYBE)
        memcpy(&real, p, sizeof real);
    switch (f->form) {
    case WHOLE: text_add(out, "%" PRId64, *(const int64_t *)p); return;
    case COUNT: text_add(out, "%d", *(const int *)p); return;
    case WIDE: text_add(out, "%" PRIu64, *(const uint64_t *)p); return;
    case HASH: text_add(out, "\"%016" PRIx64 "\"", *(const uint64_t *)p); return;
    case REAL:
    case MAYBE: text_add(out, "%s", text_json_real(real, number)); return;
    case TEXT: s = *(const char *const *)p; text_add_json(out, s ? s : ""); return;
    case WORD: text_add_json(out, s); return;
    case FLAG: text_add(out, *(const bool *)p ? "true" : "false"); return;
    case TYPE: text_add_json(out, type_word[*(const enum safet_type *)p]); return;
    case KIND: text_add_json(out, model_traits(*(const enum model_kind *)p)->name); return;
    case WIDTHS:
        for (int i = 0; i < MODEL_WIDTHS && ((const int64_t *)p)[i] > 0; i++)
            text_add(out, "%c%" PRId64, i ? ',' : '"', ((const int64_t *)p)[i]);
        text_add(out, "\"");
        return;
    }
}

static void add_fields(const struct field *f, int n, const void *from, struct text *out)
{
    for (int i = 0; i < n; i++) {
        const void *p = (const char *)from + f[i].at;
        if (f[i].form == WIDTHS && *(const int64_t *)p == 0)
            continue;
        text_add(out, "%s\"%s\":", i ? "," : "{", f[i].key);
        add_value(&f[i], p, out);
    }
    text_add(out, "}");
}

void state_head_add(const struct state_head *head, struct text *out)
{
    text_add(out, "\"state\":");
    add_fields(head_field, STATE_FIELDS, head, out);
    text_add(out, ",\n\"model\":");
    add_fields(model_field, MODEL_FIELDS, &head->model, out);
}

/* ---- reading ---- */

enum err state_members(const char *path, struct ckpt_json_text object, const char *const *name,
                       int n, int must, struct ckpt_json_text *out)
{
    struct ckpt_json w = {.of = object, .depth_max = STATE_DEPTH};
    for (int i = 0; i < n; i++)
        out[i] = (struct ckpt_json_text){NULL, 0};
    while (ckpt_json_next(&w)) {
        int i = 0;
        while (i < n && !ckpt_json_is(w.key, name[i]))
            i++;
        if (i == n || out[i].s)
            FAIL(ERR_CHECKPOINT, "ckpt: %s has %.*s, which is there twice or which plait does not "
                                 "know; it is damaged or of a newer plait", path,
                 (int)num_min(w.key.n, 66), w.key.s);
        out[i] = w.value;
    }
    if (w.why)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has %s; it is damaged or no index of a checkpoint", path,
             w.why);
    for (int i = 0; i < must; i++)
        if (!out[i].s)
            FAIL(ERR_CHECKPOINT, "ckpt: %s has no \"%s\"; it is damaged or no index of a "
                                 "checkpoint", path, name[i]);
    return ERR_OK;
}

static bool take_digits(struct ckpt_json_text t, uint64_t *out)
{
    uint64_t v = 0;
    if (t.n < 1 || t.n > 20 || (t.n > 1 && t.s[0] == '0'))
        return false;
    for (int64_t i = 0; i < t.n; i++) {
        uint64_t digit = (uint64_t)(t.s[i] - '0');
        if (t.s[i] < '0' || t.s[i] > '9' || v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *out = v;
    return true;
}

bool state_take_int(struct ckpt_json_text t, int64_t most, int64_t *out)
{
    uint64_t v;
    bool good = take_digits(t, &v) && v <= (uint64_t)most;
    if (good)
        *out = (int64_t)v;
    return good;
}

bool state_take_hash(struct ckpt_json_text t, uint64_t *out)
{
    bool good = t.n == 18 && t.s[0] == '"' && t.s[17] == '"' &&
                strspn(t.s + 1, "0123456789abcdef") == 16;
    if (good)
        *out = strtoull(t.s + 1, NULL, 16);
    return good;
}

static bool take_real(struct ckpt_json_text t, double least, double *out)
{
    char s[40];
    double v;
    if (t.n >= (int64_t)sizeof s || t.n < 1)
        return false;
    memcpy(s, t.s, (size_t)t.n);
    s[t.n] = '\0';
    bool good = text_to_double(s, &v) && v >= least;
    if (good)
        *out = v;
    return good;
}

/* One of n words, as its place among them. */
static bool take_one(struct ckpt_json_text t, const char *const *word, int n, int *out)
{
    char s[16];
    bool good = ckpt_json_word(t, s, sizeof s);
    int i = 0;
    while (good && i < n && strcmp(word[i], s) != 0)
        i++;
    *out = i;
    return good && i < n;
}

/* "512,1024,10", from 2 to MODEL_WIDTHS of them. */
static bool take_widths(struct ckpt_json_text t, int64_t *out)
{
    char s[12 * MODEL_WIDTHS], *end = s;
    int n = 0;
    if (!ckpt_json_word(t, s, sizeof s))
        return false;
    for (; n < MODEL_WIDTHS && *end >= '1' && *end <= '9'; n++) {
        out[n] = strtoll(end, &end, 10);
        if (*end == ',' && end[1])
            end++;
    }
    return *end == '\0' && n >= 2;
}

static enum err take_value(const struct field *f, struct ckpt_json_text t, void *p, bool *good)
{
    int64_t count = 0;
    int choice = 0;
    const char *kind[MODEL_KINDS];
    char *s = NULL;
    switch (f->form) {
    case WHOLE: *good = state_take_int(t, STATE_WHOLE_MAX, p); break;
    case COUNT:
        *good = state_take_int(t, f->most, &count) && count > 0;
        *(int *)p = (int)count;
        break;
    case WIDE: *good = take_digits(t, p); break;
    case HASH: *good = state_take_hash(t, p); break;
    case REAL: *good = take_real(t, 0, p); break;
    case MAYBE: /* null for a loss that there is none of */
        *(double *)p = NAN;
        *good = ckpt_json_same(t, "null") || take_real(t, -INFINITY, p);
        break;
    case WORD: *good = ckpt_json_word(t, p, f->most); break;
    case TEXT: /* owned */
        if (t.n < 6 * (int64_t)STATE_TEXT_MAX)
            TRY(ckpt_json_string(t, &s));
        *(const char **)p = s;
        *good = s && strlen(s) <= STATE_TEXT_MAX;
        break;
    case FLAG:
        *(bool *)p = ckpt_json_same(t, "true");
        *good = *(bool *)p || ckpt_json_same(t, "false");
        break;
    case TYPE:
        *good = take_one(t, type_word, 2, &choice);
        *(enum safet_type *)p = (enum safet_type)choice;
        break;
    case KIND:
        for (int i = 0; i < MODEL_KINDS; i++)
            kind[i] = model_traits((enum model_kind)i)->name;
        *good = take_one(t, kind, MODEL_KINDS, &choice);
        *(enum model_kind *)p = (enum model_kind)choice;
        break;
    case WIDTHS: *good = take_widths(t, p); break;
    }
    return ERR_OK;
}

static const char *const form_say[] = {
    [WHOLE] = "a whole number from 0 to 2^53 - 1", [COUNT] = "a whole number from 1 to 2^20",
    [WIDE] = "a whole number from 0 to 2^64 - 1", [HASH] = "a hash, 16 hexadecimal digits",
    [REAL] = "a number that is not below 0", [MAYBE] = "a number or null",
    [WORD] = "a short word", [TEXT] = "a text of at most 16 MiB", [FLAG] = "true or false",
    [TYPE] = "F32 or F64", [KIND] = "gpt, llama or mlp",
    [WIDTHS] = "2 to 32 whole numbers above 0 with commas between"};

/* *sum: goes on over what they say, but for valid_loss. */
static enum err read_fields(const char *path, struct ckpt_json_text object, const struct field *f,
                            int n, void *into, uint64_t *sum)
{
    const char *key[STATE_FIELDS] = {NULL};
    struct ckpt_json_text v[STATE_FIELDS];
    int must = f[n - 1].form == WIDTHS ? n - 1 : n;
    for (int i = 0; i < n; i++)
        key[i] = f[i].key;
    TRY(state_members(path, object, key, n, must, v));
    for (int i = 0; i < n; i++) {
        bool good = !v[i].s;
        if (!good)
            TRY(take_value(&f[i], v[i], (char *)into + f[i].at, &good));
        if (!good)
            FAIL(ERR_CHECKPOINT, "ckpt: %s has \"%s\": %.*s, which is not %s; it is damaged", path,
                 f[i].key, (int)num_min(v[i].n, 40), v[i].s, form_say[f[i].form]);
        if (strcmp(f[i].key, "valid_loss") != 0)
            *sum = XXH3_64bits_withSeed(v[i].s, (size_t)v[i].n, *sum);
    }
    return ERR_OK;
}

enum err state_head_read(const char *path, struct ckpt_json_text state, struct ckpt_json_text model,
                         struct state_head *head, uint64_t *digest)
{
    struct err_kept kept;
    *digest = 0;
    TRY(read_fields(path, state, head_field, STATE_FIELDS, head, digest));
    TRY(read_fields(path, model, model_field, MODEL_FIELDS, &head->model, digest));
    err_keep(&kept, model_check(&head->model));
    if (kept.code != ERR_OK)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has a model that cannot be: %s; it is damaged", path,
             kept.text);
    return ERR_OK;
}
