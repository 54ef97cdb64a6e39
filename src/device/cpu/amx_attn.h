/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention of bf16 on AMX tiles, with a running maximum and sum (Dao et al. 2022). The
 * scores of 32 queries stand on their side, a row for each key:
 *
 *     for ATTN_KEYS keys, k and v packed once for all queries of an item
 *         for 32 queries that see some of them
 *             S  (keys, 32) = K Q^T            blocks that no query may see are left out
 *             P  (keys, 32) = exp(scale S - max), rounded to bf16
 *             O  (d, 32)    = shrink O + V^T P
 *
 * so that a vector is the same key for neighbouring queries: maxima and sums run down the columns
 * and need no sums across a vector, the factors of a column are a vector, and two rows of P side by
 * side are the pairs that the right operand of V^T P wants. Only O is turned, once, when it is
 * written. Scores, P before it is rounded, sums and O are f32.
 *
 * Heads of any size up to CPU_HEAD_MAX are taken: d is filled up to whole blocks with zeros, and so
 * are queries and keys.
 *
 * A query meets the keys in one order, cut at the same places whatever its neighbours are and
 * however many queries an item has: the bits depend neither on the number of threads nor on what
 * other sequences and heads there are.
 */
#ifndef PLAIT_DEVICE_CPU_AMX_ATTN_H
#define PLAIT_DEVICE_CPU_AMX_ATTN_H

#include "device/cpu/amx_block.h"
#include "device/cpu/simd_drop.h"

enum {
    ATTN_KEYS = 128,    /* packed at a time, and the range of a maximum */
    ATTN_QUERIES = 256, /* of an item, at most */
};

_Static_assert(CPU_HEAD_MAX * (ATTN_QUERIES / 2 + ATTN_KEYS + ATTN_QUERIES) +
                       AMX_SIDE * ATTN_KEYS * 5 / 2 + TILE * ATTN_KEYS + 2 * ATTN_QUERIES <=
                   CPU_SCRATCH_FLOATS,
               "the blocks of attention fit a thread's scratch");

/* The task: items are chunks of queries of each head of each sequence. */
struct amx_attn { struct attn a; int64_t chunk; };

/* One head of one sequence: its rows of d. */
struct amx_head {
    const struct attn *a;
    struct amx_operand q, k, v;
    int64_t b, h, wide; /* sequence, head, d filled up */
};

static inline struct amx_head amx_head_at(const struct attn *a, int64_t b, int64_t h)
{
    int64_t kv = h / (a->heads / a->kv_heads);
    const uint16_t *q = a->q, *k = a->k, *v = a->v;
    return (struct amx_head){
        .a = a,
        .q = {q + b * a->tq * a->ldq + h * a->d, a->ldq, false},
        .k = {k + b * a->tk * a->ldk + kv * a->d, a->ldk, false},
        .v = {v + b * a->tk * a->ldv + kv * a->d, a->ldv, false},
        .b = b,
        .h = h,
        .wide = amx_filled(a->d),
    };
}

/* The same rows as the other kind of operand: what ran along k is the row or the column. */
static inline struct amx_operand amx_turned(struct amx_operand x)
{
    x.along = !x.along;
    return x;
}

/* Keys before this one are seen by some query before `q`. */
static inline int64_t amx_seen(const struct attn *a, int64_t q)
{
    return a->tk - a->tq + q;
}

/* ---- vectors to tiles ---- */

#if VL == 16 && defined(__AVX512BF16__)
/* x0, then x1, rounded. */
SIMD_INLINE __m512i amx_rounded(vf x0, vf x1)
{
    return (__m512i)_mm512_cvtne2ps_pbh((__m512)x1, (__m512)x0);
}

SIMD_INLINE void amx_put_pairs(uint32_t *to, vf x0, vf x1)
{
    __m512i lane = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                    23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(lane, amx_rounded(x0, x1)));
}

SIMD_INLINE void amx_put_rows(uint16_t *row0, uint16_t *row1, vf x0, vf x1)
{
    __m512i x = amx_rounded(x0, x1);
    _mm256_storeu_si256((__m256i *)row0, _mm512_castsi512_si256(x));
    _mm256_storeu_si256((__m256i *)row1, _mm512_extracti64x4_epi64(x, 1));
}
#else
/* To nearest, ties to even; NaN stays NaN (as bf16_from_f32). In the upper halves. */
SIMD_INLINE vu amx_rounded(vf x)
{
    vu u = (vu)x, nan = (vu)(x != x);
    return (nan & (u | 0x400000u)) | (~nan & (u + 0x7fffu + ((u >> 16) & 1u)));
}

