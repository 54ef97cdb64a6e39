/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm and RMS norm. Rows are independent. The variance is taken around the mean in a second
 * pass over the row, which the cache still holds; where it overflows, rstd is NaN and so is the
 * row, for 1 / sqrt of infinity would make a healthy row of zeros. The gradients of w and b are
 * sums over rows: a second task takes groups of columns and walks all rows, in blocks of 128 rows
 * whose sums are then added, so that the order is the same for any number of threads.
 */
#ifndef PLAIT_DEVICE_CPU_SIMD_NORM_H
#define PLAIT_DEVICE_CPU_SIMD_NORM_H

#include "device/cpu/cpu_impl.h"
#include "device/cpu/simd_math.h"

enum {
    SUM_ROWS = 128,   /* rows summed in f32 before the sum is added to the whole */
    SUM_TOGETHER = 4, /* of them in one pass over the sums */
    SUM_COLS = 2048,  /* columns whose sums stay in the first cache */
};

/* Sum of x, or of (x - mean)^2, over a row; lanes beyond c stay out of it. */
SIMD_INLINE float norm_moment(const void *x, int64_t c, float mean, bool square, bool bf16)
{
    vf s0 = vf_set(0.0f), s1 = vf_set(0.0f);
    int64_t i = 0;
    for (; i + 2 * VL <= c; i += 2 * VL) {
        vf a = ct_load(x, i, c, bf16) - mean, b = ct_load(x, i + VL, c, bf16) - mean;
        s0 = square ? vf_fma(a, a, s0) : s0 + a;
        s1 = square ? vf_fma(b, b, s1) : s1 + b;
    }
    float s = vf_sum(s0 + s1);
    for (; i < c; i++) {
        float a = ct_get(x, i, bf16) - mean;
        s += square ? a * a : a;
    }
    return s;
}

SIMD_INLINE void norm_row(const struct norm *a, int64_t r, bool bf16)
{
    int64_t c = a->c;
    const void *x = ct_at(a->x, r * c, bf16);
    void *y = ct_to(a->y, r * c, bf16);
    float mean = a->rms ? 0.0f : norm_moment(x, c, 0.0f, false, bf16) / (float)c;
    float var = norm_moment(x, c, mean, true, bf16) / (float)c;
    float rstd = isfinite(var) ? 1.0f / sqrtf(var + (float)a->eps) : NAN;
    for (int64_t i = 0; i < c; i += VL) {
        vf v = (ct_load(x, i, c, bf16) - mean) * rstd * ct_load(a->w, i, c, bf16);
        if (a->b)
            v += ct_load(a->b, i, c, bf16);
        ct_store(y, i, c, v, bf16);
    }
    if (a->mean)
        ((float *)a->mean)[r] = mean;
    ((float *)a->rstd)[r] = rstd;
}

static inline void simd_norm(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_norm *w = arg;
    (void)scratch;
    for (int64_t r = first; r < last; r++) {
        if (w->bf16)
            norm_row(&w->a, r, true);
        else
            norm_row(&w->a, r, false);
    }
}

/* dx = d + rstd (g - mean(g) - xhat mean(g xhat)), g = dy w; without mean(g) for rms. */
SIMD_INLINE void norm_grad_row(const struct norm_grad *a, int64_t r, bool bf16)
{
    int64_t c = a->c;
    const void *x = ct_at(a->x, r * c, bf16), *dy = ct_at(a->dy, r * c, bf16);
    const void *d = a->d ? ct_at(a->d, r * c, bf16) : NULL;
    void *dx = ct_to(a->dx, r * c, bf16);
    float rstd = ((const float *)a->rstd)[r], mean = a->rms ? 0.0f : ((const float *)a->mean)[r];
    vf sum = vf_set(0.0f), dot = vf_set(0.0f);
    for (int64_t i = 0; i < c; i += VL) { /* beyond c, w is zero and so is g */
        vf g = ct_load(dy, i, c, bf16) * ct_load(a->w, i, c, bf16);
        sum += g;
        dot = vf_fma(g, ct_load(x, i, c, bf16) - mean, dot);
    }
    float mean_g = a->rms ? 0.0f : vf_sum(sum) / (float)c;
    float mean_dot = vf_sum(dot) * rstd * rstd / (float)c;
    for (int64_t i = 0; i < c; i += VL) {
        vf g = ct_load(dy, i, c, bf16) * ct_load(a->w, i, c, bf16);
        vf v = vf_fma(ct_load(x, i, c, bf16) - mean, vf_set(-mean_dot), g - mean_g) * rstd;
        if (d)
            v += ct_load(d, i, c, bf16);
        ct_store(dx, i, c, v, bf16);
    }
}

static inline void simd_norm_grad(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_norm_grad *w = arg;
    (void)scratch;
    for (int64_t r = first; r < last; r++) {
        if (w->bf16)
            norm_grad_row(&w->a, r, true);
        else
            norm_grad_row(&w->a, r, false);
    }
}

