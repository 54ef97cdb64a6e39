/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the cpu device share: the device's own state, the arguments of each task, and
 * the table of tasks that is filled once for each instruction set. A task is a cpu_task_fn whose
 * `arg` is the struct named in its comment; `bf16` in it says that ct is bf16, else it is f32.
 */
#ifndef PLAIT_DEVICE_CPU_CPU_IMPL_H
#define PLAIT_DEVICE_CPU_CPU_IMPL_H

#include "device/cpu/cpu.h"
#include "device/cpu/cpu_pool.h"

enum {
    CPU_SCRATCH_FLOATS = 1 << 20, /* of a thread: 4 MiB */
    CPU_COLS = 32,      /* columns of an item of the tasks that sum over rows */
    CPU_HEAD_MAX = 256, /* elements of an attention head */
    CPU_DQ_FLOATS = 1 << 19, /* of the scratch, for dq of a whole kv head */
    CPU_PARTIALS = 256, /* pieces of a long sum, whatever the number of threads */
    CPU_RUN = 1024,     /* elements of a flat vector that stay together */
};

struct cpu_gemm {
    const struct gemm *g;
    int64_t lda, ldb, ldc; /* elements; g's, with 0 replaced */
    int64_t rows, cols;    /* of an item's piece of C */
    int64_t across;        /* items side by side */
    bool bf16, bf16_c;     /* bf16: A, B, bias and pre; C */
};

/* Where the f32 sums of a GEMM go: element (i, j) to c[i * ld + j], written or added. */
struct cpu_target { float *c; int64_t ld; bool add; };

struct cpu_norm { struct norm a; bool bf16; };
struct cpu_norm_grad { struct norm_grad a; bool bf16; };
struct cpu_attn { struct attn a; bool bf16; };
struct cpu_attn_grad { struct attn_grad a; bool bf16; };
struct cpu_rope { struct rope a; bool bf16; };
struct cpu_adamw { struct adamw a; bool bf16; };
struct cpu_relu { struct relu_grad a; bool bf16; };
struct cpu_xent { struct xent a; bool bf16; };
/* y (n, c) = x + drop(f + bias), or of fewer parts */
struct cpu_rows { void *y; const void *x, *f, *bias; int64_t n, c; struct drop drop; bool bf16; };
/* out (n, f) from gu (n, 2f), or dgu from dout and gu */
struct cpu_swiglu { void *out; const void *dout, *gu; int64_t n, f; bool bf16; };
/* rows of a table w (rows, c), taken by token or by position (token NULL) */
struct cpu_table { void *to; const void *from; const int32_t *token; int64_t n, c, v0, rows, row0;
                   bool bf16; };
/* flat vectors; piece: elements of an item */
struct cpu_flat { void *to; const void *from; double *partial; int64_t n, piece; bool bf16; };

struct cpu_simd {
    const char *name;       /* "avx2" */
    cpu_task_fn *gemm;      /* cpu_gemm; an item is a piece of C */
    /* Bias, activation and rounding of rows [i[0], i[1]) and columns [j[0], j[1]) of C, whose f32
     * sums are in `from` (which may be C itself). */
    void (*gemm_finish)(const struct cpu_gemm *w, struct cpu_target from, const int64_t i[2],
                        const int64_t j[2]);
    cpu_task_fn *norm;      /* cpu_norm; rows */
    cpu_task_fn *norm_grad; /* cpu_norm_grad, dx; rows */
    cpu_task_fn *norm_sums; /* cpu_norm_grad, dw and db; groups of CPU_COLS columns */
    cpu_task_fn *bias_grad; /* cpu_rows, y (c) f32 += sum of f; groups of CPU_COLS columns */
    cpu_task_fn *attn;      /* cpu_attn; tiles of queries x heads x sequences */
    cpu_task_fn *attn_delta; /* cpu_attn_grad; rows */
    cpu_task_fn *attn_grad; /* cpu_attn_grad; kv heads x sequences */
    cpu_task_fn *attn_grad_keys; /* cpu_attn_grad, dk and dv; tiles of keys x those */
    cpu_task_fn *attn_grad_queries; /* cpu_attn_grad, dq; tiles of queries x heads x sequences */
    cpu_task_fn *rope;      /* cpu_rope; rows */
    cpu_task_fn *swiglu, *swiglu_grad; /* cpu_swiglu; rows */
    cpu_task_fn *relu;      /* cpu_relu; runs of CPU_RUN elements */
    cpu_task_fn *residual;  /* cpu_rows; rows */
    cpu_task_fn *embed, *pos_add; /* cpu_table; rows */
    cpu_task_fn *embed_grad, *pos_grad; /* cpu_table; groups of CPU_COLS columns */
    cpu_task_fn *xent_max, *xent_sum, *xent_grad; /* cpu_xent; rows */
    cpu_task_fn *adamw;     /* cpu_adamw; runs of CPU_RUN elements */
    cpu_task_fn *sum, *sumsq, *cast, *add; /* cpu_flat; pieces */
    int attn_queries, attn_keys; /* of a tile */
    int gemm_rows, gemm_cols;    /* of the inner tile of a GEMM */
};

