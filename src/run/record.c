/* SPDX-License-Identifier: Apache-2.0
 *
 * Only the starts are read again, member by member and without a tree (ckpt_json.h): a run that
 * goes on writes them anew, behind the facts of the machine that it is on now. Words of an end are
 * kept as the JSON that they are.
 */
#include "run/record.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/num.h"
#include "ckpt/ckpt_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { RECORD_MAX = 1 << 24, STARTS_MAX = 1 << 16, WORDS_MAX = 1 << 12 };
#define RECORD_FORMAT "plait run 1"

void record_free(struct record *r)
{
    for (int i = 0; i < r->n; i++)
        mem_free(r->start[i].words);
    mem_free(r->start);
    mem_free(r->facts);
    *r = (struct record){.n = 0};
}

static enum err add(struct record *r, const struct record_start *s)
{
    TRY(mem_grow(r->n, r->n + 1, sizeof *r->start, "the starts of a run", &r->start));
    r->start[r->n++] = *s;
    return ERR_OK;
}

enum err record_begin(struct record *r, int64_t from)
{
    struct record_start s = {.from = from, .to = -1, .code = -1};
    log_time(s.start);
    return add(r, &s);
}

enum err record_end(struct record *r, int64_t to, enum err code, const char *words)
{
    struct record_start *s = &r->start[r->n - 1];
    struct text t = {0};
    s->to = to;
    s->code = code;
    log_time(s->end);
    if (code == ERR_OK)
        return ERR_OK;
    text_add_json(&t, words);
    return text_done(&t, &s->words);
}

/* ---- writing ---- */

static void add_end(const struct record_start *s, struct text *out)
{
    text_add(out, s->end[0] ? "\"end\": \"%s\", " : "\"end\": null, ", s->end);
    if (s->code >= 0)
        text_add(out, "\"exit\": %" PRId64 ", ", s->code);
    else
        text_add(out, "\"exit\": null, ");
    text_add(out, "\"words\": %s", s->words ? s->words : "null");
}

void record_text(const struct record *r, struct text *out)
{
    text_add(out, "{\n\"format\": \"" RECORD_FORMAT "\",\n%s\"start\": \"%s\",\n", r->facts,
             r->start[0].start);
    add_end(&r->start[r->n - 1], out);
    text_add(out, ",\n\"starts\": [");
    for (int i = 0; i < r->n; i++) {
        const struct record_start *s = &r->start[i];
        text_add(out, "%s\n  {\"start\": \"%s\", \"from\": %" PRId64 ", \"to\": ", i ? "," : "",
                 s->start, s->from);
        if (s->to >= 0)
            text_add(out, "%" PRId64 ", ", s->to);
        else
            text_add(out, "null, ");
        add_end(s, out);
        text_add(out, "}");
    }
    text_add(out, "]\n}\n");
}

/* ---- reading ---- */

static bool is(struct ckpt_json_text t, const char *word)
{
    return t.n == (int64_t)strlen(word) && memcmp(t.s, word, (size_t)t.n) == 0;
}

static bool take_time(struct ckpt_json_text t, char out[LOG_TIME])
{
    if (is(t, "null"))
        return true;
    bool good = t.n == LOG_TIME + 1 && t.s[0] == '"';
    for (int64_t i = 1; good && i < t.n - 1; i++)
        good = strchr("0123456789-:TZ", t.s[i]) != NULL;
    if (good)
        snprintf(out, LOG_TIME, "%.*s", LOG_TIME - 1, t.s + 1);
    return good;
}

/* From 0 on; null: as it is. */
static bool take_int(struct ckpt_json_text t, int64_t *out)
{
    char s[24];
    if (is(t, "null"))
        return true;
    snprintf(s, sizeof s, "%.*s", (int)num_min(t.n, 23), t.s);
    return t.n < 16 && strspn(s, "0123456789") == (size_t)t.n && text_to_int(s, out);
}

static enum err take_words(struct ckpt_json_text t, char **out, bool *good)
{
    struct text copy = {0};
    *good = is(t, "null") || (t.n >= 2 && t.n <= WORDS_MAX && t.s[0] == '"');
    if (!*good || t.s[0] != '"' || *out)
        return ERR_OK;
    text_add(&copy, "%.*s", (int)t.n, t.s);
    return text_done(&copy, out);
}

/* *good: it is a start, and of ours. Its words are the caller's in any case. */
static enum err take_start(struct ckpt_json_text t, struct record_start *s, bool *good)
{
    struct ckpt_json w = {.s = t.s, .n = t.n, .depth_max = 1};
    struct ckpt_json_text key, v;
    enum ckpt_json_step step;
    *s = (struct record_start){.to = -1, .code = -1};
    *good = true;
    while (*good && (step = ckpt_json_next(&w, &key, &v)) == CKPT_JSON_MEMBER) {
        if (is(key, "\"start\""))
            *good = take_time(v, s->start);
        else if (is(key, "\"end\""))
            *good = take_time(v, s->end);
        else if (is(key, "\"from\""))
            *good = take_int(v, &s->from);
        else if (is(key, "\"to\""))
            *good = take_int(v, &s->to);
        else if (is(key, "\"exit\""))
            *good = take_int(v, &s->code);
        else if (is(key, "\"words\""))
            TRY(take_words(v, &s->words, good));
        else
            *good = false;
    }
    *good = *good && step == CKPT_JSON_END && s->start[0];
    return ERR_OK;
}

static enum err take_starts(struct ckpt_json_text t, struct record *out, bool *good)
{
    struct ckpt_json w = {.s = t.s, .n = t.n, .depth_max = 2};
    struct ckpt_json_text item;
    enum ckpt_json_step step = CKPT_JSON_BAD;
    while (*good && (step = ckpt_json_item(&w, &item)) == CKPT_JSON_MEMBER) {
        struct record_start s;
        enum err err = take_start(item, &s, good);
        *good = *good && out->n < STARTS_MAX;
        if (err == ERR_OK && *good)
            err = add(out, &s);
        if (err != ERR_OK || !*good)
            mem_free(s.words);
        TRY(err);
    }
    *good = *good && step == CKPT_JSON_END && out->n > 0;
    return ERR_OK;
}

static enum err take_all(struct ckpt_json_text all, struct record *out, bool *good)
{
    struct ckpt_json w = {.s = all.s, .n = all.n, .depth_max = 4};
    struct ckpt_json_text key, v, starts = {0};
    enum ckpt_json_step step;
    bool format = false;
    while ((step = ckpt_json_next(&w, &key, &v)) == CKPT_JSON_MEMBER) {
        format = format || (is(key, "\"format\"") && is(v, "\"" RECORD_FORMAT "\""));
        if (is(key, "\"starts\""))
            starts = v;
    }
    *good = step == CKPT_JSON_END && format && starts.s;
    return *good ? take_starts(starts, out, good) : ERR_OK;
}

enum err record_read(const char *path, struct record *out)
{
    struct fs_map m;
    struct ckpt_json_text all;
    bool good = false;
    *out = (struct record){.n = 0};
    TRY(fs_map_open(&m, path, ERR_DATA));
    enum err err = ERR_OK;
    if (m.size <= RECORD_MAX && ckpt_json_text(path, &m, &all) == ERR_OK)
        err = take_all(all, out, &good);
    fs_map_close(&m);
    if (err == ERR_OK && !good)
        err = err_set(ERR_DATA, __FILE__, __LINE__, "%s is damaged, or not written by this plait",
                      path);
    if (err != ERR_OK)
        record_free(out);
    return err;
}