/* VL pairs of a right operand: x0 at an even k, x1 at the next. */
SIMD_INLINE void amx_put_pairs(uint32_t *to, vf x0, vf x1)
{
    vu pair = (amx_rounded(x0) >> 16) | (amx_rounded(x1) & 0xffff0000u);
    memcpy(to, &pair, sizeof pair);
}

/* VL elements of two rows of a left operand. */
SIMD_INLINE void amx_put_rows(uint16_t *row0, uint16_t *row1, vf x0, vf x1)
{
    vf_to_bf16(row0, x0);
    vf_to_bf16(row1, x1);
}
#endif

/* Where pair k/2 of column `col` of a right operand of 32 columns stands. */
static inline uint32_t *amx_pair_at(char *p, int64_t k, int64_t col)
{
    return (uint32_t *)(void *)(p + k / TILE_K * AMX_STEP_BYTES + col / TILE * TILE_BYTES) +
           k % TILE_K / 2 * TILE + col % TILE;
}

/* 16 x 16 f32 turned: element (i, j) of `from` is element (j, i) of `to`. */
static inline void amx_turn(float *to, int64_t to_ld, const float *from, int64_t ld)
{
    pairs r[TILE];
    for (int i = 0; i < TILE; i++)
        memcpy(&r[i], from + i * ld, sizeof r[i]);
    amx_transpose(r);
    for (int i = 0; i < TILE; i++)
        memcpy(to + i * to_ld, &r[i], sizeof r[i]);
}

/* Scores (keys, queries): in row r, the first r - diagonal queries do not see the key. */
static inline void amx_hide(float *s, const int64_t size[2], int64_t diagonal)
{
    vi lane;
    for (int l = 0; l < VL; l++)
        lane[l] = l;
    for (int64_t r = num_max(0, diagonal + 1); r < size[0]; r++) {
        int64_t hidden = num_min(r - diagonal, size[1]);
        for (int64_t c = 0; c < hidden; c += VL) {
            float *at = s + r * size[1] + c;
            vi mask = (vi)(lane < (int32_t)(hidden - c));
            vf_store(at, vf_select(mask, vf_set(-INFINITY), vf_load(at)));
        }
    }
}

/* Dropout factors of queries q and keys k, on their side: to[key][query], rows of ld; both filled
 * up to whole blocks with zeros. row: scratch of 16 x amx_filled(keys). */
static inline void amx_factors(const struct amx_head *h, const int64_t q[2], const int64_t k[2],
                               struct cpu_target to, float *row)
{
    const struct attn *a = h->a;
    int64_t wide = amx_filled(k[1] - k[0]);
    for (int64_t i = q[0]; i < q[0] + amx_filled(q[1] - q[0]); i += TILE) {
        for (int64_t r = 0; r < TILE; r++) {
            float *f = row + r * wide;
            int64_t at = (a->drop.row0 + h->b * a->tq + i + r) * a->heads_total + a->head0 + h->h;
            memset(f, 0, (size_t)wide * sizeof *f);
            if (i + r < q[1])
                drop_factors(&a->drop, at * a->tk + k[0], f, k[1] - k[0]);
        }
        for (int64_t j = 0; j < wide; j += TILE)
            amx_turn(to.c + j * to.ld + i - q[0], to.ld, row + j, wide);
    }
}

/* ---- forward ---- */

/* A chunk of queries at work. */
struct amx_chunk {
    char *q;      /* queries: right operands over d */
    char *k, *v;  /* keys: left operands, k over d and v turned, over keys */
    char *p;      /* (keys, 32): right operand over keys */
    float *s;     /* (keys, 32): scores */
    float *o;     /* for each 32 queries (wide, 32) */
    float *max, *sum;
    float *factor, *row;
};

/* The next n bf16 of scratch. */
static inline char *amx_take(float **scratch, int64_t n)
{
    char *p = (char *)*scratch;
    *scratch += n / 2;
    return p;
}

