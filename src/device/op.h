/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations as data: the arguments of each as a struct, and a row that says all that is known of
 * it without running it (op.c): its name, its operands with their types and extents, the numbers
 * that make two calls alike. The null device, the profile, the probe and the list of a step's calls
 * walk the rows. So a new operation is its struct and its line here, its row in op.c, and its FLOPs
 * if they count, ref, and each device that has a way of its own.
 *
 * "ct" and "at" in a shape comment say the type of an operand (device.h). Operands do not overlap
 * unless said so.
 */
#ifndef PLAIT_DEVICE_OP_H
#define PLAIT_DEVICE_OP_H

#include "base/err.h"
#include "base/num.h"
#include <stddef.h>

struct dev;

/* Dropout of one site. Element (row, col) of a tensor with `cols` columns has the global index
 * (row0 + row) * cols + col; it is kept when num_drop_kept(seed, stream, *step, index, threshold).
 * Kept values are scaled by 1/(1-p). p == 0: no dropout, nothing else is read. The step is read
 * when the kernel runs, so that one captured call draws another mask in each step. */
struct drop {
    double p;
    uint64_t seed;
    uint32_t stream;      /* names the site: layer and place in it */
    const uint32_t *step; /* (1) device; NULL: 0 */
    int64_t row0;         /* global row of local row 0 */
};

/* C (m,n) = op(A) (m,k) op(B) (k,n) [+ C]; then [+ bias (n)], then the activation.
 * op(A): A is stored (m,k), or (k,m) when trans_a; op(B): (k,n), or (n,k) when trans_b.
 * A, B, bias are ct. C is ct, or at when c_at. accumulate (c_at only): adds to C; else C is written
 * and what it held is not looked at, be it NaN.
 * GEMM_GELU: pre (ct, m x n) receives the value before the activation, C gelu_tanh of it.
 * GEMM_DGELU: C = op(A) op(B) * gelu_tanh'(pre), pre read.
 * db (at, m; with trans_a only), written or added to as C is: the sum over k of op(A): where A is
 * dY and C a weight gradient, that of the bias. */
enum gemm_act { GEMM_NONE, GEMM_GELU, GEMM_DGELU };
struct gemm {
    void *c;
    const void *a, *b, *bias; /* bias NULL: none */
    void *pre;                /* tight rows, whatever ldc */
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* elements from row to row as stored; 0: tight */
    bool trans_a, trans_b, accumulate, c_at;
    enum gemm_act act;
    void *db; /* NULL: none */
};

/* db (c) at += the sum over rows of dy (n, c) ct. */
struct bias_grad {
    void *db;
    const void *dy;
    int64_t n, c;
};

/* y = x + drop(f [+ bias]); x NULL: zero. y may be x. */
struct residual {
    void *y;                  /* (n, c) ct */
    const void *x, *f, *bias; /* (n, c), (n, c), (c) ct; bias NULL: none */
    int64_t n, c;
    struct drop drop;
};

/* y = norm(x) * w [+ b]; rms: x * rstd, no mean, no b. mean may be NULL with rms. Where a row's sum
 * of squares is not finite, rstd and the row are NaN. */
struct norm {
    void *y;           /* (n, c) ct */
    void *mean, *rstd; /* (n) at */
    const void *x;     /* (n, c) ct */
    const void *w, *b; /* (c) ct; b NULL: none */
    int64_t n, c;
    double eps;
    bool rms;
};
/* dx = d + J^T dy; dw = sum dy * xhat; db = sum dy. dx may be d or x itself. */
struct norm_grad {
    void *dx;                /* (n, c) ct */
    const void *d;           /* (n, c) ct, NULL: zero */
    void *dw, *db;           /* (c) at, written; db NULL: none */
    const void *dy, *x;      /* (n, c) ct */
    const void *w;           /* (c) ct */
    const void *mean, *rstd; /* (n) at */
    int64_t n, c;
    bool rms;
};

/* The residual, then the norm of what it gave: residual.y is norm.x. */
struct residual_norm {
    struct residual residual;
    struct norm norm;
};

/* dx (n, c) = drop(dy), both ct: the same mask and scale. dx may be dy. */
struct dropout {
    void *dx;
    const void *dy;
    int64_t n, c;
    struct drop drop;
};

