/* SPDX-License-Identifier: Apache-2.0
 *
 * A linear layer as numbers: weight (out, in) and bias. Saved is its input, for the weight's
 * gradient. Tensor ranks do not cut it.
 */
#include "model/model.h"

static void params(const struct layer *l, struct model_params *to)
{
    const struct layer_dims *d = &l->dims;
    model_put_matrix(to, PARAM_LINEAR_W, "weight", (int64_t[]){d->out, d->in}, SLICE_NONE);
    model_put(to, PARAM_LINEAR_B, "bias", d->out, 1);
}

static int64_t kept(const struct model_dims *d, enum model_keep id)
{
    return id == KEEP_D_SUBLAYER ? d->nl * d->out * d->ct : 0;
}

static double weights(const struct layer *l)
{
    return (double)l->dims.in * (double)l->dims.out;
}

const struct layer_type layer_type_linear = {
    .name = "linear", .part = LAYER_LINEAR, .params = params, .saved = model_input_saved,
    .kept = kept, .work = model_gradient_work, .weights = weights};
