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

/* The chunk [row, row + rows) of a microbatch. */
struct chunk {
    int64_t row, rows;
    struct xent x;
};

static const struct param *weight(const struct stage_call *c)
{
    return c->p->role[PARAM_HEAD_W];
}

/* The gradient of the logits: a buffer of its own, or the logits' place. */
static void *dlogits_of(const struct stage_call *c)
{
    void *const *work = c->s->work->at;
    return work[WORK_DLOGITS] ? work[WORK_DLOGITS] : work[WORK_LOGITS];
}

static struct chunk chunk_at(const struct stage_call *c, int64_t row)
{
    const struct model_dims *d = &c->dims;
    void *const *work = c->s->work->at;
    char *rows = work[WORK_ROW];
    struct chunk k = {.row = row, .rows = num_min(d->chunk, d->n - row)};
    k.x = (struct xent){.logits = work[WORK_LOGITS], .target = c->mb->targets + row, .n = k.rows,
                        .v = weight(c)->box.real[0], .ld = d->v, .v0 = weight(c)->box.at[0],
                        .max = rows, .sum = rows + d->chunk * d->at,
                        .target_logit = rows + (d->chunk + k.rows) * d->at,
                        .loss = rows + (3 * d->chunk + row) * d->at,
                        .dlogits = c->mb->training ? dlogits_of(c) : NULL};
    return k;
}

static bool has_norm(const struct stage_call *c)
{
    return c->p->layer.dims.norm;
}

/* Loss of a chunk's rows, agreed over tensor ranks; the gradient of its logits when training. */
static enum err chunk_loss(const struct stage_call *c, const struct chunk *k,
                           const struct tensor *h)
{
    const struct model_dims *d = &c->dims;
    const struct tp *tp = &c->s->tp;
    const char *rows = (const char *)h->p + k->row * d->c * d->ct;
    bool wide = c->s->dev->logits == c->s->dev->at;
    TRY(dev_gemm(c->s->dev, &(struct gemm){.c = c->s->work->at[WORK_LOGITS], .a = rows,
                                           .b = stage_w(c, PARAM_HEAD_W),
                                           .bias = stage_w(c, PARAM_HEAD_B), .m = k->rows,
                                           .n = d->v, .k = d->c, .trans_b = true, .c_at = wide}));
    if (tp->size == 1)
        return dev_xent(c->s->dev, &k->x);
    TRY(dev_xent_max(c->s->dev, &k->x));
    TRY(comm_all_reduce(tp->group, k->x.max, k->rows, c->s->dev->at, COMM_MAX));
    TRY(dev_xent_sum(c->s->dev, &k->x)); /* target_logit lies directly behind sum */
    TRY(comm_all_reduce(tp->group, k->x.sum, 2 * k->rows, c->s->dev->at, COMM_SUM));
    return dev_xent_grad(c->s->dev, &k->x);
}

/* Where the gradient of the norm's output is summed. */
static struct tp_buffers dh_buffers(const struct stage_call *c)
{
    return (struct tp_buffers){c->s->work->at[WORK_PARTIAL], c->save[SAVE_DH]};
}

/* dh of the chunk's rows and dw += dlogits^T h, which the first of a step writes: the embedding
 * that may share dw comes later. dh is a summand, whose sum overlaps dw where tp.rows is set. */
static enum err chunk_grad(const struct stage_call *c, const struct chunk *k,
                           const struct tensor *h, struct tp_wait *w)
{
    const struct model_dims *d = &c->dims;
    const struct tp *tp = &c->s->tp;
    struct tp_buffers b = dh_buffers(c);
    char *dh = tp_summand(tp, &b);
    const void *dlogits = dlogits_of(c);
    const char *rows = (const char *)h->p + k->row * d->c * d->ct;
    TRY(dev_gemm(c->s->dev, &(struct gemm){.c = dh + k->row * d->c * d->ct, .a = dlogits,
                                           .b = stage_w(c, PARAM_HEAD_W), .m = k->rows, .n = d->c,
                                           .k = d->v}));
    if (tp->rows > 0)
        TRY(tp_reduce_rows(tp, &(struct tp_rows){k->row, k->rows, d->n, d->c}, &b, w));
    const struct param *bias = c->p->role[PARAM_HEAD_B];
    bool add;
    TRY(param_grads_begin(weight(c), bias, (int64_t[]){d->v * d->c, d->v}, &add));
    return dev_gemm(c->s->dev, &(struct gemm){.c = param_grad(weight(c)), .a = dlogits, .b = rows,
                                              .m = d->v, .n = d->c, .k = k->rows, .trans_a = true,
                                              .accumulate = add, .c_at = true,
                                              .db = param_grad(bias)});
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

static enum err forward(const struct stage_call *c)
{
    const struct model_dims *d = &c->dims;
    struct tp_buffers b = dh_buffers(c);
    struct tp_wait w = {0};
    struct tensor h, dh;
    if (!c->mb->targets)
        return ERR_OK; /* generation: head_row_logits follows */
    TRY(input_whole(c, &h));
    for (int64_t row = 0; row < d->n; row += d->chunk) {
        struct chunk k = chunk_at(c, row);
        TRY(chunk_loss(c, &k, &h));
        if (c->mb->training)
            TRY(chunk_grad(c, &k, &h, &w));
    }
    char *losses = (char *)c->s->work->at[WORK_ROW] + 3 * d->chunk * d->at;
    TRY(dev_sum(c->s->dev, &(struct sum){c->s->loss, losses, d->n}));
    if (!c->mb->training || c->s->tp.rows > 0)
        return tp_finish(&w);
    return tp_reduce(&c->s->tp, d->n, d->c, &b, &dh);
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
