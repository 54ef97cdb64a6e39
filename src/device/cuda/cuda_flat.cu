/* SPDX-License-Identifier: Apache-2.0
 *
 * Flat vectors: AdamW (Loshchilov and Hutter 2019), the scale of gradients, ReLU, sums, conversion,
 * addition. All but the scale are bound by memory: AdamW reads 16 bytes and writes 12 to 14 for
 * each parameter, a sum reads 4.
 *
 * A thread takes 16 bytes of f32 (ReLU: of ct) at a time when every pointer allows it, else one
 * element; both ways do the same arithmetic to the bit, since a vector may be cut anywhere. Sums
 * add f32 into doubles in two stages: each block leaves its sum in the workspace, then one block
 * adds those in order. A short vector is one block's work, and then there is no second stage.
 *
 * The ranges of a vector (struct dev_ranges) come with the launch, as arguments of the kernel:
 * nothing is copied to the device for them, and a launch that was captured holds its own. A thread
 * only goes forwards, so it finds its range by stepping over the bounds it has passed.
 */
#include "device/cuda/cuda_math.cuh"

enum {
    FLAT_THREADS = 256,
    FLAT_AHEAD = 4,          /* loads in flight in a sum, each of a thread's own */
    ADAMW_PER_SM = 5,        /* blocks that an SM holds at a time, for which the */
    SUM_PER_SM = 6,          /* compiler makes room: the grid of a kernel that loops */
    FLAT_MOST = 1 << 30,     /* blocks of a grid that does not loop in practice */
};

/* The doubles in `step_scalars`, as the floats that each element needs. */
struct step_of {
    float beta1, rest1, beta2, rest2, step, root, keep, scale, eps; /* keep: where w decays */
};

static __device__ __forceinline__ struct step_of adamw_step(const struct adamw &a)
{
    double lr = a.step_scalars[SCALAR_LR];
    struct step_of s;
    s.beta1 = (float)a.beta1;
    s.rest1 = (float)(1.0 - a.beta1);
    s.beta2 = (float)a.beta2;
    s.rest2 = (float)(1.0 - a.beta2);
    s.step = (float)(lr / a.step_scalars[SCALAR_BIAS1]);
    s.root = (float)(1.0 / sqrt(a.step_scalars[SCALAR_BIAS2]));
    s.keep = (float)(1.0 - lr * a.decay);
    s.scale = (float)a.step_scalars[SCALAR_SCALE];
    s.eps = (float)a.eps;
    return s;
}

/* V elements; keep: what w keeps of itself. */
template <int V> struct adamw_part {
    float grad[V], m[V], v[V], w[V], keep[V];
};

template <int V>
static __device__ __forceinline__ void adamw_values(const struct step_of &s, adamw_part<V> *x)
{
#pragma unroll
    for (int e = 0; e < V; e++) {
        float g = __fmul_rn(x->grad[e], s.scale);
        x->m[e] = __fmaf_rn(g, s.rest1, __fmul_rn(x->m[e], s.beta1));
        x->v[e] = __fmaf_rn(__fmul_rn(g, g), s.rest2, __fmul_rn(x->v[e], s.beta2));
        float below = __fmaf_rn(__fsqrt_rn(x->v[e]), s.root, s.eps);
        float down = __fdiv_rn(__fmul_rn(s.step, x->m[e]), below);
        x->w[e] = __fsub_rn(__fmul_rn(x->w[e], x->keep[e]), down);
    }
}

/* What elements at .. at + V - 1 keep of w, which is all of it outside the ranges that decay.
 * bound: bounds below an element before them; then those at or below `at`. */
template <int V>
static __device__ __forceinline__ void adamw_keep(const struct dev_ranges &decays, float keep,
                                                  int64_t at, int *bound, float (&out)[V])
{
    int bounds = 2 * decays.n, passed = *bound;
    while (passed < bounds && decays.bound[passed] <= at)
        passed++;
    *bound = passed;
#pragma unroll
    for (int e = 0; e < V; e++) {
        while (e > 0 && passed < bounds && decays.bound[passed] <= at + e)
            passed++;
        out[e] = passed & 1 ? keep : 1.0f;
    }
}

/* Elements at .. at + V - 1. */
template <typename T, int V>
static __device__ __forceinline__ void adamw_at(const struct adamw &a,
                                                const struct dev_ranges &decays,
                                                const struct step_of &s, int64_t at, int *bound)
{
    float *master = static_cast<float *>(a.master ? a.master : a.w) + at;
    float *m_at = static_cast<float *>(a.m) + at, *v_at = static_cast<float *>(a.v) + at;
    adamw_part<V> x;
    cuda_get(static_cast<const float *>(a.grad) + at, x.grad);
    cuda_get(m_at, x.m);
    cuda_get(v_at, x.v);
    cuda_get(master, x.w);
    adamw_keep(decays, s.keep, at, bound, x.keep);
    adamw_values(s, &x);
    cuda_put(m_at, x.m);
    cuda_put(v_at, x.v);
    cuda_put(master, x.w);
    if (a.master)
        cuda_put(static_cast<T *>(a.w) + at, x.w);
}

