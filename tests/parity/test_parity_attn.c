/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention and rotary positions. Half of the problems keep q, k and v in one buffer, row by row,
 * as a fused projection leaves them; when queries are fewer than keys, q stands alone and k and v
 * share one. Side 2 repeats the call; forwards it does so one sequence at a time, which must give
 * the same bits.
 */
#include "parity.h"

#include "base/mem.h"
#include <stdlib.h>

enum { SHAPES = 40 };

/* Where a matrix begins and how far its rows are apart. */
struct slice {
    struct parity_buf *in;
    int64_t offset, ld;
};

struct problem {
    struct attn f; /* shape; addresses are a side's */
    struct slice q, k, v, dq, dk, dv;
    struct parity_buf *o, *lse, *do_, *delta, *step;
};

static struct attn shape_of(int i)
{
    struct attn f = {.b = i == 0 ? 0 : test_range(1, 3), .kv_heads = test_range(1, 3)};
    f.heads = f.kv_heads * test_range(1, 3);
    f.d = i % 5 == 4 ? 64 : test_range(1, 40);
    f.tk = i == 1 ? 1 : test_range(1, 70);
    f.tq = i % 3 == 0 ? test_range(1, f.tk) : f.tk;
    f.scale = 1 / sqrt((double)f.d);
    f.heads_total = f.heads * 2;
    f.head0 = f.heads * test_range(0, 1);
    if (i % 2)
        f.drop = (struct drop){.p = test_real(0.05, 0.6), .seed = test_random(), .stream = 9,
                               .row0 = test_range(0, 1000)};
    return f;
}

/* Lengths of whole blocks and heads of common sizes, aligned: what a device may have another kernel
 * for. Then lengths that end inside a block. */
static const struct attn blocks[] = {
    {.b = 2, .tq = 128, .tk = 128, .heads = 2, .kv_heads = 2, .d = 64},
    {.b = 1, .tq = 256, .tk = 256, .heads = 4, .kv_heads = 2, .d = 64},
    {.b = 1, .tq = 128, .tk = 256, .heads = 3, .kv_heads = 1, .d = 64},
    {.b = 2, .tq = 128, .tk = 128, .heads = 2, .kv_heads = 1, .d = 128},
    {.b = 1, .tq = 256, .tk = 256, .heads = 2, .kv_heads = 2, .d = 128},
    {.b = 1, .tq = 128, .tk = 256, .heads = 2, .kv_heads = 2, .d = 128},
    {.b = 1, .tq = 200, .tk = 200, .heads = 2, .kv_heads = 1, .d = 64},
    {.b = 1, .tq = 65, .tk = 193, .heads = 2, .kv_heads = 2, .d = 128},
    {.b = 2, .tq = 384, .tk = 384, .heads = 5, .kv_heads = 5, .d = 64},
    {.b = 3, .tq = 200, .tk = 200, .heads = 2, .kv_heads = 2, .d = 64},
    {.b = 2, .tq = 1, .tk = 1, .heads = 3, .kv_heads = 3, .d = 64},
    /* more pairs of sequence and head than a large GPU has SMs */
    {.b = 8, .tq = 130, .tk = 130, .heads = 17, .kv_heads = 17, .d = 64},
    /* and several times as many, of one block of rows each */
    {.b = 10, .tq = 20, .tk = 20, .heads = 40, .kv_heads = 40, .d = 64},
};
enum { BLOCKS = sizeof blocks / sizeof *blocks };

/* How rows lie: q, k and v in one buffer or not, and elements between the rows of q and of o. */
struct layout {
    bool fused;
    int64_t pad_q, pad_o;
};

/* Cuts q, k, v (or their gradients) out of one buffer, two, or three. */
static void lay_out(struct parity *p, const struct attn *f, struct layout how, struct slice s[3])
{
    int64_t wq = f->heads * f->d, wk = f->kv_heads * f->d, nq = f->b * f->tq, nk = f->b * f->tk;
    if (how.fused && f->tq == f->tk) {
        int64_t ld = wq + 2 * wk;
        struct parity_buf *all = parity_fill(p, PARITY_CT, nq * ld, -1, 1);
        s[0] = (struct slice){all, 0, ld};
        s[1] = (struct slice){all, wq, ld};
        s[2] = (struct slice){all, wq + wk, ld};
    } else {
        struct parity_buf *kv = parity_fill(p, PARITY_CT, nk * 2 * wk, -1, 1);
        int64_t ld = wq + how.pad_q;
        s[0] = (struct slice){parity_fill(p, PARITY_CT, nq * ld, -1, 1), 0, ld};
        s[1] = (struct slice){kv, 0, 2 * wk};
        s[2] = (struct slice){kv, wk, 2 * wk};
    }
}

