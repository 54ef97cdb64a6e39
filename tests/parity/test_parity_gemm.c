/* SPDX-License-Identifier: Apache-2.0
 *
 * GEMMs on every device: the four transpositions, odd sizes, strides beyond tight, bias,
 * accumulation, results in at, both activations. The scale of an element is its product of
 * magnitudes, sum |a| |b| + |bias| + |c|, found by the same call on ref with absolute values.
 */
#include "parity.h"

#include "base/mem.h"

enum { SHAPES = 14, BIGGEST = 130 };

/* A stored matrix: rows, tight width, stride; stride 0 in half of the problems. */
struct matrix { int64_t rows, width, ld, elements; };

static struct matrix matrix_of(int64_t rows, int64_t width, bool strided)
{
    struct matrix x = {.rows = rows, .width = width, .ld = strided ? width + test_range(1, 9) : 0};
    int64_t ld = x.ld ? x.ld : width;
    x.elements = rows > 0 ? (rows - 1) * ld + width : 0;
    return x;
}

struct problem {
    struct gemm g; /* shape and flags; addresses are a side's */
    struct matrix ma, mb, mc;
    struct parity_buf *a, *b, *c, *bias, *pre;
};

/* What C holds where a GEMM writes it: NaN, which must leave no trace. */
static void unread(struct parity *p, const struct problem *q)
{
    int64_t ld = q->mc.ld ? q->mc.ld : q->mc.width;
    double *c = parity_doubles(q->mc.elements);
    parity_get(p, q->c, 0, c);
    for (int64_t i = 0; i < q->mc.elements; i++)
        if (i % ld < q->mc.width)
            c[i] = NAN;
    parity_set(p, q->c, c);
    mem_free(c);
}

static struct problem make(struct parity *p, struct gemm g, bool strided)
{
    struct problem q = {.g = g};
    q.ma = g.trans_a ? matrix_of(g.k, g.m, strided) : matrix_of(g.m, g.k, strided);
    q.mb = g.trans_b ? matrix_of(g.n, g.k, strided) : matrix_of(g.k, g.n, strided);
    q.mc = matrix_of(g.m, g.n, strided && g.act == GEMM_NONE);
    q.g.lda = q.ma.ld;
    q.g.ldb = q.mb.ld;
    q.g.ldc = q.mc.ld;
    q.a = parity_fill(p, PARITY_CT, q.ma.elements, -1, 1);
    q.b = parity_fill(p, PARITY_CT, q.mb.elements, -1, 1);
    q.c = parity_fill(p, g.c_at ? PARITY_AT : PARITY_CT, q.mc.elements, -2, 2);
    if (!g.accumulate)
        unread(p, &q);
    q.pre = g.act == GEMM_NONE ? NULL : parity_fill(p, PARITY_CT, g.m * g.n, -4, 4);
    return q;
}

static struct gemm gemm_on(const struct parity *p, const struct problem *q, int side)
{
    struct gemm g = q->g;
    g.a = parity_at(p, q->a, side, 0);
    g.b = parity_at(p, q->b, side, 0);
    g.c = parity_at(p, q->c, side, 0);
    g.bias = parity_at(p, q->bias, side, 0);
    g.pre = parity_at(p, q->pre, side, 0);
    return g;
}

static double *magnitudes(struct parity *p, const struct parity_buf *b)
{
    if (!b)
        return NULL;
    double *x = parity_doubles(b->n);
    parity_get(p, b, 0, x);
    for (int64_t i = 0; i < b->n; i++)
        x[i] = fabs(x[i]);
    return x;
}

/* The GEMM of magnitudes times `error`, one for each stored element of C; before the GEMM. */
static double *bounds(struct parity *p, const struct problem *q, double error)
{
    double *a = magnitudes(p, q->a), *b = magnitudes(p, q->b), *c = magnitudes(p, q->c);
    double *bias = magnitudes(p, q->bias);
    struct gemm g = q->g;
    g.a = a;
    g.b = b;
    g.c = c;
    g.bias = bias;
    g.act = GEMM_NONE;
    CHECK_OK(dev_gemm(p->dev[0], &g));
    for (int64_t i = 0; i < q->c->n; i++)
        c[i] *= error;
    mem_free(a);
    mem_free(b);
    mem_free(bias);
    return c;
}

