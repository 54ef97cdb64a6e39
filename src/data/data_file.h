/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of a token file, shared by the reader and the writer of this folder. The byte layout
 * stands in data.h.
 */
#ifndef PLAIT_DATA_DATA_FILE_H
#define PLAIT_DATA_DATA_FILE_H

#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

enum { DATA_HEADER = 128, DATA_VERSION = 1, DATA_NAME = 32 };

struct data_header {
    int token_bytes;
    int64_t vocab, count;
    uint64_t hash; /* of the token bytes */
    char tokenizer[DATA_NAME];
};

/* xxh3-64, seed 0: the hash of header and tokens. */
uint64_t data_hash(const void *p, int64_t bytes);
/* Bytes of a token for a vocabulary: 2 up to 65536 ids, else 4. */
int data_token_bytes(int64_t vocab);
/* Bytes of a file of so many tokens; false, *out untouched, when 64 bits do not hold them. */
bool data_file_bytes(int64_t tokens, int token_bytes, int64_t *out);
void data_header_put(const struct data_header *h, uint8_t out[DATA_HEADER]);
/* Read and check the header of a file of `size` bytes, of which `file` has the first DATA_HEADER,
 * or all where there are fewer. `path` stands in messages. Errors: ERR_DATA. */
enum err data_header_get(const char *path, const uint8_t *file, int64_t size,
                         struct data_header *out);

#endif