/* A thread steps over the vector by the whole grid, V elements at a time; what is left of n is done
 * one by one. The grid fills the device once, so the divisions of adamw_step are done once. */
template <typename T, int V>
static __global__ void __launch_bounds__(FLAT_THREADS, ADAMW_PER_SM)
    adamw_kernel(const __grid_constant__ struct adamw a,
                 const __grid_constant__ struct dev_ranges decays)
{
    int bound = 0;
    int64_t id = (int64_t)blockIdx.x * FLAT_THREADS + threadIdx.x;
    int64_t threads = (int64_t)gridDim.x * FLAT_THREADS, groups = a.n / V;
    if (!isfinite(a.step_scalars[SCALAR_SCALE]))
        return;
    struct step_of s = adamw_step(a);
    for (int64_t i = id; i < groups; i += threads)
        adamw_at<T, V>(a, decays, s, i * V, &bound);
    if (V > 1 && id < a.n - groups * V)
        adamw_at<T, 1>(a, decays, s, groups * V + id, &bound);
}

/* The same elements in as few ranges as can be: those that touch are one, empty ones are none. */
static struct dev_ranges merged(const struct dev_ranges *of)
{
    struct dev_ranges out;
    out.n = 0;
    for (int i = 0; i < 2 * of->n; i += 2) {
        int last = 2 * out.n - 1;
        if (of->bound[i] == of->bound[i + 1])
            continue;
        if (last > 0 && out.bound[last] == of->bound[i]) {
            out.bound[last] = of->bound[i + 1];
            continue;
        }
        out.bound[last + 1] = of->bound[i];
        out.bound[last + 2] = of->bound[i + 1];
        out.n++;
    }
    return out;
}

template <typename T> static enum err adamw_as(struct cuda *c, const struct adamw *a)
{
    bool wide = cuda_aligned(a->m) && cuda_aligned(a->v) && cuda_aligned(a->grad) &&
                cuda_aligned(a->master) && ((uintptr_t)a->w & (4 * sizeof(T) - 1)) == 0;
    unsigned grid = cuda_blocks(a->n, FLAT_THREADS * (wide ? 4 : 1), c->sms * ADAMW_PER_SM);
    struct dev_ranges decays = merged(a->decays);
    if (wide)
        adamw_kernel<T, 4><<<grid, FLAT_THREADS, 0, c->stream>>>(*a, decays);
    else
        adamw_kernel<T, 1><<<grid, FLAT_THREADS, 0, c->stream>>>(*a, decays);
    CUDA_LAUNCHED("adamw");
    return ERR_OK;
}

extern "C" enum err cuda_adamw(struct dev *d, const struct adamw *a)
{
    struct cuda *c = cuda_of(d);
    if (a->n == 0)
        return ERR_OK;
    if (c->bf16 && !a->master)
        FAIL(ERR_INTERNAL, "cuda: adamw of %lld bf16 weights was given no master copy",
             (long long)a->n);
    return c->bf16 ? adamw_as<bf16>(c, a) : adamw_as<float>(c, a);
}

/* One thread: a few doubles that are on the device already. */
static __global__ void scale_kernel(double *scalars, const double *sums, double clip)
{
    double tokens = sums[SUMS_TOKENS] > 0 ? sums[SUMS_TOKENS] : 1.0;
    double norm = sqrt(sums[SUMS_SQUARES]) / tokens, scale = 1.0 / tokens;
    if (clip > 0 && norm > clip)
        scale *= clip / norm;
    if (!isfinite(sums[SUMS_LOSS]) || !isfinite(norm))
        scalars[SCALAR_LOST] = 1;
    bool lost = scalars[SCALAR_LOST] != 0;
    scalars[SCALAR_SCALE] = lost ? __longlong_as_double(0x7ff8000000000000LL) : scale;
}

