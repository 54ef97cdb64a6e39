/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the cpu device, its memory, and what it says of itself. Kernels exist in three tables
 * for three instruction sets; the best that the processor can run is taken once, at opening.
 */
#include "device/cpu/cpu.h"

#include "base/mem.h"
#include "device/cpu/cpu_amx.h"
#include "device/cpu/cpu_impl.h"
#include "device/plain.h"
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

static const char *slow(void)
{
    return best_simd() == &cpu_simd_base ? " (slow)" : "";
}

void cpu_describe_kind(char *buf, size_t n)
{
    snprintf(buf, n, "cpu: f32 GEMMs in %s%s; bf16 %s", best_simd()->name, slow(),
             cpu_amx_has() ? "GEMMs and attention on amx tiles"
                           : "by conversion to f32: this processor has no amx tiles");
}

static void cpu_describe(const struct dev *d, char *buf, size_t n)
{
    const struct cpu *p = (const struct cpu *)d;
    snprintf(buf, n, "cpu: %s, %d thread%s, %s, GEMMs %s", p->simd->name, d->threads,
             text_plural(d->threads, "s"), dtype_name(d->ct),
             p->tiles  ? "and attention on amx tiles"
             : p->bf16 ? "by conversion to f32"
                       : "own");
}

static void cpu_close(struct dev *d)
{
    cpu_pool_close(cpu_of(d)->pool);
    mem_free(d);
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
static enum err cpu_snapshot(struct dev *d, const struct snapshot *a)
{
    const struct pieces p = {a->to, a->from, a->n, d->threads};
    cpu_pool_run(cpu_of(d)->pool, copy_pieces, &p, p.n, 1);
    return ERR_OK;
}

static enum err cpu_run(struct dev *d, const struct op *op)
{
    switch (op->kind) {
    case OP_GEMM: return cpu_gemm(d, &op->gemm);
    case OP_BIAS_GRAD: return cpu_bias_grad(d, &op->bias_grad);
    case OP_NORM: return cpu_norm(d, &op->norm);
    case OP_NORM_GRAD: return cpu_norm_grad(d, &op->norm_grad);
    case OP_ATTN: return cpu_attn(d, &op->attn);
    case OP_ATTN_GRAD: return cpu_attn_grad(d, &op->attn_grad);
    case OP_ROPE: return cpu_rope(d, &op->rope);
    case OP_SWIGLU: return cpu_swiglu(d, &op->swiglu);
    case OP_SWIGLU_GRAD: return cpu_swiglu_grad(d, &op->swiglu_grad);
    case OP_RELU: return cpu_relu(d, &op->relu);
    case OP_RELU_GRAD: return cpu_relu_grad(d, &op->relu_grad);
    case OP_RESIDUAL: return cpu_residual(d, &op->residual);
    case OP_DROPOUT: return cpu_dropout(d, &op->dropout);
    case OP_EMBED: return cpu_embed(d, &op->embed);
    case OP_EMBED_GRAD: return cpu_embed_grad(d, &op->embed_grad);
    case OP_POS_ADD: return cpu_pos_add(d, &op->pos_add);
    case OP_POS_GRAD: return cpu_pos_grad(d, &op->pos_grad);
    case OP_XENT_MAX: return cpu_xent_max(d, &op->xent_max);
    case OP_XENT_SUM: return cpu_xent_sum(d, &op->xent_sum);
    case OP_XENT_GRAD: return cpu_xent_grad(d, &op->xent_grad);
    case OP_ADAMW: return cpu_adamw(d, &op->adamw);
    case OP_SUM: return cpu_sum(d, &op->sum);
    case OP_SUMSQ: return cpu_sumsq(d, &op->sumsq);
    case OP_CAST: return cpu_cast(d, &op->cast);
    case OP_ADD: return cpu_add(d, &op->add);
    case OP_SNAPSHOT: return cpu_snapshot(d, &op->snapshot);
    default:
        return dev_plain_run(d, op);
    }
}

static const struct dev_ops ops = {
    .name = "cpu", .close = cpu_close, .describe = cpu_describe, .alloc = dev_plain_alloc,
    .free = dev_plain_free, .run = cpu_run, DEV_PLAIN_SLOTS,
};

enum err cpu_open(const struct dev_args *a, struct dev **out)
{
    TRY(cpu_open_with(a, CPU_AUTO, out));
    return ERR_OK;
}

enum err cpu_open_with(const struct dev_args *a, enum cpu_gemms by, struct dev **out)
{
    struct cpu *p;
    enum err err;
    bool bf16 = a->ct == DT_BF16;
    if (a->ct != DT_F32 && !bf16)
        FAIL(ERR_CONFIG, "cpu: %s is asked for, and the device computes in f32 and bf16; use one "
                         "of them", dtype_name(a->ct));
    ENSURE(a->threads >= 1 && a->threads <= DEV_MAX_THREADS);
    if (by == CPU_TILES && (!bf16 || !cpu_amx_has()))
        FAIL(ERR_CONFIG, "cpu: %s GEMMs on amx tiles are asked for; tiles are for bf16, on "
                         "processors that have them", dtype_name(a->ct));
    TRY(mem_new(1, sizeof *p, "the cpu device", &p));
    p->dev = (struct dev){.ops = &ops, .kind = DEV_CPU, .types = dev_types(DEV_CPU, a->ct),
                          .workspace_bytes = cpu_workspace_bytes(a), .threads = a->threads,
                          .impl = p};
    p->bf16 = bf16;
    p->simd = best_simd();
    TRY_OR(out_close, cpu_pool_open(a->threads, p->dev.workspace_bytes / a->threads, &p->pool));
    p->tiles = bf16 && by != CPU_OWN && cpu_amx_has();
    *out = &p->dev;
    return ERR_OK;
out_close:
    cpu_close(&p->dev);
    return err;
}

int64_t cpu_workspace_bytes(const struct dev_args *a)
{
    return a->threads * CPU_SCRATCH_FLOATS * (int64_t)sizeof(float);
}
