/* SPDX-License-Identifier: Apache-2.0
 *
 * The cpu device measured: GEMMs of the shapes of GPT-2 124M (B 4, T 256) against the best
 * large square GEMM of the same type, kernels that stream memory against a measured copy, and
 * attention, of bf16 both on tiles and on vectors where the processor has tiles. Each figure is the
 * best of several runs, because the machine is rarely alone.
 *
 *     bench_cpu [f32|bf16 [threads [ceiling|gemm|attention|streams [own|tiles]]]]
 *
 * Default: both types, 1 and 2 threads, everything, with the GEMMs the device chooses.
 */
#include "base/text.h"
#include "device/cpu/cpu_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS_MIN = 3, ROWS = 1024, VOCAB = 50257, WIDTH = 768, HEADS = 12 };
#define SECONDS_EACH 0.6 /* spent on a figure */

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What is measured: one call of the device with all it needs. */
struct work {
    struct dev *d;
    enum err (*run)(struct work *w);
    struct gemm gemm;
    void *p[6]; /* operands of the others; device memory */
    int64_t n, b; /* elements, or tokens of each of b sequences */
};

static void check(enum err err)
{
    if (err == ERR_OK)
        return;
    fprintf(stderr, "bench_cpu: %s\n", err_text());
    exit((int)err);
}

/* Best seconds of one call: with one thread, of processor time, which other programs disturb less;
 * with more, of the wall clock. */
static double best(struct work *w)
{
    clockid_t clock = w->d->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    double start = seconds(CLOCK_MONOTONIC), least = 1e30;
    for (int i = 0; i < RUNS_MIN || seconds(CLOCK_MONOTONIC) - start < SECONDS_EACH; i++) {
        double t = seconds(clock);
        check(w->run(w));
        t = seconds(clock) - t;
        least = t < least ? t : least;
    }
    return least;
}

static void *vector(struct dev *d, int64_t n, bool at)
{
    void *p;
    enum dtype dt = at ? d->at : d->ct;
    check(d->ops->alloc(d, n * dtype_size(dt), "an operand", &p));
    for (int64_t i = 0; i < n; i++) {
        float x = (float)(i * 7919 % 2003) / 2003.0f - 0.5f;
        if (dt == DT_BF16)
            ((uint16_t *)p)[i] = bf16_from_f32(x);
        else
            ((float *)p)[i] = x;
    }
    return p;
}

static enum err run_gemm(struct work *w)
{
    return dev_gemm(w->d, &w->gemm);
}

/* GFLOP/s of C (m,n) = op(A) (m,k) op(B) (k,n); `g` holds shape and flags. */
static double gemm(struct dev *d, struct gemm g)
{
    struct work w = {.d = d, .run = run_gemm, .gemm = g};
    void *a = vector(d, g.m * g.k, false), *b = vector(d, g.k * g.n, false);
    void *c = vector(d, g.m * g.n, g.c_at), *bias = vector(d, g.n, false);
    void *pre = vector(d, g.m * g.n, false);
    w.gemm.a = a;
    w.gemm.b = b;
    w.gemm.c = c;
    w.gemm.bias = g.act == GEMM_GELU ? bias : NULL;
    w.gemm.pre = pre;
    double s = best(&w);
    void *all[] = {a, b, c, bias, pre};
    for (int i = 0; i < 5; i++)
        d->ops->free(d, all[i]);
    return 2e-9 * (double)g.m * (double)g.n * (double)g.k / s;
}

/* GFLOP/s of the best large square GEMM. */
static double ceiling(struct dev *d)
{
    double top = 0.0;
    for (int64_t n = 1024; n <= 2048; n += 512) {
        double x = gemm(d, (struct gemm){.m = n, .n = n, .k = n});
        top = x > top ? x : top;
    }
    printf("  ceiling: %.1f GFLOP/s, best of square GEMMs 1024, 1536, 2048\n", top);
    return top;
}

