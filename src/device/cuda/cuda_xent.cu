/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross entropy, a block a row. In three steps for a vocabulary that is split over ranks, and in
 * one for a whole one. That one finds maximum and sum in a single pass over the row (Milakov and
 * Gimelshein 2018: the sum so far is scaled when the maximum moves) and keeps the row in shared
 * memory meanwhile, so that device memory is read once and written once. Of a row that is longer
 * than half of an SM's shared memory the rest is read again, from the second-level
 * cache as a rule; half, so that one block loads while another writes.
 *
 * Sums are f32: each thread adds its own columns in order, then warps, then the block, always in
 * the same order. The gradient may take the place of the logits: a thread writes only columns that
 * it has read itself.
 */
#include "device/cuda/cuda_scalar.cuh"

extern "C" {
#include "device/cuda/cuda_local.h"
}

enum { THREADS = 512, KEPT_BYTES = 112 * 1024 };

static constexpr float LOG2_E = 1.44269504f;

/* The row as the kernels see it: struct xent with its types, and what fits on the chip. */
template <typename L, typename G> struct rows {
    const L *logits;
    G *dlogits; /* NULL: loss only */
    const int32_t *target;
    float *max, *sum, *target_logit, *loss; /* NULL, but loss, in the fused one when nobody asks */
    int64_t v, ld, v0;
    int kept; /* packs of a row in shared memory */
};

/* exp(x - max), given max as `shift` = max * log2(e): one multiplication and a power of two. */
__device__ static inline float exp_behind(float, float x, float max, float)
{
    return expf(x - max);
}
__device__ static inline float exp_behind(__nv_bfloat16, float x, float, float shift)
{
    float y = fmaf(x, LOG2_E, -shift);
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(y));
    return y;
}

/* Pack i of a row of v columns; columns from v on are -inf and are not read. */
template <typename L, int W> __device__ static pack<L, W> load(const L *row, int64_t i, int64_t v)
{
    pack<L, W> x;
    if ((i + 1) * W <= v)
        return *(const pack<L, W> *)(row + i * W);
#pragma unroll
    for (int e = 0; e < W; e++) {
        if (i * W + e < v)
            x.v[e] = row[i * W + e];
        else
            from_f32(&x.v[e], -INFINITY);
    }
    return x;
}

/* Maximum and sum of exp(x - max) of what has been seen. */
struct seen {
    float max, sum;
};

/* Of nothing: maximum -inf, sum 0. */
template <typename L> __device__ static struct seen join(struct seen a, struct seen b)
{
    float max = a.max > b.max ? a.max : b.max;
    float sum = 0;
    if (a.sum != 0)
        sum += a.sum * exp_of(L(0.0f), a.max - max);
    if (b.sum != 0)
        sum += b.sum * exp_of(L(0.0f), b.max - max);
    return (struct seen){max, sum};
}

template <typename L> __device__ static struct seen block_seen(struct seen x)
{
    __shared__ struct seen warp[THREADS / 32];
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int d = 16; d > 0; d /= 2) {
        struct seen y = {__shfl_xor_sync(~0u, x.max, d), __shfl_xor_sync(~0u, x.sum, d)};
        x = join<L>(x, y);
    }
    if (lane == 0)
        warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = warp[0];
    for (int i = 1; i < warps; i++)
        x = join<L>(x, warp[i]);
    return x;
}

/* Adds a pack: its own maximum first, so that at most one more exponent is taken for W columns. */
template <typename L, int W>
__device__ static inline void see(struct seen *s, const pack<L, W> &x)
{
    float max = s->max, sum = 0;
#pragma unroll
    for (int e = 0; e < W; e++)
        max = fmaxf(max, to_f32(x.v[e]));
    if (max == -INFINITY) /* so far nothing but -inf and NaN; NaN shows in the sum */
        max = 0;
    float shift = max * LOG2_E;
#pragma unroll
    for (int e = 0; e < W; e++)
        sum += exp_behind(L(0.0f), to_f32(x.v[e]), max, shift);
    if (max > s->max)
        s->sum *= s->sum != 0 ? exp_of(L(0.0f), s->max - max) : 1;
    if (sum != 0 || s->sum != 0)
        s->max = max;
    s->sum += sum;
}

/* Writes dlogits of pack i: zero from column v on, whatever the statistics. inv 0: the row does not
 * count. */
