/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels over flat vectors: AdamW in one pass (the bf16 weight is written in the same pass as its
 * f32 master), ReLU, sums in f64, casts, additions. All are bound by memory.
 */
#ifndef PLAIT_DEVICE_CPU_SIMD_FLAT_H
#define PLAIT_DEVICE_CPU_SIMD_FLAT_H

#include "device/cpu/cpu_impl.h"
#include "device/cpu/simd_math.h"

/* Elements i .. end - 1, all of which decay by `decay`. */
SIMD_INLINE void adamw_range(const struct cpu_adamw *of, double decay, int64_t i, int64_t end,
                             bool bf16)
{
    const struct adamw *a = &of->a;
    float *master = a->master ? a->master : a->w;
    bool copy = a->master != NULL;
    const double *scalars = a->step_scalars;
    double lr = scalars[SCALAR_LR];
    float beta1 = (float)a->beta1, rest1 = (float)(1.0 - a->beta1);
    float beta2 = (float)a->beta2, rest2 = (float)(1.0 - a->beta2);
    float step = (float)(lr / scalars[SCALAR_BIAS1]);
    float root = (float)(1.0 / sqrt(scalars[SCALAR_BIAS2]));
    float keep = (float)(1.0 - lr * decay), scale = (float)scalars[SCALAR_SCALE];
    float eps = (float)a->eps;
    for (; i < end; i += VL) {
        vf g = ct_load(a->grad, i, end, false) * scale;
        vf m = ct_load(a->m, i, end, false) * beta1;
        m = vf_fma(g, vf_set(rest1), m);
        vf v = ct_load(a->v, i, end, false) * beta2;
        v = vf_fma(g * g, vf_set(rest2), v);
        vf w = ct_load(master, i, end, false) * keep;
        w -= step * m / vf_fma(vf_sqrt(v), vf_set(root), vf_set(eps));
        ct_store(a->m, i, end, m, false);
        ct_store(a->v, i, end, v, false);
        ct_store(master, i, end, w, false);
        if (copy)
            ct_store(a->w, i, end, w, bf16);
    }
}

static inline void simd_adamw(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_adamw *w = arg;
    const struct dev_ranges *decays = w->a.decays;
    int64_t end = num_min(last * CPU_RUN, w->a.n), stop;
    int bound = 0; /* bounds at or below i: an odd number inside a range */
    (void)scratch;
    for (int64_t i = first * CPU_RUN; i < end; i = stop) {
        while (bound < 2 * decays->n && decays->bound[bound] <= i)
            bound++;
        stop = bound < 2 * decays->n ? num_min(decays->bound[bound], end) : end;
        if (w->bf16)
            adamw_range(w, bound & 1 ? w->a.decay : 0, i, stop, true);
        else
            adamw_range(w, bound & 1 ? w->a.decay : 0, i, stop, false);
    }
}

SIMD_INLINE void relu_range(const struct relu_grad *a, int64_t i, int64_t end, bool bf16)
{
    for (; i < end; i += VL) {
        vi off = (vi)(ct_load(a->x, i, end, bf16) <= 0.0f);
        ct_store(a->dx, i, end, vf_select(off, vf_set(0.0f), ct_load(a->dy, i, end, bf16)), bf16);
    }
}

static inline void simd_relu(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_relu *w = arg;
    int64_t i = first * CPU_RUN, end = num_min(last * CPU_RUN, w->a.n);
    (void)scratch;
    if (w->bf16)
        relu_range(&w->a, i, end, true);
    else
        relu_range(&w->a, i, end, false);
}

/* Sum of x or of x^2 over n elements, in f64. */
SIMD_INLINE double flat_sum(const float *x, int64_t n, bool square)
{
    enum { HALF = VL / 2 };
    vd s0 = {0}, s1 = {0};
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        vf_half lo, hi;
        memcpy(&lo, x + i, sizeof lo);
        memcpy(&hi, x + i + HALF, sizeof hi);
        vd a = __builtin_convertvector(lo, vd), b = __builtin_convertvector(hi, vd);
        s0 += square ? a * a : a;
        s1 += square ? b * b : b;
    }
    double sum = 0.0;
    s0 += s1;
    for (int l = 0; l < HALF; l++)
        sum += s0[l];
    for (; i < n; i++)
        sum += square ? (double)x[i] * (double)x[i] : (double)x[i];
    return sum;
}

static inline void simd_sum(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_flat *w = arg;
    (void)scratch;
    for (int64_t p = first; p < last; p++) {
        int64_t i = p * w->piece, end = num_min(i + w->piece, w->n);
        w->partial[p] = flat_sum((const float *)w->from + i, end - i, false);
    }
}

static inline void simd_sumsq(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_flat *w = arg;
    (void)scratch;
    for (int64_t p = first; p < last; p++) {
        int64_t i = p * w->piece, end = num_min(i + w->piece, w->n);
        w->partial[p] = flat_sum((const float *)w->from + i, end - i, true);
    }
}

static inline void simd_cast(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_flat *w = arg;
    int64_t i = first * w->piece, end = num_min(last * w->piece, w->n);
    (void)scratch;
    if (!w->bf16) {
        memcpy((float *)w->to + i, (const float *)w->from + i, (size_t)(end - i) * sizeof(float));
        return;
    }
    for (; i < end; i += VL)
        ct_store(w->to, i, end, ct_load(w->from, i, end, false), true);
}

static inline void simd_add(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_flat *w = arg;
    int64_t i = first * w->piece, end = num_min(last * w->piece, w->n);
    (void)scratch;
    for (; i < end; i += VL)
        ct_store(w->to, i, end,
                 ct_load(w->to, i, end, false) + ct_load(w->from, i, end, false), false);
}

#endif
