/* SPDX-License-Identifier: Apache-2.0
 *
 * Only the starts are read again, member by member and without a tree (ckpt_json.h): a run that
 * goes on writes them anew, behind the facts of the machine that it is on now. Words may be of any
 * length and bytes when they are read, and are of UTF-8 and not too long when they are written.
 */
#include "folder/record.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/num.h"
#include "ckpt/ckpt_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Bytes of all starts at most, half of the file's, and of one without its words. A byte of words
 * takes up to six. */
enum { STARTS_MAX = RECORD_MAX / 2, START_MAX = 256, BYTE_MAX = 6 };
#define RECORD_FORMAT "plait run 1"
static const char cut_sign[] = " ... (cut)";

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

static int64_t room_of(const struct record_start *s)
{
    return START_MAX + BYTE_MAX * (int64_t)(s->words ? strlen(s->words) : 0);
}

enum err record_begin(struct record *r, int64_t from)
{
    struct record_start s = {.from = from, .to = -1, .code = -1};
    int64_t all = START_MAX + BYTE_MAX * RECORD_WORDS;
    int gone = 0;
    log_time(s.start);
    for (int i = 0; i < r->n; i++)
        all += room_of(&r->start[i]);
    for (; all > STARTS_MAX && gone + 1 < r->n; gone++) {
        all -= room_of(&r->start[1 + gone]);
        mem_free(r->start[1 + gone].words);
    }
    r->n -= gone;
    r->left_out += gone;
    if (gone > 0)
        memmove(r->start + 1, r->start + 1 + gone, (size_t)(r->n - 1) * sizeof *r->start);
    return add(r, &s);
}

/* Cut between two characters. */
static enum err keep_words(const char *words, char **out)
{
    struct text t = {0};
    size_t n = strlen(words), most = RECORD_WORDS - sizeof cut_sign;
    if (n >= RECORD_WORDS)
        for (n = most; n > most - 4 && ((unsigned char)words[n] & 0xc0) == 0x80; n--)
            continue;
    text_add(&t, "%.*s%s", (int)n, words, words[n] ? cut_sign : "");
    return text_done(&t, out);
}

enum err record_end(struct record *r, int64_t to, enum err code, const char *words)
{
    struct record_start *s = &r->start[r->n - 1];
    s->to = to;
    s->code = code;
    log_time(s->end);
    return code == ERR_OK ? ERR_OK : keep_words(words, &s->words);
}

/* ---- writing ---- */

/* Below 0: null. */
static void add_int(const char *key, int64_t v, struct text *out)
{
    if (v >= 0)
        text_add(out, "\"%s\": %" PRId64 ", ", key, v);
    else
        text_add(out, "\"%s\": null, ", key);
}

static void add_end(const struct record_start *s, struct text *out)
{
    text_add(out, s->end[0] ? "\"end\": \"%s\", " : "\"end\": null, ", s->end);
    add_int("exit", s->code, out);
    text_add(out, "\"words\": ");
    if (s->words)
        text_add_json(out, s->words);
    else
        text_add(out, "null");
}

void record_text(const struct record *r, struct text *out)
{
    text_add(out, "{\n\"format\": \"" RECORD_FORMAT "\",\n%s\"start\": \"%s\",\n", r->facts,
             r->start[0].start);
    add_end(&r->start[r->n - 1], out);
    text_add(out, ",\n\"starts_left_out\": %" PRId64 ",\n\"starts\": [", r->left_out);
    for (int i = 0; i < r->n; i++) {
        const struct record_start *s = &r->start[i];
        text_add(out, "%s\n  {\"start\": \"%s\", \"from\": %" PRId64 ", ", i ? "," : "", s->start,
                 s->from);
        add_int("to", s->to, out);
        add_end(s, out);
        text_add(out, "}");
    }
    text_add(out, "]\n}\n");
}

/* ---- reading ---- */

static bool take_time(struct ckpt_json_text t, char out[LOG_TIME])
{
    if (ckpt_json_same(t, "null"))
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
    if (ckpt_json_same(t, "null"))
        return true;
    snprintf(s, sizeof s, "%.*s", (int)num_min(t.n, 23), t.s);
    return t.n < 16 && strspn(s, "0123456789") == (size_t)t.n && text_to_int(s, out);
}