template <typename L, typename G, int W>
__device__ static inline void write_grad(G *row, int64_t i, const pack<L, W> &x, float max,
                                         float inv, int64_t target, int64_t v, int64_t ld)
{ /* long: a pack, two statistics, where it goes */
    int there = (int)min(v - i * W, (int64_t)W);
    pack<G, W> y;
#pragma unroll
    for (int e = 0; e < W; e++) {
        float p = inv == 0 || e >= there ? 0.0f : exp_of(L(0.0f), to_f32(x.v[e]) - max) * inv;
        from_f32(&y.v[e], p - (inv != 0 && i * W + e == target ? 1.0f : 0.0f));
    }
    if ((i + 1) * W <= ld) {
        *(pack<G, W> *)(row + i * W) = y;
        return;
    }
    for (int e = 0; e < W && i * W + e < ld; e++)
        row[i * W + e] = y.v[e];
}

/* The same of a pack of bf16 that lies whole in the vocabulary, of a row that counts: exponents are
 * shifted by the logarithm of the sum, too. */
template <int W>
__device__ static inline void write_whole(__nv_bfloat16 *row, int i,
                                          const pack<__nv_bfloat16, W> &x, float shift, int target)
{
    pack<__nv_bfloat16, W> y;
    int at = target - i * W;
    float p[W];
#pragma unroll
    for (int e = 0; e < W; e++)
        p[e] = exp_behind(__nv_bfloat16(0.0f), to_f32(x.v[e]), 0, shift);
    if (at >= 0 && at < W) {
#pragma unroll
        for (int e = 0; e < W; e++)
            p[e] -= e == at ? 1.0f : 0.0f;
    }
#pragma unroll
    for (int e = 0; e < W; e++)
        from_f32(&y.v[e], p[e]);
    *(pack<__nv_bfloat16, W> *)(row + i * W) = y;
}

/* Column of row r's target in this shard, or -1. */
__device__ static inline int64_t target_column(int32_t token, int64_t v0, int64_t v)
{
    int64_t column = token - v0;
    return token >= 0 && column >= 0 && column < v ? column : -1;
}

template <typename L, typename G, int W>
static __global__ void __launch_bounds__(THREADS, 2) fused(struct rows<L, G> a)
{
    extern __shared__ __align__(16) char memory[];
    pack<L, W> *kept = (pack<L, W> *)memory;
    int64_t r = blockIdx.x, packs = (a.v + W - 1) / W, all = (a.ld + W - 1) / W;
    const L *row = a.logits + r * a.ld;
    int32_t token = a.target[r];
    int64_t target = target_column(token, a.v0, a.v);
    float target_logit = target < 0 ? 0.0f : to_f32(row[target]);
    struct seen s = {-INFINITY, 0};
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
        pack<L, W> x = load<L, W>(row, i, a.v);
        if (i < a.kept)
            kept[i] = x;
        see(&s, x);
    }
    s = block_seen<L>(s); /* a barrier too: every thread has read its logits and the target's */
    if (threadIdx.x == 0) {
        a.loss[r] = token < 0 ? 0.0f : logf(s.sum) + s.max - target_logit;
        if (a.max)
            a.max[r] = s.max;
        if (a.sum)
            a.sum[r] = s.sum;
        if (a.target_logit)
            a.target_logit[r] = target_logit;
    }
    if (!a.dlogits)
        return;
    float inv = token < 0 ? 0.0f : 1.0f / s.sum;
    int64_t from = threadIdx.x;
    if constexpr (sizeof(L) == 2 && sizeof(G) == 2 && W > 1) {
        int whole = token < 0 ? 0 : (int)(a.v / W), i = threadIdx.x;
        float shift = s.max * LOG2_E + log2f(s.sum);
#pragma unroll 4
        for (; i < whole; i += blockDim.x) {
            pack<L, W> x = i < a.kept ? kept[i] : load<L, W>(row, i, a.v);
            write_whole(a.dlogits + r * a.ld, i, x, shift, (int)target);
        }
        from = i;
    }
#pragma unroll 2
    for (int64_t i = from; i < all; i += blockDim.x) {
        pack<L, W> x = i < a.kept ? kept[i] : load<L, W>(row, i, a.v);
        write_grad(a.dlogits + r * a.ld, i, x, s.max, inv, target, a.v, a.ld);
    }
}

