/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of a step alone, on operands of its own. They hold random numbers, because a device that
 * multiplies zeros takes less power and runs faster than in training; a block of them is made on
 * the host and doubled on the device until an operand is full. Its length is a prime, so that rows
 * of the usual widths differ from each other.
 *
 * What a call needs from others before it is made by these others: attention's gradient runs the
 * attention, the end of a cross entropy its beginnings.
 */
#include "device/calls.h"

#include "base/mem.h"
#include <math.h>

enum { BLOCK = 65521, SEED = 1 };

/* What an operand is filled with. ABS: sizes of normal numbers (variances, deviations). */
enum fill { FILL_CT, FILL_AT, FILL_ABS, FILL_LOGITS, FILL_IDS, FILL_RAW };

static enum dtype fill_type(const struct dev *d, enum fill fill)
{
    switch (fill) {
    case FILL_CT: return d->ct;
    case FILL_LOGITS: return d->logits;
    default: return d->at;
    }
}

/* Number i of a block, as `dt` into `to`. */
static void put(void *to, int64_t i, enum dtype dt, double x)
{
    if (dt == DT_BF16)
        ((uint16_t *)to)[i] = bf16_from_f32((float)x);
    else if (dt == DT_F32)
        ((float *)to)[i] = (float)x;
    else
        ((double *)to)[i] = x;
}

/* n numbers (ids: below `limit`) into host memory `to`. */
static void make_block(const struct dev *d, enum fill fill, int64_t limit, int64_t n, void *to)
{
    enum dtype dt = fill_type(d, fill);
    for (int64_t i = 0; i < n; i++) {
        if (fill == FILL_IDS) {
            int64_t id = (int64_t)(num_uniform(SEED, fill, i) * (double)limit);
            ((int32_t *)to)[i] = (int32_t)num_min(id, limit - 1);
            continue;
        }
        double x = num_normal(SEED, fill, i);
        put(to, i, dt, fill == FILL_ABS ? fabs(x) + 0.1 : x);
    }
}

/* The first `block` bytes of p, again and again up to `bytes`. */
static enum err spread(struct dev *d, char *p, int64_t block, int64_t bytes)
{
    for (int64_t have = block; have < bytes; have *= 2)
        TRY(d->ops->copy(d, p + have, p, num_min(have, bytes - have)));
    return ERR_OK;
}

/* An operand of n elements, owned by w. limit: of ids. */
static enum err take(struct calls_work *w, enum fill fill, int64_t n, int64_t limit, void **out)
{
    struct dev *d = w->dev;
    int64_t each = fill == FILL_RAW   ? 1
                   : fill == FILL_IDS ? (int64_t)sizeof(int32_t)
                                      : dtype_size(fill_type(d, fill));
    int64_t bytes, block = num_min(n, BLOCK);
    char *host;
    ENSURE(w->operands < CALLS_OPERANDS);
    if (!num_mul(n, each, &bytes))
        FAIL(ERR_MEMORY, "bench: an operand of %lld elements is beyond 63 bits", (long long)n);
    TRY(d->ops->alloc(d, num_max(bytes, 1), "an operand", out));
    w->operand[w->operands++] = *out;
    w->bytes += bytes;
    if (fill == FILL_RAW || n == 0)
        return ERR_OK;
    TRY(mem_new(block, (size_t)each, "random numbers", &host));
    make_block(d, fill, limit, block, host);
    enum err err = d->ops->copy_in(d, *out, host, block * each);
    mem_free(host);
    TRY(err);
    return spread(d, *out, block * each, bytes);
}

static enum err take_const(struct calls_work *w, enum fill fill, int64_t n, const void **out)
{
    void *p;
    TRY(take(w, fill, n, 0, &p));
    *out = p;
    return ERR_OK;
}

/* Doubles from the host. */
static enum err take_doubles(struct calls_work *w, const double *x, int n, double **out)
{
    void *p;
    TRY(take(w, FILL_RAW, n * (int64_t)sizeof *x, 0, &p));
    *out = p;
    return w->dev->ops->copy_in(w->dev, p, x, n * (int64_t)sizeof *x);
}