static void solve(struct parity *p, const struct problem *q)
{
    /* gelu may be taken of `pre` as rounded to ct; its slope and its change are below 1.2 */
    bool rounded = q->g.act == GEMM_GELU;
    double *c = bounds(p, q, (q->g.act ? 1.2 : 1.0) * (rounded ? p->inner : p->calc));
    double *pre = bounds(p, q, p->calc);
    for (int s = 0; s < PARITY_SIDES; s++) {
        struct gemm g = gemm_on(p, q, s);
        CHECK_OK(dev_gemm(p->dev[s], &g));
    }
    parity_check_each(p, q->c, c);
    if (q->pre)
        parity_check_each(p, q->pre, pre);
    parity_check_same(p, q->a);
    parity_check_same(p, q->b);
    mem_free(c);
    mem_free(pre);
}

/* i counts problems: its bits choose transpositions, strides, bias and the kind of result. */
static void one_of(struct parity *p, int i, enum gemm_act act, const int64_t size[3])
{
    struct gemm g = {.m = size[0], .n = size[1], .k = size[2], .act = act};
    g.trans_a = i & 1;
    g.trans_b = i & 2;
    g.c_at = test_range(0, 1);
    g.accumulate = act == GEMM_NONE && g.c_at && test_range(0, 1);
    bool strided = test_range(0, 1), bias = test_range(0, 1);
    parity_problem(p, "gemm %s%s m %d n %d k %d act %d c_at %d accumulate %d strided %d bias %d",
                   g.trans_a ? "T" : "N", g.trans_b ? "T" : "N", (int)g.m, (int)g.n, (int)g.k,
                   (int)act, g.c_at, g.accumulate, strided, bias);
    struct problem q = make(p, g, strided);
    q.bias = bias ? parity_fill(p, PARITY_CT, g.n, -2, 2) : NULL;
    solve(p, &q);
}

static void one(struct parity *p, int i, enum gemm_act act, int64_t m)
{
    one_of(p, i, act, (const int64_t[]){m, test_range(1, BIGGEST), test_range(1, BIGGEST)});
}

/* Extents around what the cpu computes at once (192 rows, 512 columns, 1024 of a sum). */
static void gemm_blocks(struct parity *p)
{
    static const int64_t sizes[][3] = {
        {200, 530, 1100}, {192, 512, 1024}, {193, 40, 1025}, {7, 513, 3}};
    static const enum gemm_act acts[] = {GEMM_NONE, GEMM_NONE, GEMM_GELU, GEMM_DGELU};
    for (int i = 0; i < 4; i++)
        for (int form = 0; form < 4; form++)
            one_of(p, form, acts[(i + form) % 4], sizes[i]);
}

static void gemm_plain(struct parity *p)
{
    for (int i = 0; i < 4 * SHAPES; i++)
        one(p, i, GEMM_NONE, test_range(1, BIGGEST));
}

static void gemm_gelu(struct parity *p)
{
    for (int i = 0; i < 2 * SHAPES; i++)
        one(p, i, GEMM_GELU, test_range(1, BIGGEST));
}

static void gemm_dgelu(struct parity *p)
{
    for (int i = 0; i < 2 * SHAPES; i++)
        one(p, i, GEMM_DGELU, test_range(1, BIGGEST));
}

static void gemm_no_rows(struct parity *p)
{
    for (int i = 0; i < 4; i++) {
        one(p, i, GEMM_NONE, 0);
        one(p, i, GEMM_GELU, 0);
        one(p, i, GEMM_DGELU, 0);
    }
}

static void gemm_one_row(struct parity *p)
{
    for (int i = 0; i < SHAPES; i++)
        one(p, i, GEMM_NONE, 1);
}

