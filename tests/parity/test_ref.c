/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge judged: forward kernels of ref, and the steps that have no forward (cross entropy,
 * AdamW), against PyTorch in f64. tests/oracle/kernels_oracle.py says how inputs and results are
 * made up and prints the table below. Backward kernels are proved in test_gradients.c.
 */
#include "test.h"

#include "base/mem.h"
#include "device/device.h"

static const struct { const char *name; double want; } oracle[] = {
    {"gemm nn", -2.2702014948073281},
    {"gemm nt", 5.2697734505707698},
    {"gemm tn", -7.6227366492424498},
    {"gemm tt", -0.96034503418118722},
    {"gelu", -0.43777279514005119},
    {"dgelu", 0.057021651184904792},
    {"layer norm", -1.4632508884247497},
    {"rms norm", -1.9061656912837093},
    {"attention", -1.1616756887698991},
    {"attention, last queries", -3.910374332821382},
    {"log of the sum", 9.3409420935936538},
    {"rope", -1.6042786175898989},
    {"swiglu", 0.45315147997943062},
    {"cross entropy", 0.65670398913992734},
    {"cross entropy, gradient", -0.74251872528413465},
    {"adamw, three steps", 3.0171118050254906},
};

enum { MOST = 256 };
struct vec { double at[MOST]; };

static struct vec wave(double s)
{
    struct vec x;
    for (int i = 0; i < MOST; i++)
        x.at[i] = sin(0.7 * i + s);
    return x;
}

static void expect(const char *name, const double *x, int n)
{
    double got = 0, want = NAN;
    for (int i = 0; i < n; i++)
        got += x[i] * cos(0.3 * i + 1);
    for (size_t i = 0; i < sizeof oracle / sizeof *oracle; i++)
        if (strcmp(oracle[i].name, name) == 0)
            want = oracle[i].want;
    test_check(fabs(got - want) <= 1e-12, __FILE__, __LINE__, "%s gives %.17g, PyTorch %.17g", name,
               got, want);
}

static struct dev *open_ref(void)
{
    struct dev *d = NULL;
    struct dev_args a = {.kind = DEV_REF, .ct = DT_F64, .threads = 1};
    CHECK_OK(dev_open(&a, &d));
    return d;
}

static void gemm(void)
{
    static const char *const name[] = {"gemm nn", "gemm tn", "gemm nt", "gemm tt"};
    struct dev *d = open_ref();
    struct vec a = wave(1), b = wave(2), c;
    for (int i = 0; i < 4; i++) {
        struct gemm g = {.c = c.at, .a = a.at, .b = b.at, .m = 5, .n = 3, .k = 7,
                         .trans_a = i & 1, .trans_b = i & 2};
        CHECK_OK(dev_gemm(d, &g));
        expect(name[i], c.at, 15);
    }
    dev_close(d);
}

static void gelu(void)
{
    struct dev *d = open_ref();
    struct vec a = wave(1), b = wave(2), bias = wave(3), u = wave(4), v = wave(5), pre, c;
    struct gemm g = {.c = c.at, .a = a.at, .b = b.at, .bias = bias.at, .pre = pre.at, .m = 5,
                     .n = 3, .k = 7, .act = GEMM_GELU};
    CHECK_OK(dev_gemm(d, &g));
    expect("gelu", c.at, 15);
    struct gemm back = {.c = c.at, .a = u.at, .b = v.at, .pre = pre.at, .m = 5, .n = 3, .k = 2,
                        .act = GEMM_DGELU};
    CHECK_OK(dev_gemm(d, &back));
    expect("dgelu", c.at, 15);
    dev_close(d);
}

static void norms(void)
{
    struct dev *d = open_ref();
    struct vec x = wave(1), w = wave(2), b = wave(3), y, mean, rstd;
    struct norm a = {.y = y.at, .mean = mean.at, .rstd = rstd.at, .x = x.at, .w = w.at, .b = b.at,
                     .n = 4, .c = 9, .eps = 1e-5};
    CHECK_OK(dev_norm(d, &a));
    expect("layer norm", y.at, 36);
    a.rms = true;
    a.b = NULL;
    a.mean = NULL;
    CHECK_OK(dev_norm(d, &a));
    expect("rms norm", y.at, 36);
    dev_close(d);
}

static void attention(void)
{
    struct dev *d = open_ref();
    struct vec q = wave(1), k = wave(2), v = wave(3), o, lse;
    struct attn a = {.o = o.at, .lse = lse.at, .q = q.at, .k = k.at, .v = v.at, .b = 2, .tq = 6,
                     .tk = 6, .heads = 4, .kv_heads = 2, .d = 5, .ldq = 20, .ldk = 10, .ldv = 10,
                     .ldo = 20, .scale = 1 / sqrt(5), .heads_total = 4};
    CHECK_OK(dev_attn(d, &a));
    expect("attention", o.at, 240);
    expect("log of the sum", lse.at, 48);
    for (int r = 0; r < 8; r++) /* the last four rows of each sequence move together */
        memmove(q.at + 20 * r, q.at + 20 * (r / 4 * 6 + 2 + r % 4), 20 * sizeof(double));
    a.tq = 4;
    CHECK_OK(dev_attn(d, &a));
    expect("attention, last queries", o.at, 160);
    dev_close(d);
}

