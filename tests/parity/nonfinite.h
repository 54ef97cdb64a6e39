/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of each operation of a device, with healthy operands, in variants: which operands are
 * read, which results are written. For test_nonfinite.c alone.
 */
#ifndef PLAIT_TEST_NONFINITE_H
#define PLAIT_TEST_NONFINITE_H

#include "parity.h"

enum { MOST = 10 };

/* NO_MINUS: a logit of minus infinity is a token of probability 0, which masks are made of; ReLU of
 * it is 0.
 * NO_PLUS: a log-sum-exp of plus infinity is a query that is not there; a forward never gives it.
 * AS_REF: a key of infinity may make a score of minus infinity, and so a probability of 0; where it
 * does on ref, it may here. The gradient shows it. CHOOSES: it says where the gradient passes, and
 * the activation itself has shown it. */
enum except { ALL, NO_MINUS, NO_PLUS, AS_REF, CHOOSES };

struct operand {
    struct parity_buf *buf;
    const char *name;
    enum except except;
    int64_t step; /* every so many elements one may be poisoned */
    double *was;  /* owned */
};

/* One call: operands that are read, results, and what the run needs beside them. */
struct call {
    struct parity *p;
    void (*run)(const struct call *c, int side);
    struct operand in[MOST];
    struct parity_buf *out[MOST], *token, *step;
    int ins, outs;
    int64_t n, c;     /* rows and columns, of most */
    struct gemm gemm; /* shape and flags */
    struct attn attn;
    bool rms, apart;  /* apart: the second way of an operation */
};

static struct parity_buf *in(struct call *c, const char *name, enum parity_type type, int64_t n)
{
    struct parity_buf *b = parity_fill(c->p, type, n, 0.25, 1);
    c->in[c->ins++] = (struct operand){.buf = b, .name = name, .step = 1};
    return b;
}

static struct parity_buf *out(struct call *c, enum parity_type type, int64_t n)
{
    return c->out[c->outs++] = parity_zero(c->p, type, n);
}

static void *at(const struct call *c, const struct parity_buf *b, int side)
{
    return parity_at(c->p, b, side, 0);
}

static void *in_at(const struct call *c, int i, int side)
{
    return i < c->ins ? at(c, c->in[i].buf, side) : NULL;
}

/* ---- operations: makers and runs ---- */

static void gemm_run(const struct call *c, int s)
{
    struct gemm g = c->gemm;
    int i = 2;
    g.a = in_at(c, 0, s);
    g.b = in_at(c, 1, s);
    g.c = at(c, c->out[0], s);
    if (g.act == GEMM_DGELU)
        g.pre = in_at(c, i++, s);
    if (g.act == GEMM_GELU)
        g.pre = at(c, c->out[1], s);
    g.bias = g.act == GEMM_DGELU || g.trans_a ? NULL : in_at(c, i, s);
    g.db = g.trans_a ? at(c, c->out[1], s) : NULL;
    CHECK_OK(dev_gemm(c->p->dev[s], &g));
}

static void gemm_make(struct call *c, int i)
{
    static const int64_t size[2][3] = {{5, 7, 9}, {64, 96, 128}};
    const int64_t *x = size[i / 5];
    c->gemm = (struct gemm){.m = x[0], .n = x[1], .k = x[2], .trans_a = i % 5 == 1,
                            .trans_b = i % 5 == 2, .c_at = i % 5 == 1};
    c->gemm.act = i % 5 == 3 ? GEMM_GELU : i % 5 == 4 ? GEMM_DGELU : GEMM_NONE;
    in(c, "a", PARITY_CT, x[0] * x[2]);
    in(c, "b", PARITY_CT, x[1] * x[2]);
    out(c, c->gemm.c_at ? PARITY_AT : PARITY_CT, x[0] * x[1]);
    if (c->gemm.act == GEMM_DGELU)
        in(c, "pre", PARITY_CT, x[0] * x[1]);
    else if (c->gemm.trans_a)
        out(c, PARITY_AT, x[0]);
    else
        in(c, "bias", PARITY_CT, x[1]);
    if (c->gemm.act == GEMM_GELU)
        out(c, PARITY_CT, x[0] * x[1]);
    c->run = gemm_run;
}

/* Rows and columns of variant i: a few, whole vectors, and more than one block of a GPU. */
static void sizes(struct call *c, int i)
{
    static const int64_t size[3][2] = {{3, 13}, {6, 64}, {5, 1024}};
    c->n = size[i % 3][0];
    c->c = size[i % 3][1];
}

