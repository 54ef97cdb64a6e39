/* SPDX-License-Identifier: Apache-2.0
 *
 * Flat vectors: AdamW (Loshchilov and Hutter 2019), the scale of gradients, sums, conversion,
 * addition. All but the scale are bound by memory: AdamW reads 16 bytes and writes 12 to 14 for
 * each parameter, a sum reads 4.
 *
 * A thread takes 16 bytes of f32 at a time when every pointer allows it, else one element; both
 * ways do the same arithmetic to the bit, since a vector may be cut anywhere. Sums add f32 into
 * doubles in two stages: each block leaves its sum in the workspace, then one block adds those in
 * order. A short vector is one block's work, and then there is no second stage.
 */
#include "device/cuda/cuda_math.cuh"

enum {
    FLAT_THREADS = 256,
    FLAT_AHEAD = 4,          /* loads in flight in a sum, each of a thread's own */
    ADAMW_PER_SM = 5,        /* blocks that a multiprocessor holds at a time, for which the */
    SUM_PER_SM = 6,          /* compiler makes room: the grid of a kernel that loops */
    FLAT_MOST = 1 << 30,     /* blocks of a grid that does not loop in practice */
};

/* The doubles in `now`, as the floats that each element needs. */
struct step_of {
    float beta1, rest1, beta2, rest2, step, root, keep, scale, eps;
};

static __device__ __forceinline__ struct step_of adamw_step(const struct adamw &a)
{
    double lr = a.now[NOW_LR];
    struct step_of s;
    s.beta1 = (float)a.beta1;
    s.rest1 = (float)(1.0 - a.beta1);
    s.beta2 = (float)a.beta2;
    s.rest2 = (float)(1.0 - a.beta2);
    s.step = (float)(lr / a.now[NOW_BIAS1]);
    s.root = (float)(1.0 / sqrt(a.now[NOW_BIAS2]));
    s.keep = (float)(1.0 - lr * a.decay);
    s.scale = (float)a.now[NOW_SCALE];
    s.eps = (float)a.eps;
    return s;
}

template <int V> static __device__ __forceinline__ void adamw_values(const struct step_of &s,
                                                                     const float (&grad)[V],
                                                                     float (&m)[V], float (&v)[V],
                                                                     float (&w)[V])
{
#pragma unroll
    for (int e = 0; e < V; e++) {
        float g = __fmul_rn(grad[e], s.scale);
        m[e] = __fmaf_rn(g, s.rest1, __fmul_rn(m[e], s.beta1));
        v[e] = __fmaf_rn(__fmul_rn(g, g), s.rest2, __fmul_rn(v[e], s.beta2));
        float below = __fmaf_rn(__fsqrt_rn(v[e]), s.root, s.eps);
        w[e] = __fsub_rn(__fmul_rn(w[e], s.keep), __fdiv_rn(__fmul_rn(s.step, m[e]), below));
    }
}

/* Elements at .. at + V - 1. */
template <typename T, int V>
static __device__ __forceinline__ void adamw_at(const struct adamw &a, const struct step_of &s,
                                                int64_t at)
{
    float *master = static_cast<float *>(a.master ? a.master : a.w) + at;
    float *m_at = static_cast<float *>(a.m) + at, *v_at = static_cast<float *>(a.v) + at;
    float grad[V], m[V], v[V], w[V];
    cuda_get(static_cast<const float *>(a.grad) + at, grad);
    cuda_get(m_at, m);
    cuda_get(v_at, v);
    cuda_get(master, w);
    adamw_values(s, grad, m, v, w);
    cuda_put(m_at, m);
    cuda_put(v_at, v);
    cuda_put(master, w);
    if (a.master)
        cuda_put(static_cast<T *>(a.w) + at, w);
}

/* A thread steps over the vector by the whole grid, V elements at a time; what is left of n is done
 * one by one. The grid fills the device once, so the divisions of adamw_step are done once. */
template <typename T, int V>
static __global__ void __launch_bounds__(FLAT_THREADS, ADAMW_PER_SM) adamw_kernel(struct adamw a)
{
    int64_t id = (int64_t)blockIdx.x * FLAT_THREADS + threadIdx.x;
    int64_t threads = (int64_t)gridDim.x * FLAT_THREADS, groups = a.n / V;
    if (!isfinite(a.now[NOW_SCALE]))
        return;
    struct step_of s = adamw_step(a);
    for (int64_t i = id; i < groups; i += threads)
        adamw_at<T, V>(a, s, i * V);
    if (V > 1 && id < a.n - groups * V)
        adamw_at<T, 1>(a, s, groups * V + id);
}