static void elementwise(void)
{
    struct dev *d = open_ref();
    struct vec x = wave(1), table, y;
    for (int i = 0; i < 7 * 8; i++) {
        double angle = i / 8 * pow(10000, -(double)(i % 4) / 4);
        table.at[i] = i % 8 < 4 ? cos(angle) : sin(angle);
    }
    struct rope r = {.x = x.at, .table = table.at, .n = 6, .t = 3, .pos0 = 4, .heads = 1, .d = 8,
                     .ld = 8};
    CHECK_OK(dev_rope(d, &r));
    expect("rope", x.at, 48);
    x = wave(1);
    CHECK_OK(dev_swiglu(d, &(struct swiglu){y.at, x.at, 4, 3}));
    expect("swiglu", y.at, 12);
    dev_close(d);
}

/* By the definition, not a number or two at the edges; in place, and of nothing. */
static void relu(void)
{
    enum { N = 9 };
    const double x[N] = {-INFINITY, -2, -0x1p-1074, -0.0, 0, 0x1p-1074, 3, INFINITY, NAN};
    const double dy[N] = {1, NAN, INFINITY, 4, -5, 6, -7, -INFINITY, 9};
    const double y[N] = {0, 0, 0, 0, 0, 0x1p-1074, 3, INFINITY, NAN};
    const double dx[N] = {0, 0, 0, 0, 0, 6, -7, -INFINITY, 9};
    struct dev *d = open_ref();
    for (int in_place = 0; in_place < 2; in_place++) {
        double a[N], b[N], to[2][N] = {{0}};
        memcpy(a, x, sizeof a);
        memcpy(b, dy, sizeof b);
        double *got_y = in_place ? a : to[0], *got_dx = in_place ? b : to[1];
        CHECK_OK(dev_relu(d, &(struct relu){got_y, a, 0}));
        CHECK_OK(dev_relu_grad(d, &(struct relu_grad){got_dx, b, a, 0}));
        CHECK(in_place ? a[1] == -2 && b[8] == 9 : to[0][6] == 0 && to[1][6] == 0);
        CHECK_OK(dev_relu_grad(d, &(struct relu_grad){got_dx, b, a, N}));
        CHECK_OK(dev_relu(d, &(struct relu){got_y, a, N}));
        for (int i = 0; i < N; i++) {
            test_check(got_y[i] == y[i] || (isnan(got_y[i]) && isnan(y[i])), __FILE__, __LINE__,
                       "relu of %g is %g", x[i], got_y[i]);
            test_check(got_dx[i] == dx[i], __FILE__, __LINE__,
                       "the gradient of relu at %g, of %g, is %g", x[i], dy[i], got_dx[i]);
        }
    }
    dev_close(d);
}

static void cross_entropy(void)
{
    static const int32_t target[] = {0, 5, -1, 2};
    struct dev *d = open_ref();
    struct vec logits = wave(1), max, sum, target_logit, loss, grad;
    struct xent x = {.logits = logits.at, .target = target, .n = 4, .v = 6, .ld = 6,
                     .max = max.at, .sum = sum.at, .target_logit = target_logit.at, .loss = loss.at,
                     .dlogits = grad.at};
    CHECK_OK(dev_xent_max(d, &x));
    CHECK_OK(dev_xent_sum(d, &x));
    CHECK_OK(dev_xent_grad(d, &x));
    expect("cross entropy", loss.at, 4);
    expect("cross entropy, gradient", grad.at, 24);
    dev_close(d);
}

/* Once with the weights as their own master, once beside one. */
static void adamw(void)
{
    for (int with_master = 0; with_master < 2; with_master++) {
        struct dev *d = open_ref();
        struct vec w = wave(1), master = wave(1), m = {{0}}, v = {{0}};
        for (int t = 1; t <= 3; t++) {
            struct vec grad = wave(t + 1);
            struct adamw a = {.w = w.at, .master = with_master ? master.at : NULL, .m = m.at,
                              .v = v.at, .grad = grad.at, .n = 8, .beta1 = 0.9, .beta2 = 0.95,
                              .eps = 1e-8, .decay = 0.1, .decays = &(struct dev_ranges){1, {0, 8}},
                              .step_scalars = (double[]){0.01, 1 - pow(0.9, t), 1 - pow(0.95, t),
                                                         0.5}};
            CHECK_OK(dev_adamw(d, &a));
        }
        expect("adamw, three steps", w.at, 8);
        if (with_master)
            expect("adamw, three steps", master.at, 8);
        dev_close(d);
    }
}

static const struct test_case cases[] = {
    {"gemm: transpositions", gemm},
    {"gemm: gelu and its slope", gelu},
    {"norm: both kinds", norms},
    {"attention: groups, causal, fewer queries", attention},
    {"rope and swiglu", elementwise},
    {"relu and its gradient", relu},
    {"cross entropy", cross_entropy},
    {"adamw", adamw},
};
TEST_MAIN(cases)
