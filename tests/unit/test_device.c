/* SPDX-License-Identifier: Apache-2.0
 *
 * The register of devices and their tables, who stands around their operations, the null device,
 * and the FLOPs and bytes of operations, which are formulas.
 */
#include "test.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "device/plain.h"
#include "device/profile.h"
#include <stdlib.h>
#include <time.h>

static struct dev *open_null(enum dtype ct)
{
    struct dev *d = NULL;
    struct dev_args a = {.kind = DEV_NULL, .ct = ct, .threads = 1};
    CHECK_OK(dev_open(&a, &d));
    return d;
}

static void kinds_say_what_they_are(void)
{
    char text[200];
    for (int k = DEV_REF; k <= DEV_CUDA; k++) {
        static const char *const name[] = {"ref", "null", "cpu", "cuda"};
        dev_describe_kind((enum dev_kind)k, text, sizeof text);
        CHECK(strncmp(text, name[k], strlen(name[k])) == 0 && text[strlen(name[k])] == ':');
        bool absent = strncmp(text + strlen(name[k]), ": not built in", 14) == 0;
        CHECK(dev_built((enum dev_kind)k) == !absent);
    }
    CHECK(dev_built(DEV_REF) && dev_built(DEV_NULL));
    dev_describe_kind(DEV_REF, text, 4);
    CHECK_STR(text, "ref");
}

static void wrong_requests_are_refused(void)
{
    struct dev *d = NULL;
    struct dev_args type = {.kind = DEV_REF, .ct = DT_BF16, .threads = 1};
    struct dev_args integer = {.kind = DEV_NULL, .ct = DT_I32, .threads = 1};
    struct dev_args threads = {.kind = DEV_REF, .ct = DT_F64};
    CHECK_ERR(dev_open(&type, &d), ERR_CONFIG, "asked for bf16; use f64");
    CHECK_ERR(dev_open(&integer, &d), ERR_CONFIG, "asked to compute in i32; use f64, f32 or bf16");
    CHECK_ERR(dev_open(&threads, &d), ERR_CONFIG, "0 threads; use 1 to 1024");
    if (!dev_built(DEV_CUDA)) {
        struct dev_args cuda = {.kind = DEV_CUDA, .ct = DT_BF16, .threads = 1};
        CHECK_ERR(dev_open(&cuda, &d), ERR_CONFIG, "cuda is not built into this program; use ref");
    }
    CHECK(d == NULL);
    dev_close(NULL);
}

static void devices_have_their_types(void)
{
    struct dev *d = NULL;
    struct dev_args a = {.kind = DEV_REF, .ct = DT_F64, .threads = 4};
    CHECK_OK(dev_open(&a, &d));
    CHECK(d->ct == DT_F64 && d->at == DT_F64 && d->kind == DEV_REF && d->threads == 1);
    dev_close(d);
    static const enum dtype at[] = {[DT_F64] = DT_F64, [DT_F32] = DT_F32, [DT_BF16] = DT_F32};
    for (int ct = DT_F64; ct <= DT_BF16; ct++) {
        d = open_null((enum dtype)ct);
        CHECK(d->ct == (enum dtype)ct && d->at == at[ct] && d->kind == DEV_NULL);
        dev_close(d);
    }
}

/* ---- tables: slots are counted from 0, in the order of struct dev_ops ---- */

/* The slots of graphs. */
static bool of_graphs(size_t at)
{
    return at == offsetof(struct dev_ops, graph_begin) ||
           at == offsetof(struct dev_ops, graph_end) ||
           at == offsetof(struct dev_ops, graph_launch) ||
           at == offsetof(struct dev_ops, graph_destroy);
}

/* The slots of a device that chooses by measuring. */
static bool choosing(size_t at)
{
    return at == offsetof(struct dev_ops, choices) || at == offsetof(struct dev_ops, choose);
}

/* One of the slots that a device may lack? */
static bool optional(size_t at)
{
    return of_graphs(at) || choosing(at);
}

static bool fills(const struct dev_ops *ops, size_t at)
{
    void *slot;
    memcpy(&slot, (const unsigned char *)ops + at, sizeof slot);
    return slot != NULL;
}

