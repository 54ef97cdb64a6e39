/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of tokens or rows, opened and read by sample.
 *
 * The file stays where it is: a sample is a slice of it, found by arithmetic alone, so ranks share
 * the page cache and keep no index. Sample s of tokens is [s T, s T + T], T + 1 of them: its last
 * token is the target of its last place and the first token of sample s + 1, so every token but the
 * first is a target exactly once an epoch (a rest of less than T tokens is not visited).
 *
 * A sample is read by a call and not through a map: a run has the file open for days, another
 * program may cut it, and a map then ends the process. What was read is looked at, since it may
 * have been written over since it was checked: three microseconds for 1024 tokens.
 */
#include "data/data.h"

#include "base/mem.h"
#include "base/num.h"
#include "base/text.h"
#include "data/data_file.h"
#include <math.h>
#include <string.h>

enum { BLOCK = 65536,        /* tokens of a check, bytes / 4 of rows */
       SAMPLE_BLOCK = 4096 }; /* tokens of a call */

static uint32_t token_at(const uint8_t *p, int bytes)
{
    uint32_t low = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    return bytes == 2 ? low : low | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Largest of n ids at p: a loop without a way out, which compilers make wide. */
static uint32_t largest(const uint8_t *p, int bytes, int64_t n)
{
    uint32_t max = 0;
    if (bytes == 2) {
        for (int64_t i = 0; i < n; i++) {
            uint32_t id = token_at(p + 2 * i, 2);
            max = id > max ? id : max;
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            uint32_t id = token_at(p + 4 * i, 4);
            max = id > max ? id : max;
        }
    }
    return max;
}

/* n tokens or rows from `at` on, as they stand in the file, into p. */
static enum err read_units(const struct data_set *d, int64_t at, int64_t n, uint8_t *p)
{
    return fs_reader_get(&d->file, DATA_HEADER + at * d->unit_bytes, n * d->unit_bytes, p);
}

/* The n tokens at p, which were read from token `at` on, are below the vocabulary. */
static enum err check_ids_below(const struct data_set *d, int64_t at, int64_t n, const uint8_t *p)
{
    if (largest(p, d->token_bytes, n) < (uint32_t)d->vocab)
        return ERR_OK;
    int64_t i = 0;
    while (token_at(p + i * d->token_bytes, d->token_bytes) < (uint32_t)d->vocab)
        i++;
    FAIL(ERR_TOKEN,
         "data: token %lld of %s has id %u, its vocabulary %lld ends at id %lld; "
         "prepare the text again with the right tokenizer",
         (long long)(at + i), d->path, token_at(p + i * d->token_bytes, d->token_bytes),
         (long long)d->vocab, (long long)d->vocab - 1);
}

/* The features of row `at`, from the file's bytes at p, where they may also go. */
static enum err get_features(const struct data_set *d, int64_t at, const uint8_t *p, float *out)
{
    const uint32_t exponent = 0x7f800000;
    bool finite = true;
    for (int64_t i = 0; i < d->features; i++) {
        uint32_t bits = token_at(p + DATA_VALUE * i, DATA_VALUE);
        finite = finite && (bits & exponent) != exponent;
        memcpy(out + i, &bits, sizeof bits);
    }
    for (int64_t i = 0; i < d->features && !finite; i++)
        if (!isfinite(out[i]))
            FAIL(ERR_DATA, "data: feature %lld of row %lld of %s is %g, the rule is a finite "
                           "number; import the rows again", (long long)i, (long long)at, d->path,
                 (double)out[i]);
    return ERR_OK;
}

static enum err get_label(const struct data_set *d, int64_t at, const uint8_t *p, int32_t *out)
{
    uint32_t label = token_at(p, DATA_VALUE);
    if (label >= (uint32_t)d->classes)
        FAIL(ERR_TOKEN, "data: row %lld of %s has label %d, its %lld class%s end at label %lld; "
                        "import the rows again", (long long)at, d->path, (int)label,
             (long long)d->classes, text_plural(d->classes, "es"), (long long)d->classes - 1);
    *out = (int32_t)label;
    return ERR_OK;
}

/* Calls visit for each block of the file: n tokens or rows from `at` on, at p. */
static enum err each_block(const struct data_set *d,
                           enum err (*visit)(const struct data_set *d, int64_t at, int64_t n,
                                             uint8_t *p, void *arg),
                           void *arg)
{
    uint8_t *p;
    enum err err = ERR_OK;
    int64_t block = d->kind == DATA_ROWS ? num_max(1, 4 * BLOCK / d->unit_bytes) : BLOCK;
    block = num_min(block, d->count);
    TRY(mem_new(block, (size_t)d->unit_bytes, "a block of data", &p));
    for (int64_t at = 0; at < d->count && err == ERR_OK; at += block) {
        int64_t n = num_min(block, d->count - at);
        err = read_units(d, at, n, p);
        if (err == ERR_OK)
            err = visit(d, at, n, p, arg);
    }
    mem_free(p);
    return err;
}

/* What was read is written over. */
static enum err check_block(const struct data_set *d, int64_t at, int64_t n, uint8_t *p, void *arg)
{
    XXH3_64bits_update(arg, p, (size_t)(n * d->unit_bytes));
    if (d->kind == DATA_TOKENS)
        return check_ids_below(d, at, n, p);
    for (int64_t i = 0; i < n; i++, p += d->unit_bytes) {
        int32_t label;
        TRY(get_features(d, at + i, p, (float *)(void *)p));
        TRY(get_label(d, at + i, p + DATA_VALUE * d->features, &label));
    }
    return ERR_OK;
}

static enum err check_all(const struct data_set *d)
{
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    TRY(each_block(d, check_block, &hash));
    uint64_t found = XXH3_64bits_digest(&hash);
    if (found != d->hash)
        FAIL(ERR_DATA,
             "data: the %ss of %s hash to %016llx, its header says %016llx; the file "
             "is damaged, copy it again or make it again",
             d->kind == DATA_ROWS ? "row" : "token", d->path, (unsigned long long)found,
             (unsigned long long)d->hash);
    return ERR_OK;
}

struct counted { int32_t id; int64_t n; };

static enum err count_block(const struct data_set *d, int64_t at, int64_t n, uint8_t *p, void *arg)
{
    struct counted *c = arg;
    (void)at;
    for (int64_t i = 0; i < n; i++)
        c->n += token_at(p + i * d->token_bytes, d->token_bytes) == (uint32_t)c->id;
    return ERR_OK;
}

enum err data_count(const struct data_set *d, int32_t id, int64_t *n)
{
    struct counted c = {.id = id};
    ENSURE(d->kind == DATA_TOKENS);
    TRY(each_block(d, count_block, &c));
    *n = c.n;
    return ERR_OK;
}

/* Is it what the model reads? Samples follow from that. */
static enum err fit(struct data_set *d, const struct data_want *want)
{
    bool rows = d->kind == DATA_ROWS;
    if (want && want->kind != d->kind && rows)
        FAIL(ERR_DATA, "data: %s is a row file, and the model reads tokens; make a token file from "
                       "text with plait data prepare", d->path);
    if (want && want->kind != d->kind)
        FAIL(ERR_DATA, "data: %s is a token file, and the model reads rows; make a row file from "
                       "numbers with plait data import", d->path);
    int64_t seq = want ? want->seq : 1;
    ENSURE(rows || (seq > 0 && (!want || want->vocab > 0)));
    d->inputs = rows ? d->features : seq;
    d->targets = rows ? 1 : seq;
    d->samples = rows ? d->count : (d->count - 1) / seq;
    if (!want)
        return ERR_OK;
    if (rows && d->features != want->features)
        FAIL(ERR_DATA, "data: %s has rows of %lld feature%s, the model reads %lld; give rows of so "
                       "many, as by plait data import --resize, or another model", d->path,
             (long long)d->features, text_plural(d->features, "s"), (long long)want->features);
    if (rows && d->classes > want->classes)
        FAIL(ERR_TOKEN, "data: %s has %lld class%s, the model tells %lld apart; give a model of "
                        "%lld or more", d->path, (long long)d->classes,
             text_plural(d->classes, "es"), (long long)want->classes, (long long)d->classes);
    if (!rows && d->vocab > want->vocab)
        FAIL(ERR_TOKEN,
             "data: %s has vocabulary %lld, the model has %lld id%s; set model.vocab to "
             "%lld or more",
             d->path, (long long)d->vocab, (long long)want->vocab, text_plural(want->vocab, "s"),
             (long long)d->vocab);
    if (!rows && d->count - 1 < seq)
        FAIL(ERR_DATA,
             "data: %s holds %lld token%s, one sample of model.seq %lld takes one more "
             "than that; give more text or set model.seq to %lld or less",
             d->path, (long long)d->count, text_plural(d->count, "s"), (long long)seq,
             (long long)num_max(d->count - 1, 1));
    return ERR_OK;
}

enum err data_open(const char *path, const struct data_want *want, bool check,
                   struct data_set *out)
{
    struct data_set d;
    struct fs_reader file;
    uint8_t head[DATA_HEADER];
    enum err err;
    if (strlen(path) >= sizeof d.path)
        FAIL(ERR_DATA, "data: the path of the file has %zu bytes, at most %zu are taken; use a "
                       "shorter path", strlen(path), sizeof d.path - 1);
    TRY(fs_reader_open(&file, path, ERR_DATA));
    TRY_OR(out_file, fs_reader_get(&file, 0, num_min(file.size, DATA_HEADER), head));
    TRY_OR(out_file, data_header_get(path, head, file.size, &d));
    d.file = file;
    d.unit_bytes = data_unit_bytes(&d);
    memcpy(d.path, path, strlen(path));
    TRY_OR(out_file, fit(&d, want));
    if (check)
        TRY_OR(out_file, check_all(&d));
    *out = d;
    return ERR_OK;
out_file:
    fs_reader_close(&file);
    return err;
}

void data_close(struct data_set *d)
{
    fs_reader_close(&d->file);
    *d = (struct data_set){0};
}

/* Token i of the sample's T + 1 is input i and target i - 1. */
static enum err sample_tokens(const struct data_set *d, int64_t s, int32_t *input, int32_t *target)
{
    uint8_t block[4 * SAMPLE_BLOCK];
    const int64_t t = d->inputs;
    const int bytes = d->token_bytes;
    for (int64_t at = 0, n; at <= t; at += n) {
        n = num_min(SAMPLE_BLOCK, t + 1 - at);
        TRY(read_units(d, s * t + at, n, block));
        TRY(check_ids_below(d, s * t + at, n, block));
        for (int64_t i = 0; i < num_min(n, t - at); i++)
            input[at + i] = (int32_t)token_at(block + i * bytes, bytes);
        for (int64_t i = at == 0; i < n; i++)
            target[at + i - 1] = (int32_t)token_at(block + i * bytes, bytes);
    }
    return ERR_OK;
}

enum err data_sample_plain(const struct data_set *d, int64_t s, void *input, int32_t *target)
{
    uint8_t label[DATA_VALUE];
    int64_t at = DATA_HEADER + s * d->unit_bytes, bytes = DATA_VALUE * d->features;
    ENSURE(s >= 0 && s < d->samples);
    if (d->kind == DATA_TOKENS)
        return sample_tokens(d, s, input, target);
    TRY(fs_reader_get(&d->file, at, bytes, input));
    TRY(fs_reader_get(&d->file, at + bytes, DATA_VALUE, label));
    TRY(get_features(d, s, input, input));
    return get_label(d, s, label, target);
}

enum err data_sample(const struct data_set *d, uint64_t seed, int64_t index, void *input,
                     int32_t *target)
{
    ENSURE(index >= 0);
    int64_t epoch = index / d->samples, i = index % d->samples;
    return data_sample_plain(d, data_permute(seed, epoch, d->samples, i), input, target);
}
