/* SPDX-License-Identifier: Apache-2.0
 *
 * Column- and row-parallel GEMMs and the two ways of leaving and entering the residual stream.
 *
 *              stream          inside             stream
 *     sp off   whole    ---------- cols ----------  all-reduce of partial sums
 *     sp on    rows    all-gather, cols,            reduce-scatter of partial sums
 *
 * The backward is the mirror image (tp_column_grad, tp_row_grad). With t->rows a GEMM is split by
 * rows, and while one piece is computed, the one before is summed (Wang et al. 2023, "Overlap
 * communication with dependent computation via decomposition in large deep learning models"); with
 * t->chunked the pieces are the owners' rows, in chunks. Every element is the same chain of
 * additions either way. What is split, and why so: docs/design/tensor-parallel.md.
 */
#include "parallel/tp.h"

/* Columns of a GEMM that take as long to make from a row as a row takes to come: on H200, bf16,
 * 650 TFLOP/s and 390 GB/s. */
enum { COLS_A_COPY = 1600 };

enum place tp_stream(const struct tp *t)
{
    return t->sp ? PLACE_ROWS : PLACE_WHOLE;
}

/* ---- what is on its way ---- */

/* A request for the next operation, the oldest finished where all are in use. */
static enum err next_request(struct tp_wait *w, struct comm_req **out)
{
    if (w->started - w->finished == TP_WAITS)
        TRY(comm_finish(&w->req[w->finished++ % TP_WAITS]));
    *out = &w->req[w->started++ % TP_WAITS];
    return ERR_OK;
}

static enum err finish_until(struct tp_wait *w, int64_t end)
{
    while (w->finished < end)
        TRY(comm_finish(&w->req[w->finished++ % TP_WAITS]));
    return ERR_OK;
}

enum err tp_finish(struct tp_wait *w)
{
    return finish_until(w, w->started);
}

/* ---- pieces ---- */

static int64_t unit(const struct tp *t)
{
    return dtype_size(t->dev->ct);
}

/* Rows [row, row + m) of the GEMM that g is as a whole, of the m rows at `a`; rows are tight,
 * and so are pre's. */
static enum err rows_of(const struct tp *t, const struct gemm *g, const void *a, int64_t row,
                        int64_t m)
{
    struct gemm piece = *g;
    piece.a = a;
    piece.c = (char *)g->c + row * g->n * unit(t);
    if (g->pre)
        piece.pre = (char *)g->pre + row * g->n * unit(t);
    piece.m = m;
    return dev_gemm(t->dev, &piece);
}

/* The GEMM of own rows, then of the others', gathered in chunks, as they should have come. */
static enum err gemm_in_chunks(const struct tp *t, const struct tensor *x, void *full,
                                  const struct gemm *g)
{
    int64_t m = x->rows, others = t->size - 1, done = 0;
    struct tp_wait w = {0};
    struct comm_req *r;
    for (int k = 1; k <= others; k++) {
        TRY(next_request(&w, &r));
        TRY(comm_all_gather_chunk_start(t->group, k, full, x->p, m * x->cols, t->dev->ct, r));
    }
    TRY(rows_of(t, g, x->p, t->rank * m, m));
    while (done < others) {
        int64_t come = num_min((done + 1) * g->n / COLS_A_COPY, others);
        int64_t n = num_max(1, come - done);
        TRY(finish_until(&w, done + n));
        int64_t first = (t->rank + 1 + done) % t->size, end = num_min(first + n, t->size);
        int64_t bytes = m * g->k * unit(t);
        TRY(rows_of(t, g, (char *)full + first * bytes, first * m, (end - first) * m));
        if (first + n > t->size)
            TRY(rows_of(t, g, full, 0, (first + n - t->size) * m));
        done += n;
    }
    return ERR_OK;
}

