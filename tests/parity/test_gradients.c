/* SPDX-License-Identifier: Apache-2.0
 *
 * Every backward kernel of ref against central differences of its forward kernel:
 *     dL/dx_i = (L(x + h e_i) - L(x - h e_i)) / 2h,  L = sum of outputs times fixed weights
 * With h = 1e-5 in double, the truncation is about 1e-10 and the cancellation about 1e-11 of L, so
 * a bound of 1e-7 of the largest gradient leaves room for neither a wrong term nor a wrong sign.
 * The other devices are compared with ref, so this is where gradients are proved.
 */
#include "test.h"

#include "base/mem.h"
#include "device/device.h"

static double *values(int64_t n, double lo, double hi)
{
    double *x = NULL;
    ENSURE(mem_new(n, sizeof *x, "test values", &x) == ERR_OK);
    for (int64_t i = 0; i < n; i++)
        x[i] = test_real(lo, hi);
    return x;
}

static double *zeros(int64_t n)
{
    return values(n, 0, 0);
}

static struct dev *open_ref(void)
{
    struct dev *d = NULL;
    struct dev_args a = {.kind = DEV_REF, .ct = DT_F64, .threads = 1};
    CHECK_OK(dev_open(&a, &d));
    return d;
}

static double weigh(const double *x, const double *weight, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * weight[i];
    return sum;
}

/* A loss as a function of whatever `problem` points at. */
struct slope {
    const char *name;
    double (*loss)(const void *problem);
    const void *problem;
};

/* grad must be the slope of the loss in each of the n elements of x. */
static void check_slope(const struct slope *s, double *x, const double *grad, int64_t n)
{
    double largest = 1e-3, h = 1e-5;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(grad[i]));
    for (int64_t i = 0; i < n; i++) {
        double at = x[i];
        x[i] = at + h;
        double up = s->loss(s->problem);
        x[i] = at - h;
        double down = s->loss(s->problem);
        x[i] = at;
        double want = (up - down) / (2 * h);
        test_check(fabs(grad[i] - want) <= 1e-7 * largest, __FILE__, __LINE__,
                   "%s: element %lld has gradient %.12g, the slope is %.12g", s->name,
                   (long long)i, grad[i], want);
    }
}

static void release(double **x, int n)
{
    for (int i = 0; i < n; i++)
        mem_free(x[i]);
}

/* y = gelu(x w + b), loss by y; backwards by DGELU and the three GEMMs a layer makes. */
struct mlp {
    struct dev *d;
    int64_t m, n, k;
    double *x, *w, *b, *pre, *y, *dy;
};

static double mlp_loss(const void *problem)
{
    const struct mlp *p = problem;
    struct gemm g = {.c = p->y, .a = p->x, .b = p->w, .bias = p->b, .pre = p->pre, .m = p->m,
                     .n = p->n, .k = p->k, .act = GEMM_GELU};
    CHECK_OK(dev_gemm(p->d, &g));
    return weigh(p->y, p->dy, p->m * p->n);
}

