/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention's gradient on a GPU, by each way that the device has (dev_args.attn_grad): how far from
 * double precision on the first and the last head, whether a second run gives the same bits, and
 * how long. Rows of q, k and v lie side by side, as a fused projection leaves them.
 *
 *     bench_attn [B T HEADS [WAY]]
 *
 * Default: shapes of GPT-2 124M and 1.5B and small ones with ragged ends, all ways; on a machine
 * without a GPU nothing.
 */
#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "device/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64, RUNS = 20, ROUNDS = 5 };

/* A problem on the device and on the host. */
struct work {
    struct dev *d;
    int64_t b, t, heads, ld;
    uint16_t *qkv, *o, *do_, *dqkv, *again; /* host, owned */
    void *on_qkv, *on_o, *on_do, *on_d, *lse, *delta; /* device, owned */
};

static void check(enum err err)
{
    if (err == ERR_OK)
        return;
    fprintf(stderr, "bench_attn: %s\n", err_text());
    exit((int)err);
}

static uint16_t *host(int64_t n)
{
    uint16_t *x;
    check(mem_new(n, sizeof *x, "host values", &x));
    return x;
}

/* Sums of four uniform numbers: near enough to normal, of variance 1. */
static uint16_t *random_on(struct dev *d, int64_t n, uint64_t seed, void **on)
{
    uint16_t *x = host(n);
    uint64_t s = seed * 0x9e3779b97f4a7c15u + 1;
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int j = 0; j < 4; j++) {
            s = s * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(s >> 40) / 16777216.0f - 0.5f;
        }
        x[i] = bf16_from_f32(sum * 1.7320508f);
    }
    check(d->ops->alloc(d, n * 2, "an operand", on));
    check(dev_h2d(d, *on, x, n * 2));
    return x;
}

static struct attn attention(const struct work *w)
{
    char *q = w->on_qkv;
    return (struct attn){.o = w->on_o, .lse = w->lse, .q = q, .k = q + w->heads * D * 2,
                         .v = q + 2 * w->heads * D * 2, .b = w->b, .tq = w->t, .tk = w->t,
                         .heads = w->heads, .kv_heads = w->heads, .d = D, .ldq = w->ld,
                         .ldk = w->ld, .ldv = w->ld, .ldo = w->heads * D, .scale = 0.125,
                         .heads_total = w->heads};
}

static void run(const struct work *w)
{
    char *dq = w->on_d;
    struct attn_grad g = {.f = attention(w), .do_ = w->on_do, .dq = dq,
                          .dk = dq + w->heads * D * 2, .dv = dq + 2 * w->heads * D * 2,
                          .delta = w->delta};
    check(dev_attn_grad(w->d, &g));
}

/* Results over what was there before, NaN of all bits. */
static void results(const struct work *w, uint16_t *to)
{
    int64_t bytes = w->b * w->t * w->ld * 2;
    memset(to, 0xff, (size_t)bytes);
    check(dev_h2d(w->d, w->on_d, to, bytes));
    run(w);
    check(dev_d2h(w->d, to, w->on_d, bytes));
    check(w->d->ops->sync(w->d));
}

/* One head in double: x[3] of q k v, g[3] of their gradients, (t, 64) each. */
static void reference(int64_t t, double *const x[3], const double *d_out, double *const g[3])
{
    double *p, *dp;
    check(mem_new(t, sizeof *p, "a row", &p));
    check(mem_new(t, sizeof *dp, "a row", &dp));
    for (int64_t i = 0; i < t; i++) {
        double sum = 0, delta = 0;
        for (int64_t j = 0; j <= i; j++) {
            double s = 0;
            dp[j] = 0;
            for (int c = 0; c < D; c++) {
                s += x[0][i * D + c] * x[1][j * D + c];
                dp[j] += d_out[i * D + c] * x[2][j * D + c];
            }
            p[j] = exp(s * 0.125);
            sum += p[j];
        }
        for (int64_t j = 0; j <= i; j++) {
            p[j] /= sum;
            delta += p[j] * dp[j];
        }
        for (int64_t j = 0; j <= i; j++) {
            double ds = 0.125 * p[j] * (dp[j] - delta);
            for (int c = 0; c < D; c++) {
                g[0][i * D + c] += ds * x[1][j * D + c];
                g[1][j * D + c] += ds * x[0][i * D + c];
                g[2][j * D + c] += p[j] * d_out[i * D + c];
            }
        }
    }
    mem_free(p);
    mem_free(dp);
}

/* |got - want| / |want| of dq, dk and dv of one head. NaN where a result was not written. */
static void errors(const struct work *w, int64_t seq, int64_t head, double out[3])
{
    double *x[3], *g[3], *d_out;
    int64_t n = w->t * D, first = seq * w->t, width = w->heads * D;
    check(mem_new(n, sizeof *d_out, "a head", &d_out));
    for (int m = 0; m < 3; m++) {
        check(mem_new(n, sizeof *x[m], "a head", &x[m]));
        check(mem_new(n, sizeof *g[m], "a head", &g[m]));
        for (int64_t i = 0; i < n; i++)
            x[m][i] = bf16_to_f32(
                w->qkv[(first + i / D) * w->ld + m * width + head * D + i % D]);
    }
    for (int64_t i = 0; i < n; i++)
        d_out[i] = bf16_to_f32(w->do_[(first + i / D) * width + head * D + i % D]);
    reference(w->t, x, d_out, g);
    for (int m = 0; m < 3; m++) {
        double off = 0, all = 0;
        for (int64_t i = 0; i < n; i++) {
            double got = bf16_to_f32(
                w->dqkv[(first + i / D) * w->ld + m * width + head * D + i % D]);
            off += (got - g[m][i]) * (got - g[m][i]);
            all += g[m][i] * g[m][i];
        }
        out[m] = sqrt(off / all);
        mem_free(x[m]);
        mem_free(g[m]);
    }
    mem_free(d_out);
}