/* Required slots are filled, optional ones of a kind all or none. */
static void check_table(const struct dev_ops *ops)
{
    for (size_t at = 0; at < sizeof *ops; at += sizeof(void *)) {
        bool needed =
            !optional(at) || (choosing(at) ? ops->choices != NULL : ops->graph_begin != NULL);
        test_check(fills(ops, at) == needed, __FILE__, __LINE__, "slot %zu of %s is %s",
                   at / sizeof(void *), ops->name, needed ? "empty" : "filled alone");
    }
}

static void check_device(enum dev_kind kind, enum dtype ct)
{
    struct dev *d = NULL;
    struct dev_args a = {.kind = kind, .ct = ct, .threads = 1};
    enum err err = dev_open(&a, &d);
    if (err == ERR_CONFIG && kind == DEV_CUDA) { /* not built in, or no GPU here */
        test_skip(err_text());
        return;
    }
    if (!test_check(err == ERR_OK, __FILE__, __LINE__, "device %d: %s", (int)kind, err_text()))
        return;
    check_table(d->ops);
    dev_close(d);
}

/* Every slot of the table is filled. */
static void tables_are_full(void)
{
    check_device(DEV_REF, DT_F64);
    check_device(DEV_NULL, DT_F32);
    check_device(DEV_CPU, DT_F32);
}

static void a_gpus_table_is_full(void)
{
    check_device(DEV_CUDA, DT_F32);
}

struct passed { struct dev_hook hook; char name; };
static char order[16];
static int passed;

static enum err passes(struct dev_hook *h, struct dev *d, const struct op *op)
{
    char name = ((struct passed *)h)->name;
    order[passed++] = name;
    enum err err = dev_next(h->next, d, op);
    order[passed++] = name;
    return err;
}

/* From the last one put there to the first, and back; one that is taken away is passed by. */
static void hooks_stand_around_each_other(void)
{
    struct dev *d = open_null(DT_F32);
    struct passed of[] = {{{passes, NULL}, 'a'}, {{passes, NULL}, 'b'}, {{passes, NULL}, 'c'}};
    int x;
    for (int i = 0; i < 3; i++)
        dev_hook_put(d, &of[i].hook);
    CHECK_OK(dev_zero(d, &x, sizeof x));
    CHECK_STR(order, "cbaabc");
    dev_hook_take(d, &of[1].hook);
    dev_hook_take(d, &of[1].hook); /* is not there */
    memset(order, 0, sizeof order);
    passed = 0;
    CHECK_OK(dev_zero(d, &x, sizeof x));
    CHECK_STR(order, "caac");
    dev_hook_take(d, &of[2].hook);
    dev_hook_take(d, &of[0].hook);
    CHECK(d->hook == NULL);
    dev_close(d);
}

/* An operation that a device has no way for, and nobody else has. */
static enum err no_norm(struct dev *d, const struct op *op)
{
    return op->kind == OP_NORM ? dev_plain_run(d, op) : ERR_OK;
}

static void what_no_device_has_is_refused(void)
{
    struct dev *d = open_null(DT_F32);
    const struct dev_ops *real = d->ops;
    struct dev_ops ops = *real;
    ops.run = no_norm;
    d->ops = &ops;
    CHECK_ERR(dev_norm(d, &(struct norm){.n = 1}), ERR_CONFIG, "device: null has no norm");
    d->ops = real;
    dev_close(d);
}

static void null_memory_has_no_limit(void)
{
    struct dev *d = open_null(DT_BF16);
    void *a = NULL, *b = NULL, *c = NULL;
    CHECK_OK(d->ops->alloc(d, 0, "nothing", &a));
    CHECK_OK(d->ops->alloc(d, (int64_t)1 << 50, "a petabyte", &b));
    CHECK_OK(d->ops->alloc(d, 1, "a byte", &c));
    CHECK(a != NULL && b != a);
    CHECK_INT((uintptr_t)b % ARENA_ALIGN, 0);
    CHECK_INT((uintptr_t)c - (uintptr_t)b, (int64_t)1 << 50);
    void *kept = c;
    CHECK_ERR(d->ops->alloc(d, INT64_MAX - 100, "too much", &c), ERR_MEMORY, "too much");
    CHECK_ERR(d->ops->alloc(d, -1, "too little", &c), ERR_MEMORY, "too little");
    CHECK(c == kept);
    d->ops->free(d, a);
    dev_close(d);
}

