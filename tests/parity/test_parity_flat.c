/* SPDX-License-Identifier: Apache-2.0
 *
 * Flat vectors: AdamW with and without a master copy, sums, conversion, addition.
 */
#include "parity.h"

#include "base/mem.h"

enum { SHAPES = 16 };

/* None, one, two; short; and one that a device divides among many threads. */
static int64_t length(int i)
{
    if (i == 3)
        return test_range(100000, 100100);
    return i < 3 ? i : test_range(3, i % 4 ? 200 : 5000);
}

/* Parts of a vector of n: none, all of it in one, or up to as many as a call takes; of one element,
 * of none, touching, anywhere in a line of memory. */
static struct dev_ranges ranges_of(int i, int64_t n)
{
    struct dev_ranges p = {0};
    int64_t at = 0;
    int most = i % 5 == 0 ? 0 : i % 5 == 1 ? DEV_RANGES : 8;
    if (i % 5 == 2) {
        p = (struct dev_ranges){1, {0, n}};
        return p;
    }
    for (; p.n < most; p.n++) {
        int64_t most_skipped = num_max(2 * n / most, 1);
        at = num_min(at + (test_range(0, 2) ? test_range(0, most_skipped) : 0), n);
        p.bound[2 * p.n] = at;
        at = num_min(at + (test_range(0, 3) ? test_range(0, most_skipped) : test_range(0, 1)), n);
        p.bound[2 * p.n + 1] = at;
    }
    return p;
}

/* What of p is in begin .. end - 1, counted from begin. */
static struct dev_ranges ranges_within(const struct dev_ranges *p, int64_t begin, int64_t end)
{
    struct dev_ranges out = *p;
    for (int i = 0; i < 2 * p->n; i++)
        out.bound[i] = num_max(begin, num_min(p->bound[i], end)) - begin;
    return out;
}

/* What changes from step to step goes to `scalars`; a seventh of the steps must not be taken. */
static struct adamw adamw_of(int i, int64_t n, double scalars[SCALAR_COUNT])
{
    double t = (double)test_range(1, 1000);
    struct adamw a = {.n = n, .beta1 = test_real(0, 0.99), .beta2 = test_real(0.5, 0.999),
                      .eps = i % 2 ? 1e-8 : test_real(0.01, 1), .decay = i % 3 ? 0.1 : 0};
    scalars[SCALAR_TOKENS] = 0;
    scalars[SCALAR_LR] = test_real(1e-4, 1e-1);
    scalars[SCALAR_BIAS1] = 1 - pow(a.beta1, t);
    scalars[SCALAR_BIAS2] = 1 - pow(a.beta2, t);
    scalars[SCALAR_SCALE] = i % 7 == 5 ? NAN : test_real(0.01, 2);
    return a;
}

static void adamw(struct parity *p)
{
    for (int i = 0; i < 2 * SHAPES; i++) {
        int64_t n = length(i / 2);
        bool needs_master = p->dev[1]->ct != p->dev[1]->at, has_master = needs_master || i & 1;
        double step[SCALAR_COUNT];
        struct adamw a = adamw_of(i, n, step);
        struct dev_ranges decays = ranges_of(i, n), within;
        parity_problem(p, "adamw n %d master %d decay %g of %d ranges lr %g scale %g", (int)n,
                       has_master, a.decay, decays.n, step[SCALAR_LR], step[SCALAR_SCALE]);
        struct parity_buf *scalars = parity_zero(p, PARITY_DOUBLE, SCALAR_COUNT);
        parity_set(p, scalars, step);
        struct parity_buf *w = parity_fill(p, PARITY_CT, n, -2, 2);
        struct parity_buf *master = has_master ? parity_fill(p, PARITY_AT, n, -2, 2) : NULL;
        struct parity_buf *m = parity_fill(p, PARITY_AT, n, -0.1, 0.1);
        struct parity_buf *v = parity_fill(p, PARITY_AT, n, 0, 0.1);
        struct parity_buf *grad = parity_fill(p, PARITY_AT, n, -1, 1);
        for (int s = 0; s < PARITY_SIDES; s++) {
            int64_t half = s == 2 ? n / 2 : 0;
            for (int k = 0; k < 2; k++) {
                int64_t at = k ? half : 0;
                a.n = k ? n - half : half;
                within = ranges_within(&decays, at, at + a.n);
                a.decays = &within;
                a.w = parity_at(p, w, s, at);
                a.master = parity_at(p, master, s, at);
                a.m = parity_at(p, m, s, at);
                a.v = parity_at(p, v, s, at);
                a.grad = parity_at(p, grad, s, at);
                a.step_scalars = scalars->on[s];
                CHECK_OK(dev_adamw(p->dev[s], &a));
            }
        }
        /* a step is lr m / sqrt(v), large where v is small: bounded by the largest weight */
        double largest = parity_largest(p, master ? master : w);
        parity_check(p, w, p->calc * largest);
        if (master)
            parity_check(p, master, p->calc * largest);
        parity_check(p, m, p->calc * 2);
        parity_check(p, v, p->calc * 4);
        parity_check_same(p, grad);
    }
}