static void *at_element(const void *p, int64_t i, enum dtype dt)
{
    return (char *)(uintptr_t)p + i * dtype_size(dt);
}

/* The operation has no operands here, or no run. The switches over all of them have no default, so
 * the compiler names what they forget. */
static enum err unknown(const struct calls_work *w)
{
    FAIL(ERR_INTERNAL, "bench: operation %s has no way to be run alone",
         calls_op_name(w->call.op));
}

/* ---- operands of each operation ---- */

static enum err open_gemm(struct calls_work *w, const int64_t *s, int64_t flags)
{
    struct gemm *g = &w->arg.gemm;
    *g = (struct gemm){.m = s[0], .n = s[1], .k = s[2], .lda = s[3], .ldb = s[4], .ldc = s[5],
                       .trans_a = flags & CALL_TRANS_A, .trans_b = flags & CALL_TRANS_B,
                       .accumulate = flags & CALL_ACCUMULATE, .c_at = flags & CALL_WIDE,
                       .act = flags & CALL_GELU ? GEMM_GELU : flags & CALL_DGELU ? GEMM_DGELU
                                                                                 : GEMM_NONE};
    TRY(take(w, g->c_at ? FILL_AT : FILL_CT, g->m * g->ldc, 0, &g->c));
    TRY(take_const(w, FILL_CT, (g->trans_a ? g->k : g->m) * g->lda, &g->a));
    TRY(take_const(w, FILL_CT, (g->trans_b ? g->n : g->k) * g->ldb, &g->b));
    if (flags & CALL_BIAS)
        TRY(take_const(w, FILL_CT, g->n, &g->bias));
    if (g->act != GEMM_NONE)
        TRY(take(w, FILL_CT, g->m * g->n, 0, &g->pre));
    if (flags & CALL_DB)
        TRY(take(w, FILL_AT, g->m, 0, &g->db));
    return ERR_OK;
}

static enum err open_norm(struct calls_work *w, struct norm *a, const int64_t *s, int64_t flags)
{
    *a = (struct norm){.n = s[0], .c = s[1], .eps = 1e-5, .rms = flags & CALL_RMS};
    TRY(take(w, FILL_CT, a->n * a->c, 0, &a->y));
    TRY(take(w, FILL_ABS, a->n, 0, &a->rstd));
    TRY(take_const(w, FILL_CT, a->c, &a->w));
    if (flags & CALL_MEAN)
        TRY(take(w, FILL_AT, a->n, 0, &a->mean));
    if (flags & CALL_SHIFT)
        TRY(take_const(w, FILL_CT, a->c, &a->b));
    return ERR_OK;
}

static enum err open_norm_grad(struct calls_work *w, const int64_t *s, int64_t flags)
{
    struct norm_grad *a = &w->arg.norm_grad;
    *a = (struct norm_grad){.n = s[0], .c = s[1], .rms = flags & CALL_RMS};
    TRY(take(w, FILL_CT, a->n * a->c, 0, &a->dx));
    TRY(take_const(w, FILL_CT, a->n * a->c, &a->dy));
    TRY(take_const(w, FILL_CT, a->n * a->c, &a->x));
    TRY(take_const(w, FILL_CT, a->c, &a->w));
    TRY(take_const(w, FILL_ABS, a->n, &a->rstd));
    TRY(take(w, FILL_AT, (flags & CALL_SHIFT ? 2 : 1) * a->c, 0, &a->dw)); /* as models have it */
    if (flags & CALL_PLUS)
        TRY(take_const(w, FILL_CT, a->n * a->c, &a->d));
    if (flags & CALL_MEAN)
        TRY(take_const(w, FILL_AT, a->n, &a->mean));
    if (flags & CALL_SHIFT)
        a->db = at_element(a->dw, a->c, w->dev->at);
    return ERR_OK;
}

