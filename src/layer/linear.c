/* SPDX-License-Identifier: Apache-2.0
 *
 * The layers of a classifier. input: rows of floats, which lie in the accumulation type, become
 * activations. linear: y (n, out) = x (n, in) w^T + b, w (out, in); dx = dy w, dw += dy^T x, db +=
 * the sum of the rows of dy. relu: y = max(x, 0), and the gradient goes through where x is above 0.
 *
 * Rows are not cut over ranks, and nothing is dropped, so that dy is at hand for both gradients
 * (stage_call.aliases_dy).
 */
#include "layer/stage.h"

/* Of a layer without weights; of data nobody wants the gradient either. */
static enum err no_gradient(const struct stage_call *c)
{
    (void)c;
    return ERR_OK;
}

static enum err input_forward(const struct stage_call *c)
{
    return dev_cast(c->s->dev, c->y, c->mb->input, c->dims.n * c->dims.out);
}

const struct layer_kind layer_input = {.name = "input", .forward = input_forward,
                                       .backward_input = no_gradient,
                                       .backward_weight = no_gradient};

static enum err linear_forward(const struct stage_call *c)
{
    const struct model_dims *d = &c->dims;
    return dev_gemm(c->s->dev, &(struct gemm){.c = c->y, .a = c->save[SAVE_X],
                                              .b = stage_w(c, PARAM_LINEAR_W),
                                              .bias = stage_w(c, PARAM_LINEAR_B), .m = d->n,
                                              .n = d->out, .k = d->in, .trans_b = true});
}

static enum err linear_input(const struct stage_call *c)
{
    const struct model_dims *d = &c->dims;
    ENSURE(c->aliases_dy);
    if (!c->dx)
        return ERR_OK;
    return dev_gemm(c->s->dev, &(struct gemm){.c = c->dx, .a = c->dy,
                                              .b = stage_w(c, PARAM_LINEAR_W), .m = d->n,
                                              .n = d->in, .k = d->out});
}

static enum err linear_weight(const struct stage_call *c)
{
    static const enum param_id role[2] = {PARAM_LINEAR_W, PARAM_LINEAR_B};
    const struct model_dims *d = &c->dims;
    struct tensor dy = {c->d_sublayer, d->n, d->out, PLACE_WHOLE};
    struct tensor x = {c->save[SAVE_X], d->n, d->in, PLACE_WHOLE};
    return stage_weight_grad(c, role, &dy, &x);
}

const struct layer_kind layer_linear = {.name = "linear", .forward = linear_forward,
                                        .backward_input = linear_input,
                                        .backward_weight = linear_weight};

static enum err relu_forward(const struct stage_call *c)
{
    return dev_relu(c->s->dev, &(struct relu){c->y, c->save[SAVE_X], c->dims.n * c->dims.in});
}

static enum err relu_input(const struct stage_call *c)
{
    return dev_relu_grad(c->s->dev, &(struct relu_grad){c->dx, c->dy, c->save[SAVE_X],
                                                        c->dims.n * c->dims.in});
}

const struct layer_kind layer_relu = {.name = "relu", .forward = relu_forward,
                                      .backward_input = relu_input,
                                      .backward_weight = no_gradient};
