/* SPDX-License-Identifier: Apache-2.0
 *
 * The one list of parameters, as the types of layers write it. Reduction, clipping, optimizer,
 * weights on disk and the memory plan all derive from it, so nothing is listed twice. A layer's
 * parameters stand in storage order.
 */
#include "arch/arch.h"

#include "base/mem.h"

enum err arch_model_params(const struct arch *a, struct arch_param **out, int *n)
{
    struct arch_param *p;
    int64_t layers = arch_layers(a);
    int made = 0;
    TRY(mem_new(layers * ARCH_PART_PARAMS, sizeof *p, "the list of parameters", &p));
    for (int64_t i = 0; i < layers; i++) {
        struct layer l = arch_layer(a, i);
        made += arch_layer_params(&l, false, p + made);
    }
    *out = p;
    *n = made;
    return ERR_OK;
}

void arch_param_box(const struct arch_split *s, const struct arch_param *p, int tp_rank,
                    struct arch_box *out)
{
    *out = (struct arch_box){.local = {p->shape[0], p->shape[1]},
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
static int64_t stage_elements(const struct arch *a, const struct arch_split *s,
                              const struct arch_stage *st, bool copies)
{
    struct arch_param p[ARCH_PART_PARAMS];
    int64_t total = 0;
    for (int64_t i = st->first; i < st->end; i++) {
        struct layer l = arch_layer(a, i);
        int n = arch_layer_params(&l, arch_stage_apart(st), p);
        for (int j = 0; j < n; j++) {
            struct arch_box box;
            if (p[j].tied_copy && !copies)
                continue;
            arch_param_box(s, &p[j], 0, &box);
            if (!p[j].joined)
                total = num_ceil_div(total, ARCH_PARAM_ALIGN) * ARCH_PARAM_ALIGN;
            total += box.local[0] * box.local[1];
        }
    }
    return num_ceil_div(total, ARCH_PARAM_ALIGN) * ARCH_PARAM_ALIGN;
}

int64_t arch_stage_elements(const struct arch *a, const struct arch_split *s,
                            const struct arch_stage *st)
{
    return stage_elements(a, s, st, true);
}

int64_t arch_saved_elements(const struct arch *a, const struct arch_split *s,
                            const struct arch_stage *st, int ranks)
{
    int64_t share = arch_shared_elements(stage_elements(a, s, st, true), ranks) / ranks;
    return num_min(share, stage_elements(a, s, st, false));
}

int64_t arch_shared_elements(int64_t n, int shares)
{
    return num_ceil_div(n, (int64_t)ARCH_PARAM_ALIGN * shares) * ARCH_PARAM_ALIGN * shares;
}

int64_t arch_params(const struct arch *a)
{
    struct arch_param p[ARCH_PART_PARAMS];
    int64_t total = 0;
    for (int64_t i = 0; i < arch_layers(a); i++) {
        struct layer l = arch_layer(a, i);
        int n = arch_layer_params(&l, false, p);
        for (int j = 0; j < n; j++)
            total += p[j].shape[0] * p[j].shape[1];
    }
    return total;
}
