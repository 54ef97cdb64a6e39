/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention as a graph of plain operations, in the one form that cuDNN's fused engines know (the
 * library's documentation: "fused flash attention"). Nothing is computed as it is written: an
 * engine keeps the (tq, tk) tensors on chip, block by block (Dao 2023).
 *
 * Forward:   s = scale q k^T, masked;   p = exp(s - max) / sum;   o = p v;   lse = max + ln sum
 * Backward:  p = exp(s - lse);   delta = sum do * o;   ds = scale p (do v^T - delta)
 *            dv = p^T do;   dk = ds^T q;   dq = ds k
 *
 * Extents are (sequence, head, row, element); k, and backwards v, are transposed by strides alone.
 * Heads of k and v may be fewer: matmuls broadcast them, their gradients are taken per query head
 * and summed over each group. The forward writes lse by rows of queries, as device.h has it; the
 * backward wants it by heads. The deterministic graph leaves out the buffer that dq is added to.
 */
#include "device/device.h"

#ifdef PLAIT_HAVE_CUDNN
#include "device/cuda/cuda_dnn.h"

typedef cudnnBackendDescriptor_t node;

/* The extents of a problem and the shapes that the graph's inner tensors have. */
struct frame {
    struct dnn_graph *g;
    const struct attn *a;
    struct dnn_shape scores;  /* (b, heads, tq, tk) */
    struct dnn_shape flipped; /* (b, heads, tk, tq): the scores seen from the keys */
    struct dnn_shape rows;    /* (b, heads, tq, 1) packed */
    node scale, masked;
};

static struct dnn_shape packed(const struct attn *a, int64_t rows, int64_t width)
{
    return (struct dnn_shape){{a->b, a->heads, rows, width},
                              {a->heads * rows * width, rows * width, width, 1}};
}

/* A matrix of the caller's: t rows a sequence, `heads` heads side by side in rows of stride ld. */
static struct dnn_shape rows_of(const struct attn *a, int64_t t, int64_t heads, int64_t ld)
{
    return (struct dnn_shape){{a->b, heads, t, a->d}, {t * ld, a->d, ld, 1}};
}

static struct dnn_shape transposed(struct dnn_shape s)
{
    return (struct dnn_shape){{s.dim[0], s.dim[1], s.dim[3], s.dim[2]},
                              {s.stride[0], s.stride[1], s.stride[3], s.stride[2]}};
}

static struct frame frame_of(struct dnn_graph *g, const struct attn *a)
{
    struct frame f = {.g = g, .a = a, .scores = packed(a, a->tq, a->tk),
                      .rows = packed(a, a->tq, 1)};
    f.flipped = transposed(f.scores);
    f.scale = dnn_number(g, ATTN_SCALE, CUDNN_DATA_FLOAT);
    f.masked = dnn_number(g, ATTN_MASKED, CUDNN_DATA_FLOAT);
    return f;
}

static node matrix(const struct frame *f, int64_t id, struct dnn_shape s)
{
    return dnn_tensor(f->g, id, CUDNN_DATA_BFLOAT16, &s);
}

/* mode(x, b) in f32; b NULL: mode(x). */
static node apply(const struct frame *f, cudnnPointwiseMode_t mode, node x, node b,
                  const struct dnn_shape *s)
{
    node y = dnn_inner(f->g, CUDNN_DATA_FLOAT, s);
    dnn_pointwise(f->g, &(struct dnn_pointwise){.mode = mode, .math = CUDNN_DATA_FLOAT, .x = x,
                                                .b = b, .y = y});
    return y;
}

static node matmul(const struct frame *f, node x, node y, const struct dnn_shape *s)
{
    node c = dnn_inner(f->g, CUDNN_DATA_FLOAT, s);
    dnn_matmul(f->g, x, y, c);
    return c;
}

static node reduced(const struct frame *f, cudnnReduceTensorOp_t op, node x)
{
    node y = dnn_inner(f->g, CUDNN_DATA_FLOAT, &f->rows);
    dnn_reduce(f->g, op, x, y);
    return y;
}

static node index_along(const struct frame *f, node like, int64_t axis)
{
    node y = dnn_inner(f->g, CUDNN_DATA_INT32, &f->scores);
    dnn_pointwise(f->g, &(struct dnn_pointwise){.mode = CUDNN_POINTWISE_GEN_INDEX,
                                                .math = CUDNN_DATA_FLOAT, .x = like, .y = y,
                                                .axis = axis});
    return y;
}

