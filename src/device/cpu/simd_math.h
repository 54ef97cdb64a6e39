/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of VL floats, written once with the vector types of gcc and clang and compiled once for
 * each instruction set (cpu_simd_base.c, _v3.c, _v4.c): VL is 4, 8 or 16. Elements of type ct are
 * read and written through ct_load and ct_store, which take f32 or bf16 by a constant argument
 * `bf16`, so that each kernel is written once for both types.
 *
 * exp is 2^n (1 + r + r^2 q(r)) with |r| <= ln 2 / 2 and q of degree 4, fitted for relative error:
 * 3e-9 of the polynomial, below 2e-7 with rounding. NaN goes through, whatever its bits; below
 * -87.3 the result is 0, above 88.7 infinity.
 */
#ifndef PLAIT_DEVICE_CPU_SIMD_MATH_H
#define PLAIT_DEVICE_CPU_SIMD_MATH_H

#include "base/num.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#define VL 16
#elif defined(__AVX2__) && defined(__FMA__)
#define VL 8
#else
#define VL 4
#endif

/* Kernels are told the type of ct by a constant argument, so they must be inlined where it is. */
#define SIMD_INLINE static inline __attribute__((always_inline))

/* The only type names of their own: compilers know vectors by typedef alone. */
typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4)));
typedef uint64_t vul __attribute__((vector_size(VL * 4)));
typedef uint16_t vh __attribute__((vector_size(VL * 2)));
typedef float vf_half __attribute__((vector_size(VL * 2)));
typedef double vd __attribute__((vector_size(VL * 4)));

SIMD_INLINE vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

SIMD_INLINE void vf_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

/* x - 0 is x for every x, so that compilers drop the subtraction. */
SIMD_INLINE vf vf_set(float x)
{
    return x - (vf){0};
}

/* a b + c, rounded once where the processor can. Compilers are told not to fuse on their own: which
 * of two products they would fuse may differ between the body and the tail of one loop. */
