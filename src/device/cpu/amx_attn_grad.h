/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of attention on AMX tiles: P again from q, k and lse (the formulas are in
 * simd_attn.h), then the four matmuls of a tile of keys and queries. As in amx_attn.h, scores lie
 * with a row for each key. For 32 keys and up to GRAD_QUERIES queries that see them:
 *
 *     S  = K Q^T        dP = V do^T          (32, queries)
 *     P  = exp(scale S - lse)                dS = scale P (M dP - delta)       M: dropout
 *     dv += (P M) do    dk += dS q           P M and dS, rounded to bf16, are left operands
 *     dq^T += K^T dS                         and dS is also the right operand of this
 *
 * so that neither P nor dS is ever turned; dq is, once, when it is written. Sums are f32.
 *
 * There are two ways through a head, as in simd_attn.h: a whole kv head at once, dq of all its
 * queries in scratch; or keys first and queries after, which computes P twice but splits one head
 * among threads. An element of dq, dk or dv adds its terms one by one in the order of keys or of
 * queries, however they are cut into blocks, and what a causal block leaves out are zeros: both
 * ways, and any cut, give the same bits.
 */
#ifndef PLAIT_DEVICE_CPU_AMX_ATTN_GRAD_H
#define PLAIT_DEVICE_CPU_AMX_ATTN_GRAD_H

#include "device/cpu/amx_attn.h"

enum {
    GRAD_KEYS = 256,    /* packed at a time, at most */
    GRAD_QUERIES = 128, /* likewise */
};

_Static_assert(CPU_HEAD_MAX * (GRAD_KEYS * 7 / 2 + GRAD_QUERIES * 2) +
                       GRAD_QUERIES * (AMX_SIDE * 3 + GRAD_KEYS * 3 / 2 + 2) + TILE * GRAD_KEYS +
                       CPU_DQ_FLOATS <= CPU_SCRATCH_FLOATS,
               "the blocks of attention's gradient fit a thread's scratch");
_Static_assert(CPU_HEAD_MAX * GRAD_QUERIES <= CPU_DQ_FLOATS, "so does dq of a block");

/* The tasks. chunk: keys, or queries, of an item of those that split a head. */
struct amx_attn_grad { struct attn_grad a; int64_t chunk; };

/* Where the pieces of a block of keys x queries lie in scratch. */
struct amx_grad {
    char *k, *v, *k_turned;    /* keys: left operands over d, and over keys */
    char *q, *g;               /* queries and do: right operands over d, */
    char *q_turned, *g_turned; /* and over queries */
    char *p, *ds;              /* (32, queries): left operands over queries */
    char *ds_right;            /* (keys, queries): right operand over keys */
    float *s, *dp;             /* (32, queries) */
    float *lse, *delta;        /* (queries) */
    float *factor, *row;       /* (keys, queries); scratch of amx_factors */
    float *dk, *dv;            /* (keys, wide) sums */
    float *dq;                 /* for each 32 queries (wide, 32) sums */
};

/* A block: queries [q[0], q[1]) and keys [k[0], k[1]) of a sequence. */
struct amx_area { int64_t q[2], k[2]; };

static inline struct amx_grad amx_grad_at(float *s, int64_t wide)
{
    struct amx_grad x;
    x.k = amx_take(&s, GRAD_KEYS * wide);
    x.v = amx_take(&s, GRAD_KEYS * wide);
    x.k_turned = amx_take(&s, GRAD_KEYS * wide);
    x.q = amx_take(&s, GRAD_QUERIES * wide);
    x.g = amx_take(&s, GRAD_QUERIES * wide);
    x.q_turned = amx_take(&s, GRAD_QUERIES * wide);
    x.g_turned = amx_take(&s, GRAD_QUERIES * wide);
    x.p = amx_take(&s, AMX_SIDE * GRAD_QUERIES);
    x.ds = amx_take(&s, AMX_SIDE * GRAD_QUERIES);
    x.ds_right = amx_take(&s, GRAD_KEYS * GRAD_QUERIES);
    x.s = s;
    x.dp = x.s + AMX_SIDE * GRAD_QUERIES;
    x.lse = x.dp + AMX_SIDE * GRAD_QUERIES;
    x.delta = x.lse + GRAD_QUERIES;
    x.factor = x.delta + GRAD_QUERIES;
    x.row = x.factor + GRAD_KEYS * GRAD_QUERIES;
    x.dk = x.row + TILE * GRAD_KEYS;
    x.dv = x.dk + GRAD_KEYS * wide;
    x.dq = x.dv + GRAD_KEYS * wide;
    return x;
}