static node shifted(const struct frame *f, cudnnPointwiseMode_t mode, node x, int64_t id)
{
    node y = dnn_inner(f->g, CUDNN_DATA_INT32, &f->scores);
    node by = dnn_number(f->g, id, CUDNN_DATA_INT32);
    dnn_pointwise(f->g, &(struct dnn_pointwise){.mode = mode, .math = CUDNN_DATA_INT32, .x = x,
                                                .b = by, .y = y});
    return y;
}

/* x where the query sees the key, else minus infinity. */
static node causal(const struct frame *f, node x)
{
    node row = index_along(f, x, 2), column = index_along(f, x, 3);
    if (f->a->tq != f->a->tk) {
        row = shifted(f, CUDNN_POINTWISE_ADD, row, ATTN_TK);
        row = shifted(f, CUDNN_POINTWISE_SUB, row, ATTN_TQ);
    }
    node sees = dnn_inner(f->g, CUDNN_DATA_BOOLEAN, &f->scores);
    node y = dnn_inner(f->g, CUDNN_DATA_FLOAT, &f->scores);
    dnn_pointwise(f->g, &(struct dnn_pointwise){.mode = CUDNN_POINTWISE_CMP_GE,
                                                .math = CUDNN_DATA_BOOLEAN, .x = row, .b = column,
                                                .y = sees});
    dnn_pointwise(f->g, &(struct dnn_pointwise){.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                                .math = CUDNN_DATA_FLOAT, .x = x, .b = f->masked,
                                                .mask = sees, .y = y});
    return y;
}

void dnn_attn(struct dnn_graph *g, const struct attn *a)
{
    struct frame f = frame_of(g, a);
    struct dnn_shape lse_shape = {{a->b, a->heads, a->tq, 1}, {a->tq * a->heads, 1, a->heads, 1}};
    node q = matrix(&f, ATTN_Q, rows_of(a, a->tq, a->heads, a->ldq));
    node k = matrix(&f, ATTN_K, transposed(rows_of(a, a->tk, a->kv_heads, a->ldk)));
    node v = matrix(&f, ATTN_V, rows_of(a, a->tk, a->kv_heads, a->ldv));
    node o = matrix(&f, ATTN_O, rows_of(a, a->tq, a->heads, a->ldo));
    node lse = dnn_tensor(g, ATTN_LSE, CUDNN_DATA_FLOAT, &lse_shape);
    node s = apply(&f, CUDNN_POINTWISE_MUL, matmul(&f, q, k, &f.scores), f.scale, &f.scores);
    s = causal(&f, s);
    node max = reduced(&f, CUDNN_REDUCE_TENSOR_MAX, s);
    node e = apply(&f, CUDNN_POINTWISE_SUB, s, max, &f.scores);
    e = apply(&f, CUDNN_POINTWISE_EXP, e, NULL, &f.scores);
    node sum = reduced(&f, CUDNN_REDUCE_TENSOR_ADD, e);
    node ln = apply(&f, CUDNN_POINTWISE_LOG, sum, NULL, &f.rows);
    dnn_pointwise(g, &(struct dnn_pointwise){.mode = CUDNN_POINTWISE_ADD, .math = CUDNN_DATA_FLOAT,
                                             .x = max, .b = ln, .y = lse});
    node p = dnn_inner(g, CUDNN_DATA_BFLOAT16, &f.scores);
    dnn_pointwise(g, &(struct dnn_pointwise){.mode = CUDNN_POINTWISE_DIV, .math = CUDNN_DATA_FLOAT,
                                             .x = e, .b = sum, .y = p});
    dnn_matmul(g, p, v, o);
}

/* x (b, heads, tq, tk) seen from the keys, rounded for a matmul. */
static node flip(const struct frame *f, node x)
{
    node y = dnn_inner(f->g, CUDNN_DATA_BFLOAT16, &f->flipped);
    dnn_reshape(f->g, x, y);
    return y;
}

/* out = x y for k or v: heads of a group are added up. */
static void grad_of_keys(const struct frame *f, node x, node y, node out)
{
    const struct attn *a = f->a;
    struct dnn_shape each = packed(a, a->tk, a->d);
    if (a->heads == a->kv_heads) {
        dnn_matmul(f->g, x, y, out);
        return;
    }
    node whole = dnn_inner(f->g, CUDNN_DATA_BFLOAT16, &each);
    dnn_matmul(f->g, x, y, whole);
    dnn_reduce(f->g, CUDNN_REDUCE_TENSOR_ADD, whole, out);
}

