/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of our own: f32 and bf16, any head dimension up to 256, dropout of probabilities. What
 * it computes is in src/device/ref/ref_ops.c; how, in Dao et al. 2022 (FlashAttention) and Dao
 * 2023 (its second version): a block holds 64 rows of one operand and lets tiles of the others pass
 * by, so that scores live in registers only.
 *
 * Three passes have one shape, and are one kernel. A is what the block holds, X and Y what passes:
 *     FORWARD  A = Q               X = K, Y = V      S = A X^T               o  += P Y
 *     DQ       A = Q, B = dO       X = K, Y = V      S = A X^T, dP = B Y^T   dq += dS X
 *     DKV      A = K, B = V        X = Q, Y = dO     S, dP: both transposed  dv += P Y, dk += dS X
 * Each result is written by one block, which adds in a fixed order (DKV: over the query heads of
 * its kv head, one after another): no atomics, the same bits in every run. A head dimension above
 * 128 is worked on by two blocks, each with the scores in full and half of the columns.
 *
 * Four warps own 16 rows each. Both number types use the layout of the tensor core's result: lane
 * l has rows l/4 and l/4 + 8, and of each 8 columns those at 2 (l%4) and behind. bf16 multiplies by
 * mma.sync m16n8k16, with P taken from registers; f32 by plain multiply-add, with P through shared
 * memory. Rows of shared memory are longer by 16 bytes, which spreads them over the banks.
 */
#include "device/cuda/cuda_attn_tile.cuh"

/* Where a block and a warp stand. */
struct place {
    int64_t seq, head; /* head: of queries, in DKV of keys */
    int64_t row;       /* first own row of the block, in its sequence */
    int64_t warp_row;  /* first of the warp */
    int part;
};

template <typename T, int D, enum pass PASS>
__device__ static struct place place_of(const struct params *a)
{
    constexpr int PARTS = shape<T, D>::PARTS;
    int64_t i = blockIdx.x, tile = i % a->tiles, rest = i / a->tiles;
    int64_t heads = PASS == DKV ? a->kv_heads : a->heads;
    struct place p;
    p.part = (int)(rest % PARTS);
    p.head = rest / PARTS % heads;
    p.seq = rest / PARTS / heads;
    /* the longest first: late queries see most keys, early keys are seen by most queries */
    p.row = (PASS == DKV ? tile : a->tiles - 1 - tile) * ROWS;
    p.warp_row = p.row + threadIdx.x / 32 * 16;
    return p;
}

/* Masks what a query does not see: s = what. (row, col) as in kept_each; `ahead` = tk - tq. */
template <int N, bool TURNED>
__device__ static void mask(float (*s)[4], int64_t row, int64_t col, int64_t ahead, float what)
{
    int l = threadIdx.x % 32;
    int64_t last = TURNED ? row + 15 : col + N - 1, first = TURNED ? col : row;
    if (last <= first + ahead)
        return;
    int delta = (int)(TURNED ? row - col - ahead : col - row - ahead); /* key - query's position */
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int r = l / 4 + e / 2 * 8, c = 8 * j + l % 4 * 2 + e % 2;
            if (delta + (TURNED ? r - c : c - r) > 0)
                s[j][e] = what;
        }
    }
}

/* The running maximum and sum of a lane's two rows. */
struct running {
    float max[2], sum[2];
};

__device__ static inline float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ static inline float quad_sum(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/* s becomes exp(scale s - max) for the new maxima, acc is brought to them. */
template <typename T, int N, int OUT>
__device__ static void online_softmax(float (*s)[4], float (*acc)[4], struct running *run,
                                      float scale)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float max = -INFINITY, sum = 0;
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            s[j][2 * h] *= scale;
            s[j][2 * h + 1] *= scale;
            max = fmaxf(max, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
        }
        max = fmaxf(quad_max(max), run->max[h]);
        float shrink = exp_of(T(0.0f), run->max[h] - max);
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            s[j][2 * h] = exp_of(T(0.0f), s[j][2 * h] - max);
            s[j][2 * h + 1] = exp_of(T(0.0f), s[j][2 * h + 1] - max);
            sum += s[j][2 * h] + s[j][2 * h + 1];
        }
        run->max[h] = max;
        run->sum[h] = run->sum[h] * shrink + sum;
#pragma unroll
        for (int j = 0; j < OUT / 8; j++) {
            acc[j][2 * h] *= shrink;
            acc[j][2 * h + 1] *= shrink;
        }
    }
}

template <int N> __device__ static void drop(float (*s)[4], uint32_t kept)
{
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (!(kept >> (4 * j + e) & 1))
                s[j][e] = 0;
}