static struct problem make_of(struct parity *p, struct attn shape, struct layout how)
{
    struct problem x = {.f = shape};
    struct attn *f = &x.f;
    struct slice s[3], g[3];
    parity_problem(p, "attention b %d tq %d tk %d heads %d kv %d d %d fused %d p %g", (int)f->b,
                   (int)f->tq, (int)f->tk, (int)f->heads, (int)f->kv_heads, (int)f->d, how.fused,
                   f->drop.p);
    lay_out(p, f, how, s);
    lay_out(p, f, how, g);
    f->ldq = s[0].ld;
    f->ldk = s[1].ld;
    f->ldv = s[2].ld;
    f->ldo = f->heads * f->d + how.pad_o;
    x.q = s[0];
    x.k = s[1];
    x.v = s[2];
    x.dq = g[0];
    x.dk = g[1];
    x.dv = g[2];
    x.o = parity_fill(p, PARITY_CT, f->b * f->tq * f->ldo, -1, 1);
    x.do_ = parity_fill(p, PARITY_CT, f->b * f->tq * f->ldo, -1, 1);
    x.lse = parity_zero(p, PARITY_AT, f->b * f->tq * f->heads);
    x.delta = parity_zero(p, PARITY_AT, f->b * f->tq * f->heads);
    x.step = parity_step(p, (uint32_t)test_range(0, 1000));
    return x;
}

static struct problem make(struct parity *p, int i)
{
    struct attn f = shape_of(i);
    bool fused = test_range(0, 1);
    return make_of(p, f, (struct layout){fused, fused ? 5 : 0, fused ? 3 : 0});
}

static struct problem make_blocks(struct parity *p, int i)
{
    struct attn f = blocks[i];
    f.scale = 1 / sqrt((double)f.d);
    f.heads_total = f.heads;
    return make_of(p, f, (struct layout){i % 2 == 0, 8, i % 3 * 8});
}

static void *slice_at(const struct parity *p, struct slice s, int side, int64_t row)
{
    return parity_at(p, s.in, side, s.offset + row * s.ld);
}

/* The call on one side for sequences first..first+b-1. */
static struct attn attn_on(const struct parity *p, const struct problem *x, int side,
                           int64_t first, int64_t b)
{
    struct attn f = x->f;
    int64_t rows = first * f.tq;
    f.q = slice_at(p, x->q, side, rows);
    f.k = slice_at(p, x->k, side, first * f.tk);
    f.v = slice_at(p, x->v, side, first * f.tk);
    f.o = parity_at(p, x->o, side, rows * f.ldo);
    f.lse = parity_at(p, x->lse, side, rows * f.heads);
    f.drop.row0 += rows;
    f.drop.step = x->step->on[side];
    f.b = b;
    return f;
}

static void forward(struct parity *p, const struct problem *x)
{
    for (int s = 0; s < PARITY_SIDES; s++) {
        int64_t parts = s == 2 && x->f.b > 0 ? x->f.b : 1, each = x->f.b / parts;
        for (int64_t i = 0; i < parts; i++) {
            struct attn f = attn_on(p, x, s, i * each, each);
            CHECK_OK(dev_attn(p->dev[s], &f));
        }
    }
}

static void check_forward(struct parity *p, const struct problem *x)
{
    double v = parity_largest(p, x->v.in), keep = 1 - x->f.drop.p;
    forward(p, x);
    parity_check(p, x->o, p->inner * v / keep);
    parity_check(p, x->lse, p->calc * (1 + parity_largest(p, x->lse)));
    parity_check_same(p, x->q.in);
    parity_check_same(p, x->k.in);
}

static void attn(struct parity *p)
{
    for (int i = 0; i < SHAPES; i++) {
        struct problem x = make(p, i);
        check_forward(p, &x);
    }
}

static void attn_blocks(struct parity *p)
{
    for (int i = 0; i < BLOCKS; i++) {
        struct problem x = make_blocks(p, i);
        check_forward(p, &x);
    }
}

static void backward(struct parity *p, const struct problem *x)
{
    for (int s = 0; s < PARITY_SIDES; s++) {
        struct attn_grad g = {.f = attn_on(p, x, s, 0, x->f.b),
                              .do_ = parity_at(p, x->do_, s, 0),
                              .dq = slice_at(p, x->dq, s, 0),
                              .dk = slice_at(p, x->dk, s, 0),
                              .dv = slice_at(p, x->dv, s, 0),
                              .delta = parity_at(p, x->delta, s, 0)};
        CHECK_OK(dev_attn_grad(p->dev[s], &g));
    }
}

/* The bound of a gradient: one term of its sum, whose size is that of do . v times that of q or k,
 * and the largest result. The three may share a buffer, so it is taken over all. */