/* The GEMM g of the whole of x, with sp gathered; g->m, its rows, is set here. */
static enum err gemm_of_stream(const struct tp *t, const struct tensor *x, void *full,
                                  struct gemm *g)
{
    int64_t m = x->rows, own = t->rank * m, bytes = m * x->cols * unit(t);
    struct tp_wait w = {0};
    struct tensor whole;
    TENSOR_NEEDS(x, tp_stream(t));
    if (!t->sp || t->rows == 0 || m < t->rows) {
        TRY(tp_gather(t, x, full, &whole, NULL));
        g->m = whole.rows;
        return rows_of(t, g, whole.p, 0, g->m);
    }
    g->m = m * t->size;
    if (t->chunked)
        return gemm_in_chunks(t, x, full, g);
    TRY(tp_gather(t, x, full, &whole, &w));
    TRY(rows_of(t, g, x->p, own, m));
    TRY(tp_finish(&w));
    if (t->rank > 0)
        TRY(rows_of(t, g, full, 0, own));
    if (t->rank < t->size - 1)
        TRY(rows_of(t, g, (char *)full + (t->rank + 1) * bytes, own + m, g->m - own - m));
    return ERR_OK;
}

/* GEMM and sum of `whole`, piece by piece. */
static enum err sum_in_pieces(const struct tp *t, const struct gemm *whole,
                              const struct tp_buffers *b, int64_t n)
{
    struct tp_wait w = {0};
    int64_t block = t->sp ? whole->m / t->size : whole->m;
    for (int64_t i = 0; i < n; i++)
        for (int64_t row = block * i / n, m = block * (i + 1) / n - row; row < whole->m;
             row += block) {
            const void *a = (const char *)whole->a + row * whole->k * unit(t);
            TRY(rows_of(t, whole, a, row, m));
            TRY(tp_reduce_rows(t, &(struct tp_rows){row, m, whole->m, whole->n}, b, &w));
        }
    return tp_finish(&w);
}

/* GEMM and sum of `whole`, each owner's rows at a time, own rows last. */
static enum err sum_in_chunks(const struct tp *t, const struct gemm *whole,
                              const struct tp_buffers *b)
{
    struct tp_wait w = {0};
    struct comm_req *r;
    int64_t m = whole->m / t->size;
    for (int k = 1; k <= t->size; k++) {
        int64_t row = (t->rank + k) % t->size * m;
        TRY(rows_of(t, whole, (const char *)whole->a + row * whole->k * unit(t), row, m));
        TRY(next_request(&w, &r));
        TRY(comm_reduce_scatter_chunk_start(t->group, k, b->local, b->partial, m * whole->n,
                                            t->dev->ct, r));
    }
    return tp_finish(&w);
}

/* What g gives, summed: at b's place in the stream. */
static enum err gemm_summed(const struct tp *t, struct gemm *g, const struct tp_buffers *b,
                               struct tensor *out)
{
    g->c = tp_summand(t, b);
    int64_t pieces = model_sum_pieces(g->m, t->size, t->sp, t->rows); /* 0: it is not cut */
    if (pieces == 0) {
        TRY(dev_gemm(t->dev, g));
        return tp_reduce(t, g->m, g->n, b, out);
    }
    bool chunks = t->chunked && t->sp && /* by owners */
                  comm_group_chunks(t->group, g->m / t->size * g->n * unit(t));
    TRY(chunks ? sum_in_chunks(t, g, b) : sum_in_pieces(t, g, b, pieces));
    *out = (struct tensor){b->local, t->sp ? g->m / t->size : g->m, g->n, tp_stream(t)};
    return ERR_OK;
}

/* ---- gathering and reducing ---- */

