/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to each element or pair of elements of a matrix, and the sum of its columns: bias
 * gradients, rotary positions (Su et al. 2021), SwiGLU (Shazeer 2020), residual addition with bias
 * and dropout. All are bound by memory.
 *
 * A thread takes a chunk of 16 bytes of ct where the width of a row is a whole number of chunks and
 * all pointers stand on 16 bytes, else one element: V below is 8 or 4, or 1. Grids are as large as
 * the matrix, so that the memory is kept busy by many threads with a few loads each.
 *
 * Sums of columns take two stages: blocks leave sums of their rows in the workspace, which
 * cuda_columns_add then adds in the order of the blocks.
 */
#include "device/cuda/cuda_math.cuh"

enum {
    ROWS_THREADS = 256,
    ROWS_AHEAD = 2,       /* chunks of a thread whose loads are in flight together */
    ROWS_MOST = 1 << 30,  /* blocks of a grid; beyond, threads step over the rest */
    SUM_WIDE = 32,        /* threads of a block along the columns, */
    SUM_HIGH = 8,         /* and along the rows */
    SUM_AHEAD = 4,
    SUM_PER_SM = 8,
};

/* part[y] (c) = sum of the rows that the blocks of this y step over. A block is SUM_WIDE x SUM_HIGH
 * threads: a warp reads neighbouring chunks of one row. */
template <typename T, int V> static __global__ void __launch_bounds__(SUM_WIDE * SUM_HIGH)
    bias_kernel(float *part, const T *dy, int64_t n, int64_t c)
{
    __shared__ float shared[SUM_HIGH][V][SUM_WIDE];
    int64_t col = ((int64_t)blockIdx.x * SUM_WIDE + threadIdx.x) * V;
    int64_t step = (int64_t)gridDim.y * SUM_HIGH;
    float sum[V] = {};
    if (col < c) {
        for (int64_t r = (int64_t)blockIdx.y * SUM_HIGH + threadIdx.y; r < n;
             r += SUM_AHEAD * step) {
            float v[SUM_AHEAD][V] = {};
#pragma unroll
            for (int u = 0; u < SUM_AHEAD; u++)
                if (r + u * step < n)
                    cuda_get(dy + (r + u * step) * c + col, v[u]);
#pragma unroll
            for (int u = 0; u < SUM_AHEAD; u++)
                cuda_add_to(sum, v[u]);
        }
    }
#pragma unroll
    for (int e = 0; e < V; e++)
        shared[threadIdx.y][e][threadIdx.x] = sum[e];
    __syncthreads();
    for (int e = threadIdx.y; e < V && col < c; e += SUM_HIGH) {
        float whole = shared[0][e][threadIdx.x];
#pragma unroll
        for (int y = 1; y < SUM_HIGH; y++)
            whole += shared[y][e][threadIdx.x];
        part[(int64_t)blockIdx.y * c + col + e] = whole;
    }
}

template <typename T> static enum err bias_as(struct cuda *c, float *db, const T *dy, int64_t n,
                                              int64_t cols, bool fresh)
{
    bool wide = cols % cuda_lanes<T> == 0 && cuda_aligned(dy);
    int64_t tiles = num_ceil_div(cols, SUM_WIDE * (wide ? cuda_lanes<T> : 1));
    int64_t parts = num_max(1, c->sms * SUM_PER_SM / tiles);
    void *part;
    parts = num_min(parts, num_ceil_div(n, SUM_HIGH * SUM_AHEAD));
    TRY(cuda_work(c, parts * cols * (int64_t)sizeof(float), "a bias gradient", &part));
    dim3 grid((unsigned)tiles, (unsigned)parts), block(SUM_WIDE, SUM_HIGH);
    float *sums = static_cast<float *>(part);
    if (wide)
        bias_kernel<T, cuda_lanes<T>><<<grid, block, 0, c->stream>>>(sums, dy, n, cols);
    else
        bias_kernel<T, 1><<<grid, block, 0, c->stream>>>(sums, dy, n, cols);
    CUDA_LAUNCHED("bias gradient");
    struct cuda_columns add = {db, sums, parts, cols, cols, fresh};
    return cuda_columns_add(c, &add);
}