extern const struct cpu_simd cpu_simd_base;
#if defined(__x86_64__)
extern const struct cpu_simd cpu_simd_v3, cpu_simd_v4;
#endif

struct cpu {
    struct dev dev; /* first: a dev of this kind is a cpu */
    struct cpu_pool *pool; /* owned */
    const struct cpu_simd *simd;
    double partial[CPU_PARTIALS];
    bool bf16;
    bool tiles; /* GEMMs and attention on AMX tiles */
};

/* Operations that have a way here, X(kind, member of struct op, struct of its arguments, function).
 * None of them can fail; what is refused, cpu_run refuses. */
#define CPU_OPS(X)                                               \
    X(OP_GEMM, gemm, gemm, cpu_gemm)                             \
    X(OP_ATTN, attn, attn, cpu_attn)                             \
    X(OP_ATTN_GRAD, attn_grad, attn_grad, cpu_attn_grad)         \
    X(OP_BIAS_GRAD, bias_grad, bias_grad, cpu_bias_grad)         \
    X(OP_NORM, norm, norm, cpu_norm)                             \
    X(OP_NORM_GRAD, norm_grad, norm_grad, cpu_norm_grad)         \
    X(OP_ROPE, rope, rope, cpu_rope)                             \
    X(OP_SWIGLU, swiglu, swiglu, cpu_swiglu)                     \
    X(OP_SWIGLU_GRAD, swiglu_grad, swiglu_grad, cpu_swiglu_grad) \
    X(OP_RELU, relu, relu, cpu_relu)                             \
    X(OP_RELU_GRAD, relu_grad, relu_grad, cpu_relu_grad)         \
    X(OP_RESIDUAL, residual, residual, cpu_residual)             \
    X(OP_DROPOUT, dropout, dropout, cpu_dropout)                 \
    X(OP_EMBED, embed, embed, cpu_embed)                         \
    X(OP_EMBED_GRAD, embed_grad, embed_grad, cpu_embed_grad)     \
    X(OP_POS_ADD, pos_add, pos_add, cpu_pos_add)                 \
    X(OP_POS_GRAD, pos_grad, pos_grad, cpu_pos_grad)             \
    X(OP_XENT_MAX, xent_max, xent, cpu_xent_max)                 \
    X(OP_XENT_SUM, xent_sum, xent, cpu_xent_sum)                 \
    X(OP_XENT_GRAD, xent_grad, xent, cpu_xent_grad)              \
    X(OP_ADAMW, adamw, adamw, cpu_adamw)                         \
    X(OP_SUM, sum, sum, cpu_sum)                                 \
    X(OP_SUMSQ, sumsq, sumsq, cpu_sumsq)                         \
    X(OP_CAST, cast, flat, cpu_cast)                             \
    X(OP_ADD, add, flat, cpu_add)
#define CPU_OP(kind, member, type, call) void call(struct cpu *p, const struct type *a);
CPU_OPS(CPU_OP)
#undef CPU_OP

static inline struct cpu *cpu_of(struct dev *d)
{
    return (struct cpu *)d;
}

#endif