/* q, k, v as the model has them: side by side in rows of one buffer where the strides allow it. */
static enum err take_rows(struct calls_work *w, const struct attn *a, const void *out[3])
{
    int64_t wide = a->heads * a->d, narrow = a->kv_heads * a->d;
    bool joined = a->tq == a->tk && a->ldq == a->ldk && a->ldq == a->ldv &&
                  a->ldq >= wide + 2 * narrow;
    TRY(take_const(w, FILL_CT, a->b * a->tq * a->ldq, &out[0]));
    if (joined) {
        out[1] = at_element(out[0], wide, w->dev->ct);
        out[2] = at_element(out[0], wide + narrow, w->dev->ct);
        return ERR_OK;
    }
    TRY(take_const(w, FILL_CT, a->b * a->tk * a->ldk, &out[1]));
    return take_const(w, FILL_CT, a->b * a->tk * a->ldv, &out[2]);
}

static enum err open_attn(struct calls_work *w, const int64_t *s, bool gradient)
{
    struct attn_grad *g = &w->arg.attn;
    struct attn *a = &g->f;
    const void *in[3], *grad[3];
    *a = (struct attn){.b = s[0], .tq = s[1], .tk = s[2], .heads = s[3], .kv_heads = s[4],
                       .d = s[5], .ldq = s[6], .ldk = s[7], .ldv = s[8], .ldo = s[9],
                       .scale = 1.0 / sqrt((double)s[5]), .heads_total = s[3]};
    if (s[10] & CALL_DROP)
        a->drop = (struct drop){.p = 0.1, .seed = SEED};
    int64_t rows = a->b * a->tq;
    TRY(take_rows(w, a, in));
    a->q = in[0];
    a->k = in[1];
    a->v = in[2];
    TRY(take(w, FILL_CT, rows * a->ldo, 0, &a->o));
    TRY(take(w, FILL_AT, rows * a->heads, 0, &a->lse));
    if (!gradient)
        return ERR_OK;
    TRY(take_const(w, FILL_CT, rows * a->ldo, &g->do_));
    TRY(take_rows(w, a, grad));
    g->dq = (void *)(uintptr_t)grad[0];
    g->dk = (void *)(uintptr_t)grad[1];
    g->dv = (void *)(uintptr_t)grad[2];
    TRY(take(w, FILL_AT, rows * a->heads, 0, &g->delta));
    return w->dev->ops->attn(w->dev, a);
}

static enum err open_rope(struct calls_work *w, const int64_t *s)
{
    struct rope *a = &w->arg.rope;
    *a = (struct rope){.n = s[0], .t = s[1], .heads = s[2], .d = s[3], .ld = s[4],
                       .inverse = s[5] & CALL_INVERSE};
    TRY(take(w, FILL_CT, a->n * a->ld, 0, &a->x));
    return take_const(w, FILL_AT, a->t * a->d, &a->table);
}

static enum err open_residual(struct calls_work *w, const int64_t *s, int64_t flags)
{
    struct residual *a = &w->arg.add.residual;
    *a = (struct residual){.n = s[0], .c = s[1]};
    if (flags & CALL_DROP)
        a->drop = (struct drop){.p = 0.1, .seed = SEED};
    TRY(take(w, FILL_CT, a->n * a->c, 0, &a->y));
    TRY(take_const(w, FILL_CT, a->n * a->c, &a->f));
    if (flags & CALL_X)
        TRY(take_const(w, FILL_CT, a->n * a->c, &a->x));
    if (flags & CALL_PLUS)
        TRY(take_const(w, FILL_CT, a->c, &a->bias));
    return ERR_OK;
}

/* Up to three plain operands in arg.flat; the third may be ids below `limit`. */
static enum err open_flat(struct calls_work *w, enum fill to, int64_t to_n, enum fill from,
                          int64_t from_n)
{
    TRY(take(w, to, to_n, 0, &w->arg.flat.to));
    return from_n ? take_const(w, from, from_n, &w->arg.flat.from) : ERR_OK;
}