extern "C" enum err cuda_bias_sums(struct cuda *c, void *db, const void *dy, int64_t n,
                                   int64_t cols, bool fresh)
{
    float *to = static_cast<float *>(db);
    if (n == 0 && fresh)
        return cuda_zeros(c, db, cols * (int64_t)sizeof(float));
    if (n == 0 || cols == 0)
        return ERR_OK;
    return c->bf16 ? bias_as(c, to, static_cast<const bf16 *>(dy), n, cols, fresh)
                   : bias_as(c, to, static_cast<const float *>(dy), n, cols, fresh);
}

extern "C" enum err cuda_bias_grad(struct dev *d, const struct bias_grad *a)
{
    return cuda_bias_sums(cuda_of(d), a->db, a->dy, a->n, a->c, false);
}

/* A block takes rows, a thread V pairs of one head at a time. */
template <typename T, int V> static __global__ void __launch_bounds__(ROWS_THREADS)
    rope_kernel(struct rope a)
{
    int half = (int)(a.d / 2), each = half / V, items = (int)a.heads * each;
    float sign = a.inverse ? -1.0f : 1.0f;
    for (int64_t r = blockIdx.x; r < a.n; r += gridDim.x) {
        const float *angle = static_cast<const float *>(a.table) + (a.pos0 + r % a.t) * a.d;
        T *row = static_cast<T *>(a.x) + r * a.ld;
        for (int i = threadIdx.x; i < items; i += blockDim.x) {
            int head = i / each, at = (i - head * each) * V;
            T *low = row + head * a.d + at, *high = low + half;
            float x[V], y[V], cosine[V], sine[V], to_x[V], to_y[V];
            cuda_get(low, x);
            cuda_get(high, y);
            cuda_get(angle + at, cosine);
            cuda_get(angle + half + at, sine);
#pragma unroll
            for (int e = 0; e < V; e++) {
                float s = sine[e] * sign;
                to_x[e] = __fmaf_rn(x[e], cosine[e], -__fmul_rn(y[e], s));
                to_y[e] = __fmaf_rn(y[e], cosine[e], __fmul_rn(x[e], s));
            }
            cuda_put(low, to_x);
            cuda_put(high, to_y);
        }
    }
}

template <typename T> static enum err rope_as(struct cuda *c, const struct rope *a)
{
    bool wide = a->d / 2 % cuda_lanes<T> == 0 && a->ld % cuda_lanes<T> == 0 &&
                cuda_aligned(a->x) && cuda_aligned(a->table);
    int64_t items = a->heads * (a->d / 2) / (wide ? cuda_lanes<T> : 1);
    unsigned threads = (unsigned)num_min(ROWS_THREADS, num_ceil_div(items, 32) * 32);
    unsigned grid = cuda_blocks(a->n, 1, ROWS_MOST);
    if (wide)
        rope_kernel<T, cuda_lanes<T>><<<grid, threads, 0, c->stream>>>(*a);
    else
        rope_kernel<T, 1><<<grid, threads, 0, c->stream>>>(*a);
    CUDA_LAUNCHED("rope");
    return ERR_OK;
}

extern "C" enum err cuda_rope(struct dev *d, const struct rope *a)
{
    struct cuda *c = cuda_of(d);
    int64_t pairs;
    if (a->n == 0 || a->heads == 0 || a->d < 2)
        return ERR_OK;
    if (!num_mul(a->heads, a->d, &pairs) || pairs > INT32_MAX)
        FAIL(ERR_INTERNAL, "cuda: rope of %lld heads of %lld in a row", (long long)a->heads,
             (long long)a->d);
    return c->bf16 ? rope_as<bf16>(c, a) : rope_as<float>(c, a);
}