/* Sums over rows are gathered in scratch for all columns of a hand-out, SUM_TOGETHER rows a pass:
 * rows are read in memory order, and the order of the additions is that of the rows. */
static inline void sums_add(float *to, const float *sum, int64_t n)
{
    for (int64_t j = 0; j < n; j += VL)
        ct_store(to, j, n, ct_load(to, j, n, false) + vf_load(sum + j), false);
}

/* dw[0..n) and db[0..n) += rows [r, r + rows) of columns [j, j + n). */
SIMD_INLINE void norm_sums_rows(const struct norm_grad *a, const int64_t at[3], int rows,
                                  float *sum, bool bf16)
{
    int64_t r = at[0], j = at[1], n = at[2];
    const void *x = ct_at(a->x, r * a->c + j, bf16), *dy = ct_at(a->dy, r * a->c + j, bf16);
    const float *rstd = (const float *)a->rstd + r;
    const float *mean = a->rms ? NULL : (const float *)a->mean + r;
    float *dw = sum, *db = sum + (n + VL - 1) / VL * VL;
    for (int64_t i = 0; i < n; i += VL) {
        vf w = vf_load(dw + i), b = vf_load(db + i);
        for (int q = 0; q < rows; q++) {
            vf g = ct_load(ct_at(dy, q * a->c, bf16), i, n, bf16);
            vf v = ct_load(ct_at(x, q * a->c, bf16), i, n, bf16);
            w = vf_fma(g, (mean ? v - mean[q] : v) * rstd[q], w);
            b += g;
        }
        vf_store(dw + i, w);
        vf_store(db + i, b);
    }
}

/* Columns [j, j + n) of dw and db. */
SIMD_INLINE void norm_sums_range(const struct norm_grad *a, int64_t j, int64_t n, float *sum,
                                   bool bf16)
{
    int64_t wide = (n + VL - 1) / VL * VL;
    for (int64_t r0 = 0; r0 < a->n; r0 += SUM_ROWS) {
        int64_t at[3] = {r0, j, n}, end = num_min(r0 + SUM_ROWS, a->n);
        memset(sum, 0, (size_t)(2 * wide) * sizeof *sum);
        for (; at[0] + SUM_TOGETHER <= end; at[0] += SUM_TOGETHER)
            norm_sums_rows(a, at, SUM_TOGETHER, sum, bf16);
        for (; at[0] < end; at[0]++)
            norm_sums_rows(a, at, 1, sum, bf16);
        sums_add((float *)a->dw + j, sum, n);
        if (a->db)
            sums_add((float *)a->db + j, sum + wide, n);
    }
}

static inline void simd_norm_sums(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_norm_grad *w = arg;
    int64_t end = num_min(last * CPU_COLS, w->a.c);
    for (int64_t j = first * CPU_COLS; j < end; j += SUM_COLS) {
        if (w->bf16)
            norm_sums_range(&w->a, j, num_min(SUM_COLS, end - j), scratch, true);
        else
            norm_sums_range(&w->a, j, num_min(SUM_COLS, end - j), scratch, false);
    }
}

SIMD_INLINE void bias_rows(const struct cpu_rows *w, const int64_t at[3], int rows, float *sum,
                             bool bf16)
{
    const void *f = ct_at(w->f, at[0] * w->c + at[1], bf16);
    for (int64_t i = 0; i < at[2]; i += VL) {
        vf s = vf_load(sum + i);
        for (int q = 0; q < rows; q++)
            s += ct_load(ct_at(f, q * w->c, bf16), i, at[2], bf16);
        vf_store(sum + i, s);
    }
}

SIMD_INLINE void bias_range(const struct cpu_rows *w, int64_t j, int64_t n, float *sum,
                              bool bf16)
{
    for (int64_t r0 = 0; r0 < w->n; r0 += SUM_ROWS) {
        int64_t at[3] = {r0, j, n}, end = num_min(r0 + SUM_ROWS, w->n);
        memset(sum, 0, (size_t)(n + VL) * sizeof *sum);
        for (; at[0] + SUM_TOGETHER <= end; at[0] += SUM_TOGETHER)
            bias_rows(w, at, SUM_TOGETHER, sum, bf16);
        for (; at[0] < end; at[0]++)
            bias_rows(w, at, 1, sum, bf16);
        sums_add((float *)w->y + j, sum, n);
    }
}

static inline void simd_bias_grad(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_rows *w = arg;
    int64_t end = num_min(last * CPU_COLS, w->c);
    for (int64_t j = first * CPU_COLS; j < end; j += SUM_COLS) {
        if (w->bf16)
            bias_range(w, j, num_min(SUM_COLS, end - j), scratch, true);
        else
            bias_range(w, j, num_min(SUM_COLS, end - j), scratch, false);
    }
}

#endif
