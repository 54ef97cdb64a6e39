/* SPDX-License-Identifier: Apache-2.0
 *
 * The input of a model that reads rows of floats: they are made numbers of the compute type.
 */
#include "model/model.h"

/* Nobody wants the gradient of its output, but a stage behind it may send one. */
const struct layer_type layer_type_input = {
    .name = "input", .part = LAYER_INPUT, .work = model_gradient_work, .leaf = true};
