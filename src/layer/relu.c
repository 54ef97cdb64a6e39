/* SPDX-License-Identifier: Apache-2.0
 *
 * y = max(x, 0); the gradient goes through where x is above 0.
 */
#include "layer/stage.h"

static enum err forward(const struct stage_call *c)
{
    return dev_relu(c->s->dev, &(struct relu){c->y, c->save[SAVE_X], c->dims.n * c->dims.in});
}

static enum err backward_input(const struct stage_call *c)
{
    return dev_relu_grad(c->s->dev, &(struct relu_grad){c->dx, c->dy, c->save[SAVE_X],
                                                        c->dims.n * c->dims.in});
}

static enum err backward_weight(const struct stage_call *c)
{
    (void)c; /* it has none */
    return ERR_OK;
}

const struct layer_kind layer_relu = {.name = "relu", .forward = forward,
                                      .backward_input = backward_input,
                                      .backward_weight = backward_weight};
