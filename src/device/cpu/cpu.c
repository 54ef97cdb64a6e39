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

void cpu_describe_kind(char *buf, size_t n)
{
    snprintf(buf, n, "cpu: f32 GEMMs in %s%s; bf16 %s", best_simd()->name,
             best_simd() == &cpu_simd_base ? " (slow)" : "",
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
    const struct attn *a = op->kind == OP_ATTN        ? &op->attn
                           : op->kind == OP_ATTN_GRAD ? &op->attn_grad.f
                                                      : NULL;
    if (a && a->d > CPU_HEAD_MAX)
        FAIL(ERR_CONFIG, "cpu: attention heads of %lld elements do not fit this device's tiles; "
                         "use heads of at most %d", (long long)a->d, CPU_HEAD_MAX);
    ENSURE(!a || (a->kv_heads > 0 && a->heads % a->kv_heads == 0 && a->tk >= a->tq));
    switch (op->kind) {
#define CPU_CASE(kind, member, type, call) \
    case kind:                             \
        call(cpu_of(d), &op->member);      \
        return ERR_OK;
        CPU_OPS(CPU_CASE)
#undef CPU_CASE
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
    struct cpu *p;
    enum err err;
    bool bf16 = a->ct == DT_BF16;
    if (a->ct != DT_F32 && !bf16)
        FAIL(ERR_CONFIG, "cpu: %s is asked for, and the device computes in f32 and bf16; use one "
                         "of them", dtype_name(a->ct));
    ENSURE(a->threads >= 1 && a->threads <= DEV_MAX_THREADS);
    TRY(mem_new(1, sizeof *p, "the cpu device", &p));
    p->dev = (struct dev){.ops = &ops, .kind = DEV_CPU, .types = dev_types(DEV_CPU, a->ct),
                          .workspace_bytes = cpu_workspace_bytes(a), .threads = a->threads,
                          .impl = p};
    p->bf16 = bf16;
    p->simd = best_simd();
    TRY_OR(out_close, cpu_pool_open(a->threads, p->dev.workspace_bytes / a->threads, &p->pool));
    p->tiles = bf16 && cpu_amx_has();
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