static struct drop dropped(const struct call *c, int s)
{
    return (struct drop){.p = 0.5, .seed = 3, .stream = 1, .step = c->step ? c->step->on[s] : NULL};
}

/* x w b; with a residual x f bias w b. */
static void norm_run(const struct call *c, int s)
{
    int w = c->apart ? 3 : 1;
    struct dev *d = c->p->dev[s];
    struct norm a = {.y = at(c, c->out[0], s), .rstd = at(c, c->out[1], s),
                     .mean = c->rms ? NULL : at(c, c->out[2], s), .x = in_at(c, 0, s),
                     .w = in_at(c, w, s), .b = c->rms ? NULL : in_at(c, w + 1, s), .n = c->n,
                     .c = c->c, .eps = 1e-5, .rms = c->rms};
    if (!c->apart) {
        CHECK_OK(dev_norm(d, &a));
        return;
    }
    struct residual r = {.y = at(c, c->out[c->rms ? 2 : 3], s), .x = in_at(c, 0, s),
                         .f = in_at(c, 1, s), .bias = in_at(c, 2, s), .n = c->n, .c = c->c,
                         .drop = dropped(c, s)};
    a.x = r.y;
    CHECK_OK(dev_residual_norm(d, &(struct residual_norm){r, a}));
}

static void norm_make(struct call *c, int i)
{
    sizes(c, i);
    c->rms = i / 3 % 2;
    c->apart = i / 6;
    in(c, "x", PARITY_CT, c->n * c->c);
    if (c->apart) {
        in(c, "f", PARITY_CT, c->n * c->c);
        in(c, "bias", PARITY_CT, c->c);
        c->step = parity_step(c->p, 5);
    }
    in(c, "w", PARITY_CT, c->c);
    if (!c->rms)
        in(c, "b", PARITY_CT, c->c);
    out(c, PARITY_CT, c->n * c->c);
    out(c, PARITY_AT, c->n);
    if (!c->rms)
        out(c, PARITY_AT, c->n);
    if (c->apart)
        out(c, PARITY_CT, c->n * c->c);
    c->run = norm_run;
}

static void norm_grad_run(const struct call *c, int s)
{
    struct norm_grad a = {.dx = at(c, c->out[0], s), .dw = at(c, c->out[1], s),
                          .db = c->rms ? NULL : at(c, c->out[2], s), .x = in_at(c, 0, s),
                          .dy = in_at(c, 1, s), .d = in_at(c, 2, s), .w = in_at(c, 3, s),
                          .rstd = in_at(c, 4, s), .mean = c->rms ? NULL : in_at(c, 5, s),
                          .n = c->n, .c = c->c, .rms = c->rms};
    CHECK_OK(dev_norm_grad(c->p->dev[s], &a));
}

static void norm_grad_make(struct call *c, int i)
{
    static const char *const name[] = {"x", "dy", "d"};
    sizes(c, i);
    c->rms = i / 3;
    for (int k = 0; k < 3; k++)
        in(c, name[k], PARITY_CT, c->n * c->c);
    in(c, "w", PARITY_CT, c->c);
    in(c, "rstd", PARITY_AT, c->n);
    if (!c->rms)
        in(c, "mean", PARITY_AT, c->n);
    out(c, PARITY_CT, c->n * c->c);
    out(c, PARITY_AT, c->c);
    if (!c->rms)
        out(c, PARITY_AT, c->c);
    c->run = norm_grad_run;
}

static void attn_run(const struct call *c, int s)
{
    struct attn f = c->attn;
    f.q = in_at(c, 0, s);
    f.k = in_at(c, 1, s);
    f.v = in_at(c, 2, s);
    f.drop.step = c->step->on[s];
    if (!c->apart) {
        f.o = at(c, c->out[0], s);
        f.lse = at(c, c->out[1], s);
        CHECK_OK(dev_attn(c->p->dev[s], &f));
        return;
    }
    f.o = in_at(c, 3, s);
    f.lse = in_at(c, 4, s);
    struct attn_grad g = {.f = f, .do_ = in_at(c, 5, s), .dq = at(c, c->out[0], s),
                          .dk = at(c, c->out[1], s), .dv = at(c, c->out[2], s),
                          .delta = at(c, c->out[3], s)};
    CHECK_OK(dev_attn_grad(c->p->dev[s], &g));
}

