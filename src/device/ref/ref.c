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
#include "device/op_plain.h"
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

static enum err ref_sync(struct dev *d)
{
    (void)d;
    return ERR_OK;
}

static enum err ref_run(struct dev *d, const struct op *op)
{
    switch (op->kind) {
#define REF_CASE(kind, member, type, call, ref) case kind: return ref(d, &op->member);
        OP_KERNELS(REF_CASE)
        OP_FLAT_KERNELS(REF_CASE)
#undef REF_CASE
    default: return op_plain(d, op);
    }
}

static const struct dev_ops ref_ops = {
    .name = "ref",
    .close = ref_close,
    .describe = ref_describe,
    .alloc = ref_alloc,
    .free = ref_free,
    .host_alloc = dev_plain_host_alloc,
    .host_free = dev_plain_host_free,
    .sync = ref_sync,
    .snapshot_ready = dev_plain_event,
    .snapshot_join = dev_plain_event,
    .snapshot_synchronize = dev_plain_snapshot_synchronize,
    .event_record = dev_plain_event,
    .event_synchronize = dev_plain_event,
    .timer_alloc = dev_plain_timer_alloc,
    .timer_record = dev_plain_timer_record,
    .timer_read = dev_plain_timer_read,
    .stream = dev_plain_stream,
    .mem_info = dev_plain_mem_info,
    .run = ref_run,
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
