/* SPDX-License-Identifier: Apache-2.0
 *
 * A blocked GEMM in the manner of Goto & van de Geijn (2008): panels of B (KC x NC) and
 * blocks of A (MC x KC) are packed into the order in which a register tile of MR x NR reads them,
 *
 *     A block: panels of MR rows, element (i, p) of a panel at p * MR + i
 *     B panel: strips of NR columns, element (p, j) of a strip at p * NR + j
 *
 * both filled up with zeros, so that the inner tile never sees an edge. Packing also transposes and
 * widens bf16 to f32, so every form of the GEMM runs through one inner loop. Products and sums
 * are f32; an output of bf16 is rounded once, from a block of C kept in scratch.
 *
 * Each element of C is the sum of its k products in blocks of KC, in order: the bits depend neither
 * on the number of threads nor on the rows and columns beside it.
 */
#ifndef PLAIT_DEVICE_CPU_SIMD_GEMM_H
#define PLAIT_DEVICE_CPU_SIMD_GEMM_H

#include "device/cpu/cpu_impl.h"
#include "device/cpu/simd_math.h"

/* MR x 2 vectors of sums, two of B and one of A fit the registers: 16 of them, or 32 with AVX-512.
 * The block of A stays in the second cache, a strip of B in the first. */
#define NR (2 * VL)
#if VL == 16
#define MR 14
#define GEMM_MC (MR * 20)
#else
#define MR 6
#define GEMM_MC (MR * 24)
#endif
#define GEMM_KC 384
#define GEMM_NC 768
#define PACK_OVER 16 /* floats that packing may write beyond its last panel */
#define GEMM_MB (576 / GEMM_MC * GEMM_MC) /* rows of C kept in scratch while k is walked */

_Static_assert(GEMM_NC % NR == 0, "strips fill the panel");
_Static_assert(GEMM_KC * (GEMM_MC + GEMM_NC) + PACK_OVER + GEMM_MB * GEMM_NC <= CPU_SCRATCH_FLOATS,
               "the blocks of a GEMM fit the scratch of a thread");

/* An operand as packing sees it: element (i, p) of op(A), i a row of A or a column of B, p along
 * k, stands at i * ld + p, or at p * ld + i when `along` (neighbours in i are neighbours). */
struct pack {
    const void *p;
    int64_t ld;
    bool along, bf16;
};

/* VL rows of VL elements in place: log2(VL) perfect shuffles transpose. */
SIMD_INLINE void transpose(vf r[VL])
{
    for (int step = 1; step < VL; step *= 2) {
        vf to[VL];
        for (int i = 0; i < VL / 2; i++) {
            to[2 * i] = vf_zip_low(r[i], r[i + VL / 2]);
            to[2 * i + 1] = vf_zip_high(r[i], r[i + VL / 2]);
        }
        for (int i = 0; i < VL; i++)
            r[i] = to[i];
    }
}

/* n <= width rows of k elements, one after another in memory, into one panel. Vectors are stored
 * whole: what a store leaves beyond the panel's width, the next one writes over, and the last ones
 * reach PACK_OVER floats past the panel's end. */
SIMD_INLINE void pack_across(float *to, int width, const struct pack *a, const int64_t size[2],
                             bool bf16)
{
    int64_t n = size[0], k = size[1];
    for (int64_t q = 0; q < k; q += VL) {
        for (int64_t j = (width - 1) / VL * VL; j >= 0; j -= VL) {
            vf r[VL];
            for (int64_t i = 0; i < VL; i++) {
                const void *row = ct_at(a->p, (j + i) * a->ld, bf16);
                r[i] = j + i < n ? ct_load(row, q, k, bf16) : vf_set(0.0f);
                __builtin_prefetch(ct_at(row, width * a->ld + q, bf16)); /* the next panel's */
            }
            transpose(r);
            for (int64_t i = 0; i < VL && q + i < k; i++)
                vf_store(to + (q + i) * width + j, r[i]);
        }
    }
}

