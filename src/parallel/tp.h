/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor parallelism (Shoeybi et al. 2019) with sequence parallelism (Korthikanti et al. 2022).
 * Weights of the first product of a sublayer are cut by output rows (column-parallel), those of the
 * second by input columns (row-parallel); between the two nothing is said. What enters a sublayer
 * is the residual stream, whole on each rank, or, with sp, sharded over rows and gathered first;
 * what leaves is a partial sum, all-reduced, or, with sp, reduce-scattered back to rows.
 *
 * All functions that talk are collective over the tensor group; with tp 1 they do nothing.
 */
#ifndef PLAIT_PARALLEL_TP_H
#define PLAIT_PARALLEL_TP_H

#include "comm/comm.h"
#include "device/device.h"
#include "tensor/param.h"
#include "tensor/tensor.h"

struct tp {
    struct dev *dev;          /* borrowed */
    struct comm_group *group; /* borrowed; NULL when size is 1 */
    struct comm_group *kv;    /* borrowed; ranks that hold the same kv heads, NULL when alone */
    int size, rank;
    bool sp;
};

/* Placement of the residual stream: rows with sp, else whole. */
enum place tp_stream(const struct tp *t);

/* The stream made whole: with sp gathered into `full` (n, C), else `x` itself. */
enum err tp_gather(const struct tp *t, const struct tensor *x, void *full, struct tensor *out);

/* Column-parallel product: y (n, N/tp) = x (n, K) w^T [+ bias], x whole; w (N/tp, K). */
struct tp_linear {
    const void *w, *bias; /* local; bias NULL: none */
    enum gemm_act act;
    void *pre;            /* see struct gemm */
    void *out;
};
enum err tp_column(const struct tp *t, const struct tensor *x, const struct tp_linear *l,
                   int64_t cols, struct tensor *y);
/* Row-parallel product and its reduction: y = sum over ranks of x (n, K/tp) w^T, w (N, K/tp); with
 * sp this rank's rows. The bias, if any, is the caller's, after the sum. partial (n, N) is used
 * with sp only; local receives the result. */
struct tp_buffers { void *partial, *local; };
enum err tp_row(const struct tp *t, const struct tensor *x, const void *w, int64_t cols,
                const struct tp_buffers *b, struct tensor *y);

/* Gradients. Of the input of a row-parallel product: dx (n, K/tp) = dy (n, N) w, dy whole; act and
 * pre of `l` serve GEMM_DGELU. */
enum err tp_row_grad(const struct tp *t, const struct tensor *dy, const struct tp_linear *l,
                     int64_t cols, struct tensor *dx);
/* Of the input of a column-parallel product, reduced: dx = sum of dy (n, N/tp) w (N/tp, K). */
enum err tp_column_grad(const struct tp *t, const struct tensor *dy, const void *w, int64_t cols,
                        const struct tp_buffers *b, struct tensor *dx);
/* Gradient of w (N, K) and of what lies joined to it += dy^T x, both with local columns; the first
 * of a step writes it. db (N, settled): that of the bias += the sum of the rows of dy; NULL: none.
 * No talk. */
/* long: two operands and two gradients */
enum err tp_weight_grad(const struct tp *t, const struct tensor *dy, const struct tensor *x,
                        const struct param *w, void *db);

/* Sum of partial (n, C) over ranks to where the stream lives: see tp_row. The summands must have
 * been written to tp_summand(): b->partial with sp, b->local else. */
void *tp_summand(const struct tp *t, const struct tp_buffers *b);
enum err tp_reduce(const struct tp *t, int64_t n, int64_t c, const struct tp_buffers *b,
                   struct tensor *out);

#endif
