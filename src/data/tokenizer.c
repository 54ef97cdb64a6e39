/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers by name. There is one: "bytes", whose ids 0..255 are the bytes of the text and whose
 * id 256 ends a document. It loses nothing, knows every language and needs no file, which is what
 * an engine's own tests and small models want. No text holds id 256, so a document cannot forge
 * its own end.
 */
#include "data/data.h"

#include "base/mem.h"
#include <string.h>
#include <xxhash.h>

enum { BYTES_END = 256, BYTES_VOCAB = 257 };

static bool is_known(const char *name)
{
    return strcmp(name, "bytes") == 0;
}

enum err tokenizer_check(const char *name, int64_t vocab)
{
    if (!is_known(name))
        FAIL(ERR_TOKEN, "data: tokenizer %s is not known; use bytes", name);
    if (vocab < BYTES_VOCAB)
        FAIL(ERR_TOKEN, "data: tokenizer %s makes ids up to %d, the model has %lld; set "
                        "model.vocab to %d or more", name, BYTES_VOCAB - 1, (long long)vocab,
             BYTES_VOCAB);
    return ERR_OK;
}

int64_t tokenizer_vocab(const char *name)
{
    return is_known(name) ? BYTES_VOCAB : 0;
}

int32_t tokenizer_end(const char *name)
{
    return is_known(name) ? BYTES_END : -1;
}

/* Over length and bytes of each id, then the id that ends a text. */
uint64_t tokenizer_hash(const char *name)
{
    const int32_t end = BYTES_END;
    uint64_t sum = 0;
    if (!is_known(name))
        return 0;
    for (int32_t id = 0; id < BYTES_VOCAB; id++) {
        char piece[65] = {0};
        piece[0] = (char)tokenizer_decode(name, id, piece + 1);
        sum = XXH3_64bits_withSeed(piece, sizeof piece, sum);
    }
    return XXH3_64bits_withSeed(&end, sizeof end, sum);
}

enum err tokenizer_encode(const char *name, const char *text, int64_t n, int32_t **out,
                          int64_t *count)
{
    int32_t *ids;
    TRY(tokenizer_check(name, INT64_MAX));
    TRY(mem_new(n, sizeof *ids, "the tokens of a text", &ids));
    for (int64_t i = 0; i < n; i++)
        ids[i] = (uint8_t)text[i];
    *out = ids;
    *count = n;
    return ERR_OK;
}

int tokenizer_decode(const char *name, int32_t token, char out[64])
{
    if (!is_known(name) || token < 0 || token >= BYTES_END)
        return 0;
    out[0] = (char)(uint8_t)token;
    return 1;
}
