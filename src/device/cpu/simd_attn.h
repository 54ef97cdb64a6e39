/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention by tiles of TQ queries x TK keys with a running maximum and sum (Dao et al.
 * 2022). Each matmul of a tile is the packed matmul of simd_gemm.h, in f32 whatever ct is. Tiles
 * that no query of the tile may see are skipped. bf16 comes here on processors without AMX tiles;
 * on those that have them amx_attn.h and amx_attn_grad.h do the same.
 *
 * Backward recomputes the probabilities of a tile from q, k and lse:
 *     P = exp(scale q k^T - lse)      dv += (P M)^T do
 *     dP = M (do v^T)                 dS = scale P (dP - delta)
 *     dk += dS^T q                    dq += dS k            M: the dropout factors
 * in one of two ways that give the same bits, because both add the same tiles in the same order:
 * for a whole kv head at once, dq of all its queries in scratch (attn_grad); or the keys first and
 * the queries after (attn_grad_keys, attn_grad_queries), which computes P twice, but splits one
 * head among threads and needs scratch for one tile only.
 */
#ifndef PLAIT_DEVICE_CPU_SIMD_ATTN_H
#define PLAIT_DEVICE_CPU_SIMD_ATTN_H

#include "device/cpu/simd_drop.h"
#include "device/cpu/simd_gemm.h"

#define TK 64
#if VL == 16
#define TQ (MR * 8)
#else
#define TQ (MR * 16)
#endif
/* Rows of a tile of keys when it is packed as the left operand. */
#define TK_PANELS ((TK + MR - 1) / MR * MR)

_Static_assert(TK % NR == 0 && CPU_HEAD_MAX % NR == 0, "whole strips");
_Static_assert(CPU_DQ_FLOATS + CPU_HEAD_MAX * (4 * TQ + 5 * TK) + 3 * TQ * TK + TQ * TK_PANELS +
                       2 * TQ + 4 * PACK_OVER <= CPU_SCRATCH_FLOATS,
               "the tiles of attention fit the scratch of a thread");

/* One head of one sequence. Pointers at its first row. */
struct head {
    const struct attn *a;
    const void *q, *k, *v;
    int64_t b, h, wide; /* sequence, head, d filled up to whole strips */
    bool bf16;
};

static inline struct head head_at(const struct attn *a, int64_t b, int64_t h, bool bf16)
{
    int64_t kv = h / (a->heads / a->kv_heads);
    return (struct head){
        .a = a,
        .q = ct_at(a->q, b * a->tq * a->ldq + h * a->d, bf16),
        .k = ct_at(a->k, b * a->tk * a->ldk + kv * a->d, bf16),
        .v = ct_at(a->v, b * a->tk * a->ldv + kv * a->d, bf16),
        .b = b,
        .h = h,
        .wide = (a->d + NR - 1) / NR * NR,
        .bf16 = bf16,
    };
}

/* A tile: queries [q, q + qn) and keys [k, k + kn) of a sequence. */
struct tile { int64_t q, qn, k, kn; };

/* First query of the tile that sees any of its keys, rounded down to whole panels. */
static inline int64_t tile_top(const struct attn *a, const struct tile *t)
{
    return num_max(0, t->k - (a->tk - a->tq) - t->q) / MR * MR;
}

/* Keys of the tile that its query i sees, 0..kn. */
static inline int64_t tile_sees(const struct attn *a, const struct tile *t, int64_t i)
{
    int64_t n = a->tk - a->tq + t->q + i + 1 - t->k;
    return n < 0 ? 0 : num_min(n, t->kn);
}

/* Dropout factors of query i of a tile, for its TK keys. */
static inline void tile_factors(const struct head *h, const struct tile *t, int64_t i,
                                float factor[TK])
{
    const struct attn *a = h->a;
    int64_t row = a->drop.row0 + h->b * a->tq + t->q + i;
    drop_factors(&a->drop, (row * a->heads_total + a->head0 + h->h) * a->tk + t->k, factor, t->kn);
    for (int64_t j = t->kn; j < TK; j++)
        factor[j] = 0.0f;
}

/* n rows of a head from row `first`: of q, k, v or do. */
struct span {
    const void *p;
    int64_t ld, first, n;
};

/* Packed as the left operand, a row of it a row of the matmul. */
static inline void pack_left(float *to, const struct head *h, struct span s)
{
    struct pack pack = {s.p, s.ld, false, h->bf16};
    pack_panels(to, MR, &pack, (int64_t[2]){s.first, s.first + s.n}, (int64_t[2]){0, h->a->d});
}

/* Packed as the right operand, a row of it a column of the matmul. */
static inline void pack_right_turned(float *to, const struct head *h, struct span s)
{
    struct pack pack = {s.p, s.ld, false, h->bf16};
    pack_panels(to, NR, &pack, (int64_t[2]){s.first, s.first + s.n}, (int64_t[2]){0, h->a->d});
}

