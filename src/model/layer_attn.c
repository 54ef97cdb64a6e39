/* SPDX-License-Identifier: Apache-2.0
 *
 * The attention sublayer as numbers. Saved are q k v and the attention output with its log-sum-exp,
 * since the attention gradient recomputes the scores (Dao et al. 2022). q, k, v lie directly behind
 * one another, so that one GEMM serves them all.
 */
#include "model/model.h"

static void params(const struct layer *l, struct model_params *to)
{
    const struct layer_dims *d = &l->dims;
    int64_t c = d->in, q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    model_put_norm(to);
    model_put_matrix(to, PARAM_Q_W, "q.weight", (int64_t[]){q, c}, SLICE_ROWS);
    model_put_matrix(to, PARAM_K_W, "k.weight", (int64_t[]){kv, c}, SLICE_KV)->joined = true;
    model_put_matrix(to, PARAM_V_W, "v.weight", (int64_t[]){kv, c}, SLICE_KV)->joined = true;
    if (d->bias) {
        model_put(to, PARAM_Q_B, "q.bias", q, 1)->slice = SLICE_ROWS;
        struct model_param *k = model_put(to, PARAM_K_B, "k.bias", kv, 1);
        struct model_param *v = model_put(to, PARAM_V_B, "v.bias", kv, 1);
        k->slice = v->slice = SLICE_KV;
        k->joined = v->joined = true;
    }
    model_put_matrix(to, PARAM_O_W, "o.weight", (int64_t[]){c, q}, SLICE_COLS)->std = d->out_std;
    if (d->bias)
        model_put(to, PARAM_O_B, "o.bias", c, 1);
}

static int64_t qkv_cols(const struct model_dims *d)
{
    return (d->h + 2 * d->k) * d->d;
}

static int64_t saved(const struct model_dims *d, enum model_save id)
{
    switch (id) {
    case SAVE_H: return d->nl * d->c * d->ct;
    case SAVE_QKV: return d->n * qkv_cols(d) * d->ct;
    case SAVE_O: return d->n * d->h * d->d * d->ct;
    case SAVE_LSE: return d->n * d->h * d->at;
    default: return model_norm_saved(d, id);
    }
}

static int64_t kept(const struct model_dims *d, enum model_keep id)
{
    switch (id) {
    case KEEP_D_SUBLAYER: return d->n * d->c * d->ct;
    case KEEP_DMID: return d->n * qkv_cols(d) * d->ct;
    default: return model_norm_kept(d, id);
    }
}

static int64_t work(const struct model_dims *d, enum model_work id)
{
    switch (id) {
    case WORK_DMID: return d->n * d->h * d->d * d->ct;
    case WORK_DELTA: return d->n * d->h * d->at;
    default: return model_stream_work(d, id);
    }
}

static void said(const struct model_dims *d, unsigned passes, struct model_said *to)
{
    model_sublayer_said(d, (struct model_columns){qkv_cols(d), d->h * d->d}, passes, to);
}

static double weights(const struct layer *l)
{
    const struct layer_dims *d = &l->dims;
    double c = (double)d->in, hd = (double)(d->heads * d->head_dim);
    return c * (hd + 2 * (double)(d->kv_heads * d->head_dim)) + hd * c;
}

static double scores(const struct layer *l)
{
    return (double)(l->dims.heads * l->dims.head_dim);
}

const struct layer_type layer_type_attn = {
    .name = "attn", .part = LAYER_ATTN, .params = params, .saved = saved, .kept = kept,
    .work = work, .weights = weights, .scores = scores, .said = said, .sublayer = true};