/* 1 / (1 + exp(-x)): 0 and 1 for far x, never NaN but of NaN. */
static __device__ __forceinline__ float sigmoid(float x)
{
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

struct swiglu_args {
    void *out;              /* (n, f), or dgu (n, 2 f) */
    const void *gu, *dout;
    int64_t n, f;
};

/* A thread takes chunk `i` of the n f outputs. */
template <typename T, int V>
static __global__ void __launch_bounds__(ROWS_THREADS) swiglu_kernel(struct swiglu_args a)
{
    int64_t across = a.f / V, total = a.n * across, threads = (int64_t)gridDim.x * ROWS_THREADS;
    int64_t i = (int64_t)blockIdx.x * ROWS_THREADS + threadIdx.x;
    for (; i < total; i += threads) {
        int64_t row = i / across, col = (i - row * across) * V;
        const T *gate = static_cast<const T *>(a.gu) + row * 2 * a.f + col;
        float g[V], u[V], y[V];
        cuda_get(gate, g);
        cuda_get(gate + a.f, u);
#pragma unroll
        for (int e = 0; e < V; e++)
            y[e] = g[e] * sigmoid(g[e]) * u[e];
        cuda_put(static_cast<T *>(a.out) + i * V, y);
    }
}

/* silu'(g) = s (1 + g (1 - s)). */
template <typename T, int V>
static __global__ void __launch_bounds__(ROWS_THREADS) swiglu_grad_kernel(struct swiglu_args a)
{
    int64_t across = a.f / V, total = a.n * across, threads = (int64_t)gridDim.x * ROWS_THREADS;
    int64_t i = (int64_t)blockIdx.x * ROWS_THREADS + threadIdx.x;
    for (; i < total; i += threads) {
        int64_t row = i / across, at = row * 2 * a.f + (i - row * across) * V;
        const T *gate = static_cast<const T *>(a.gu) + at;
        T *dgate = static_cast<T *>(a.out) + at;
        float g[V], u[V], d[V], dg[V], du[V];
        cuda_get(gate, g);
        cuda_get(gate + a.f, u);
        cuda_get(static_cast<const T *>(a.dout) + i * V, d);
#pragma unroll
        for (int e = 0; e < V; e++) {
            float s = sigmoid(g[e]);
            dg[e] = d[e] * u[e] * s * (1.0f + g[e] * (1.0f - s));
            du[e] = d[e] * g[e] * s;
        }
        cuda_put(dgate, dg);
        cuda_put(dgate + a.f, du);
    }
}

template <typename T> static enum err swiglu_as(struct cuda *c, const struct swiglu_args *a)
{
    bool wide = a->f % cuda_lanes<T> == 0 && cuda_aligned(a->out) && cuda_aligned(a->gu) &&
                cuda_aligned(a->dout);
    unsigned grid = cuda_blocks(a->n * a->f, ROWS_THREADS * (wide ? cuda_lanes<T> : 1), ROWS_MOST);
    if (a->dout && wide)
        swiglu_grad_kernel<T, cuda_lanes<T>><<<grid, ROWS_THREADS, 0, c->stream>>>(*a);
    else if (a->dout)
        swiglu_grad_kernel<T, 1><<<grid, ROWS_THREADS, 0, c->stream>>>(*a);
    else if (wide)
        swiglu_kernel<T, cuda_lanes<T>><<<grid, ROWS_THREADS, 0, c->stream>>>(*a);
    else
        swiglu_kernel<T, 1><<<grid, ROWS_THREADS, 0, c->stream>>>(*a);
    CUDA_LAUNCHED("swiglu");
    return ERR_OK;
}

extern "C" enum err cuda_swiglu(struct dev *d, const struct swiglu *a)
{
    struct cuda *c = cuda_of(d);
    const struct swiglu_args args = {a->out, a->gu, NULL, a->n, a->f};
    if (a->n == 0 || a->f == 0)
        return ERR_OK;
    return c->bf16 ? swiglu_as<bf16>(c, &args) : swiglu_as<float>(c, &args);
}

extern "C" enum err cuda_swiglu_grad(struct dev *d, const struct swiglu_grad *a)
{
    struct cuda *c = cuda_of(d);
    const struct swiglu_args args = {a->dgu, a->gu, a->dout, a->n, a->f};
    if (a->n == 0 || a->f == 0)
        return ERR_OK;
    return c->bf16 ? swiglu_as<bf16>(c, &args) : swiglu_as<float>(c, &args);
}

/* A thread takes ROWS_AHEAD chunks that lie ROWS_THREADS chunks apart. Nothing but its own chunk of
 * y is written by a thread that has read x and f there, so y may be either. */
template <typename T, int V, bool DROP> static __global__ void __launch_bounds__(ROWS_THREADS)
    residual_kernel(struct residual a, struct cuda_drop drop)
{
    constexpr int TILE = ROWS_THREADS * ROWS_AHEAD;
    int64_t across = a.c / V, total = a.n * across;
    int64_t first = (int64_t)blockIdx.x * TILE + threadIdx.x;
    for (; first < total; first += (int64_t)gridDim.x * TILE) {
        float v[ROWS_AHEAD][V], x[ROWS_AHEAD][V] = {};
#pragma unroll
        for (int u = 0; u < ROWS_AHEAD; u++) {
            int64_t i = first + u * ROWS_THREADS;
            if (i < total) {
                cuda_get(static_cast<const T *>(a.f) + i * V, v[u]);
                if (a.x)
                    cuda_get(static_cast<const T *>(a.x) + i * V, x[u]);
            }
        }
#pragma unroll
        for (int u = 0; u < ROWS_AHEAD; u++) {
            int64_t i = first + u * ROWS_THREADS;
            if (i >= total)
                continue;
            if (a.bias) {
                float bias[V];
                cuda_get(static_cast<const T *>(a.bias) + i % across * V, bias);
                cuda_add_to(v[u], bias);
            }
            if (DROP)
                cuda_drop_apply(drop, drop.first + i * V, v[u]);
            if (a.x)
                cuda_add_to(v[u], x[u]);
            cuda_put(static_cast<T *>(a.y) + i * V, v[u]);
        }
    }
}

template <typename T, int V> static enum err residual_wide(struct cuda *c, const struct residual *a)
{
    unsigned grid = cuda_blocks(a->n * (a->c / V), ROWS_THREADS * ROWS_AHEAD, ROWS_MOST);
    struct cuda_drop drop = cuda_drop_of(&a->drop, a->c);
    if (a->drop.p != 0)
        residual_kernel<T, V, true><<<grid, ROWS_THREADS, 0, c->stream>>>(*a, drop);
    else
        residual_kernel<T, V, false><<<grid, ROWS_THREADS, 0, c->stream>>>(*a, drop);
    CUDA_LAUNCHED("residual");
    return ERR_OK;
}

template <typename T> static enum err residual_as(struct cuda *c, const struct residual *a)
{
    bool wide = a->c % cuda_lanes<T> == 0 && cuda_aligned(a->y) && cuda_aligned(a->x) &&
                cuda_aligned(a->f) && cuda_aligned(a->bias);
    return wide ? residual_wide<T, cuda_lanes<T>>(c, a) : residual_wide<T, 1>(c, a);
}

extern "C" enum err cuda_residual(struct dev *d, const struct residual *a)
{
    struct cuda *c = cuda_of(d);
    if (a->n == 0 || a->c == 0)
        return ERR_OK;
    return c->bf16 ? residual_as<bf16>(c, a) : residual_as<float>(c, a);
}

/* A residual without its x. */
extern "C" enum err cuda_dropout(struct dev *d, const struct dropout *a)
{
    const struct residual args = {a->dx, NULL, a->dy, NULL, a->n, a->c, a->drop};
    if (a->drop.p == 0 && a->dx == a->dy)
        return ERR_OK;
    return cuda_residual(d, &args);
}