static void sums(struct parity *p)
{
    for (int i = 0; i < 2 * SHAPES; i++) {
        int64_t n = length(i);
        parity_problem(p, "sum, sumsq n %d", (int)n);
        struct parity_buf *x = parity_fill(p, PARITY_AT, n, -1, 1);
        struct parity_buf *sum = parity_fill(p, PARITY_DOUBLE, 1, -1, 1);
        struct parity_buf *square = parity_fill(p, PARITY_DOUBLE, 1, -1, 1);
        for (int s = 0; s < PARITY_SIDES; s++) {
            CHECK_OK(dev_sum(p->dev[s], &(struct sum){sum->on[s], x->on[s], n}));
            CHECK_OK(dev_sumsq(
                p->dev[s], &(struct sumsq){square->on[s], x->on[s], &(struct dev_ranges){1, {0, n}},
                                           dev_ranges_count(&(struct dev_ranges){1, {0, n}})}));
        }
        parity_check(p, sum, p->calc * (1 + 0.5 * (double)n));
        parity_check(p, square, p->calc * (1 + 0.33 * (double)n));
    }
}

/* What lies outside the ranges is not looked at, be it NaN. From any address. */
static void squares_of_ranges(struct parity *p)
{
    for (int i = 0; i < 4 * SHAPES; i++) {
        int64_t n = length(i / 2), at = i & 1 ? test_range(0, n) : 0;
        struct dev_ranges of = ranges_of(i, n - at);
        double *values = parity_doubles(n);
        parity_problem(p, "sumsq n %d from %d, %d ranges, %d in them", (int)n, (int)at, of.n,
                       (int)dev_ranges_count(&of));
        struct parity_buf *x = parity_zero(p, PARITY_AT, n);
        struct parity_buf *square = parity_fill(p, PARITY_DOUBLE, 1, -1, 1);
        for (int64_t k = 0; k < n; k++)
            values[k] = NAN;
        for (int k = 0; k < of.n; k++)
            for (int64_t e = of.bound[2 * k]; e < of.bound[2 * k + 1]; e++)
                values[at + e] = test_real(-1, 1);
        parity_set(p, x, values);
        mem_free(values);
        for (int s = 0; s < PARITY_SIDES; s++)
            CHECK_OK(dev_sumsq(p->dev[s], &(struct sumsq){square->on[s], parity_at(p, x, s, at),
                                                          &of, dev_ranges_count(&of)}));
        parity_check(p, square, p->calc * (1 + 0.33 * (double)n));
    }
}