template <typename L, int W>
static __global__ void __launch_bounds__(THREADS) row_max(struct rows<L, L> a)
{
    int64_t r = blockIdx.x, packs = (a.v + W - 1) / W;
    const L *row = a.logits + r * a.ld;
    __shared__ float warp[THREADS / 32];
    float max = -INFINITY;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
        pack<L, W> x = load<L, W>(row, i, a.v);
#pragma unroll
        for (int e = 0; e < W; e++)
            max = fmaxf(max, to_f32(x.v[e]));
    }
    for (int d = 16; d > 0; d /= 2)
        max = fmaxf(max, __shfl_xor_sync(~0u, max, d));
    if (threadIdx.x % 32 == 0)
        warp[threadIdx.x / 32] = max;
    __syncthreads();
    for (int i = 0; i < (int)blockDim.x / 32; i++)
        max = fmaxf(max, warp[i]);
    if (threadIdx.x == 0)
        a.max[r] = max;
}

template <typename L, int W>
static __global__ void __launch_bounds__(THREADS) row_sum(struct rows<L, L> a)
{
    int64_t r = blockIdx.x, packs = (a.v + W - 1) / W;
    const L *row = a.logits + r * a.ld;
    __shared__ float warp[THREADS / 32];
    float max = a.max[r], sum = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
        pack<L, W> x = load<L, W>(row, i, a.v);
#pragma unroll
        for (int e = 0; e < W; e++)
            sum += exp_of(L(0.0f), to_f32(x.v[e]) - max);
    }
    for (int d = 16; d > 0; d /= 2)
        sum += __shfl_xor_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0)
        warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        int64_t target = target_column(a.target[r], a.v0, a.v);
        sum = 0;
        for (int i = 0; i < (int)blockDim.x / 32; i++)
            sum += warp[i];
        a.sum[r] = sum;
        a.target_logit[r] = target < 0 ? 0.0f : to_f32(row[target]);
    }
}

template <typename L, typename G, int W>
static __global__ void __launch_bounds__(THREADS) row_grad(struct rows<L, G> a)
{
    int64_t r = blockIdx.x, all = (a.ld + W - 1) / W;
    const L *row = a.logits + r * a.ld;
    int32_t token = a.target[r];
    float max = a.max[r], sum = a.sum[r], inv = token < 0 ? 0.0f : 1.0f / sum;
    int64_t target = target_column(token, a.v0, a.v);
    if (threadIdx.x == 0)
        a.loss[r] = token < 0 ? 0.0f : logf(sum) + max - a.target_logit[r];
    if (!a.dlogits)
        return;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < all; i += blockDim.x)
        write_grad(a.dlogits + r * a.ld, i, load<L, W>(row, i, a.v), max, inv, target, a.v, a.ld);
}

template <typename L, typename G> static struct rows<L, G> rows_of(const struct xent *x)
{
    struct rows<L, G> a = {};
    a.logits = (const L *)x->logits;
    a.dlogits = (G *)x->dlogits;
    a.target = x->target;
    a.max = (float *)x->max;
    a.sum = (float *)x->sum;
    a.target_logit = (float *)x->target_logit;
    a.loss = (float *)x->loss;
    a.v = x->v;
    a.ld = x->ld;
    a.v0 = x->v0;
    return a;
}

/* May rows be read, and gradients written, in packs of 16 bytes of logits? */
template <typename L, typename G> static bool wide(const struct xent *x)
{
    constexpr int W = 16 / sizeof(L);
    return x->ld % W == 0 && (uintptr_t)x->logits % 16 == 0 &&
           (!x->dlogits || (uintptr_t)x->dlogits % (W * sizeof(G)) == 0);
}

/* Threads for rows of so many packs: at most THREADS, four packs each where there are fewer. */
static unsigned threads_for(int64_t packs)
{
    int64_t want = (packs / 4 + 31) / 32 * 32;
    return (unsigned)(want < 64 ? 64 : want > THREADS ? THREADS : want);
}

static enum err check_rows(const char *who, const struct xent *x)
{
    if (x->n > INT32_MAX)
        FAIL(ERR_CONFIG, "%s: %lld rows in one call; use at most %lld", who, (long long)x->n,
             (long long)INT32_MAX);
    return ERR_OK;
}

template <typename L, int W> static void launch_max(struct cuda *c, const struct xent *x)
{
    row_max<L, W><<<(unsigned)x->n, threads_for(x->v / W), 0, c->stream>>>(rows_of<L, L>(x));
}

