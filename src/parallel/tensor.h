/* SPDX-License-Identifier: Apache-2.0
 *
 * A matrix that knows how it lies on the tensor axis. The commonest silent bug of parallel training
 * is a partial sum used as if it were whole; every parallel layer states what it takes and what it
 * makes, and a mismatch stops the program.
 */
#ifndef PLAIT_PARALLEL_TENSOR_H
#define PLAIT_PARALLEL_TENSOR_H

#include "base/err.h"
#include <stdint.h>

enum place {
    PLACE_WHOLE,   /* every tensor rank holds all of it, the same bits */
    PLACE_ROWS,    /* sharded over rows (sequence parallelism) */
    PLACE_COLS,    /* sharded over columns (heads, ffn, vocabulary) */
    PLACE_PARTIAL, /* every rank holds a summand */
};

/* (rows, cols) local extents, row-major, compute type, device memory (borrowed). */
struct tensor {
    void *p;
    int64_t rows, cols;
    enum place place;
};

/* Stops the program when `t` is not placed as the caller needs: a bug of plait. */
#define TENSOR_NEEDS(t, where) ENSURE((t)->place == (where))

#endif