static enum err open_rows(struct calls_work *w, const int64_t *s)
{
    int64_t n = s[0], c = s[1];
    void *third = NULL;
    switch (w->call.op) {
    case CALL_BIAS_GRAD: return open_flat(w, FILL_AT, c, FILL_CT, n * c);
    case CALL_SWIGLU: return open_flat(w, FILL_CT, n * c, FILL_CT, 2 * n * c);
    case CALL_SWIGLU_GRAD:
        TRY(open_flat(w, FILL_CT, 2 * n * c, FILL_CT, n * c));
        return take_const(w, FILL_CT, 2 * n * c, &w->arg.flat.third);
    case CALL_DROPOUT: return open_flat(w, FILL_CT, n * c, FILL_CT, n * c);
    case CALL_EMBED: TRY(open_flat(w, FILL_CT, n * c, FILL_CT, s[2] * c)); break;
    case CALL_EMBED_GRAD: TRY(open_flat(w, FILL_AT, s[2] * c, FILL_CT, n * c)); break;
    case CALL_POS_ADD: return open_flat(w, FILL_CT, n * c, FILL_CT, s[2] * c);
    case CALL_POS_GRAD: return open_flat(w, FILL_AT, s[2] * c, FILL_CT, n * c);
    default: return unknown(w);
    }
    TRY(take(w, FILL_IDS, n, s[2], &third));
    w->arg.flat.third = third;
    return ERR_OK;
}

static enum err open_xent(struct calls_work *w, const int64_t *s, int64_t flags)
{
    struct xent *x = &w->arg.xent;
    const struct dev_ops *ops = w->dev->ops;
    void *target;
    *x = (struct xent){.n = s[0], .v = s[1], .ld = s[2]};
    TRY(take_const(w, FILL_LOGITS, x->n * x->ld, &x->logits));
    TRY(take(w, FILL_IDS, x->n, x->v, &target));
    x->target = target;
    void **const row[] = {&x->max, &x->sum, &x->hit, &x->loss};
    for (int i = 0; i < 4; i++)
        TRY(take(w, FILL_ABS, x->n, 0, row[i]));
    if (flags & CALL_IN_PLACE)
        x->dlogits = (void *)(uintptr_t)x->logits;
    else if (flags & CALL_MADE)
        TRY(take(w, FILL_CT, x->n * x->ld, 0, &x->dlogits));
    if (w->call.op == CALL_XENT_SUM || w->call.op == CALL_XENT_GRAD)
        TRY(ops->xent_max(w->dev, x));
    return w->call.op == CALL_XENT_GRAD ? ops->xent_sum(w->dev, x) : ERR_OK;
}

static enum err open_adamw(struct calls_work *w, const int64_t *s)
{
    static const double now[NOW_COUNT] = {1e-4, 0.1, 0.05, 1e-3};
    struct adamw *a = &w->arg.adamw;
    double *on_device;
    *a = (struct adamw){.n = s[0], .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1};
    TRY(take(w, FILL_CT, a->n, 0, &a->w));
    TRY(take(w, FILL_AT, a->n, 0, &a->m));
    TRY(take(w, FILL_ABS, a->n, 0, &a->v));
    TRY(take_const(w, FILL_AT, a->n, &a->grad));
    if (s[1] & CALL_MASTER)
        TRY(take(w, FILL_AT, a->n, 0, &a->master));
    TRY(take_doubles(w, now, NOW_COUNT, &on_device));
    a->now = on_device;
    return ERR_OK;
}