static void attn_make(struct call *c, int i)
{
    static const struct attn shape[] = {
        {.b = 2, .tq = 5, .tk = 5, .heads = 2, .kv_heads = 1, .d = 8},
        {.b = 1, .tq = 80, .tk = 80, .heads = 2, .kv_heads = 2, .d = 64},
        {.b = 1, .tq = 70, .tk = 150, .heads = 4, .kv_heads = 2, .d = 64},
        {.b = 1, .tq = 40, .tk = 40, .heads = 2, .kv_heads = 2, .d = 16, .drop = {.p = 0.3}},
    };
    struct attn *f = &c->attn;
    *f = shape[i % 4];
    f->ldq = f->ldo = f->heads * f->d;
    f->ldk = f->ldv = f->kv_heads * f->d;
    f->scale = 1 / sqrt((double)f->d);
    f->heads_total = f->heads;
    c->apart = i / 4;
    c->step = parity_step(c->p, 7);
    int64_t q = f->b * f->tq * f->ldq, k = f->b * f->tk * f->ldk, stats = f->b * f->tq * f->heads;
    in(c, "q", PARITY_CT, q);
    in(c, "k", PARITY_CT, k);
    in(c, "v", PARITY_CT, k);
    c->run = attn_run;
    if (!c->apart) {
        c->in[1].except = AS_REF;
        out(c, PARITY_CT, q);
        out(c, PARITY_AT, stats);
        return;
    }
    in(c, "o", PARITY_CT, q);
    in(c, "lse", PARITY_AT, stats);
    c->in[4].except = NO_PLUS;
    in(c, "do", PARITY_CT, q);
    out(c, PARITY_CT, q);
    out(c, PARITY_CT, k);
    out(c, PARITY_CT, k);
    out(c, PARITY_AT, stats);
}

static void rope_run(const struct call *c, int s)
{
    struct dev *d = c->p->dev[s];
    struct rope a = {.x = at(c, c->out[0], s), .table = in_at(c, 1, s), .n = c->n, .t = c->n,
                     .heads = 2, .d = c->c / 2, .ld = c->c, .inverse = c->rms};
    CHECK_OK(dev_copy(d, a.x, in_at(c, 0, s), c->n * c->c * dtype_size(d->ct)));
    CHECK_OK(dev_rope(d, &a));
}

static void rope_make(struct call *c, int i)
{
    c->n = 6;
    c->c = i % 2 ? 128 : 12;
    c->rms = i / 2;
    in(c, "x", PARITY_CT, c->n * c->c);
    in(c, "table", PARITY_AT, c->n * c->c / 2);
    out(c, PARITY_CT, c->n * c->c);
    c->run = rope_run;
}

static void swiglu_run(const struct call *c, int s)
{
    struct dev *d = c->p->dev[s];
    void *to = at(c, c->out[0], s);
    if (c->apart)
        CHECK_OK(dev_swiglu_grad(
            d, &(struct swiglu_grad){to, in_at(c, 1, s), in_at(c, 0, s), c->n, c->c}));
    else
        CHECK_OK(dev_swiglu(d, &(struct swiglu){to, in_at(c, 0, s), c->n, c->c}));
}

static void swiglu_make(struct call *c, int i)
{
    sizes(c, i);
    c->apart = i / 3;
    in(c, "gate and up", PARITY_CT, 2 * c->n * c->c);
    if (c->apart)
        in(c, "dout", PARITY_CT, c->n * c->c);
    out(c, PARITY_CT, (1 + c->apart) * c->n * c->c);
    c->run = swiglu_run;
}

static void relu_run(const struct call *c, int s)
{
    struct dev *d = c->p->dev[s];
    void *to = at(c, c->out[0], s), *x = in_at(c, 0, s);
    if (c->apart)
        CHECK_OK(dev_relu_grad(d, &(struct relu_grad){to, in_at(c, 1, s), x, c->n}));
    else
        CHECK_OK(dev_relu(d, &(struct relu){to, x, c->n}));
}

static void relu_make(struct call *c, int i)
{
    c->n = i % 2 ? 3000 : 37;
    c->apart = i / 2;
    in(c, "x", PARITY_CT, c->n);
    c->in[0].except = c->apart ? CHOOSES : NO_MINUS;
    if (c->apart)
        in(c, "dy", PARITY_CT, c->n);
    out(c, PARITY_CT, c->n);
    c->run = relu_run;
}