/* Causal attention, blockwise softmax (Dao et al. 2022; Rabe & Staats 2021): no T x T matrix is
 * stored. b sequences of tq queries and tk >= tq keys; query i of a sequence stands at position
 * tk - tq + i and sees keys 0..its own position. Head h uses kv head h / (heads / kv_heads).
 * Row r of q is sequence r / tq; element (head, dim) of a row is at [head * d + dim].
 * Dropout of probabilities: the element (query row, head, key) has the global index
 * ((row0 + row) * heads_total + head0 + head) * tk + key, row0 from `drop`. */
struct attn {
    void *o;               /* (b*tq, heads*d) ct, tight rows of ldo */
    void *lse;             /* (b*tq, heads) at: log-sum-exp of scaled scores, before dropout */
    const void *q, *k, *v; /* ct */
    int64_t b, tq, tk, heads, kv_heads, d;
    int64_t ldq, ldk, ldv, ldo; /* row strides, elements */
    double scale;               /* of scores: 1/sqrt(d) */
    int64_t heads_total, head0; /* for the dropout index */
    struct drop drop;
};
struct attn_grad {
    struct attn f;      /* as in forward: o, lse now read */
    const void *do_;    /* (b*tq, heads*d) ct, row stride ldo */
    void *dq, *dk, *dv; /* ct, written; row strides ldq, ldk, ldv of f */
    void *delta;        /* (b*tq, heads) at, scratch */
};

/* Rotary positions, half-split (Su et al. 2021; layout of Hugging Face): for each of n rows and
 * `heads` heads of d, element i < d/2 pairs with i + d/2. Position of row r is pos0 + r % t.
 * table: (positions, d) at: cos of the d/2 angles, then sin. inverse: rotate back (gradient). */
struct rope {
    void *x; /* ct, in place, row stride ld */
    const void *table;
    int64_t n, t, pos0, heads, d, ld;
    bool inverse;
};

/* out (n, f) = silu(gu[:, :f]) * gu[:, f:]; gu (n, 2f). All ct. */
struct swiglu {
    void *out;
    const void *gu;
    int64_t n, f;
};
struct swiglu_grad {
    void *dgu;
    const void *dout, *gu;
    int64_t n, f;
};

/* relu: y = x where !(x <= 0), else 0, so that a NaN stays one; y may be x.
 * relu_grad: dx = dy where !(x <= 0), else 0; dx may be dy. Of x the sign alone is asked, so that
 * relu's y does in its place. All (n) ct, flat; n may be 0. */
struct relu {
    void *y;
    const void *x;
    int64_t n;
};
struct relu_grad {
    void *dx;
    const void *dy, *x;
    int64_t n;
};

/* out (n, c) ct: row token[i] - v0 of w (rows, c) ct. Tokens outside [v0, v0 + rows) give a row of
 * zeros and no gradient. dw (rows, c) at +=. */
struct embed {
    void *out;
    const void *w;
    const int32_t *token;
    int64_t n, c, v0, rows;
};
struct embed_grad {
    void *dw;
    const void *dy;
    const int32_t *token;
    int64_t n, c, v0, rows;
};
/* x[r] += w[(row0 + r) % t]; dw[(row0 + r) % t] += dy[r]. x, dy (n, c) ct; w (t, c) ct, dw at. */
struct pos_add {
    void *x;
    const void *w;
    int64_t n, c, t, row0;
};
struct pos_grad {
    void *dw;
    const void *dy;
    int64_t n, c, t, row0;
};

/* What changes from step to step, in device memory, so that a step that was captured once can be
 * run again: learning rate, 1 - beta1^t, 1 - beta2^t, what gradients are multiplied by, the tokens
 * that this rank speaks for, whether it asks to stop, whether its part of a checkpoint is written.
 * The last is the device's own: not 0 once a loss or norm was not finite; no step behind that one
 * updates anything either, for the host may have queued it already. */
enum dev_scalar {
    SCALAR_LR, SCALAR_BIAS1, SCALAR_BIAS2, SCALAR_SCALE, SCALAR_TOKENS, SCALAR_STOP, SCALAR_SAVED,
    SCALAR_LOST, SCALAR_COUNT
};
/* What a step adds up over all ranks: losses, their tokens, requests to stop, parts of a checkpoint
 * that are written, squares of gradients. */
enum dev_sums { SUMS_LOSS, SUMS_TOKENS, SUMS_STOP, SUMS_SAVED, SUMS_SQUARES, SUMS_COUNT };