static enum err open_vector(struct calls_work *w, int64_t n)
{
    static const double one[NOW_COUNT] = {1, 1, 1, 1};
    double *to = NULL, *from = NULL;
    switch (w->call.op) {
    case CALL_CAST: return open_flat(w, FILL_CT, n, FILL_AT, n);
    case CALL_ADD: return open_flat(w, FILL_AT, n, FILL_AT, n);
    case CALL_ZERO: return open_flat(w, FILL_RAW, n, FILL_RAW, 0);
    case CALL_COPY: {
        int64_t of = num_ceil_div(n, dtype_size(w->dev->at));
        return open_flat(w, FILL_RAW, n, FILL_AT, of);
    }
    case CALL_SCALE: case CALL_SUM: case CALL_SUMSQ: break;
    default: return unknown(w);
    }
    TRY(take_doubles(w, one, NOW_COUNT, &to));
    w->arg.flat.to = to;
    if (w->call.op != CALL_SCALE)
        return take_const(w, FILL_AT, n, &w->arg.flat.from);
    TRY(take_doubles(w, one, SUMS_COUNT, &from));
    w->arg.flat.from = from;
    return ERR_OK;
}

/* long: a row an operation */
static enum err open_operands(struct calls_work *w)
{
    const int64_t *s = w->call.size;
    switch (w->call.op) {
    case CALL_GEMM: return open_gemm(w, s, s[6]);
    case CALL_NORM:
        TRY(open_norm(w, &w->arg.norm, s, s[2]));
        return take_const(w, FILL_CT, s[0] * s[1], &w->arg.norm.x);
    case CALL_NORM_GRAD: return open_norm_grad(w, s, s[2]);
    case CALL_ATTN: return open_attn(w, s, false);
    case CALL_ATTN_GRAD: return open_attn(w, s, true);
    case CALL_ROPE: return open_rope(w, s);
    case CALL_RESIDUAL: return open_residual(w, s, s[2]);
    case CALL_RESIDUAL_NORM:
        TRY(open_residual(w, s, s[2]));
        TRY(open_norm(w, &w->arg.add.norm, s, s[2]));
        w->arg.add.norm.x = w->arg.add.residual.y;
        return ERR_OK;
    case CALL_XENT: case CALL_XENT_MAX: case CALL_XENT_SUM: case CALL_XENT_GRAD:
        return open_xent(w, s, s[3]);
    case CALL_ADAMW: return open_adamw(w, s);
    case CALL_SCALE: case CALL_SUM: case CALL_SUMSQ: case CALL_CAST: case CALL_ADD:
    case CALL_COPY: case CALL_ZERO:
        return open_vector(w, s[0]);
    case CALL_BIAS_GRAD: case CALL_SWIGLU: case CALL_SWIGLU_GRAD: case CALL_DROPOUT:
    case CALL_EMBED: case CALL_EMBED_GRAD: case CALL_POS_ADD: case CALL_POS_GRAD:
        return open_rows(w, s);
    case CALLS_OPS: break;
    }
    return unknown(w);
}

/* One extent, its first size. */
static bool is_flat(enum calls_op op)
{
    const char *first = calls_size_name(op, 0), *second = calls_size_name(op, 1);
    return first && (!second || strcmp(second, "flags") == 0);
}

double calls_part(const struct calls_call *c)
{
    if (!is_flat(c->op) || c->size[0] <= CALLS_FLAT_MAX)
        return 1;
    return (double)CALLS_FLAT_MAX / (double)c->size[0];
}

enum err calls_open(struct dev *d, const struct calls_call *c, struct calls_work *w)
{
    *w = (struct calls_work){.dev = d, .call = *c};
    if (is_flat(c->op))
        w->call.size[0] = num_min(c->size[0], CALLS_FLAT_MAX);
    enum err err = open_operands(w);
    if (err == ERR_OK)
        err = d->ops->sync(d);
    if (err != ERR_OK)
        calls_close(w);
    return err;
}

void calls_close(struct calls_work *w)
{
    for (int i = 0; i < w->operands; i++)
        w->dev->ops->free(w->dev, w->operand[i]);
    w->operands = 0;
}

/* ---- running ---- */

