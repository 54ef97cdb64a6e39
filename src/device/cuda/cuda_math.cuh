/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels of the cuda device are made of: 16 bytes of memory as floats (8 of bf16, 4 of
 * f32), sums over a warp and over a block, the mask of dropout, sums over the rows of partial
 * results.
 *
 * All arithmetic is in f32. The order of every sum is fixed by the shape and the device: shuffles
 * by xor give all lanes the same bits, partial sums of blocks lie in the workspace and are added in
 * the order of the blocks, and there are no atomics. Where two kernels must agree to the bit (a
 * vector path and a plain one, a fused kernel and its parts), products and sums that the compiler
 * could fuse in one of them only are written as intrinsics, which it leaves alone.
 */
#ifndef PLAIT_DEVICE_CUDA_MATH_CUH
#define PLAIT_DEVICE_CUDA_MATH_CUH

extern "C" {
#include "device/cuda/cuda_local.h"
}
#include "device/cuda/cuda_scalar.cuh"
#include <cuda_runtime.h>

using bf16 = __nv_bfloat16;

/* Elements of T in a chunk of 16 bytes. */
template <typename T> constexpr int cuda_lanes = 16 / (int)sizeof(T);

/* May be read and written 16 bytes at a time; so may NULL, which is not read at all. */
static inline bool cuda_aligned(const void *p) { return ((uintptr_t)p & 15u) == 0; }

/* Blocks that cover n items at `each` a block, at most `most`; the kernel strides over the rest. */
static inline unsigned cuda_blocks(int64_t n, int64_t each, int64_t most)
{
    return (unsigned)num_min(num_ceil_div(n, each), most);
}

/* A chunk as floats and back: 4 of f32. */
static __device__ __forceinline__ void cuda_unpack(uint4 raw, float (&v)[4])
{
    v[0] = __uint_as_float(raw.x);
    v[1] = __uint_as_float(raw.y);
    v[2] = __uint_as_float(raw.z);
    v[3] = __uint_as_float(raw.w);
}

static __device__ __forceinline__ uint4 cuda_pack(const float (&v)[4])
{
    return make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                      __float_as_uint(v[3]));
}

static __device__ __forceinline__ float cuda_low(unsigned two)
{
    return __uint_as_float(two << 16);
}

static __device__ __forceinline__ float cuda_high(unsigned two)
{
    return __uint_as_float(two & 0xffff0000u);
}

static __device__ __forceinline__ unsigned cuda_two(float low, float high)
{
    __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<unsigned *>(&two);
}

/* A chunk as floats and back: 8 of bf16. */
static __device__ __forceinline__ void cuda_unpack(uint4 raw, float (&v)[8])
{
    v[0] = cuda_low(raw.x);
    v[1] = cuda_high(raw.x);
    v[2] = cuda_low(raw.y);
    v[3] = cuda_high(raw.y);
    v[4] = cuda_low(raw.z);
    v[5] = cuda_high(raw.z);
    v[6] = cuda_low(raw.w);
    v[7] = cuda_high(raw.w);
}

static __device__ __forceinline__ uint4 cuda_pack(const float (&v)[8])
{
    return make_uint4(cuda_two(v[0], v[1]), cuda_two(v[2], v[3]), cuda_two(v[4], v[5]),
                      cuda_two(v[6], v[7]));
}

/* V elements of T at p as floats: one at any address; a chunk, or two chunks of f32, where p stands
 * on 16 bytes; 4 of bf16 where it stands on 8. */
template <typename T, int V> static __device__ __forceinline__ void cuda_get(const T *p,
                                                                              float (&v)[V])
{
    if constexpr (V == 1) {
        v[0] = to_f32(*p);
    } else if constexpr (V == cuda_lanes<T>) {
        cuda_unpack(*reinterpret_cast<const uint4 *>(p), v);
    } else if constexpr (sizeof(T) == 4) {
        float lo[4], hi[4];
        static_assert(V == 8, "of f32 there are read 1, a chunk of 4, or two chunks");
        cuda_unpack(reinterpret_cast<const uint4 *>(p)[0], lo);
        cuda_unpack(reinterpret_cast<const uint4 *>(p)[1], hi);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            v[e] = lo[e];
            v[4 + e] = hi[e];
        }
    } else {
        static_assert(V == 4, "of bf16 there are read 1, half a chunk of 8, or a chunk");
        uint2 raw = *reinterpret_cast<const uint2 *>(p);
        v[0] = cuda_low(raw.x);
        v[1] = cuda_high(raw.x);
        v[2] = cuda_low(raw.y);
        v[3] = cuda_high(raw.y);
    }
}

/* And back, each rounded once to T: one element, a chunk, or 4 of bf16; not two chunks of f32,
 * which no kernel writes. */
template <typename T, int V> static __device__ __forceinline__ void cuda_put(T *p,
                                                                              const float (&v)[V])
{
    if constexpr (V == 1) {
        from_f32(p, v[0]);
    } else if constexpr (V == cuda_lanes<T>) {
        *reinterpret_cast<uint4 *>(p) = cuda_pack(v);
    } else {
        static_assert(sizeof(T) == 2, "of f32 there are written 1 or a chunk of 4");
        static_assert(V == 4, "of bf16 there are written 1, half a chunk of 8, or a chunk");
        *reinterpret_cast<uint2 *>(p) = make_uint2(cuda_two(v[0], v[1]), cuda_two(v[2], v[3]));
    }
}

/* A chunk of what no thread of the kernel writes (weights). */
template <int V> static __device__ __forceinline__ void cuda_get_fixed(const void *p, int64_t chunk,
                                                                       float (&v)[V])
{
    cuda_unpack(__ldg(static_cast<const uint4 *>(p) + chunk), v);
}