static void gemms(struct dev *d)
{
    static const int64_t shape[][2] = {
        {3 * WIDTH, WIDTH}, {WIDTH, WIDTH}, {4 * WIDTH, WIDTH}, {WIDTH, 4 * WIDTH}, {VOCAB, WIDTH},
        {384, 128}, {128, 512}, {1536, 384},
    };
    double top = ceiling(d);
    printf("  %-14s %18s %18s %18s %18s\n", "m 1024, n, k", "forward", "forward + gelu",
           "input gradient", "weight gradient");
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        int64_t n = shape[i][0], k = shape[i][1];
        struct gemm forms[] = {
            {.m = ROWS, .n = n, .k = k, .trans_b = true, .c_at = n == VOCAB},
            {.m = ROWS, .n = n, .k = k, .trans_b = true, .act = GEMM_GELU},
            {.m = ROWS, .n = k, .k = n},
            {.m = n, .n = k, .k = ROWS, .trans_a = true, .c_at = true, .accumulate = true},
        };
        printf("  %6lld %7lld", (long long)n, (long long)k);
        for (int f = 0; f < 4; f++) {
            double x = gemm(d, forms[f]);
            printf(" %10.1f (%3.0f %%)", x, 100.0 * x / top);
        }
        printf("\n");
        fflush(stdout);
    }
}

static enum err run_copy(struct work *w)
{
    return dev_copy(w->d, w->p[0], w->p[1], w->n * dtype_size(w->d->at));
}

static enum err run_adamw(struct work *w)
{
    static const double scalars[SCALAR_COUNT] = {1e-4, 0.1, 0.05, 1e-3};
    const struct dev_ranges all = {1, {0, w->n}};
    struct adamw a = {.w = w->p[0], .master = w->d->ct == DT_F32 ? NULL : w->p[4], .m = w->p[1],
                      .v = w->p[2], .grad = w->p[3], .n = w->n, .beta1 = 0.9,
                      .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .decays = &all,
                      .step_scalars = scalars};
    return dev_adamw(w->d, &a);
}

static enum err run_sumsq(struct work *w)
{
    const struct dev_ranges all = {1, {0, w->n}};
    double sum = 0.0;
    return dev_sumsq(w->d, &(struct sumsq){&sum, w->p[1], &all, dev_ranges_count(&all)});
}

static enum err run_cast(struct work *w)
{
    return dev_cast(w->d, w->p[0], w->p[1], w->n);
}

static enum err run_xent(struct work *w, int step)
{
    struct xent x = {.logits = w->p[1], .target = w->p[5], .n = w->n / VOCAB, .v = VOCAB,
                     .ld = VOCAB, .max = w->p[2], .sum = (float *)w->p[2] + ROWS,
                     .target_logit = (float *)w->p[2] + 2 * ROWS,
                     .loss = (float *)w->p[2] + 3 * ROWS, .dlogits = w->p[0]};
    return step == 0   ? dev_xent_max(w->d, &x)
           : step == 1 ? dev_xent_sum(w->d, &x)
                       : dev_xent_grad(w->d, &x);
}

static enum err run_xent_max(struct work *w)
{
    return run_xent(w, 0);
}

static enum err run_xent_sum(struct work *w)
{
    return run_xent(w, 1);
}

static enum err run_xent_grad(struct work *w)
{
    return run_xent(w, 2);
}

static enum err run_norm(struct work *w)
{
    struct norm a = {.y = w->p[0], .mean = w->p[2], .rstd = (float *)w->p[2] + w->n / WIDTH,
                     .x = w->p[4], .w = w->p[4], .b = w->p[4], .n = w->n / WIDTH, .c = WIDTH,
                     .eps = 1e-5};
    return dev_norm(w->d, &a);
}