template <typename T> static enum err adamw_as(struct cuda *c, const struct adamw *a)
{
    bool wide = cuda_aligned(a->m) && cuda_aligned(a->v) && cuda_aligned(a->grad) &&
                cuda_aligned(a->master) && ((uintptr_t)a->w & (4 * sizeof(T) - 1)) == 0;
    unsigned grid = cuda_blocks(a->n, FLAT_THREADS * (wide ? 4 : 1), c->sms * ADAMW_PER_SM);
    if (wide)
        adamw_kernel<T, 4><<<grid, FLAT_THREADS, 0, c->stream>>>(*a);
    else
        adamw_kernel<T, 1><<<grid, FLAT_THREADS, 0, c->stream>>>(*a);
    CUDA_LAUNCHED("adamw");
    return ERR_OK;
}

extern "C" enum err cuda_adamw(struct dev *d, const struct adamw *a)
{
    struct cuda *c = cuda_of(d);
    if (a->n == 0)
        return ERR_OK;
    if (c->half && !a->master)
        FAIL(ERR_INTERNAL, "cuda: adamw of %lld bf16 weights was given no master copy",
             (long long)a->n);
    return c->half ? adamw_as<bf16>(c, a) : adamw_as<float>(c, a);
}

/* One thread: a few doubles that are on the device already. */
static __global__ void scale_kernel(double *now, const double *sums, double clip)
{
    double tokens = sums[SUMS_TOKENS] > 0 ? sums[SUMS_TOKENS] : 1.0;
    double norm = sqrt(sums[SUMS_SQUARES]) / tokens, scale = 1.0 / tokens;
    if (clip > 0 && norm > clip)
        scale *= clip / norm;
    bool sound = isfinite(sums[SUMS_LOSS]) && isfinite(norm);
    now[NOW_SCALE] = sound ? scale : __longlong_as_double(0x7ff8000000000000LL);
}

extern "C" enum err cuda_scale(struct dev *d, double *now, const double *sums, double clip)
{
    scale_kernel<<<1, 1, 0, cuda_of(d)->stream>>>(now, sums, clip);
    CUDA_LAUNCHED("scale");
    return ERR_OK;
}

template <bool SQUARE, int V> static __device__ __forceinline__ double sum_of(const float (&v)[V])
{
    double sum = 0.0;
#pragma unroll
    for (int e = 0; e < V; e++)
        sum += SQUARE ? (double)v[e] * (double)v[e] : (double)v[e];
    return sum;
}

/* out[block] = sum of what the block's threads step over, or (`add`, one block) *out += it. */
template <bool SQUARE, int V>
static __global__ void __launch_bounds__(FLAT_THREADS, SUM_PER_SM)
    sum_kernel(double *out, const float *x, int64_t n, bool add)
{
    __shared__ double part[FLAT_THREADS / 32];
    int64_t id = (int64_t)blockIdx.x * FLAT_THREADS + threadIdx.x;
    int64_t threads = (int64_t)gridDim.x * FLAT_THREADS, groups = n / V;
    double sum[FLAT_AHEAD] = {};
    for (int64_t i = id; i < groups; i += FLAT_AHEAD * threads) {
        float v[FLAT_AHEAD][V];
#pragma unroll
        for (int u = 0; u < FLAT_AHEAD; u++) {
#pragma unroll
            for (int e = 0; e < V; e++)
                v[u][e] = 0.0f;
            if (i + u * threads < groups)
                cuda_get(x + (i + u * threads) * V, v[u]);
        }
#pragma unroll
        for (int u = 0; u < FLAT_AHEAD; u++)
            sum[u] += sum_of<SQUARE>(v[u]);
    }
    double whole = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    if (V > 1 && id < n - groups * V) {
        float last[1] = {x[groups * V + id]};
        whole += sum_of<SQUARE>(last);
    }
    whole = cuda_block_sum<FLAT_THREADS / 32>(whole, part);
    if (threadIdx.x == 0)
        out[blockIdx.x] = add ? *out + whole : whole;
}

/* *out += the sum of n doubles; one block. */
static __global__ void __launch_bounds__(FLAT_THREADS) sum_parts_kernel(double *out,
                                                                        const double *x, int n)
{
    __shared__ double part[FLAT_THREADS / 32];
    double sum = 0.0;
    for (int i = threadIdx.x; i < n; i += FLAT_THREADS)
        sum += x[i];
    sum = cuda_block_sum<FLAT_THREADS / 32>(sum, part);
    if (threadIdx.x == 0)
        *out += sum;
}

