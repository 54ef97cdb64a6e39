/* SPDX-License-Identifier: Apache-2.0
 *
 * Token files and deterministic sampling.
 *
 * A token file is a 128-byte header and then the tokens, little-endian, u16 when the vocabulary has
 * at most 65536 ids, else u32. Header fields: magic "PLAITTOK", version, bytes a token, vocabulary,
 * count (64-bit), xxh3-64 of the tokens, tokenizer name. Sizes are checked before anything is read.
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
    struct fs_map map; /* owned */
    const uint8_t *tokens;
    int64_t count, vocab, samples, seq;
    int token_bytes;
    uint64_t hash; /* of the tokens, as the header says */
    char tokenizer[32];
    char path[1024];
};

/* Open and check: magic, version, sizes against the file's. vocab: the model's; the file's must not
 * exceed it (ERR_TOKEN). Fewer than seq + 1 tokens: ERR_DATA. check_ids: read every token once and
 * refuse an id >= vocab with file, position, id (ERR_TOKEN); also compares the hash (ERR_DATA). */
enum err data_open(const char *path, int64_t seq, int64_t vocab, bool check_ids, struct data_set *out);
void data_close(struct data_set *d);

/* Sample number `index` of an endless shuffled run, its seq + 1 tokens into out. */
void data_sample(const struct data_set *d, uint64_t seed, int64_t index, int32_t *out);
/* Sample s in file order, s < samples (validation). */
void data_sample_plain(const struct data_set *d, int64_t s, int32_t *out);
/* Position of global sample `index` in the file: the permutation. */
int64_t data_permute(uint64_t seed, int64_t epoch, int64_t samples, int64_t i);

/* `plait data prepare`: text files, in order, through the tokenizer into one token file, written
 * whole or not at all. tokenizer: "bytes" (ids 0..255 are the bytes; vocabulary 257, id 256 marks
 * the end of each file). progress may be NULL. */
struct data_prepare {
    const char *const *text;
    int texts;
    const char *out, *tokenizer;
    void (*progress)(void *arg, int64_t done_bytes, int64_t all_bytes);
    void *arg;
};
enum err data_prepare(const struct data_prepare *a, int64_t *tokens);

/* Text to tokens and back for generation. */
enum err tokenizer_check(const char *name, int64_t vocab); /* known? ERR_TOKEN with known names */
int64_t tokenizer_vocab(const char *name);
enum err tokenizer_encode(const char *name, const char *text, int64_t n, int32_t **out, int64_t *count);
/* Bytes of one token into out (at most 64), count returned; 0 for a special token. */
int tokenizer_decode(const char *name, int32_t token, char out[64]);

#endif
