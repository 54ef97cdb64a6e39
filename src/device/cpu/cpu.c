/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the cpu device, its memory, and what it says of itself. Kernels exist in three tables
 * for three instruction sets; the best that the processor can run is taken once, at opening.
 */
#include "device/cpu/cpu.h"

#include "base/mem.h"
#include "device/cpu/cpu_amx.h"
#include "device/cpu/cpu_dnnl.h"
#include "device/cpu/cpu_impl.h"
#include "device/dev_plain.h"
#include <stdio.h>
#include <string.h>

static const struct cpu_simd *best_simd(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &cpu_simd_v4;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &cpu_simd_v3;
#endif
    return &cpu_simd_base;
}

#ifdef PLAIT_HAVE_ONEDNN
static bool dnnl_bf16(void)
{
    return cpu_dnnl_has_bf16();
}

static void dnnl_name(char *buf, size_t n)
{
    cpu_dnnl_name(buf, n);
}

static enum err open_dnnl(struct cpu *p)
{
    TRY(cpu_dnnl_open(p->dev.threads, &p->dnnl));
    return ERR_OK;
}

static void close_dnnl(struct cpu *p)
{
    cpu_dnnl_close(p->dnnl);
}

static int64_t dnnl_bytes(const struct cpu *p)
{
    return p->dnnl ? cpu_dnnl_bytes(p->dnnl) : 0;
}
#else
static bool dnnl_bf16(void)
{
    return false;
}

static void dnnl_name(char *buf, size_t n)
{
    snprintf(buf, n, "oneDNN");
}

static enum err open_dnnl(struct cpu *p)
{
    (void)p;
    FAIL(ERR_CONFIG, "cpu: products by oneDNN are asked for and it is not built in; install "
                     "libdnnl-dev and build again");
}

static void close_dnnl(struct cpu *p)
{
    (void)p;
}

static int64_t dnnl_bytes(const struct cpu *p)
{
    (void)p;
    return 0;
}
#endif

static const char *slow(void)
{
    return best_simd() == &cpu_simd_base ? " (slow)" : "";
}

void cpu_describe_kind(char *buf, size_t n)
{
    snprintf(buf, n, "cpu: f32 products in %s%s; bf16 %s", best_simd()->name, slow(),
             cpu_amx_has() ? "products and attention on amx tiles"
                           : "by conversion to f32: this processor has no amx tiles");
}

static void cpu_describe(const struct dev *d, char *buf, size_t n)
{
    const struct cpu *p = (const struct cpu *)d;
    char name[64] = "own";
    if (p->dnnl)
        dnnl_name(name, sizeof name);
    snprintf(buf, n, "cpu: %s, %d thread%s, %s, products %s%s", p->simd->name, d->threads,
             text_plural(d->threads, "s"), dtype_name(d->ct), p->dnnl ? "by " : "",
             p->tiles              ? "and attention on amx tiles"
             : p->half && !p->dnnl ? "by conversion to f32"
                                   : name);
}

static void cpu_close(struct dev *d)
{
    close_dnnl(cpu_of(d));
    cpu_pool_close(cpu_of(d)->pool);
    mem_free(d);
}

static enum err cpu_alloc(struct dev *d, int64_t bytes, const char *name, void **out)
{
    (void)d;
    TRY(mem_new(bytes, 1, name, out));
    return ERR_OK;
}

static void cpu_free(struct dev *d, void *p)
{
    (void)d;
    mem_free(p);
}

static enum err cpu_copy(struct dev *d, void *to, const void *from, int64_t bytes)
{
    (void)d;
    if (bytes > 0)
        memmove(to, from, (size_t)bytes);
    return ERR_OK;
}

struct pieces { char *to; const char *from; int64_t bytes, n; };

static void copy_pieces(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct pieces *p = arg;
    int64_t each = num_ceil_div(p->bytes, p->n);
    int64_t begin = num_min(first * each, p->bytes), end = num_min(last * each, p->bytes);
    (void)scratch;
    memcpy(p->to + begin, p->from + begin, (size_t)(end - begin));
}

/* At once, by the threads of the rank, which have nothing else to do meanwhile. A piece for each: a
 * long memcpy goes past the caches. */
static enum err cpu_aside(struct dev *d, int slot, void *host_to, const void *from, int64_t bytes)
{
    (void)slot;
    const struct pieces p = {host_to, from, bytes, d->threads};
    cpu_pool_run(cpu_of(d)->pool, copy_pieces, &p, p.n, 1);
    return ERR_OK;
}