static void gemm(void)
{
    struct mlp p = {.d = open_ref(), .m = 5, .n = 7, .k = 3};
    int64_t mn = p.m * p.n, mk = p.m * p.k, kn = p.k * p.n;
    double *all[] = {p.x = values(mk, -1, 1), p.w = values(kn, -1, 1), p.b = values(p.n, -1, 1),
                     p.pre = zeros(mn), p.y = zeros(mn), p.dy = values(mn, -1, 1), zeros(mn),
                     zeros(mk), zeros(kn), zeros(p.n), values(mn, 1, 1), values(mn, 0, 0)};
    double *dpre = all[6], *dx = all[7], *dw = all[8], *db = all[9], *one = all[10];
    mlp_loss(&p);
    /* dpre = dy * gelu'(pre): the slope alone is DGELU of a GEMM that is one */
    struct gemm slope = {.c = dpre, .a = one, .b = one, .pre = p.pre, .m = p.m, .n = p.n, .k = 1,
                         .act = GEMM_DGELU};
    CHECK_OK(dev_gemm(p.d, &slope));
    for (int64_t i = 0; i < mn; i++)
        dpre[i] *= p.dy[i];
    struct gemm gx = {.c = dx, .a = dpre, .b = p.w, .m = p.m, .n = p.k, .k = p.n, .trans_b = true};
    struct gemm gw = {.c = dw, .a = p.x, .b = dpre, .m = p.k, .n = p.n, .k = p.m, .trans_a = true,
                      .accumulate = true, .c_at = true};
    CHECK_OK(dev_gemm(p.d, &gx));
    CHECK_OK(dev_gemm(p.d, &gw));
    CHECK_OK(dev_bias_grad(p.d, &(struct bias_grad){db, dpre, p.m, p.n}));
    check_slope(&(struct slope){"gemm dx", mlp_loss, &p}, p.x, dx, mk);
    check_slope(&(struct slope){"gemm dw", mlp_loss, &p}, p.w, dw, kn);
    check_slope(&(struct slope){"bias_grad", mlp_loss, &p}, p.b, db, p.n);
    release(all, 12);
    dev_close(p.d);
}

struct norm_problem {
    struct dev *d;
    struct norm f;
    double *x, *w, *b, *y, *dy;
};

static double norm_loss(const void *problem)
{
    const struct norm_problem *p = problem;
    CHECK_OK(dev_norm(p->d, &p->f));
    return weigh(p->y, p->dy, p->f.n * p->f.c);
}

static void norm_kind(bool rms)
{
    struct norm_problem p = {.d = open_ref()};
    int64_t n = 4, c = 9;
    double *all[] = {p.x = values(n * c, -1, 2), p.w = values(c, -1, 1), p.b = values(c, -1, 1),
                     p.y = zeros(n * c), p.dy = values(n * c, -1, 1), zeros(n), zeros(n),
                     zeros(n * c), zeros(c), zeros(c)};
    double *mean = all[5], *rstd = all[6], *dx = all[7], *dw = all[8], *db = all[9];
    p.f = (struct norm){.y = p.y, .mean = rms ? NULL : mean, .rstd = rstd, .x = p.x, .w = p.w,
                        .b = rms ? NULL : p.b, .n = n, .c = c, .eps = 1e-5, .rms = rms};
    norm_loss(&p);
    struct norm_grad g = {.dx = dx, .dw = dw, .db = rms ? NULL : db, .dy = p.dy, .x = p.x,
                          .w = p.w, .mean = rms ? NULL : mean, .rstd = rstd, .n = n, .c = c,
                          .rms = rms};
    CHECK_OK(dev_norm_grad(p.d, &g));
    check_slope(&(struct slope){"norm dx", norm_loss, &p}, p.x, dx, n * c);
    check_slope(&(struct slope){"norm dw", norm_loss, &p}, p.w, dw, c);
    if (!rms)
        check_slope(&(struct slope){"norm db", norm_loss, &p}, p.b, db, c);
    release(all, 10);
    dev_close(p.d);
}

static void norm_layer(void)
{
    norm_kind(false);
}

static void norm_rms(void)
{
    norm_kind(true);
}

struct attn_problem {
    struct dev *d;
    struct attn f;
    double *q, *k, *v, *o, *do_;
};

static double attn_loss(const void *problem)
{
    const struct attn_problem *p = problem;
    CHECK_OK(dev_attn(p->d, &p->f));
    return weigh(p->o, p->do_, p->f.b * p->f.tq * p->f.heads * p->f.d);
}

