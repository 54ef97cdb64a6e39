/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that work row by row: norms, activations, residual addition, dropout. Side 2 does each in
 * two calls, the first on rows 0..half, the second on the rest, and must give the same bits.
 */
#include "parity.h"

#include "base/mem.h"

enum { SHAPES = 24, WIDE = 5 };

/* Rows of problem i: none, one, or some; and how many of them side 2 takes first. */
static int64_t rows_of(int i)
{
    return i < 2 ? i : i == 2 ? test_range(130, 400) : test_range(2, 60);
}

/* Columns of problem i: a few; behind the SHAPES problems, as many as models have. Such rows are
 * whole vectors, and of every length for which a device has a way of its own. */
static int64_t cols_of(int i, int64_t most)
{
    static const int64_t wide[WIDE] = {768, 1600, 2048, 4096, 8192};
    return i < SHAPES ? test_range(1, most) : wide[i - SHAPES];
}

/* Rows to go with them: few where they are wide. */
static int64_t rows_with(int i)
{
    return i < SHAPES ? rows_of(i) : test_range(2, 9);
}

/* The rows first..end of part `part` of a side: all at once, or in two parts on side 2. */
struct part { int64_t first, rows; };
static struct part part_of(int side, int part, int64_t n)
{
    int64_t half = n / 3;
    if (side < 2)
        return (struct part){0, part == 0 ? n : 0};
    return part == 0 ? (struct part){0, half} : (struct part){half, n - half};
}

static void norm_one(struct parity *p, int i, bool rms)
{
    int64_t n = rows_with(i), c = cols_of(i, 300);
    bool b_there = !rms && test_range(0, 1), mean_there = !rms || test_range(0, 1);
    parity_problem(p, "norm n %d c %d rms %d b %d mean %d", (int)n, (int)c, rms, b_there,
                   mean_there);
    double shift = test_real(-1, 1);
    struct parity_buf *x = parity_fill(p, PARITY_CT, n * c, shift - 2, shift + 2);
    struct parity_buf *w = parity_fill(p, PARITY_CT, c, -1, 1);
    struct parity_buf *b = b_there ? parity_fill(p, PARITY_CT, c, -1, 1) : NULL;
    struct parity_buf *y = parity_fill(p, PARITY_CT, n * c, -1, 1);
    struct parity_buf *rstd = parity_zero(p, PARITY_AT, n);
    struct parity_buf *mean = mean_there && !rms ? parity_zero(p, PARITY_AT, n) : NULL;
    double eps = 1e-2; /* keeps a row of one or two channels from having no scale */
    for (int s = 0; s < PARITY_SIDES; s++) {
        for (int k = 0; k < 2; k++) {
            struct part r = part_of(s, k, n);
            struct norm a = {.y = parity_at(p, y, s, r.first * c),
                             .mean = parity_at(p, mean, s, r.first),
                             .rstd = parity_at(p, rstd, s, r.first),
                             .x = parity_at(p, x, s, r.first * c),
                             .w = parity_at(p, w, s, 0), .b = parity_at(p, b, s, 0),
                             .n = r.rows, .c = c, .eps = eps, .rms = rms};
            CHECK_OK(dev_norm(p->dev[s], &a));
        }
    }
    /* xhat has error rstd |x|; rstd of a small variance the same, by the square of it */
    double size = parity_largest(p, x) * parity_largest(p, rstd);
    parity_check(p, y, p->calc * (1 + size) * (1 + (b ? 1 : 0)));
    parity_check(p, rstd, p->calc * (1 + size) * parity_largest(p, rstd));
    if (mean)
        parity_check(p, mean, p->calc * parity_largest(p, x));
}

static void norm_layer(struct parity *p)
{
    for (int i = 0; i < SHAPES + WIDE; i++)
        norm_one(p, i, false);
}

static void norm_rms(struct parity *p)
{
    for (int i = 0; i < SHAPES + WIDE; i++)
        norm_one(p, i, true);
}