__device__ static inline void store(float *to, float x) { *to = x; }
__device__ static inline void store(__nv_bfloat16 *to, float x) { *to = __float2bfloat16_rn(x); }
__device__ static inline void store2(float *to, float x, float y)
{
    *(float2 *)to = make_float2(x, y);
}
__device__ static inline void store2(__nv_bfloat16 *to, float x, float y)
{
    *(uint32_t *)to = pack2(x, y);
}

/* A warp's accumulated rows times `by` (of each of the two rows) to where they belong. */
template <typename T, int D>
__device__ static void write_rows(T *to, int64_t ld, const float (*acc)[4], const float *by,
                                  int64_t rows, const struct params *a, int part)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t r = threadIdx.x % 32 / 4 + 8 * h;
        if (r >= rows)
            continue;
#pragma unroll
        for (int j = 0; j < shape<T, D>::OUT / 8; j++) {
            int c = part * shape<T, D>::OUT + acc_column<T>(j);
            float x = acc[j][2 * h] * by[h], y = acc[j][2 * h + 1] * by[h];
            if (a->wide && c < a->d) {
                store2(to + r * ld + c, x, y);
            } else {
                if (c < a->d)
                    store(to + r * ld + c, x);
                if (c + 1 < a->d)
                    store(to + r * ld + c + 1, y);
            }
        }
    }
}

/* Registers of a warp during one pass. */
template <typename T, int D, enum pass PASS> struct state {
    float acc[shape<T, D>::OUT / 8][4];                      /* o; dq; dk */
    float acc2[PASS == DKV ? shape<T, D>::OUT / 8 : 1][4];   /* dv */
    struct running run;                                      /* FORWARD */
    float lse[2], delta[2];                                  /* DQ: of the two rows */
};

/* Shared memory of a block. */
template <typename T> struct smem {
    T *a, *b, *x, *y;       /* x, y: buffer 0 */
    float *lse, *delta;     /* DKV: (BUFFERS, N) */
    float *p;               /* f32: of this warp */
};

template <typename T, int D, enum pass PASS>
__device__ static struct smem<T> smem_of(char *base)
{
    using s = shape<T, D>;
    struct smem<T> m;
    m.a = (T *)base;
    m.b = m.a + (PASS == FORWARD ? 0 : s::OWN);
    m.x = m.b + s::OWN;
    m.y = m.x + s::BUFFERS * s::TILE;
    m.lse = (float *)(m.y + s::BUFFERS * s::TILE);
    m.delta = m.lse + (PASS == DKV ? s::BUFFERS * s::N : 0);
    m.p = m.delta + (PASS == DKV ? s::BUFFERS * s::N : 0);
    m.p += threadIdx.x / 32 * 16 * s::LDP;
    return m;
}

/* One passing tile of N rows from `col`, in a buffer: x, y; in DKV statistics of the queries too.
 * Queries that are not there get lse +inf, so that their probabilities are 0. */
template <typename T, int D, enum pass PASS>
__device__ static void fetch(const struct params *a, const struct smem<T> *m, const struct place *p,
                             int64_t head, int64_t col, int buffer)
{
    using s = shape<T, D>;
    int64_t t = PASS == DKV ? a->tq : a->tk;
    const T *x = (const T *)a->x + p->seq * t * a->ldx + head * a->d;
    const T *y = (const T *)a->y + p->seq * t * a->ldy + head * a->d;
    load_tile<T, D, s::N>(m->x + buffer * s::TILE, x, a->ldx, col, t, a->d, a->wide);
    load_tile<T, D, s::N>(m->y + buffer * s::TILE, y, a->ldy, col, t, a->d, a->wide);
    copies_commit();
    if (PASS == DKV && threadIdx.x < s::N) {
        int i = threadIdx.x;
        int64_t at = (p->seq * t + col + i) * a->heads + head;
        bool there = col + i < t;
        m->lse[buffer * s::N + i] = there ? a->lse[at] : INFINITY;
        m->delta[buffer * s::N + i] = there ? a->delta[at] : 0;
    }
}

/* s: probabilities with dropout; dp becomes the gradient of the scores (without scale). */
template <typename T, int N, bool TURNED>
__device__ static void score_grad(float (*s)[4], float (*dp)[4], const float *lse,
                                  const float *delta, const struct params *a, uint32_t kept)
{
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int i = TURNED ? 8 * j + threadIdx.x % 4 * 2 + e % 2 : e / 2;
            bool keep = kept >> (4 * j + e) & 1;
            float p = exp_of(T(0.0f), s[j][e] * a->scale - lse[i]);
            dp[j][e] = p * ((keep ? dp[j][e] * a->inv_keep : 0.0f) - delta[i]);
            s[j][e] = keep ? p : 0.0f;
        }
    }
}