static void null_gives_zeros(void)
{
    struct dev *d = open_null(DT_F32);
    float x[3] = {1, 2, 3};
    void *p = NULL;
    CHECK_OK(d->ops->alloc(d, sizeof x, "x", &p));
    CHECK_OK(dev_h2d(d, p, x, sizeof x));
    CHECK_OK(dev_d2h(d, x, p, 2 * sizeof *x));
    CHECK(x[0] == 0 && x[1] == 0 && x[2] == 3);
    CHECK_OK(d->ops->sync(d));
    dev_close(d);
}

static const struct dtypes types = {.ct = DT_BF16, .at = DT_F32, .logits = DT_F32};

#define BYTES(of, ...) op_bytes(&(struct op){.kind = of, __VA_ARGS__}, &types)
#define FLOPS(of, ...) op_flops(&(struct op){.kind = of, __VA_ARGS__})

static void gemms_are_counted(void)
{
    struct gemm g = {.m = 3, .n = 5, .k = 7};
    CHECK_INT(FLOPS(OP_GEMM, .gemm = g), 2 * 3 * 5 * 7);
    CHECK_INT(BYTES(OP_GEMM, .gemm = g), 2 * (21 + 35 + 15));
    g.accumulate = g.c_at = true; /* C in f32, read and written */
    CHECK_INT(BYTES(OP_GEMM, .gemm = g), 2 * (21 + 35) + 4 * 2 * 15);
    g.accumulate = false; /* written alone */
    CHECK_INT(BYTES(OP_GEMM, .gemm = g), 2 * (21 + 35) + 4 * 15);
    g.act = GEMM_GELU; /* what it is of is kept */
    CHECK_INT(BYTES(OP_GEMM, .gemm = g), 2 * (21 + 35 + 15) + 4 * 15);
    struct attn a = {.b = 2, .tq = 2, .tk = 4, .heads = 6, .kv_heads = 3, .d = 5};
    CHECK_INT(FLOPS(OP_ATTN, .attn = a), 4 * 5 * 7 * 2 * 6); /* queries see 3 and 4 keys */
    CHECK_INT(BYTES(OP_ATTN, .attn = a), 2 * (2 * 4 * 30 + 2 * 8 * 15) + 4 * 4 * 6);
    CHECK_INT(FLOPS(OP_ATTN_GRAD, .attn_grad.f = a), 10 * 5 * 7 * 2 * 6);
    CHECK_INT(BYTES(OP_ATTN_GRAD, .attn_grad.f = a),
              2 * (4 * 4 * 30 + 4 * 8 * 15) + 2 * 4 * 4 * 6); /* twice lse and its like */
}