/* Where the input gradient goes: its own buffer, over d, or over x. */
enum over { OVER_NOTHING, OVER_D, OVER_X };
struct norm_problem {
    int64_t n, c;
    bool rms, behind; /* db lies behind dw */
    enum over over;
    struct parity_buf *x, *w, *dy, *d, *mean, *rstd, *dx, *dw, *db, *y;
};

/* Statistics are those of x, from ref, rounded to at. */
static struct norm_problem norm_problem_of(struct parity *p, int i, bool rms)
{
    struct norm_problem q = {.n = rows_with(i), .c = cols_of(i, 200), .rms = rms};
    bool d_there = test_range(0, 1), db_there = !rms && test_range(0, 1);
    q.over = i % 3 == 0 ? OVER_NOTHING : i % 3 == 1 && d_there ? OVER_D : OVER_X;
    parity_problem(p, "norm_grad n %d c %d rms %d d %d db %d dx over %s", (int)q.n, (int)q.c, rms,
                   d_there, db_there,
                   q.over == OVER_D ? "d" : q.over == OVER_X ? "x" : "nothing");
    q.x = parity_fill(p, PARITY_CT, q.n * q.c, -1, 2);
    q.w = parity_fill(p, PARITY_CT, q.c, -1, 1);
    q.dy = parity_fill(p, PARITY_CT, q.n * q.c, -1, 1);
    q.d = d_there ? parity_fill(p, PARITY_CT, q.n * q.c, -1, 1) : NULL;
    q.dx = parity_fill(p, PARITY_CT, q.n * q.c, -1, 1);
    q.behind = db_there && test_range(0, 1);
    q.dw = parity_fill(p, PARITY_AT, (1 + q.behind) * q.c, -1, 1);
    parity_unread(p, q.dw);
    q.db = db_there && !q.behind ? parity_fill(p, PARITY_AT, q.c, -1, 1) : NULL;
    if (q.db)
        parity_unread(p, q.db);
    q.y = parity_zero(p, PARITY_CT, q.n * q.c);
    q.mean = parity_zero(p, PARITY_AT, q.n);
    q.rstd = parity_zero(p, PARITY_AT, q.n);
    struct norm a = {.y = q.y->on[0], .mean = q.mean->on[0], .rstd = q.rstd->on[0],
                     .x = q.x->on[0], .w = q.w->on[0], .n = q.n, .c = q.c, .eps = 1e-2,
                     .rms = rms};
    CHECK_OK(dev_norm(p->dev[0], &a));
    parity_agree(p, q.mean);
    parity_agree(p, q.rstd);
    return q;
}

static struct parity_buf *over(const struct norm_problem *q)
{
    return q->over == OVER_D ? q->d : q->over == OVER_X ? q->x : q->dx;
}

static void norm_grad_solve(struct parity *p, const struct norm_problem *q)
{
    for (int s = 0; s < PARITY_SIDES; s++) {
        struct norm_grad a = {.dx = s ? over(q)->on[s] : q->dx->on[0],
                              .d = parity_at(p, q->d, s, 0),
                              .dw = q->dw->on[s],
                              .db = q->behind ? parity_at(p, q->dw, s, q->c)
                                              : parity_at(p, q->db, s, 0),
                              .dy = q->dy->on[s], .x = q->x->on[s], .w = q->w->on[s],
                              .mean = q->rms ? NULL : q->mean->on[s], .rstd = q->rstd->on[s],
                              .n = q->n, .c = q->c, .rms = q->rms};
        CHECK_OK(dev_norm_grad(p->dev[s], &a));
    }
    double xhat = parity_largest(p, q->x) * parity_largest(p, q->rstd) * 2;
    double rstd = parity_largest(p, q->rstd);
    struct parity_buf *dx = over(q); /* ref wrote to its own buffer, which is now copied over */
    if (dx != q->dx)
        CHECK_OK(dev_copy(p->dev[0], dx->on[0], q->dx->on[0], q->n * q->c * dtype_size(DT_F64)));
    parity_check(p, dx, p->calc * (1 + rstd * (2 + xhat * xhat)));
    xhat = q->behind ? fmax(xhat, 1) : xhat;
    parity_check(p, q->dw, p->calc * (1 + 0.5 * (double)q->n * xhat));
    if (q->db)
        parity_check(p, q->db, p->calc * (1 + 0.5 * (double)q->n));
}

