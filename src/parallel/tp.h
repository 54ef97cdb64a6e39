/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor parallelism (Shoeybi et al. 2019) with sequence parallelism (Korthikanti et al. 2022).
 * Weights of the first GEMM of a sublayer are cut by output rows (column-parallel), those of the
 * second by input columns (row-parallel); between the two nothing is said. What enters a sublayer
 * is the residual stream, whole on each rank, or, with sp, sharded over rows and gathered first;
 * what leaves is a partial sum, all-reduced, or, with sp, reduce-scattered back to rows.
 *
 * All functions that communicate are collective over the tensor group; with tp 1 they do nothing.
 * With tp.rows that overlaps their GEMMs, or what the caller does between start and finish.
 */
#ifndef PLAIT_PARALLEL_TP_H
#define PLAIT_PARALLEL_TP_H

#include "comm/comm.h"
#include "device/device.h"
#include "param/param.h"

/* A matrix that knows how it lies on the tensor axis. The commonest silent bug of parallel training
 * is a partial sum used as if it were whole; every parallel layer states what it takes and what it
 * makes, and a mismatch stops the program. */
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

struct tp {
    struct dev *dev;          /* borrowed */
    struct comm_group *group; /* borrowed; NULL when size is 1 */
    struct comm_group *kv;    /* borrowed; ranks that hold the same kv heads, NULL when alone */
    int size, rank;
    bool sp;
    int64_t rows;             /* fewest rows of a piece of a GEMM that is split so that its sum
                                 overlaps the next; 0, and always with tp 1: no overlap, nothing
                                 is split, what is started is finished, too */
    bool chunked;             /* with rows and sp: by owner, in chunks (comm/core/request.c) */
};

/* What is on its way. Zero it first; buffers stay untouched until it is finished, which is in the
 * order of starting over the whole group. */
enum { TP_WAITS = 32 };
struct tp_wait {
    struct comm_req req[TP_WAITS]; /* operation k at k % TP_WAITS */
    int64_t started, finished;
};
enum err tp_finish(struct tp_wait *w);

/* Placement of the residual stream: rows with sp, else whole. */
enum place tp_stream(const struct tp *t);

/* The stream made whole: with sp gathered into `full` (n, C), else `x` itself. With w, where
 * t->rows is set, it is on its way: `full` is not there before `w` is finished. */
enum err tp_gather(const struct tp *t, const struct tensor *x, void *full, struct tensor *out,
                   struct tp_wait *w);

/* Column-parallel GEMM: y (n, N/tp) = x (n, K) w^T [+ bias], w (N/tp, K); x as the stream lies,
 * with sp gathered into l->full, which is whole afterwards. */
struct tp_linear {
    const void *w, *bias; /* local; bias NULL: none */
    enum gemm_act act;
    void *pre;            /* see struct gemm */
    void *out;
    void *full;           /* (n, K) with sp: the gathered operand; else not looked at */
};
enum err tp_column(const struct tp *t, const struct tensor *x, const struct tp_linear *l,
                   int64_t cols, struct tensor *y);
/* Row-parallel GEMM and its reduction: y = sum over ranks of x (n, K/tp) w^T, w (N, K/tp); with
 * sp this rank's rows. The bias, if any, is the caller's, after the sum. partial (n, N) is used
 * with sp only; local receives the result. */
struct tp_buffers { void *partial, *local; };
enum err tp_row(const struct tp *t, const struct tensor *x, const void *w, int64_t cols,
                const struct tp_buffers *b, struct tensor *y);

/* Gradients. Of the input of a row-parallel GEMM: dx (n, K/tp) = dy (n, N) w, dy as the stream
 * lies, with sp gathered into l->full; act and pre of `l` serve GEMM_DGELU. */
enum err tp_row_grad(const struct tp *t, const struct tensor *dy, const struct tp_linear *l,
                     int64_t cols, struct tensor *dx);
/* Of the input of a column-parallel GEMM, reduced: dx = sum of dy (n, N/tp) w (N/tp, K). With wait,
 * for which t->rows must be set, dx and b's buffers are on their way until it is finished. */
enum err tp_column_grad(const struct tp *t, const struct tensor *dy, const void *w, int64_t cols,
                        const struct tp_buffers *b, struct tensor *dx, struct tp_wait *wait);
/* Gradient of w (N, K) and of what lies joined to it += dy^T x, both with local columns, and of the
 * bias b (N) and what lies joined to that += the sum of the rows of dy, NULL: none; the first of a
 * step writes them. Local. */
enum err tp_weight_grad(const struct tp *t, const struct tensor *dy, const struct tensor *x,
                        const struct param *w, const struct param *b);

/* Sum of partial (n, C) over ranks to where the stream lives: see tp_row. The summands must have
 * been written to tp_summand(): b->partial with sp, b->local else. */
void *tp_summand(const struct tp *t, const struct tp_buffers *b);
enum err tp_reduce(const struct tp *t, int64_t n, int64_t c, const struct tp_buffers *b,
                   struct tensor *out);
/* The same of some rows, started: when all have been, and `w` is finished, that is tp_reduce. */
struct tp_rows { int64_t row, rows, n, cols; }; /* [row, row + rows) of (n, cols) */
enum err tp_reduce_rows(const struct tp *t, const struct tp_rows *k, const struct tp_buffers *b,
                        struct tp_wait *w);

#endif
