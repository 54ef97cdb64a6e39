/* SPDX-License-Identifier: Apache-2.0
 *
 * What debug builds and tests do beside the work, in memory that the host can write: guards behind
 * every piece of every arena, looked at behind each run of a list, and NaN in each buffer from when
 * it is given back to when it is written again. A buffer that is too small, or read by who has no
 * right to it any more, is then an error that says which it is, or a loss that is not finite.
 */
#include "exec/exec_local.h"

bool exec_guarded(const struct exec_args *a)
{
#ifdef PLAIT_GUARDS
    bool on = true;
#else
    bool on = a->guards;
#endif
    return on && (a->dev->kind == DEV_REF || a->dev->kind == DEV_CPU);
}

enum err exec_guard_check(const struct exec *x)
{
    const struct arena *all[] = {&x->weights, &x->master, &x->grads, &x->moments,
                                 &x->activations, &x->work, &x->comm, &x->data};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        TRY(arena_check(all[i]));
    return ERR_OK;
}

/* Its buffers are empty until a save set is lent to it. */
void exec_poison_slot(const struct exec *x, const struct exec_stage *e,
                      const struct exec_slot *slot)
{
    for (int i = 0; x->guards && i < e->stage.parts; i++)
        for (int id = 0; id < SAVE_COUNT; id++)
            arena_poison(&x->activations, slot->slot.save[i][id]);
    if (x->guards)
        arena_poison(&x->activations, slot->slot.out);
}

void exec_poison_saves(const struct exec *x, const struct exec_stage *e,
                       const struct stage_saves *set)
{
    for (int i = 0; x->guards && i < e->stage.parts; i++)
        for (int id = 0; id < SAVE_COUNT; id++)
            arena_poison(&x->activations, set->save[i][id]);
}

void exec_poison_keep(const struct exec *x, const struct exec_stage *e,
                      const struct stage_keep *keep)
{
    const struct arena *from = keep->per_slot ? &x->activations : &x->work;
    for (int i = 0; x->guards && i < e->stage.parts; i++)
        for (int id = 0; id < KEEP_COUNT; id++)
            arena_poison(from, keep->keep[i][id]);
}

void exec_poison_scratch(const struct exec *x)
{
    for (int id = 0; x->guards && id < WORK_COUNT; id++)
        arena_poison(&x->work, x->scratch.at[id]);
    for (int i = 0; x->guards && !x->splits && x->a.training && i < x->stages_here; i++)
        exec_poison_keep(x, &x->stage[i], &x->stage[i].shared);
}

void exec_poison_weights(const struct exec *x, const struct param_store *s, int piece)
{
    struct param_range own = param_share_of(s, piece);
    int64_t begin = s->edge[piece], end = s->edge[piece + 1];
    if (!x->guards)
        return;
    memset(s->w + begin * s->ct, 0xff, (size_t)((own.begin - begin) * s->ct));
    memset(s->w + own.end * s->ct, 0xff, (size_t)((end - own.end) * s->ct));
}
