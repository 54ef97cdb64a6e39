/* SPDX-License-Identifier: Apache-2.0
 *
 * Token files, row files and deterministic sampling.
 *
 * A token file is a 128-byte header and then the tokens, unsigned little-endian, 2 bytes each when
 * the vocabulary has at most 65536 ids, else 4. A row file is such a header and then rows: their
 * features, IEEE 754 float32 little-endian, and behind them the label, int32. All numbers of the
 * header are little-endian too:
 *
 *     offset  bytes  field
 *          0      8  magic "PLAITTOK"             or "PLAITROW"
 *          8      4  version, 1                   the same
 *         12      4  bytes a token, 2 or 4        bytes a feature, 4
 *         16      8  vocabulary, 1 .. 2^31 - 1;   features of a row, 1 .. 2^24
 *                    every id is below it
 *         24      8  count of tokens, at least 1  count of rows, at least 1
 *         32      8  xxh3-64 (seed 0) of the bytes of all tokens, or rows
 *         40     32  tokenizer: [a-zA-Z0-9._-],   8: classes, 1 .. 2^31 - 1; every label is from 0
 *                    at most 31 characters,          to below it
 *                    filled up with zeros         4 and 4: height and width, whose product is the
 *                                                    features
 *         72     48  reserved, zero               from 56 on
 *        120      8  xxh3-64 (seed 0) of header bytes 0 .. 119
 *        128         the tokens or rows; the file ends with the last one
 *
 * Header and size are checked before anything else is touched, and the two hashes cover every byte,
 * so a file that is cut, grown or has one flipped bit is refused (docs/data-format.md).
 *
 * Sampling: a file of rows has a sample a row; one of tokens has S = (count - 1) / T samples of
 * T + 1 tokens, sample s at token s * T. Epoch e visits all S in the order of a pseudo-random
 * permutation of (seed, e), computed per index (a Feistel network with cycle walking), so nothing
 * is stored and any layout, at any place of the run, reads the same sample for the same global
 * sample number.
 */
#ifndef PLAIT_DATA_DATA_H
#define PLAIT_DATA_DATA_H

#include "base/err.h"
#include "base/fs.h"
#include <stdbool.h>
#include <stdint.h>

enum data_kind { DATA_TOKENS, DATA_ROWS, DATA_KINDS };
enum { DATA_FEATURES_MAX = 1 << 24 };

/* What a model reads. */
struct data_want {
    enum data_kind kind;
    int64_t seq, vocab;        /* tokens: length of a sample; the model's ids */
    int64_t features, classes; /* rows */
};

struct data_set {
    /* As the header says: */
    enum data_kind kind;
    int64_t count;             /* of tokens, of rows */
    uint64_t hash;             /* of their bytes */
    int64_t vocab;             /* tokens */
    int token_bytes;
    int64_t features, classes; /* rows */
    int height, width;         /* whose product is features */
    char tokenizer[32];        /* of rows: "rows" */
    /* Of a file that is open: */
    struct fs_reader file;     /* owned */
    int64_t samples;
    int64_t unit_bytes;        /* of a token, of a row with its label */
    int64_t inputs, targets;   /* numbers of a sample, 4 bytes each */
    char path[1024];
};

/* Open and check: magic, version, every header field, sizes against the file's (ERR_DATA). want:
 * another kind, features that are not the model's, fewer than seq + 1 tokens are ERR_DATA, a
 * vocabulary or classes above the model's ERR_TOKEN; NULL: whatever it holds, as samples of one
 * token. check: read all once and refuse an id or label that is not below what the header says
 * (ERR_TOKEN) and a feature that is not finite (ERR_DATA) with file, position, value; also
 * compares the hash (ERR_DATA). Takes memory for a block (ERR_MEMORY), given back before it
 * returns. Local. */
enum err data_open(const char *path, const struct data_want *want, bool check,
                   struct data_set *out);
void data_close(struct data_set *d);

/* Sample number `index` >= 0 of an endless shuffled run: its d->inputs numbers (tokens, int32_t; or
 * features, float) and d->targets int32_t (the tokens behind each of them; or the label). Takes no
 * memory; any thread. Errors: ERR_DATA, the file has been cut since it was opened, cannot be read,
 * or has a feature that is not finite; ERR_TOKEN, an id or label is not below the file's. What was
 * written is then undefined. Local. */
enum err data_sample(const struct data_set *d, uint64_t seed, int64_t index, void *input,
                     int32_t *target);
/* Sample s in file order, s < samples (validation). The same errors. */
enum err data_sample_plain(const struct data_set *d, int64_t s, void *input, int32_t *target);
/* *n: how often `id` stands in a file of tokens. Errors: ERR_DATA, ERR_MEMORY. Local. */
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

/* `plait data random`: a file drawn by a seed, written whole or not at all: `count` ids, each as
 * likely, whose tokenizer is "random"; or, with features, so many rows, each of a class as likely,
 * around whose centre its features are normal: a centre's have deviation 1/4, a row's 1. A function
 * of the seed and the place.
 * Errors: ERR_CONFIG for sizes that a file cannot have; ERR_STORAGE. Local. */
struct data_random {
    const char *out;
    int64_t vocab;             /* tokens; features 0 */
    int64_t features, classes; /* rows */
    int64_t count;
    uint64_t seed;
};
enum err data_random(const struct data_random *a);

/* `plait data import`: a table of numbers, as text (a row a line, its values between commas) or as
 * an array of NumPy (.npy), the label first or last in a row, into one row file, written whole or
 * not at all, in memory for a row. Features that are a picture of height x width are resized to
 * to_height x to_width (0: not) by bilinear interpolation with half-pixel centres (data_import.c),
 * then multiplied by scale. progress as in data_prepare. *rows: how many were written. Errors:
 * ERR_CONFIG, sizes that are none, or the output is the table; ERR_DATA with line and column, what
 * is no number, a line of another length, a label that is none; ERR_STORAGE, ERR_MEMORY. Local. */
struct data_import {
    const char *table, *out;
    bool header;      /* the first line is passed over */
    bool label_first; /* else last */
    int height, width, to_height, to_width; /* 0: no picture; not resized */
    double scale;     /* 1: as they are */
    int64_t classes;  /* 0: one more than the largest label */
    void (*progress)(void *arg, int64_t done_bytes, int64_t all_bytes);
    void *arg;
};
enum err data_import(const struct data_import *a, int64_t *rows);

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
