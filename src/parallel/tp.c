/* SPDX-License-Identifier: Apache-2.0
 *
 * Column- and row-parallel products and the two ways of leaving and entering the residual stream.
 *
 *              stream          inside             stream
 *     sp off   whole    ---------- cols ----------  all-reduce of partial sums
 *     sp on    rows    all-gather, cols,            reduce-scatter of partial sums
 *
 * The backward is the mirror image: what was gathered is reduce-scattered, what was reduced is
 * gathered; tp_column_grad and tp_gather on gradients are those two.
 */
#include "parallel/tp.h"

enum place tp_stream(const struct tp *t)
{
    return t->sp ? PLACE_ROWS : PLACE_WHOLE;
}

enum err tp_gather(const struct tp *t, const struct tensor *x, void *full, struct tensor *out)
{
    TENSOR_NEEDS(x, tp_stream(t));
    if (!t->sp) {
        *out = *x;
        return ERR_OK;
    }
    TRY(comm_all_gather(t->group, full, x->p, x->rows * x->cols, t->dev->ct));
    *out = (struct tensor){full, x->rows * t->size, x->cols, PLACE_WHOLE};
    return ERR_OK;
}

enum err tp_column(const struct tp *t, const struct tensor *x, const struct tp_linear *l,
                   int64_t cols, struct tensor *y)
{
    TENSOR_NEEDS(x, PLACE_WHOLE);
    TRY(t->dev->ops->gemm(t->dev, &(struct gemm){.c = l->out, .a = x->p, .b = l->w, .bias = l->bias,
                                                 .pre = l->pre, .m = x->rows, .n = cols,
                                                 .k = x->cols, .trans_b = true, .act = l->act}));
    *y = (struct tensor){l->out, x->rows, cols, PLACE_COLS};
    return ERR_OK;
}

void *tp_summand(const struct tp *t, const struct tp_buffers *b)
{
    return t->sp ? b->partial : b->local;
}

enum err tp_reduce(const struct tp *t, int64_t n, int64_t c, const struct tp_buffers *b,
                   struct tensor *out)
{
    if (t->sp)
        TRY(comm_reduce_scatter(t->group, b->local, b->partial, n / t->size * c, t->dev->ct));
    else if (t->size > 1)
        TRY(comm_all_reduce(t->group, b->local, n * c, t->dev->ct, COMM_SUM));
    *out = (struct tensor){b->local, t->sp ? n / t->size : n, c, tp_stream(t)};
    return ERR_OK;
}

/* long: a product's operands and where its sum goes */
enum err tp_row(const struct tp *t, const struct tensor *x, const void *w, int64_t cols,
                const struct tp_buffers *b, struct tensor *y)
{
    TENSOR_NEEDS(x, PLACE_COLS);
    TRY(t->dev->ops->gemm(t->dev, &(struct gemm){.c = tp_summand(t, b), .a = x->p, .b = w,
                                                 .m = x->rows, .n = cols, .k = x->cols,
                                                 .trans_b = true}));
    return tp_reduce(t, x->rows, cols, b, y);
}

enum err tp_row_grad(const struct tp *t, const struct tensor *dy, const struct tp_linear *l,
                     int64_t cols, struct tensor *dx)
{
    TENSOR_NEEDS(dy, PLACE_WHOLE);
    TRY(t->dev->ops->gemm(t->dev, &(struct gemm){.c = l->out, .a = dy->p, .b = l->w, .pre = l->pre,
                                                 .m = dy->rows, .n = cols, .k = dy->cols,
                                                 .act = l->act}));
    *dx = (struct tensor){l->out, dy->rows, cols, PLACE_COLS};
    return ERR_OK;
}

/* long: as tp_row */
enum err tp_column_grad(const struct tp *t, const struct tensor *dy, const void *w, int64_t cols,
                        const struct tp_buffers *b, struct tensor *dx)
{
    TENSOR_NEEDS(dy, PLACE_COLS);
    TRY(t->dev->ops->gemm(t->dev, &(struct gemm){.c = tp_summand(t, b), .a = dy->p, .b = w,
                                                 .m = dy->rows, .n = cols, .k = dy->cols}));
    return tp_reduce(t, dy->rows, cols, b, dx);
}

enum err tp_weight_grad(const struct tp *t, const struct tensor *dy, const struct tensor *x,
                        const struct param *w, void *db)
{
    ENSURE(dy->rows == x->rows && dy->place != PLACE_PARTIAL && x->place != PLACE_PARTIAL);
    ENSURE(dy->place != PLACE_ROWS && x->place != PLACE_ROWS);
    bool add = param_grad_begin(w, dy->cols * x->cols);
    return t->dev->ops->gemm(t->dev, &(struct gemm){.c = param_grad(w), .a = dy->p, .b = x->p,
                                                    .m = dy->cols, .n = x->cols, .k = dy->rows,
                                                    .trans_a = true, .accumulate = add,
                                                    .c_at = true, .db = db});
}
