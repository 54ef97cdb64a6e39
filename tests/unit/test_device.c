/* SPDX-License-Identifier: Apache-2.0
 *
 * The register of devices and their tables, also of those that stand in front of another; and the
 * null device: memory of any size, counts that are formulas.
 */
#include "tape.h"
#include "test.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "device/calls.h"
#include "device/device.h"
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
    CHECK(dev_built(DEV_REF) && dev_built(DEV_NULL) && !dev_built((enum dev_kind)99));
    dev_describe_kind((enum dev_kind)99, text, sizeof text);
    CHECK_STR(text, "device kind 99: unknown");
    dev_describe_kind(DEV_REF, text, 4);
    CHECK_STR(text, "ref");
}

static void wrong_requests_are_refused(void)
{
    struct dev *d = NULL;
    struct dev_args kind = {.kind = (enum dev_kind)99, .ct = DT_F64, .threads = 1};
    struct dev_args type = {.kind = DEV_REF, .ct = DT_BF16, .threads = 1};
    struct dev_args integer = {.kind = DEV_NULL, .ct = DT_I32, .threads = 1};
    struct dev_args threads = {.kind = DEV_REF, .ct = DT_F64};
    CHECK_ERR(dev_open(&kind, &d), ERR_CONFIG, "no device kind 99; use ref, null");
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

/* The slots of recording. */
static bool recording(size_t at)
{
    return at == offsetof(struct dev_ops, record_begin) ||
           at == offsetof(struct dev_ops, record_end) || at == offsetof(struct dev_ops, replay) ||
           at == offsetof(struct dev_ops, forget);
}

/* The slots of a device that chooses by measuring. */
static bool choosing(size_t at)
{
    return at == offsetof(struct dev_ops, choices) || at == offsetof(struct dev_ops, choose);
}

/* One of the slots that a device may lack? */
static bool optional(size_t at)
{
    return recording(at) || choosing(at);
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
        bool needed = !optional(at) || (choosing(at) ? ops->choices != NULL
                                                     : ops->record_begin != NULL);
        test_check(fills(ops, at) == needed, __FILE__, __LINE__, "slot %zu of %s is %s",
                   at / sizeof(void *), ops->name, needed ? "empty" : "filled alone");
    }
}

/* Of a device in front of another: required slots, and optional ones that the other has, are filled
 * but for those that are left out on purpose, which are empty. */
static void check_front(const char *name, const struct dev_ops *front,
                        const struct dev_ops *behind, bool (*left_out)(size_t at))
{
    for (size_t at = 0; at < sizeof *front; at += sizeof(void *)) {
        bool out = left_out && left_out(at);
        bool needed = !out && (!optional(at) || fills(behind, at));
        if (fills(front, at) ? out : needed)
            test_check(false, __FILE__, __LINE__, "slot %zu of %s, which stands before %s, is %s",
                       at / sizeof(void *), name, behind->name,
                       out ? "filled, and said to be left out" : "empty");
    }
}

/* The devices in front of d, which is closed. A profile leaves recording out: what is replayed is
 * not called, so there would be nothing to time. A tape makes its own recordings, or is without. */
static void check_fronts(struct dev *d)
{
    struct tape tape = {0};
    struct dev *profile;
    const struct dev_ops *real = d->ops;
    tape_over(&tape, d, false);
    check_front("the tape", d->ops, real, recording);
    d->ops = real;
    tape_over(&tape, d, true);
    check_front("the tape that records", d->ops, real, NULL);
    check_table(d->ops);
    CHECK(d->ops->record_begin != NULL);
    CHECK_OK(dev_profile_open(d, 0, &profile)); /* before one that records, GPU or not */
    check_front("profile", profile->ops, d->ops, recording);
    d->ops = real;
    check_front("profile", profile->ops, real, recording);
    dev_close(profile);
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
    check_fronts(d);
}

/* Every slot of the table is filled, on every device and on those in front of it. */
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