/* dq = ds k. */
static void grad_of_queries(const struct frame *f, node ds, node k, node dq, bool deterministic)
{
    const struct attn *a = f->a;
    struct dnn_shape k_rows = rows_of(a, a->tk, a->kv_heads, a->ldk);
    struct dnn_shape sum_shape = packed(a, a->tq, a->d);
    node k_back = dnn_inner(f->g, CUDNN_DATA_BFLOAT16, &k_rows);
    dnn_reshape(f->g, k, k_back);
    if (deterministic) {
        dnn_matmul(f->g, ds, k_back, dq);
        return;
    }
    node sum = dnn_tensor(f->g, ATTN_SUM_DQ, CUDNN_DATA_FLOAT, &sum_shape);
    dnn_matmul(f->g, ds, k_back, sum);
    dnn_pointwise(f->g, &(struct dnn_pointwise){.mode = CUDNN_POINTWISE_IDENTITY,
                                                .math = CUDNN_DATA_FLOAT, .x = sum, .y = dq});
}

/* delta = sum do * o; it goes through memory, so that one kernel can make it before the other
 * reads it. The factor of one stands where the pattern has that of dropout. */
static node delta_of(const struct frame *f, node o, node do_)
{
    struct dnn_shape row = rows_of(f->a, f->a->tq, f->a->heads, f->a->heads * f->a->d);
    node one = dnn_number(f->g, ATTN_ONE, CUDNN_DATA_FLOAT);
    node sum = reduced(f, CUDNN_REDUCE_TENSOR_ADD,
                       apply(f, CUDNN_POINTWISE_MUL, do_, o, &row));
    node delta = dnn_tensor(f->g, ATTN_DELTA, CUDNN_DATA_FLOAT, &f->rows);
    dnn_pointwise(f->g, &(struct dnn_pointwise){.mode = CUDNN_POINTWISE_MUL,
                                                .math = CUDNN_DATA_FLOAT, .x = sum, .b = one,
                                                .y = delta});
    return delta;
}

void dnn_attn_grad(struct dnn_graph *g, const struct attn *a, bool deterministic)
{
    struct frame f = frame_of(g, a);
    struct dnn_shape q_rows = rows_of(a, a->tq, a->heads, a->ldq);
    struct dnn_shape k_rows = rows_of(a, a->tk, a->kv_heads, a->ldk);
    struct dnn_shape v_rows = rows_of(a, a->tk, a->kv_heads, a->ldv);
    struct dnn_shape o_rows = rows_of(a, a->tq, a->heads, a->ldo);
    node q = matrix(&f, ATTN_Q, q_rows), k = matrix(&f, ATTN_K, transposed(k_rows));
    node v = matrix(&f, ATTN_V, transposed(v_rows)), o = matrix(&f, ATTN_O, o_rows);
    node do_ = matrix(&f, ATTN_DO, o_rows), dq = matrix(&f, ATTN_DQ, q_rows);
    node dk = matrix(&f, ATTN_DK, k_rows), dv = matrix(&f, ATTN_DV, v_rows);
    node lse = dnn_tensor(g, ATTN_LSE, CUDNN_DATA_FLOAT, &f.rows);
    node delta = delta_of(&f, o, do_);

    node s = apply(&f, CUDNN_POINTWISE_MUL, matmul(&f, q, k, &f.scores), f.scale, &f.scores);
    s = causal(&f, apply(&f, CUDNN_POINTWISE_SUB, s, lse, &f.scores));
    node p = apply(&f, CUDNN_POINTWISE_EXP, s, NULL, &f.scores);
    grad_of_keys(&f, flip(&f, p), do_, dv);

    node ds = matmul(&f, do_, v, &f.scores);
    ds = apply(&f, CUDNN_POINTWISE_SUB, ds, delta, &f.scores);
    ds = apply(&f, CUDNN_POINTWISE_MUL, ds, p, &f.scores);
    ds = apply(&f, CUDNN_POINTWISE_MUL, ds, f.scale, &f.scores);
    grad_of_keys(&f, flip(&f, ds), q, dk);
    grad_of_queries(&f, ds, k, dq, deterministic);
}
#endif
