/* SPDX-License-Identifier: Apache-2.0
 *
 * The one list of parameters, as the types of layers write it. Reduction, clipping, optimizer,
 * weights on disk and the memory plan all derive from it, so nothing is listed twice. A layer's
 * parameters stand in storage order.
 */
#include "model/model.h"

#include "base/mem.h"

enum err model_param_list(const struct model *a, struct model_param **out, int *n)
{
    struct model_param *p;
    int64_t layers = model_layers(a);
    int made = 0;
    TRY(mem_new(layers * MODEL_PART_PARAMS, sizeof *p, "the list of parameters", &p));
    for (int64_t i = 0; i < layers; i++) {
        struct layer l = model_layer(a, i);
        made += model_layer_params(&l, false, p + made);
    }
    *out = p;
    *n = made;
    return ERR_OK;
}

void model_param_box(const struct model_split *s, const struct model_param *p, int tp_rank,
                     struct model_box *out)
{
    *out = (struct model_box){.local = {p->shape[0], p->shape[1]},
                              .real = {p->shape[0], p->shape[1]}};
    int dim = p->slice == SLICE_COLS;
    int64_t whole = p->shape[dim], each = whole / s->tp, at = each * tp_rank;
    if (p->slice == SLICE_NONE)
        return;
    if (p->slice == SLICE_KV && p->kv_heads < s->tp) {
        each = whole / p->kv_heads;
        at = each * ((int64_t)tp_rank * p->kv_heads / s->tp);
    }
    out->local[dim] = out->real[dim] = each;
    out->at[dim] = at;
    if (p->slice == SLICE_VOCAB) {
        each = num_ceil_div(whole, s->tp);
        out->at[0] = num_min(each * tp_rank, whole);
        out->local[0] = each;
        out->real[0] = num_min(each, whole - out->at[0]);
    }
}

/* copies: those of tied matrices, too. */
static int64_t stage_elements(const struct model *a, const struct model_split *s,
                              const struct model_stage *st, bool copies)
{
    struct model_param p[MODEL_PART_PARAMS];
    int64_t total = 0;
    for (int64_t i = st->first; i < st->end; i++) {
        struct layer l = model_layer(a, i);
        int n = model_layer_params(&l, model_stage_apart(st), p);
        for (int j = 0; j < n; j++) {
            struct model_box box;
            if (p[j].tied_copy && !copies)
                continue;
            model_param_box(s, &p[j], 0, &box);
            if (!p[j].joined)
                total = num_ceil_div(total, MODEL_PARAM_ALIGN) * MODEL_PARAM_ALIGN;
            total += box.local[0] * box.local[1];
        }
    }
    return num_ceil_div(total, MODEL_PARAM_ALIGN) * MODEL_PARAM_ALIGN;
}

int64_t model_stage_elements(const struct model *a, const struct model_split *s,
                             const struct model_stage *st)
{
    return stage_elements(a, s, st, true);
}

int64_t model_saved_elements(const struct model *a, const struct model_split *s,
                             const struct model_stage *st, int ranks)
{
    int64_t share = model_shared_elements(stage_elements(a, s, st, true), ranks) / ranks;
    return num_min(share, stage_elements(a, s, st, false));
}

int64_t model_shared_elements(int64_t n, int shares)
{
    return num_ceil_div(n, (int64_t)MODEL_PARAM_ALIGN * shares) * MODEL_PARAM_ALIGN * shares;
}

int64_t model_params(const struct model *a)
{
    struct model_param p[MODEL_PART_PARAMS];
    int64_t total = 0;
    for (int64_t i = 0; i < model_layers(a); i++) {
        struct layer l = model_layer(a, i);
        int n = model_layer_params(&l, false, p);
        for (int j = 0; j < n; j++)
            total += p[j].shape[0] * p[j].shape[1];
    }
    return total;
}