template <bool SQUARE> static enum err sum_add(struct cuda *c, double *out, const void *x,
                                               int64_t n)
{
    const float *from = static_cast<const float *>(x);
    bool wide = cuda_aligned(x);
    int64_t each = FLAT_THREADS * FLAT_AHEAD * (wide ? 4 : 1);
    unsigned grid = cuda_blocks(n, each, c->sms * SUM_PER_SM);
    void *work = out;
    if (n == 0)
        return ERR_OK;
    if (grid > 1)
        TRY(cuda_work(c, (int64_t)grid * (int64_t)sizeof(double), "a sum", &work));
    double *to = static_cast<double *>(work);
    if (wide)
        sum_kernel<SQUARE, 4><<<grid, FLAT_THREADS, 0, c->stream>>>(to, from, n, grid == 1);
    else
        sum_kernel<SQUARE, 1><<<grid, FLAT_THREADS, 0, c->stream>>>(to, from, n, grid == 1);
    CUDA_LAUNCHED("sum");
    if (grid > 1) {
        sum_parts_kernel<<<1, FLAT_THREADS, 0, c->stream>>>(out, to, (int)grid);
        CUDA_LAUNCHED("sum of parts");
    }
    return ERR_OK;
}

extern "C" enum err cuda_sum(struct dev *d, double *out, const void *x, int64_t n)
{
    return sum_add<false>(cuda_of(d), out, x, n);
}

extern "C" enum err cuda_sumsq(struct dev *d, double *out, const void *x, int64_t n)
{
    return sum_add<true>(cuda_of(d), out, x, n);
}

template <int V> static __global__ void __launch_bounds__(FLAT_THREADS)
    cast_kernel(bf16 *to, const float *from, int64_t n)
{
    int64_t id = (int64_t)blockIdx.x * FLAT_THREADS + threadIdx.x;
    int64_t threads = (int64_t)gridDim.x * FLAT_THREADS, groups = n / V;
    for (int64_t i = id; i < groups; i += threads) {
        float v[V];
        cuda_get(from + i * V, v);
        cuda_put(to + i * V, v);
    }
    if (V > 1 && id < n - groups * V)
        cuda_round(to + groups * V + id, from[groups * V + id]);
}

extern "C" enum err cuda_cast(struct dev *d, void *to, const void *from, int64_t n)
{
    struct cuda *c = cuda_of(d);
    if (n == 0)
        return ERR_OK;
    if (!c->half) {
        CUDA_TRY(cudaMemcpyAsync(to, from, (size_t)n * sizeof(float), cudaMemcpyDeviceToDevice,
                                 c->stream));
        return ERR_OK;
    }
    bool wide = cuda_aligned(to) && cuda_aligned(from);
    unsigned grid = cuda_blocks(n, FLAT_THREADS * (wide ? 8 : 1), FLAT_MOST);
    bf16 *low = static_cast<bf16 *>(to);
    const float *high = static_cast<const float *>(from);
    if (wide)
        cast_kernel<8><<<grid, FLAT_THREADS, 0, c->stream>>>(low, high, n);
    else
        cast_kernel<1><<<grid, FLAT_THREADS, 0, c->stream>>>(low, high, n);
    CUDA_LAUNCHED("cast");
    return ERR_OK;
}

template <int V> static __global__ void __launch_bounds__(FLAT_THREADS)
    add_kernel(float *to, const float *from, int64_t n)
{
    int64_t id = (int64_t)blockIdx.x * FLAT_THREADS + threadIdx.x;
    int64_t threads = (int64_t)gridDim.x * FLAT_THREADS, groups = n / V;
    for (int64_t i = id; i < groups; i += threads) {
        float a[V], b[V];
        cuda_get(to + i * V, a);
        cuda_get(from + i * V, b);
        cuda_add_to(a, b);
        cuda_put(to + i * V, a);
    }
    if (V > 1 && id < n - groups * V)
        to[groups * V + id] += from[groups * V + id];
}

extern "C" enum err cuda_add(struct dev *d, void *to, const void *from, int64_t n)
{
    struct cuda *c = cuda_of(d);
    if (n == 0)
        return ERR_OK;
    bool wide = cuda_aligned(to) && cuda_aligned(from);
    unsigned grid = cuda_blocks(n, FLAT_THREADS * (wide ? 4 : 1), FLAT_MOST);
    float *sum = static_cast<float *>(to);
    const float *more = static_cast<const float *>(from);
    if (wide)
        add_kernel<4><<<grid, FLAT_THREADS, 0, c->stream>>>(sum, more, n);
    else
        add_kernel<1><<<grid, FLAT_THREADS, 0, c->stream>>>(sum, more, n);
    CUDA_LAUNCHED("add");
    return ERR_OK;
}
