/* SPDX-License-Identifier: Apache-2.0
 *
 * The null device takes a model of any size without holding it. An allocation is a range of
 * addresses from a counter, never touched, and an operation does nothing: who stands around it
 * (dev_hook) sees what a step asks for. What comes to the host are zeros, so that a host that reads
 * a loss reads a number.
 */
#include "device/null/null.h"

#include "base/mem.h"
#include "device/plain.h"
#include <stdio.h>

struct null_dev {
    struct dev dev;
    int64_t next; /* address of the next allocation */
};

enum { FIRST_ADDRESS = 1 << 20 }; /* above what could be taken for NULL and an offset */

static void null_close(struct dev *d)
{
    mem_free(d->impl);
}

void null_describe_kind(char *buf, size_t n)
{
    snprintf(buf, n, "null: no memory and no math; any type");
}

static void null_describe(const struct dev *d, char *buf, size_t n)
{
    snprintf(buf, n, "null: no memory and no math, as %s", dtype_name(d->ct));
}

static enum err null_alloc(struct dev *d, int64_t bytes, const char *name, void **out)
{
    struct null_dev *n = d->impl;
    int64_t end;
    if (!num_add(n->next, bytes == 0 ? 1 : bytes, &end) ||
        !num_round_up(end, ARENA_ALIGN, &end))
        FAIL(ERR_MEMORY, "memory: %lld bytes for %s on the null device, after %lld, are beyond 63 "
                         "bits", (long long)bytes, name, (long long)n->next);
    *out = (void *)(uintptr_t)n->next;
    n->next = end;
    return ERR_OK;
}

static void null_free(struct dev *d, void *p)
{
    (void)d;
    (void)p;
}

static enum err null_run(struct dev *d, const struct op *op)
{
    (void)d;
    if (op->kind == OP_D2H && op->d2h.n > 0)
        memset(op->d2h.to, 0, (size_t)op->d2h.n);
    if (op->kind == OP_SNAPSHOT && op->snapshot.n > 0)
        memset(op->snapshot.to, 0, (size_t)op->snapshot.n);
    return ERR_OK;
}

static const struct dev_ops null_ops = {
    .name = "null", .close = null_close, .describe = null_describe, .alloc = null_alloc,
    .free = null_free, .run = null_run, DEV_PLAIN_SLOTS,
};

enum err null_open(const struct dev_args *a, struct dev **out)
{
    struct null_dev *n;
    if (a->ct != DT_F64 && a->ct != DT_F32 && a->ct != DT_BF16)
        FAIL(ERR_CONFIG, "device: null was asked to compute in %s; use f64, f32 or bf16",
             dtype_name(a->ct));
    TRY(mem_new(1, sizeof *n, "the null device", &n));
    n->next = FIRST_ADDRESS;
    n->dev = (struct dev){.ops = &null_ops, .kind = DEV_NULL, .types = dev_types(DEV_NULL, a->ct),
                          .threads = a->threads, .impl = n};
    *out = &n->dev;
    return ERR_OK;
}
