/* SPDX-License-Identifier: Apache-2.0
 *
 * The sum of what members hold, in the order of the members, element by element: f32 in f32, bf16
 * in f32 and rounded once. A thread takes 16 bytes of each at a time where all lie so; the work is
 * that of memory, and the grid no larger than keeps memory busy.
 */
#include "comm/gpu/sum.h"

#include <cuda_bf16.h>

enum { BLOCK = 512, BLOCKS_MAX = 264 };

struct pieces {
    const void *in[COMM_SUM_MOST];
    int n;
};

template <typename T> struct __align__(16) pack { T v[16 / sizeof(T)]; };

static __device__ float wide(float x) { return x; }
static __device__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
static __device__ void put(float *to, float x) { *to = x; }
static __device__ void put(__nv_bfloat16 *to, float x) { *to = __float2bfloat16_rn(x); }

template <typename T, typename V> static __device__ void add_up(V *out, const pieces &p, int64_t i)
{
    enum { N = sizeof(V) / sizeof(T) };
    float sum[N];
    for (int k = 0; k < p.n; k++) {
        V x = ((const V *)p.in[k])[i];
        for (int j = 0; j < N; j++)
            sum[j] = k ? sum[j] + wide(((const T *)&x)[j]) : wide(((const T *)&x)[j]);
    }
    V y;
    for (int j = 0; j < N; j++)
        put((T *)&y + j, sum[j]);
    out[i] = y;
}

template <typename T, typename V>
static __global__ void sum_kernel(V *out, pieces p, int64_t n)
{
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n; i += step)
        add_up<T, V>(out, p, i);
}

template <typename T>
static cudaError_t launch(void *out, const pieces &p, int64_t count, cudaStream_t s)
{
    enum { N = 16 / sizeof(T) };
    uintptr_t odd = (uintptr_t)out;
    for (int k = 0; k < p.n; k++)
        odd |= (uintptr_t)p.in[k];
    bool packs = odd % 16 == 0 && count % N == 0;
    int64_t n = packs ? count / N : count, blocks = (n + BLOCK - 1) / BLOCK;
    int grid = (int)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX);
    if (packs)
        sum_kernel<T, pack<T>><<<grid, BLOCK, 0, s>>>((pack<T> *)out, p, n);
    else
        sum_kernel<T, T><<<grid, BLOCK, 0, s>>>((T *)out, p, n);
    return cudaGetLastError();
}

cudaError_t comm_sum_kernel(const struct comm_sum_args *t, cudaStream_t s)
{
    pieces p = {{0}, t->n};
    for (int k = 0; k < t->n; k++)
        p.in[k] = t->in[k];
    if (t->count == 0)
        return cudaSuccess;
    return t->dt == DT_BF16 ? launch<__nv_bfloat16>(t->out, p, t->count, s)
                            : launch<float>(t->out, p, t->count, s);
}
