/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of models, and stages as runs of their layers.
 */
#include "arch/arch.h"

const struct arch_traits *arch_traits(enum arch_kind kind)
{
    static const struct arch_traits *const kinds[ARCH_KINDS] = {
        [ARCH_GPT] = &arch_gpt, [ARCH_LLAMA] = &arch_llama, [ARCH_MLP] = &arch_mlp};
    return kinds[kind];
}

enum err arch_check(const struct arch *a)
{
    return arch_traits(a->kind)->check(a);
}

enum err arch_check_split(const struct arch *a, const struct arch_split *s)
{
    return arch_traits(a->kind)->check_split(a, s);
}

int64_t arch_layers(const struct arch *a)
{
    return arch_traits(a->kind)->layers(a);
}

struct layer arch_layer(const struct arch *a, int64_t at)
{
    ENSURE(at >= 0 && at < arch_layers(a));
    return arch_traits(a->kind)->layer(a, at);
}

int64_t arch_floats(const struct arch *a)
{
    return arch_layer(a, 0).dims.in;
}

bool arch_rotary(const struct arch *a)
{
    bool found = false;
    for (int64_t i = 0; i < arch_layers(a) && !found; i++) {
        struct layer l = arch_layer(a, i);
        found = l.type == &layer_type_attn && !l.dims.positions;
    }
    return found;
}

int arch_stage_parts(const struct arch_stage *st)
{
    return (int)(st->end - st->first);
}

bool arch_stage_has(const struct arch_stage *st, int64_t layer)
{
    return layer >= st->first && layer < st->end;
}

bool arch_stage_embed(const struct arch_stage *st)
{
    return st->first == 0;
}

bool arch_stage_head(const struct arch *a, const struct arch_stage *st)
{
    return st->end == arch_layers(a);
}

bool arch_stage_apart(const struct arch_stage *st)
{
    return !arch_stage_embed(st) && !st->embed_beside;
}