/* What a warp does with one passing tile. */
template <typename T, int D, enum pass PASS>
__device__ static void work(const struct params *a, const struct smem<T> *m, const struct place *p,
                            struct state<T, D, PASS> *st, int64_t head, int64_t col, int buffer)
{ /* long: where a warp stands and what it holds */
    using sh = shape<T, D>;
    constexpr int N = sh::N;
    constexpr bool TURNED = PASS == DKV;
    const T *x = m->x + buffer * sh::TILE, *y = m->y + buffer * sh::TILE;
    int own = threadIdx.x / 32 * 16 * sh::LD, out = p->part * sh::OUT;
    int64_t ahead = a->tk - a->tq, base = p->seq * a->tq;
    float s[N / 8][4];
    uint32_t kept = kept_of<N, TURNED>(a, head, p->warp_row + (TURNED ? 0 : base),
                                       col + (TURNED ? base : 0));
    mma_nt<D, N>(s, m->a + own, x);
    mask<N, TURNED>(s, p->warp_row, col, ahead, -INFINITY);
    if constexpr (PASS == FORWARD) {
        online_softmax<T, N, sh::OUT>(s, st->acc, &st->run, a->scale);
        drop<N>(s, kept);
        mma_nn<D, N>(st->acc, s, y + out, m->p);
    } else {
        float dp[N / 8][4];
        mma_nt<D, N>(dp, m->b + own, y);
        const float *lse = TURNED ? m->lse + buffer * N : st->lse;
        const float *delta = TURNED ? m->delta + buffer * N : st->delta;
        score_grad<T, N, TURNED>(s, dp, lse, delta, a, kept);
        if constexpr (PASS == DKV)
            mma_nn<D, N>(st->acc2, s, y + out, m->p);
        mma_nn<D, N>(st->acc, dp, x + out, m->p);
    }
}