static void attn_shape(struct attn f)
{
    struct attn_problem p = {.d = open_ref(), .f = f};
    int64_t nq = f.b * f.tq * f.heads * f.d, nk = f.b * f.tk * f.kv_heads * f.d;
    double *all[] = {p.q = values(nq, -2, 2), p.k = values(nk, -2, 2), p.v = values(nk, -1, 1),
                     p.o = zeros(nq), p.do_ = values(nq, -1, 1), zeros(f.b * f.tq * f.heads),
                     zeros(nq), zeros(nk), zeros(nk), zeros(f.b * f.tq * f.heads)};
    p.f.q = p.q;
    p.f.k = p.k;
    p.f.v = p.v;
    p.f.o = p.o;
    p.f.lse = all[5];
    p.f.ldq = p.f.ldo = f.heads * f.d;
    p.f.ldk = p.f.ldv = f.kv_heads * f.d;
    p.f.scale = 1 / sqrt((double)f.d);
    p.f.heads_total = f.heads;
    attn_loss(&p);
    struct attn_grad g = {.f = p.f, .do_ = p.do_, .dq = all[6], .dk = all[7], .dv = all[8],
                          .delta = all[9]};
    CHECK_OK(dev_attn_grad(p.d, &g));
    check_slope(&(struct slope){"attention dq", attn_loss, &p}, p.q, all[6], nq);
    check_slope(&(struct slope){"attention dk", attn_loss, &p}, p.k, all[7], nk);
    check_slope(&(struct slope){"attention dv", attn_loss, &p}, p.v, all[8], nk);
    release(all, 10);
    dev_close(p.d);
}

static void attn_plain(void)
{
    attn_shape((struct attn){.b = 2, .tq = 5, .tk = 5, .heads = 2, .kv_heads = 2, .d = 3});
}

static void attn_groups(void)
{
    attn_shape((struct attn){.b = 2, .tq = 3, .tk = 6, .heads = 6, .kv_heads = 2, .d = 4});
}

static void attn_dropout(void)
{
    uint32_t step = 2;
    struct drop drop = {.p = 0.3, .seed = 5, .stream = 1, .step = &step, .row0 = 40};
    attn_shape((struct attn){.b = 2, .tq = 4, .tk = 5, .heads = 4, .kv_heads = 2, .d = 3,
                             .drop = drop});
}

/* The gradient of a rotation is the rotation back: <rope(x), y> = <x, inverse(y)>. */
static void rope(void)
{
    struct dev *d = open_ref();
    int64_t n = 6, c = 2 * 8;
    double *all[] = {values(n * c, -1, 1), values(n * c, -1, 1), zeros(5 * 8), zeros(n * c),
                     zeros(n * c)};
    double *x = all[0], *y = all[1], *table = all[2], *turned = all[3], *back = all[4];
    for (int64_t i = 0; i < 5 * 8; i++) {
        double angle = 0.3 * (double)(i / 8) * (double)(i % 4 + 1);
        table[i] = i % 8 < 4 ? cos(angle) : sin(angle);
    }
    struct rope r = {.table = table, .n = n, .t = 3, .pos0 = 2, .heads = 2, .d = 8, .ld = c};
    memcpy(turned, x, (size_t)(n * c) * sizeof *x);
    memcpy(back, y, (size_t)(n * c) * sizeof *y);
    r.x = turned;
    CHECK_OK(dev_rope(d, &r));
    r.x = back;
    r.inverse = true;
    CHECK_OK(dev_rope(d, &r));
    CHECK_NEAR(weigh(turned, y, n * c), weigh(x, back, n * c), 1e-12);
    CHECK(fabs(weigh(turned, y, n * c) - weigh(x, y, n * c)) > 1e-3); /* it did turn */
    r.x = turned;
    CHECK_OK(dev_rope(d, &r));
    for (int64_t i = 0; i < n * c; i++)
        CHECK_NEAR(turned[i], x[i], 1e-14);
    release(all, 5);
    dev_close(d);
}

/* One input, one output, one weighing: activations, residual with dropout, embedding. */
struct simple {
    struct dev *d;
    int64_t n, c, rows;
    double *x, *f, *b, *y, *dy;
    const int32_t *token;
    struct drop drop;
};

static double swiglu_loss(const void *problem)
{
    const struct simple *p = problem;
    CHECK_OK(dev_swiglu(p->d, &(struct swiglu){p->y, p->x, p->n, p->c}));
    return weigh(p->y, p->dy, p->n * p->c);
}