static void norm_grad(struct parity *p)
{
    for (int i = 0; i < 2 * (SHAPES + WIDE); i++) {
        struct norm_problem q = norm_problem_of(p, i / 2, i & 1);
        norm_grad_solve(p, &q);
    }
}

static void swiglu(struct parity *p)
{
    for (int i = 0; i < SHAPES + WIDE; i++) {
        int64_t n = rows_with(i), f = cols_of(i, 150);
        parity_problem(p, "swiglu n %d f %d", (int)n, (int)f);
        struct parity_buf *gu = parity_fill(p, PARITY_CT, n * 2 * f, -6, 6);
        struct parity_buf *dy = parity_fill(p, PARITY_CT, n * f, -1, 1);
        struct parity_buf *y = parity_fill(p, PARITY_CT, n * f, -1, 1);
        struct parity_buf *dgu = parity_fill(p, PARITY_CT, n * 2 * f, -1, 1);
        for (int s = 0; s < PARITY_SIDES; s++) {
            struct dev *d = p->dev[s];
            for (int k = 0; k < 2; k++) {
                struct part r = part_of(s, k, n);
                void *gu_at = parity_at(p, gu, s, r.first * 2 * f);
                CHECK_OK(dev_swiglu(
                    d, &(struct swiglu){parity_at(p, y, s, r.first * f), gu_at, r.rows, f}));
                CHECK_OK(dev_swiglu_grad(
                    d, &(struct swiglu_grad){parity_at(p, dgu, s, r.first * 2 * f),
                                             parity_at(p, dy, s, r.first * f), gu_at, r.rows, f}));
            }
        }
        parity_check(p, y, p->calc * 6);
        parity_check(p, dgu, p->calc * 6);
    }
}

/* Large arguments: the sigmoid must end in 0 or 1, not in NaN. */
static void swiglu_far(struct parity *p)
{
    double far[8] = {-1e4, 1e4, -100, 100, 1, -1, 2, 1};
    parity_problem(p, "swiglu of far values");
    struct parity_buf *gu = parity_zero(p, PARITY_CT, 8);
    struct parity_buf *y = parity_zero(p, PARITY_CT, 4);
    struct parity_buf *dgu = parity_zero(p, PARITY_CT, 8);
    parity_set(p, gu, far);
    for (int s = 0; s < PARITY_SIDES; s++) {
        struct dev *d = p->dev[s];
        CHECK_OK(dev_swiglu(d, &(struct swiglu){y->on[s], gu->on[s], 1, 4}));
        CHECK_OK(dev_swiglu_grad(d, &(struct swiglu_grad){dgu->on[s], y->on[s], gu->on[s], 1, 4}));
    }
    parity_check(p, y, p->calc * 1e4);
    for (int s = 0; s < PARITY_SIDES; s++) {
        double got[8];
        parity_get(p, dgu, s, got);
        for (int i = 0; i < 8; i++)
            CHECK(isfinite(got[i]));
    }
}

/* n values, of which many are zeros, the least normal numbers (cpu flushes denormals), and not
 * finite. */
static struct parity_buf *edges(struct parity *p, int64_t n)
{
    static const double edge[] = {0, -0.0, 0x1p-126, -0x1p-126, INFINITY, -INFINITY, NAN};
    struct parity_buf *b = parity_zero(p, PARITY_CT, n);
    double *x = parity_doubles(n);
    for (int64_t i = 0; i < n; i++)
        x[i] = test_range(0, 1) ? edge[test_range(0, 6)] : test_real(-2, 2);
    parity_set(p, b, x);
    mem_free(x);
    return b;
}

/* A choice, not arithmetic: the same bits. dx over dy and y over x on the candidate in every other
 * problem. */