/* Sum over the 32 lanes, the same bits in all of them. All lanes take part. */
template <typename S> static __device__ __forceinline__ S cuda_warp_sum(S v)
{
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, lane);
    return v;
}

static __device__ __forceinline__ float cuda_warp_max(float v)
{
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, lane));
    return v;
}

/* Sum over a block of WARPS whole warps, the same bits in all threads. All threads take part.
 * shared: WARPS values that no other sum has used since the last barrier. */
template <int WARPS, typename S> static __device__ __forceinline__ S cuda_block_sum(S v, S *shared)
{
    v = cuda_warp_sum(v);
    if constexpr (WARPS == 1)
        return v;
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = v;
    __syncthreads();
    S sum = shared[0];
#pragma unroll
    for (int w = 1; w < WARPS; w++)
        sum += shared[w];
    return sum;
}

/* 1 / deviation of c values around their mean, of which `square` is the sum of squares: NaN where
 * that is not finite, for 1 / sqrt of infinity would make a healthy row of zeros. */
static __device__ __forceinline__ float cuda_rstd(float square, float c, float eps)
{
    return isfinite(square) ? 1.0f / sqrtf(square / c + eps) : __int_as_float(0x7fc00000);
}

/* Dropout of one site, ready for a kernel. `first`: the global index of local element 0. */
struct cuda_drop {
    uint64_t seed;
    const uint32_t *step; /* NULL: 0 */
    uint32_t stream, threshold;
    float scale;
    int64_t first;
};

static inline struct cuda_drop cuda_drop_of(const struct drop *d, int64_t cols)
{
    struct cuda_drop out = {d->seed, d->step, d->stream, 0u, 1.0f, 0};
    if (d->p != 0) {
        out.threshold = num_drop_threshold(d->p);
        out.scale = (float)(1.0 / (1.0 - d->p));
        out.first = d->row0 * cols;
    }
    return out;
}

/* 0, or 1 / (1 - p) where the element of this global index is kept. */
static __device__ __forceinline__ float cuda_drop_factor(const struct cuda_drop &d, int64_t index)
{
    uint4 word = cuda_philox(d.seed, d.stream, cuda_step(d.step), (uint64_t)index / 4);
    unsigned at = (unsigned)index % 4;
    unsigned mine = at < 2 ? (at ? word.y : word.x) : (at == 2 ? word.z : word.w);
    return mine >= d.threshold ? d.scale : 0.0f;
}

/* v[e] *= factor of element index + e; with V over 1, index is a multiple of 4. */
template <int V> static __device__ __forceinline__ void cuda_drop_apply(const struct cuda_drop &d,
                                                                        int64_t index,
                                                                        float (&v)[V])
{
    if constexpr (V == 1) {
        v[0] = __fmul_rn(v[0], cuda_drop_factor(d, index));
    } else {
#pragma unroll
        for (int e = 0; e < V; e += 4) {
            uint4 word = cuda_philox(d.seed, d.stream, cuda_step(d.step),
                                     (uint64_t)(index + e) / 4);
            v[e] = __fmul_rn(v[e], word.x >= d.threshold ? d.scale : 0.0f);
            v[e + 1] = __fmul_rn(v[e + 1], word.y >= d.threshold ? d.scale : 0.0f);
            v[e + 2] = __fmul_rn(v[e + 2], word.z >= d.threshold ? d.scale : 0.0f);
            v[e + 3] = __fmul_rn(v[e + 3], word.w >= d.threshold ? d.scale : 0.0f);
        }
    }
}

/* a += b, not fused with what made either. */
template <int V> static __device__ __forceinline__ void cuda_add_to(float (&a)[V],
                                                                    const float (&b)[V])
{
#pragma unroll
    for (int e = 0; e < V; e++)
        a[e] = __fadd_rn(a[e], b[e]);
}

/* to (cols) += the sum over rows of from (rows, cols), row stride ld; fresh: it is written. */
struct cuda_columns {
    float *to;
    const float *from;
    int64_t rows, cols, ld;
    bool fresh;
};

/* A block of 32 x 32 takes 32 columns: thread (x, y) adds rows y, y + 32, ..., four at a time in
 * flight; then the 32 sums of a column are added in the order of y. Memory (the L2 holds it). */
template <int SIDE> static __global__ void __launch_bounds__(SIDE * SIDE)
    cuda_columns_kernel(struct cuda_columns a)
{
    __shared__ float part[SIDE][SIDE + 1];
    int64_t col = (int64_t)blockIdx.x * SIDE + threadIdx.x;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (col < a.cols) {
        for (int64_t r = threadIdx.y; r < a.rows; r += 4 * SIDE) {
#pragma unroll
            for (int u = 0; u < 4; u++)
                if (r + u * SIDE < a.rows)
                    sum[u] += a.from[(r + u * SIDE) * a.ld + col];
        }
    }
    part[threadIdx.y][threadIdx.x] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    __syncthreads();
    /* the warp of row y now takes column y: its lanes are the 32 sums */
    float whole = cuda_warp_sum(part[threadIdx.x][threadIdx.y]);
    col = (int64_t)blockIdx.x * SIDE + threadIdx.y;
    if (threadIdx.x == 0 && col < a.cols)
        a.to[col] = a.fresh ? whole : a.to[col] + whole;
}

static inline enum err cuda_columns_add(struct cuda *c, const struct cuda_columns *a)
{
    if (a->cols == 0 || a->rows == 0)
        return ERR_OK;
    cuda_columns_kernel<32>
        <<<(unsigned)num_ceil_div(a->cols, 32), dim3(32, 32), 0, c->stream>>>(*a);
    CUDA_LAUNCHED("sum of columns");
    return ERR_OK;
}

#endif