static inline struct amx_chunk amx_chunk_at(float *s, int64_t wide)
{
    struct amx_chunk x;
    x.q = amx_take(&s, ATTN_QUERIES * wide);
    x.k = amx_take(&s, ATTN_KEYS * wide);
    x.v = amx_take(&s, ATTN_KEYS * wide);
    x.p = amx_take(&s, ATTN_KEYS * AMX_SIDE);
    x.s = s;
    x.o = x.s + ATTN_KEYS * AMX_SIDE;
    x.max = x.o + ATTN_QUERIES * wide;
    x.sum = x.max + ATTN_QUERIES;
    x.factor = x.sum + ATTN_QUERIES;
    x.row = x.factor + ATTN_KEYS * AMX_SIDE;
    return x;
}

/* Scores of VL queries -> probabilities before division by the sum, as pairs: n keys (in
 * fours), column c of the 32 queries at `at`. Returns the factor by which what was gathered under
 * the old maximum shrinks. */
SIMD_INLINE vf amx_softmax(const struct amx_chunk *x, int64_t n, int64_t at, int64_t c, float scale)
{
    bool drop = x->factor;
    float *max = x->max + at + c, *sum = x->sum + at + c;
    vf was = vf_load(max), total = vf_set(0.0f), most[4];
    for (int r = 0; r < 4; r++)
        most[r] = vf_load(x->s + r * AMX_SIDE + c);
    for (int64_t j = 4; j < n; j += 4)
        for (int r = 0; r < 4; r++)
            most[r] = vf_max(most[r], vf_load(x->s + (j + r) * AMX_SIDE + c));
    vf top = vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3]));
    top = vf_max(was, top * scale);
    for (int64_t j = 0; j < n; j += 2) {
        const float *s = x->s + j * AMX_SIDE + c;
        vf p0 = vf_exp(vf_fma(vf_load(s), vf_set(scale), -top));
        vf p1 = vf_exp(vf_fma(vf_load(s + AMX_SIDE), vf_set(scale), -top));
        total += p0;
        total += p1;
        if (drop) {
            p0 *= vf_load(x->factor + j * AMX_SIDE + c);
            p1 *= vf_load(x->factor + (j + 1) * AMX_SIDE + c);
        }
        amx_put_pairs(amx_pair_at(x->p, j, c), p0, p1);
    }
    vf shrink = vf_exp(was - top);
    vf_store(max, top);
    vf_store(sum, vf_fma(vf_load(sum), shrink, total));
    return shrink;
}

/* The softmax of 32 queries over n keys; what was gathered of o, if any, shrinks. */
static inline void amx_probs(const struct amx_head *h, const struct amx_chunk *x, int64_t n,
                             int64_t at, float *o)
{
    float was[AMX_SIDE], shrink[AMX_SIDE];
    memcpy(was, x->max + at, sizeof was);
    for (int64_t c = 0; c < AMX_SIDE; c += VL)
        vf_store(shrink + c, amx_softmax(x, n, at, c, (float)h->a->scale));
    if (!o || memcmp(was, x->max + at, sizeof was) == 0)
        return;
    for (int64_t r = 0; r < h->wide; r++, o += AMX_SIDE)
        for (int64_t c = 0; c < AMX_SIDE; c += VL)
            vf_store(o + c, vf_load(o + c) * vf_load(shrink + c));
}

/* Keys [k[0], k[1]), which are packed, for the 32 queries from q on, which begin at `at` of the
 * chunk; some of them are seen. */
static inline void amx_attn_strip(const struct amx_head *h, const int64_t k[2], int64_t q,
                                  int64_t at, const struct amx_chunk *chunk)
{
    const struct attn *a = h->a;
    struct amx_chunk x = *chunk;
    int64_t last = num_min(q + AMX_SIDE, a->tq), n = num_min(k[1], amx_seen(a, last)) - k[0];
    int64_t wide = amx_filled(n), all = amx_filled(k[1] - k[0]), steps = h->wide / TILE_K;
    const char *queries = x.q + at * h->wide * 2;
    float *o = x.o + at * h->wide;
    for (int64_t j = 0; j < wide; j += AMX_SIDE)
        amx_step(steps, x.k + j * h->wide * 2, queries,
                 (struct cpu_target){x.s + j * AMX_SIDE, AMX_SIDE, false});
    amx_hide(x.s, (int64_t[2]){wide, AMX_SIDE}, amx_seen(a, q) - k[0]);
    if (a->drop.p > 0.0)
        amx_factors(h, (int64_t[2]){q, last}, (int64_t[2]){k[0], k[0] + n},
                    (struct cpu_target){x.factor, AMX_SIDE, false}, x.row);
    else
        x.factor = NULL;
    amx_probs(h, &x, wide, at, k[0] > 0 ? o : NULL);
    for (int64_t r = 0; r < h->wide; r += AMX_SIDE)
        amx_step(wide / TILE_K, x.v + r * all * 2, x.p,
                 (struct cpu_target){o + r * AMX_SIDE, AMX_SIDE, k[0] > 0});
}