/* Conversion is a rounding and nothing else; so is the sum of two. */
static void cast_and_add(struct parity *p)
{
    for (int i = 0; i < 2 * SHAPES; i++) {
        int64_t n = length(i);
        double size = pow(10, (double)test_range(-6, 6));
        parity_problem(p, "cast, add n %d size %g", (int)n, size);
        struct parity_buf *from = parity_fill(p, PARITY_AT, n, -size, size);
        struct parity_buf *to = parity_fill(p, PARITY_CT, n, -1, 1);
        struct parity_buf *more = parity_fill(p, PARITY_AT, n, -size, size);
        struct parity_buf *total = parity_fill(p, PARITY_AT, n, -size, size);
        for (int s = 0; s < PARITY_SIDES; s++) {
            CHECK_OK(dev_cast(p->dev[s], to->on[s], from->on[s], n));
            CHECK_OK(dev_add(p->dev[s], total->on[s], more->on[s], n));
        }
        parity_check_same(p, to);
        parity_check(p, total, p->calc * size * 1e-2);
        parity_check_same(p, from);
    }
}

/* Ties, the largest values, infinities, NaN: as base/num.h rounds them. */
static void cast_edges(struct parity *p)
{
    double edge[] = {0, -0.0, 1 + 0x1p-8, 1 + 0x1p-7 + 0x1p-8, 1 + 0x1p-8 + 0x1p-20, 0x1.fep127,
                     0x1.ffp127, INFINITY, -INFINITY, NAN, 0x1p-126, 0x1p-133, -0x1p-134};
    int64_t n = sizeof edge / sizeof *edge;
    parity_problem(p, "cast of edges");
    struct parity_buf *from = parity_zero(p, PARITY_AT, n), *to = parity_zero(p, PARITY_CT, n);
    parity_set(p, from, edge);
    for (int s = 0; s < PARITY_SIDES; s++)
        CHECK_OK(dev_cast(p->dev[s], to->on[s], from->on[s], n));
    parity_check_same(p, to);
}

/* Two copies, one of nothing and one that is waited for by a kernel that writes over it. */
static void take_snapshot(struct dev *d, void *from, int64_t bytes)
{
    char *host[2], *spare;
    bool there = false;
    CHECK_OK(d->ops->alloc(d, bytes, "a copy", (void **)&spare));
    CHECK_OK(dev_copy(d, spare, from, bytes));
    CHECK_OK(d->ops->snapshot_ready(d, 0));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(d->ops->host_alloc(d, bytes, "a snapshot", (void **)&host[i]));
        CHECK_OK(dev_snapshot(d, &(struct snapshot){host[i], spare, i ? 0 : bytes, 0}));
    }
    CHECK_OK(d->ops->snapshot_join(d, 0));
    CHECK_OK(dev_zero(d, spare, bytes));
    CHECK_OK(d->ops->snapshot_synchronize(d, NULL));
    CHECK_OK(d->ops->snapshot_synchronize(d, &there));
    CHECK(there);
    CHECK_OK(dev_d2h(d, host[1], from, bytes));
    CHECK_OK(d->ops->sync(d));
    CHECK(memcmp(host[0], host[1], (size_t)bytes) == 0);
    for (int i = 0; i < 2; i++)
        d->ops->host_free(d, host[i]);
    d->ops->free(d, spare);
}

static void memory(struct parity *p)
{
    parity_problem(p, "memory");
    struct parity_buf *a = parity_fill(p, PARITY_AT, 100, -1, 1);
    struct parity_buf *b = parity_zero(p, PARITY_AT, 100);
    for (int s = 0; s < PARITY_SIDES; s++) {
        struct dev *d = p->dev[s];
        int64_t size = dtype_size(d->at);
        CHECK_OK(dev_copy(d, b->on[s], a->on[s], 100 * size));
        CHECK_OK(dev_zero(d, parity_at(p, b, s, 10), 20 * size));
        CHECK_OK(dev_copy(d, b->on[s], a->on[s], 0));
        CHECK_OK(dev_zero(d, b->on[s], 0));
        CHECK_OK(d->ops->sync(d));
        take_snapshot(d, b->on[s], 100 * size);
    }
    double x[100], y[100];
    parity_check_same(p, b);
    parity_get(p, a, 1, x);
    parity_get(p, b, 1, y);
    for (int i = 0; i < 100; i++)
        CHECK(y[i] == (i >= 10 && i < 30 ? 0 : x[i]));
}

