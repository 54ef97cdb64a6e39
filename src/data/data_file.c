/* SPDX-License-Identifier: Apache-2.0
 *
 * Header of a token file or a row file: bytes to struct and back.
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
#include <string.h>

enum { MAGIC = 8 };
enum {
    AT_VERSION = 8,
    AT_UNIT_BYTES = 12, /* of a token, of a feature */
    AT_VOCAB = 16,      /* rows: features */
    AT_COUNT = 24,
    AT_HASH = 32,
    AT_NAME = 40, /* of tokens */
    AT_TOKENS_RESERVED = 72,
    AT_CLASSES = 40, /* of rows */
    AT_HEIGHT = 48,
    AT_WIDTH = 52,
    AT_ROWS_RESERVED = 56,
    AT_SUM = 120
};

/* What differs between the kinds, and words for messages. */
static const struct kind {
    const char *magic; /* 8 characters */
    const char *file, *unit, *again;
} kinds[] = {
    [DATA_TOKENS] = {"PLAITTOK", "token file", "token", "prepare the text again"},
    [DATA_ROWS] = {"PLAITROW", "row file", "row", "import the rows again"},
};

void data_put_le(uint8_t *to, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

uint64_t data_get_le(const uint8_t *from, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes; i-- > 0;)
        v = v << 8 | from[i];
    return v;
}

void data_put_value(uint8_t *to, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    data_put_le(to, bits, DATA_VALUE);
}

uint64_t data_hash(const void *p, int64_t bytes)
{
    return XXH3_64bits(p, (size_t)bytes);
}

int data_token_bytes(int64_t vocab)
{
    return vocab <= 65536 ? 2 : 4;
}

int64_t data_unit_bytes(const struct data_set *h)
{
    return h->kind == DATA_ROWS ? DATA_VALUE * (h->features + 1) : h->token_bytes;
}

bool data_file_bytes(const struct data_set *h, int64_t *out)
{
    int64_t bytes;
    return num_mul(h->count, data_unit_bytes(h), &bytes) && num_add(bytes, DATA_HEADER, out);
}

void data_header_put(const struct data_set *h, uint8_t out[DATA_HEADER])
{
    memset(out, 0, DATA_HEADER);
    memcpy(out, kinds[h->kind].magic, MAGIC);
    data_put_le(out + AT_VERSION, DATA_VERSION, 4);
    data_put_le(out + AT_COUNT, (uint64_t)h->count, 8);
    data_put_le(out + AT_HASH, h->hash, 8);
    if (h->kind == DATA_ROWS) {
        data_put_le(out + AT_UNIT_BYTES, DATA_VALUE, 4);
        data_put_le(out + AT_VOCAB, (uint64_t)h->features, 8);
        data_put_le(out + AT_CLASSES, (uint64_t)h->classes, 8);
        data_put_le(out + AT_HEIGHT, (uint64_t)h->height, 4);
        data_put_le(out + AT_WIDTH, (uint64_t)h->width, 4);
    } else {
        data_put_le(out + AT_UNIT_BYTES, (uint64_t)h->token_bytes, 4);
        data_put_le(out + AT_VOCAB, (uint64_t)h->vocab, 8);
        memcpy(out + AT_NAME, h->tokenizer, strnlen(h->tokenizer, DATA_NAME - 1));
    }
    data_put_le(out + AT_SUM, data_hash(out, AT_SUM), 8);
}

