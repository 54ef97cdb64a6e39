/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on AMX tiles and its gradient, on any processor: amx_attn.h and amx_attn_grad.h with
 * tiles in plain C against the reference device, within the bounds of bf16 of the parity tests
 * (rounding of the result, and one part in 256 of what is added). Then the promises on bits: the
 * same however the work is cut, and for each head alone as among others. Where the processor has
 * tiles, the parity tests judge the real ones.
 */
#define AMX_EMULATED
#include "device/cpu/amx_attn.h"
#include "device/cpu/amx_attn_grad.h"

#include "base/mem.h"
#include "test.h"

#include <math.h>
#include <string.h>

enum { Q, K, V, O, G, DQ, DK, DV, CT_COUNT, LSE = CT_COUNT, DELTA, COUNT };
#define BF16_EPS 0x1p-8

/* A shape, and its matrices: in bf16 and f32, as tiles see them, and in double. Rows are `gap`
 * longer than what is used. */
struct problem {
    struct attn f;
    int64_t gap, n[COUNT], ld[CT_COUNT];
    void *bf16[COUNT]; /* owned */
    double *ref[COUNT]; /* owned */
};

static void sizes(struct problem *p)
{
    const struct attn *f = &p->f;
    for (int i = 0; i < CT_COUNT; i++) {
        bool keys = i == K || i == V || i == DK || i == DV;
        p->ld[i] = (keys ? f->kv_heads : f->heads) * f->d + p->gap;
        p->n[i] = f->b * (keys ? f->tk : f->tq) * p->ld[i];
    }
    p->n[LSE] = p->n[DELTA] = f->b * f->tq * f->heads;
}

static struct problem make(struct attn f)
{
    struct problem p = {.f = f, .gap = test_range(0, 5)};
    if (p.f.scale == 0)
        p.f.scale = 1 / sqrt((double)f.d);
    p.f.heads_total = f.heads * 2;
    p.f.head0 = f.heads;
    sizes(&p);
    for (int i = 0; i < COUNT; i++) {
        CHECK_OK(mem_new(p.n[i], i < CT_COUNT ? 2 : 4, "a matrix", &p.bf16[i]));
        CHECK_OK(mem_new(p.n[i], 8, "a matrix", &p.ref[i]));
        for (int64_t j = 0; j < p.n[i]; j++) {
            uint16_t x = bf16_from_f32((float)test_real(-1, 1));
            p.ref[i][j] = i < CT_COUNT ? (double)bf16_to_f32(x) : 0;
            if (i < CT_COUNT)
                ((uint16_t *)p.bf16[i])[j] = x;
        }
    }
    p.f.ldq = p.ld[Q];
    p.f.ldk = p.ld[K];
    p.f.ldv = p.ld[V];
    p.f.ldo = p.ld[O];
    return p;
}

static void release(struct problem *p)
{
    for (int i = 0; i < COUNT; i++) {
        mem_free(p->bf16[i]);
        mem_free(p->ref[i]);
    }
}

static struct attn_grad grad_of(const struct problem *p, void *const x[COUNT])
{
    struct attn_grad g = {.f = p->f, .do_ = x[G], .dq = x[DQ], .dk = x[DK], .dv = x[DV],
                          .delta = x[DELTA]};
    g.f.q = x[Q];
    g.f.k = x[K];
    g.f.v = x[V];
    g.f.o = x[O];
    g.f.lse = x[LSE];
    return g;
}

/* As the device does: delta on vectors before the tasks. */
static void deltas(const struct attn_grad *g)
{
    const struct attn *a = &g->f;
    for (int64_t r = 0; r < a->b * a->tq; r++) {
        for (int64_t h = 0; h < a->heads; h++) {
            float sum = 0;
            for (int64_t i = r * a->ldo + h * a->d, end = i + a->d; i < end; i++)
                sum += bf16_to_f32(((const uint16_t *)a->o)[i]) *
                       bf16_to_f32(((const uint16_t *)g->do_)[i]);
            ((float *)g->delta)[r * a->heads + h] = sum;
        }
    }
}

static int ways[2]; /* gradients by whole heads, by keys and queries */

