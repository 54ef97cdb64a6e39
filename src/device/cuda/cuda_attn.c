/* SPDX-License-Identifier: Apache-2.0
 *
 * Who computes attention. cuDNN where it can: bf16, no dropout (its random numbers are not ours),
 * heads of a multiple of 8, lengths of a multiple of 128. Our own kernels the rest, and all of it
 * where the program is built without cuDNN. Both leave the same log-sum-exp, so a forward of one
 * may be followed by a backward of the other.
 *
 * A deterministic backward of cuDNN keeps a (tq, tk) matrix a head in bf16. That is only let be
 * where it is small; above, our own kernels, which have no such matrix, are the deterministic ones.
 */
#include "device/cuda/cuda_local.h"

/* Most that a deterministic backward by cuDNN may take of the workspace. */
static const int64_t deterministic_most = (int64_t)256 << 20;

/* Bytes of workspace that cuDNN takes for a gradient; 9.19's engine for compute capability 9.0 was
 * asked for these shapes. Heads in groups: dk and dv of each query head, bf16. Deterministic: the
 * probabilities, rows and columns in blocks of 64, bf16; else the sums of dq, f32. */
static int64_t need(const struct attn *a, bool deterministic)
{
    int64_t pairs = a->b * a->heads, slack = 4096 + pairs * a->tq * 4 /* log-sum-exps */;
    int64_t tq = (a->tq + 63) / 64 * 64, tk = (a->tk + 63) / 64 * 64;
    int64_t groups = a->heads == a->kv_heads ? 0 : 2 * pairs * a->tk * a->d * 2;
    return slack + groups + (deterministic ? pairs * tq * tk * 2 : pairs * a->tq * a->d * 4);
}

int64_t cuda_attn_work_bytes(const struct attn *a, bool deterministic)
{
    int64_t bytes = need(a, deterministic);
    return deterministic && bytes > deterministic_most ? 0 : bytes;
}

/* Is cuDNN asked at all? What it needs to know beyond this it finds out itself. */
static bool asks(const struct cuda *c, const struct attn *a)
{
    return c->half && a->drop.p == 0;
}

enum err cuda_attn(struct dev *d, const struct attn *a)
{
    struct cuda *c = cuda_of(d);
    bool done = false;
    if (a->b == 0 || a->tq == 0)
        return ERR_OK;
    if (asks(c, a))
        TRY(cuda_dnn_attn(c, &(struct attn_grad){.f = *a}, false, &done));
    if (!done)
        TRY(cuda_attn_own(c, a));
    return ERR_OK;
}

enum err cuda_attn_grad(struct dev *d, const struct attn_grad *g)
{
    struct cuda *c = cuda_of(d);
    bool done = false;
    if (g->f.b == 0 || g->f.tk == 0)
        return ERR_OK;
    bool small = !c->deterministic || need(&g->f, true) <= deterministic_most;
    if (asks(c, &g->f) && g->f.tq > 0 && small)
        TRY(cuda_dnn_attn(c, g, true, &done));
    if (!done)
        TRY(cuda_attn_own_grad(c, g));
    return ERR_OK;
}