/* The count that the header says is that of the bytes behind it. */
static enum err check_count(const char *path, const uint8_t *file, int64_t size,
                            struct data_set *h)
{
    const struct kind *k = &kinds[h->kind];
    uint64_t there = (uint64_t)(size - DATA_HEADER), unit = (uint64_t)data_unit_bytes(h);
    uint64_t count = data_get_le(file + AT_COUNT, 8), whole = there / unit, left = there % unit;
    if (left != 0 || count != whole)
        FAIL(ERR_DATA,
             "data: %s says %llu %s%s of %llu bytes behind a header of %d, the file has "
             "%lld bytes, which are %llu %s%s and %llu byte%s; it is cut or damaged, "
             "copy it again or %s",
             path, (unsigned long long)count, k->unit, text_plural((int64_t)count, "s"),
             (unsigned long long)unit, DATA_HEADER, (long long)size, (unsigned long long)whole,
             k->unit, text_plural((int64_t)whole, "s"), (unsigned long long)left,
             text_plural((int64_t)left, "s"), k->again);
    if (count < 1)
        FAIL(ERR_DATA, "data: %s holds 0 %ss; make it of something that is not empty", path,
             k->unit);
    h->count = (int64_t)count;
    return ERR_OK;
}

static enum err get_tokens(const char *path, const uint8_t *file, int64_t size,
                           struct data_set *h)
{
    static const char legal[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    uint64_t token_bytes = data_get_le(file + AT_UNIT_BYTES, 4);
    uint64_t vocab = data_get_le(file + AT_VOCAB, 8);
    if (vocab < 1 || vocab > INT32_MAX)
        FAIL(ERR_DATA, "data: %s says vocabulary %llu, the rule is 1 to %d; prepare the text again",
             path, (unsigned long long)vocab, INT32_MAX);
    h->vocab = (int64_t)vocab;
    h->token_bytes = data_token_bytes(h->vocab);
    if (token_bytes != (uint64_t)h->token_bytes)
        FAIL(ERR_DATA,
             "data: %s says %llu byte%s a token, vocabulary %llu takes %d; prepare the "
             "text again",
             path, (unsigned long long)token_bytes, text_plural((int64_t)token_bytes, "s"),
             (unsigned long long)vocab, h->token_bytes);
    TRY(check_count(path, file, size, h));
    memcpy(h->tokenizer, file + AT_NAME, DATA_NAME - 1); /* it goes into messages */
    size_t length = strspn(h->tokenizer, legal);
    bool clean = length > 0;
    for (size_t i = length; i < DATA_NAME; i++)
        clean = clean && !file[AT_NAME + i];
    if (!clean)
        FAIL(ERR_DATA, "data: the tokenizer's name in %s is not 1 to %d characters of a-z A-Z 0-9 "
                       ". _ - filled up with zeros; prepare the text again", path, DATA_NAME - 1);
    int64_t own = tokenizer_vocab(h->tokenizer);
    if (own > 0 && own != h->vocab)
        FAIL(ERR_DATA, "data: %s says vocabulary %lld, its tokenizer %s has %lld; prepare the text "
                       "again", path, (long long)h->vocab, h->tokenizer, (long long)own);
    return ERR_OK;
}

static enum err get_rows(const char *path, const uint8_t *file, int64_t size,
                         struct data_set *h)
{
    uint64_t value = data_get_le(file + AT_UNIT_BYTES, 4);
    uint64_t features = data_get_le(file + AT_VOCAB, 8);
    uint64_t classes = data_get_le(file + AT_CLASSES, 8);
    uint64_t height = data_get_le(file + AT_HEIGHT, 4), width = data_get_le(file + AT_WIDTH, 4);
    if (value != DATA_VALUE)
        FAIL(ERR_DATA, "data: %s says %llu bytes a feature, the rule is %d; import the rows again",
             path, (unsigned long long)value, DATA_VALUE);
    if (features < 1 || features > DATA_FEATURES_MAX)
        FAIL(ERR_DATA, "data: %s says %llu features a row, the rule is 1 to %d; import the rows "
                       "again", path, (unsigned long long)features, DATA_FEATURES_MAX);
    if (classes < 1 || classes > INT32_MAX)
        FAIL(ERR_DATA, "data: %s says %llu classes, the rule is 1 to %d; import the rows again",
             path, (unsigned long long)classes, INT32_MAX);
    if (height * width != features)
        FAIL(ERR_DATA, "data: %s says %llu features of %llu x %llu, which are %llu; import the "
                       "rows again", path, (unsigned long long)features,
             (unsigned long long)height, (unsigned long long)width,
             (unsigned long long)(height * width));
    h->features = (int64_t)features;
    h->classes = (int64_t)classes;
    h->height = (int)height;
    h->width = (int)width;
    memcpy(h->tokenizer, "rows", sizeof "rows");
    return check_count(path, file, size, h);
}

enum err data_header_get(const char *path, const uint8_t *file, int64_t size,
                         struct data_set *out)
{
    *out = (struct data_set){.count = 0};
    if (size < DATA_HEADER)
        FAIL(ERR_DATA,
             "data: %s has %lld byte%s, a token file begins with a header of %d; make it "
             "with plait data prepare",
             path, (long long)size, text_plural(size, "s"), DATA_HEADER);
    out->kind = DATA_TOKENS;
    while (out->kind < DATA_KINDS && memcmp(file, kinds[out->kind].magic, MAGIC) != 0)
        out->kind++;
    if (out->kind == DATA_KINDS)
        FAIL(ERR_DATA,
             "data: %s begins with neither PLAITTOK nor PLAITROW, so it is no token file and no "
             "row file; make one from text with plait data prepare, from numbers with plait data "
             "import",
             path);
    const struct kind *k = &kinds[out->kind];
    uint64_t version = data_get_le(file + AT_VERSION, 4);
    if (version != DATA_VERSION)
        FAIL(ERR_DATA, "data: %s is a %s of version %llu, this program reads version %d; %s", path,
             k->file, (unsigned long long)version, DATA_VERSION, k->again);
    uint64_t found = data_hash(file, AT_SUM), noted = data_get_le(file + AT_SUM, 8);
    if (found != noted)
        FAIL(ERR_DATA,
             "data: the header of %s hashes to %016llx, it says %016llx; the file is "
             "damaged, copy it again or %s",
             path, (unsigned long long)found, (unsigned long long)noted, k->again);
    out->hash = data_get_le(file + AT_HASH, 8);
    bool rows = out->kind == DATA_ROWS;
    TRY(rows ? get_rows(path, file, size, out) : get_tokens(path, file, size, out));
    for (int i = rows ? AT_ROWS_RESERVED : AT_TOKENS_RESERVED; i < AT_SUM; i++)
        if (file[i])
            FAIL(ERR_DATA, "data: reserved byte %d of the header of %s is %d, the rule is 0; %s", i,
                 path, file[i], k->again);
    return ERR_OK;
}

/* ---- a file is written ----
 *
 * In two passes over what it is made of. The second makes count and hash again, so that something
 * that changed between them cannot leave a file whose header is wrong. */

enum err data_put(struct data_pass *p, const void *bytes, int64_t n)
{
    XXH3_64bits_update(&p->hash, bytes, (size_t)n);
    return p->file ? fs_write(p->file, bytes, n) : ERR_OK;
}

static enum err run_pass(const struct data_writer *w, struct fs_file *file,
                         uint8_t header[DATA_HEADER])
{
    struct data_pass p = {.file = file};
    XXH3_64bits_reset(&p.hash);
    TRY(w->pass(w->arg, &p));
    struct data_set h = *w->header;
    h.hash = XXH3_64bits_digest(&p.hash);
    data_header_put(&h, header);
    return ERR_OK;
}

enum err data_write(const struct data_writer *w, const char *path)
{
    struct fs_file file;
    uint8_t first[DATA_HEADER], again[DATA_HEADER];
    enum err err;
    TRY(fs_create(&file, path));
    TRY_OR(out, run_pass(w, NULL, first));
    TRY_OR(out, fs_write(&file, first, sizeof first));
    TRY_OR(out, run_pass(w, &file, again));
    if (memcmp(first, again, sizeof first) != 0)
        TRY_OR(out, err_set(ERR_DATA, __FILE__, __LINE__,
                            "data: %s changed between the two times it was read; let nothing write "
                            "to it and try again", w->source));
    TRY_OR(out, fs_commit(&file));
out:
    fs_abandon(&file);
    return err;
}
