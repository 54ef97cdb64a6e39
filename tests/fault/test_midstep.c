/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that fails at the k-th call of one of its functions on one rank, amid a step: the run
 * ends at once with that rank's error, whatever its peers wait for, and amid a list the error
 * names the instruction. Under AddressSanitizer this also shows that nothing is lost and that no
 * peer touches what is given back.
 */
#include "layout.h"
#include "test.h"

#include <time.h>

/* What fails; set before a run, read by its ranks. */
static struct { int rank, call; } fault;
static const struct dev_ops *real;
static struct dev_ops failing;
static _Thread_local bool here;
static _Thread_local int calls;

static enum err count(void)
{
    if (here && ++calls == fault.call)
        FAIL(ERR_STORAGE, "call %d of the device fails", calls);
    return ERR_OK;
}

/* Operations of every kind of instruction. */
static enum err run_op(struct dev *d, const struct op *op)
{
    static const bool counts[OPS] = {[OP_GEMM] = true, [OP_NORM] = true, [OP_NORM_GRAD] = true,
                                     [OP_ADAMW] = true, [OP_SUMSQ] = true, [OP_ZERO] = true};
    if (counts[op->kind])
        TRY(count());
    return real->run(d, op);
}

static enum err sync(struct dev *d)
{
    TRY(count());
    return real->sync(d);
}

static void opened(struct dev *d, int rank)
{
    here = rank == fault.rank;
    calls = 0;
    d->ops = &failing;
}

static struct layout layout_of(const char *text, int v)
{
    struct model a = {.kind = MODEL_GPT, .layers = 4, .hidden = 16, .heads = 2, .kv_heads = 2,
                      .head_dim = 8, .ffn = 16, .vocab = 17, .seq = 4, .tied = true, .dropout = 0.1,
                      .norm_eps = 1e-5, .rope_theta = 10000, .init_std = 0.1};
    return (struct layout){.model = a, .tp = 2, .pp = 2, .dp = 2, .sp = true, .v = v, .text = text,
                           .schedule = "1f1b", .batch = 6, .microbatch = 1, .dev = DEV_REF,
                           .ct = DT_F64, .steps = 2, .clip = 1, .opened = opened};
}

/* Fail each rank at calls 1, 1 + stride, ... until a run ends well. */
static void fail_everywhere(const struct layout *l, int stride)
{
    for (fault.rank = 0; fault.rank < 8; fault.rank++) {
        enum err err = ERR_STORAGE;
        int failed = 0, named = 0;
        for (fault.call = 1; err == ERR_STORAGE; fault.call += stride, failed++) {
            struct layout_result r;
            struct timespec from, to;
            char who[32];
            snprintf(who, sizeof who, "rank %d: call ", fault.rank);
            clock_gettime(CLOCK_MONOTONIC, &from);
            err = layout_run(l, &r);
            clock_gettime(CLOCK_MONOTONIC, &to);
            named += err == ERR_STORAGE && strstr(err_text(), " (at ") != NULL;
            layout_result_free(&r);
            test_check(err == ERR_OK || (err == ERR_STORAGE && strstr(err_text(), who)), __FILE__,
                       __LINE__, "rank %d, call %d: %d: %s", fault.rank, fault.call, (int)err,
                       err_text());
            test_check(to.tv_sec - from.tv_sec < 10, __FILE__, __LINE__, "rank %d, call %d: %lld s",
                       fault.rank, fault.call, (long long)(to.tv_sec - from.tv_sec));
        }
        CHECK(err == ERR_OK && named > failed / 2 && named > 5);
    }
}

static void devices_fail(void)
{
    /* p 2, m 3, V, backward whole and split */
    static const char list[] =
        "0F0,0F1,3F0,3B0,0F2,3F1,3I1,0B0,3W1,3F2,3B2,0I1,0W1,0B2\n"
        "1F0,2F0,1F1,2F1,2I0,1I0,1F2,2F2,2B1,1B1,2W0,1W0,2B2,1B2\n";
    struct layout l = layout_of(NULL, 1);
    struct dev *d;
    CHECK_OK(dev_open(&(struct dev_args){.kind = DEV_REF, .ct = DT_F64, .threads = 1}, &d));
    real = d->ops;
    failing = *real;
    failing.run = run_op;
    failing.sync = sync;
    fail_everywhere(&l, 23);
    l = layout_of(list, 2);
    fail_everywhere(&l, 29);
    l.zero = 1; /* peers gather weights when one that updates fails */
    fail_everywhere(&l, 29);
    dev_close(d);
}

static const struct test_case cases[] = {{"devices_fail", devices_fail}};
TEST_MAIN(cases)