static void swiglu(void)
{
    struct simple p = {.d = open_ref(), .n = 3, .c = 5};
    int64_t nc = p.n * p.c;
    double *all[] = {p.x = values(2 * nc, -4, 4), p.y = zeros(nc), p.dy = values(nc, -1, 1),
                     zeros(2 * nc)};
    CHECK_OK(dev_swiglu_grad(p.d, &(struct swiglu_grad){all[3], p.dy, p.x, p.n, p.c}));
    check_slope(&(struct slope){"swiglu", swiglu_loss, &p}, p.x, all[3], 2 * nc);
    release(all, 4);
    dev_close(p.d);
}

static double relu_loss(const void *problem)
{
    const struct simple *p = problem;
    CHECK_OK(dev_relu(p->d, &(struct relu){p->y, p->x, p->n}));
    return weigh(p->y, p->dy, p->n);
}

/* Away from 0, where it has no slope. */
static void relu(void)
{
    struct simple p = {.d = open_ref(), .n = 15};
    double *all[] = {p.x = values(p.n, -4, 4), p.y = zeros(p.n), p.dy = values(p.n, -1, 1),
                     zeros(p.n)};
    for (int64_t i = 0; i < p.n; i++)
        p.x[i] += i % 2 ? 5 : -5;
    CHECK_OK(dev_relu_grad(p.d, &(struct relu_grad){all[3], p.dy, p.x, p.n}));
    check_slope(&(struct slope){"relu", relu_loss, &p}, p.x, all[3], p.n);
    release(all, 4);
    dev_close(p.d);
}

static double residual_loss(const void *problem)
{
    const struct simple *p = problem;
    struct residual a = {p->y, p->x, p->f, p->b, p->n, p->c, p->drop};
    CHECK_OK(dev_residual(p->d, &a));
    return weigh(p->y, p->dy, p->n * p->c);
}

static void residual(void)
{
    uint32_t step = 3;
    struct simple p = {.d = open_ref(), .n = 6, .c = 7,
                       .drop = {.p = 0.4, .seed = 11, .stream = 2, .step = &step, .row0 = 100}};
    int64_t nc = p.n * p.c;
    double *all[] = {p.x = values(nc, -1, 1), p.f = values(nc, -1, 1), p.b = values(p.c, -1, 1),
                     p.y = zeros(nc), p.dy = values(nc, -1, 1), zeros(nc), zeros(p.c)};
    double *df = all[5], *db = all[6];
    CHECK_OK(dev_dropout(p.d, &(struct dropout){df, p.dy, p.n, p.c, p.drop}));
    CHECK_OK(dev_bias_grad(p.d, &(struct bias_grad){db, df, p.n, p.c}));
    check_slope(&(struct slope){"residual x", residual_loss, &p}, p.x, p.dy, nc);
    check_slope(&(struct slope){"residual f", residual_loss, &p}, p.f, df, nc);
    check_slope(&(struct slope){"residual bias", residual_loss, &p}, p.b, db, p.c);
    release(all, 7);
    dev_close(p.d);
}

enum { V0 = 3, POSITIONS = 4, ROW0 = 2 };

static double embed_loss(const void *problem)
{
    const struct simple *p = problem;
    CHECK_OK(dev_embed(p->d, &(struct embed){p->y, p->x, p->token, p->n, p->c, V0, p->rows}));
    CHECK_OK(dev_pos_add(p->d, &(struct pos_add){p->y, p->b, p->n, p->c, POSITIONS, ROW0}));
    return weigh(p->y, p->dy, p->n * p->c);
}

