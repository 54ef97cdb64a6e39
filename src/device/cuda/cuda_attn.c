/* SPDX-License-Identifier: Apache-2.0
 *
 * Who computes attention. cuDNN where it can: bf16, no dropout (its random numbers are not ours),
 * heads of a multiple of 8, lengths of a multiple of 128. Our own kernels the rest, and all of it
 * where the program is built without cuDNN. Both leave the same log-sum-exp, so a forward of one
 * may be followed by a backward of the other.
 *
 * The gradient of heads of 64 has kernels of its own on Hopper (cuda_attn_bwd.cu). They come first
 * where they are the faster ones by measurement, sequences of up to 2048 whose pairs of sequence
 * and head come out even on the SMs (bench/bench_attn.c; an H200: 335 TFLOP/s beside
 * cuDNN's 252 at 64 x 1024 x 12 heads, 342 beside 369 at 2 x 4096 x 32).
 * They add in one order, so the deterministic mode takes them for longer sequences too.
 * dev_args.attn_grad says otherwise, for tests and measurements.
 *
 * A deterministic backward of cuDNN keeps a (tq, tk) matrix a head in bf16. That is only let be
 * where it is small; above, our own kernels, which have no such matrix, are the deterministic ones.
 */
#include "device/cuda/cuda_local.h"

#include "base/log.h"
#include "device/cuda/cuda.h"
#include "device/cuda/cuda_attn_bwd.h"
#include <string.h>

/* Most that a deterministic backward may take of the workspace. */
static const int64_t deterministic_most = (int64_t)256 << 20;

/* Are the Hopper kernels faster than cuDNN? Evenly shared out they have 1.33 times its speed at
 * T 1024, 1.06 at 2048, 0.93 at 4096. On 132 SMs 75 pairs are as fast at 1024, and
 * 96 pairs have 1.17 times its speed at 1024 and 0.98 at 2048. */
static bool faster(const struct cuda *c, const struct attn *a)
{
    struct bwd_share s = bwd_share_of(a->b * a->heads, a->tq, c->sms);
    double even = bwd_even(&s, c->sms);
    return a->tq <= 1024 ? even > 0.6 : a->tq <= 2048 && even > 0.76;
}

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

/* Shapes that the Hopper kernels are for: up to T 7600 or so, by their workspace. */
static bool suits(const struct attn *a)
{
    return a->d == BWD_D && a->heads == a->kv_heads && a->tq == a->tk &&
           bwd_bytes(a->b * a->heads, a->tq) <= deterministic_most;
}

/* Are they asked first? */
static bool leads(const struct cuda *c, const struct attn *a)
{
    if (c->attn_grad == DEV_GRAD_AUTO)
        return suits(a) && (c->deterministic || faster(c, a));
    return c->attn_grad == DEV_GRAD_HOPPER;
}

int64_t cuda_attn_work_bytes(const struct attn *a, bool deterministic)
{
    int64_t bytes = need(a, deterministic);
    int64_t bwd = suits(a) ? bwd_bytes(a->b * a->heads, a->tq) : 0;
    return num_max(deterministic && bytes > deterministic_most ? 0 : bytes, bwd);
}

/* Is cuDNN asked at all? What it needs to know beyond this it finds out itself. */
static bool asks(const struct cuda *c, const struct attn *a)
{
    return c->bf16 && a->drop.p == 0;
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

/* Once a shape: who took it. */
static void tell(struct cuda *c, const struct attn *a, const char *who)
{
    int64_t shape[] = {a->b, a->tq, a->tk, a->heads, a->kv_heads, a->d};
    if (memcmp(c->attn_told, shape, sizeof shape) == 0)
        return;
    memcpy(c->attn_told, shape, sizeof shape);
    log_line(LOG_DEBUG, "cuda: the gradient of attention of %lld x %lld queries, %lld keys, %lld "
                        "and %lld heads of %lld: %s", (long long)a->b, (long long)a->tq,
             (long long)a->tk, (long long)a->heads, (long long)a->kv_heads, (long long)a->d, who);
}

enum err cuda_attn_grad(struct dev *d, const struct attn_grad *g)
{
    struct cuda *c = cuda_of(d);
    bool done = false;
    if (g->f.b == 0 || g->f.tk == 0)
        return ERR_OK;
    if (leads(c, &g->f))
        TRY(cuda_attn_bwd(c, g, &done));
    if (done) {
        tell(c, &g->f, "kernels for Hopper");
        return ERR_OK;
    }
    bool small = !c->deterministic || need(&g->f, true) <= deterministic_most;
    if (c->attn_grad != DEV_GRAD_OWN && asks(c, &g->f) && g->f.tq > 0 && small)
        TRY(cuda_dnn_attn(c, g, true, &done));
    tell(c, &g->f, done ? "cuDNN" : "own kernels");
    if (!done)
        TRY(cuda_attn_own_grad(c, g));
    return ERR_OK;
}