/* *good: it is a start, and of ours. Its words are the caller's in any case. */
static enum err take_start(struct ckpt_json_text t, struct record_start *s, bool *good)
{
    struct ckpt_json w = {.of = t, .depth_max = 1};
    *s = (struct record_start){.to = -1, .code = -1};
    *good = true;
    while (*good && ckpt_json_next(&w)) {
        if (ckpt_json_is(w.key, "start"))
            *good = take_time(w.value, s->start);
        else if (ckpt_json_is(w.key, "end"))
            *good = take_time(w.value, s->end);
        else if (ckpt_json_is(w.key, "from"))
            *good = take_int(w.value, &s->from);
        else if (ckpt_json_is(w.key, "to"))
            *good = take_int(w.value, &s->to);
        else if (ckpt_json_is(w.key, "exit"))
            *good = take_int(w.value, &s->code);
        else if (ckpt_json_is(w.key, "words") && !s->words && !ckpt_json_same(w.value, "null")) {
            char *words;
            TRY(ckpt_json_string(w.value, &words));
            enum err err = keep_words(words ? words : "(cannot be read)", &s->words);
            mem_free(words);
            TRY(err);
        }
    }
    *good = *good && !w.why && s->start[0];
    return ERR_OK;
}

static enum err take_all(struct ckpt_json_text all, struct record *out, bool *good)
{
    struct ckpt_json w = {.of = all, .depth_max = 4};
    struct ckpt_json_text starts = {0};
    bool format = false;
    while (ckpt_json_next(&w)) {
        format = format || (ckpt_json_is(w.key, "format") && ckpt_json_is(w.value, RECORD_FORMAT));
        if (ckpt_json_is(w.key, "starts"))
            starts = w.value;
        else if (ckpt_json_is(w.key, "starts_left_out") && !take_int(w.value, &out->left_out))
            return ERR_OK;
    }
    *good = !w.why && format && starts.s;
    for (w = (struct ckpt_json){.of = starts, .depth_max = 2, .list = true};
         *good && ckpt_json_next(&w);) {
        struct record_start s;
        enum err err = take_start(w.value, &s, good);
        if (err == ERR_OK && *good)
            err = add(out, &s);
        if (err != ERR_OK || !*good)
            mem_free(s.words);
        TRY(err);
    }
    *good = *good && !w.why && out->n > 0;
    return ERR_OK;
}

enum err record_read(const char *path, struct record *out)
{
    struct fs_map m;
    bool good = false;
    *out = (struct record){.n = 0};
    TRY(fs_map_open(&m, path, ERR_DATA));
    enum err err = ERR_OK;
    struct ckpt_json_text all = {(const char *)m.data, m.size};
    if (all.n <= RECORD_MAX && text_begin(path, ERR_DATA, &all.s, &all.n) == ERR_OK)
        err = take_all(all, out, &good);
    fs_map_close(&m);
    if (err == ERR_OK && !good)
        err = err_set(ERR_DATA, __FILE__, __LINE__, "%s is damaged, or not written by this plait",
                      path);
    if (err != ERR_OK)
        record_free(out);
    return err;
}

/* ---- lines of metrics ---- */

/* Is that word next? Then it is passed. */
static bool pass(const char **at, const char *end, const char *word)
{
    int64_t n = (int64_t)strlen(word);
    bool is = end - *at >= n && memcmp(*at, word, (size_t)n) == 0;
    *at += is ? n : 0;
    return is;
}

/* What stands up to the next comma, or bracket. */
static bool pass_word(const char **at, const char *end, char out[40])
{
    const char *from = *at;
    while (*at < end && **at != ',' && **at != '}')
        (*at)++;
    bool good = *at < end && *at - from < 40;
    snprintf(out, 40, "%.*s", good ? (int)(*at - from) : 0, from);
    return good;
}

/* A line begins with its step and its loss, in the words of metrics.c; these alone are read. It is
 * one object without others in it: a fragment with another line behind it is none. */
bool metrics_next(const char **next, const char *end, struct metrics_line *l)
{
    const char *at = *next;
    char step[40], loss[40];
    end = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    if (!end)
        return false;
    *next = end + 1;
    *l = (struct metrics_line){.at = at, .n = end - at, .loss = NAN};
    bool ours = l->n > 1 && end[-1] == '}' && !memchr(at + 1, '{', (size_t)l->n - 1) &&
                !memchr(at, '\0', (size_t)l->n) && pass(&at, end, "{\"step\": ") &&
                pass_word(&at, end, step) && text_to_int(step, &l->step) && l->step > 0;
    if (!ours)
        l->step = -1;
    l->valid = ours && pass(&at, end, ", \"valid_loss\": ");
    if (ours && (l->valid || pass(&at, end, ", \"loss\": ")) && pass_word(&at, end, loss) &&
        !text_to_double(loss, &l->loss))
        l->loss = NAN;
    return true;
}
