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

enum { BYTES_END = 256 };

static const struct tokenizer {
    const char *name;
    int64_t vocab;
    int32_t end;
} tokenizers[] = {
    {"bytes", 257, BYTES_END},
};

static const struct tokenizer *find(const char *name)
{
    for (size_t i = 0; i < sizeof tokenizers / sizeof *tokenizers; i++)
        if (strcmp(tokenizers[i].name, name) == 0)
            return &tokenizers[i];
    return NULL;
}

enum err tokenizer_check(const char *name, int64_t vocab)
{
    const struct tokenizer *t = find(name);
    if (!t)
        FAIL(ERR_TOKEN, "data: tokenizer %s is not known; use bytes", name);
    if (vocab < t->vocab)
        FAIL(ERR_TOKEN,
             "data: tokenizer %s makes ids up to %lld, the model has %lld; set "
             "model.vocab to %lld or more",
             name, (long long)t->vocab - 1, (long long)vocab, (long long)t->vocab);
    return ERR_OK;
}

int64_t tokenizer_vocab(const char *name)
{
    const struct tokenizer *t = find(name);
    return t ? t->vocab : 0;
}

int32_t tokenizer_end(const char *name)
{
    const struct tokenizer *t = find(name);
    return t ? t->end : -1;
}

/* Over length and bytes of each id, then the id that ends a text. */
uint64_t tokenizer_hash(const char *name)
{
    const struct tokenizer *t = find(name);
    uint64_t sum = 0;
    if (!t)
        return 0;
    for (int32_t id = 0; id < t->vocab; id++) {
        char piece[65] = {0};
        piece[0] = (char)tokenizer_decode(name, id, piece + 1);
        sum = XXH3_64bits_withSeed(piece, sizeof piece, sum);
    }
    return XXH3_64bits_withSeed(&t->end, sizeof t->end, sum);
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
    if (!find(name) || token < 0 || token >= BYTES_END)
        return 0;
    out[0] = (char)(uint8_t)token;
    return 1;
}