/* Ranges of a flat vector, so that one call does for many parameters: elements bound[0] ..
 * bound[1] - 1, bound[2] .. bound[3] - 1, and so on. Bounds never fall; ranges may touch and be
 * empty. Lies in host memory and is read before the call returns. */
enum { DEV_RANGES = 240 }; /* with it, a kernel's arguments stay below 4096 bytes */
struct dev_ranges {
    int n;
    int64_t bound[2 * DEV_RANGES];
};

static inline int64_t dev_ranges_count(const struct dev_ranges *p)
{
    int64_t count = 0;
    for (int i = 0; i < p->n; i++)
        count += p->bound[2 * i + 1] - p->bound[2 * i];
    return count;
}

/* AdamW (Loshchilov and Hutter 2019). Nothing is written where SCALAR_SCALE is not finite. */
struct adamw {
    void *w;          /* (n) ct, written */
    void *master;     /* (n) at; NULL when ct == at and w is the master */
    void *m, *v;      /* (n) at */
    const void *grad; /* (n) at; read as grad * step_scalars[SCALAR_SCALE] */
    int64_t n;
    double beta1, beta2, eps, decay; /* decay: decoupled, w -= lr * decay * w */
    const struct dev_ranges *decays;  /* of 0 .. n: the elements that decay; others do not */
    const double *step_scalars;      /* (SCALAR_COUNT) device */
};

/* Cross entropy in three steps, so that tensor ranks can agree between them: xent_max: row maxima
 * (-inf when v == 0); xent_sum: sums and target logits given the agreed max; xent_grad: loss and
 * dlogits given the agreed sum and target logit. loss = log(sum) + max - target_logit, 0 and zero
 * gradient where target is -1; columns v..ld of dlogits are zero. dlogits NULL: loss only. The loss
 * is a sum; nothing is divided. xent: all three, for a vocabulary that lies here whole. */
struct xent {
    const void *logits;    /* (n, v) of dev.logits, row stride ld */
    const int32_t *target; /* (n) global token ids; -1: this row does not count */
    int64_t n, v, ld;      /* v: columns that are real vocabulary, <= ld */
    int64_t v0;            /* global id of column 0 */
    void *max;             /* (n) at */
    void *sum;             /* (n) at: sum of exp(logit - max) */
    void *target_logit;    /* (n) at: target's logit if here, else 0 */
    void *loss;            /* (n) at */
    void *dlogits;         /* (n, ld) ct, row stride ld; may be the logits where both are ct */
};

/* SCALAR_SCALE becomes 1 / tokens, times clip / norm where clip > 0 and the norm of the mean
 * gradient, sqrt(squares) / tokens, is above it. NaN where the loss or the norm is not finite, and
 * from then on (SCALAR_LOST). No tokens count as one. */
struct scale {
    double *step_scalars;
    const double *sums; /* (SUMS_COUNT) device */
    double clip;
};
/* *out (1) device += the sum of x (n) at; of the squares of its ranges. ref and cpu add range
 * after range. */
struct sum {
    double *out;
    const void *x;
    int64_t n;
};
struct sumsq {
    double *out;
    const void *x;
    const struct dev_ranges *of;
    int64_t n; /* of the ranges */
};
/* cast: to (n) ct = from (n) at. add: to (n) at += from (n) at. copy, zero: n bytes. h2d, d2h: n
 * bytes from the host's memory and to it; h2d has taken what lies at `from` when it returns, d2h
 * has written `to` once the stream is through it (into memory that is not of host_alloc, it waits).
 */
struct flat {
    void *to;
    const void *from;
    int64_t n;
};
/* A copy on the stream of snapshots (device.h): n bytes to memory of host_alloc, behind the slot's
 * last snapshot_ready. */
struct snapshot {
    void *to;
    const void *from;
    int64_t n;
    int slot;
};

/* ---- all of them ---- */

/* X(kind, member of struct op, struct of its arguments, function that calls it, the plain way).
 * Kernels: ref computes each, which is its plain way, the first with scratch; of two the arguments
 * are flat vectors. The others are made of these, or are steps on the host's memory, where a device
 * has no way of its own (plain.h). */
#define OP_MATRIX_KERNELS(X)                                                      \
    X(OP_GEMM, gemm, gemm, dev_gemm, ref_gemm)                                    \
    X(OP_ATTN, attn, attn, dev_attn, ref_attn)                                    \
    X(OP_ATTN_GRAD, attn_grad, attn_grad, dev_attn_grad, ref_attn_grad)
