/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of attention; the formulas and the two ways through a head are in simd_attn.h.
 */
#ifndef PLAIT_DEVICE_CPU_SIMD_ATTN_GRAD_H
#define PLAIT_DEVICE_CPU_SIMD_ATTN_GRAD_H

#include "device/cpu/simd_attn.h"

/* Where the pieces of a tile lie in scratch. */
struct grad_tile {
    float *q, *g;           /* TQ rows of q and do: left operands */
    float *q_right, *g_right; /* the same rows as right operands, rows inner */
    float *k, *v, *k_right; /* TK rows of k and v: right operands; k with rows inner */
    float *p, *ds;          /* (TQ, TK): P M, then dS */
    float *left;            /* either of them packed */
    float *dk, *dv;         /* (TK, wide) sums */
    float *dq;              /* (rows, wide) sums */
};

static inline struct grad_tile grad_tile_at(float *s, int64_t wide)
{
    struct grad_tile x;
    x.q = s;
    x.g = x.q + TQ * wide + PACK_OVER;
    x.q_right = x.g + TQ * wide + PACK_OVER;
    x.g_right = x.q_right + TQ * wide;
    x.k = x.g_right + TQ * wide;
    x.v = x.k + TK * wide;
    x.k_right = x.v + TK * wide;
    x.p = x.k_right + TK * wide;
    x.ds = x.p + TQ * TK;
    x.left = x.ds + TQ * TK;
    x.dk = x.left + TQ * TK_PANELS + PACK_OVER;
    x.dv = x.dk + TK * wide;
    x.dq = x.dv + TK * wide;
    return x;
}

static inline const void *grad_do(const struct attn_grad *g, const struct head *h)
{
    return ct_at(g->do_, h->b * h->a->tq * h->a->ldo + h->h * h->a->d, h->bf16);
}

static inline void grad_pack_keys(const struct head *h, const struct tile *t, struct grad_tile *x)
{
    const struct span k = {h->k, h->a->ldk, t->k, t->kn}, v = {h->v, h->a->ldv, t->k, t->kn};
    pack_right_turned(x->k, h, k);
    pack_right_turned(x->v, h, v);
    pack_right(x->k_right, h, k);
}

static inline void grad_pack_queries(const struct attn_grad *g, const struct head *h,
                                     const struct tile *t, struct grad_tile *x)
{
    const struct span q = {h->q, h->a->ldq, t->q, t->qn};
    const struct span dout = {grad_do(g, h), h->a->ldo, t->q, t->qn};
    pack_left(x->q, h, q);
    pack_left(x->g, h, dout);
    pack_right(x->q_right, h, q);
    pack_right(x->g_right, h, dout);
}

/* x->p = P M and x->ds = dS of a tile whose operands are packed. */
static inline void grad_scores(const struct attn_grad *g, const struct head *h,
                               const struct tile *t, struct grad_tile *x)
{
    const struct attn *a = h->a;
    float factor[TK], scale = (float)a->scale;
    int64_t top = tile_top(a, t), size[3] = {t->qn - top, t->kn, a->d};
    gemm_block(size, x->q + top * a->d, x->k, (struct cpu_target){x->p + top * TK, TK, false});
    gemm_block(size, x->g + top * a->d, x->v, (struct cpu_target){x->ds + top * TK, TK, false});
    memset(x->p, 0, (size_t)(top * TK) * sizeof *x->p);
    memset(x->ds, 0, (size_t)(top * TK) * sizeof *x->ds);
    for (int64_t i = top; i < t->qn; i++) {
        int64_t stat = (h->b * a->tq + t->q + i) * a->heads + h->h;
        float lse = ((const float *)a->lse)[stat], delta = ((const float *)g->delta)[stat];
        float *p = x->p + i * TK, *ds = x->ds + i * TK;
        for (int64_t j = tile_sees(a, t, i); j < TK; j++) {
            p[j] = -INFINITY;
            ds[j] = 0.0f;
        }
        if (a->drop.p > 0.0)
            tile_factors(h, t, i, factor);
        for (int64_t j = 0; j < TK; j += VL) {
            vf m = a->drop.p > 0.0 ? vf_load(factor + j) : vf_set(1.0f);
            vf prob = vf_exp(vf_fma(vf_load(p + j), vf_set(scale), vf_set(-lse)));
            vf_store(p + j, prob * m);
            vf_store(ds + j, prob * vf_fma(vf_load(ds + j), m, vf_set(-delta)) * scale);
        }
    }
}