/* The same when each run of n elements is a row; the panel takes `width` of them. */
SIMD_INLINE void pack_along(float *to, int width, const struct pack *a, const int64_t size[2],
                            bool bf16)
{
    for (int64_t q = 0; q < size[1]; q++) {
        const void *row = ct_at(a->p, q * a->ld, bf16);
        for (int64_t j = 0; j < width; j += VL)
            vf_store(to + q * width + j, ct_load(row, j, size[0], bf16));
    }
}

/* Panels of `width` for i in [i0, i1), p in [p0, p1). */
static inline void pack_panels(float *to, int width, const struct pack *a, const int64_t i[2],
                               const int64_t p[2])
{
    int64_t k = p[1] - p[0];
    for (int64_t i0 = i[0]; i0 < i[1]; i0 += width, to += k * width) {
        int64_t n = i[1] - i0;
        struct pack panel = *a;
        int64_t across[2] = {num_min(width, n), k}, along[2] = {n, k};
        panel.p = ct_at(a->p, a->along ? p[0] * a->ld + i0 : i0 * a->ld + p[0], a->bf16);
        if (a->along && a->bf16)
            pack_along(to, width, &panel, along, true);
        else if (a->along)
            pack_along(to, width, &panel, along, false);
        else if (a->bf16)
            pack_across(to, width, &panel, across, true);
        else
            pack_across(to, width, &panel, across, false);
    }
}

/* A whole tile (MR, NR): a panel times a strip over k. What it will need of C is asked for first:
 * C comes from further away than the operands. */
SIMD_INLINE void gemm_micro(int64_t k, const float *a, const float *b, struct cpu_target to)
{
    vf sum[MR][2];
    for (int i = 0; i < MR; i++) {
        __builtin_prefetch(to.c + i * to.ld, 1);
        __builtin_prefetch(to.c + i * to.ld + NR - 1, 1);
        sum[i][0] = sum[i][1] = vf_set(0.0f);
    }
    for (int64_t p = 0; p < k; p++, a += MR, b += NR) {
        vf b0 = vf_load(b), b1 = vf_load(b + VL);
        for (int i = 0; i < MR; i++) {
            vf x = vf_set(a[i]);
            sum[i][0] = vf_fma(x, b0, sum[i][0]);
            sum[i][1] = vf_fma(x, b1, sum[i][1]);
        }
    }
    for (int i = 0; i < MR; i++, to.c += to.ld) {
        if (to.add) {
            sum[i][0] += vf_load(to.c);
            sum[i][1] += vf_load(to.c + VL);
        }
        vf_store(to.c, sum[i][0]);
        vf_store(to.c + VL, sum[i][1]);
    }
}

/* A tile at an edge: by way of a whole one. */
static inline void gemm_edge(const int64_t size[3], const float *a, const float *b,
                             struct cpu_target to)
{
    float whole[MR * NR];
    gemm_micro(size[2], a, b, (struct cpu_target){whole, NR, false});
    for (int64_t i = 0; i < size[0]; i++, to.c += to.ld)
        for (int64_t j = 0; j < size[1]; j++)
            to.c[j] = whole[i * NR + j] + (to.add ? to.c[j] : 0.0f);
}

/* A packed block of A (m, k) times a packed panel of B (k, n); size is {m, n, k}. */
static inline void gemm_block(const int64_t size[3], const float *a, const float *b,
                              struct cpu_target to)
{
    int64_t k = size[2];
    for (int64_t j = 0; j < size[1]; j += NR) {
        for (int64_t i = 0; i < size[0]; i += MR) {
            int64_t edge[3] = {num_min(MR, size[0] - i), num_min(NR, size[1] - j), k};
            struct cpu_target tile = {to.c + i * to.ld + j, to.ld, to.add};
            if (edge[0] == MR && edge[1] == NR)
                gemm_micro(k, a + i * k, b + j * k, tile);
            else
                gemm_edge(edge, a + i * k, b + j * k, tile);
        }
    }
}

