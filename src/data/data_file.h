/* SPDX-License-Identifier: Apache-2.0
 *
 * What readers and writers of this folder share: the header of a file, whose byte layout stands in
 * data.h, and the two passes in which a file is written.
 */
#ifndef PLAIT_DATA_DATA_FILE_H
#define PLAIT_DATA_DATA_FILE_H

#include "data/data.h"
#define XXH_STATIC_LINKING_ONLY /* the state's size, for one on the stack */
#include <xxhash.h>

enum { DATA_HEADER = 128, DATA_VERSION = 1, DATA_NAME = 32, DATA_VALUE = 4 /* bytes */ };

/* Numbers of 1 to 8 bytes, little-endian; and a feature. */
void data_put_le(uint8_t *to, uint64_t v, int bytes);
uint64_t data_get_le(const uint8_t *from, int bytes);
void data_put_value(uint8_t *to, float x);
/* xxh3-64, seed 0: the hash of header and contents. */
uint64_t data_hash(const void *p, int64_t bytes);
/* Bytes of a token for a vocabulary: 2 up to 65536 ids, else 4. */
int data_token_bytes(int64_t vocab);
/* Bytes of a token, or of a row with its label. */
int64_t data_unit_bytes(const struct data_set *h);
/* Bytes of the file; false, *out untouched, when 64 bits do not hold them. */
bool data_file_bytes(const struct data_set *h, int64_t *out);
void data_header_put(const struct data_set *h, uint8_t out[DATA_HEADER]);
/* Read and check the header of a file of `size` bytes, of which `file` has the first DATA_HEADER,
 * or all where there are fewer: what it says into `out`, the rest of which is 0. `path` stands in
 * messages. Errors: ERR_DATA. */
enum err data_header_get(const char *path, const uint8_t *file, int64_t size,
                         struct data_set *out);

/* Where a text begins, behind the mark of its byte order. Errors: ERR_DATA. (data_prepare.c) */
enum err data_text_begin(const struct fs_reader *text, const char *name, int64_t *at);

/* A file is written from front to back, whole or not at all, and its header has the count and hash
 * of what follows: so `pass` is run twice, to hash what it puts and then to write it. */
struct data_pass {
    struct fs_file *file; /* borrowed; NULL the first time */
    XXH3_state_t hash;
};
enum err data_put(struct data_pass *p, const void *bytes, int64_t n);
struct data_writer {
    const struct data_set *header; /* borrowed; what is counted in it a pass sets itself */
    enum err (*pass)(void *arg, struct data_pass *p);
    void *arg;
    const char *source; /* "a text": in the message when the passes differ */
};
/* Errors: those of pass; ERR_DATA when the two differ; ERR_STORAGE. */
enum err data_write(const struct data_writer *w, const char *path);

/* An array of numpy.save: rows x columns elements of `bytes` bytes from byte `at` on, of type f, i,
 * u or b. bytes 0: the file is none. (data_npy.c) */
struct data_npy {
    int64_t rows, columns, at;
    int bytes;
    char type;
};
/* `path` stands in messages. Errors: ERR_DATA, an array that is not read, or damaged. */
enum err data_npy_open(const struct fs_reader *file, const char *path, struct data_npy *out);
/* The columns of a row into out. Errors: ERR_DATA, also for what is not finite. */
enum err data_npy_row(const struct fs_reader *file, const char *path, const struct data_npy *a,
                      int64_t row, double *out);

#endif
