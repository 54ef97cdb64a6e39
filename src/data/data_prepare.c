/* SPDX-License-Identifier: Apache-2.0
 *
 * Text files into one token file.
 *
 * Texts are read by block, twice (data_file.c), so memory does not grow with them. A byte order
 * mark is no part of a text.
 *
 * Everything that can be refused by looking is refused before the first pass: missing, empty or
 * unreadable texts, an output that is one of them (under any name), a folder that cannot be
 * written.
 */
#include "data/data.h"

#include "base/mem.h"
#include "base/num.h"
#include "base/text.h"
#include "data/data_file.h"
#include <string.h>

enum { BLOCK = 16384 }; /* bytes of text */

struct job {
    const struct data_prepare *a;
    int64_t *size;        /* owned; bytes of each text */
    int64_t done, all;    /* bytes of text, both passes */
    struct data_set h;
};

static enum err put(struct job *j, struct data_pass *p, const uint8_t *tokens, int64_t n)
{
    j->h.count += n;
    return data_put(p, tokens, 2 * n);
}

enum err data_text_begin(const struct fs_reader *text, const char *name, int64_t *at)
{
    uint8_t bytes[4];
    const char *s = (const char *)bytes;
    int64_t n = num_min((int64_t)sizeof bytes, text->size);
    TRY(fs_reader_get(text, 0, n, bytes));
    TRY(text_begin(name, ERR_DATA, &s, &n));
    *at = s - (const char *)bytes;
    return ERR_OK;
}

/* One text and the end of its document. */
static enum err pass_text(struct job *j, struct data_pass *p, const struct fs_reader *text,
                          const char *name)
{
    uint8_t bytes[BLOCK], tokens[2 * BLOCK];
    int64_t at;
    TRY(data_text_begin(text, name, &at));
    j->done += at;
    while (at < text->size) {
        int64_t part = num_min(BLOCK, text->size - at);
        TRY(fs_reader_get(text, at, part, bytes));
        for (int64_t i = 0; i < part; i++) {
            tokens[2 * i] = bytes[i];
            tokens[2 * i + 1] = 0;
        }
        TRY(put(j, p, tokens, part));
        at += part;
        j->done += part;
        if (j->a->progress)
            j->a->progress(j->a->arg, j->done, j->all);
    }
    int32_t end = tokenizer_end(j->a->tokenizer);
    tokens[0] = (uint8_t)end;
    tokens[1] = (uint8_t)(end >> 8);
    return put(j, p, tokens, 1);
}

static enum err pass_all(void *arg, struct data_pass *p)
{
    struct job *j = arg;
    j->h.count = 0;
    for (int i = 0; i < j->a->texts; i++) {
        struct fs_reader text;
        enum err err;
        TRY(fs_reader_open(&text, j->a->text[i], ERR_DATA));
        if (text.size != j->size[i]) {
            int64_t now = text.size;
            fs_reader_close(&text);
            FAIL(ERR_DATA,
                 "data: text %s had %lld byte%s and has %lld now; let nothing write to it "
                 "and prepare again",
                 j->a->text[i], (long long)j->size[i], text_plural(j->size[i], "s"),
                 (long long)now);
        }
        err = pass_text(j, p, &text, j->a->text[i]);
        fs_reader_close(&text);
        TRY(err);
    }
    return ERR_OK;
}

/* Sizes of the texts; count of tokens and the file's size are known to fit 64 bits. */
static enum err measure(struct job *j)
{
    int64_t sum = 0, bytes;
    for (int i = 0; i < j->a->texts; i++) {
        struct fs_reader text;
        int64_t begin;
        TRY(fs_reader_open(&text, j->a->text[i], ERR_DATA));
        j->size[i] = text.size;
        enum err err = data_text_begin(&text, j->a->text[i], &begin);
        fs_reader_close(&text);
        TRY(err);
        if (j->size[i] == begin)
            FAIL(ERR_DATA, "data: text %s is empty (%lld bytes); leave it out", j->a->text[i],
                 (long long)begin);
        /* A token a byte, one more a text; both passes together read twice the sum. */
        if (!num_add(sum, j->size[i], &sum) || !num_add(sum, j->a->texts, &j->h.count) ||
            !data_file_bytes(&j->h, &bytes))
            FAIL(ERR_DATA,
                 "data: texts 1 to %d make more tokens than a file can hold; "
                 "prepare them into several files",
                 i + 1);
    }
    j->all = 2 * sum;
    return ERR_OK;
}

enum err data_prepare(const struct data_prepare *a, int64_t *tokens)
{
    struct job j = {.a = a};
    enum err err;
    TRY(tokenizer_check(a->tokenizer, INT64_MAX));
    if (a->texts < 1)
        FAIL(ERR_CONFIG, "data: 0 texts are given; name one text file or more");
    j.h.vocab = tokenizer_vocab(a->tokenizer);
    j.h.token_bytes = data_token_bytes(j.h.vocab);
    ENSURE(j.h.token_bytes == 2); /* "bytes" is the only tokenizer */
    memcpy(j.h.tokenizer, a->tokenizer, strlen(a->tokenizer));
    for (int i = 0; i < a->texts; i++)
        if (fs_same(a->out, a->text[i]))
            FAIL(ERR_CONFIG, "data: output %s is the same file as text %s; name another output",
                 a->out, a->text[i]);
    TRY(mem_new(a->texts, sizeof *j.size, "the sizes of the texts", &j.size));
    TRY_OR(out_size, measure(&j));
    TRY_OR(out_size, data_write(&(struct data_writer){&j.h, pass_all, &j, "a text"}, a->out));
    *tokens = j.h.count;
out_size:
    mem_free(j.size);
    return err;
}
