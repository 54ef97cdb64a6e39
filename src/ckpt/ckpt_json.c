/* SPDX-License-Identifier: Apache-2.0
 *
 * The walk. It finds where keys and values begin and end, and no more: a string ends at its first
 * quote that is not escaped, a bracketed value where its brackets are closed, another value before
 * the next comma, bracket or space. Since a bracketed value is cut where its brackets balance, it
 * can have nothing behind it that a parser would overlook.
 */
#include "ckpt/ckpt_json.h"

#include "base/mem.h"
#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool bad(struct ckpt_json *w, const char *why)
{
    w->why = why;
    return false;
}

static void skip_spaces(struct ckpt_json *w)
{
    while (w->at < w->of.n && w->of.s[w->at] && strchr(" \t\r\n", w->of.s[w->at]))
        w->at++;
}

/* At the character behind a backslash: step over the escape. */
static bool skip_escape(struct ckpt_json *w)
{
    const char *p = w->of.s + w->at;
    int64_t left = w->of.n - w->at;
    if (left < 1 || !*p || !strchr("\"\\/bfnrtu", *p))
        return bad(w, "an unknown escape in a string");
    w->at++;
    if (*p != 'u')
        return true;
    for (int i = 1; i < 5; i++)
        if (left < 5 || !isxdigit((unsigned char)p[i]))
            return bad(w, "a \\u without four hexadecimal digits");
    if (memcmp(p + 1, "0000", 4) == 0)
        return bad(w, "a NUL in a string");
    w->at += 4;
    return true;
}

/* At the opening quote: step over the string. */
static bool skip_string(struct ckpt_json *w)
{
    w->at++;
    while (w->at < w->of.n) {
        unsigned char c = (unsigned char)w->of.s[w->at];
        if (c < 0x20)
            return bad(w, "a control character in a string");
        w->at++;
        if (c == '"')
            return true;
        if (c == '\\' && !skip_escape(w))
            return false;
    }
    return bad(w, "a string that does not end");
}

/* At an opening bracket: step over all up to the one that closes it. */
static bool skip_brackets(struct ckpt_json *w)
{
    int depth = 0;
    while (w->at < w->of.n) {
        char c = w->of.s[w->at];
        if (c == '"') {
            if (!skip_string(w))
                return false;
            continue;
        }
        if ((c == '{' || c == '[') && ++depth > w->depth_max)
            return bad(w, "brackets nested too deep");
        w->at++;
        if ((c == '}' || c == ']') && --depth == 0)
            return true;
    }
    return bad(w, "brackets that are not closed");
}

static bool skip_value(struct ckpt_json *w)
{
    int64_t from = w->at;
    char c = w->at < w->of.n ? w->of.s[w->at] : '\0';
    if (c == '"')
        return skip_string(w);
    if (c == '{' || c == '[')
        return skip_brackets(w);
    while (w->at < w->of.n && w->of.s[w->at] && !strchr(",]} \t\r\n", w->of.s[w->at]))
        w->at++;
    return w->at > from || bad(w, "no value where one is expected");
}

static bool skip_key(struct ckpt_json *w)
{
    bool is = w->at < w->of.n && w->of.s[w->at] == '"';
    return is ? skip_string(w) : bad(w, "no key where one is expected");
}

static bool expect(struct ckpt_json *w, char c, const char *why)
{
    skip_spaces(w);
    if (w->at >= w->of.n || w->of.s[w->at] != c)
        return bad(w, why);
    w->at++;
    return true;
}

static bool take(struct ckpt_json *w, bool (*skip)(struct ckpt_json *w), struct ckpt_json_text *out)
{
    int64_t from = w->at;
    bool good = skip(w);
    *out = (struct ckpt_json_text){w->of.s + from, w->at - from};
    return good;
}

/* What differs between the two. */
static const struct kind {
    char open, close;
    const char *none, *behind, *comma;
} kinds[] = {
    {'[', ']', "no list", "something behind the list", "no comma between two items"},
    {'{', '}', "no object", "something behind the object", "no comma between two members"},
};

