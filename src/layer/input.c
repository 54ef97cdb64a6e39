/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of floats, which lie in the accumulation type, become activations.
 */
#include "layer/stage.h"

static enum err forward(const struct stage_call *c)
{
    return dev_cast(c->s->dev, c->y, c->mb->input, c->dims.n * c->dims.out);
}

static enum err backward(const struct stage_call *c)
{
    (void)c; /* it has no weights, and nobody wants the gradient of data */
    return ERR_OK;
}

const struct layer_kind layer_input = {.name = "input", .forward = forward,
                                       .backward_input = backward,
                                       .backward_weight = backward};
