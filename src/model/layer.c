/* SPDX-License-Identifier: Apache-2.0
 *
 * What types of layers share when they say their numbers: names, the list of parameters being
 * written, the buffers of a norm and of the stream.
 */
#include "model/model.h"

#include <stdio.h>

enum err model_check_range(const char *key, int64_t value, int64_t max)
{
    if (value < 1 || value > max)
        FAIL(ERR_CONFIG, "%s is %lld; it has to be from 1 to %lld", key, (long long)value,
             (long long)max);
    return ERR_OK;
}

const char *model_layer_name(const struct layer *l, char buf[MODEL_NAME_MAX])
{
    if (l->stem)
        snprintf(buf, MODEL_NAME_MAX, "%s%lld", l->stem, (long long)l->block + 1);
    else if (l->block < 0)
        snprintf(buf, MODEL_NAME_MAX, "%s", l->type->name);
    else
        snprintf(buf, MODEL_NAME_MAX, "layers.%lld.%s", (long long)l->block, l->type->name);
    return buf;
}

struct model_param *model_put(struct model_params *to, enum param_id role, const char *what,
                              int64_t rows, int64_t cols)
{
    const struct layer *l = to->layer;
    char name[MODEL_NAME_MAX];
    ENSURE(to->n < MODEL_PART_PARAMS);
    struct model_param *p = &to->out[to->n++];
    *p = (struct model_param){.part = l->type->part, .role = role, .layer = l->at,
                              .block = l->block, .shape = {rows, cols}, .slice = SLICE_NONE,
                              .kv_heads = l->dims.kv_heads};
    snprintf(p->name, sizeof p->name, "%s.%s", model_layer_name(l, name), what);
    return p;
}

struct model_param *model_put_matrix(struct model_params *to, enum param_id role,
                                     const char *what, const int64_t shape[2],
                                     enum model_slice slice)
{
    struct model_param *p = model_put(to, role, what, shape[0], shape[1]);
    p->slice = slice;
    p->decay = true;
    p->init = INIT_NORMAL;
    p->std = to->layer->dims.init_std;
    return p;
}

void model_put_norm(struct model_params *to)
{
    const struct layer_dims *d = &to->layer->dims;
    struct model_param *w = model_put(to, PARAM_NORM_W, "norm.weight", d->in, 1);
    w->init = INIT_ONE;
    w->rows_partial = true;
    if (d->bias)
        model_put(to, PARAM_NORM_B, "norm.bias", d->in, 1)->rows_partial = true;
}

int model_layer_params(const struct layer *l, bool apart, struct model_param out[MODEL_PART_PARAMS])
{
    struct model_params to = {l, out, 0, apart};
    if (l->type->params)
        l->type->params(l, &to);
    return to.n;
}

int64_t model_saved(const struct layer *l, const struct model_dims *d, enum model_save id)
{
    return l->type->saved ? l->type->saved(d, id) : 0;
}

int64_t model_kept(const struct layer *l, const struct model_dims *d, enum model_keep id)
{
    return l->type->kept ? l->type->kept(d, id) : 0;
}

/* The norm's input and statistics, for its gradient. Its output is the weight gradient's of the
 * GEMM behind it, and the sublayers' own. */
int64_t model_norm_saved(const struct model_dims *d, enum model_save id)
{
    switch (id) {
    case SAVE_X: return d->nl * d->in * d->ct;
    case SAVE_MEAN: return d->rms ? 0 : d->nl * d->at;
    case SAVE_RSTD: return d->nl * d->at;
    default: return 0;
    }
}

/* The gradients of its weight, and of its bias. */
int64_t model_norm_kept(const struct model_dims *d, enum model_keep id)
{
    return id == KEEP_DNORM ? (d->rms ? 1 : 2) * d->c * d->at : 0;
}

int64_t model_stream_work(const struct model_dims *d, enum model_work id)
{
    switch (id) {
    case WORK_FULL: return d->sp ? d->n * d->c * d->ct : 0;
    case WORK_PARTIAL: return d->n * d->c * d->ct;
    case WORK_D:
    case WORK_DH: return d->nl * d->c * d->ct;
    default: return 0;
    }
}