static void run_items(cpu_task_fn *fn, const void *arg, int64_t n)
{
    float *scratch;
    CHECK_OK(mem_new(CPU_SCRATCH_FLOATS, sizeof *scratch, "scratch", &scratch));
    memset(scratch, 0xff, CPU_SCRATCH_FLOATS * sizeof *scratch); /* NaN: unwritten places show */
    for (int64_t i = n - 1; i >= 0; i--)
        fn(arg, i, i + 1, scratch);
    mem_free(scratch);
}

static void run_forward(const struct attn *a, int threads)
{
    struct amx_attn w = {.a = *a};
    int64_t items = amx_attn_cut(&w, threads);
    run_items(amx_attn_chunks, &w, items);
}

static void run_backward(const struct attn_grad *g, int threads)
{
    struct amx_attn_grad w = {.a = *g};
    int64_t queries, items = amx_attn_grad_cut(&w, threads, &queries);
    deltas(g);
    ways[queries > 0]++;
    if (queries == 0) {
        run_items(amx_attn_grad_heads, &w, items);
        return;
    }
    run_items(amx_attn_grad_keys, &w, items);
    run_items(amx_attn_grad_queries, &w, queries);
}

/* The judge: both ways in double, the gradient from the tiles' o and lse. */
static void run_ref(struct problem *p, bool backward)
{
    struct dev *d;
    struct dev_args args = {.kind = DEV_REF, .ct = DT_F64, .threads = 1};
    CHECK_OK(dev_open(&args, &d));
    struct attn_grad g = grad_of(p, (void *const *)p->ref);
    if (backward)
        CHECK_OK(dev_attn_grad(d, &g));
    else
        CHECK_OK(dev_attn(d, &g.f));
    dev_close(d);
}

static double value(const struct problem *p, int i, int64_t j)
{
    return i < CT_COUNT ? (double)bf16_to_f32(((const uint16_t *)p->bf16[i])[j])
                        : (double)((const float *)p->bf16[i])[j];
}

/* Every element, those between rows included, which nothing may touch. */
static void check_near(const struct problem *p, int i, double rounding, double abs)
{
    const struct attn *f = &p->f;
    double worst = 0;
    for (int64_t j = 0; j < p->n[i]; j++) {
        bool between = i < CT_COUNT && j % p->ld[i] >= p->ld[i] - p->gap;
        double bound = between ? 0 : rounding * fabs(p->ref[i][j]) + abs;
        double off = fabs(value(p, i, j) - p->ref[i][j]);
        if (!(off <= bound))
            worst = fmax(worst, isfinite(off) && bound > 0 ? off / bound : INFINITY);
    }
    test_check(worst == 0, __FILE__, __LINE__,
               "matrix %d: b %d tq %d tk %d heads %d kv %d d %d p %g: %g times the bound", i,
               (int)f->b, (int)f->tq, (int)f->tk, (int)f->heads, (int)f->kv_heads, (int)f->d,
               f->drop.p, worst);
}

static double largest(const struct problem *p, int i)
{
    double x = 0;
    for (int64_t j = 0; j < p->n[i]; j++)
        x = fmax(x, fabs(p->ref[i][j]));
    return x;
}

static void judge(struct attn f, int threads)
{
    struct problem p = make(f);
    double keep = 1 - f.drop.p, term = p.f.scale * sqrt((double)f.d) / keep;
    struct attn_grad g = grad_of(&p, p.bf16);
    run_forward(&g.f, threads);
    run_ref(&p, false);
    check_near(&p, O, BF16_EPS, BF16_EPS / keep);
    check_near(&p, LSE, 0x1p-23, 4e-6 * (1 + largest(&p, LSE)));
    for (int64_t j = 0; j < p.n[O]; j++)
        p.ref[O][j] = value(&p, O, j);
    for (int64_t j = 0; j < p.n[LSE]; j++)
        p.ref[LSE][j] = value(&p, LSE, j);
    run_backward(&g, threads);
    run_ref(&p, true);
    for (int i = DQ; i <= DV; i++)
        check_near(&p, i, BF16_EPS, BF16_EPS * (largest(&p, i) + term));
    release(&p);
}

