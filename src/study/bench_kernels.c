/* SPDX-License-Identifier: Apache-2.0
 *
 * Time of single calls on a device, and its two ceilings.
 *
 * Calls are timed in batches that take a few milliseconds, with the device waited for before and
 * behind each batch, because an async device takes a call in microseconds and works on it
 * later; the figure is the median of several batches after a warm-up. A call whose operands would
 * stay in the caches from one time to the next has several sets of them, taken in turn, for in
 * training they come from memory.
 */
#include "study/bench.h"

#include "base/log.h"
#include <stdlib.h>

enum { SETS = 8, BATCHES = 9, CALLS_MAX = 1000 };
#define COLD_BYTES (256.0 * (1 << 20)) /* more than caches hold */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *t, int n)
{
    qsort(t, (size_t)n, sizeof *t, compare);
    return t[n / 2];
}

/* Seconds of n calls, sets in turn. */
static enum err batch(struct calls_work *set, int sets, int n, double *out)
{
    struct dev *d = set->dev;
    TRY(d->ops->sync(d));
    double begin = log_now();
    for (int i = 0; i < n; i++)
        TRY(dev_run(d, &set[i % sets].op));
    TRY(d->ops->sync(d));
    *out = log_now() - begin;
    return ERR_OK;
}

/* Median seconds of a call within the budget: at least one batch, at most BATCHES. */
static enum err time_sets(const struct bench *b, struct calls_work *set, int sets, double *out)
{
    double t[BATCHES], one, begin;
    int n, done = 0;
    TRY(batch(set, sets, sets, &one)); /* warm-up, each set once */
    begin = log_now();
    TRY(batch(set, sets, 1, &one));
    n = (int)num_min(CALLS_MAX, 1 + (int64_t)(bench_budget(b) / BATCHES / (one + 1e-9)));
    do {
        TRY(batch(set, sets, n, &t[done]));
        t[done++] /= n;
    } while (done < BATCHES && log_now() - begin < bench_budget(b));
    *out = bench_median(t, done);
    return ERR_OK;
}

/* Median seconds of a call as it stands in the step. */
static enum err time_call(const struct bench *b, struct dev *d, const struct op *op, double *out)
{
    struct calls_work set[SETS];
    int sets = 0, want = 1;
    enum err err = ERR_OK;
    while (err == ERR_OK && sets < want) {
        err = calls_open(d, op, &set[sets]);
        if (err != ERR_OK)
            break;
        want = (int)num_min(SETS, 1 + (int64_t)(COLD_BYTES / ((double)set[0].bytes + 1)));
        sets++;
    }
    if (err == ERR_OK)
        err = time_sets(b, set, sets, out);
    for (int i = 0; i < sets; i++)
        calls_close(&set[i]);
    TRY(err);
    *out /= calls_part(op);
    return ERR_OK;
}

enum err bench_ceilings(struct bench *b, struct dev *d)
{
    struct op copy = {.kind = OP_COPY, .copy = {CALLS_THERE, CALLS_THERE, CALLS_FLAT_MAX}};
    double s;
    for (int64_t n = 512; n <= 8192; n *= 2) { /* while one takes less than the budget */
        struct op op = {.kind = OP_GEMM, .gemm = {.m = n, .n = n, .k = n, .trans_b = true,
                                                  .c = CALLS_THERE, .a = CALLS_THERE,
                                                  .b = CALLS_THERE}};
        double flops = 2.0 * (double)n * (double)n * (double)n;
        TRY(time_call(b, d, &op, &s));
        if (flops / s > b->gemm) {
            b->gemm = flops / s;
            b->gemm_side = n;
        }
        if (8 * s > 4 * bench_budget(b))
            break;
    }
    b->copy_bytes = CALLS_FLAT_MAX;
    TRY(time_call(b, d, &copy, &s));
    b->copy = 2.0 * (double)CALLS_FLAT_MAX / s;
    bench_say(b, "device    %s", b->device);
    bench_say(b, "GEMMs     %.2f TFLOP/s, %lld cubed, %s", b->gemm * 1e-12,
              (long long)b->gemm_side, dtype_name(d->ct));
    bench_say(b, "copy      %.1f GB/s, read and written, %lld MiB", b->copy * 1e-9,
              (long long)(b->copy_bytes >> 20));
    return ERR_OK;
}

enum err bench_kernels(struct bench *b, struct dev *d)
{
    char name[128];
    bench_say(b, "\n%-64s %6s %10s %9s %9s %8s", "call", "times", "us", "TFLOP/s", "GB/s",
              "ceiling");
    for (int i = 0; i < b->calls; i++) {
        struct bench_call *k = &b->call[i];
        TRY(time_call(b, d, &k->call.op, &k->seconds));
        op_describe(&k->call.op, name, sizeof name);
        bench_say(b, "%-64s %6lld %10.1f %9.2f %9.1f %6.1f %%", name, (long long)k->call.count,
                  k->seconds * 1e6, k->call.flops / k->seconds * 1e-12,
                  k->call.bytes / k->seconds * 1e-9,
                  100 * bench_floor(b, &k->call) / k->seconds);
    }
    return ERR_OK;
}