SIMD_INLINE vf vf_fma(vf a, vf b, vf c)
{
#if VL == 16
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif VL == 8
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

SIMD_INLINE vf vf_select(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

/* a0 b0 a1 b1 ... of the lower and of the upper halves. */
SIMD_INLINE vf vf_zip_low(vf a, vf b)
{
#if VL == 16
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif VL == 8
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#endif
}

SIMD_INLINE vf vf_zip_high(vf a, vf b)
{
#if VL == 16
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
#elif VL == 8
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

/* Low and high 32 bits of a * m. */
SIMD_INLINE vu vu_multiply(vu a, uint32_t m, vu *high)
{
    vul even, odd = (vul)a >> 32;
#if VL == 16
    __m512i by = _mm512_set1_epi64((long long)m);
    even = (vul)_mm512_mul_epu32((__m512i)a, by);
    odd = (vul)_mm512_mul_epu32((__m512i)odd, by);
#elif VL == 8
    __m256i by = _mm256_set1_epi64x((long long)m);
    even = (vul)_mm256_mul_epu32((__m256i)a, by);
    odd = (vul)_mm256_mul_epu32((__m256i)odd, by);
#else
    even = ((vul)a & 0xffffffffu) * m;
    odd = odd * m;
#endif
    *high = (vu)((even >> 32) | (odd & 0xffffffff00000000u));
    return (vu)((even & 0xffffffffu) | (odd << 32));
}

/* Where either is NaN: b. */
SIMD_INLINE vf vf_max(vf a, vf b)
{
#if VL == 16
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif VL == 8
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vf_select((vi)(a > b), a, b);
#endif
}

SIMD_INLINE vf vf_min(vf a, vf b)
{
#if VL == 16
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif VL == 8
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return vf_select((vi)(a < b), a, b);
#endif
}

SIMD_INLINE vf vf_sqrt(vf x)
{
#if VL == 16
    return (vf)_mm512_sqrt_ps((__m512)x);
#elif VL == 8
    return (vf)_mm256_sqrt_ps((__m256)x);
#else
    for (int i = 0; i < VL; i++)
        x[i] = sqrtf(x[i]);
    return x;
#endif
}

/* Sum of the lanes, by halves: one fixed order, (0 + 8) + (4 + 12) and so on. Each lane has it in
 * the end, so that no step leaves the vector. */
SIMD_INLINE float vf_sum(vf v)
{
#if VL == 16
    v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    v += __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#elif VL == 8
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
    v += __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
#else
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1);
    v += __builtin_shufflevector(v, v, 1, 0, 3, 2);
#endif
    return v[0];
}

/* Maximum of the lanes. */
SIMD_INLINE float vf_top(vf v)
{
    float lane[VL];
    memcpy(lane, &v, sizeof lane);
    for (int i = 1; i < VL; i++)
        lane[0] = lane[i] > lane[0] ? lane[i] : lane[0];
    return lane[0];
}

/* gcc 12 converts 16 elements in two halves by way of memory; the processor does it at once. */
SIMD_INLINE vf vf_from_bf16(const uint16_t *p)
{
    vh h;
    memcpy(&h, p, sizeof h);
#if VL == 16
    return (vf)((vu)_mm512_cvtepu16_epi32((__m256i)h) << 16);
#else
    return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}

/* To nearest, ties to even; NaN stays NaN (as bf16_from_f32). */
SIMD_INLINE void vf_to_bf16(uint16_t *p, vf v)
{
    vu u = (vu)v;
    vu round = u + 0x7fffu + ((u >> 16) & 1u);
    vi nan = (vi)(v != v);
    vu r = (((vu)nan & (u | 0x400000u)) | (~(vu)nan & round)) >> 16;
#if VL == 16
    vh h = (vh)_mm512_cvtepi32_epi16((__m512i)r);
#else
    vh h = __builtin_convertvector(r, vh);
#endif
    memcpy(p, &h, sizeof h);
}

SIMD_INLINE float ct_get(const void *p, int64_t i, bool bf16)
{
    return bf16 ? bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

SIMD_INLINE void ct_put(void *p, int64_t i, float x, bool bf16)
{
    if (bf16)
        ((uint16_t *)p)[i] = bf16_from_f32(x);
    else
        ((float *)p)[i] = x;
}

/* Elements i..i+VL-1 of p, which has n; zeros beyond. */
SIMD_INLINE vf ct_load(const void *p, int64_t i, int64_t n, bool bf16)
{
    if (i + VL <= n)
        return bf16 ? vf_from_bf16((const uint16_t *)p + i) : vf_load((const float *)p + i);
    float lane[VL] = {0};
    for (int64_t j = i; j < n; j++)
        lane[j - i] = ct_get(p, j, bf16);
    return vf_load(lane);
}

/* The same way back; nothing is written beyond n. */
SIMD_INLINE void ct_store(void *p, int64_t i, int64_t n, vf v, bool bf16)
{
    if (i + VL <= n) {
        if (bf16)
            vf_to_bf16((uint16_t *)p + i, v);
        else
            vf_store((float *)p + i, v);
        return;
    }
    float lane[VL];
    vf_store(lane, v);
    for (int64_t j = i; j < n; j++)
        ct_put(p, j, lane[j - i], bf16);
}

/* Element `i` of a matrix of ct, as an address. */
SIMD_INLINE const void *ct_at(const void *p, int64_t i, bool bf16)
{
    return (const char *)p + i * (bf16 ? 2 : 4);
}

SIMD_INLINE void *ct_to(void *p, int64_t i, bool bf16)
{
    return (char *)p + i * (bf16 ? 2 : 4);
}

SIMD_INLINE vf vf_exp(vf x)
{
    vi under = (vi)(x < -87.33f);
    /* 1.5 * 2^23: added, the sum's low bits are the nearest integer of x / ln 2. */
    vf magic = vf_set(12582912.0f);
#if VL == 16
    vf c = vf_min(vf_set(89.0f), x);
#else
    vf c = vf_min(vf_set(88.72f), vf_max(vf_set(-87.33f), x));
#endif
    vf t = vf_fma(c, vf_set(1.44269504f), magic);
    vf n = t - magic;
    vf r = vf_fma(n, vf_set(-0.693359375f), c); /* ln 2 in two parts */
    r = vf_fma(n, vf_set(2.12194440e-4f), r);
    vf q = vf_fma(vf_set(0.001381316f), r, vf_set(0.0083694197f));
    q = vf_fma(q, r, vf_set(0.041668456f));
    q = vf_fma(q, r, vf_set(0.16666515f));
    q = vf_fma(q, r, vf_set(0.49999994f));
    vf y = vf_fma(q, r * r, r) + 1.0f;
#if VL == 16
    y = (vf)_mm512_scalef_ps((__m512)y, (__m512)n);
#else
    /* Times 2^n, by adding n to the exponent; within the clamp it neither over- nor underflows. NaN
     * has no exponent to add to. */
    y = (vf)((vu)y + (((vu)t << 23) & (vu)(x == x)));
    y += (vf)((vu)(x > 88.72f) & (vu)vf_set(INFINITY));
#endif
    return vf_select(under, vf_set(0.0f), y);
}

/* 1 / (1 + exp(-x)). */
SIMD_INLINE vf vf_sigmoid(vf x)
{
    return 1.0f / (1.0f + vf_exp(-x));
}

/* gelu_tanh(x) = x (1 + tanh u) / 2 = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). */
SIMD_INLINE vf vf_gelu(vf x)
{
    vf two_u = x * vf_fma(vf_set(0.0713548163f), x * x, vf_set(1.5957691216f));
    return x * vf_sigmoid(two_u);
}

/* Its derivative: s + x s (1 - s) (2u)'. */
SIMD_INLINE vf vf_gelu_grad(vf x)
{
    vf xx = x * x;
    vf s = vf_sigmoid(x * vf_fma(vf_set(0.0713548163f), xx, vf_set(1.5957691216f)));
    vf slope = vf_fma(vf_set(0.2140644488f), xx, vf_set(1.5957691216f));
    return vf_fma(x * s * (1.0f - s), slope, s);
}

#endif