/* NaN where ref has it, else within a few roundings of it. */
static void check_factor(struct parity *p, const struct parity_buf *scalars, int side)
{
    double want[SCALAR_COUNT], got[SCALAR_COUNT];
    parity_get(p, scalars, 0, want);
    parity_get(p, scalars, side, got);
    for (int i = 0; i < SCALAR_COUNT; i++)
        test_check(isnan(want[i]) ? isnan(got[i]) : fabs(got[i] - want[i]) <= 0x1p-50 * want[i],
                   __FILE__, __LINE__, "%s: %s: %d is %.17g, wanted %.17g", p->label, p->what, i,
                   got[i], want[i]);
}

/* Clipped and not; no tokens; loss or squares that are not finite; behind such a step. */
static void scale(struct parity *p)
{
    for (int i = 0; i < 4 * SHAPES; i++) {
        double in[SUMS_COUNT] = {[SUMS_LOSS] = test_real(0, 100), [SUMS_SQUARES] = test_real(0, 9),
                                 [SUMS_TOKENS] = (double)test_range(0, 3)};
        double kept[SCALAR_COUNT] = {1.5, 0.5, 0.25, 2, 3, 1, 1, i % 8 == 5}; /* lost before? */
        double clip = i % 3 ? test_real(0.1, 2) : 0;
        if (i % 8 == 3)
            in[i & 16 ? SUMS_LOSS : SUMS_SQUARES] = i & 32 ? NAN : INFINITY;
        parity_problem(p, "scale loss %g tokens %g squares %g clip %g, lost %g", in[SUMS_LOSS],
                       in[SUMS_TOKENS], in[SUMS_SQUARES], clip, kept[SCALAR_LOST]);
        struct parity_buf *sums = parity_zero(p, PARITY_DOUBLE, SUMS_COUNT);
        struct parity_buf *scalars = parity_zero(p, PARITY_DOUBLE, SCALAR_COUNT);
        parity_set(p, sums, in);
        parity_set(p, scalars, kept);
        for (int s = 0; s < PARITY_SIDES; s++)
            CHECK_OK(dev_scale(p->dev[s], &(struct scale){scalars->on[s], sums->on[s], clip}));
        for (int s = 1; s < PARITY_SIDES; s++)
            check_factor(p, scalars, s);
        parity_get(p, scalars, 0, kept);
        CHECK((kept[SCALAR_LOST] != 0) == (i % 8 == 3 || i % 8 == 5) &&
              (kept[SCALAR_LOST] != 0) == isnan(kept[SCALAR_SCALE]));
        parity_check_same(p, sums);
    }
}

static void case_scale(void)
{
    parity_each("scale", scale);
}

static void case_adamw(void)
{
    parity_each("adamw", adamw);
}

static void case_sums(void)
{
    parity_each("sum, sumsq", sums);
}

static void case_squares(void)
{
    parity_each("sumsq of ranges", squares_of_ranges);
}

static void case_cast_and_add(void)
{
    parity_each("cast, add", cast_and_add);
}

static void case_cast_edges(void)
{
    parity_each("cast of edges", cast_edges);
}

static void case_memory(void)
{
    parity_each("memory", memory);
}

static const struct test_case cases[] = {
    {"devices", parity_devices},
    {"adamw: master and none, decay of ranges, in two calls, not taken", case_adamw},
    {"scale: clipped, without tokens, not finite", case_scale},
    {"sum and sumsq add to what is there", case_sums},
    {"sumsq: ranges of one, of none, touching, from any address", case_squares},
    {"cast rounds, add adds", case_cast_and_add},
    {"cast: ties, infinities, NaN", case_cast_edges},
    {"memory: allocations are zero, copy, zero", case_memory},
};
TEST_MAIN(cases)
