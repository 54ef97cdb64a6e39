/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference device: every number a double, every kernel the formula of its definition in
 * plain loops on one thread (ref_ops.c). It is the judge of the other devices and of the
 * distributed engine: in double, a difference above about 1e-12 between two layouts is a mistake
 * and not rounding.
 */
#include "device/ref/ref.h"

#include "base/mem.h"
#include "device/plain.h"
#include <stdio.h>

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

static enum err ref_run(struct dev *d, const struct op *op)
{
    switch (op->kind) {
#define REF_SCRATCH(kind, member, type, call, ref) case kind: return ref(d, &op->member);
#define REF_CASE(kind, member, type, call, ref) \
    case kind:                                  \
        ref(&op->member);                       \
        return ERR_OK;
        OP_MATRIX_KERNELS(REF_SCRATCH)
        OP_ROW_KERNELS(REF_CASE)
        OP_FLAT_KERNELS(REF_CASE)
#undef REF_CASE
#undef REF_SCRATCH
    default:
        return dev_plain_run(d, op);
    }
}

static const struct dev_ops ref_ops = {
    .name = "ref", .close = ref_close, .describe = ref_describe, .alloc = dev_plain_alloc,
    .free = dev_plain_free, .run = ref_run, DEV_PLAIN_SLOTS,
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