static void relu(struct parity *p)
{
    for (int i = 0; i < SHAPES + WIDE; i++) {
        int64_t n = rows_with(i), c = cols_of(i, 150);
        bool aliased = i & 1;
        parity_problem(p, "relu n %d x %d aliased %d", (int)n, (int)c, aliased);
        struct parity_buf *x = edges(p, n * c), *dy = edges(p, n * c);
        struct parity_buf *y = parity_fill(p, PARITY_CT, n * c, -1, 1);
        struct parity_buf *dx = parity_fill(p, PARITY_CT, n * c, -1, 1);
        for (int s = 0; s < PARITY_SIDES; s++) {
            struct dev *d = p->dev[s];
            bool over = s && aliased;
            for (int k = 0; k < 2; k++) {
                struct part r = part_of(s, k, n);
                int64_t at = r.first * c;
                void *x_at = parity_at(p, x, s, at), *dy_at = parity_at(p, dy, s, at);
                void *dx_at = over ? dy_at : parity_at(p, dx, s, at);
                void *y_at = over ? x_at : parity_at(p, y, s, at);
                CHECK_OK(dev_relu_grad(d, &(struct relu_grad){dx_at, dy_at, x_at, r.rows * c}));
                CHECK_OK(dev_relu(d, &(struct relu){y_at, x_at, r.rows * c}));
            }
        }
        if (aliased) {
            CHECK_OK(dev_copy(p->dev[0], x->on[0], y->on[0], n * c * 8));
            CHECK_OK(dev_copy(p->dev[0], dy->on[0], dx->on[0], n * c * 8));
        }
        parity_check_same(p, aliased ? x : y);
        parity_check_same(p, aliased ? dy : dx);
    }
}

static uint32_t any_step(void)
{
    return (uint32_t)test_range(0, 1000000);
}

/* Its step is a side's. */
static struct drop drop_of(int i)
{
    return (struct drop){.p = i % 3 == 0 ? 0.0 : test_real(0.05, 0.9), .seed = test_random(),
                         .stream = (uint32_t)test_range(0, 1000),
                         .row0 = test_range(0, 1) ? test_range(0, 100000) : (int64_t)1 << 33};
}

/* y over x on the candidate in every other problem; x missing in every fourth. */
static void residual(struct parity *p)
{
    for (int i = 0; i < 2 * SHAPES; i++) {
        int64_t n = rows_of(i), c = test_range(1, 130);
        bool aliased = i & 1, bias_there = test_range(0, 1), x_there = aliased || i % 4 != 2;
        struct drop drop = drop_of(i);
        parity_problem(p, "residual n %d c %d p %g bias %d x %d aliased %d", (int)n, (int)c,
                       drop.p, bias_there, x_there, aliased);
        struct parity_buf *x = x_there ? parity_fill(p, PARITY_CT, n * c, -2, 2) : NULL;
        struct parity_buf *f = parity_fill(p, PARITY_CT, n * c, -2, 2);
        struct parity_buf *bias = bias_there ? parity_fill(p, PARITY_CT, c, -2, 2) : NULL;
        struct parity_buf *y = parity_fill(p, PARITY_CT, n * c, -2, 2);
        struct parity_buf *step = parity_step(p, any_step());
        for (int s = 0; s < PARITY_SIDES; s++) {
            for (int k = 0; k < 2; k++) {
                struct part r = part_of(s, k, n);
                struct drop here = drop;
                here.step = step->on[s];
                here.row0 += r.first;
                struct residual a = {.y = parity_at(p, s && aliased ? x : y, s, r.first * c),
                                     .x = parity_at(p, x, s, r.first * c),
                                     .f = parity_at(p, f, s, r.first * c),
                                     .bias = parity_at(p, bias, s, 0), .n = r.rows, .c = c,
                                     .drop = here};
                CHECK_OK(dev_residual(p->dev[s], &a));
            }
        }
        if (aliased)
            CHECK_OK(dev_copy(p->dev[0], x->on[0], y->on[0], n * c * 8));
        parity_check(p, aliased ? x : y, p->calc * (2 + 4 / (1 - drop.p)));
    }
}