static inline void amx_grad_pack_keys(const struct amx_head *h, const int64_t k[2],
                                      const struct amx_grad *x)
{
    const struct amx_operand turned = amx_turned(h->k);
    const int64_t d[2] = {0, h->a->d};
    amx_pack(x->k, &h->k, k, d, false);
    amx_pack(x->v, &h->v, k, d, false);
    amx_pack(x->k_turned, &turned, d, k, false);
}

/* Queries that are not there have P = 0, for their lse is infinite. */
static inline void amx_grad_pack_queries(const struct attn_grad *g, const struct amx_head *h,
                                         const int64_t q[2], const struct amx_grad *x)
{
    const struct attn *a = h->a;
    const struct amx_operand dout = {(const uint16_t *)g->do_ + h->b * a->tq * a->ldo + h->h * a->d,
                                     a->ldo, false};
    const struct amx_operand q_turned = amx_turned(h->q), g_turned = amx_turned(dout);
    const int64_t d[2] = {0, a->d};
    amx_pack(x->q, &h->q, q, d, true);
    amx_pack(x->g, &dout, q, d, true);
    amx_pack(x->q_turned, &q_turned, d, q, true);
    amx_pack(x->g_turned, &g_turned, d, q, true);
    for (int64_t i = 0; i < amx_filled(q[1] - q[0]); i++) {
        int64_t stat = (h->b * a->tq + q[0] + i) * a->heads + h->h;
        bool there = q[0] + i < q[1];
        x->lse[i] = there ? ((const float *)a->lse)[stat] : INFINITY;
        x->delta[i] = there ? ((const float *)g->delta)[stat] : 0.0f;
    }
}

/* P M and dS of two keys, rows j and j + 1 of a strip, for queries [c[0], c[1]). */
SIMD_INLINE void amx_grad_rows(const struct amx_grad *x, int64_t j, const int64_t c[2], float scale,
                               bool drop)
{
    const float *s = x->s + j * c[1], *dp = x->dp + j * c[1], *f = x->factor + j * c[1];
    for (int64_t i = c[0]; i < c[1]; i += VL) {
        vf lse = vf_load(x->lse + i), delta = vf_load(x->delta + i), p[2], ds[2];
        for (int r = 0; r < 2; r++) {
            int64_t at = r * c[1] + i;
            vf m = drop ? vf_load(f + at) : vf_set(1.0f);
            p[r] = vf_exp(vf_fma(vf_load(s + at), vf_set(scale), -lse));
            ds[r] = p[r] * vf_fma(vf_load(dp + at), m, -delta) * scale;
            p[r] *= m;
        }
        int64_t row = i / TILE_K * AMX_STEP_BYTES / 2 + j * TILE_K + i % TILE_K;
        amx_put_rows((uint16_t *)x->p + row, (uint16_t *)x->p + row + TILE_K, p[0], p[1]);
        amx_put_rows((uint16_t *)x->ds + row, (uint16_t *)x->ds + row + TILE_K, ds[0], ds[1]);
    }
}

/* dS of a strip, 32 keys that begin at `at` of their block, for queries [c[0], c[1]): rows side by
 * side in pairs, where the right operand has them. steps: 32s of keys of the block. */