static void check_backward(struct parity *p, const struct problem *x)
{
    struct attn f = attn_on(p, x, 0, 0, x->f.b);
    CHECK_OK(dev_attn(p->dev[0], &f));
    parity_agree(p, x->o);
    parity_agree(p, x->lse);
    backward(p, x);
    double term = f.scale * sqrt((double)f.d) / (1 - f.drop.p);
    double largest = fmax(parity_largest(p, x->dq.in), parity_largest(p, x->dk.in));
    parity_check(p, x->dq.in, p->inner * (largest + term));
    if (x->dk.in != x->dq.in)
        parity_check(p, x->dk.in, p->inner * (largest + term));
    parity_check_same(p, x->o);
    parity_check_same(p, x->do_);
}

static void attn_grad(struct parity *p)
{
    for (int i = 0; i < SHAPES; i++) {
        struct problem x = make(p, i);
        check_backward(p, &x);
    }
}

static void attn_grad_blocks(struct parity *p)
{
    for (int i = 0; i < BLOCKS; i++) {
        struct problem x = make_blocks(p, i);
        check_backward(p, &x);
    }
}

enum { MASK_STEP = 7 };

/* t queries and keys of two heads out of six; v and do of row r are the unit vector r. */
static struct problem unit_problem(struct parity *p, int64_t t)
{
    struct problem x = {.f = {.b = 1, .tq = t, .tk = t, .heads = 2, .kv_heads = 2, .d = t,
                              .ldq = 2 * t, .ldk = 2 * t, .ldv = 2 * t, .ldo = 2 * t,
                              .scale = 0.1, .heads_total = 6, .head0 = 3}};
    x.f.drop = (struct drop){.p = 0.4, .seed = test_random(), .stream = 3,
                             .row0 = ((int64_t)1 << 32) + 5};
    struct slice *matrices[6] = {&x.q, &x.k, &x.v, &x.dq, &x.dk, &x.dv};
    int64_t n = t * 2 * t;
    parity_problem(p, "attention mask t %d", (int)t);
    for (int i = 0; i < 6; i++)
        *matrices[i] = (struct slice){parity_fill(p, PARITY_CT, n, -1, 1), 0, 2 * t};
    x.o = parity_zero(p, PARITY_CT, n);
    x.do_ = parity_zero(p, PARITY_CT, n);
    x.lse = parity_zero(p, PARITY_AT, t * 2);
    x.delta = parity_zero(p, PARITY_AT, t * 2);
    x.step = parity_step(p, MASK_STEP);
    double *unit = parity_doubles(n);
    for (int64_t r = 0; r < t; r++)
        unit[r * 2 * t + r] = unit[r * 2 * t + t + r] = 1;
    parity_set(p, x.v.in, unit);
    parity_set(p, x.do_, unit);
    mem_free(unit);
    return x;
}

static void check_mask(struct parity *p, const struct problem *x, int side)
{
    int64_t t = x->f.tq;
    const struct drop *drop = &x->f.drop;
    double *o = parity_doubles(x->o->n), *dv = parity_doubles(x->o->n);
    parity_get(p, x->o, side, o);
    parity_get(p, x->dv.in, side, dv);
    for (int64_t e = 0; e < t * 2 * t; e++) {
        int64_t row = e / (2 * t), head = e / t % 2, key = e % t;
        int64_t index = ((drop->row0 + row) * 6 + 3 + head) * t + key;
        bool kept = key <= row && num_drop_kept(drop->seed, drop->stream, MASK_STEP, index,
                                                num_drop_threshold(drop->p));
        test_check((o[e] != 0) == kept && (dv[key * 2 * t + head * t + row] != 0) == kept,
                   __FILE__, __LINE__, "%s: %s: row %d head %d key %d: kept %d", p->label, p->what,
                   (int)row, (int)head, (int)key, kept);
    }
    mem_free(o);
    mem_free(dv);
}

/* With v of key j the unit vector j, element j of an output is m_j p_j: zero where dropped. With do
 * of query i the unit vector i, element i of dv_j is the same. */
static void attn_mask(struct parity *p)
{
    for (int64_t t = 1; t <= 41; t += 8) {
        struct problem x = unit_problem(p, t);
        forward(p, &x);
        backward(p, &x);
        for (int s = 0; s < PARITY_SIDES; s++)
            check_mask(p, &x, s);
    }
}

/* Scores far apart and far from zero: the maximum must be taken out of the exponents. */
static void attn_far(struct parity *p)
{
    struct problem x = make(p, 8);
    x.f.scale = 300;
    forward(p, &x);
    /* the scores themselves are 300 times larger, and with them their rounding */
    double error = p->calc * 300 * (double)x.f.d;
    parity_check(p, x.o, (error + p->inner) * parity_largest(p, x.v.in) * 4);
    parity_check(p, x.lse, error);
}

