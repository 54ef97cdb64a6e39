/* SPDX-License-Identifier: Apache-2.0
 *
 * Output head and cross entropy in one pass, behind a norm or with a bias. Logits are made a chunk
 * of rows at a time; while the chunk is at hand its loss, its gradient, the gradient's GEMM with
 * the weight and the weight's gradient are all made, so the logits are computed once and never
 * stored. What the backward needs is then one (nl, C) matrix, the gradient of what the matrix
 * reads, kept in the slot. So this layer's forward carries the work of its backward.
 *
 * The vocabulary is cut over tensor ranks; a row's maximum, its sum of exponentials and its
 * target's logit are agreed by two small all-reduces a chunk (Shoeybi et al. 2019, section 3).
 * Missing rows of an odd vocabulary are outside `v` and never enter a sum.
 *
 * The loss and its gradient are sums over tokens, divided once, at the optimizer.
 */
#include "layer/stage.h"

static bool has_norm(const struct stage_call *c)
{
    return c->p->layer.dims.norm;
}

/* What the matrix reads, whole: the norm's output, in scratch, or the input. */
static enum err input_whole(const struct stage_call *c, struct tensor *h)
{
    struct tensor local = {has_norm(c) ? c->s->work->at[WORK_DH] : c->save[SAVE_X], c->dims.nl,
                           c->dims.c, tp_stream(&c->s->tp)};
    if (has_norm(c))
        TRY(stage_norm(c, local.p));
    return tp_gather(&c->s->tp, &local, c->s->work->at[WORK_FULL], h, NULL);
}

/* Loss of a chunk's logits, agreed over tensor ranks; their gradient when training. */
static enum err chunk_loss(const struct stage_call *c, const struct xent *x)
{
    const struct tp *tp = &c->s->tp;
    struct dev *dev = c->s->dev;
    if (tp->size == 1)
        return dev_xent(dev, x);
    TRY(dev_xent_max(dev, x));
    TRY(comm_all_reduce(tp->group, x->max, x->n, dev->at, COMM_MAX));
    TRY(dev_xent_sum(dev, x)); /* target_logit lies directly behind sum */
    TRY(comm_all_reduce(tp->group, x->sum, 2 * x->n, dev->at, COMM_SUM));
    return dev_xent_grad(dev, x);
}

static enum err forward(const struct stage_call *c)
{
    const struct model_dims *d = &c->dims;
    const struct tp *tp = &c->s->tp;
    struct dev *dev = c->s->dev;
    const struct param *weight = c->p->role[PARAM_HEAD_W], *bias = c->p->role[PARAM_HEAD_B];
    void *const *work = c->s->work->at;
    void *logits = work[WORK_LOGITS];
    void *dlogits = work[WORK_DLOGITS] ? work[WORK_DLOGITS] : logits; /* or in the same place */
    char *rows = work[WORK_ROW], *losses = rows + 3 * d->chunk * d->at;
    struct tp_buffers b = {work[WORK_PARTIAL], c->save[SAVE_DH]};
    char *dh = tp_summand(tp, &b); /* (n, C): its sum overlaps dw where tp.rows is set */
    struct tp_wait w = {0};
    struct tensor h, sum;
    if (!c->mb->targets)
        return ERR_OK; /* generation: head_row_logits follows */
    TRY(input_whole(c, &h));
    for (int64_t row = 0, m; row < d->n; row += m) { /* m rows at a time */
        m = num_min(d->chunk, d->n - row);
        char *x = (char *)h.p + row * d->c * d->ct; /* (m, C) */
        struct xent k = {.logits = logits, .target = c->mb->targets + row, .n = m,
                         .v = weight->box.real[0], .ld = d->v, .v0 = weight->box.at[0],
                         .max = rows, .sum = rows + d->chunk * d->at,
                         .target_logit = rows + (d->chunk + m) * d->at,
                         .loss = losses + row * d->at,
                         .dlogits = c->mb->training ? dlogits : NULL};
        /* logits (m, V/tp) = x w^T + bias */
        TRY(dev_gemm(dev, &(struct gemm){.c = logits, .a = x, .b = stage_w(c, PARAM_HEAD_W),
                                         .bias = stage_w(c, PARAM_HEAD_B), .m = m, .n = d->v,
                                         .k = d->c, .trans_b = true,
                                         .c_at = dev->logits == dev->at}));
        TRY(chunk_loss(c, &k));
        if (!c->mb->training)
            continue;
        /* dh (m, C) = dlogits w */
        TRY(dev_gemm(dev, &(struct gemm){.c = dh + row * d->c * d->ct, .a = dlogits,
                                         .b = stage_w(c, PARAM_HEAD_W), .m = m, .n = d->c,
                                         .k = d->v}));
        if (tp->rows > 0)
            TRY(tp_reduce_rows(tp, &(struct tp_rows){row, m, d->n, d->c}, &b, &w));
        /* dw (V/tp, C) += dlogits^T x, which the first of a step writes: the embedding that may
         * share dw comes later. */
        bool add;
        TRY(param_grads_begin(weight, bias, (int64_t[]){d->v * d->c, d->v}, &add));
        TRY(dev_gemm(dev, &(struct gemm){.c = param_grad(weight), .a = dlogits, .b = x, .m = d->v,
                                         .n = d->c, .k = m, .trans_a = true, .accumulate = add,
                                         .c_at = true, .db = param_grad(bias)}));
    }
    TRY(dev_sum(dev, &(struct sum){c->s->loss, losses, d->n}));
    if (!c->mb->training || tp->rows > 0)
        return tp_finish(&w);
    return tp_reduce(tp, d->n, d->c, &b, &sum);
}

static enum err backward_input(const struct stage_call *c)
{
    struct tensor dh = {c->save[SAVE_DH], c->dims.nl, c->dims.c, tp_stream(&c->s->tp)};
    if (has_norm(c))
        return stage_norm_grad(c, NULL, &dh);
    return c->dx ? dev_copy(c->s->dev, c->dx, dh.p, dh.rows * dh.cols * c->dims.ct) : ERR_OK;
}

static enum err backward_weight(const struct stage_call *c)
{
    return has_norm(c) ? stage_norm_weight(c) : ERR_OK; /* the matrix's is made by the forward */
}

const struct layer_kind layer_head = {.name = "head", .forward = forward,
                                      .backward_input = backward_input,
                                      .backward_weight = backward_weight};

enum err head_row_logits(const struct stage *s, const struct stage_mb *mb,
                         const struct stage_slot *slot, int64_t row, void *out)
{
    struct stage_call c = stage_call_of(s, mb, s->parts - 1);
    struct tensor h;
    c.save = slot->save[s->parts - 1];
    ENSURE(stage_has_head(s) && row < c.dims.n);
    TRY(input_whole(&c, &h));
    return dev_gemm(s->dev, &(struct gemm){.c = out, .a = (char *)h.p + row * c.dims.c * c.dims.ct,
                                           .b = stage_w(&c, PARAM_HEAD_W), .m = 1, .n = c.dims.v,
                                           .k = c.dims.c, .trans_b = true, .c_at = true});
}