#define OP_ROW_KERNELS(X)                                                         \
    X(OP_NORM, norm, norm, dev_norm, ref_norm)                                    \
    X(OP_NORM_GRAD, norm_grad, norm_grad, dev_norm_grad, ref_norm_grad)           \
    X(OP_ROPE, rope, rope, dev_rope, ref_rope)                                    \
    X(OP_SWIGLU, swiglu, swiglu, dev_swiglu, ref_swiglu)                          \
    X(OP_SWIGLU_GRAD, swiglu_grad, swiglu_grad, dev_swiglu_grad, ref_swiglu_grad) \
    X(OP_RELU, relu, relu, dev_relu, ref_relu)                                    \
    X(OP_RELU_GRAD, relu_grad, relu_grad, dev_relu_grad, ref_relu_grad)           \
    X(OP_BIAS_GRAD, bias_grad, bias_grad, dev_bias_grad, ref_bias_grad)           \
    X(OP_RESIDUAL, residual, residual, dev_residual, ref_residual)                \
    X(OP_DROPOUT, dropout, dropout, dev_dropout, ref_dropout)                     \
    X(OP_EMBED, embed, embed, dev_embed, ref_embed)                               \
    X(OP_EMBED_GRAD, embed_grad, embed_grad, dev_embed_grad, ref_embed_grad)      \
    X(OP_POS_ADD, pos_add, pos_add, dev_pos_add, ref_pos_add)                     \
    X(OP_POS_GRAD, pos_grad, pos_grad, dev_pos_grad, ref_pos_grad)                \
    X(OP_XENT_MAX, xent_max, xent, dev_xent_max, ref_xent_max)                    \
    X(OP_XENT_SUM, xent_sum, xent, dev_xent_sum, ref_xent_sum)                    \
    X(OP_XENT_GRAD, xent_grad, xent, dev_xent_grad, ref_xent_grad)                \
    X(OP_ADAMW, adamw, adamw, dev_adamw, ref_adamw)                               \
    X(OP_SUM, sum, sum, dev_sum, ref_sum)                                         \
    X(OP_SUMSQ, sumsq, sumsq, dev_sumsq, ref_sumsq)
#define OP_KERNELS(X) OP_MATRIX_KERNELS(X) OP_ROW_KERNELS(X)
#define OP_FLAT_KERNELS(X)                     \
    X(OP_CAST, cast, flat, dev_cast, ref_cast) \
    X(OP_ADD, add, flat, dev_add, ref_add)
#define OP_COMPOSITES(X)                                                                           \
    X(OP_RESIDUAL_NORM, residual_norm, residual_norm, dev_residual_norm, plain_residual_norm)      \
    X(OP_XENT, xent, xent, dev_xent, plain_xent)                                                   \
    X(OP_SCALE, scale, scale, dev_scale, plain_scale)                                              \
    X(OP_SNAPSHOT, snapshot, snapshot, dev_snapshot, plain_snapshot)
#define OP_MOVES(X)                                                                                \
    X(OP_COPY, copy, flat, dev_copy, plain_copy)                                                   \
    X(OP_H2D, h2d, flat, dev_h2d, plain_copy)                                                      \
    X(OP_D2H, d2h, flat, dev_d2h, plain_copy)
#define OP_LIST(X)                                                \
    OP_KERNELS(X) OP_FLAT_KERNELS(X) OP_COMPOSITES(X) OP_MOVES(X) \
    X(OP_ZERO, zero, flat, dev_zero, plain_zero)

#define OP_KIND(kind, ...) kind,
enum op_kind { OP_LIST(OP_KIND) OPS };
#undef OP_KIND

#define OP_MEMBER(kind, member, type, ...) struct type member;
struct op {
    enum op_kind kind;
    union { OP_LIST(OP_MEMBER) };
};
#undef OP_MEMBER

/* ---- rows ---- */

/* What an operation is for. GEMMs of the head are those of the head's loss. */
enum op_class {
    CLASS_NONE, CLASS_GEMM, CLASS_ATTENTION, CLASS_NORM, CLASS_ACTIVATION, CLASS_EMBED, CLASS_HEAD,
    CLASS_OPTIM, CLASS_MOVE, OP_CLASSES
};

/* What an operand holds: a type of the device's (struct dtypes), or one of its own. POSITIVE:
 * numbers of `at` above 0, as deviations are. SCALARS, SUMS: doubles (enum dev_scalar, dev_sums).
 */
