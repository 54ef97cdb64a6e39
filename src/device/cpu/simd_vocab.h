/* SPDX-License-Identifier: Apache-2.0
 *
 * Embedding by token and by position, and cross entropy. Gradients of tables are scattered by
 * groups of columns: a thread walks all rows in order for its columns, so that two rows that meet
 * in one row of the table are added in the same order always.
 *
 * Cross entropy sums exp in f32 over chunks of columns and the chunks in f64: a vocabulary is long.
 */
#ifndef PLAIT_DEVICE_CPU_SIMD_VOCAB_H
#define PLAIT_DEVICE_CPU_SIMD_VOCAB_H

#include "device/cpu/cpu_impl.h"
#include "device/cpu/simd_math.h"

enum { XENT_CHUNK = 1024 }; /* columns, a multiple of every VL */

/* Row of the table for row r, or -1. */
static inline int64_t table_row(const struct cpu_table *w, int64_t r)
{
    if (!w->token)
        return (w->row0 + r) % w->rows;
    int64_t row = w->token[r] - w->v0;
    return row >= 0 && row < w->rows ? row : -1;
}

static inline void simd_embed(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_table *w = arg;
    size_t bytes = (size_t)w->c * (w->bf16 ? 2 : 4);
    (void)scratch;
    for (int64_t r = first; r < last; r++) {
        int64_t row = table_row(w, r);
        void *to = ct_to(w->to, r * w->c, w->bf16);
        if (row < 0)
            memset(to, 0, bytes);
        else
            memcpy(to, ct_at(w->from, row * w->c, w->bf16), bytes);
    }
}

static inline void simd_pos_add(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_table *w = arg;
    (void)scratch;
    for (int64_t r = first; r < last; r++) {
        void *to = ct_to(w->to, r * w->c, w->bf16);
        const void *from = ct_at(w->from, table_row(w, r) * w->c, w->bf16);
        for (int64_t i = 0; i < w->c; i += VL)
            ct_store(to, i, w->c, ct_load(to, i, w->c, w->bf16) + ct_load(from, i, w->c, w->bf16),
                     w->bf16);
    }
}

/* to (rows, c) f32 += rows of from, scattered; embed_grad and pos_grad. */
static inline void simd_scatter(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_table *w = arg;
    int64_t j = first * CPU_COLS, n = num_min(last * CPU_COLS, w->c) - j;
    (void)scratch;
    for (int64_t r = 0; r < w->n; r++) {
        int64_t row = table_row(w, r);
        if (row < 0)
            continue;
        float *to = (float *)w->to + row * w->c + j;
        const void *from = ct_at(w->from, r * w->c + j, w->bf16);
        for (int64_t i = 0; i < n; i += VL)
            ct_store(to, i, n, ct_load(to, i, n, false) + ct_load(from, i, n, w->bf16), false);
    }
}

static inline void simd_xent_max(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_xent *w = arg;
    const struct xent *a = &w->a;
    (void)scratch;
    for (int64_t r = first; r < last; r++) {
        const float *x = (const float *)a->logits + r * a->ld;
        vf m = vf_set(-INFINITY);
        int64_t i = 0;
        for (; i + VL <= a->v; i += VL)
            m = vf_max(vf_load(x + i), m);
        float top = vf_top(m);
        for (; i < a->v; i++)
            top = x[i] > top ? x[i] : top;
        ((float *)a->max)[r] = top;
    }
}

static inline void simd_xent_sum(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_xent *w = arg;
    const struct xent *a = &w->a;
    (void)scratch;
    for (int64_t r = first; r < last; r++) {
        const float *x = (const float *)a->logits + r * a->ld;
        float max = ((const float *)a->max)[r];
        double sum = 0.0;
        for (int64_t j = 0; j < a->v; j += XENT_CHUNK) {
            vf s = vf_set(0.0f);
            int64_t i = j, end = num_min(j + XENT_CHUNK, a->v);
            for (; i + VL <= end; i += VL)
                s += vf_exp(vf_load(x + i) - max);
            sum += (double)vf_sum(s);
            for (; i < end; i++)
                sum += (double)expf(x[i] - max);
        }
        int64_t column = a->target[r] < 0 ? -1 : a->target[r] - a->v0;
        ((float *)a->sum)[r] = (float)sum;
        ((float *)a->target_logit)[r] = column >= 0 && column < a->v ? x[column] : 0.0f;
    }
}

/* dlogits of a row: exp(x - max) / sum, less 1 at the target; zeros for columns v to ld. */
SIMD_INLINE void xent_grad_row(const struct xent *a, int64_t r, bool bf16)
{
    const float *x = (const float *)a->logits + r * a->ld;
    void *to = ct_to(a->dlogits, r * a->ld, bf16);
    if (a->target[r] < 0) {
        memset(to, 0, (size_t)a->ld * (bf16 ? 2 : 4));
        return;
    }
    float max = ((const float *)a->max)[r], inverse = 1.0f / ((const float *)a->sum)[r];
    for (int64_t i = 0; i < a->v; i += VL)
        ct_store(to, i, a->v, vf_exp(ct_load(x, i, a->v, false) - max) * inverse, bf16);
    memset(ct_to(to, a->v, bf16), 0, (size_t)(a->ld - a->v) * (bf16 ? 2 : 4));
    int64_t column = a->target[r] - a->v0;
    if (column >= 0 && column < a->v) {
        vf p = vf_exp(vf_set(x[column] - max)) * inverse - 1.0f;
        ct_put(to, column, p[0], bf16);
    }
}

static inline void simd_xent_grad(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_xent *w = arg;
    const struct xent *a = &w->a;
    (void)scratch;
    for (int64_t r = first; r < last; r++) {
        float max = ((const float *)a->max)[r], sum = ((const float *)a->sum)[r];
        float loss = logf(sum) + max - ((const float *)a->target_logit)[r];
        ((float *)a->loss)[r] = a->target[r] < 0 ? 0.0f : loss;
        if (!a->dlogits)
            continue;
        if (w->bf16)
            xent_grad_row(a, r, true);
        else
            xent_grad_row(a, r, false);
    }
}

#endif