static void bytes_are_counted(void)
{
    int x = 0;
    CHECK_INT(BYTES(OP_NORM, .norm = {.n = 3, .c = 5, .mean = &x, .b = &x}),
              2 * (2 * 15 + 2 * 5) + 4 * 2 * 3);
    CHECK_INT(BYTES(OP_NORM_GRAD, .norm_grad = {.n = 3, .c = 5, .d = &x, .db = &x, .mean = &x}),
              2 * (4 * 15 + 5) + 4 * (2 * 5 + 2 * 3));
    CHECK_INT(BYTES(OP_RESIDUAL, .residual = {.x = &x, .n = 3, .c = 5}), 2 * 3 * 15);
    CHECK_INT(BYTES(OP_RESIDUAL, .residual = {.bias = &x, .n = 3, .c = 5}), 2 * (2 * 15 + 5));
    /* the norm does not read the sum again */
    CHECK_INT(BYTES(OP_RESIDUAL_NORM, .residual_norm = {{.x = &x, .n = 3, .c = 5},
                                                     {.n = 3, .c = 5, .rms = true}}),
              2 * (4 * 15 + 5) + 4 * 3);
    CHECK_INT(BYTES(OP_ROPE, .rope = {.n = 6, .t = 4, .heads = 2, .d = 8}), 2 * 2 * 96 + 4 * 32);
    CHECK_INT(BYTES(OP_SWIGLU_GRAD, .swiglu_grad = {.n = 3, .f = 5}), 2 * 5 * 15);
    CHECK_INT(BYTES(OP_RELU, .relu = {.n = 15}), 2 * 2 * 15);
    CHECK_INT(BYTES(OP_RELU_GRAD, .relu_grad = {.n = 15}), 2 * 3 * 15);
    CHECK_INT(BYTES(OP_EMBED, .embed = {.n = 3, .c = 5, .rows = 100}), 2 * 2 * 15 + 4 * 3);
    CHECK_INT(BYTES(OP_EMBED_GRAD, .embed_grad = {.n = 3, .c = 5, .rows = 100}),
              2 * 15 + 4 * 2 * 15 + 4 * 3);
    CHECK_INT(BYTES(OP_POS_GRAD, .pos_grad = {.n = 3, .c = 5, .t = 2}), 2 * 15 + 4 * 2 * 10);
    CHECK_INT(BYTES(OP_ADAMW, .adamw = {.n = 10, .master = &x}),
              10 * (2 + 4 * 7) + 8 * SCALAR_COUNT);
    CHECK_INT(BYTES(OP_ADAMW, .adamw = {.n = 10}), 10 * (2 * 2 + 4 * 5) + 8 * SCALAR_COUNT);
    CHECK_INT(BYTES(OP_ADD, .add = {.n = 10}), 10 * 4 * 3);
    CHECK_INT(BYTES(OP_COPY, .copy = {.n = 10}), 20);
    CHECK_INT(BYTES(OP_H2D, .h2d = {.n = 10}), 10);
    const struct dev_ranges ranges = {2, {5, 7, 20, 23}};
    CHECK_INT(BYTES(OP_SUMSQ, .sumsq = {.of = &ranges, .n = 5}), 4 * 5 + 2 * 8);
    struct xent e = {.n = 3, .v = 7, .ld = 8};
    CHECK_INT(BYTES(OP_XENT_GRAD, .xent_grad = e), 4 * 4 * 3 + 4 * 3); /* no logits */
    e.dlogits = &x; /* v columns are read, ld written */
    CHECK_INT(BYTES(OP_XENT_GRAD, .xent_grad = e), 4 * 21 + 4 * 4 * 3 + 4 * 3 + 2 * 24);
    CHECK_INT(BYTES(OP_XENT, .xent = e), 4 * 21 + 4 * 4 * 3 + 4 * 3 + 2 * 24);
    CHECK_INT(BYTES(OP_XENT_MAX, .xent_max = e), 4 * 21 + 4 * 3);
    CHECK_INT(FLOPS(OP_XENT, .xent = e), 0);
    const int64_t far = INT64_C(1) << 40; /* a product beyond 63 bits is a number all the same */
    CHECK_NEAR(BYTES(OP_GEMM, .gemm = {.m = far, .n = far, .k = 1}), ldexp(2, 80), ldexp(1, 50));
    CHECK_NEAR(BYTES(OP_ADD, .add = {.n = INT64_C(1) << 62}), ldexp(3 * 4, 62), 0);
}

/* Seconds in the line of a table that begins with `name`; -1: there is none. */
static double seconds_of(const char *table, const char *name)
{
    const char *at = strstr(table, name);
    return at ? strtod(at + strlen(name), NULL) : -1;
}

/* The rows, communication and the host are the steps; before and behind them nothing is counted. */
static void a_profile_adds_up(void)
{
    struct dev *d;
    struct dev_profile *p;
    struct text t = {0};
    void *x;
    double opened = log_now();
    const struct timespec nap = {0, 20000000};
    CHECK_OK(dev_open(&(struct dev_args){.kind = DEV_REF, .ct = DT_F64, .threads = 1}, &d));
    dev_profile_begin(NULL, 0); /* no profile: nothing happens */
    CHECK_OK(dev_profile_open(d, opened, &p));
    CHECK_OK(d->ops->alloc(d, 80000, "x", &x));
    CHECK_OK(dev_zero(d, x, 80000));
    nanosleep(&nap, NULL);
    dev_profile_begin(p, 1.5);
    CHECK_OK(dev_zero(d, x, 80000));
    nanosleep(&nap, NULL);
    nanosleep(&nap, NULL);
    dev_profile_end(p, 1.5 + 0.015);
    CHECK_OK(dev_zero(d, x, 80000));
    dev_profile_table(p, &t);
    double steps = seconds_of(t.s, "steps and validation"), host = seconds_of(t.s, "the rest");
    double moved = seconds_of(t.s, "copy, zero, cast");
    CHECK(seconds_of(t.s, "start-up before them") > 0.019);
    CHECK_NEAR(seconds_of(t.s, "communication, waiting"), 0.015, 1e-9);
    CHECK(steps > 0.039 && host > 0.024 && moved >= 0);
    CHECK_NEAR(moved + 0.015 + host, steps, 0.0021); /* three numbers rounded to a millisecond */
    CHECK(strstr(t.s, " %          1 ") != NULL); /* one call */
    text_free(&t);
    d->ops->free(d, x);
    dev_profile_close(p);
    dev_close(d);
}

