/* SPDX-License-Identifier: Apache-2.0
 *
 * Extents of a layer on one rank, and bytes that follow from them.
 */
#include "model/model.h"

/* Least rows of a chunk of logits. Tests build this file once more with chunks of that many, so
 * that the head of a small model is cut too. */
#ifdef MODEL_CHUNK_ROWS
#define MODEL_CHUNK_BYTES(types) 1
#else
#define MODEL_CHUNK_ROWS 64
#define MODEL_CHUNK_BYTES(types) ((types)->chunk)
#endif

void model_dims(const struct layer *l, const struct model_split *s, int64_t samples,
                const struct dtypes *types, struct model_dims *out)
{
    const struct layer_dims *of = &l->dims;
    int64_t n = samples * of->rows;
    struct model_dims d = {.b = samples, .t = of->rows, .n = n, .nl = s->sp ? n / s->tp : n};
    d.in = of->in;
    d.out = of->out;
    d.c = num_max(of->in, of->out);
    d.h = of->heads / s->tp;
    d.k = of->kv_heads >= s->tp ? of->kv_heads / s->tp : 1;
    d.d = of->head_dim;
    d.f = of->ffn / s->tp;
    d.v = num_ceil_div(of->vocab, s->tp);
    d.ct = dtype_size(types->ct);
    d.at = dtype_size(types->at);
    d.logits = dtype_size(types->logits);
    d.tp = s->tp;
    d.sp = s->sp;
    d.gated = of->gated;
    d.norm = of->norm;
    d.rms = of->rms;
    if (of->vocab > 0)
        d.chunk = num_min(
            n, num_max(MODEL_CHUNK_ROWS, MODEL_CHUNK_BYTES(types) / (d.v * d.logits)));
    *out = d;
}

bool model_save_stays(const struct layer *l, bool first, enum model_save id)
{
    return id == SAVE_X ? first : (l->type->stays >> id & 1) != 0;
}

int64_t model_input_bytes(const struct model *a, const struct dtypes *types)
{
    int64_t floats = model_floats(a);
    return floats ? floats * dtype_size(types->at) : (int64_t)sizeof(int32_t);
}

static struct layer layer_at(const struct model_rank *r, int64_t at, struct model_dims *d)
{
    struct layer l = model_layer(r->model, at);
    model_dims(&l, &r->split, r->samples, r->types, d);
    return l;
}

int64_t model_boundary_bytes(const struct model_rank *r, int64_t layer)
{
    struct model_dims d;
    if (layer == 0 || layer == model_layers(r->model))
        return 0;
    (void)layer_at(r, layer, &d);
    return d.nl * d.in * d.ct;
}

int64_t model_said_bytes(const struct model_rank *r)
{
    struct model_said all = {0};
    for (int64_t i = 0; i < model_layers(r->model); i++) {
        struct model_dims d;
        struct layer l = layer_at(r, i, &d);
        model_said(&l, &d, SAID_FORWARD | SAID_INPUT | SAID_WEIGHT, &all);
    }
    return all.longest;
}

int64_t model_tied_elements(const struct model_rank *r)
{
    struct model_dims d;
    (void)layer_at(r, model_layers(r->model) - 1, &d);
    return d.v * d.c;
}