/* Lets the tiles from `first` to below `end` (rows of the passing operands) pass by. */
template <typename T, int D, enum pass PASS>
__device__ static void pass_by(const struct params *a, const struct smem<T> *m,
                               const struct place *p, struct state<T, D, PASS> *st, int64_t head,
                               int64_t first, int64_t end)
{ /* long: where a block stands and how far it goes */
    using s = shape<T, D>;
    int64_t from = PASS == DKV ? head : head / (a->heads / a->kv_heads);
    int buffer = 0;
    if (first >= end)
        return;
    fetch<T, D, PASS>(a, m, p, from, first, 0);
    for (int64_t col = first; col < end; col += s::N) {
        bool more = col + s::N < end;
        if (s::BUFFERS == 2 && more) {
            fetch<T, D, PASS>(a, m, p, from, col + s::N, 1 - buffer);
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        __syncthreads();
        work<T, D, PASS>(a, m, p, st, head, col, buffer);
        __syncthreads();
        if (s::BUFFERS == 1 && more)
            fetch<T, D, PASS>(a, m, p, from, col + s::N, 0);
        if (s::BUFFERS == 2)
            buffer = 1 - buffer;
    }
}

/* What a warp has at the end: o and lse, dq, or dk and dv. */
template <typename T, int D, enum pass PASS>
__device__ static void finish(const struct params *a, const struct place *p,
                              const struct state<T, D, PASS> *st)
{
    int64_t t = PASS == DKV ? a->tk : a->tq, rows = t - p->warp_row;
    int64_t row = p->seq * t + p->warp_row, at = row * a->ldout + p->head * a->d;
    float by[2] = {a->scale, a->scale};
    if (PASS == FORWARD) {
        for (int h = 0; h < 2; h++) {
            float sum = quad_sum(st->run.sum[h]);
            int r = threadIdx.x % 32 / 4 + 8 * h;
            by[h] = a->inv_keep / sum;
            if (p->part == 0 && threadIdx.x % 4 == 0 && r < rows)
                a->lse[(row + r) * a->heads + p->head] = st->run.max[h] + logf(sum);
        }
    }
    write_rows<T, D>((T *)a->out + at, a->ldout, st->acc, by, rows, a, p->part);
    if (PASS == DKV) {
        float keep[2] = {a->inv_keep, a->inv_keep};
        at = row * a->ldout2 + p->head * a->d;
        write_rows<T, D>((T *)a->out2 + at, a->ldout2, st->acc2, keep, rows, a, p->part);
    }
}

template <typename T, int D, enum pass PASS>
static __global__ void __launch_bounds__(THREADS, shape<T, D>::BLOCKS)
attend(const __grid_constant__ struct params params)
{
    extern __shared__ __align__(16) char memory[];
    const struct params *a = &params;
    using s = shape<T, D>;
    struct place p = place_of<T, D, PASS>(a);
    struct smem<T> m = smem_of<T, D, PASS>(memory);
    struct state<T, D, PASS> st = {};
    int64_t t = PASS == DKV ? a->tk : a->tq, ahead = a->tk - a->tq, group = a->heads / a->kv_heads;
    const T *own = (const T *)a->a + p.seq * t * a->lda + p.head * a->d;
    load_tile<T, D, ROWS>(m.a, own, a->lda, p.row, t, a->d, a->wide);
    if (PASS != FORWARD) {
        own = (const T *)a->b + p.seq * t * a->ldb + p.head * a->d;
        load_tile<T, D, ROWS>(m.b, own, a->ldb, p.row, t, a->d, a->wide);
    }
    copies_commit();
    st.run.max[0] = st.run.max[1] = -INFINITY;
    if (PASS == DQ) {
        for (int h = 0; h < 2; h++) {
            int64_t r = p.warp_row + threadIdx.x % 32 / 4 + 8 * h;
            int64_t at = (p.seq * t + r) * a->heads + p.head;
            st.lse[h] = r < t ? a->lse[at] : INFINITY;
            st.delta[h] = r < t ? a->delta[at] : 0;
        }
    }
    if (PASS == DKV) {
        int64_t first = max(p.row - ahead, (int64_t)0) / s::N * s::N;
        for (int64_t h = p.head * group; h < (p.head + 1) * group; h++)
            pass_by<T, D, PASS>(a, &m, &p, &st, h, first, a->tq);
    } else {
        int64_t end = min(p.row + ROWS, a->tq) + ahead;
        pass_by<T, D, PASS>(a, &m, &p, &st, p.head, 0, end);
    }
    finish<T, D, PASS>(a, &p, &st);
}

/* delta (rows, heads): the dot product of o and do, a warp each. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
output_dots(float *delta, const T *o, const T *do_, int64_t n, int64_t heads, int64_t d, int64_t ld)
{
    int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, at = i / heads * ld + i % heads * d;
    float sum = 0;
    if (i >= n)
        return;
    for (int64_t c = threadIdx.x % 32; c < d; c += 32)
        sum += (float)o[at + c] * (float)do_[at + c];
    for (int lane = 16; lane > 0; lane /= 2)
        sum += __shfl_xor_sync(~0u, sum, lane);
    if (threadIdx.x % 32 == 0)
        delta[i] = sum;
}

template <typename T, int D, enum pass PASS>
static enum err launch(struct cuda *c, const struct params *params, int64_t b)
{
    int64_t heads = PASS == DKV ? params->kv_heads : params->heads, blocks;
    constexpr int bytes = shared_bytes<T, D, PASS>();
    static_assert(bytes <= 232448, "shared memory of a block on Hopper");
    if (bytes > c->shared) /* Ampere: heads above 128 in bf16, above 64 in f32 */
        FAIL(ERR_CONFIG, "attention: heads of %lld elements in %s need %d bytes of shared memory "
             "and GPU %d gives a block %d; use smaller heads (model.head_dim), or a GPU of sm_90 "
             "or later", (long long)params->d, c->bf16 ? "bf16" : "f32", bytes, c->index,
             c->shared);
    if (!num_mul(params->tiles * heads, shape<T, D>::PARTS * b, &blocks) || blocks > INT32_MAX)
        FAIL(ERR_CONFIG, "attention: %lld sequences of %lld heads and %lld tiles; use a smaller "
             "microbatch", (long long)b, (long long)heads, (long long)params->tiles);
    CUDA_TRY(cudaFuncSetAttribute((const void *)attend<T, D, PASS>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    attend<T, D, PASS><<<(unsigned)blocks, THREADS, bytes, c->stream>>>(*params);
    CUDA_LAUNCHED("attention");
    return ERR_OK;
}

template <enum pass PASS> static enum err launch_for(struct cuda *c, struct params *p, int64_t b)
{
    p->tiles = ((PASS == DKV ? p->tk : p->tq) + ROWS - 1) / ROWS;
    if (c->bf16 && p->d <= 64)
        return launch<__nv_bfloat16, 64, PASS>(c, p, b);
    if (c->bf16 && p->d <= 128)
        return launch<__nv_bfloat16, 128, PASS>(c, p, b);
    if (c->bf16)
        return launch<__nv_bfloat16, 256, PASS>(c, p, b);
    if (p->d <= 64)
        return launch<float, 64, PASS>(c, p, b);
    if (p->d <= 128)
        return launch<float, 128, PASS>(c, p, b);
    return launch<float, 256, PASS>(c, p, b);
}

/* Can matrix p with rows of ld elements be read and written 16 bytes at a time? */
static bool wide_matrix(const void *p, int64_t ld, int64_t size)
{
    return (uintptr_t)p % 16 == 0 && ld * size % 16 == 0;
}

static enum err params_of(struct cuda *c, const struct attn *a, struct params *params)
{
    int64_t size = c->bf16 ? 2 : 4;
    if (a->d > 256)
        FAIL(ERR_CONFIG, "attention: heads of %lld elements; the cuda device takes at most 256",
             (long long)a->d);
    *params = (struct params){};
    params->tq = a->tq;
    params->tk = a->tk;
    params->heads = a->heads;
    params->kv_heads = a->kv_heads;
    params->d = a->d;
    params->lse = (float *)a->lse;
    params->scale = (float)a->scale;
    params->inv_keep = 1;
    params->wide = a->d * size % 16 == 0 && wide_matrix(a->q, a->ldq, size) &&
                   wide_matrix(a->k, a->ldk, size) && wide_matrix(a->v, a->ldv, size) &&
                   wide_matrix(a->o, a->ldo, size);
    if (a->drop.p > 0) {
        params->inv_keep = (float)(1 / (1 - a->drop.p));
        params->threshold = num_drop_threshold(a->drop.p);
        params->seed = a->drop.seed;
        params->stream = a->drop.stream;
        params->step = a->drop.step;
        params->row0 = a->drop.row0;
        params->heads_total = a->heads_total;
        params->head0 = a->head0;
    }
    return ERR_OK;
}

extern "C" enum err cuda_attn_own(struct cuda *c, const struct attn *a)
{
    struct params params;
    if (a->b == 0 || a->tq == 0)
        return ERR_OK;
    TRY(params_of(c, a, &params));
    params.a = a->q, params.lda = a->ldq;
    params.x = a->k, params.ldx = a->ldk;
    params.y = a->v, params.ldy = a->ldv;
    params.out = a->o, params.ldout = a->ldo;
    return launch_for<FORWARD>(c, &params, a->b);
}

static enum err dots(struct cuda *c, const struct attn_grad *g)
{
    int64_t n = g->f.b * g->f.tq * g->f.heads, blocks = (n + WARPS - 1) / WARPS;
    if (blocks > INT32_MAX)
        FAIL(ERR_CONFIG, "attention: %lld rows and heads; use a smaller microbatch", (long long)n);
    if (c->bf16)
        output_dots<__nv_bfloat16><<<(unsigned)blocks, THREADS, 0, c->stream>>>(
            (float *)g->delta, (const __nv_bfloat16 *)g->f.o, (const __nv_bfloat16 *)g->do_, n,
            g->f.heads, g->f.d, g->f.ldo);
    else
        output_dots<float><<<(unsigned)blocks, THREADS, 0, c->stream>>>(
            (float *)g->delta, (const float *)g->f.o, (const float *)g->do_, n, g->f.heads,
            g->f.d, g->f.ldo);
    CUDA_LAUNCHED("attention: delta");
    return ERR_OK;
}

extern "C" enum err cuda_attn_own_grad(struct cuda *c, const struct attn_grad *g)
{
    const struct attn *a = &g->f;
    int64_t size = c->bf16 ? 2 : 4;
    struct params params;
    if (a->b == 0 || a->tk == 0)
        return ERR_OK;
    TRY(params_of(c, a, &params));
    params.wide &= wide_matrix(g->do_, a->ldo, size) && wide_matrix(g->dq, a->ldq, size) &&
                   wide_matrix(g->dk, a->ldk, size) && wide_matrix(g->dv, a->ldv, size);
    params.delta = (const float *)g->delta;
    if (a->tq > 0) {
        TRY(dots(c, g));
        params.a = a->q, params.lda = a->ldq;
        params.b = g->do_, params.ldb = a->ldo;
        params.x = a->k, params.ldx = a->ldk;
        params.y = a->v, params.ldy = a->ldv;
        params.out = g->dq, params.ldout = a->ldq;
        TRY(launch_for<DQ>(c, &params, a->b));
    }
    params.a = a->k, params.lda = a->ldk;
    params.b = a->v, params.ldb = a->ldv;
    params.x = a->q, params.ldx = a->ldq;
    params.y = g->do_, params.ldy = a->ldo;
    params.out = g->dk, params.ldout = a->ldk;
    params.out2 = g->dv, params.ldout2 = a->ldv;
    return launch_for<DKV>(c, &params, a->b);
}
