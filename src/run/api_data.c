/* SPDX-License-Identifier: Apache-2.0
 *
 * Chapter "data" of plait.h: the caller's struct is held against its rules and handed to data/.
 */
#include "run/api.h"

#include "base/text.h"
#include "data/data.h"

/* What a caller can get wrong before any file is looked at. */
static enum err check_call(const struct plait_prepare *a)
{
    if (!a->out || !*a->out)
        FAIL(ERR_CONFIG, "data: no output is named; name the token file to write");
    if (a->texts > 0 && !a->text)
        FAIL(ERR_CONFIG, "data: texts is %d and none is given; set text", a->texts);
    for (int i = 0; i < a->texts; i++)
        if (!a->text[i])
            FAIL(ERR_CONFIG, "data: text %d of %d has no name; give each its path", i + 1,
                 a->texts);
    return ERR_OK;
}

static enum err prepare(const struct plait_prepare *a, int64_t *tokens)
{
    TRY(check_call(a));
    return data_prepare(&(struct data_prepare){.text = a->text,
                                               .texts = a->texts,
                                               .out = a->out,
                                               .tokenizer = a->tokenizer ? a->tokenizer : "bytes",
                                               .progress = a->progress,
                                               .arg = a->arg},
                        tokens);
}

int plait_data_prepare(const struct plait_prepare *a, int64_t *tokens)
{
    struct plait_prepare mine;
    int64_t made;
    enum err err = api_take("plait_prepare", a, &mine, sizeof mine);
    if (err == ERR_OK)
        err = prepare(&mine, &made);
    if (err == ERR_OK && tokens)
        *tokens = made;
    return (int)err;
}

int plait_data_random(const char *out, int64_t vocab, int64_t tokens, uint64_t seed)
{
    if (!out || !*out)
        FAIL(ERR_CONFIG, "data: no output is named; name the token file to write");
    return (int)data_random(&(struct data_random){out, vocab, tokens, seed});
}

/* Texts in a file: how often the id that ends one stands in it; -1 for unknown tokenizers. */
static enum err count_texts(const struct data_set *d, int64_t *texts)
{
    int32_t end = tokenizer_end(d->tokenizer);
    *texts = -1;
    return end < 0 ? ERR_OK : data_count(d, end, texts);
}

static void describe(const struct data_set *d, int64_t texts, struct text *out)
{
    char size[32], count[32];
    text_add(out, "file        ");
    text_add_printable(out, d->path);
    text_add_char(out, '\n', 1);
    text_add(out, "size        %s (%lld bytes)\n", text_bytes(d->file.size, size),
             (long long)d->file.size);
    text_add(out, "tokenizer   %s, vocabulary %lld\n", d->tokenizer, (long long)d->vocab);
    text_add(out, "tokens      %s (%lld) of %d bytes\n", text_count(d->count, count),
             (long long)d->count, d->token_bytes);
    if (texts >= 0)
        text_add(out, "texts       %lld\n", (long long)texts);
    text_add(out, "hash        xxh3-64 %016llx, agrees with the tokens\n",
             (unsigned long long)d->hash);
}

int plait_data_info(const char *path, char **out)
{
    struct data_set d;
    struct text t = {0};
    int64_t texts;
    TRY(data_open(path, 1, INT64_MAX, true, &d));
    enum err err = count_texts(&d, &texts);
    if (err == ERR_OK)
        describe(&d, texts, &t);
    data_close(&d);
    return err == ERR_OK ? (int)text_done(&t, out) : (int)err;
}