/* 16 rows of queries from columns of (wide, 32) at `from`, n of them are there, to rows of bf16. */
static inline void amx_write(const struct amx_head *h, uint16_t *to, int64_t ld, const float *from,
                             int64_t n)
{
    float turned[TILE][TILE];
    for (int64_t r = 0; r < h->a->d; r += TILE) {
        amx_turn(turned[0], TILE, from + r * AMX_SIDE, AMX_SIDE);
        for (int64_t i = 0; i < num_min(n, TILE); i++)
            for (int64_t j = 0; j < TILE && r + j < h->a->d; j += VL)
                ct_store(to + i * ld, r + j, h->a->d, vf_load(turned[i] + j), true);
    }
}

/* Division by the sums, o and lse of the chunk of queries q. */
static inline void amx_attn_write(const struct amx_head *h, const int64_t q[2],
                                  const struct amx_chunk *x)
{
    const struct attn *a = h->a;
    for (int64_t i = 0; i < q[1] - q[0]; i += TILE) {
        int64_t row = h->b * a->tq + q[0] + i;
        float *o = x->o + i / AMX_SIDE * AMX_SIDE * h->wide + i % AMX_SIDE;
        for (int64_t c = 0; c < TILE; c += VL) {
            vf inverse = 1.0f / vf_load(x->sum + i + c);
            for (float *p = o + c; p < o + h->wide * AMX_SIDE; p += AMX_SIDE)
                vf_store(p, vf_load(p) * inverse);
        }
        amx_write(h, (uint16_t *)a->o + row * a->ldo + h->h * a->d, a->ldo, o, q[1] - q[0] - i);
    }
    for (int64_t i = 0; i < q[1] - q[0]; i++) {
        int64_t row = h->b * a->tq + q[0] + i;
        ((float *)a->lse)[row * a->heads + h->h] = x->max[i] + logf(x->sum[i]);
    }
}

static inline void amx_attn_chunk(const struct amx_head *h, const int64_t q[2], float *scratch)
{
    const struct attn *a = h->a;
    struct amx_chunk x = amx_chunk_at(scratch, h->wide);
    const int64_t d[2] = {0, a->d};
    const struct amx_operand v = amx_turned(h->v);
    for (int64_t i = 0; i < amx_filled(q[1] - q[0]); i++) {
        x.max[i] = -INFINITY;
        x.sum[i] = 0.0f;
    }
    amx_pack(x.q, &h->q, q, d, true);
    for (int64_t at = 0; at < amx_seen(a, q[1]); at += ATTN_KEYS) {
        const int64_t k[2] = {at, num_min(at + ATTN_KEYS, amx_seen(a, q[1]))};
        amx_pack(x.k, &h->k, k, d, false);
        amx_pack(x.v, &v, d, k, false);
        for (int64_t i = q[0]; i < q[1]; i += AMX_SIDE)
            if (amx_seen(a, num_min(i + AMX_SIDE, q[1])) > at)
                amx_attn_strip(h, k, i, i - q[0], &x);
    }
    amx_attn_write(h, q, &x);
}

/* cpu_task_fn over struct amx_attn. */
static inline void amx_attn_chunks(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct amx_attn *w = arg;
    const struct attn *a = &w->a;
    int64_t chunks = num_ceil_div(a->tq, w->chunk);
    tiles_open();
    for (int64_t item = first; item < last; item++) {
        int64_t at = (chunks - 1 - item % chunks) * w->chunk; /* the longest first */
        struct amx_head h = amx_head_at(a, item / chunks / a->heads, item / chunks % a->heads);
        amx_attn_chunk(&h, (int64_t[2]){at, num_min(at + w->chunk, a->tq)}, scratch);
    }
    tiles_close();
}

/* Items of the task: chunks are halved until there are a few for each thread. */
static inline int64_t amx_attn_cut(struct amx_attn *w, int64_t threads)
{
    int64_t heads = w->a.b * w->a.heads;
    w->chunk = ATTN_QUERIES;
    while (w->chunk > AMX_SIDE && heads * num_ceil_div(w->a.tq, w->chunk) < 3 * threads)
        w->chunk /= 2;
    return heads * num_ceil_div(w->a.tq, w->chunk);
}

#endif