enum err tp_gather(const struct tp *t, const struct tensor *x, void *full, struct tensor *out,
                   struct tp_wait *w)
{
    struct comm_req *r;
    TENSOR_NEEDS(x, tp_stream(t));
    *out = *x;
    if (!t->sp)
        return ERR_OK;
    *out = (struct tensor){full, x->rows * t->size, x->cols, PLACE_WHOLE};
    if (!w || t->rows == 0)
        return comm_all_gather(t->group, full, x->p, x->rows * x->cols, t->dev->ct);
    TRY(next_request(w, &r));
    return comm_all_gather_start(t->group, full, x->p, x->rows * x->cols, t->dev->ct, r);
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

enum err tp_reduce_rows(const struct tp *t, const struct tp_rows *k, const struct tp_buffers *b,
                        struct tp_wait *w)
{
    int64_t block = t->sp ? k->n / t->size : k->n, bytes = k->cols * unit(t);
    struct comm_req *r;
    if (t->size == 1)
        return ERR_OK;
    for (int64_t row = k->row, end = k->row + k->rows; row < end;) {
        int64_t owner = row / block, m = num_min(end, (owner + 1) * block) - row;
        TRY(next_request(w, &r));
        if (t->sp)
            TRY(comm_reduce_start(t->group, (int)owner,
                                  (char *)b->local + row % block * bytes,
                                  (char *)b->partial + row * bytes, m * k->cols, t->dev->ct, r));
        else
            TRY(comm_all_reduce_start(t->group, (char *)b->local + row * bytes, m * k->cols,
                                      t->dev->ct, COMM_SUM, r));
        row += m;
    }
    return ERR_OK;
}

/* ---- GEMMs ---- */

enum err tp_column(const struct tp *t, const struct tensor *x, const struct tp_linear *l,
                   int64_t cols, struct tensor *y)
{
    struct gemm g = {.c = l->out, .b = l->w, .bias = l->bias, .pre = l->pre, .n = cols,
                     .k = x->cols, .trans_b = true, .act = l->act};
    TRY(gemm_of_stream(t, x, l->full, &g));
    *y = (struct tensor){l->out, g.m, cols, PLACE_COLS};
    return ERR_OK;
}

enum err tp_row(const struct tp *t, const struct tensor *x, const void *w, int64_t cols,
                const struct tp_buffers *b, struct tensor *y)
{
    TENSOR_NEEDS(x, PLACE_COLS);
    return gemm_summed(t, &(struct gemm){.a = x->p, .b = w, .m = x->rows, .n = cols,
                                            .k = x->cols, .trans_b = true}, b, y);
}

enum err tp_row_grad(const struct tp *t, const struct tensor *dy, const struct tp_linear *l,
                     int64_t cols, struct tensor *dx)
{
    struct gemm g = {.c = l->out, .b = l->w, .pre = l->pre, .n = cols, .k = dy->cols,
                     .act = l->act};
    TRY(gemm_of_stream(t, dy, l->full, &g));
    *dx = (struct tensor){l->out, g.m, cols, PLACE_COLS};
    return ERR_OK;
}

enum err tp_column_grad(const struct tp *t, const struct tensor *dy, const void *w, int64_t cols,
                        const struct tp_buffers *b, struct tensor *dx, struct tp_wait *wait)
{
    struct gemm g = {.c = tp_summand(t, b), .a = dy->p, .b = w, .m = dy->rows, .n = cols,
                     .k = dy->cols};
    struct comm_req *r;
    TENSOR_NEEDS(dy, PLACE_COLS);
    if (!wait)
        return gemm_summed(t, &g, b, dx);
    ENSURE(t->rows > 0 && t->size > 1);
    TRY(dev_gemm(t->dev, &g));
    *dx = (struct tensor){b->local, t->sp ? g.m / t->size : g.m, cols, tp_stream(t)};
    TRY(next_request(wait, &r));
    if (t->sp)
        return comm_reduce_scatter_start(t->group, b->local, b->partial, dx->rows * cols,
                                         t->dev->ct, r);
    return comm_all_reduce_start(t->group, b->local, dx->rows * cols, t->dev->ct, COMM_SUM, r);
}

enum err tp_weight_grad(const struct tp *t, const struct tensor *dy, const struct tensor *x,
                        const struct param *w, const struct param *b)
{
    bool add;
    ENSURE(dy->rows == x->rows && dy->place != PLACE_PARTIAL && x->place != PLACE_PARTIAL);
    ENSURE(dy->place != PLACE_ROWS && x->place != PLACE_ROWS);
    TRY(param_grads_begin(w, b, (int64_t[]){dy->cols * x->cols, dy->cols}, &add));
    return dev_gemm(t->dev, &(struct gemm){.c = param_grad(w), .a = dy->p, .b = x->p, .m = dy->cols,
                                           .n = x->cols, .k = dy->rows, .trans_a = true,
                                           .accumulate = add, .c_at = true, .db = param_grad(b)});
}