static enum err run_norm_grad(struct work *w)
{
    struct norm_grad a = {.dx = w->p[0], .d = w->p[4], .dw = w->p[3], .db = w->p[3], .dy = w->p[4],
                          .x = w->p[4], .w = w->p[4], .mean = w->p[2],
                          .rstd = (float *)w->p[2] + w->n / WIDTH, .n = w->n / WIDTH, .c = WIDTH};
    return dev_norm_grad(w->d, &a);
}

static enum err add_rows(struct work *w, double p)
{
    return dev_residual(
        w->d, &(struct residual){
                  w->p[0], w->p[4], w->p[4], w->p[4], w->n / WIDTH, WIDTH, {.p = p, .seed = 1}});
}

static enum err run_residual(struct work *w)
{
    return add_rows(w, 0.0);
}

static enum err run_drop(struct work *w)
{
    return add_rows(w, 0.1);
}

struct stream {
    const char *name;
    enum err (*run)(struct work *w);
    int64_t n;
    double bytes; /* read and written, an element */
};

/* p[0] and p[4] are ct but large enough for at (copy, the master of adamw); p[1] to p[3] are at;
 * p[5] are targets. */
static void streams(struct dev *d)
{
    double ct = (double)dtype_size(d->ct);
    const struct stream row[] = {
        {"copy", run_copy, 64 * 1000 * 1000, 8},
        {"adamw", run_adamw, 64 * 1000 * 1000, d->ct == DT_F32 ? 28 : 30},
        {"sumsq", run_sumsq, 64 * 1000 * 1000, 4},
        {"cast", run_cast, 64 * 1000 * 1000, 4 + ct},
        {"xent_max", run_xent_max, (int64_t)VOCAB * ROWS, 4},
        {"xent_sum", run_xent_sum, (int64_t)VOCAB * ROWS, 4},
        {"xent_grad", run_xent_grad, (int64_t)VOCAB * ROWS, 4 + ct},
        {"norm", run_norm, ROWS * WIDTH, 2 * ct},
        {"norm_grad", run_norm_grad, ROWS * WIDTH, 6 * ct},
        {"residual", run_residual, ROWS * WIDTH, 3 * ct},
        {"residual, dropout", run_drop, ROWS * WIDTH, 3 * ct},
    };
    struct work w = {.d = d};
    int64_t n = 64 * 1000 * 1000;
    for (int i = 0; i < 5; i++)
        w.p[i] = vector(d, i % 4 ? n : n * 4 / dtype_size(d->ct), i % 4);
    check(d->ops->alloc(d, ROWS * 4, "targets", &w.p[5]));
    memset(w.p[2], 0, (size_t)n * 4);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        w.run = row[i].run;
        w.n = row[i].n;
        double s = best(&w);
        printf("  %-18s %8.2f ms %8.1f GB/s %8.3f ns/element\n", row[i].name, 1e3 * s,
               1e-9 * row[i].bytes * (double)w.n / s, 1e9 * s / (double)w.n);
        fflush(stdout);
    }
    for (int i = 0; i < 6; i++)
        d->ops->free(d, w.p[i]);
}

static struct attn attention(const struct work *w)
{
    int64_t t = w->n, d = WIDTH / HEADS;
    return (struct attn){.o = w->p[1], .lse = w->p[2], .q = w->p[0],
                         .k = (char *)w->p[0] + WIDTH * dtype_size(w->d->ct),
                         .v = (char *)w->p[0] + 2 * WIDTH * dtype_size(w->d->ct), .b = w->b,
                         .tq = t, .tk = t, .heads = HEADS, .kv_heads = HEADS, .d = d,
                         .ldq = 3 * WIDTH, .ldk = 3 * WIDTH, .ldv = 3 * WIDTH, .ldo = WIDTH,
                         .scale = 0.125, .heads_total = HEADS};
}

static enum err run_attn(struct work *w)
{
    struct attn a = attention(w);
    return dev_attn(w->d, &a);
}