extern "C" enum err cuda_scale(struct dev *d, const struct scale *a)
{
    scale_kernel<<<1, 1, 0, cuda_of(d)->stream>>>(a->step_scalars, a->sums, a->clip);
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

/* Groups of V elements of x, from multiples of V on, that hold elements begin .. end - 1. */
template <int V> static __host__ __device__ __forceinline__ int64_t groups_of(const int64_t *range)
{
    return range[0] == range[1] ? 0 : (range[1] - 1) / V - range[0] / V + 1;
}

/* Where a thread is among the groups of all ranges: in this range, before which there are `before`
 * groups. */
struct sum_place {
    int range;
    int64_t before;
};

/* Group i of the ranges: its elements, zeros for those that are no range's. i never falls. */
template <int V>
static __device__ __forceinline__ void sum_get(const float *x, const struct dev_ranges &of,
                                               int64_t i, struct sum_place *at, float (&v)[V])
{
    for (; i - at->before >= groups_of<V>(&of.bound[2 * at->range]); at->range++)
        at->before += groups_of<V>(&of.bound[2 * at->range]);
    int64_t begin = of.bound[2 * at->range], end = of.bound[2 * at->range + 1];
    int64_t first = (begin / V + (i - at->before)) * V;
    if (first >= begin && first + V <= end) {
        cuda_get(x + first, v);
        return;
    }
#pragma unroll
    for (int e = 0; e < V; e++)
        v[e] = first + e >= begin && first + e < end ? x[first + e] : 0.0f;
}

/* out[block] = sum of what the block's threads step over, or (`add`, one block) *out += it. */
template <bool SQUARE, int V>
static __global__ void __launch_bounds__(FLAT_THREADS, SUM_PER_SM)
    sum_kernel(double *out, const float *x, const __grid_constant__ struct dev_ranges of,
               int64_t groups, bool add)
{
    __shared__ double part[FLAT_THREADS / 32];
    int64_t id = (int64_t)blockIdx.x * FLAT_THREADS + threadIdx.x;
    int64_t threads = (int64_t)gridDim.x * FLAT_THREADS;
    double sum[FLAT_AHEAD] = {};
    struct sum_place at = {0, 0};
    for (int64_t i = id; i < groups; i += FLAT_AHEAD * threads) {
        float v[FLAT_AHEAD][V];
#pragma unroll
        for (int u = 0; u < FLAT_AHEAD; u++) {
#pragma unroll
            for (int e = 0; e < V; e++)
                v[u][e] = 0.0f;
            if (i + u * threads < groups)
                sum_get(x, of, i + u * threads, &at, v[u]);
        }
#pragma unroll
        for (int u = 0; u < FLAT_AHEAD; u++)
            sum[u] += sum_of<SQUARE>(v[u]);
    }
    double whole = (sum[0] + sum[1]) + (sum[2] + sum[3]);
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

template <bool SQUARE, int V> static enum err sum_add(struct cuda *c, double *out, const float *x,
                                                      const struct dev_ranges *of)
{
    int64_t groups = 0;
    for (int i = 0; i < of->n; i++)
        groups += groups_of<V>(&of->bound[2 * i]);
    unsigned grid = cuda_blocks(groups, FLAT_THREADS * FLAT_AHEAD, c->sms * SUM_PER_SM);
    void *work = out;
    if (groups == 0)
        return ERR_OK;
    if (grid > 1)
        TRY(cuda_work(c, (int64_t)grid * (int64_t)sizeof(double), "a sum", &work));
    double *to = static_cast<double *>(work);
    sum_kernel<SQUARE, V><<<grid, FLAT_THREADS, 0, c->stream>>>(to, x, *of, groups, grid == 1);
    CUDA_LAUNCHED("sum");
    if (grid > 1) {
        sum_parts_kernel<<<1, FLAT_THREADS, 0, c->stream>>>(out, to, (int)grid);
        CUDA_LAUNCHED("sum of ranges");
    }
    return ERR_OK;
}

extern "C" enum err cuda_sum(struct dev *d, const struct sum *a)
{
    const struct dev_ranges whole = {1, {0, a->n}};
    const float *from = static_cast<const float *>(a->x);
    return cuda_aligned(a->x) ? sum_add<false, 4>(cuda_of(d), a->out, from, &whole)
                              : sum_add<false, 1>(cuda_of(d), a->out, from, &whole);
}

extern "C" enum err cuda_sumsq(struct dev *d, const struct sumsq *a)
{
    const struct dev_ranges ranges = merged(a->of);
    const float *from = static_cast<const float *>(a->x);
    return cuda_aligned(a->x) ? sum_add<true, 4>(cuda_of(d), a->out, from, &ranges)
                              : sum_add<true, 1>(cuda_of(d), a->out, from, &ranges);
}

template <typename T, int V>
static __device__ __forceinline__ void relu_at(const struct relu_grad &a, int64_t at)
{
    float x[V], d[V];
    cuda_get(static_cast<const T *>(a.x) + at, x);
    cuda_get(static_cast<const T *>(a.dy) + at, d);
#pragma unroll
    for (int e = 0; e < V; e++)
        d[e] = x[e] <= 0.0f ? 0.0f : d[e];
    cuda_put(static_cast<T *>(a.dx) + at, d);
}

/* What a thread writes it alone has read, before: dx may be dy or x. */
template <typename T, int V> static __global__ void __launch_bounds__(FLAT_THREADS)
    relu_kernel(struct relu_grad a)
{
    int64_t id = (int64_t)blockIdx.x * FLAT_THREADS + threadIdx.x;
    int64_t threads = (int64_t)gridDim.x * FLAT_THREADS, groups = a.n / V;
    for (int64_t i = id; i < groups; i += threads)
        relu_at<T, V>(a, i * V);
    if (V > 1 && id < a.n - groups * V)
        relu_at<T, 1>(a, groups * V + id);
}

template <typename T> static enum err relu_as(struct cuda *c, const struct relu_grad *a)
{
    constexpr int V = cuda_lanes<T>;
    bool wide = cuda_aligned(a->dx) && cuda_aligned(a->dy) && cuda_aligned(a->x);
    unsigned grid = cuda_blocks(a->n, FLAT_THREADS * (wide ? V : 1), FLAT_MOST);
    if (wide)
        relu_kernel<T, V><<<grid, FLAT_THREADS, 0, c->stream>>>(*a);
    else
        relu_kernel<T, 1><<<grid, FLAT_THREADS, 0, c->stream>>>(*a);
    CUDA_LAUNCHED("relu");
    return ERR_OK;
}

extern "C" enum err cuda_relu_grad(struct dev *d, const struct relu_grad *a)
{
    struct cuda *c = cuda_of(d);
    if (a->n == 0)
        return ERR_OK;
    return c->bf16 ? relu_as<bf16>(c, a) : relu_as<float>(c, a);
}

/* Its gradient where dy is x. */
extern "C" enum err cuda_relu(struct dev *d, const struct relu *a)
{
    const struct relu_grad args = {a->y, a->x, a->x, a->n};
    return cuda_relu_grad(d, &args);
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
        from_f32(to + groups * V + id, from[groups * V + id]);
}

extern "C" enum err cuda_cast(struct dev *d, const struct flat *a)
{
    struct cuda *c = cuda_of(d);
    if (a->n == 0)
        return ERR_OK;
    if (!c->bf16) {
        CUDA_TRY(cudaMemcpyAsync(a->to, a->from, (size_t)a->n * sizeof(float),
                                 cudaMemcpyDeviceToDevice, c->stream));
        return ERR_OK;
    }
    bool wide = cuda_aligned(a->to) && cuda_aligned(a->from);
    unsigned grid = cuda_blocks(a->n, FLAT_THREADS * (wide ? 8 : 1), FLAT_MOST);
    bf16 *low = static_cast<bf16 *>(a->to);
    const float *high = static_cast<const float *>(a->from);
    if (wide)
        cast_kernel<8><<<grid, FLAT_THREADS, 0, c->stream>>>(low, high, a->n);
    else
        cast_kernel<1><<<grid, FLAT_THREADS, 0, c->stream>>>(low, high, a->n);
    CUDA_LAUNCHED("cast");
    return ERR_OK;
}

static __global__ void few_kernel(int64_t *host_to, const int64_t *from, int n)
{
    if ((int)threadIdx.x < n)
        host_to[threadIdx.x] = from[threadIdx.x];
}

extern "C" enum err cuda_few_out(struct cuda *c, void *host_to, const void *from, int64_t bytes,
                                 bool *done)
{
    int64_t word = (int64_t)sizeof(int64_t);
    bool whole = bytes % word == 0 && (uintptr_t)host_to % word == 0 && (uintptr_t)from % word == 0;
    struct cudaPointerAttributes at;
    *done = false;
    if (!whole || bytes > FLAT_THREADS * word)
        return ERR_OK;
    CUDA_TRY(cudaPointerGetAttributes(&at, host_to));
    if (at.type != cudaMemoryTypeHost) /* the GPU cannot write there */
        return ERR_OK;
    few_kernel<<<1, FLAT_THREADS, 0, c->stream>>>(static_cast<int64_t *>(at.devicePointer),
                                                  static_cast<const int64_t *>(from),
                                                  (int)(bytes / word));
    CUDA_LAUNCHED("a few bytes to the host");
    *done = true;
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

extern "C" enum err cuda_add(struct dev *d, const struct flat *a)
{
    struct cuda *c = cuda_of(d);
    if (a->n == 0)
        return ERR_OK;
    bool wide = cuda_aligned(a->to) && cuda_aligned(a->from);
    unsigned grid = cuda_blocks(a->n, FLAT_THREADS * (wide ? 4 : 1), FLAT_MOST);
    float *sum = static_cast<float *>(a->to);
    const float *more = static_cast<const float *>(a->from);
    if (wide)
        add_kernel<4><<<grid, FLAT_THREADS, 0, c->stream>>>(sum, more, a->n);
    else
        add_kernel<1><<<grid, FLAT_THREADS, 0, c->stream>>>(sum, more, a->n);
    CUDA_LAUNCHED("add");
    return ERR_OK;
}
