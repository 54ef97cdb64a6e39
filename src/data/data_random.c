/* SPDX-License-Identifier: Apache-2.0
 *
 * Data drawn by a seed. Tokens, for measuring speed: all ids of a vocabulary equally often, so that
 * embeddings are read and gradients scattered over the whole table, which a text in bytes would not
 * do. Rows: classes around centres that lie close to each other, so that a loss falls, and not to
 * nothing. Each number is a function of (seed, its place), so both passes of data_write draw the
 * same.
 */
#include "data/data_file.h"

#include "base/mem.h"
#include "base/num.h"

enum { BLOCK = 16384 };                                  /* tokens */
enum { TOKENS = 1, LABELS = 2, CENTRES = 3, NOISE = 4 }; /* streams */
static const double centre_std = 0.25;

/* One of n, each as likely. */
static uint32_t draw(const struct data_random *a, uint64_t stream, int64_t at, int64_t n)
{
    double x = num_uniform(a->seed, stream, at) * (double)n;
    return (uint32_t)num_min((int64_t)x, n - 1);
}

static enum err pass_tokens(void *arg, struct data_pass *p)
{
    const struct data_random *a = arg;
    uint8_t block[BLOCK * 4];
    int size = data_token_bytes(a->vocab);
    for (int64_t first = 0; first < a->count; first += BLOCK) {
        int n = (int)num_min(BLOCK, a->count - first);
        for (int64_t i = 0; i < n; i++)
            data_put_le(block + i * size, draw(a, TOKENS, first + i, a->vocab), size);
        TRY(data_put(p, block, (int64_t)n * size));
    }
    return ERR_OK;
}

/* A row's numbers: of its centre, then its own, then as the file has them. */
static enum err pass_rows(void *arg, struct data_pass *p)
{
    const struct data_random *a = arg;
    int64_t n = a->features;
    double *of;
    TRY(mem_new(3 * n + 1, sizeof *of, "a row", &of));
    uint8_t *row = (uint8_t *)(of + 2 * n);
    enum err err = ERR_OK;
    for (int64_t k = 0; k < a->count && err == ERR_OK; k++) {
        uint32_t label = draw(a, LABELS, k, a->classes);
        num_normals(a->seed, CENTRES, label * n, n, of);
        num_normals(a->seed, NOISE, k * n, n, of + n);
        for (int64_t i = 0; i < n; i++)
            data_put_value(row + DATA_VALUE * i, (float)(centre_std * of[i] + of[n + i]));
        data_put_le(row + DATA_VALUE * n, label, DATA_VALUE);
        err = data_put(p, row, DATA_VALUE * (n + 1));
    }
    mem_free(of);
    return err;
}

enum err data_random(const struct data_random *a)
{
    struct data_random mine = *a;
    bool rows = a->features != 0;
    struct data_set h = {.kind = rows ? DATA_ROWS : DATA_TOKENS, .vocab = a->vocab,
                            .count = a->count, .tokenizer = "random", .features = a->features,
                            .classes = a->classes, .height = 1, .width = (int)a->features};
    int64_t bytes;
    if (!rows && (a->vocab < 1 || a->vocab > INT32_MAX))
        FAIL(ERR_CONFIG, "data: a vocabulary of %lld was asked for; use 1 to %d",
             (long long)a->vocab, INT32_MAX);
    if (rows && (a->features < 1 || a->features > DATA_FEATURES_MAX))
        FAIL(ERR_CONFIG, "data: rows of %lld features were asked for; use 1 to %d",
             (long long)a->features, DATA_FEATURES_MAX);
    if (rows && (a->classes < 1 || a->classes > INT32_MAX))
        FAIL(ERR_CONFIG, "data: %lld classes were asked for; use 1 to %d", (long long)a->classes,
             INT32_MAX);
    h.token_bytes = rows ? 0 : data_token_bytes(a->vocab);
    if (a->count < 1 || !data_file_bytes(&h, &bytes))
        FAIL(ERR_CONFIG, "data: %lld random %s were asked for; use 1 or more, in fewer bytes "
                         "than 2^63", (long long)a->count, rows ? "rows" : "tokens");
    return data_write(&(struct data_writer){&h, rows ? pass_rows : pass_tokens, &mine, NULL},
                      a->out);
}