static void lengths(void)
{
    static const int64_t t[] = {1, 2, 17, 31, 32, 33, 65, 127, 129, 257, 300};
    for (int i = 0; i < 11; i++)
        judge((struct attn){.b = 1, .tq = t[i], .tk = t[i], .heads = 1, .kv_heads = 1, .d = 64},
              1 + i % 3);
}

static void head_sizes(void)
{
    static const int64_t d[] = {1, 8, 16, 24, 33, 80, 96, 128, 256};
    for (int i = 0; i < 9; i++)
        judge((struct attn){.b = 2, .tq = 40, .tk = 40, .heads = 2, .kv_heads = 2, .d = d[i]},
              1 + i % 2 * 15);
}

/* Groups of heads, fewer queries than keys, dropout. */
static void forms(void)
{
    ways[0] = ways[1] = 0;
    for (int i = 0; i < 24; i++) {
        uint32_t step = (uint32_t)i;
        struct attn f = {.b = test_range(1, 2), .kv_heads = test_range(1, 2),
                         .d = 8 * test_range(1, 9), .tk = test_range(1, i % 4 ? 90 : 280)};
        f.heads = f.kv_heads * test_range(1, 3);
        f.tq = i % 2 ? test_range(1, f.tk) : f.tk;
        if (i % 3)
            f.drop = (struct drop){.p = test_real(0.05, 0.6), .seed = test_random(), .stream = 9,
                                   .step = &step, .row0 = test_range(0, 1000)};
        judge(f, i / 2 % 2 ? 1 : (int)test_range(12, 64)); /* few threads: whole heads */
    }
    CHECK(ways[0] > 3 && ways[1] > 3); /* both were met */
}

/* Scores in the hundreds: exponents are taken from the running maximum, which must move. */
static void far(void)
{
    struct attn f = {.b = 1, .tq = 270, .tk = 270, .heads = 1, .kv_heads = 1, .d = 32,
                     .scale = 60};
    struct problem p = make(f);
    struct attn_grad g = grad_of(&p, p.bf16);
    double error = 4e-6 * f.scale * (double)f.d;
    run_forward(&g.f, 1);
    run_ref(&p, false);
    check_near(&p, O, BF16_EPS, 4 * (error + BF16_EPS));
    check_near(&p, LSE, 0x1p-23, error);
    release(&p);
}

/* A query sees its own key and none after: what stands there does not change a bit of its output,
 * and its do changes nothing of their gradients. */
static void unseen(void)
{
    enum { T = 150, CUT = 77, D = 32 };
    struct problem p = make((struct attn){.b = 1, .tq = T, .tk = T, .heads = 1, .kv_heads = 1,
                                          .d = D});
    struct attn_grad g = grad_of(&p, p.bf16);
    uint16_t *o = p.bf16[O], *k = p.bf16[K], *v = p.bf16[V], *dout = p.bf16[G], *dv = p.bf16[DV];
    uint16_t was[T * (D + 8)];
    CHECK(p.ld[O] <= D + 8);
    run_forward(&g.f, 1);
    memcpy(was, o, (size_t)p.n[O] * 2);
    for (int64_t j = CUT * p.ld[K]; j < p.n[K]; j++)
        k[j] = v[j] = bf16_from_f32((float)test_real(-30, 30));
    run_forward(&g.f, 1);
    CHECK(memcmp(was, o, (size_t)(CUT * p.ld[O]) * 2) == 0);
    CHECK(memcmp(was, o, (size_t)p.n[O] * 2) != 0);
    run_backward(&g, 1);
    memcpy(was, dv, (size_t)p.n[DV] * 2);
    for (int64_t j = 0; j < CUT * p.ld[G]; j++)
        dout[j] = bf16_from_f32((float)test_real(-30, 30));
    run_backward(&g, 1);
    CHECK(memcmp(was + CUT * p.ld[DV], dv + CUT * p.ld[DV],
                 (size_t)((T - CUT) * p.ld[DV]) * 2) == 0);
    CHECK(memcmp(was, dv, (size_t)p.n[DV] * 2) != 0);
    release(&p);
}

