/* SPDX-License-Identifier: Apache-2.0
 *
 * Which algorithm a GEMM or attention takes, remembered on disk. A key says all that the
 * choice hangs on, a choice names an algorithm by its settings. Knows no CUDA: plain numbers, a
 * file, and text for checkpoints.
 */
#ifndef PLAIT_DEVICE_CUDA_ALGO_H
#define PLAIT_DEVICE_CUDA_ALGO_H

#include "base/err.h"
#include "base/text.h"
#include <stdint.h>

enum {
    CUDA_ALGO_KEY = 8,      /* numbers in a key */
    CUDA_ALGO_SETTINGS = 9, /* numbers that name an algorithm */
    CUDA_ALGO_ROWS = 1024,  /* choices held at most */
    CUDA_ALGO_BYTES = 1 << 20 /* of a file, at most */
};

/* Extents and row strides of a GEMM in elements, all at least 1; flags at least 0. */
struct cuda_algo_key {
    int64_t m, n, k, lda, ldb, ldc;
    int64_t flags; /* types, transposes, epilogue: the caller's own code */
    int64_t align; /* of the operands, the caller's own code */
};

/* way: 1 or more, the caller's own code of what is done by the library and what apart. */
struct cuda_algo_choice {
    int64_t way;
    int64_t settings[CUDA_ALGO_SETTINGS]; /* each in 0..2^31-1 */
    double us;                            /* microseconds when it was measured */
};

struct cuda_algos;

/* The choices of one kind of GPU and version of the library. `dir` is the folder of the file, made
 * when missing; NULL or "": none is read or written. A folder or file that cannot be used, and
 * lines that are no choices, are told in one warning and the rest goes on.
 * Errors: ERR_MEMORY. Released by cuda_algos_close. Local. */
enum err cuda_algos_open(const char *dir, const char *gpu, int64_t version,
                         struct cuda_algos **out);
void cuda_algos_close(struct cuda_algos *a); /* NULL is fine */

/* What holds for the key, or NULL; valid until the next call of this table. Local. */
const struct cuda_algo_choice *cuda_algos_find(const struct cuda_algos *a,
                                               const struct cuda_algo_key *key);

/* Offer a choice. `held` is what holds from now on: the first choice that any process wrote to the
 * file for this key, which need not be `mine`. Local. */
void cuda_algos_offer(struct cuda_algos *a, const struct cuda_algo_key *key,
                      const struct cuda_algo_choice *mine, struct cuda_algo_choice *held);

/* What the caller takes for the key from now on: a choice that was found or held, or another where
 * the library does not propose that any more. Then it holds for this run, and of a checkpoint's
 * it is said, once. So is that the table is full: it holds those that are used rather than others
 * of the file. Local. */
void cuda_algos_use(struct cuda_algos *a, const struct cuda_algo_key *key,
                    const struct cuda_algo_choice *choice);

/* The choices that were used, as lines of the file, behind a line that names GPU and versions:
 * "choices GPU VERSION VERSION". By their keys and without microseconds: equal choices are equal
 * texts. Local. */
void cuda_algos_print(const struct cuda_algos *a, const char *gpu, const int64_t version[2],
                      struct text *out);
/* Such text, of one run or of several in a row: choices of this GPU and these versions hold from
 * now on, whatever the file says. Lines that are no choices are passed over, for the text may be
 * damaged. Returns how many were taken, 0 where one found no room, which is said. Local. */
int64_t cuda_algos_take(struct cuda_algos *a, const char *gpu, const int64_t version[2],
                        const char *text);

#endif