extern "C" enum err cuda_xent_max(struct dev *d, const struct xent *x)
{
    struct cuda *c = cuda_of(d);
    bool is_bf16 = d->logits == DT_BF16;
    TRY(check_rows("xent_max", x));
    if (x->n == 0)
        return ERR_OK;
    if (is_bf16 && wide<__nv_bfloat16, __nv_bfloat16>(x))
        launch_max<__nv_bfloat16, 8>(c, x);
    else if (is_bf16)
        launch_max<__nv_bfloat16, 1>(c, x);
    else if (wide<float, __nv_bfloat16>(x))
        launch_max<float, 4>(c, x);
    else
        launch_max<float, 1>(c, x);
    CUDA_LAUNCHED("xent_max");
    return ERR_OK;
}

template <typename L, int W> static void launch_sum(struct cuda *c, const struct xent *x)
{
    row_sum<L, W><<<(unsigned)x->n, threads_for(x->v / W), 0, c->stream>>>(rows_of<L, L>(x));
}

extern "C" enum err cuda_xent_sum(struct dev *d, const struct xent *x)
{
    struct cuda *c = cuda_of(d);
    bool is_bf16 = d->logits == DT_BF16;
    TRY(check_rows("xent_sum", x));
    if (x->n == 0)
        return ERR_OK;
    if (is_bf16 && wide<__nv_bfloat16, __nv_bfloat16>(x))
        launch_sum<__nv_bfloat16, 8>(c, x);
    else if (is_bf16)
        launch_sum<__nv_bfloat16, 1>(c, x);
    else if (wide<float, __nv_bfloat16>(x))
        launch_sum<float, 4>(c, x);
    else
        launch_sum<float, 1>(c, x);
    CUDA_LAUNCHED("xent_sum");
    return ERR_OK;
}

template <typename L, typename G, int W>
static void launch_grad(struct cuda *c, const struct xent *x)
{
    row_grad<L, G, W>
        <<<(unsigned)x->n, threads_for(x->ld / W), 0, c->stream>>>(rows_of<L, G>(x));
}

template <typename L, typename G> static enum err grad(struct cuda *c, const struct xent *x)
{
    if (wide<L, G>(x))
        launch_grad<L, G, 16 / sizeof(L)>(c, x);
    else
        launch_grad<L, G, 1>(c, x);
    CUDA_LAUNCHED("xent_grad");
    return ERR_OK;
}

extern "C" enum err cuda_xent_grad(struct dev *d, const struct xent *x)
{
    struct cuda *c = cuda_of(d);
    TRY(check_rows("xent_grad", x));
    if (x->n == 0)
        return ERR_OK;
    if (d->logits == DT_BF16)
        return grad<__nv_bfloat16, __nv_bfloat16>(c, x);
    return c->bf16 ? grad<float, __nv_bfloat16>(c, x) : grad<float, float>(c, x);
}

template <typename L, typename G, int W>
static enum err launch_fused(struct cuda *c, const struct xent *x)
{
    struct rows<L, G> a = rows_of<L, G>(x);
    int64_t packs = (x->v + W - 1) / W, room = KEPT_BYTES / (int64_t)(W * sizeof(L));
    a.kept = !x->dlogits ? 0 : (int)(packs < room ? packs : room);
    CUDA_TRY(cudaFuncSetAttribute((const void *)fused<L, G, W>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, KEPT_BYTES));
    fused<L, G, W><<<(unsigned)x->n, threads_for((x->ld + W - 1) / W),
                     (size_t)a.kept * W * sizeof(L), c->stream>>>(a);
    CUDA_LAUNCHED("xent");
    return ERR_OK;
}

template <typename L, typename G> static enum err whole(struct cuda *c, const struct xent *x)
{
    if (wide<L, G>(x))
        return launch_fused<L, G, 16 / sizeof(L)>(c, x);
    return launch_fused<L, G, 1>(c, x);
}

extern "C" enum err cuda_xent(struct dev *d, const struct xent *x)
{
    struct cuda *c = cuda_of(d);
    TRY(check_rows("xent", x));
    if (x->n == 0)
        return ERR_OK;
    if (d->logits == DT_BF16)
        return whole<__nv_bfloat16, __nv_bfloat16>(c, x);
    return c->bf16 ? whole<float, __nv_bfloat16>(c, x) : whole<float, float>(c, x);
}
