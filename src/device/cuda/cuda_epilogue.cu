/* SPDX-License-Identifier: Apache-2.0
 *
 * Bias and activation as a kernel of their own, and a plain GEMM, for shapes that cuBLASLt does
 * not serve: odd row lengths, strides or addresses. Right for every shape, made for none: a thread
 * an element, scalar accesses. Shapes that training spends its time on do not come here, and
 * cuda_gemm.c says (info) which do.
 *
 * The GEMM: a block of 16 x 16 threads has a tile of C, and goes through k in steps of 16 over
 * tiles of A and B in shared memory; elements outside are zeros there. The terms of an element are
 * added in ascending order of k, in f32, onto what C held when it accumulates.
 */
extern "C" {
#include "device/cuda/cuda_epilogue.h"
}
#include <cuda_bf16.h>

#define GELU_A 0.79788456080286535588f /* sqrt(2/pi) */
#define GELU_B 0.044715f

enum { SIDE = 16, THREADS = 256, GRID_ROWS = 32768 };

static __device__ float load(const float *p, int64_t i)
{
    return p[i];
}

static __device__ float load(const __nv_bfloat16 *p, int64_t i)
{
    return __bfloat162float(p[i]);
}

static __device__ void store(float *p, int64_t i, float x)
{
    p[i] = x;
}

static __device__ void store(__nv_bfloat16 *p, int64_t i, float x)
{
    p[i] = __float2bfloat16_rn(x);
}

static __device__ float gelu(float x)
{
    return 0.5f * x * (1.0f + tanhf(GELU_A * (x + GELU_B * x * x * x)));
}

static __device__ float gelu_slope(float x)
{
    float t = tanhf(GELU_A * (x + GELU_B * x * x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * GELU_A * (1.0f + 3.0f * GELU_B * x * x);
}

/* Rows are taken from the first of this call. */
template <typename C, typename T> struct epilogue {
    C *c;
    const float *src;
    const T *bias;
    T *pre;
    int64_t rows, n, ldc, ld;
    int act;
};

/* Thread x has a column, block y a row and those GRID_ROWS behind it. Memory bound. */
template <typename C, typename T> __global__ void epilogue_kernel(struct epilogue<C, T> e)
{
    int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= e.n)
        return;
    float bias = e.bias ? load(e.bias, j) : 0.0f;
    for (int64_t i = blockIdx.y; i < e.rows; i += gridDim.y) {
        float x = (e.src ? e.src[i * e.ld + j] : 0.0f) + bias;
        if (e.act == GEMM_GELU) {
            store(e.pre, i * e.n + j, x);
            x = gelu(x);
        } else if (e.act == GEMM_DGELU) {
            x *= gelu_slope(load(e.pre, i * e.n + j));
        }
        store(e.c, i * e.ldc + j, x);
    }
}

template <typename C, typename T>
static enum err epilogue_launch(struct cuda *c, const struct cuda_epilogue *e)
{
    const struct gemm *g = e->g;
    struct epilogue<C, T> k;
    k.c = (C *)g->c + e->row * g->ldc;
    k.src = e->src;
    k.bias = (const T *)g->bias;
    k.pre = g->pre ? (T *)g->pre + e->row * g->n : NULL;
    k.rows = e->rows;
    k.n = g->n;
    k.ldc = g->ldc;
    k.ld = e->ld;
    k.act = (int)g->act;
    dim3 grid((unsigned)num_ceil_div(g->n, THREADS), (unsigned)num_min(e->rows, GRID_ROWS));
    epilogue_kernel<C, T><<<grid, THREADS, 0, c->stream>>>(k);
    CUDA_LAUNCHED("epilogue");
    return ERR_OK;
}

extern "C" enum err cuda_epilogue(struct cuda *c, const struct cuda_epilogue *e)
{
    if (e->rows == 0 || e->g->n == 0)
        return ERR_OK;
    if (!c->bf16)
        return epilogue_launch<float, float>(c, e);
    if (e->g->c_at)
        return epilogue_launch<float, __nv_bfloat16>(c, e);
    return epilogue_launch<__nv_bfloat16, __nv_bfloat16>(c, e);
}

template <typename T> struct params {
    float *c;
    const T *a, *b;
    int64_t m, n, k, lda, ldb, ldc;
    bool trans_a, trans_b, accumulate;
};

/* Thread (x, y) has element (row y, column x) of the block's tile. */
template <typename T>
__global__ void __launch_bounds__(SIDE *SIDE) gemm_kernel(struct params<T> p)
{
    __shared__ float a[SIDE][SIDE + 1], b[SIDE][SIDE + 1];
    int x = threadIdx.x, y = threadIdx.y;
    int64_t j = (int64_t)blockIdx.x * SIDE + x;
    for (int64_t i0 = (int64_t)blockIdx.y * SIDE; i0 < p.m; i0 += (int64_t)gridDim.y * SIDE) {
        int64_t i = i0 + y;
        bool inside = i < p.m && j < p.n;
        float sum = p.accumulate && inside ? p.c[i * p.ldc + j] : 0.0f;
        for (int64_t k0 = 0; k0 < p.k; k0 += SIDE) {
            int64_t ka = k0 + x, kb = k0 + y;
            a[y][x] = i < p.m && ka < p.k ? load(p.a, p.trans_a ? ka * p.lda + i : i * p.lda + ka)
                                          : 0.0f;
            b[y][x] = j < p.n && kb < p.k ? load(p.b, p.trans_b ? j * p.ldb + kb : kb * p.ldb + j)
                                          : 0.0f;
            __syncthreads();
            for (int s = 0; s < SIDE; s++)
                sum += a[y][s] * b[s][x];
            __syncthreads();
        }
        if (inside)
            p.c[i * p.ldc + j] = sum;
    }
}

template <typename T> static enum err gemm_launch(struct cuda *c, const struct gemm *g)
{
    struct params<T> p = {(float *)g->c, (const T *)g->a, (const T *)g->b, g->m, g->n, g->k,
                           g->lda, g->ldb, g->ldc, g->trans_a, g->trans_b, g->accumulate};
    dim3 grid((unsigned)num_ceil_div(g->n, SIDE),
              (unsigned)num_min(num_ceil_div(g->m, SIDE), GRID_ROWS));
    gemm_kernel<T><<<grid, dim3(SIDE, SIDE), 0, c->stream>>>(p);
    CUDA_LAUNCHED("GEMM");
    return ERR_OK;
}

extern "C" enum err cuda_gemm_own(struct cuda *c, const struct gemm *g)
{
    if (g->m == 0 || g->n == 0)
        return ERR_OK;
    return c->bf16 ? gemm_launch<__nv_bfloat16>(c, g) : gemm_launch<float>(c, g);
}