bool ckpt_json_next(struct ckpt_json *w)
{
    const struct kind *kind = &kinds[!w->list];
    bool first = w->at == 0;
    if (first && !expect(w, kind->open, kind->none))
        return false;
    skip_spaces(w);
    if (w->at < w->of.n && w->of.s[w->at] == kind->close) {
        w->at++;
        skip_spaces(w);
        return w->at < w->of.n && bad(w, kind->behind);
    }
    if (!first && !expect(w, ',', kind->comma))
        return false;
    skip_spaces(w);
    if (!w->list && (!take(w, skip_key, &w->key) || !expect(w, ':', "no colon behind a key")))
        return false;
    skip_spaces(w);
    return take(w, skip_value, &w->value);
}

int64_t ckpt_json_utf8(const uint8_t *s, int64_t n)
{
    int64_t at = 0;
    while (at < n) {
        int length = text_utf8(s + at, n - at);
        if (length < 1)
            return at;
        at += length;
    }
    return n;
}

enum err ckpt_json_text(const char *path, const struct fs_map *m, struct ckpt_json_text *out)
{
    const char *s = (const char *)m->data;
    int64_t n = m->size;
    TRY(text_begin(path, ERR_CHECKPOINT, &s, &n));
    int64_t good = ckpt_json_utf8(m->data, m->size);
    if (good < m->size)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has no UTF-8 at byte %lld; it is damaged, copy it again",
             path, (long long)good);
    *out = (struct ckpt_json_text){s, n};
    return ERR_OK;
}

cJSON *ckpt_json_parse(struct ckpt_json_text t)
{
    const char *end;
    cJSON *v = cJSON_ParseWithLengthOpts(t.s, (size_t)t.n, &end, 0);
    if (v && end != t.s + t.n) {
        cJSON_Delete(v);
        return NULL;
    }
    return v;
}

bool ckpt_json_plain(const cJSON *v, int64_t size)
{
    const char *s = cJSON_IsString(v) ? v->valuestring : NULL;
    bool good = s && (int64_t)strlen(s) < size;
    for (; good && *s; s++)
        good = (unsigned char)*s >= 0x20 && *s != 0x7f;
    return good;
}

enum err ckpt_json_string(struct ckpt_json_text t, char **out)
{
    cJSON *v = ckpt_json_parse(t);
    *out = NULL;
    enum err err = cJSON_IsString(v) ? mem_string(v->valuestring, out) : ERR_OK;
    cJSON_Delete(v);
    return err;
}

bool ckpt_json_int(const cJSON *v, int64_t *out)
{
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0.0 && v->valuedouble < 0x1p53) ||
        v->valuedouble != floor(v->valuedouble))
        return false;
    *out = (int64_t)v->valuedouble;
    return true;
}

bool ckpt_json_is(struct ckpt_json_text t, const char *word)
{
    return t.n == (int64_t)strlen(word) + 2 && memcmp(t.s + 1, word, strlen(word)) == 0;
}

bool ckpt_json_same(struct ckpt_json_text t, const char *s)
{
    return t.n == (int64_t)strlen(s) && memcmp(t.s, s, (size_t)t.n) == 0;
}

static int by_word(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

enum err ckpt_json_twice(const char *first, int n, size_t stride, const char **out)
{
    const char **text;
    *out = NULL;
    TRY(mem_new(n, sizeof *text, "names, of which none may stand twice", &text));
    for (int i = 0; i < n; i++)
        text[i] = first + (size_t)i * stride;
    qsort(text, (size_t)n, sizeof *text, by_word);
    for (int i = 1; i < n && !*out; i++)
        if (strcmp(text[i - 1], text[i]) == 0)
            *out = text[i];
    mem_free(text);
    return ERR_OK;
}

bool ckpt_json_word(struct ckpt_json_text t, char *out, int64_t size)
{
    bool good = t.n >= 2 && t.s[0] == '"' && t.n < 8 * size;
    if (good && !memchr(t.s, '\\', (size_t)t.n)) { /* as it is; the walk has looked at it */
        good = t.n - 2 < size && !memchr(t.s, 0x7f, (size_t)t.n);
        if (good)
            snprintf(out, (size_t)size, "%.*s", (int)t.n - 2, t.s + 1);
        return good;
    }
    cJSON *v = good ? ckpt_json_parse(t) : NULL;
    good = ckpt_json_plain(v, size);
    if (good)
        memcpy(out, v->valuestring, strlen(v->valuestring) + 1);
    cJSON_Delete(v);
    return good;
}