/* Table rows are cos and sin of pos / 100^(2i/d). */
static struct parity_buf *angles(struct parity *p, int64_t positions, int64_t d)
{
    struct parity_buf *table = parity_zero(p, PARITY_AT, positions * d);
    double *x = parity_doubles(positions * d);
    for (int64_t r = 0; r < positions; r++) {
        for (int64_t i = 0; i < d / 2; i++) {
            double angle = (double)r * pow(100, -2.0 * (double)i / (double)d);
            x[r * d + i] = cos(angle);
            x[r * d + d / 2 + i] = sin(angle);
        }
    }
    parity_set(p, table, x);
    mem_free(x);
    return table;
}

static void rope(struct parity *p)
{
    for (int i = 0; i < SHAPES; i++) {
        struct rope a = {.t = test_range(1, 20), .pos0 = test_range(0, 9),
                         .heads = test_range(1, 4), .d = 2 * test_range(1, 33), .inverse = i & 1};
        a.n = a.t * (i ? test_range(1, 3) : 0);
        a.ld = a.heads * a.d + (test_range(0, 1) ? test_range(1, 40) : 0);
        parity_problem(p, "rope n %d t %d pos0 %d heads %d d %d ld %d inverse %d", (int)a.n,
                       (int)a.t, (int)a.pos0, (int)a.heads, (int)a.d, (int)a.ld, a.inverse);
        struct parity_buf *table = angles(p, a.pos0 + a.t, a.d);
        struct parity_buf *x = parity_fill(p, PARITY_CT, a.n * a.ld, -2, 2);
        for (int s = 0; s < PARITY_SIDES; s++) {
            struct rope first = a, rest = a;
            first.x = parity_at(p, x, s, 0);
            rest.x = parity_at(p, x, s, a.t * a.ld);
            first.table = rest.table = table->on[s];
            if (s == 2 && a.n) { /* by parts: a whole sequence first */
                first.n = a.t;
                rest.n = a.n - a.t;
                CHECK_OK(dev_rope(p->dev[s], &rest));
            }
            CHECK_OK(dev_rope(p->dev[s], &first));
        }
        parity_check(p, x, p->calc * 4);
    }
}

static void case_attn(void)
{
    parity_each("attn", attn);
}

static void case_grad(void)
{
    parity_each("attn_grad", attn_grad);
}

static void case_blocks(void)
{
    parity_each("attn, blocks", attn_blocks);
}

static void case_grad_blocks(void)
{
    parity_each("attn_grad, blocks", attn_grad_blocks);
}

/* Else the case is skipped. */
static bool gpu_here(void)
{
    struct dev_args args = {.kind = DEV_CUDA, .ct = DT_BF16, .threads = 1};
    struct dev *d = NULL;
    bool here = dev_built(DEV_CUDA) && dev_open(&args, &d) == ERR_OK;
    if (!here)
        test_skip("no GPU here");
    dev_close(d);
    return here;
}

/* A way that a GPU has, wherever it can; it bears on no other device, so no other is asked. A case
 * a way: most of its time is the host's, for ref, and cases may run side by side. */
static void grad_way(enum dev_attn_grad way, const char *name)
{
    if (!gpu_here())
        return;
    CHECK(parity_each_gpu(way, name, attn_grad_blocks) > 0);
}

static void case_grad_hopper(void)
{
    grad_way(DEV_GRAD_HOPPER, "hopper");
}

static void case_grad_cudnn(void)
{
    grad_way(DEV_GRAD_CUDNN, "cudnn");
}

static void case_grad_own(void)
{
    grad_way(DEV_GRAD_OWN, "own");
}

static void case_mask(void)
{
    parity_each("attn mask", attn_mask);
}

static void case_far(void)
{
    parity_each("attn, far scores", attn_far);
}

static void case_rope(void)
{
    parity_each("rope", rope);
}

static const struct test_case cases[] = {
    {"devices", parity_devices},
    {"attn: groups, fewer queries, strides, dropout", case_attn},
    {"attn: whole blocks, aligned", case_blocks},
    {"attn: far scores", case_far},
    {"attn_grad: groups, fewer queries, strides, dropout", case_grad},
    {"attn_grad: whole blocks, aligned", case_grad_blocks},
    {"attn_grad: a GPU's kernels for Hopper", case_grad_hopper},
    {"attn_grad: a GPU's cuDNN", case_grad_cudnn},
    {"attn_grad: a GPU's other kernels", case_grad_own},
    {"attn: the mask is exact, both ways", case_mask},
    {"rope: both ways, strided, offset", case_rope},
};
TEST_MAIN(cases)
