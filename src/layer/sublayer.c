/* SPDX-License-Identifier: Apache-2.0
 *
 * What attention and mlp share: x -> norm -> (inside) -> + bias, dropout, + x, and its gradient.
 *
 *     forward    h = norm(x)                y = x + drop(f + bias)
 *     backward   d_sublayer = drop'(dy)     dx = dy + norm'(dh)
 *
 * The backward of both ends in the same way: the sum over ranks of dh, the gradient through the
 * norm, and the weights' gradients, of the last GEMM by d_sublayer and of the first by dmid and h,
 * which with sp is gathered again. Where both halves are wanted and tp.rows is set, the sum of dh
 * overlaps the weight gradients, as in Megatron-LM, and the gather of h what comes before.
 *
 * Biases of row-parallel GEMMs are added after the sum over ranks, once; their gradient is taken
 * from the whole d_sublayer, so it is complete on every rank.
 */
#include "layer/stage.h"

static struct norm norm_of(const struct stage_call *c, void *h)
{
    return (struct norm){.y = h, .mean = c->save[SAVE_MEAN], .rstd = c->save[SAVE_RSTD],
                         .x = c->save[SAVE_X], .w = stage_w(c, PARAM_NORM_W),
                         .b = stage_w(c, PARAM_NORM_B), .n = c->dims.nl, .c = c->dims.c,
                         .eps = c->p->layer.dims.norm_eps, .rms = c->dims.rms};
}

enum err stage_norm(const struct stage_call *c, void *h)
{
    struct norm a = norm_of(c, h);
    return c->normed ? ERR_OK : dev_norm(c->s->dev, &a);
}

/* The kept gradient of the norm's shift, behind that of its scale; NULL: it has none. */
static void *norm_shift(const struct stage_call *c)
{
    return c->p->role[PARAM_NORM_B] ? (char *)c->keep[KEEP_DNORM] + c->dims.c * c->dims.at : NULL;
}

enum err stage_norm_grad(const struct stage_call *c, const void *d, const struct tensor *dh)
{
    TENSOR_NEEDS(dh, tp_stream(&c->s->tp));
    return dev_norm_grad(c->s->dev, &(struct norm_grad){.dx = c->dx, .d = d,
                                                        .dw = c->keep[KEEP_DNORM],
                                                        .db = norm_shift(c), .dy = dh->p,
                                                        .x = c->save[SAVE_X],
                                                        .w = stage_w(c, PARAM_NORM_W),
                                                        .mean = c->save[SAVE_MEAN],
                                                        .rstd = c->save[SAVE_RSTD], .n = c->dims.nl,
                                                        .c = c->dims.c, .rms = c->dims.rms});
}

/* to = from, or += from; n elements of `at`. */
static enum err give(struct dev *dev, void *to, const void *from, int64_t n, bool add)
{
    return add ? dev_add(dev, to, from, n) : dev_copy(dev, to, from, n * dtype_size(dev->at));
}

enum err stage_norm_weight(const struct stage_call *c)
{
    const struct param *w = c->p->role[PARAM_NORM_W], *b = c->p->role[PARAM_NORM_B];
    int64_t n = c->dims.c, bytes = n * c->dims.at;
    bool add;
    TRY(param_grads_begin(w, b, (int64_t[]){n, n}, &add));
    if (b && (char *)param_grad(w) + bytes == param_grad(b)) /* one lies behind the other */
        return give(c->s->dev, param_grad(w), c->keep[KEEP_DNORM], 2 * n, add);
    TRY(give(c->s->dev, param_grad(w), c->keep[KEEP_DNORM], n, add));
    return b ? give(c->s->dev, param_grad(b), norm_shift(c), n, add) : ERR_OK;
}

