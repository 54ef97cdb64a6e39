/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles of attention's gradient on Hopper (cuda_attn_bwd.cu): the matmuls of a warpgroup, scores
 * in registers, and how results leave. A warpgroup has 64 keys. Of its results, 64 rows, warp w has
 * rows 16 w and behind; lane l of those rows l/4 and l/4 + 8, and of each 8 columns 2 (l%4) and the
 * next: elements 4 j to 4 j + 3 of an array are (row, both), (row + 8, both) of columns 8 j on.
 */
#ifndef PLAIT_DEVICE_CUDA_ATTN_BWD_TILE_CUH
#define PLAIT_DEVICE_CUDA_ATTN_BWD_TILE_CUH

#include "device/cuda/cuda_hopper.cuh"
#include "device/cuda/cuda_math.cuh"

extern "C" {
#include "device/cuda/cuda_attn_bwd.h"
}

/* ---- matmuls of a warpgroup ---- */

/* d (64 keys, 128 queries) = own (64, 64) other (128, 64)^T. */
static __device__ __forceinline__ void matmul_scores(float (&d)[64], uint32_t own, uint32_t other)
{
    uint64_t a = wgmma_tile(own), b = wgmma_tile(other);
    wgmma_fence();
    wgmma_128_new(d, a, b);
#pragma unroll
    for (int k = 1; k < 4; k++)
        wgmma_128_add(d, wgmma_further(a, 32 * k), wgmma_further(b, 32 * k));
    wgmma_commit();
}

/* d (64 keys, 64) = [d +] p (64 keys, 128 queries) x (128 queries, 64). */
static __device__ __forceinline__ void matmul_keys(float (&d)[32], const uint32_t (&p)[32],
                                                    uint32_t x, bool add)
{
    uint64_t b = wgmma_tile(x);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 8; k++)
        wgmma_64_from(d, p + 4 * k, wgmma_further(b, 2048 * k), k > 0 || add);
    wgmma_commit();
}

/* d (64 queries, 64) = [d +] ds (64 queries, 128 keys) x (128 keys, 64). ds: own rows of tile 0. */
static __device__ __forceinline__ void matmul_queries(float (&d)[32], uint32_t ds, uint32_t x,
                                                       bool add)
{
    uint64_t a = wgmma_tile(ds), b = wgmma_tile(x);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 8; k++)
        wgmma_64(d, wgmma_further(a, k / 4 * BWD_TILE * 2 + k % 4 * 32), wgmma_further(b, 2048 * k),
                 k > 0 || add);
    wgmma_commit();
}

/* ---- scores ---- */

static __device__ __forceinline__ float power_of_two(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Scores of queries before the key become minus infinity; keys and queries are of one block, and
 * this warp's keys begin at `first`. */
static __device__ __forceinline__ void mask(float (&s)[64], int first)
{
    int l = threadIdx.x % 32, key = first + l / 4, query = l % 4 * 2;
#pragma unroll
    for (int i = 0; i < 64; i++)
        if (key + i % 4 / 2 * 8 > query + i / 4 * 8 + i % 2)
            s[i] = -INFINITY;
}

/* p = exp(scale s - lse) in bf16. lse: of this lane's first query, in bits. */
static __device__ __forceinline__ void probabilities(uint32_t (&p)[32], const float (&s)[64],
                                                     const float *lse, float bits)
{
#pragma unroll
    for (int j = 0; j < 16; j++) {
        float2 x = *(const float2 *)(lse + 8 * j);
        p[2 * j] = cuda_two(power_of_two(fmaf(s[4 * j], bits, -x.x)),
                            power_of_two(fmaf(s[4 * j + 1], bits, -x.y)));
        p[2 * j + 1] = cuda_two(power_of_two(fmaf(s[4 * j + 2], bits, -x.x)),
                                power_of_two(fmaf(s[4 * j + 3], bits, -x.y)));
    }
}

/* ds = p (dp - delta). */
static __device__ __forceinline__ void score_grads(uint32_t (&ds)[32], const uint32_t (&p)[32],
                                                   const float (&dp)[64], const float *delta)
{
#pragma unroll
    for (int j = 0; j < 16; j++) {
        float2 x = *(const float2 *)(delta + 8 * j);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int i = 2 * j + h;
            ds[i] = cuda_two(cuda_low(p[i]) * (dp[2 * i] - x.x),
                             cuda_high(p[i]) * (dp[2 * i + 1] - x.y));
        }
    }
}