static void dropout(struct parity *p)
{
    for (int i = 0; i < SHAPES; i++) {
        int64_t n = rows_of(i), c = test_range(1, 130);
        struct drop drop = drop_of(i);
        bool aliased = i & 1;
        parity_problem(p, "dropout n %d c %d p %g aliased %d", (int)n, (int)c, drop.p, aliased);
        struct parity_buf *dy = parity_fill(p, PARITY_CT, n * c, -2, 2);
        struct parity_buf *dx = parity_fill(p, PARITY_CT, n * c, -2, 2);
        struct parity_buf *step = parity_step(p, any_step());
        for (int s = 0; s < PARITY_SIDES; s++) {
            for (int k = 0; k < 2; k++) {
                struct part r = part_of(s, k, n);
                struct drop here = drop;
                here.step = step->on[s];
                here.row0 += r.first;
                CHECK_OK(dev_dropout(
                    p->dev[s],
                    &(struct dropout){parity_at(p, s && aliased ? dy : dx, s, r.first * c),
                                      parity_at(p, dy, s, r.first * c), r.rows, c, here}));
            }
        }
        if (aliased)
            CHECK_OK(dev_copy(p->dev[0], dy->on[0], dx->on[0], n * c * 8));
        parity_check(p, aliased ? dy : dx, p->calc * 2 / (1 - drop.p));
    }
}

/* The mask is a definition, not an approximation: zero exactly where num_drop_kept says so. Philox
 * counts groups of four elements in two words; half of the problems lie where the first one turns
 * over. */
static void dropout_mask(struct parity *p)
{
    for (int i = 1; i < SHAPES; i++) {
        int64_t n = test_range(1, 40), c = test_range(1, 70);
        struct drop drop = drop_of(1);
        if (i % 2)
            drop.row0 = ((int64_t)4 << 32) / c - test_range(0, n - 1);
        parity_problem(p, "dropout mask n %d c %d p %g", (int)n, (int)c, drop.p);
        struct parity_buf *dy = parity_fill(p, PARITY_CT, n * c, 1, 2);
        struct parity_buf *dx = parity_zero(p, PARITY_CT, n * c);
        struct parity_buf *y = parity_zero(p, PARITY_CT, n * c);
        double *got = parity_doubles(n * c), *sum = parity_doubles(n * c);
        uint32_t number = any_step();
        struct parity_buf *step = parity_step(p, number);
        for (int s = 0; s < PARITY_SIDES; s++) {
            struct dev *d = p->dev[s];
            drop.step = step->on[s];
            CHECK_OK(dev_dropout(d, &(struct dropout){dx->on[s], dy->on[s], n, c, drop}));
            struct residual a = {.y = y->on[s], .f = dy->on[s], .n = n, .c = c, .drop = drop};
            CHECK_OK(dev_residual(d, &a));
            parity_get(p, dx, s, got);
            parity_get(p, y, s, sum);
            for (int64_t e = 0; e < n * c; e++) {
                bool kept = num_drop_kept(drop.seed, drop.stream, number, drop.row0 * c + e,
                                          num_drop_threshold(drop.p));
                test_check((got[e] != 0) == kept && (sum[e] != 0) == kept, __FILE__, __LINE__,
                           "%s: %s: element %d is %g and %g, kept %d", p->label, p->what, (int)e,
                           got[e], sum[e], kept);
            }
        }
        mem_free(got);
        mem_free(sum);
    }
}

static void case_layer(void)
{
    parity_each("norm", norm_layer);
}

static void case_rms(void)
{
    parity_each("norm, rms", norm_rms);
}

static void case_norm_grad(void)
{
    parity_each("norm_grad", norm_grad);
}

static void case_swiglu(void)
{
    parity_each("swiglu", swiglu);
}

static void case_swiglu_far(void)
{
    parity_each("swiglu, far values", swiglu_far);
}

static void case_relu(void)
{
    parity_each("relu", relu);
}

