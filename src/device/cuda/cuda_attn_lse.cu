/* SPDX-License-Identifier: Apache-2.0
 *
 * Log-sum-exps in the order that cuDNN's backward reads them, whatever strides it is told: a row of
 * queries for each head of each sequence. A few megabytes, against gigabytes of attention.
 */
extern "C" {
#include "device/cuda/cuda_local.h"
}

enum { THREADS = 256 };

static __global__ void lse_by_head(float *to, const float *from, int64_t n, int64_t heads,
                                   int64_t tq)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n)
        return;
    int64_t t = i % tq, head = i / tq % heads, b = i / tq / heads;
    to[i] = from[(b * tq + t) * heads + head];
}

extern "C" enum err cuda_attn_lse(struct cuda *c, void *to, const struct attn *a)
{
    int64_t n = a->b * a->heads * a->tq;
    lse_by_head<<<(unsigned)num_ceil_div(n, THREADS), THREADS, 0, c->stream>>>(
        (float *)to, (const float *)a->lse, n, a->heads, a->tq);
    CUDA_LAUNCHED("attention's log-sum-exps");
    return ERR_OK;
}
