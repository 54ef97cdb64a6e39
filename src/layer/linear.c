/* SPDX-License-Identifier: Apache-2.0
 *
 * y (n, out) = x (n, in) w^T + b, w (out, in). Gradients: dx = dy w, dw += dy^T x, db += the sum of
 * the rows of dy. Rows are not cut over ranks, and nothing is dropped, so that dy is at hand for
 * both (stage_call.aliases_dy).
 */
#include "layer/stage.h"

static enum err forward(const struct stage_call *c)
{
    const struct model_dims *d = &c->dims;
    return dev_gemm(c->s->dev, &(struct gemm){.c = c->y, .a = c->save[SAVE_X],
                                              .b = stage_w(c, PARAM_LINEAR_W),
                                              .bias = stage_w(c, PARAM_LINEAR_B), .m = d->n,
                                              .n = d->out, .k = d->in, .trans_b = true});
}

static enum err backward_input(const struct stage_call *c)
{
    const struct model_dims *d = &c->dims;
    ENSURE(c->aliases_dy);
    if (!c->dx)
        return ERR_OK;
    return dev_gemm(c->s->dev, &(struct gemm){.c = c->dx, .a = c->dy,
                                              .b = stage_w(c, PARAM_LINEAR_W), .m = d->n,
                                              .n = d->in, .k = d->out});
}

static enum err backward_weight(const struct stage_call *c)
{
    static const enum param_id role[2] = {PARAM_LINEAR_W, PARAM_LINEAR_B};
    const struct model_dims *d = &c->dims;
    struct tensor dy = {c->d_sublayer, d->n, d->out, PLACE_WHOLE};
    struct tensor x = {c->save[SAVE_X], d->n, d->in, PLACE_WHOLE};
    return stage_weight_grad(c, role, &dy, &x);
}

const struct layer_kind layer_linear = {.name = "linear", .forward = forward,
                                        .backward_input = backward_input,
                                        .backward_weight = backward_weight};