/* The device that notes calls: all of a null device's, none left out. */
static void the_recorder_is_full(void)
{
    struct dev *null = open_null(DT_F32), *d = NULL;
    CHECK_OK(calls_record_open(&null->types, 7, &d));
    check_front("the recorder", d->ops, null->ops, NULL);
    check_table(d->ops);
    dev_close(d);
    dev_close(null);
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
    CHECK_OK(d->ops->copy_in(d, p, x, sizeof x));
    CHECK_OK(d->ops->copy_out(d, x, p, 2 * sizeof *x));
    CHECK(x[0] == 0 && x[1] == 0 && x[2] == 3);
    CHECK_OK(d->ops->sync(d));
    dev_close(d);
}

/* Counts since the last call. */
static struct dev_counts counted(const struct dev *d, struct dev_counts *before)
{
    struct dev_counts now, made;
    dev_null_counts(d, &now);
    made = (struct dev_counts){.flops = now.flops - before->flops,
                               .bytes = now.bytes - before->bytes,
                               .calls = now.calls - before->calls};
    *before = now;
    return made;
}

static void null_counts_products(void)
{
    struct dev *d = open_null(DT_BF16);
    struct dev_counts before = {0}, made;
    int x = 0;
    struct gemm g = {.c = &x, .a = &x, .b = &x, .m = 3, .n = 5, .k = 7};
    CHECK_OK(d->ops->gemm(d, &g));
    made = counted(d, &before);
    CHECK_INT(made.flops, 2 * 3 * 5 * 7);
    CHECK_INT(made.bytes, 2 * (21 + 35 + 15));
    CHECK_INT(made.calls, 1);
    g.accumulate = g.c_at = true; /* C in f32, read and written */
    CHECK_OK(d->ops->gemm(d, &g));
    CHECK_INT(counted(d, &before).bytes, 2 * (21 + 35) + 4 * 2 * 15);
    g.accumulate = false; /* written alone */
    CHECK_OK(d->ops->gemm(d, &g));
    CHECK_INT(counted(d, &before).bytes, 2 * (21 + 35) + 4 * 15);
    struct attn a = {.b = 2, .tq = 2, .tk = 4, .heads = 6, .kv_heads = 3, .d = 5};
    CHECK_OK(d->ops->attn(d, &a)); /* queries see 3 and 4 keys */
    made = counted(d, &before);
    CHECK_INT(made.flops, 4 * 5 * 7 * 2 * 6);
    CHECK_INT(made.bytes, 2 * (2 * 4 * 30 + 2 * 8 * 15) + 4 * 4 * 6);
    struct attn_grad back = {.f = a};
    CHECK_OK(d->ops->attn_grad(d, &back));
    CHECK_INT(counted(d, &before).flops, 10 * 5 * 7 * 2 * 6);
    dev_close(d);
}

