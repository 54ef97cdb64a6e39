/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed-forward sublayer as numbers: up and down, gated with a gate that lies joined to up, so
 * that one GEMM serves both. Saved are the input and the output of the activation.
 */
#include "model/model.h"

static void params(const struct layer *l, struct model_params *to)
{
    const struct layer_dims *d = &l->dims;
    model_put_norm(to);
    if (d->gated)
        model_put_matrix(to, PARAM_GATE_W, "gate.weight", (int64_t[]){d->ffn, d->in}, SLICE_ROWS);
    model_put_matrix(to, PARAM_UP_W, "up.weight", (int64_t[]){d->ffn, d->in}, SLICE_ROWS)->joined =
        d->gated;
    if (d->bias)
        model_put(to, PARAM_UP_B, "up.bias", d->ffn, 1)->slice = SLICE_ROWS;
    model_put_matrix(to, PARAM_DOWN_W, "down.weight", (int64_t[]){d->out, d->ffn}, SLICE_COLS)
        ->std = d->out_std;
    if (d->bias)
        model_put(to, PARAM_DOWN_B, "down.bias", d->out, 1);
}

static int64_t pre_cols(const struct model_dims *d)
{
    return d->gated ? 2 * d->f : d->f;
}

static int64_t saved(const struct model_dims *d, enum model_save id)
{
    switch (id) {
    case SAVE_H: return d->nl * d->c * d->ct;
    case SAVE_PRE: return d->n * pre_cols(d) * d->ct;
    case SAVE_ACT: return d->n * d->f * d->ct;
    default: return model_norm_saved(d, id);
    }
}

static int64_t kept(const struct model_dims *d, enum model_keep id)
{
    switch (id) {
    case KEEP_D_SUBLAYER: return d->n * d->c * d->ct;
    case KEEP_DMID: return d->n * pre_cols(d) * d->ct;
    default: return model_norm_kept(d, id);
    }
}

static int64_t work(const struct model_dims *d, enum model_work id)
{
    return id == WORK_DMID ? d->n * d->f * d->ct : model_stream_work(d, id);
}

static void said(const struct model_dims *d, unsigned passes, struct model_said *to)
{
    model_sublayer_said(d, (struct model_columns){pre_cols(d), d->f}, passes, to);
}

static double weights(const struct layer *l)
{
    return (l->dims.gated ? 3 : 2) * (double)l->dims.in * (double)l->dims.ffn;
}

const struct layer_type layer_type_mlp = {
    .name = "mlp", .part = LAYER_MLP, .params = params, .saved = saved, .kept = kept, .work = work,
    .weights = weights, .said = said, .sublayer = true};