/* Packed as the right operand, its rows the inner dimension. */
static inline void pack_right(float *to, const struct head *h, struct span s)
{
    struct pack pack = {s.p, s.ld, true, h->bf16};
    pack_panels(to, NR, &pack, (int64_t[2]){0, h->a->d}, (int64_t[2]){s.first, s.first + s.n});
}

/* One row of scores -> probabilities before division by the sum; returns the factor by which what
 * was gathered under the old maximum shrinks. */
static inline float softmax_row(float *s, int64_t sees, float scale, float *max, float *sum)
{
    if (sees == 0) {
        memset(s, 0, TK * sizeof *s);
        return 1.0f;
    }
    for (int64_t j = sees; j < TK; j++)
        s[j] = -INFINITY;
    vf top = vf_load(s);
    for (int64_t j = VL; j < TK; j += VL)
        top = vf_max(top, vf_load(s + j));
    float new_max = scale * vf_top(top);
    new_max = new_max > *max ? new_max : *max;
    vf total = vf_set(0.0f);
    for (int64_t j = 0; j < TK; j += VL) {
        vf p = vf_exp(vf_fma(vf_load(s + j), vf_set(scale), vf_set(-new_max)));
        total += p;
        vf_store(s + j, p);
    }
    float shrink = expf(*max - new_max);
    *max = new_max;
    *sum = *sum * shrink + vf_sum(total);
    return shrink;
}

static inline void row_scale(float *x, int64_t n, float by)
{
    for (int64_t j = 0; j < n; j += VL)
        vf_store(x + j, vf_load(x + j) * by);
}

/* Division by the sums, o and lse of a finished tile of queries. */
static inline void attn_write(const struct head *h, const struct tile *t, const float *o,
                              const float *max, const float *sum)
{
    const struct attn *a = h->a;
    for (int64_t i = 0; i < t->qn; i++) {
        int64_t row = h->b * a->tq + t->q + i;
        void *to = ct_to(a->o, row * a->ldo + h->h * a->d, h->bf16);
        float inverse = 1.0f / sum[i];
        for (int64_t j = 0; j < a->d; j += VL)
            ct_store(to, j, a->d, vf_load(o + i * h->wide + j) * inverse, h->bf16);
        ((float *)a->lse)[row * a->heads + h->h] = max[i] + logf(sum[i]);
    }
}

static inline void attn_queries(const struct head *h, int64_t q0, float *scratch)
{
    const struct attn *a = h->a;
    struct tile t = {.q = q0, .qn = num_min(TQ, a->tq - q0)};
    float *max = scratch, *sum = max + TQ, *q = sum + TQ, *k = q + TQ * h->wide + PACK_OVER;
    float *v = k + TK * h->wide, *o = v + TK * h->wide, *s = o + TQ * h->wide, *p = s + TQ * TK;
    float factor[TK];
    for (int64_t i = 0; i < t.qn; i++) {
        max[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    pack_left(q, h, (struct span){h->q, a->ldq, t.q, t.qn});
    int64_t end = a->tk - a->tq + t.q + t.qn; /* keys the last query sees */
    for (t.k = 0; t.k < end; t.k += TK) {
        t.kn = num_min(TK, end - t.k);
        pack_right_turned(k, h, (struct span){h->k, a->ldk, t.k, t.kn});
        pack_right(v, h, (struct span){h->v, a->ldv, t.k, t.kn});
        int64_t top = tile_top(a, &t);
        gemm_block((int64_t[3]){t.qn - top, t.kn, a->d}, q + top * a->d, k,
                   (struct cpu_target){s + top * TK, TK, false});
        for (int64_t i = top; i < t.qn; i++) {
            float *row = s + i * TK;
            float shrink = softmax_row(row, tile_sees(a, &t, i), (float)a->scale, max + i, sum + i);
            if (t.k > 0 && shrink != 1.0f)
                row_scale(o + i * h->wide, h->wide, shrink);
            if (a->drop.p > 0.0) {
                tile_factors(h, &t, i, factor);
                for (int64_t j = 0; j < TK; j += VL)
                    vf_store(row + j, vf_load(row + j) * vf_load(factor + j));
            }
        }
        struct pack probs = {s, TK, false, false};
        pack_panels(p, MR, &probs, (int64_t[2]){top, t.qn}, (int64_t[2]){0, t.kn});
        gemm_block((int64_t[3]){t.qn - top, h->wide, t.kn}, p, v,
                   (struct cpu_target){o + top * h->wide, h->wide, t.k > 0});
    }
    attn_write(h, &t, o, max, sum);
}

static inline void simd_attn(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_attn *w = arg;
    int64_t tiles = num_ceil_div(w->a.tq, TQ);
    for (int64_t item = first; item < last; item++) {
        int64_t tile = tiles - 1 - item % tiles, h = item / tiles; /* the longest first */
        struct head head = head_at(&w->a, h / w->a.heads, h % w->a.heads, w->bf16);
        attn_queries(&head, tile * TQ, scratch);
    }
}

#endif