static enum err run_rows(struct calls_work *w, const int64_t *s)
{
    const struct drop drop = {.p = s[2] & CALL_DROP ? 0.1 : 0, .seed = SEED};
    struct dev *d = w->dev;
    void *to = w->arg.flat.to;
    const void *from = w->arg.flat.from, *third = w->arg.flat.third;
    switch (w->call.op) {
    case CALL_BIAS_GRAD: return d->ops->bias_grad(d, to, from, s[0], s[1]);
    case CALL_SWIGLU: return d->ops->swiglu(d, to, from, s[0], s[1]);
    case CALL_SWIGLU_GRAD: return d->ops->swiglu_grad(d, to, from, third, s[0], s[1]);
    case CALL_DROPOUT: return d->ops->dropout(d, to, from, s[0], s[1], &drop);
    case CALL_EMBED: return d->ops->embed(d, to, from, third, s[0], s[1], 0, s[2]);
    case CALL_EMBED_GRAD: return d->ops->embed_grad(d, to, from, third, s[0], s[1], 0, s[2]);
    case CALL_POS_ADD: return d->ops->pos_add(d, to, from, s[0], s[1], s[2], 0);
    case CALL_POS_GRAD: return d->ops->pos_grad(d, to, from, s[0], s[1], s[2], 0);
    case CALL_SCALE: return d->ops->scale(d, to, from, 1.0);
    case CALL_SUM: return d->ops->sum(d, to, from, s[0]);
    case CALL_SUMSQ: return d->ops->sumsq(d, to, from, &(struct dev_parts){1, {0, s[0]}});
    case CALL_CAST: return d->ops->cast(d, to, from, s[0]);
    case CALL_ADD: return d->ops->add(d, to, from, s[0]);
    case CALL_COPY: return d->ops->copy(d, to, from, s[0]);
    case CALL_ZERO: return d->ops->zero(d, to, s[0]);
    default: return unknown(w);
    }
}

/* All of it decays: as of a store, in which matrices are nearly all. */
static enum err run_adamw(struct dev *d, const struct adamw *of)
{
    const struct dev_parts all = {1, {0, of->n}};
    struct adamw a = *of;
    a.decays = &all;
    return d->ops->adamw(d, &a);
}

enum err calls_run(struct calls_work *w)
{
    struct dev *d = w->dev;
    switch (w->call.op) {
    case CALL_GEMM: return d->ops->gemm(d, &w->arg.gemm);
    case CALL_NORM: return d->ops->norm(d, &w->arg.norm);
    case CALL_NORM_GRAD: return d->ops->norm_grad(d, &w->arg.norm_grad);
    case CALL_ATTN: return d->ops->attn(d, &w->arg.attn.f);
    case CALL_ATTN_GRAD: return d->ops->attn_grad(d, &w->arg.attn);
    case CALL_ROPE: return d->ops->rope(d, &w->arg.rope);
    case CALL_RESIDUAL: return d->ops->residual(d, &w->arg.add.residual);
    case CALL_RESIDUAL_NORM:
        return d->ops->residual_norm(d, &w->arg.add.residual, &w->arg.add.norm);
    case CALL_XENT: return d->ops->xent(d, &w->arg.xent);
    case CALL_XENT_MAX: return d->ops->xent_max(d, &w->arg.xent);
    case CALL_XENT_SUM: return d->ops->xent_sum(d, &w->arg.xent);
    case CALL_XENT_GRAD: return d->ops->xent_grad(d, &w->arg.xent);
    case CALL_ADAMW: return run_adamw(d, &w->arg.adamw);
    case CALL_BIAS_GRAD: case CALL_SWIGLU: case CALL_SWIGLU_GRAD: case CALL_DROPOUT:
    case CALL_EMBED: case CALL_EMBED_GRAD: case CALL_POS_ADD: case CALL_POS_GRAD: case CALL_SCALE:
    case CALL_SUM: case CALL_SUMSQ: case CALL_CAST: case CALL_ADD: case CALL_COPY: case CALL_ZERO:
        return run_rows(w, w->call.size);
    case CALLS_OPS: break;
    }
    return unknown(w);
}