static void null_counts_bytes(void)
{
    struct dev *d = open_null(DT_BF16);
    struct dev_counts before = {0};
    struct drop none = {0};
    int x = 0;
    struct norm n = {.n = 3, .c = 5, .mean = &x, .b = &x};
    CHECK_OK(d->ops->norm(d, &n));
    CHECK_INT(counted(d, &before).bytes, 2 * (2 * 15 + 2 * 5) + 4 * 2 * 3);
    CHECK_OK(d->ops->residual(d, &(struct residual){&x, &x, &x, NULL, 3, 5, none}));
    CHECK_INT(counted(d, &before).bytes, 2 * 3 * 15);
    CHECK_OK(d->ops->residual(d, &(struct residual){&x, NULL, &x, &x, 3, 5, none}));
    CHECK_INT(counted(d, &before).bytes, 2 * (2 * 15 + 5));
    CHECK_OK(d->ops->embed(d, &x, &x, NULL, 3, 5, 0, 100));
    CHECK_INT(counted(d, &before).bytes, 2 * 2 * 15 + 4 * 3);
    struct adamw a = {.n = 10, .master = &x};
    CHECK_OK(d->ops->adamw(d, &a));
    CHECK_INT(counted(d, &before).bytes, 10 * (2 + 4 * 7));
    CHECK_OK(d->ops->add(d, &x, &x, 10));
    CHECK_INT(counted(d, &before).bytes, 10 * 4 * 3);
    struct xent e = {.n = 3, .v = 7, .ld = 8};
    CHECK_OK(d->ops->xent_grad(d, &e));
    CHECK_INT(counted(d, &before).bytes, 4 * 4 * 3 + 4 * 3); /* the loss alone: no logits */
    e.dlogits = &x; /* v columns are read, ld written */
    CHECK_OK(d->ops->xent_grad(d, &e));
    struct dev_counts made = counted(d, &before);
    CHECK_INT(made.bytes, 4 * 21 + 4 * 4 * 3 + 4 * 3 + 2 * 24);
    CHECK(made.flops == 0 && made.calls == 1);
    dev_close(d);
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
    struct text t = {0};
    void *x;
    double opened = log_now();
    const struct timespec nap = {0, 20000000};
    CHECK_OK(dev_open(&(struct dev_args){.kind = DEV_REF, .ct = DT_F64, .threads = 1}, &d));
    dev_profile_begin(d, 0); /* not a profile: nothing happens */
    CHECK_OK(dev_profile_open(d, opened, &d));
    CHECK_OK(d->ops->alloc(d, 80000, "x", &x));
    CHECK_OK(d->ops->zero(d, x, 80000));
    nanosleep(&nap, NULL);
    dev_profile_begin(d, 1.5);
    CHECK_OK(d->ops->zero(d, x, 80000));
    nanosleep(&nap, NULL);
    nanosleep(&nap, NULL);
    dev_profile_end(d, 1.5 + 0.015);
    CHECK_OK(d->ops->zero(d, x, 80000));
    dev_profile_table(d, &t);
    double steps = seconds_of(t.s, "steps and validation"), host = seconds_of(t.s, "the rest");
    double moved = seconds_of(t.s, "copy, zero, cast");
    CHECK(seconds_of(t.s, "start-up before them") > 0.019);
    CHECK_NEAR(seconds_of(t.s, "communication, waiting"), 0.015, 1e-9);
    CHECK(steps > 0.039 && host > 0.024 && moved >= 0);
    CHECK_NEAR(moved + 0.015 + host, steps, 0.0021); /* three numbers rounded to a millisecond */
    CHECK(strstr(t.s, " %          1 ") != NULL); /* one call */
    text_free(&t);
    d->ops->free(d, x);
    dev_close(d);
}

enum { NAP_MS = 60 };

static enum err slow_gemm(struct dev *d, const struct gemm *g)
{
    (void)d;
    (void)g;
    nanosleep(&(const struct timespec){0, NAP_MS * 1000000}, NULL);
    return ERR_OK;
}

/* A product of 2048 cubed in f32 is 17.18 GFLOP on three matrices of 16.8 MB, whatever the device
 * takes for it. The table has three decimals of seconds and one of rates and shares. */
static void a_profile_by_hand(void)
{
    struct dev *real, *d;
    struct text t = {0};
    double s, share, gflops, gbytes, span, all, comm;
    long long calls;
    const struct gemm g = {.m = 2048, .n = 2048, .k = 2048, .lda = 2048, .ldb = 2048, .ldc = 2048,
                           .trans_b = true};
    const double flop = 17.179869184, byte = 0.050331648; /* in 1e9 */
    CHECK_OK(dev_open(&(struct dev_args){.kind = DEV_CPU, .ct = DT_F32, .threads = 1}, &real));
    struct dev_ops slow = *real->ops;
    const struct dev_ops *ops = real->ops;
    slow.gemm = slow_gemm;
    real->ops = &slow;
    CHECK_OK(dev_profile_open(real, log_now(), &d));
    dev_profile_begin(d, 0);
    CHECK_OK(d->ops->gemm(d, &g));
    nanosleep(&(const struct timespec){0, NAP_MS * 1000000}, NULL);
    dev_profile_end(d, 0.03);
    dev_profile_table(d, &t);
    const char *row = strstr(t.s, "\nproduct, forward "), *part = strstr(t.s, "\ncommunication");
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
    real->ops = ops;
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
    {"the recorder's table is full", the_recorder_is_full},
    {"null memory has no limit", null_memory_has_no_limit},
    {"null gives zeros", null_gives_zeros},
    {"null counts products", null_counts_products},
    {"null counts bytes", null_counts_bytes},
    {"a profile adds up", a_profile_adds_up},
    {"a profile by hand", a_profile_by_hand},
    {"failed allocations come back", failed_allocations_come_back},
};
TEST_MAIN(cases)
