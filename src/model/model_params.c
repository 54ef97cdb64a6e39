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

static int64_t align_up(int64_t n, int64_t to)
{
    return num_ceil_div(n, to) * to;
}

/* Padding counts, so that it lies at the same place on every tensor rank. */
int64_t model_param_at(const struct model_split *s, const struct model_param *p, int64_t *end)
{
    struct model_box box;
    model_param_box(s, p, 0, &box);
    int64_t at = p->joined ? *end : align_up(*end, MODEL_PARAM_ALIGN);
    *end = at + box.local[0] * box.local[1];
    return at;
}

/* copies: those of tied matrices, too. begin: of each layer, [layers + 1]; NULL: nobody asks. */
static int64_t stage_elements(const struct model *a, const struct model_split *s,
                              const struct model_stage *st, bool copies, int64_t *begin)
{
    struct model_param p[MODEL_PART_PARAMS];
    int64_t total = 0;
    for (int64_t i = st->first; i < st->end; i++) {
        struct layer l = model_layer(a, i);
        int n = model_layer_params(&l, model_stage_apart(st), p);
        if (begin)
            begin[i - st->first] = align_up(total, MODEL_PARAM_ALIGN);
        for (int j = 0; j < n; j++)
            if (copies || !p[j].tied_copy)
                (void)model_param_at(s, &p[j], &total);
    }
    if (begin)
        begin[st->end - st->first] = total;
    return align_up(total, MODEL_PARAM_ALIGN);
}

void model_stage_begins(const struct model *a, const struct model_split *s,
                        const struct model_stage *st, int64_t *begin)
{
    (void)stage_elements(a, s, st, true, begin);
}

int64_t model_stage_elements(const struct model *a, const struct model_split *s,
                             const struct model_stage *st)
{
    return stage_elements(a, s, st, true, NULL);
}

int64_t model_saved_elements(const struct model *a, const struct model_split *s,
                             const struct model_stage *st, int ranks)
{
    int64_t share = model_sharded_elements(stage_elements(a, s, st, true, NULL), ranks) / ranks;
    return num_min(share, stage_elements(a, s, st, false, NULL));
}

int64_t model_sharded_elements(int64_t n, int num_shards)
{
    return align_up(n, (int64_t)MODEL_PARAM_ALIGN * num_shards);
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
