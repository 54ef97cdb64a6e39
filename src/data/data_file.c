/* SPDX-License-Identifier: Apache-2.0
 *
 * Header of a token file: bytes to struct and back.
 *
 * The file comes from outside, so the order of the checks is the order in which a person would ask:
 * is it long enough, is it ours, is it a version we know, is the header whole (its own hash), does
 * each field keep its rule, and do the sizes meet. Nothing is multiplied before it is known to fit:
 * the count is compared with the bytes that are there, divided, so no product can overflow.
 *
 * A header whose hash is right can still lie (anybody can compute the hash), which is why the rules
 * of the fields stand behind it and not instead of it.
 */
#include "data/data_file.h"

#include "base/num.h"
#include "base/text.h"
#include "data/data.h"
#include <string.h>
#include <xxhash.h>

enum {
    AT_VERSION = 8,
    AT_TOKEN_BYTES = 12,
    AT_VOCAB = 16,
    AT_COUNT = 24,
    AT_HASH = 32,
    AT_NAME = 40,
    AT_RESERVED = 72,
    AT_SUM = 120
};
static const char magic[8] = {'P', 'L', 'A', 'I', 'T', 'T', 'O', 'K'};

static void put_le(uint8_t *to, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_le(const uint8_t *from, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes; i-- > 0;)
        v = v << 8 | from[i];
    return v;
}

uint64_t data_hash(const void *p, int64_t bytes)
{
    return XXH3_64bits(p, (size_t)bytes);
}

int data_token_bytes(int64_t vocab)
{
    return vocab <= 65536 ? 2 : 4;
}

bool data_file_bytes(int64_t tokens, int token_bytes, int64_t *out)
{
    int64_t bytes;
    return num_mul(tokens, token_bytes, &bytes) && num_add(bytes, DATA_HEADER, out);
}

void data_header_put(const struct data_header *h, uint8_t out[DATA_HEADER])
{
    memset(out, 0, DATA_HEADER);
    memcpy(out, magic, sizeof magic);
    put_le(out + AT_VERSION, DATA_VERSION, 4);
    put_le(out + AT_TOKEN_BYTES, (uint64_t)h->token_bytes, 4);
    put_le(out + AT_VOCAB, (uint64_t)h->vocab, 8);
    put_le(out + AT_COUNT, (uint64_t)h->count, 8);
    put_le(out + AT_HASH, h->hash, 8);
    memcpy(out + AT_NAME, h->tokenizer, strnlen(h->tokenizer, DATA_NAME - 1));
    put_le(out + AT_SUM, data_hash(out, AT_SUM), 8);
}

/* A name of [a-zA-Z0-9._-] that ends within its field, zeros behind it: it goes into messages. */
static bool name_is_clean(const uint8_t *field)
{
    static const char legal[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    int n = 0;
    while (n < DATA_NAME && field[n] && strchr(legal, field[n]))
        n++;
    if (n == 0 || n == DATA_NAME)
        return false;
    for (int i = n; i < DATA_NAME; i++)
        if (field[i])
            return false;
    return true;
}

/* Is there a header, is it plait's, and is it the one that was written? */
static enum err check_frame(const char *path, const uint8_t *file, int64_t size)
{
    if (size < DATA_HEADER)
        FAIL(ERR_DATA,
             "data: %s has %lld byte%s, a token file begins with a header of %d; make it "
             "with plait data prepare",
             path, (long long)size, text_plural(size, "s"), DATA_HEADER);
    if (memcmp(file, magic, sizeof magic) != 0)
        FAIL(ERR_DATA,
             "data: %s does not begin with PLAITTOK, so it is no token file; make one "
             "from text with plait data prepare",
             path);
    uint64_t version = get_le(file + AT_VERSION, 4);
    if (version != DATA_VERSION)
        FAIL(ERR_DATA,
             "data: %s is a token file of version %llu, this program reads version %d; "
             "prepare the text again",
             path, (unsigned long long)version, DATA_VERSION);
    uint64_t found = data_hash(file, AT_SUM), noted = get_le(file + AT_SUM, 8);
    if (found != noted)
        FAIL(ERR_DATA,
             "data: the header of %s hashes to %016llx, it says %016llx; the file is "
             "damaged, copy it again or prepare the text again",
             path, (unsigned long long)found, (unsigned long long)noted);
    return ERR_OK;
}

static enum err check_name(const char *path, const struct data_header *h, const uint8_t *file)
{
    if (!name_is_clean(file + AT_NAME))
        FAIL(ERR_DATA,
             "data: the tokenizer's name in %s is not 1 to %d characters of a-z A-Z 0-9 "
             ". _ - filled up with zeros; prepare the text again",
             path, DATA_NAME - 1);
    for (int i = AT_RESERVED; i < AT_SUM; i++)
        if (file[i])
            FAIL(ERR_DATA,
                 "data: reserved byte %d of the header of %s is %d, the rule is 0; "
                 "prepare the text again",
                 i, path, file[i]);
    int64_t own = tokenizer_vocab(h->tokenizer);
    if (own > 0 && own != h->vocab)
        FAIL(ERR_DATA,
             "data: %s says vocabulary %lld, its tokenizer %s has %lld; prepare the "
             "text again",
             path, (long long)h->vocab, h->tokenizer, (long long)own);
    return ERR_OK;
}

enum err data_header_get(const char *path, const uint8_t *file, int64_t size,
                         struct data_header *out)
{
    TRY(check_frame(path, file, size));
    uint64_t token_bytes = get_le(file + AT_TOKEN_BYTES, 4);
    uint64_t vocab = get_le(file + AT_VOCAB, 8), count = get_le(file + AT_COUNT, 8);
    if (vocab < 1 || vocab > INT32_MAX)
        FAIL(ERR_DATA, "data: %s says vocabulary %llu, the rule is 1 to %d; prepare the text again",
             path, (unsigned long long)vocab, INT32_MAX);
    int want = data_token_bytes((int64_t)vocab);
    if (token_bytes != (uint64_t)want)
        FAIL(ERR_DATA,
             "data: %s says %llu byte%s a token, vocabulary %llu takes %d; prepare the "
             "text again",
             path, (unsigned long long)token_bytes, text_plural((int64_t)token_bytes, "s"),
             (unsigned long long)vocab, want);
    uint64_t there = (uint64_t)(size - DATA_HEADER);
    uint64_t whole = there / (uint64_t)want, left = there % (uint64_t)want;
    if (left != 0 || count != whole)
        FAIL(ERR_DATA,
             "data: %s says %llu token%s of %d bytes behind a header of %d, the file has "
             "%lld bytes, which are %llu token%s and %llu byte%s; it is cut or damaged, "
             "copy it again or prepare the text again",
             path, (unsigned long long)count, text_plural((int64_t)count, "s"), want,
             DATA_HEADER, (long long)size,
             (unsigned long long)whole, text_plural((int64_t)whole, "s"),
             (unsigned long long)left, text_plural((int64_t)left, "s"));
    if (count < 1)
        FAIL(ERR_DATA, "data: %s holds 0 tokens; prepare it from a text that is not empty", path);
    struct data_header h = {.token_bytes = want,
                            .vocab = (int64_t)vocab,
                            .count = (int64_t)count,
                            .hash = get_le(file + AT_HASH, 8)};
    memcpy(h.tokenizer, file + AT_NAME, DATA_NAME - 1);
    TRY(check_name(path, &h, file));
    *out = h;
    return ERR_OK;
}
