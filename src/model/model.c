/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of models, and stages as runs of their layers.
 */
#include "model/model.h"

const struct model_traits *model_traits(enum model_kind kind)
{
    static const struct model_traits *const kinds[MODEL_KINDS] = {
        [MODEL_GPT] = &model_gpt, [MODEL_LLAMA] = &model_llama, [MODEL_MLP] = &model_mlp};
    return kinds[kind];
}

enum err model_check(const struct model *a)
{
    return model_traits(a->kind)->check(a);
}

enum err model_check_split(const struct model *a, const struct model_split *s)
{
    return model_traits(a->kind)->check_split(a, s);
}

int64_t model_layers(const struct model *a)
{
    return model_traits(a->kind)->layers(a);
}

struct layer model_layer(const struct model *a, int64_t at)
{
    ENSURE(at >= 0 && at < model_layers(a));
    return model_traits(a->kind)->layer(a, at);
}

int64_t model_floats(const struct model *a)
{
    return model_layer(a, 0).dims.in;
}

bool model_rotary(const struct model *a)
{
    bool found = false;
    for (int64_t i = 0; i < model_layers(a) && !found; i++) {
        struct layer l = model_layer(a, i);
        found = l.type == &layer_type_attn && !l.dims.positions;
    }
    return found;
}

int model_stage_parts(const struct model_stage *st)
{
    return (int)(st->end - st->first);
}

bool model_stage_has(const struct model_stage *st, int64_t layer)
{
    return layer >= st->first && layer < st->end;
}

bool model_stage_embed(const struct model_stage *st)
{
    return st->first == 0;
}

bool model_stage_head(const struct model *a, const struct model_stage *st)
{
    return st->end == model_layers(a);
}

bool model_stage_apart(const struct model_stage *st)
{
    return !model_stage_embed(st) && !st->embed_beside;
}