enum op_holds {
    HOLDS_CT, HOLDS_AT, HOLDS_POSITIVE, HOLDS_LOGITS, HOLDS_SCALARS, HOLDS_SUMS, HOLDS_F64,
    HOLDS_IDS, HOLDS_BYTES
};
enum op_access {
    ACCESS_READ = 1,
    ACCESS_WRITE = 2,
    ACCESS_ADD = ACCESS_READ | ACCESS_WRITE,
    ACCESS_SCRATCH = 4
};

/* To the operand before it: in no relation; in the same rows, behind its columns, where the strides
 * allow it; directly behind it; in its place; or perhaps so, which makes it another call. */
enum op_lies { LIES_APART, LIES_BESIDE, LIES_BEHIND, LIES_OVER, LIES_MAYBE_OVER };

/* A matrix of a call. Of one that is not there the pointer is NULL. */
struct op_operand {
    const char *name;
    size_t at;          /* of its pointer, in struct op */
    int64_t rows, cols; /* elements */
    int64_t ld;         /* from row to row; 0: tight */
    double moved;       /* elements that a call reads, or writes: all, or those of its tokens */
    enum op_holds holds;
    enum op_access access;
    bool optional;                 /* that it is there is said of the call, by its name */
    bool host;                     /* in the host's memory */
    enum op_lies lies;             /* where models have it */
    int64_t id0, ids;              /* of IDS: id0 and those behind it, so many */
    const struct dev_ranges *ranges; /* of a flat vector: these alone are looked at; NULL: all */
};

/* A number of a call. Extents, strides (0: tight rows), flags, activations and whether there is
 * dropout make it another call; places (int64_t: where its rows or heads stand in the whole),
 * doubles and ranges of vectors do not. */
enum op_field_kind {
    FIELD_EXTENT, FIELD_STRIDE, FIELD_FLAG, FIELD_ACT, FIELD_DROP, FIELD_PLACE, FIELD_REAL,
    FIELD_RANGES
};
struct op_field {
    const char *name;
    size_t at;
    enum op_field_kind kind;
};

typedef enum err op_fn(struct dev *d, const struct op *op);
enum { OP_OPERANDS = 16, OP_FIELDS = 16, OP_FLAGS = OP_FIELDS + OP_OPERANDS };
struct op_row {
    const char *name; /* "gemm" */
    enum op_class category;
    const char *group; /* line of a profile, "attention gradient"; its operations may be several */
    int (*operands)(const struct op *op, struct op_operand *out); /* [OP_OPERANDS]; how many */
    struct op_field field[OP_FIELDS]; /* all that are no operand's; name NULL behind the last */
    bool blind; /* it moves bytes, or knows what to do with a number that is not finite: nobody
                   looks at its operands for one (probe.h) */
};
extern const struct op_row op_rows[OPS];

const char *op_class_name(enum op_class c);

/* The pointer of an operand, and another one in its place. */
void *op_pointer(const struct op *op, const struct op_operand *o);
void op_point(struct op *op, const struct op_operand *o, const void *p);
enum dtype op_type(const struct op_operand *o, const struct dtypes *types); /* not of IDS, BYTES */
int64_t op_element(const struct op_operand *o, const struct dtypes *types); /* bytes of one */

/* A field's number; a flag's is 0 or 1. Not of doubles and ranges. */
int64_t op_get(const struct op *op, const struct op_field *f);

/* FLOPs of GEMMs and attention only, two for each multiplication with its addition, as model FLOPs
 * are counted everywhere: 2 m n k of a GEMM; of causal attention by the pairs of query and key that
 * see each other, 4 d a pair forwards (scores, values), 10 d backwards (scores again, and four
 * gradients).
 */
double op_flops(const struct op *op);
/* What it must move at least: each operand read or written once, both where it is added to; of the
 * host's memory nothing. */
double op_bytes(const struct op *op, const struct dtypes *types);
/* Is operand i, which may be, in the place of the one before it? */
bool op_is_over(const struct op *op, const struct op_operand *o, int i);
/* Names of flags that are set and of optional operands that are there; how many. Borrowed. */
int op_flags(const struct op *op, const char *flag[OP_FLAGS]);
/* "gemm m 64 n 32 k 16 +trans_b +bias": extents that are not 0, flags, optional operands. Into
 * buf. */
void op_describe(const struct op *op, char *buf, size_t n);

#endif
