/* SPDX-License-Identifier: Apache-2.0
 *
 * Random tokens, for measuring speed: all ids of a vocabulary equally often, so that embeddings are
 * read and gradients scattered over the whole table, which a text in bytes would not do. A token is
 * a function of (seed, its place), so the hash, which stands before the tokens, is made by a first
 * pass and the tokens are written by a second, in fixed memory.
 */
#include "data/data.h"

#include "base/num.h"
#include "data/data_file.h"
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the state's size, for one on the stack */
#include <xxhash.h>

enum { BLOCK = 16384, STREAM = 1 }; /* tokens */

/* Tokens first .. first + n - 1 as the file has them. */
static void put_tokens(const struct data_random *a, int size, int64_t first, int n, uint8_t *out)
{
    for (int64_t i = 0; i < n; i++) {
        double x = num_uniform(a->seed, STREAM, first + i) * (double)a->vocab;
        uint32_t id = (uint32_t)num_min((int64_t)x, a->vocab - 1);
        for (int b = 0; b < size; b++)
            out[i * size + b] = (uint8_t)(id >> (8 * b));
    }
}

/* One pass over all tokens: into the hash, or, with a file, into that. */
static enum err pass(const struct data_random *a, int size, XXH3_state_t *hash,
                     struct fs_file *file)
{
    uint8_t block[BLOCK * 4];
    for (int64_t first = 0; first < a->tokens; first += BLOCK) {
        int n = (int)num_min(BLOCK, a->tokens - first);
        put_tokens(a, size, first, n, block);
        if (file)
            TRY(fs_write(file, block, (int64_t)n * size));
        else
            XXH3_64bits_update(hash, block, (size_t)n * (size_t)size);
    }
    return ERR_OK;
}

static enum err write_file(const struct data_random *a, struct data_header *h,
                           struct fs_file *file)
{
    uint8_t header[DATA_HEADER];
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    TRY(pass(a, h->token_bytes, &hash, NULL));
    h->hash = XXH3_64bits_digest(&hash);
    data_header_put(h, header);
    TRY(fs_write(file, header, sizeof header));
    TRY(pass(a, h->token_bytes, NULL, file));
    return fs_commit(file);
}

enum err data_random(const struct data_random *a)
{
    struct data_header h = {.vocab = a->vocab, .count = a->tokens, .tokenizer = "random"};
    struct fs_file file;
    int64_t bytes;
    if (a->vocab < 1 || a->vocab > INT32_MAX)
        FAIL(ERR_CONFIG, "data: a vocabulary of %lld was asked for; use 1 to %d",
             (long long)a->vocab, INT32_MAX);
    h.token_bytes = data_token_bytes(a->vocab);
    if (a->tokens < 1 || !data_file_bytes(a->tokens, h.token_bytes, &bytes))
        FAIL(ERR_CONFIG, "data: %lld random tokens were asked for; use 1 or more, in fewer bytes "
                         "than 2^63", (long long)a->tokens);
    TRY(fs_create(&file, a->out));
    enum err err = write_file(a, &h, &file);
    fs_abandon(&file);
    return err;
}
