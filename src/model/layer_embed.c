/* SPDX-License-Identifier: Apache-2.0
 *
 * The embed as numbers: tokens (V, C), learned positions (T, C) where the model has them. It saves
 * nothing, for tokens stay in their own memory.
 */
#include "model/model.h"

static void params(const struct layer *l, struct model_params *to)
{
    const struct layer_dims *d = &l->dims;
    model_put_matrix(to, PARAM_TOKENS, "tokens", (int64_t[]){d->vocab, d->out}, SLICE_VOCAB);
    if (d->positions)
        model_put_matrix(to, PARAM_POSITIONS, "positions", (int64_t[]){d->rows, d->out}, SLICE_NONE)
            ->rows_partial = true;
}

static int64_t kept(const struct model_dims *d, enum model_keep id)
{
    return id == KEEP_D_SUBLAYER ? d->nl * d->c * d->ct : 0;
}

static void said(const struct model_dims *d, unsigned passes, struct model_said *to)
{
    if (passes & SAID_FORWARD)
        model_say_sum(d, 0, 0, to);
    if (passes & SAID_WEIGHT)
        model_say_gather(d, 0, to);
}

const struct layer_type layer_type_embed = {
    .name = "embed", .part = LAYER_EMBED, .params = params, .kept = kept,
    .work = model_stream_work, .said = said};