/* dv += (P M)^T do, dk += dS^T q. */
static inline void grad_keys(const struct head *h, const struct tile *t, struct grad_tile *x)
{
    const int64_t size[3] = {t->kn, h->wide, t->qn}, i[2] = {0, t->kn}, p[2] = {0, t->qn};
    struct pack probs = {x->p, TK, true, false}, scores = {x->ds, TK, true, false};
    pack_panels(x->left, MR, &probs, i, p);
    gemm_block(size, x->left, x->g_right, (struct cpu_target){x->dv, h->wide, true});
    pack_panels(x->left, MR, &scores, i, p);
    gemm_block(size, x->left, x->q_right, (struct cpu_target){x->dk, h->wide, true});
}

/* dq (qn, wide) += dS k. */
static inline void grad_queries(const struct head *h, const struct tile *t, struct grad_tile *x,
                                float *dq)
{
    struct pack scores = {x->ds, TK, false, false};
    int64_t top = tile_top(h->a, t);
    pack_panels(x->left, MR, &scores, (int64_t[2]){top, t->qn}, (int64_t[2]){0, t->kn});
    gemm_block((int64_t[3]){t->qn - top, h->wide, t->kn}, x->left, x->k_right,
               (struct cpu_target){dq + top * h->wide, h->wide, true});
}

/* n rows of sums (row stride wide) to rows of ct at `to`, row stride ld. */
static inline void grad_write(const struct head *h, void *to, int64_t ld, const float *from,
                              int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < h->a->d; j += VL)
            ct_store(ct_to(to, i * ld, h->bf16), j, h->a->d, vf_load(from + i * h->wide + j),
                     h->bf16);
}

static inline void grad_write_keys(const struct attn_grad *g, const struct head *h,
                                   const struct tile *t, const struct grad_tile *x)
{
    const struct attn *a = h->a;
    int64_t kv = h->h / (a->heads / a->kv_heads), row = h->b * a->tk + t->k;
    grad_write(h, ct_to(g->dk, row * a->ldk + kv * a->d, h->bf16), a->ldk, x->dk, t->kn);
    grad_write(h, ct_to(g->dv, row * a->ldv + kv * a->d, h->bf16), a->ldv, x->dv, t->kn);
}

static inline void grad_write_queries(const struct attn_grad *g, const struct head *h,
                                      int64_t q, int64_t n, const float *dq)
{
    const struct attn *a = h->a;
    int64_t row = h->b * a->tq + q;
    grad_write(h, ct_to(g->dq, row * a->ldq + h->h * a->d, h->bf16), a->ldq, dq, n);
}

/* The tiles of queries that see a tile of keys, for all heads of a kv head, of which `first` is the
 * first. With `dq`, (group, tq, wide), the gradient of queries is gathered there as well. */
static inline void grad_key_tile(const struct attn_grad *g, const struct head *first, struct tile t,
                                 struct grad_tile *x, float *dq)
{
    const struct attn *a = &g->f;
    int64_t group = a->heads / a->kv_heads;
    memset(x->dk, 0, (size_t)(TK * first->wide) * sizeof *x->dk);
    memset(x->dv, 0, (size_t)(TK * first->wide) * sizeof *x->dv);
    grad_pack_keys(first, &t, x);
    int64_t from = num_max(0, t.k - (a->tk - a->tq)) / TQ * TQ; /* first tile that sees key t.k */
    for (int64_t i = 0; i < group; i++) {
        struct head h = head_at(a, first->b, first->h + i, first->bf16);
        for (t.q = from; t.q < a->tq; t.q += TQ) {
            t.qn = num_min(TQ, a->tq - t.q);
            grad_pack_queries(g, &h, &t, x);
            grad_scores(g, &h, &t, x);
            grad_keys(&h, &t, x);
            if (dq)
                grad_queries(&h, &t, x, dq + (i * a->tq + t.q) * h.wide);
        }
    }
    grad_write_keys(g, first, &t, x);
}