/* The sum is stored in ct before its norm is taken, so the norm's operand has that rounding. */
static void residual_norm_one(struct parity *p, int i, bool rms)
{
    int64_t n = rows_with(i), c = cols_of(i, 130);
    bool bias_there = test_range(0, 1), b_there = !rms && test_range(0, 1);
    struct drop drop = drop_of(i);
    parity_problem(p, "residual_norm n %d c %d rms %d p %g bias %d b %d", (int)n, (int)c, rms,
                   drop.p, bias_there, b_there);
    struct parity_buf *x = parity_fill(p, PARITY_CT, n * c, -2, 2);
    struct parity_buf *f = parity_fill(p, PARITY_CT, n * c, -2, 2);
    struct parity_buf *bias = bias_there ? parity_fill(p, PARITY_CT, c, -2, 2) : NULL;
    struct parity_buf *w = parity_fill(p, PARITY_CT, c, -1, 1);
    struct parity_buf *b = b_there ? parity_fill(p, PARITY_CT, c, -1, 1) : NULL;
    struct parity_buf *sum = parity_zero(p, PARITY_CT, n * c);
    struct parity_buf *y = parity_zero(p, PARITY_CT, n * c);
    struct parity_buf *mean = parity_zero(p, PARITY_AT, n), *rstd = parity_zero(p, PARITY_AT, n);
    struct parity_buf *step = parity_step(p, any_step());
    for (int s = 0; s < PARITY_SIDES; s++) {
        for (int k = 0; k < 2; k++) {
            struct part r = part_of(s, k, n);
            struct drop here = drop;
            here.step = step->on[s];
            here.row0 += r.first;
            struct residual add = {.y = parity_at(p, sum, s, r.first * c),
                                   .x = parity_at(p, x, s, r.first * c),
                                   .f = parity_at(p, f, s, r.first * c),
                                   .bias = parity_at(p, bias, s, 0), .n = r.rows, .c = c,
                                   .drop = here};
            struct norm of = {.y = parity_at(p, y, s, r.first * c), .x = add.y,
                              .mean = parity_at(p, mean, s, r.first),
                              .rstd = parity_at(p, rstd, s, r.first),
                              .w = parity_at(p, w, s, 0), .b = parity_at(p, b, s, 0),
                              .n = r.rows, .c = c, .eps = 1e-2, .rms = rms};
            CHECK_OK(dev_residual_norm(p->dev[s], &(struct residual_norm){add, of}));
        }
    }
    double largest = parity_largest(p, sum), scale = parity_largest(p, rstd);
    double size = largest * scale, off = p->calc + p->inner;
    parity_check(p, sum, p->calc * (2 + 4 / (1 - drop.p)));
    parity_check(p, rstd, off * (1 + size) * scale);
    if (!rms)
        parity_check(p, mean, off * largest);
    parity_check(p, y, off * (1 + size) * (1 + size));
}

static void residual_norm(struct parity *p)
{
    for (int i = 0; i < SHAPES + WIDE; i++) {
        residual_norm_one(p, i, false);
        residual_norm_one(p, i, true);
    }
}
static void case_residual_norm(void)
{
    parity_each("residual_norm", residual_norm);
}

static void case_residual(void)
{
    parity_each("residual", residual);
}

static void case_dropout(void)
{
    parity_each("dropout", dropout);
}

static void case_mask(void)
{
    parity_each("dropout mask", dropout_mask);
}

static const struct test_case cases[] = {
    {"devices", parity_devices},
    {"norm: mean and variance", case_layer},
    {"norm: root mean square", case_rms},
    {"norm_grad: both kinds, dx over d and x, no d, no db", case_norm_grad},
    {"swiglu: forward and gradient", case_swiglu},
    {"swiglu: far values stay finite", case_swiglu_far},
    {"relu: forward and gradient, in place and not, not finite", case_relu},
    {"residual: bias, no x, y over x, dropout", case_residual},
    {"residual and the norm of it", case_residual_norm},
    {"dropout: in place and not", case_dropout},
    {"dropout: the mask is exact", case_mask},
};
TEST_MAIN(cases)