/* The (64 keys, 128 queries) of a warpgroup to a tile (128 queries, 64 keys). to: this lane's. */
static __device__ __forceinline__ void store_turned(uint32_t to, const uint32_t (&ds)[32])
{
#pragma unroll
    for (int j = 0; j < 8; j++)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1,%2,%3,%4};"
                     ::"r"(to + 2048 * j), "r"(ds[4 * j]), "r"(ds[4 * j + 1]),
                     "r"(ds[4 * j + 2]), "r"(ds[4 * j + 3])
                     : "memory");
}

/* ---- results ---- */

/* Lane q of four has word q of rows 0..3; it gets row q whole. */
static __device__ __forceinline__ uint4 quad_turn(uint32_t x0, uint32_t x1, uint32_t x2,
                                                  uint32_t x3)
{
    bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    uint32_t a = __shfl_xor_sync(~0u, odd ? x0 : x1, 1);
    uint32_t b = __shfl_xor_sync(~0u, odd ? x2 : x3, 1);
    if (odd)
        x0 = a, x2 = b;
    else
        x1 = a, x3 = b;
    a = __shfl_xor_sync(~0u, high ? x0 : x2, 2);
    b = __shfl_xor_sync(~0u, high ? x1 : x3, 2);
    if (high)
        x0 = a, x1 = b;
    else
        x2 = a, x3 = b;
    return make_uint4(x0, x1, x2, x3);
}

/* A warpgroup's (64, 64) times `by` to rows from `row` of a matrix; those not below `rows` are not
 * there. They are not to take room in the L2. */
static __device__ __forceinline__ void write_rows(bf16 *to, int64_t ld, const float (&x)[32],
                                                  float by, int row, int rows)
{
    int l = threadIdx.x % 32, first = row + threadIdx.x / 32 % 4 * 16 + l / 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int h = i / 2, j = i % 2 * 4; /* rows; the first of four groups of columns */
        uint32_t w[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int at = 4 * (j + k) + 2 * h;
            w[k] = cuda_two(x[at] * by, x[at + 1] * by);
        }
        uint4 whole = quad_turn(w[0], w[1], w[2], w[3]);
        if (first + 8 * h < rows)
            __stcs((uint4 *)(to + (first + 8 * h) * ld + 8 * (j + l % 4)), whole);
    }
}

/* A warpgroup's (64, 64) of a slot: four floats a thread, eight times. Reads pass by the L1, where
 * additions are not seen. */
static __device__ __forceinline__ void slot_write(float *at, const float (&x)[32])
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        *(float4 *)(at + 512 * i) = make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2],
                                                x[4 * i + 3]);
}

static __device__ __forceinline__ void slot_add(float *at, const float (&x)[32])
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(at + 512 * i),
                     "f"(x[4 * i]), "f"(x[4 * i + 1]), "f"(x[4 * i + 2]), "f"(x[4 * i + 3])
                     : "memory");
}

static __device__ __forceinline__ void slot_read(const float *at, float (&x)[32])
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        asm volatile("ld.relaxed.gpu.global.v4.f32 {%0,%1,%2,%3}, [%4];"
                     : "=f"(x[4 * i]), "=f"(x[4 * i + 1]), "=f"(x[4 * i + 2]), "=f"(x[4 * i + 3])
                     : "l"(at + 512 * i)
                     : "memory");
}

#endif