static const int outputs[] = {O, LSE, DQ, DK, DV};

static size_t bytes_of(const struct problem *p, int i)
{
    return (size_t)p->n[i] * (i < CT_COUNT ? 2 : 4);
}

static void *copy_of(const struct problem *p, int i)
{
    char *copy;
    CHECK_OK(mem_new((int64_t)bytes_of(p, i), 1, "a copy", &copy));
    memcpy(copy, p->bf16[i], bytes_of(p, i));
    return copy;
}

static void check_bits(const struct problem *p, void *const first[5], const char *how, int64_t n)
{
    for (int i = 0; i < 5; i++)
        test_check(memcmp(first[i], p->bf16[outputs[i]], bytes_of(p, outputs[i])) == 0, __FILE__,
                   __LINE__, "%s %d: other bits of matrix %d", how, (int)n, outputs[i]);
}

/* Nothing of a former run is left in the results. */
static void spoil(const struct problem *p)
{
    for (int i = 0; i < 5; i++)
        memset(p->bf16[outputs[i]], 0x33, bytes_of(p, outputs[i]));
}

/* One kv head and its queries' heads, as a tensor rank that has no others. */
static void one_head(const struct problem *p, int64_t kv)
{
    int64_t group = p->f.heads / p->f.kv_heads, d = p->f.d;
    struct problem part = *p;
    for (int i = 0; i < CT_COUNT; i++) {
        bool keys = i == K || i == V || i == DK || i == DV;
        part.bf16[i] = (uint16_t *)p->bf16[i] + kv * d * (keys ? 1 : group);
    }
    part.f.heads = group;
    part.f.kv_heads = 1;
    part.f.head0 += kv * group;
    float *lse, *delta, *all = p->bf16[LSE];
    CHECK_OK(mem_new(p->n[LSE], sizeof *lse, "lse", &lse));
    CHECK_OK(mem_new(p->n[LSE], sizeof *delta, "delta", &delta));
    part.bf16[LSE] = lse;
    part.bf16[DELTA] = delta;
    struct attn_grad g = grad_of(&part, part.bf16);
    run_forward(&g.f, 2);
    run_backward(&g, 2);
    for (int64_t r = 0; r < p->f.b * p->f.tq; r++)
        memcpy(all + r * p->f.heads + kv * group, lse + r * group, (size_t)group * sizeof *lse);
    mem_free(lse);
    mem_free(delta);
}

static void bits(struct attn f)
{
    static const int threads[] = {2, 5, 16, 64};
    struct problem p = make(f);
    struct attn_grad g = grad_of(&p, p.bf16);
    void *first[5];
    spoil(&p);
    run_forward(&g.f, 1);
    run_backward(&g, 1);
    for (int i = 0; i < 5; i++)
        first[i] = copy_of(&p, outputs[i]);
    for (int t = 0; t < 4; t++) {
        spoil(&p);
        run_forward(&g.f, threads[t]);
        run_backward(&g, threads[t]);
        check_bits(&p, first, "threads", threads[t]);
    }
    spoil(&p);
    for (int64_t kv = 0; kv < f.kv_heads; kv++)
        one_head(&p, kv);
    check_bits(&p, first, "heads alone", f.kv_heads);
    for (int i = 0; i < 5; i++)
        mem_free(first[i]);
    release(&p);
}

static void same_bits(void)
{
    uint32_t step = 2;
    bits((struct attn){.b = 1, .tq = 300, .tk = 300, .heads = 2, .kv_heads = 2, .d = 32});
    bits((struct attn){.b = 2, .tq = 70, .tk = 165, .heads = 4, .kv_heads = 2, .d = 40,
                       .drop = {.p = 0.2, .seed = 5, .stream = 9, .step = &step, .row0 = 7}});
}

static const struct test_case cases[] = {
    {"lengths around the blocks", lengths},
    {"heads of many sizes", head_sizes},
    {"groups, fewer queries, dropout", forms},
    {"far scores", far},
    {"what is not seen changes nothing", unseen},
    {"the same bits for any cut and any neighbours", same_bits},
};
TEST_MAIN(cases)
