/* SPDX-License-Identifier: Apache-2.0
 *
 * Token files and deterministic sampling.
 *
 * A token file is a 128-byte header and then the tokens, unsigned little-endian, 2 bytes each when
 * the vocabulary has at most 65536 ids, else 4. All numbers of the header are little-endian too:
 *
 *     offset  bytes  field
 *          0      8  magic "PLAITTOK"
 *          8      4  version, 1
 *         12      4  bytes a token, 2 or 4
 *         16      8  vocabulary, 1 .. 2^31 - 1; every id is below it
 *         24      8  count of tokens, at least 1
 *         32      8  xxh3-64 (seed 0) of the bytes of all tokens
 *         40     32  tokenizer: [a-zA-Z0-9._-], at most 31 characters, filled up with zeros
 *         72     48  reserved, zero
 *        120      8  xxh3-64 (seed 0) of header bytes 0 .. 119
 *        128         the tokens; the file ends with the last one
 *
 * Header and size are checked before a token is touched, and the two hashes cover every byte, so a
 * file that is cut, grown or has one flipped bit is refused (docs/data-format.md).
 *
 * Sampling: the file has S = (count - 1) / T samples of T + 1 tokens, sample s at token s * T.
 * Epoch e visits all S in the order of a pseudo-random permutation of (seed, e), computed per index
 * (a Feistel network with cycle walking), so nothing is stored and any layout, at any place of the
 * run, reads the same sample for the same global sample number.
 */
#ifndef PLAIT_DATA_DATA_H
#define PLAIT_DATA_DATA_H

#include "base/err.h"
#include "base/fs.h"
#include <stdbool.h>
#include <stdint.h>

struct data_set {
    struct fs_reader file; /* owned */
    int64_t count, vocab, samples, seq;
    int token_bytes;
    uint64_t hash; /* of the tokens, as the header says */
    char tokenizer[32];
    char path[1024];
};

/* Open and check: magic, version, every header field, sizes against the file's (ERR_DATA). vocab:
 * the model's; the file's must not exceed it (ERR_TOKEN). Fewer than seq + 1 tokens: ERR_DATA.
 * check_ids: read every token once and refuse an id that is not below the file's vocabulary with
 * file, position, id (ERR_TOKEN); also compares the hash (ERR_DATA). Takes memory for a block of
 * tokens (ERR_MEMORY), given back before it returns. Local. */
enum err data_open(const char *path, int64_t seq, int64_t vocab, bool check_ids,
                   struct data_set *out);
void data_close(struct data_set *d);

/* Sample number `index` >= 0 of an endless shuffled run, its seq + 1 tokens into out. Takes no
 * memory; any thread. Errors: ERR_DATA, the file has been cut since it was opened or cannot be
 * read; ERR_TOKEN, an id is not below the file's vocabulary. `out` is then undefined. Local. */
enum err data_sample(const struct data_set *d, uint64_t seed, int64_t index, int32_t *out);
/* Sample s in file order, s < samples (validation). The same errors. */
enum err data_sample_plain(const struct data_set *d, int64_t s, int32_t *out);
/* *n: how often `id` stands in the file. Errors: ERR_DATA, ERR_MEMORY. Local. */
enum err data_count(const struct data_set *d, int32_t id, int64_t *n);
/* The permutation: which of `samples` samples stands at place i of this epoch, 0 <= i < samples. */
int64_t data_permute(uint64_t seed, int64_t epoch, int64_t samples, int64_t i);

/* `plait data prepare`: text files, in order, through the tokenizer into one token file, written
 * whole or not at all, in fixed memory. tokenizer: "bytes" (ids 0..255 are the bytes; vocabulary
 * 257, id 256 marks the end of each file). progress may be NULL; the texts are read twice (the hash
 * stands before the tokens), so all_bytes is twice their size. *tokens: how many were written.
 * Errors: ERR_CONFIG no text, or the output is one of them; ERR_DATA a text is missing, empty, or
 * changes meanwhile; ERR_TOKEN unknown tokenizer; ERR_STORAGE. Local. */
struct data_prepare {
    const char *const *text;
    int texts;
    const char *out, *tokenizer;
    void (*progress)(void *arg, int64_t done_bytes, int64_t all_bytes);
    void *arg;
};
enum err data_prepare(const struct data_prepare *a, int64_t *tokens);

/* `plait data random`: a token file of `tokens` ids drawn equally from `vocab` ids, a function of
 * the seed and the place, for measuring speed; its tokenizer is "random". Written whole or not at
 * all.
 * Errors: ERR_CONFIG for a vocabulary or count that a file cannot have; ERR_STORAGE. Local. */
struct data_random {
    const char *out;
    int64_t vocab, tokens;
    uint64_t seed;
};
enum err data_random(const struct data_random *a);

/* Text to tokens and back for generation. */
/* Is the tokenizer known, and do its ids fit a model of `vocab` ids? ERR_TOKEN with known names. */
enum err tokenizer_check(const char *name, int64_t vocab);
int64_t tokenizer_vocab(const char *name); /* 0 when it is not known */
int32_t tokenizer_end(const char *name);   /* id that ends a document; -1 when it is not known */
/* Two tokenizers with one hash give the same bytes for each id; 0 when it is not known. */
uint64_t tokenizer_hash(const char *name);
/* *out: *count ids (mem_free). Errors: ERR_TOKEN unknown name, ERR_MEMORY. */
enum err tokenizer_encode(const char *name, const char *text, int64_t n, int32_t **out,
                          int64_t *count);
/* Bytes of one token into out (at most 64), count returned; 0 for a special token. */
int tokenizer_decode(const char *name, int32_t token, char out[64]);

#endif