static void embed(void)
{
    static const int32_t token[] = {3, 7, 3, 2, 5, 8, 3};
    struct simple p = {.d = open_ref(), .n = 7, .c = 4, .rows = 5, .token = token};
    int64_t nc = p.n * p.c, nw = p.rows * p.c, np = POSITIONS * p.c;
    double *all[] = {p.x = values(nw, -1, 1), p.b = values(np, -1, 1), p.y = zeros(nc),
                     p.dy = values(nc, -1, 1), zeros(nw), zeros(np)};
    double *dw = all[4], *dp = all[5];
    CHECK_OK(dev_embed_grad(p.d, &(struct embed_grad){dw, p.dy, token, p.n, p.c, V0, p.rows}));
    CHECK_OK(dev_pos_grad(p.d, &(struct pos_grad){dp, p.dy, p.n, p.c, POSITIONS, ROW0}));
    check_slope(&(struct slope){"embed dw", embed_loss, &p}, p.x, dw, nw);
    check_slope(&(struct slope){"position dw", embed_loss, &p}, p.b, dp, np);
    release(all, 6);
    dev_close(p.d);
}

/* Cross entropy over two shards, agreed between the steps as tensor ranks would. */
struct xent_problem {
    struct dev *d;
    struct xent shard[2];
    int64_t n;
};

static double xent_loss(const void *problem)
{
    const struct xent_problem *p = problem;
    const struct xent *a = &p->shard[0], *b = &p->shard[1];
    double *amax = a->max, *asum = a->sum, *ahit = a->target_logit, *bmax = b->max, *bsum = b->sum,
           *bhit = b->target_logit, sum = 0;
    for (int s = 0; s < 2; s++)
        CHECK_OK(dev_xent_max(p->d, &p->shard[s]));
    for (int64_t r = 0; r < p->n; r++)
        amax[r] = bmax[r] = fmax(amax[r], bmax[r]);
    for (int s = 0; s < 2; s++)
        CHECK_OK(dev_xent_sum(p->d, &p->shard[s]));
    for (int64_t r = 0; r < p->n; r++) {
        asum[r] = bsum[r] = asum[r] + bsum[r];
        ahit[r] = bhit[r] = ahit[r] + bhit[r];
    }
    for (int s = 0; s < 2; s++)
        CHECK_OK(dev_xent_grad(p->d, &p->shard[s]));
    for (int64_t r = 0; r < p->n; r++)
        sum += ((const double *)a->loss)[r];
    return sum;
}

static void xent(void)
{
    static const int32_t target[] = {0, 6, -1, 10, 4};
    struct xent_problem p = {.d = open_ref(), .n = 5};
    int64_t v[2] = {6, 5}, ld[2] = {6, 8};
    double *all[2][7];
    for (int s = 0; s < 2; s++) {
        double *mine[] = {values(p.n * ld[s], -3, 3), zeros(p.n), zeros(p.n), zeros(p.n),
                          zeros(p.n), values(p.n * ld[s], 1, 1), zeros(p.n * ld[s])};
        memcpy(all[s], mine, sizeof mine);
        p.shard[s] = (struct xent){.logits = mine[0], .target = target, .n = p.n, .v = v[s],
                                   .ld = ld[s], .v0 = s ? v[0] : 0, .max = mine[1],
                                   .sum = mine[2], .target_logit = mine[3], .loss = mine[4],
                                   .dlogits = mine[5]};
    }
    xent_loss(&p);
    for (int s = 0; s < 2; s++) /* the loss writes dlogits again: compare a copy */
        memcpy(all[s][6], all[s][5], (size_t)(p.n * ld[s]) * sizeof(double));
    for (int s = 0; s < 2; s++)
        check_slope(&(struct slope){"cross entropy", xent_loss, &p}, all[s][0], all[s][6],
                    p.n * ld[s]);
    for (int s = 0; s < 2; s++)
        release(all[s], 7);
    dev_close(p.d);
}

static const struct test_case cases[] = {
    {"gemm with bias and gelu", gemm},
    {"norm: mean and variance", norm_layer},
    {"norm: root mean square", norm_rms},
    {"attention", attn_plain},
    {"attention: groups, fewer queries", attn_groups},
    {"attention: dropout", attn_dropout},
    {"rope: the inverse is the transpose", rope},
    {"swiglu", swiglu},
    {"relu", relu},
    {"residual, bias and dropout", residual},
    {"embedding and positions", embed},
    {"cross entropy over two shards", xent},
};
TEST_MAIN(cases)