static enum err run_attn_grad(struct work *w)
{
    int64_t size = dtype_size(w->d->ct);
    struct attn_grad g = {.f = attention(w), .do_ = w->p[4], .dq = w->p[3],
                          .dk = (char *)w->p[3] + WIDTH * size,
                          .dv = (char *)w->p[3] + 2 * WIDTH * size, .delta = w->p[5]};
    return dev_attn_grad(w->d, &g);
}

/* One line: forward and backward of b sequences of t tokens. Causal: (t + 1) / 2 keys a query; two
 * GEMMs forward, five backward. */
static void attention_of(struct dev *d, const char *by, int64_t b, int64_t t)
{
    struct work w = {.d = d, .run = run_attn, .n = t, .b = b};
    double unit = 1e-9 * (double)(b * t) * WIDTH * (double)(t + 1);
    for (int j = 0; j < 5; j++)
        w.p[j] = vector(d, b * t * 3 * WIDTH, j == 2);
    w.p[5] = vector(d, b * t * HEADS, true);
    double forward = best(&w);
    w.run = run_attn_grad;
    double backward = best(&w);
    printf("  attention B %lld T %-5lld %-8s forward %7.3f ms %7.1f GFLOP/s, backward %7.3f ms "
           "%7.1f GFLOP/s\n", (long long)b, (long long)t, by, 1e3 * forward, 2 * unit / forward,
           1e3 * backward, 5 * unit / backward);
    fflush(stdout);
    for (int j = 0; j < 6; j++)
        d->ops->free(d, w.p[j]);
}

/* As asked; where that is the device's choice, on vectors and, if there are any, tiles in turn. */
static void attentions(struct dev *d, const char *asked)
{
    static const int64_t lengths[] = {256, 1024};
    bool *tiles = &cpu_of(d)->tiles, has = *tiles;
    for (int64_t b = 1; b <= 4; b *= 2) {
        for (int i = 0; i < 4; i++) {
            *tiles = asked ? has : i % 2;
            if (asked ? i % 2 == 0 : has || i % 2 == 0)
                attention_of(d, *tiles ? "tiles" : "vectors", b, lengths[i / 2]);
        }
    }
    *tiles = has;
}

/* words: what is measured and whose GEMMs; NULL: all, the device's choice. */
static void measure(enum dtype ct, int threads, char *const words[2])
{
    const char *part = words[0];
    const char *asked = part ? words[1] : NULL;
    struct dev *d;
    char text[256];
    struct dev_args args = {.kind = DEV_CPU, .ct = ct, .threads = threads};
    check(cpu_open(&args, &d));
    if (asked && strcmp(asked, "own") == 0)
        cpu_of(d)->tiles = false;
    if (asked && strcmp(asked, "tiles") == 0 && !cpu_of(d)->tiles) {
        fprintf(stderr, "bench_cpu: no amx tiles for %s here\n", dtype_name(ct));
        exit(1);
    }
    d->ops->describe(d, text, sizeof text);
    printf("%s\n", text);
    if (part && strcmp(part, "ceiling") == 0)
        ceiling(d);
    if (!part || strcmp(part, "gemm") == 0 || strcmp(part, "products") == 0)
        gemms(d);
    if (!part || strcmp(part, "attention") == 0)
        attentions(d, asked);
    if (!part || strcmp(part, "streams") == 0)
        streams(d);
    dev_close(d);
}

int main(int argc, char **argv)
{
    for (int i = 0; i < 2; i++) {
        enum dtype ct = i ? DT_BF16 : DT_F32;
        if (argc > 1 && strcmp(argv[1], dtype_name(ct)) != 0)
            continue;
        int64_t threads;
        if (argc > 2 && text_to_int(argv[2], &threads)) {
            char *words[2] = {argc > 3 ? argv[3] : NULL, argc > 4 ? argv[4] : NULL};
            measure(ct, (int)threads, words);
            continue;
        }
        measure(ct, 1, (char *[2]){NULL});
        measure(ct, 2, (char *[2]){NULL});
    }
    return 0;
}