static enum err cpu_zero(struct dev *d, void *p, int64_t bytes)
{
    (void)d;
    if (bytes > 0)
        memset(p, 0, (size_t)bytes);
    return ERR_OK;
}

static enum err cpu_sync(struct dev *d)
{
    (void)d;
    return ERR_OK;
}

static const struct dev_ops ops = {
    .name = "cpu", .close = cpu_close, .describe = cpu_describe,
    .alloc = cpu_alloc, .free = cpu_free, .host_alloc = dev_plain_host_alloc,
    .host_free = dev_plain_host_free, .copy_in = cpu_copy, .copy_out = cpu_copy,
    .copy = cpu_copy, .zero = cpu_zero, .sync = cpu_sync, .aside = cpu_aside,
    .aside_ready = dev_plain_mark, .aside_join = dev_plain_mark,
    .aside_reach = dev_plain_aside_reach,
    .mark = dev_plain_mark, .reach = dev_plain_mark, .stamps = dev_plain_stamps,
    .stamp = dev_plain_stamp, .stamped = dev_plain_stamped, .queue = dev_plain_queue,
    .room = dev_plain_room,
    .gemm = cpu_gemm, .bias_grad = cpu_bias_grad, .norm = cpu_norm, .norm_grad = cpu_norm_grad,
    .attn = cpu_attn, .attn_grad = cpu_attn_grad, .rope = cpu_rope, .swiglu = cpu_swiglu,
    .swiglu_grad = cpu_swiglu_grad, .residual = cpu_residual,
    .residual_norm = dev_plain_residual_norm, .dropout = cpu_dropout,
    .embed = cpu_embed, .embed_grad = cpu_embed_grad, .pos_add = cpu_pos_add,
    .pos_grad = cpu_pos_grad, .xent_max = cpu_xent_max, .xent_sum = cpu_xent_sum,
    .xent_grad = cpu_xent_grad, .xent = dev_plain_xent,
    .scale = dev_plain_scale, .adamw = cpu_adamw, .sum = cpu_sum, .sumsq = cpu_sumsq,
    .cast = cpu_cast, .add = cpu_add,
};

enum err cpu_open(const struct dev_args *a, struct dev **out)
{
    TRY(cpu_open_with(a, CPU_AUTO, out));
    return ERR_OK;
}

enum err cpu_open_with(const struct dev_args *a, enum cpu_products products, struct dev **out)
{
    struct cpu *p;
    enum err err;
    bool half = a->ct == DT_BF16;
    if (a->ct != DT_F32 && !half)
        FAIL(ERR_CONFIG, "cpu: %s is asked for, and the device computes in f32 and bf16; use one "
                         "of them", dtype_name(a->ct));
    ENSURE(a->threads >= 1 && a->threads <= DEV_MAX_THREADS);
    if (products == CPU_ONEDNN && half && !dnnl_bf16())
        FAIL(ERR_CONFIG, "cpu: bf16 products by oneDNN are asked for and this processor has none; "
                         "use f32, or own products");
    if (products == CPU_TILES && (!half || !cpu_amx_has()))
        FAIL(ERR_CONFIG, "cpu: %s products on amx tiles are asked for; tiles are for bf16, on "
                         "processors that have them", dtype_name(a->ct));
    TRY(mem_new(1, sizeof *p, "the cpu device", &p));
    p->dev = (struct dev){.ops = &ops, .kind = DEV_CPU, .types = dev_types(DEV_CPU, a->ct),
                          .own = cpu_own_bytes(a), .threads = a->threads, .impl = p};
    p->half = half;
    p->simd = best_simd();
    TRY_OR(out_close, cpu_pool_open(a->threads, p->dev.own / a->threads, &p->pool));
    p->tiles = half && (products == CPU_AUTO || products == CPU_TILES) && cpu_amx_has();
    if (products == CPU_ONEDNN)
        TRY_OR(out_close, open_dnnl(p));
    *out = &p->dev;
    return ERR_OK;
out_close:
    cpu_close(&p->dev);
    return err;
}

int64_t cpu_own_bytes(const struct dev_args *a)
{
    return a->threads * CPU_SCRATCH_FLOATS * (int64_t)sizeof(float);
}

int64_t cpu_scratch_bytes(const struct dev *d)
{
    return d->own + dnnl_bytes((const struct cpu *)d);
}