static void residual_run(const struct call *c, int s)
{
    struct dev *d = c->p->dev[s];
    struct drop drop = dropped(c, s);
    struct residual a = {.y = at(c, c->out[0], s), .f = in_at(c, 0, s), .x = in_at(c, 1, s),
                         .bias = in_at(c, 2, s), .n = c->n, .c = c->c, .drop = drop};
    if (c->apart)
        CHECK_OK(dev_dropout(d, &(struct dropout){a.y, a.f, c->n, c->c, drop}));
    else
        CHECK_OK(dev_residual(d, &a));
}

static void residual_make(struct call *c, int i)
{
    sizes(c, i);
    c->apart = i / 3;
    c->step = parity_step(c->p, 5);
    in(c, "f", PARITY_CT, c->n * c->c);
    if (!c->apart) {
        in(c, "x", PARITY_CT, c->n * c->c);
        in(c, "bias", PARITY_CT, c->c);
    }
    out(c, PARITY_CT, c->n * c->c);
    c->run = residual_run;
}

enum table_call { EMBED, EMBED_GRAD, POS_ADD, POS_GRAD, BIAS_GRAD, TABLE_CALLS };
enum { TABLE_ROWS = 4 };

static void table_run(const struct call *c, int s)
{
    struct dev *d = c->p->dev[s];
    void *to = at(c, c->out[0], s), *from = in_at(c, 0, s);
    const int32_t *token = c->token->on[s];
    switch ((enum table_call)c->attn.b) {
    case EMBED:
        CHECK_OK(dev_embed(d, &(struct embed){to, from, token, c->n, c->c, 0, TABLE_ROWS}));
        return;
    case EMBED_GRAD:
        CHECK_OK(
            dev_embed_grad(d, &(struct embed_grad){to, from, token, c->n, c->c, 0, TABLE_ROWS}));
        return;
    case POS_ADD:
        CHECK_OK(dev_copy(d, to, in_at(c, 1, s), c->n * c->c * dtype_size(d->ct)));
        CHECK_OK(dev_pos_add(d, &(struct pos_add){to, from, c->n, c->c, TABLE_ROWS, 0}));
        return;
    case POS_GRAD:
        CHECK_OK(dev_pos_grad(d, &(struct pos_grad){to, from, c->n, c->c, TABLE_ROWS, 0}));
        return;
    default:
        CHECK_OK(dev_bias_grad(d, &(struct bias_grad){to, from, c->n, c->c}));
    }
}

static void table_make(struct call *c, int i)
{
    int32_t token[16];
    enum table_call which = (enum table_call)(i / 3);
    sizes(c, i);
    c->n += TABLE_ROWS; /* every row of the table is read */
    c->attn.b = which;
    for (int r = 0; r < 16; r++)
        token[r] = r % TABLE_ROWS;
    c->token = parity_zero(c->p, PARITY_TOKEN, c->n);
    parity_set_tokens(c->p, c->token, token);
    bool reads_table = which == EMBED || which == POS_ADD;
    in(c, reads_table ? "w" : "dy", PARITY_CT, (reads_table ? TABLE_ROWS : c->n) * c->c);
    if (which == POS_ADD)
        in(c, "x", PARITY_CT, c->n * c->c);
    if (reads_table)
        out(c, PARITY_CT, c->n * c->c);
    else
        out(c, PARITY_AT, (which == BIAS_GRAD ? 1 : TABLE_ROWS) * c->c);
    c->run = table_run;
}

static void xent_run(const struct call *c, int s)
{
    struct dev *d = c->p->dev[s];
    struct xent x = {.logits = in_at(c, 0, s), .target = c->token->on[s], .n = c->n, .v = c->c,
                     .ld = c->c, .max = at(c, c->out[0], s), .sum = at(c, c->out[1], s),
                     .target_logit = at(c, c->out[2], s), .loss = at(c, c->out[3], s),
                     .dlogits = c->rms ? NULL : at(c, c->out[4], s)};
    if (!c->apart) {
        CHECK_OK(dev_xent(d, &x));
        return;
    }
    CHECK_OK(dev_xent_max(d, &x));
    CHECK_OK(dev_xent_sum(d, &x));
    CHECK_OK(dev_xent_grad(d, &x));
}