static inline void amx_grad_pair(const struct amx_grad *x, int64_t at, const int64_t c[2],
                                 int64_t steps)
{
    for (int64_t i = c[0]; i < c[1]; i += AMX_SIDE) {
        char *to = x->ds_right + (i / AMX_SIDE * steps + at / TILE_K) * AMX_STEP_BYTES;
        const struct amx_operand rows = {(const uint16_t *)x->ds + i * AMX_SIDE, TILE_K, true};
        for (int t = 0; t < 2; t++) {
            pairs r[TILE];
            struct amx_operand half = rows;
            half.p += t * TILE;
            amx_pairs(r, &half);
            memcpy(to + t * TILE_BYTES, r, sizeof r);
        }
    }
}

/* P M and dS of the 32 keys at `at` of the block, for queries [c[0], c[1]) of it. */
static inline void amx_grad_scores(const struct amx_head *h, const struct amx_area *t, int64_t at,
                                   const int64_t c[2], const struct amx_grad *x)
{
    const struct attn *a = h->a;
    int64_t steps = h->wide / TILE_K, wide = h->wide;
    const int64_t size[2] = {AMX_SIDE, c[1]};
    for (int64_t i = c[0]; i < c[1]; i += AMX_SIDE) {
        amx_step(steps, x->k + at * wide * 2, x->q + i * wide * 2,
                 (struct cpu_target){x->s + i, c[1], false});
        amx_step(steps, x->v + at * wide * 2, x->g + i * wide * 2,
                 (struct cpu_target){x->dp + i, c[1], false});
    }
    amx_hide(x->s, size, amx_seen(a, t->q[0]) - (t->k[0] + at));
    struct amx_grad strip = *x;
    strip.factor += at * c[1];
    for (int64_t j = 0; j < AMX_SIDE; j += 2) {
        if (a->drop.p > 0.0)
            amx_grad_rows(&strip, j, c, (float)a->scale, true);
        else
            amx_grad_rows(&strip, j, c, (float)a->scale, false);
    }
}

/* dv += (P M) do, dk += dS q, of the strip that amx_grad_scores left. */
static inline void amx_grad_keys(const struct amx_head *h, int64_t at, const int64_t c[2],
                                 const struct amx_grad *x)
{
    int64_t steps = (c[1] - c[0]) / TILE_K, from = c[0] / TILE_K * AMX_STEP_BYTES;
    for (int64_t r = 0; r < h->wide; r += AMX_SIDE) {
        int64_t right = r * c[1] * 2 + from, to = at * h->wide + r;
        amx_step(steps, x->p + from, x->g_turned + right,
                 (struct cpu_target){x->dv + to, h->wide, true});
        amx_step(steps, x->ds + from, x->q_turned + right,
                 (struct cpu_target){x->dk + to, h->wide, true});
    }
}

/* dq^T += K^T dS of the block. */
static inline void amx_grad_queries(const struct amx_head *h, const struct amx_area *t,
                                    const struct amx_grad *x, float *dq)
{
    int64_t keys = amx_filled(t->k[1] - t->k[0]);
    for (int64_t i = 0; i < t->q[1] - t->q[0]; i += AMX_SIDE) {
        int64_t end = amx_seen(h->a, num_min(t->q[0] + i + AMX_SIDE, t->q[1])) - t->k[0];
        int64_t steps = num_ceil_div(num_min(end, keys), TILE_K);
        for (int64_t r = 0; steps > 0 && r < h->wide; r += AMX_SIDE)
            amx_step(steps, x->k_turned + r * keys * 2, x->ds_right + i * keys * 2,
                     (struct cpu_target){dq + i * h->wide + r * AMX_SIDE, AMX_SIDE, true});
    }
}

/* A block whose operands are packed: to the sums of keys, or with `dq` to those of queries, or to
 * both. */
