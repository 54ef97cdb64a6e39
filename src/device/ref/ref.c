/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference device: every number a double, every kernel the formula of its definition in
 * plain loops on one thread. It is the judge of the other devices and of the distributed engine:
 * in double, a difference above about 1e-12 between two layouts is a mistake and not rounding.
 *
 * Loops run over rows outside and along rows inside, so that compilers can use vectors without
 * reordering a sum. Sums over rows (weight gradients) start from what is there and add one row
 * after another: a batch taken in two parts gives the same bits as in one.
 */
#include "device/ref/ref.h"

#include "base/mem.h"
#include "device/dev_plain.h"
#include <stdio.h>

struct ref_dev {
    struct dev dev;
    double *scratch; /* owned */
    int64_t scratch_n;
};

enum err ref_scratch(struct dev *d, int64_t n, double **out)
{
    struct ref_dev *r = d->impl;
    if (n > r->scratch_n) {
        double *p;
        TRY(mem_new(n, sizeof *p, "scratch of the ref device", &p));
        mem_free(r->scratch);
        r->scratch = p;
        r->scratch_n = n;
    }
    *out = r->scratch;
    return ERR_OK;
}

double ref_drop_factor(const struct drop *drop, int64_t index)
{
    if (drop->p == 0)
        return 1.0;
    bool kept = num_drop_kept(drop->seed, drop->stream, drop->step ? *drop->step : 0, index,
                              num_drop_threshold(drop->p));
    return kept ? 1.0 / (1.0 - drop->p) : 0.0;
}

static void ref_close(struct dev *d)
{
    struct ref_dev *r = d->impl;
    mem_free(r->scratch);
    mem_free(r);
}

void ref_describe_kind(char *buf, size_t n)
{
    snprintf(buf, n, "ref: plain loops in f64, 1 thread; the judge of the others");
}

static void ref_describe(const struct dev *d, char *buf, size_t n)
{
    (void)d;
    ref_describe_kind(buf, n);
}

static enum err ref_alloc(struct dev *d, int64_t bytes, const char *name, void **out)
{
    (void)d;
    TRY(mem_new(bytes, 1, name, out));
    return ERR_OK;
}

static void ref_free(struct dev *d, void *p)
{
    (void)d;
    mem_free(p);
}

static enum err ref_copy(struct dev *d, void *to, const void *from, int64_t bytes)
{
    (void)d;
    if (bytes > 0)
        memcpy(to, from, (size_t)bytes);
    return ERR_OK;
}

static enum err ref_zero(struct dev *d, void *p, int64_t bytes)
{
    (void)d;
    if (bytes > 0)
        memset(p, 0, (size_t)bytes);
    return ERR_OK;
}

static enum err ref_sync(struct dev *d)
{
    (void)d;
    return ERR_OK;
}

static const struct dev_ops ref_ops = {
    .name = "ref",
    .close = ref_close,
    .describe = ref_describe,
    .alloc = ref_alloc,
    .free = ref_free,
    .host_alloc = dev_plain_host_alloc,
    .host_free = dev_plain_host_free,
    .copy_in = ref_copy,
    .copy_out = ref_copy,
    .copy = ref_copy,
    .zero = ref_zero,
    .sync = ref_sync,
    .aside = dev_plain_aside,
    .aside_ready = dev_plain_mark,
    .aside_join = dev_plain_mark,
    .aside_reach = dev_plain_aside_reach,
    .mark = dev_plain_mark,
    .reach = dev_plain_mark,
    .stamps = dev_plain_stamps,
    .stamp = dev_plain_stamp,
    .stamped = dev_plain_stamped,
    .queue = dev_plain_queue,
    .room = dev_plain_room,
    .gemm = ref_gemm,
    .bias_grad = ref_bias_grad,
    .norm = ref_norm,
    .norm_grad = ref_norm_grad,
    .attn = ref_attn,
    .attn_grad = ref_attn_grad,
    .rope = ref_rope,
    .swiglu = ref_swiglu,
    .swiglu_grad = ref_swiglu_grad,
    .residual = ref_residual,
    .residual_norm = dev_plain_residual_norm,
    .dropout = ref_dropout,
    .embed = ref_embed,
    .embed_grad = ref_embed_grad,
    .pos_add = ref_pos_add,
    .pos_grad = ref_pos_grad,
    .xent_max = ref_xent_max,
    .xent_sum = ref_xent_sum,
    .xent_grad = ref_xent_grad,
    .xent = dev_plain_xent,
    .adamw = ref_adamw,
    .scale = dev_plain_scale,
    .sum = ref_sum,
    .sumsq = ref_sumsq,
    .cast = ref_cast,
    .add = ref_add,
};

enum err ref_open(const struct dev_args *a, struct dev **out)
{
    struct ref_dev *r;
    if (a->ct != DT_F64)
        FAIL(ERR_CONFIG, "device: ref computes in f64 and was asked for %s; use f64, or the cpu "
                         "device", dtype_name(a->ct));
    TRY(mem_new(1, sizeof *r, "the ref device", &r));
    r->dev = (struct dev){
        .ops = &ref_ops, .kind = DEV_REF, .types = dev_types(DEV_REF, DT_F64), .threads = 1,
        .impl = r};
    *out = &r->dev;
    return ERR_OK;
}
