/* SPDX-License-Identifier: Apache-2.0
 *
 * Chapter "data" of plait.h: the caller's struct is held against its rules and handed to data/.
 */
#include "api/api.h"

static enum err check_output(const char *out)
{
    if (!out || !*out)
        FAIL(ERR_CONFIG, "data: no output is named; name the file to write");
    return ERR_OK;
}

int plait_data_prepare(const struct plait_prepare *a, int64_t *tokens)
{
    struct plait_prepare mine;
    int64_t made;
    TRY(api_take("plait_prepare", a, &mine, sizeof mine));
    TRY(check_output(mine.out));
    if (mine.texts > 0 && !mine.text)
        FAIL(ERR_CONFIG, "data: texts is %d and none is given; set text", mine.texts);
    for (int i = 0; i < mine.texts; i++)
        if (!mine.text[i])
            FAIL(ERR_CONFIG, "data: text %d of %d has no name; give each its path", i + 1,
                 mine.texts);
    TRY(data_prepare(&(struct data_prepare){.text = mine.text, .texts = mine.texts, .out = mine.out,
                                            .tokenizer = mine.tokenizer ? mine.tokenizer : "bytes",
                                            .progress = mine.progress, .arg = mine.arg}, &made));
    if (tokens)
        *tokens = made;
    return PLAIT_OK;
}

int plait_data_random(const char *out, int64_t vocab, int64_t tokens, uint64_t seed)
{
    TRY(check_output(out));
    return (int)data_random(
        &(struct data_random){.out = out, .vocab = vocab, .count = tokens, .seed = seed});
}

int plait_data_random_rows(const char *out, int64_t features, int64_t classes, int64_t rows,
                           uint64_t seed)
{
    TRY(check_output(out));
    if (features == 0)
        FAIL(ERR_CONFIG, "data: rows of 0 features were asked for; use 1 or more");
    return (int)data_random(&(struct data_random){.out = out, .features = features,
                                                  .classes = classes, .count = rows,
                                                  .seed = seed});
}

int plait_data_import(const struct plait_import *a, int64_t *rows)
{
    struct plait_import mine;
    int64_t made;
    TRY(api_take("plait_import", a, &mine, sizeof mine));
    TRY(check_output(mine.out));
    if (!mine.table || !*mine.table)
        FAIL(ERR_CONFIG, "data: no table is named; name the file of numbers to read");
    TRY(data_import(
        &(struct data_import){.table = mine.table, .out = mine.out, .header = mine.header != 0,
                              .label_first = mine.label_first != 0, .height = mine.height,
                              .width = mine.width, .to_height = mine.to_height,
                              .to_width = mine.to_width, .scale = mine.scale != 0 ? mine.scale : 1,
                              .classes = mine.classes, .progress = mine.progress,
                              .arg = mine.arg},
        &made));
    if (rows)
        *rows = made;
    return PLAIT_OK;
}

int plait_data_info(const char *path, char **out)
{
    struct data_set d;
    struct text t = {0};
    char size[32], count[32];
    int64_t texts = -1; /* unknown; else how often the id that ends one stands in the file */
    TRY(data_open(path, NULL, true, &d));
    int32_t end = tokenizer_end(d.tokenizer);
    enum err err = end < 0 || d.kind != DATA_TOKENS ? ERR_OK : data_count(&d, end, &texts);
    bool rows = d.kind == DATA_ROWS;
    text_add(&t, "file        ");
    text_add_printable(&t, d.path);
    text_add(&t, "\nsize        %s (%lld bytes)\n", text_bytes(d.file.size, size),
             (long long)d.file.size);
    text_count(d.count, count);
    if (rows)
        text_add(&t, "rows        %s (%lld) of %lld feature%s", count, (long long)d.count,
                 (long long)d.features, text_plural(d.features, "s"));
    if (rows && d.height > 1)
        text_add(&t, ", %d x %d", d.height, d.width);
    if (rows)
        text_add(&t, ", and a label of %lld class%s\n", (long long)d.classes,
                 text_plural(d.classes, "es"));
    else
        text_add(&t, "tokenizer   %s, vocabulary %lld\ntokens      %s (%lld) of %d bytes\n",
                 d.tokenizer, (long long)d.vocab, count, (long long)d.count, d.token_bytes);
    if (texts >= 0)
        text_add(&t, "texts       %lld\n", (long long)texts);
    text_add(&t, "hash        xxh3-64 %016llx, agrees with the %ss\n", (unsigned long long)d.hash,
             rows ? "row" : "token");
    data_close(&d);
    return api_give(err, &t, out);
}
