/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that touch each element of a row once: residual and dropout, rotary positions, SwiGLU.
 * All are bound by memory; what matters is one pass and whole vectors.
 */
#ifndef PLAIT_DEVICE_CPU_SIMD_ROWS_H
#define PLAIT_DEVICE_CPU_SIMD_ROWS_H

#include "device/cpu/cpu_impl.h"
#include "device/cpu/simd_drop.h"
#include "device/cpu/simd_math.h"

enum { ROW_CHUNK = 1024 }; /* elements whose dropout factors are made at a time */

SIMD_INLINE void residual_row(const struct cpu_rows *w, int64_t r, float *factor, bool bf16)
{
    int64_t c = w->c;
    const void *x = w->x ? ct_at(w->x, r * c, bf16) : NULL, *f = ct_at(w->f, r * c, bf16);
    void *y = ct_to(w->y, r * c, bf16);
    bool drop = w->drop.p > 0.0;
    for (int64_t j = 0; j < c; j += ROW_CHUNK) {
        int64_t end = num_min(j + ROW_CHUNK, c);
        if (drop)
            drop_factors(&w->drop, (w->drop.row0 + r) * c + j, factor, end - j);
        for (int64_t i = j; i < end; i += VL) {
            vf v = ct_load(f, i, end, bf16);
            if (w->bias)
                v += ct_load(w->bias, i, end, bf16);
            if (drop)
                v *= ct_load(factor, i - j, end - j, false);
            if (x)
                v += ct_load(x, i, end, bf16);
            ct_store(y, i, end, v, bf16);
        }
    }
}

static inline void simd_residual(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_rows *w = arg;
    for (int64_t r = first; r < last; r++) {
        if (w->bf16)
            residual_row(w, r, scratch, true);
        else
            residual_row(w, r, scratch, false);
    }
}

/* One head: (x, y) -> (x cos - y sin, y cos + x sin), sin negated to rotate back. */
SIMD_INLINE void rope_head(const struct rope *a, int64_t at, const float *angle, bool bf16)
{
    int64_t h = a->d / 2;
    void *lo = ct_to(a->x, at, bf16), *hi = ct_to(a->x, at + h, bf16);
    float sign = a->inverse ? -1.0f : 1.0f;
    for (int64_t i = 0; i < h; i += VL) {
        vf x = ct_load(lo, i, h, bf16), y = ct_load(hi, i, h, bf16);
        vf cos = ct_load(angle, i, h, false), sin = ct_load(angle + h, i, h, false) * sign;
        ct_store(lo, i, h, vf_fma(x, cos, -(y * sin)), bf16);
        ct_store(hi, i, h, vf_fma(y, cos, x * sin), bf16);
    }
}

static inline void simd_rope(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_rope *w = arg;
    const struct rope *a = &w->a;
    (void)scratch;
    for (int64_t r = first; r < last; r++) {
        const float *angle = (const float *)a->table + (a->pos0 + r % a->t) * a->d;
        for (int64_t h = 0; h < a->heads; h++) {
            if (w->bf16)
                rope_head(a, r * a->ld + h * a->d, angle, true);
            else
                rope_head(a, r * a->ld + h * a->d, angle, false);
        }
    }
}

SIMD_INLINE void swiglu_row(const struct cpu_swiglu *w, int64_t r, bool bf16)
{
    int64_t f = w->f;
    const void *gate = ct_at(w->gu, r * 2 * f, bf16), *up = ct_at(w->gu, r * 2 * f + f, bf16);
    void *out = ct_to(w->out, r * f, bf16);
    for (int64_t i = 0; i < f; i += VL) {
        vf g = ct_load(gate, i, f, bf16);
        ct_store(out, i, f, g * vf_sigmoid(g) * ct_load(up, i, f, bf16), bf16);
    }
}

static inline void simd_swiglu(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_swiglu *w = arg;
    (void)scratch;
    for (int64_t r = first; r < last; r++) {
        if (w->bf16)
            swiglu_row(w, r, true);
        else
            swiglu_row(w, r, false);
    }
}

/* silu'(g) = s (1 + g (1 - s)). */
SIMD_INLINE void swiglu_grad_row(const struct cpu_swiglu *w, int64_t r, bool bf16)
{
    int64_t f = w->f;
    const void *gate = ct_at(w->gu, r * 2 * f, bf16), *up = ct_at(w->gu, r * 2 * f + f, bf16);
    const void *dout = ct_at(w->dout, r * f, bf16);
    void *dgate = ct_to(w->out, r * 2 * f, bf16), *dup = ct_to(w->out, r * 2 * f + f, bf16);
    for (int64_t i = 0; i < f; i += VL) {
        vf g = ct_load(gate, i, f, bf16), u = ct_load(up, i, f, bf16);
        vf d = ct_load(dout, i, f, bf16), s = vf_sigmoid(g);
        ct_store(dgate, i, f, d * u * s * (1.0f + g * (1.0f - s)), bf16);
        ct_store(dup, i, f, d * g * s, bf16);
    }
}

static inline void simd_swiglu_grad(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_swiglu *w = arg;
    (void)scratch;
    for (int64_t r = first; r < last; r++) {
        if (w->bf16)
            swiglu_grad_row(w, r, true);
        else
            swiglu_grad_row(w, r, false);
    }
}

#endif