static inline void amx_grad_block(const struct amx_head *h, const struct amx_area *t,
                                  const struct amx_grad *x, bool keys, float *dq)
{
    const struct attn *a = h->a;
    int64_t n = t->k[1] - t->k[0], wide = amx_filled(t->q[1] - t->q[0]);
    const int64_t seen[2] = {t->k[0], num_min(t->k[1], amx_seen(a, t->q[1]))};
    if (a->drop.p > 0.0)
        amx_factors(h, t->q, seen, (struct cpu_target){x->factor, wide, false}, x->row);
    for (int64_t at = 0; at < n; at += AMX_SIDE) {
        int64_t hidden = t->k[0] + at - amx_seen(a, t->q[0]);
        const int64_t c[2] = {num_max(0, hidden) / AMX_SIDE * AMX_SIDE, wide};
        if (t->q[0] + c[0] >= t->q[1])
            break;
        amx_grad_scores(h, t, at, c, x);
        if (keys)
            amx_grad_keys(h, at, c, x);
        if (dq)
            amx_grad_pair(x, at, c, amx_filled(n) / TILE_K);
    }
    if (dq)
        amx_grad_queries(h, t, x, dq);
}

/* dk and dv of keys k of the kv head whose first head is `first`; with `dq`, for each of its heads
 * (wide, filled tq), the gradient of queries is gathered there as well. */
static inline void amx_grad_key_block(const struct attn_grad *g, const struct amx_head *first,
                                      const int64_t k[2], const struct amx_grad *x, float *dq)
{
    const struct attn *a = &g->f;
    int64_t group = a->heads / a->kv_heads, wide = first->wide, kv = first->h / group;
    int64_t from = num_max(0, k[0] - (a->tk - a->tq)) / GRAD_QUERIES * GRAD_QUERIES;
    memset(x->dk, 0, (size_t)(amx_filled(k[1] - k[0]) * wide) * sizeof *x->dk);
    memset(x->dv, 0, (size_t)(amx_filled(k[1] - k[0]) * wide) * sizeof *x->dv);
    amx_grad_pack_keys(first, k, x);
    for (int64_t i = 0; i < group; i++) {
        struct amx_head h = amx_head_at(a, first->b, first->h + i);
        for (int64_t q = from; q < a->tq; q += GRAD_QUERIES) {
            const struct amx_area t = {{q, num_min(q + GRAD_QUERIES, a->tq)}, {k[0], k[1]}};
            amx_grad_pack_queries(g, &h, t.q, x);
            amx_grad_block(&h, &t, x, true, dq ? dq + (i * amx_filled(a->tq) + q) * wide : NULL);
        }
    }
    for (int64_t j = 0; j < k[1] - k[0]; j++) {
        int64_t row = first->b * a->tk + k[0] + j;
        uint16_t *dk = (uint16_t *)g->dk + row * a->ldk + kv * a->d;
        uint16_t *dv = (uint16_t *)g->dv + row * a->ldv + kv * a->d;
        for (int64_t i = 0; i < a->d; i += VL) {
            ct_store(dk, i, a->d, vf_load(x->dk + j * wide + i), true);
            ct_store(dv, i, a->d, vf_load(x->dv + j * wide + i), true);
        }
    }
}

/* dq of queries q, gathered from their beginning. */
static inline void amx_grad_write(const struct attn_grad *g, const struct amx_head *h,
                                  const int64_t q[2], const float *dq)
{
    const struct attn *a = h->a;
    for (int64_t i = 0; i < q[1] - q[0]; i += TILE) {
        int64_t row = h->b * a->tq + q[0] + i;
        amx_write(h, (uint16_t *)g->dq + row * a->ldq + h->h * a->d, a->ldq,
                  dq + i / AMX_SIDE * AMX_SIDE * h->wide + i % AMX_SIDE, q[1] - q[0] - i);
    }
}

/* cpu_task_fn over struct amx_attn_grad: an item is a kv head of a sequence, all its gradients. */
static inline void amx_attn_grad_heads(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct amx_attn_grad *w = arg;
    const struct attn *a = &w->a.f;
    int64_t group = a->heads / a->kv_heads;
    tiles_open();
    for (int64_t item = first; item < last; item++) {
        int64_t b = item / a->kv_heads, kv = item % a->kv_heads;
        struct amx_head h = amx_head_at(a, b, kv * group);
        struct amx_grad x = amx_grad_at(scratch, h.wide);
        int64_t each = amx_filled(a->tq) * h.wide;
        memset(x.dq, 0, (size_t)(group * each) * sizeof *x.dq);
        for (int64_t k = 0; k < a->tk; k += GRAD_KEYS) {
            const int64_t keys[2] = {k, num_min(k + GRAD_KEYS, a->tk)};
            amx_grad_key_block(&w->a, &h, keys, &x, x.dq);
        }
        for (int64_t i = 0; i < group; i++) {
            struct amx_head head = amx_head_at(a, b, kv * group + i);
            amx_grad_write(&w->a, &head, (int64_t[2]){0, a->tq}, x.dq + i * each);
        }
    }
    tiles_close();
}

