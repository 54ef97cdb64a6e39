/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm and RMS norm. Rows are independent. The variance is taken around the mean in a second
 * pass over the row, which the cache still holds. The gradients of w and b are sums over rows: a
 * second task takes groups of columns and walks all rows, in blocks of 128 rows whose sums are then
 * added, so that the order is the same for any number of threads.
 */
#ifndef PLAIT_DEVICE_CPU_SIMD_NORM_H
#define PLAIT_DEVICE_CPU_SIMD_NORM_H

#include "device/cpu/cpu_impl.h"
#include "device/cpu/simd_math.h"

enum { SUM_ROWS = 128 }; /* rows summed in f32 before the sum is added to the whole */

/* Sum of x, or of (x - mean)^2, over a row; lanes beyond c stay out of it. */
static inline float norm_moment(const void *x, int64_t c, float mean, bool square, bool half)
{
    vf s0 = vf_set(0.0f), s1 = vf_set(0.0f);
    int64_t i = 0;
    for (; i + 2 * VL <= c; i += 2 * VL) {
        vf a = ct_load(x, i, c, half) - mean, b = ct_load(x, i + VL, c, half) - mean;
        s0 += square ? a * a : a;
        s1 += square ? b * b : b;
    }
    float s = vf_sum(s0 + s1);
    for (; i < c; i++) {
        float a = ct_get(x, i, half) - mean;
        s += square ? a * a : a;
    }
    return s;
}

static inline void norm_row(const struct norm *a, int64_t r, bool half)
{
    int64_t c = a->c;
    const void *x = ct_at(a->x, r * c, half);
    void *y = ct_to(a->y, r * c, half);
    float mean = a->rms ? 0.0f : norm_moment(x, c, 0.0f, false, half) / (float)c;
    float var = norm_moment(x, c, mean, true, half) / (float)c;
    float rstd = 1.0f / sqrtf(var + (float)a->eps);
    for (int64_t i = 0; i < c; i += VL) {
        vf v = (ct_load(x, i, c, half) - mean) * rstd * ct_load(a->w, i, c, half);
        if (a->b)
            v += ct_load(a->b, i, c, half);
        ct_store(y, i, c, v, half);
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
        if (w->half)
            norm_row(&w->a, r, true);
        else
            norm_row(&w->a, r, false);
    }
}

/* dx = d + rstd (g - mean(g) - xhat mean(g xhat)), g = dy w; without mean(g) for rms. */
static inline void norm_grad_row(const struct norm_grad *a, int64_t r, bool half)
{
    int64_t c = a->c;
    const void *x = ct_at(a->x, r * c, half), *dy = ct_at(a->dy, r * c, half);
    const void *d = a->d ? ct_at(a->d, r * c, half) : NULL;
    void *dx = ct_to(a->dx, r * c, half);
    float rstd = ((const float *)a->rstd)[r], mean = a->rms ? 0.0f : ((const float *)a->mean)[r];
    vf sum = vf_set(0.0f), dot = vf_set(0.0f);
    for (int64_t i = 0; i < c; i += VL) { /* beyond c, w is zero and so is g */
        vf g = ct_load(dy, i, c, half) * ct_load(a->w, i, c, half);
        sum += g;
        dot += g * (ct_load(x, i, c, half) - mean);
    }
    float mean_g = a->rms ? 0.0f : vf_sum(sum) / (float)c;
    float mean_dot = vf_sum(dot) * rstd * rstd / (float)c;
    for (int64_t i = 0; i < c; i += VL) {
        vf g = ct_load(dy, i, c, half) * ct_load(a->w, i, c, half);
        vf v = (g - mean_g - (ct_load(x, i, c, half) - mean) * mean_dot) * rstd;
        if (d)
            v += ct_load(d, i, c, half);
        ct_store(dx, i, c, v, half);
    }
}

static inline void simd_norm_grad(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_norm_grad *w = arg;
    (void)scratch;
    for (int64_t r = first; r < last; r++) {
        if (w->half)
            norm_grad_row(&w->a, r, true);
        else
            norm_grad_row(&w->a, r, false);
    }
}

/* to[j] += sum, for the columns of a group that exist. */
static inline void sums_add(float *to, const vf *sum, int64_t n)
{
    for (int64_t j = 0; j < n; j += VL)
        ct_store(to, j, n, ct_load(to, j, n, false) + sum[j / VL], false);
}

/* Columns [j, j + n) of dw and db, n <= CPU_COLS. */
static inline void norm_sums_group(const struct norm_grad *a, int64_t j, int64_t n, bool half)
{
    const float *rstd = a->rstd, *mean = a->rms ? NULL : a->mean;
    for (int64_t r0 = 0; r0 < a->n; r0 += SUM_ROWS) {
        vf dw[CPU_COLS / VL], db[CPU_COLS / VL];
        for (int v = 0; v < CPU_COLS / VL; v++)
            dw[v] = db[v] = vf_set(0.0f);
        for (int64_t r = r0; r < num_min(r0 + SUM_ROWS, a->n); r++) {
            const void *x = ct_at(a->x, r * a->c + j, half);
            const void *dy = ct_at(a->dy, r * a->c + j, half);
            float m = mean ? mean[r] : 0.0f;
            for (int64_t i = 0; i < n; i += VL) {
                vf g = ct_load(dy, i, n, half);
                dw[i / VL] += g * ((ct_load(x, i, n, half) - m) * rstd[r]);
                db[i / VL] += g;
            }
        }
        sums_add((float *)a->dw + j, dw, n);
        if (a->db)
            sums_add((float *)a->db + j, db, n);
    }
}

static inline void simd_norm_sums(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_norm_grad *w = arg;
    (void)scratch;
    for (int64_t group = first; group < last; group++) {
        int64_t j = group * CPU_COLS, n = num_min(CPU_COLS, w->a.c - j);
        if (w->half)
            norm_sums_group(&w->a, j, n, true);
        else
            norm_sums_group(&w->a, j, n, false);
    }
}

static inline void bias_group(const struct cpu_rows *w, int64_t j, int64_t n, bool half)
{
    for (int64_t r0 = 0; r0 < w->n; r0 += SUM_ROWS) {
        vf db[CPU_COLS / VL];
        for (int v = 0; v < CPU_COLS / VL; v++)
            db[v] = vf_set(0.0f);
        for (int64_t r = r0; r < num_min(r0 + SUM_ROWS, w->n); r++)
            for (int64_t i = 0; i < n; i += VL)
                db[i / VL] += ct_load(ct_at(w->f, r * w->c + j, half), i, n, half);
        sums_add((float *)w->y + j, db, n);
    }
}

static inline void simd_bias_grad(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_rows *w = arg;
    (void)scratch;
    for (int64_t group = first; group < last; group++) {
        int64_t j = group * CPU_COLS, n = num_min(CPU_COLS, w->c - j);
        if (w->half)
            bias_group(w, j, n, true);
        else
            bias_group(w, j, n, false);
    }
}

#endif
