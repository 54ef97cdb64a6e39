/* SPDX-License-Identifier: Apache-2.0
 *
 * The sum of what members hold, in the order of the members, element by element: f32 in f32, bf16
 * in f32 and rounded once, f64 and i32 in their own type; or the maximum. A thread takes 16 bytes
 * of each at a time where all lie so; the work is that of memory, and the grid no larger than keeps
 * memory busy.
 */
#include "comm/gpu/sum.h"

#include <cuda_bf16.h>

enum { BLOCK = 512, BLOCKS_MAX = 264 };

template <typename T> struct __align__(16) pack { T v[16 / sizeof(T)]; };

/* What T is summed in. */
template <typename T> struct wide_of { typedef T type; };
template <> struct wide_of<__nv_bfloat16> { typedef float type; };

template <typename T> static __device__ T wide(T x) { return x; }
static __device__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
template <typename T> static __device__ void put(T *to, T x) { *to = x; }
static __device__ void put(__nv_bfloat16 *to, float x) { *to = __float2bfloat16_rn(x); }

template <bool MAX, typename W> static __device__ W both(W a, W b)
{
    if (MAX)
        return b > a || b != b ? b : a; /* keeps a when a is NaN */
    return a + b;
}

template <bool MAX, typename T, typename V>
static __device__ void add_up(const comm_sum_args &p, int64_t i)
{
    enum { N = sizeof(V) / sizeof(T) };
    typename wide_of<T>::type sum[N];
    for (int k = 0; k < p.n; k++) {
        V x = ((const V *)p.in[k])[i];
        for (int j = 0; j < N; j++)
            sum[j] = k ? both<MAX>(sum[j], wide(((const T *)&x)[j])) : wide(((const T *)&x)[j]);
    }
    V y;
    for (int j = 0; j < N; j++)
        put((T *)&y + j, sum[j]);
    ((V *)p.out)[i] = y;
}

template <bool MAX, typename T, typename V>
static __global__ void sum_kernel(comm_sum_args p, int64_t n)
{
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < n; i += step)
        add_up<MAX, T, V>(p, i);
}

template <bool MAX, typename T>
static cudaError_t launch(const comm_sum_args &p, cudaStream_t s)
{
    enum { N = 16 / sizeof(T) };
    uintptr_t odd = (uintptr_t)p.out;
    for (int k = 0; k < p.n; k++)
        odd |= (uintptr_t)p.in[k];
    bool packs = odd % 16 == 0 && p.count % N == 0;
    int64_t n = packs ? p.count / N : p.count, blocks = (n + BLOCK - 1) / BLOCK;
    int grid = (int)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX);
    if (packs)
        sum_kernel<MAX, T, pack<T>><<<grid, BLOCK, 0, s>>>(p, n);
    else
        sum_kernel<MAX, T, T><<<grid, BLOCK, 0, s>>>(p, n);
    return cudaGetLastError();
}

template <typename T> static cudaError_t launch_of(const comm_sum_args &p, cudaStream_t s)
{
    return p.max ? launch<true, T>(p, s) : launch<false, T>(p, s);
}

cudaError_t comm_sum_kernel(const struct comm_sum_args *t, cudaStream_t s)
{
    if (t->count == 0)
        return cudaSuccess;
    switch (t->dt) {
    case DT_F64: return launch_of<double>(*t, s);
    case DT_BF16: return launch_of<__nv_bfloat16>(*t, s);
    case DT_I32: return launch_of<int32_t>(*t, s);
    default: return launch_of<float>(*t, s);
    }
}