enum { NAP_MS = 60 };

static enum err slow_run(struct dev *d, const struct op *op)
{
    (void)d;
    (void)op;
    nanosleep(&(const struct timespec){0, NAP_MS * 1000000}, NULL);
    return ERR_OK;
}

/* A GEMM of 2048 cubed in f32 is 17.18 GFLOP on three matrices of 16.8 MB, whatever the device
 * takes for it. The table has three decimals of seconds and one of rates and shares. */
static void a_profile_by_hand(void)
{
    struct dev *d;
    struct dev_profile *p;
    struct text t = {0};
    double s, share, gflops, gbytes, span, all, comm;
    long long calls;
    const struct gemm g = {.m = 2048, .n = 2048, .k = 2048, .lda = 2048, .ldb = 2048, .ldc = 2048,
                           .trans_b = true};
    const double flop = 17.179869184, byte = 0.050331648; /* in 1e9 */
    CHECK_OK(dev_open(&(struct dev_args){.kind = DEV_CPU, .ct = DT_F32, .threads = 1}, &d));
    struct dev_ops slow = *d->ops;
    const struct dev_ops *ops = d->ops;
    slow.run = slow_run;
    d->ops = &slow;
    CHECK_OK(dev_profile_open(d, log_now(), &p));
    dev_profile_begin(p, 0);
    CHECK_OK(dev_gemm(d, &g));
    nanosleep(&(const struct timespec){0, NAP_MS * 1000000}, NULL);
    dev_profile_end(p, 0.03);
    dev_profile_table(p, &t);
    const char *row = strstr(t.s, "\nGEMM, forward "), *part = strstr(t.s, "\ncommunication");
    const char *last = strstr(t.s, "\nsteps and validation ");
    CHECK(strstr(t.s, " calls    GFLOP/s      GB/s\n") != NULL);
    if (CHECK(row && last && part) &&
        CHECK(sscanf(row + 27, "%lf %lf %% %lld %lf %lf", &s, &share, &calls, &gflops,
                     &gbytes) == 5) &&
        CHECK(sscanf(last + 27, "%lf %lf", &span, &all) == 2) &&
        CHECK(sscanf(part + 27, "%*f %lf", &comm) == 1)) {
        CHECK_INT(calls, 1);
        CHECK(s >= NAP_MS * 1e-3 && span >= 2 * NAP_MS * 1e-3);
        CHECK_NEAR(gflops * s, flop, 0.06 * s + 0.0006 * gflops);
        CHECK_NEAR(gbytes * s, byte, 0.06 * s + 0.0006 * gbytes);
        CHECK_NEAR(share * span, 100 * s, 0.06 * span + 0.0006 * (100 + share));
        CHECK_NEAR(comm * span, 100 * 0.03, 0.06 * span + 0.0006 * comm);
        CHECK_NEAR(all, 100, 0);
    }
    text_free(&t);
    d->ops = ops;
    dev_profile_close(p);
    dev_close(d);
}

static void failed_allocations_come_back(void)
{
    struct dev *d = NULL;
    struct dev_args a = {.kind = DEV_REF, .ct = DT_F64, .threads = 1};
    CHECK(setenv("PLAIT_FAIL_ALLOC", "1", 1) == 0); /* the first that is counted */
    CHECK_ERR(dev_open(&a, &d), ERR_MEMORY, "the ref device");
    unsetenv("PLAIT_FAIL_ALLOC");
    CHECK(d == NULL);
}

static const struct test_case cases[] = {
    {"kinds say what they are", kinds_say_what_they_are},
    {"wrong requests are refused", wrong_requests_are_refused},
    {"devices have their types", devices_have_their_types},
    {"tables are full", tables_are_full},
    {"a GPU's table is full", a_gpus_table_is_full},
    {"hooks stand around each other", hooks_stand_around_each_other},
    {"what no device has is refused", what_no_device_has_is_refused},
    {"null memory has no limit", null_memory_has_no_limit},
    {"null gives zeros", null_gives_zeros},
    {"GEMMs are counted", gemms_are_counted},
    {"bytes are counted", bytes_are_counted},
    {"a profile adds up", a_profile_adds_up},
    {"a profile by hand", a_profile_by_hand},
    {"failed allocations come back", failed_allocations_come_back},
};
TEST_MAIN(cases)