static void bias_grad(struct parity *p)
{
    for (int i = 0; i < SHAPES; i++) {
        int64_t n = i ? test_range(1, BIGGEST) : 0, c = test_range(1, BIGGEST);
        parity_problem(p, "bias_grad n %d c %d", (int)n, (int)c);
        struct parity_buf *dy = parity_fill(p, PARITY_CT, n * c, -1, 1);
        struct parity_buf *db = parity_fill(p, PARITY_AT, c, -1, 1);
        for (int s = 0; s < PARITY_SIDES; s++)
            CHECK_OK(dev_bias_grad(p->dev[s], &(struct bias_grad){db->on[s], dy->on[s], n, c}));
        parity_check(p, db, p->calc * (0.5 * (double)n + 1));
    }
}

static void case_plain(void)
{
    parity_each("gemm", gemm_plain);
}

static void case_gelu(void)
{
    parity_each("gemm with gelu", gemm_gelu);
}

static void case_dgelu(void)
{
    parity_each("gemm with dgelu", gemm_dgelu);
}

static void case_no_rows(void)
{
    parity_each("gemm of no rows", gemm_no_rows);
}

static void case_one_row(void)
{
    parity_each("gemm of one row", gemm_one_row);
}

/* The bias' gradient beside the weight's, which is added to or written. */
static void with_bias_grad(struct parity *p)
{
    for (int i = 0; i < SHAPES; i++) {
        struct gemm g = {.m = test_range(1, 90), .n = test_range(1, 90), .k = test_range(0, 200),
                         .trans_a = true, .c_at = true, .accumulate = i & 1};
        int64_t off = i % 8 < 4 ? 0 : test_range(1, 3); /* where db begins */
        if (i % 7 == 6)
            g.n = 0; /* the bias is there all the same */
        if (i % 4 == 3) { /* whole tiles */
            g.m = 16 * test_range(1, 8);
            g.n = 16 * test_range(1, 8);
            g.k = 64 * test_range(1, 4);
        }
        parity_problem(p, "gemm with db m %d n %d k %d accumulate %d", (int)g.m, (int)g.n,
                       (int)g.k, g.accumulate);
        struct parity_buf *a = parity_fill(p, PARITY_CT, g.k * g.m, -1, 1);
        struct parity_buf *b = parity_fill(p, PARITY_CT, g.k * g.n, -1, 1);
        struct parity_buf *c = parity_fill(p, PARITY_AT, g.m * g.n, -1, 1);
        struct parity_buf *db = parity_fill(p, PARITY_AT, off + g.m, -1, 1);
        if (!g.accumulate && off == 0)
            parity_unread(p, db);
        for (int s = 0; s < PARITY_SIDES; s++) {
            struct gemm one = g;
            one.a = a->on[s];
            one.b = b->on[s];
            one.c = c->on[s];
            one.db = parity_at(p, db, s, off);
            CHECK_OK(dev_gemm(p->dev[s], &one));
        }
        parity_check(p, c, p->calc * (1 + (double)g.k));
        parity_check(p, db, p->calc * (1 + (double)g.k));
    }
}

static void case_with_bias_grad(void)
{
    parity_each("gemm with db", with_bias_grad);
}

static void case_bias_grad(void)
{
    parity_each("bias_grad", bias_grad);
}

static void case_blocks(void)
{
    parity_each("gemm blocks", gemm_blocks);
}

static const struct test_case cases[] = {
    {"devices", parity_devices},
    {"gemm: transpositions, sizes, strides, bias, accumulate, c_at", case_plain},
    {"gemm: extents around the cpu's blocks", case_blocks},
    {"gemm: gelu and what stands before it", case_gelu},
    {"gemm: times the slope of gelu", case_dgelu},
    {"gemm: no rows", case_no_rows},
    {"gemm: one row", case_one_row},
    {"bias_grad", case_bias_grad},
    {"gemm: the bias' gradient beside the weight's", case_with_bias_grad},
};
TEST_MAIN(cases)