/* cpu_task_fn over struct amx_attn_grad: an item is a chunk of keys of a kv head, dk and dv. */
static inline void amx_attn_grad_keys(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct amx_attn_grad *w = arg;
    const struct attn *a = &w->a.f;
    int64_t chunks = num_ceil_div(a->tk, w->chunk), group = a->heads / a->kv_heads;
    tiles_open();
    for (int64_t item = first; item < last; item++) {
        int64_t k = item % chunks * w->chunk, head = item / chunks; /* the longest first */
        struct amx_head h = amx_head_at(a, head / a->kv_heads, head % a->kv_heads * group);
        struct amx_grad x = amx_grad_at(scratch, h.wide);
        const int64_t keys[2] = {k, num_min(k + w->chunk, a->tk)};
        amx_grad_key_block(&w->a, &h, keys, &x, NULL);
    }
    tiles_close();
}

/* cpu_task_fn over struct amx_attn_grad: an item is a chunk of queries of a head, dq. */
static inline void amx_attn_grad_queries(const void *arg, int64_t first, int64_t last,
                                         float *scratch)
{
    const struct amx_attn_grad *w = arg;
    const struct attn *a = &w->a.f;
    int64_t chunk = num_min(w->chunk, GRAD_QUERIES), chunks = num_ceil_div(a->tq, chunk);
    tiles_open();
    for (int64_t item = first; item < last; item++) {
        int64_t q = (chunks - 1 - item % chunks) * chunk, head = item / chunks;
        struct amx_head h = amx_head_at(a, head / a->heads, head % a->heads);
        struct amx_grad x = amx_grad_at(scratch, h.wide);
        struct amx_area t = {.q = {q, num_min(q + chunk, a->tq)}};
        memset(x.dq, 0, (size_t)(amx_filled(t.q[1] - q) * h.wide) * sizeof *x.dq);
        amx_grad_pack_queries(&w->a, &h, t.q, &x);
        for (int64_t k = 0; k < amx_seen(a, t.q[1]); k += GRAD_KEYS) {
            t.k[0] = k;
            t.k[1] = num_min(k + GRAD_KEYS, amx_seen(a, t.q[1]));
            amx_grad_pack_keys(&h, t.k, &x);
            amx_grad_block(&h, &t, &x, false, x.dq);
        }
        amx_grad_write(&w->a, &h, t.q, x.dq);
    }
    tiles_close();
}

/* Items of the tasks. Whole kv heads, and then `queries` is 0, where dq fits the scratch and the
 * threads are not left idle for longer than computing P twice would take, which is 8 parts of work
 * for 5; else chunks of keys, and in `queries` those of queries. */
static inline int64_t amx_attn_grad_cut(struct amx_attn_grad *w, int64_t threads, int64_t *queries)
{
    const struct attn *a = &w->a.f;
    int64_t heads = a->b * a->kv_heads, group = a->heads / a->kv_heads;
    bool fits = group * amx_filled(a->tq) * amx_filled(a->d) <= CPU_DQ_FLOATS;
    *queries = 0;
    if (fits && 5 * num_ceil_div(heads, threads) * threads <= 8 * heads)
        return heads;
    w->chunk = GRAD_KEYS;
    while (w->chunk > AMX_SIDE && heads * num_ceil_div(a->tk, w->chunk) < 3 * threads)
        w->chunk /= 2;
    *queries = a->b * a->heads * num_ceil_div(a->tq, num_min(w->chunk, GRAD_QUERIES));
    return heads * num_ceil_div(a->tk, w->chunk);
}

#endif
