/* SPDX-License-Identifier: Apache-2.0
 *
 * ReLU as numbers: saved is its input, of which the gradient needs the sign. The gradient of its
 * output may become that of its input in place, so none is kept.
 */
#include "model/model.h"

const struct layer_type layer_type_relu = {
    .name = "relu", .part = LAYER_RELU, .saved = model_input_saved, .work = model_gradient_work};
