/* SPDX-License-Identifier: Apache-2.0
 *
 * GEMMs: on tiles (cpu_gemm_amx.c) or on vectors. For these, C is cut into pieces, a piece is an
 * item of the pool, and each is one single-threaded GEMM. Pieces are halved along their longer
 * side, in whole inner tiles, until there are a few for each thread (so that a slow one does not
 * make the others wait) or until a piece would be too small to be worth packing its operands.
 */
#include "device/cpu/cpu_amx.h"
#include "device/cpu/cpu_impl.h"

enum {
    PIECES = 2,           /* for each thread */
    PIECE_FLOPS = 1 << 20 /* of the smallest piece */
};

static int64_t halved(int64_t n, int64_t unit)
{
    return num_ceil_div(num_ceil_div(n, 2), unit) * unit;
}

static void cut(struct cpu_gemm *w, const struct cpu *p)
{
    const struct gemm *g = w->g;
    int64_t threads = p->dev.threads, unit_m = p->simd->gemm_rows;
    int64_t unit_n = p->simd->gemm_cols, want = threads == 1 ? 1 : PIECES * threads;
    w->rows = g->m;
    w->cols = g->n;
    while (num_ceil_div(g->m, w->rows) * num_ceil_div(g->n, w->cols) < want) {
        bool tall = w->rows > w->cols;
        double flops = (double)w->rows * (double)w->cols * (double)g->k;
        if (flops < PIECE_FLOPS || (tall ? w->rows <= unit_m : w->cols <= unit_n))
            break;
        if (tall)
            w->rows = halved(w->rows, unit_m);
        else
            w->cols = halved(w->cols, unit_n);
    }
    w->across = num_ceil_div(g->n, w->cols);
}

void cpu_gemm(struct cpu *p, const struct gemm *g)
{
    ENSURE(!g->db || (g->trans_a && (!g->lda || g->lda == g->m)));
    if (g->db && !g->accumulate)
        memset(g->db, 0, (size_t)(g->m * dtype_size(p->dev.at)));
    if (g->db)
        cpu_bias_grad(p, &(struct bias_grad){g->db, g->a, g->k, g->m});
    if (g->m == 0 || g->n == 0)
        return;
    struct cpu_gemm w = {
        .g = g,
        .lda = g->lda ? g->lda : g->trans_a ? g->m : g->k,
        .ldb = g->ldb ? g->ldb : g->trans_b ? g->k : g->n,
        .ldc = g->ldc ? g->ldc : g->n,
        .bf16 = p->bf16,
        .bf16_c = p->bf16 && !g->c_at,
    };
    if (p->tiles && g->k > 0) {
        cpu_amx_gemm(p, &w);
        return;
    }
    cut(&w, p);
    cpu_pool_run(p->pool, p->simd->gemm, &w, num_ceil_div(g->m, w.rows) * w.across, 1);
}