/* An item is a kv head of a sequence: all three gradients. */
static inline void simd_attn_grad(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_attn_grad *w = arg;
    const struct attn *a = &w->a.f;
    int64_t group = a->heads / a->kv_heads;
    for (int64_t item = first; item < last; item++) {
        int64_t b = item / a->kv_heads, kv = item % a->kv_heads;
        struct head h = head_at(a, b, kv * group, w->bf16);
        struct grad_tile x = grad_tile_at(scratch, h.wide);
        memset(x.dq, 0, (size_t)(group * a->tq * h.wide) * sizeof *x.dq);
        for (int64_t k = 0; k < a->tk; k += TK) {
            struct tile t = {.k = k, .kn = num_min(TK, a->tk - k)};
            grad_key_tile(&w->a, &h, t, &x, x.dq);
        }
        for (int64_t i = 0; i < group; i++) {
            struct head each = head_at(a, b, kv * group + i, w->bf16);
            grad_write_queries(&w->a, &each, 0, a->tq, x.dq + i * a->tq * h.wide);
        }
    }
}

/* An item is a tile of keys of a kv head: dk and dv. */
static inline void simd_attn_grad_keys(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_attn_grad *w = arg;
    const struct attn *a = &w->a.f;
    int64_t tiles = num_ceil_div(a->tk, TK);
    for (int64_t item = first; item < last; item++) {
        int64_t k = item % tiles * TK, head = item / tiles, group = a->heads / a->kv_heads;
        struct head h = head_at(a, head / a->kv_heads, head % a->kv_heads * group, w->bf16);
        struct grad_tile x = grad_tile_at(scratch, h.wide);
        struct tile t = {.k = k, .kn = num_min(TK, a->tk - k)};
        grad_key_tile(&w->a, &h, t, &x, NULL);
    }
}

/* An item is a tile of queries of a head: dq. */
static inline void simd_attn_grad_queries(const void *arg, int64_t first, int64_t last,
                                          float *scratch)
{
    const struct cpu_attn_grad *w = arg;
    const struct attn *a = &w->a.f;
    int64_t tiles = num_ceil_div(a->tq, TQ);
    for (int64_t item = first; item < last; item++) {
        int64_t q = (tiles - 1 - item % tiles) * TQ, head = item / tiles;
        struct head h = head_at(a, head / a->heads, head % a->heads, w->bf16);
        struct grad_tile x = grad_tile_at(scratch, h.wide);
        struct tile t = {.q = q, .qn = num_min(TQ, a->tq - q)};
        int64_t end = a->tk - a->tq + t.q + t.qn;
        memset(x.dq, 0, (size_t)(TQ * h.wide) * sizeof *x.dq);
        grad_pack_queries(&w->a, &h, &t, &x);
        for (t.k = 0; t.k < end; t.k += TK) {
            t.kn = num_min(TK, a->tk - t.k);
            grad_pack_keys(&h, &t, &x);
            grad_scores(&w->a, &h, &t, &x);
            grad_queries(&h, &t, &x, x.dq);
        }
        grad_write_queries(&w->a, &h, t.q, t.qn, x.dq);
    }
}

/* delta (heads) of one row: sums over each head of do o. */
SIMD_INLINE void grad_delta_row(const struct attn_grad *g, int64_t row, bool bf16)
{
    const struct attn *a = &g->f;
    const void *o = ct_at(a->o, row * a->ldo, bf16), *dout = ct_at(g->do_, row * a->ldo, bf16);
    float *delta = (float *)g->delta + row * a->heads;
    for (int64_t h = 0; h < a->heads; h++) {
        vf sum = vf_set(0.0f);
        for (int64_t i = 0; i < a->d; i += VL)
            sum = vf_fma(ct_load(ct_at(o, h * a->d, bf16), i, a->d, bf16),
                         ct_load(ct_at(dout, h * a->d, bf16), i, a->d, bf16), sum);
        delta[h] = vf_sum(sum);
    }
}

static inline void simd_attn_delta(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct cpu_attn_grad *w = arg;
    (void)scratch;
    for (int64_t r = first; r < last; r++) {
        if (w->bf16)
            grad_delta_row(&w->a, r, true);
        else
            grad_delta_row(&w->a, r, false);
    }
}

#endif