/* cpu_simd.gemm_finish */
static inline void gemm_finish(const struct cpu_gemm *w, struct cpu_target from, const int64_t i[2],
                               const int64_t j[2])
{
    const struct gemm *g = w->g;
    for (int64_t r = i[0]; r < i[1]; r++, from.c += from.ld) {
        int64_t n = j[1] - j[0];
        void *out = ct_to(g->c, r * w->ldc + j[0], w->bf16_c);
        void *pre = g->act == GEMM_NONE ? NULL : ct_to(g->pre, r * g->n + j[0], w->bf16);
        const void *bias = g->bias ? ct_at(g->bias, j[0], w->bf16) : NULL;
        for (int64_t q = 0; q < n; q += VL) {
            vf x = ct_load(from.c, q, n, false);
            if (bias)
                x += ct_load(bias, q, n, w->bf16);
            if (g->act == GEMM_GELU) {
                ct_store(pre, q, n, x, w->bf16);
                x = vf_gelu(x);
            } else if (g->act == GEMM_DGELU) {
                x *= vf_gelu_grad(ct_load(pre, q, n, w->bf16));
            }
            ct_store(out, q, n, x, w->bf16_c);
        }
    }
}

/* Rows [i[0], i[1]) by at most NC columns [j[0], j[1]) of C, all of k. */
static inline void gemm_panel(const struct cpu_gemm *w, const int64_t i[2], const int64_t j[2],
                              float *scratch)
{
    const struct gemm *g = w->g;
    struct pack a = {g->a, w->lda, g->trans_a, w->bf16};
    struct pack b = {g->b, w->ldb, !g->trans_b, w->bf16};
    float *block = scratch, *panel = block + GEMM_MC * GEMM_KC + PACK_OVER;
    float *c = panel + GEMM_KC * GEMM_NC;
    bool finish = w->bf16_c || g->bias || g->act != GEMM_NONE;
    int64_t p = 0;
    do {
        int64_t k[2] = {p, num_min(p + GEMM_KC, g->k)};
        bool add = p > 0 || (g->accumulate && !w->bf16_c);
        pack_panels(panel, NR, &b, j, k);
        for (int64_t r = i[0]; r < i[1]; r += GEMM_MC) {
            int64_t rows[2] = {r, num_min(r + GEMM_MC, i[1])};
            int64_t size[3] = {rows[1] - r, j[1] - j[0], k[1] - k[0]};
            struct cpu_target to = {(float *)g->c + r * w->ldc + j[0], w->ldc, add};
            if (w->bf16_c)
                to = (struct cpu_target){c + (r - i[0]) * GEMM_NC, GEMM_NC, add};
            pack_panels(block, MR, &a, rows, k);
            gemm_block(size, block, panel, to);
            if (finish && k[1] == g->k)
                gemm_finish(w, to, rows, j);
        }
        p += GEMM_KC;
    } while (p < g->k);
}

/* Items of a GEMM: pieces of w->rows x w->cols of C, row by row of pieces. */
static inline void simd_gemm(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_gemm *w = arg;
    for (int64_t item = first; item < last; item++) {
        int64_t m0 = item / w->across * w->rows, m1 = num_min(m0 + w->rows, w->g->m);
        int64_t n0 = item % w->across * w->cols, n1 = num_min(n0 + w->cols, w->g->n);
        int64_t step = w->bf16_c ? GEMM_MB : m1 - m0;
        for (int64_t n = n0; n < n1; n += GEMM_NC) {
            int64_t j[2] = {n, num_min(n + GEMM_NC, n1)};
            for (int64_t m = m0; m < m1; m += step) {
                int64_t i[2] = {m, num_min(m + step, m1)};
                gemm_panel(w, i, j, scratch);
            }
        }
    }
}

#endif
