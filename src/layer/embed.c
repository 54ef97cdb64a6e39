/* SPDX-License-Identifier: Apache-2.0
 *
 * Token embedding over a vocabulary cut by rows: each rank looks up the tokens of its rows and
 * gives zeros for the others, and the sum over ranks, which adds one number to zeros and so is
 * exact, is the embedding. gpt adds learned positions to the rows that the rank then holds.
 */
#include "layer/stage.h"

/* Row of the first local row within the microbatch. */
static int64_t first_row(const struct stage_call *c)
{
    return c->s->tp.sp ? c->s->tp.rank * c->dims.nl : 0;
}

static enum err forward(const struct stage_call *c)
{
    const struct model_dims *d = &c->dims;
    const struct param *tokens = c->p->role[PARAM_TOKENS];
    struct tp_buffers b = {c->s->work->at[WORK_PARTIAL], c->y};
    struct drop drop = stage_drop(c, SITE_OUTPUT);
    struct tensor x;
    TRY(dev_embed(c->s->dev,
                  &(struct embed){tp_summand(&c->s->tp, &b), stage_w(c, PARAM_TOKENS), c->mb->input,
                                  d->n, d->c, tokens->box.at[0], tokens->box.real[0]}));
    TRY(tp_reduce(&c->s->tp, d->n, d->c, &b, &x));
    if (c->p->role[PARAM_POSITIONS])
        TRY(dev_pos_add(c->s->dev, &(struct pos_add){x.p, stage_w(c, PARAM_POSITIONS), x.rows, d->c,
                                                     d->t, first_row(c)}));
    return drop.p > 0 ? dev_dropout(c->s->dev, &(struct dropout){x.p, x.p, x.rows, d->c, drop})
                      : ERR_OK;
}

static enum err backward_input(const struct stage_call *c)
{
    struct drop drop = stage_drop(c, SITE_OUTPUT);
    if (c->aliases_dy)
        return ERR_OK;
    return dev_dropout(c->s->dev, &(struct dropout){c->d_sublayer, c->dy, c->dims.nl, c->dims.c,
                                                    drop});
}

static enum err backward_weight(const struct stage_call *c)
{
    const struct model_dims *d = &c->dims;
    const struct param *tokens = c->p->role[PARAM_TOKENS];
    struct tensor whole, local = {c->d_sublayer, d->nl, d->c, tp_stream(&c->s->tp)};
    void *dw;
    if (c->p->role[PARAM_POSITIONS]) {
        TRY(stage_grad(c, PARAM_POSITIONS, &dw));
        TRY(dev_pos_grad(c->s->dev,
                         &(struct pos_grad){dw, local.p, d->nl, d->c, d->t, first_row(c)}));
    }
    TRY(tp_gather(&c->s->tp, &local, c->s->work->at[WORK_FULL], &whole, NULL));
    TRY(stage_grad(c, PARAM_TOKENS, &dw));
    return dev_embed_grad(c->s->dev, &(struct embed_grad){dw, whole.p, c->mb->input, d->n, d->c,
                                                          tokens->box.at[0], tokens->box.real[0]});
}

const struct layer_kind layer_embed = {.name = "embed", .forward = forward,
                                       .backward_input = backward_input,
                                       .backward_weight = backward_weight};