/* Of the results the loss and the gradient count: what lies between is no result. */
static void xent_make(struct call *c, int i)
{
    static const int64_t wide[3] = {13, 512, 5000};
    int32_t token[3];
    c->n = 3;
    c->c = wide[i % 3];
    c->rms = i / 3 % 2; /* the loss alone */
    c->apart = i / 6;
    for (int r = 0; r < 3; r++)
        token[r] = (int32_t)test_range(0, c->c - 1);
    c->token = parity_zero(c->p, PARITY_TOKEN, 3);
    parity_set_tokens(c->p, c->token, token);
    in(c, "logits", PARITY_LOGITS, c->n * c->c);
    c->in[0].except = NO_MINUS;
    for (int k = 0; k < 4; k++)
        out(c, PARITY_AT, c->n);
    if (!c->rms)
        out(c, PARITY_CT, c->n * c->c);
    c->run = xent_run;
}

enum flat_call { SUM, SUMSQ, CAST, ADD, ADAMW, SCALE, FLAT_CALLS };

static void flat_run(const struct call *c, int s)
{
    struct dev *d = c->p->dev[s];
    void *to = at(c, c->out[0], s), *from = in_at(c, 0, s);
    const struct dev_ranges all = {1, {0, c->n}};
    const double scalars[SCALAR_COUNT] = {1e-3, 0.1, 0.1, 1, 1};
    switch ((enum flat_call)c->attn.b) {
    case SUM:
        CHECK_OK(dev_sum(d, &(struct sum){to, from, c->n}));
        return;
    case SUMSQ:
        CHECK_OK(dev_sumsq(d, &(struct sumsq){to, from, &all, dev_ranges_count(&all)}));
        return;
    case CAST:
        CHECK_OK(dev_cast(d, to, from, c->n));
        return;
    case ADD:
        CHECK_OK(dev_copy(d, to, in_at(c, 1, s), c->n * dtype_size(d->at)));
        CHECK_OK(dev_add(d, to, from, c->n));
        return;
    case SCALE:
        CHECK_OK(dev_scale(d, &(struct scale){to, from, 0.5}));
        return;
    default:
        break;
    }
    CHECK_OK(dev_h2d(d, at(c, c->out[3], s), scalars, sizeof scalars));
    for (int i = 0; i < 3; i++) /* what it writes: master, m, v */
        CHECK_OK(dev_copy(d, at(c, c->out[i], s), in_at(c, i + 1, s), c->n * dtype_size(d->at)));
    struct adamw a = {.w = d->ct == d->at ? to : at(c, c->out[4], s),
                      .master = d->ct == d->at ? NULL : to, .m = at(c, c->out[1], s),
                      .v = at(c, c->out[2], s), .grad = from, .n = c->n, .beta1 = 0.9,
                      .beta2 = 0.9, .eps = 1e-8, .decay = 0.1, .decays = &all,
                      .step_scalars = at(c, c->out[3], s)};
    CHECK_OK(dev_adamw(d, &a));
}

static void flat_make(struct call *c, int i)
{
    static const char *const name[] = {"grad", "master", "m", "v"};
    enum flat_call which = (enum flat_call)(i / 2);
    c->n = i % 2 ? 3000 : 37;
    c->attn.b = which;
    c->run = flat_run;
    if (which == SCALE) { /* loss and squares; the tokens between them are the host's */
        in(c, "sums", PARITY_DOUBLE, SUMS_COUNT);
        c->in[0].step = SUMS_SQUARES;
        out(c, PARITY_DOUBLE, SCALAR_COUNT);
        return;
    }
    for (int k = 0; k < (which == ADAMW ? 4 : which == ADD ? 2 : 1); k++)
        in(c, name[k], PARITY_AT, c->n);
    if (which == SUM || which == SUMSQ)
        out(c, PARITY_DOUBLE, 1);
    else
        out(c, which == CAST ? PARITY_CT : PARITY_AT, c->n);
    if (which != ADAMW)
        return;
    out(c, PARITY_AT, c->n);
    out(c, PARITY_AT, c->n);
    out(c, PARITY_DOUBLE, SCALAR_COUNT);
    out(c, PARITY_CT, c->n);
}

struct operation {
    const char *name;
    void (*make)(struct call *c, int i);
    int variants;
};
static const struct operation operations[] = {
    {"gemm", gemm_make, 10},         {"norm", norm_make, 12},
    {"norm_grad", norm_grad_make, 6}, {"attn", attn_make, 8},
    {"rope", rope_make, 4},          {"swiglu", swiglu_make, 6},
    {"relu", relu_make, 4},          {"residual", residual_make, 6},
    {"table", table_make, 3 * TABLE_CALLS},
    {"xent", xent_make, 12},         {"flat", flat_make, 2 * FLAT_CALLS},
};

#endif