/* Best of ROUNDS: milliseconds of a call among RUNS. */
static double measure(const struct work *w)
{
    double least = INFINITY;
    for (int i = 0; i < ROUNDS; i++) {
        double start = log_now();
        for (int j = 0; j < RUNS; j++)
            run(w);
        check(w->d->ops->sync(w->d));
        least = fmin(least, 1e3 * (log_now() - start) / RUNS);
    }
    return least;
}

/* In the order of enum dev_attn_grad. */
static const char *const ways[] = {"auto", "hopper", "cudnn", "own"};

static enum dev_attn_grad way_of(const char *name)
{
    for (int i = 0; i < 4; i++)
        if (strcmp(ways[i], name) == 0)
            return (enum dev_attn_grad)i;
    printf("bench_attn: %s is no way; use auto, hopper, cudnn or own\n", name);
    exit(1);
}

static void open_work(struct work *w, const char *way)
{
    int64_t rows = w->b * w->t;
    struct attn a = {.b = w->b, .tq = w->t, .tk = w->t, .heads = w->heads, .kv_heads = w->heads,
                     .d = D};
    struct dev_args args = {.kind = DEV_CUDA, .ct = DT_BF16, .threads = 1, .largest = &a,
                            .attn_grad = way_of(way)};
    check(dev_open(&args, &w->d));
    w->ld = 3 * w->heads * D;
    w->qkv = random_on(w->d, rows * w->ld, 1, &w->on_qkv);
    w->do_ = random_on(w->d, rows * w->heads * D, 2, &w->on_do);
    w->dqkv = host(rows * w->ld);
    w->again = host(rows * w->ld);
    check(w->d->ops->alloc(w->d, rows * w->heads * D * 2, "o", &w->on_o));
    check(w->d->ops->alloc(w->d, rows * w->ld * 2, "gradients", &w->on_d));
    check(w->d->ops->alloc(w->d, rows * w->heads * 4, "lse", &w->lse));
    check(w->d->ops->alloc(w->d, rows * w->heads * 4, "delta", &w->delta));
}

static void close_work(struct work *w)
{
    void *const on[] = {w->on_qkv, w->on_do, w->on_o, w->on_d, w->lse, w->delta};
    for (size_t i = 0; i < sizeof on / sizeof *on; i++)
        w->d->ops->free(w->d, on[i]);
    mem_free(w->qkv);
    mem_free(w->do_);
    mem_free(w->dqkv);
    mem_free(w->again);
    dev_close(w->d);
}

static void row(int64_t b, int64_t t, int64_t heads, const char *way)
{
    struct work w = {.b = b, .t = t, .heads = heads};
    double first[3], last[3];
    open_work(&w, way);
    struct attn a = attention(&w);
    check(dev_attn(w.d, &a));
    results(&w, w.dqkv);
    results(&w, w.again);
    bool same = memcmp(w.dqkv, w.again, (size_t)(b * t * w.ld * 2)) == 0;
    errors(&w, 0, 0, first);
    errors(&w, b - 1, heads - 1, last);
    double ms = measure(&w), flops = 5.0 * (double)(b * heads * t) * (double)(t + 1) * D;
    printf("%4lld x %5lld, %3lld heads, %-6s  %8.4f ms %6.1f TFLOP/s  %s bits  errors "
           "%.1e %.1e %.1e, last head %.1e %.1e %.1e\n", (long long)b, (long long)t,
           (long long)heads, way, ms, 1e-9 * flops / ms, same ? "same" : "other", first[0],
           first[1], first[2], last[0], last[1], last[2]);
    fflush(stdout);
    close_work(&w);
}

int main(int argc, char **argv)
{
    static const int64_t shapes[][3] = {{1, 128, 1}, {1, 256, 1}, {3, 200, 2}, {2, 1000, 3},
                                        {8, 384, 17}, {64, 1024, 12}, {16, 1024, 25},
                                        {4, 2048, 32}, {2, 4096, 32}};
    struct dev_args args = {.kind = DEV_CUDA, .ct = DT_BF16, .threads = 1};
    struct dev *d = NULL;
    if (argc == 1 && dev_open(&args, &d) != ERR_OK) {
        printf("bench_attn: nothing to measure: %s\n", err_text());
        return 0;
    }
    dev_close(d);
    if (argc > 3) {
        for (int i = 0; i < (argc > 4 ? 1 : 3); i++)
            row(atoll(argv[1]), atoll(argv[2]), atoll(argv[3]), argc > 4 ? argv[4] : ways[1 + i]);
        return 0;
    }
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int i = 0; i < 3; i++)
            row(shapes[s][0], shapes[s][1], shapes[s][2], ways[1 + i]);
    return 0;
}
