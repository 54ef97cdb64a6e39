/* SPDX-License-Identifier: Apache-2.0
 *
 * A token file, opened and read by sample.
 *
 * The file stays where it is: a sample is a slice of it, found by arithmetic alone, so ranks share
 * the page cache and keep no index. Sample s is tokens [s T, s T + T], T + 1 of them: its last
 * token is the target of its last place and the first token of sample s + 1, so every token but the
 * first is a target exactly once an epoch (a rest of less than T tokens at the end of the file is
 * not visited).
 *
 * A sample is read by a call and not through a map. A run has the file open for days, and another
 * program may cut it: a map then ends the process by a signal, a call says how many bytes came. The
 * call and a look at the ids, which may have been written over since they were checked, take three
 * microseconds for a sample of 1024 tokens.
 *
 * The full check reads blocks that fit a cache, hashes and compares each while it is there. A bad
 * id is told before a bad hash: it names the place.
 */
#include "data/data.h"

#include "base/mem.h"
#include "base/num.h"
#include "base/text.h"
#include "data/data_file.h"
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the state's size, for one on the stack */
#include <xxhash.h>

enum { BLOCK = 65536 }; /* tokens */

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

/* n tokens from token `at` on, as they stand in the file, into p. */
static enum err read_tokens(const struct data_set *d, int64_t at, int64_t n, uint8_t *p)
{
    return fs_reader_get(&d->file, DATA_HEADER + at * d->token_bytes, n * d->token_bytes, p);
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

/* Calls visit for each block of the file: n tokens from token `at` on, at p. */
static enum err each_block(const struct data_set *d,
                           enum err (*visit)(const struct data_set *d, int64_t at, int64_t n,
                                             const uint8_t *p, void *arg),
                           void *arg)
{
    uint8_t *p;
    enum err err = ERR_OK;
    TRY(mem_new(BLOCK, (size_t)d->token_bytes, "a block of tokens", &p));
    for (int64_t at = 0; at < d->count && err == ERR_OK; at += BLOCK) {
        int64_t n = num_min(BLOCK, d->count - at);
        err = read_tokens(d, at, n, p);
        if (err == ERR_OK)
            err = visit(d, at, n, p, arg);
    }
    mem_free(p);
    return err;
}

static enum err check_block(const struct data_set *d, int64_t at, int64_t n, const uint8_t *p,
                            void *arg)
{
    XXH3_64bits_update(arg, p, (size_t)(n * d->token_bytes));
    return check_ids_below(d, at, n, p);
}

static enum err check_tokens(const struct data_set *d)
{
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    TRY(each_block(d, check_block, &hash));
    uint64_t found = XXH3_64bits_digest(&hash);
    if (found != d->hash)
        FAIL(ERR_DATA,
             "data: the tokens of %s hash to %016llx, its header says %016llx; the file "
             "is damaged, copy it again or prepare the text again",
             d->path, (unsigned long long)found, (unsigned long long)d->hash);
    return ERR_OK;
}

struct counted { int32_t id; int64_t n; };

static enum err count_block(const struct data_set *d, int64_t at, int64_t n, const uint8_t *p,
                            void *arg)
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
    TRY(each_block(d, count_block, &c));
    *n = c.n;
    return ERR_OK;
}

/* Everything behind the opening: fills d from the header and holds it against what is asked. */
static enum err read_header(struct data_set *d, int64_t seq, int64_t vocab, bool check_ids)
{
    struct data_header h;
    uint8_t head[DATA_HEADER];
    TRY(fs_reader_get(&d->file, 0, num_min(d->file.size, DATA_HEADER), head));
    TRY(data_header_get(d->path, head, d->file.size, &h));
    if (h.vocab > vocab)
        FAIL(ERR_TOKEN,
             "data: %s has vocabulary %lld, the model has %lld id%s; set model.vocab to "
             "%lld or more",
             d->path, (long long)h.vocab, (long long)vocab, text_plural(vocab, "s"),
             (long long)h.vocab);
    if (h.count - 1 < seq)
        FAIL(ERR_DATA,
             "data: %s holds %lld token%s, one sample of model.seq %lld takes one more "
             "than that; give more text or set model.seq to %lld or less",
             d->path, (long long)h.count, text_plural(h.count, "s"), (long long)seq,
             (long long)num_max(h.count - 1, 1));
    d->count = h.count;
    d->vocab = h.vocab;
    d->seq = seq;
    d->samples = (h.count - 1) / seq;
    d->token_bytes = h.token_bytes;
    d->hash = h.hash;
    memcpy(d->tokenizer, h.tokenizer, sizeof d->tokenizer);
    return check_ids ? check_tokens(d) : ERR_OK;
}

enum err data_open(const char *path, int64_t seq, int64_t vocab, bool check_ids,
                   struct data_set *out)
{
    struct data_set d = {0};
    ENSURE(seq > 0 && vocab > 0);
    if (strlen(path) >= sizeof d.path)
        FAIL(ERR_DATA,
             "data: the path of the token file has %zu bytes, at most %zu are taken; use "
             "a shorter path",
             strlen(path), sizeof d.path - 1);
    memcpy(d.path, path, strlen(path));
    TRY(fs_reader_open(&d.file, path, ERR_DATA));
    enum err err;
    TRY_OR(out_file, read_header(&d, seq, vocab, check_ids));
    *out = d;
    return ERR_OK;
out_file:
    fs_reader_close(&d.file);
    return err;
}

void data_close(struct data_set *d)
{
    fs_reader_close(&d->file);
    *d = (struct data_set){0};
}

/* The tokens are read into the end of `out` and widened from its beginning on: a token is read
 * before the place where it stood is written, and no second buffer is needed. */
enum err data_sample_plain(const struct data_set *d, int64_t s, int32_t *out)
{
    ENSURE(s >= 0 && s < d->samples);
    int64_t n = d->seq + 1, first = s * d->seq;
    const int bytes = d->token_bytes;
    uint8_t *p = (uint8_t *)(out + n) - n * bytes;
    TRY(read_tokens(d, first, n, p));
    TRY(check_ids_below(d, first, n, p));
    for (int64_t i = 0; i < n; i++)
        out[i] = (int32_t)token_at(p + i * bytes, bytes);
    return ERR_OK;
}

enum err data_sample(const struct data_set *d, uint64_t seed, int64_t index, int32_t *out)
{
    ENSURE(index >= 0);
    int64_t epoch = index / d->samples, i = index % d->samples;
    return data_sample_plain(d, data_permute(seed, epoch, d->samples, i), out);
}