enum err stage_residual(const struct stage_call *c, const struct tensor *f, enum param_id bias)
{
    TENSOR_NEEDS(f, tp_stream(&c->s->tp));
    struct residual a = {.y = c->y, .x = c->save[SAVE_X], .f = f->p, .bias = stage_w(c, bias),
                         .n = c->dims.nl, .c = c->dims.c, .drop = stage_drop(c, SITE_OUTPUT)};
    if (!c->next)
        return dev_residual(c->s->dev, &a);
    struct norm b = norm_of(c->next, c->next->save[SAVE_H]);
    return dev_residual_norm(c->s->dev, &(struct residual_norm){a, b});
}

struct tensor stage_norm_output(const struct stage_call *c)
{
    return (struct tensor){c->save[SAVE_H], c->dims.nl, c->dims.c, tp_stream(&c->s->tp)};
}

static enum err norm_again(const struct stage_call *c, struct stage_again *a)
{
    struct tensor local = stage_norm_output(c);
    return tp_gather(&c->s->tp, &local, c->s->work->at[WORK_FULL], &a->h, &a->wait);
}

enum err stage_mid_grad(const struct stage_call *c, struct tp_linear *l, int64_t cols,
                        struct stage_again *a)
{
    const struct tp *tp = &c->s->tp;
    struct drop drop = stage_drop(c, SITE_OUTPUT);
    struct tensor dmid, d_sublayer = { /* whole it belongs to c->d_sublayer */
        tp->sp ? c->s->work->at[WORK_DH] : c->d_sublayer, c->dims.nl, c->dims.c, tp_stream(tp)};
    if (!c->aliases_dy)
        TRY(dev_dropout(c->s->dev, &(struct dropout){d_sublayer.p, c->dy, c->dims.nl, c->dims.c,
                                                     drop}));
    l->full = c->d_sublayer;
    TRY(tp_row_grad(tp, &d_sublayer, l, cols, &dmid));
    return a ? norm_again(c, a) : ERR_OK;
}

static struct tp_buffers dh_buffers(const struct stage_call *c)
{
    void *const *work = c->s->work->at;
    return (struct tp_buffers){work[WORK_PARTIAL], work[WORK_DH]};
}

enum err stage_sub_input(const struct stage_call *c)
{
    struct stage_sub s = c->p->kind->sub(c);
    struct tp_buffers b = dh_buffers(c);
    struct tensor dh;
    TRY(c->p->kind->inner(c, NULL));
    TRY(tp_column_grad(&c->s->tp, &s.dmid, stage_w(c, s.in[0]), c->dims.c, &b, &dh, NULL));
    return stage_norm_grad(c, c->dy, &dh);
}

static enum err weights(const struct stage_call *c, const struct stage_sub *s,
                        struct stage_again *a)
{
    struct tensor d_sublayer = {c->d_sublayer, c->dims.n, c->dims.c, PLACE_WHOLE};
    TRY(stage_weight_grad(c, s->out, &d_sublayer, &s->mid));
    TRY(tp_finish(&a->wait));
    return stage_weight_grad(c, s->in, &s->dmid, &a->h);
}

enum err stage_sub_weight(const struct stage_call *c)
{
    struct stage_sub s = c->p->kind->sub(c);
    struct stage_again a = {0};
    TRY(stage_norm_weight(c));
    TRY(norm_again(c, &a));
    return weights(c, &s, &a);
}

enum err stage_sub_both(const struct stage_call *c)
{
    struct stage_sub s = c->p->kind->sub(c);
    struct tp_buffers b = dh_buffers(c);
    struct stage_again a = {0};
    struct tp_wait sum = {0};
    struct tensor dh;
    TRY(c->p->kind->inner(c, &a));
    TRY(tp_column_grad(&c->s->tp, &s.dmid, stage_w(c, s.in[0]), c->dims.c, &b, &dh, &sum));
    TRY(weights(c, &s, &a));
    TRY(tp_finish(&sum));
    TRY(stage_norm_grad(c, c->dy, &dh));
    return stage_norm_weight(c);
}
