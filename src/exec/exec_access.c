/* SPDX-License-Identifier: Apache-2.0
 *
 * What optimizer, weights on disk, and traces ask an executor about itself.
 */
#include "exec/exec_local.h"

enum err exec_init(struct exec *x, uint64_t seed, int threads)
{
    for (int i = 0; i < x->stages_here; i++)
        TRY(param_init(&x->stage[i].stage.params, seed, threads));
    return ERR_OK;
}

/* ---- shared updates ---- */

enum err exec_weights_keep(struct exec *x)
{
    for (int i = 0; i < x->stages_here; i++)
        TRY(param_share_keep(&x->stage[i].stage.params));
    return ERR_OK;
}

enum err exec_weights_gather(struct exec *x)
{
    for (int i = 0; i < x->stages_here; i++) {
        struct param_store *s = &x->stage[i].stage.params;
        if (s->whole)
            continue;
        TRY(param_share_lay(s));
        TRY(dp_gather(&x->stage[i].dp, 0, s->elements));
    }
    return ERR_OK;
}

enum err exec_grads_gather(struct exec *x)
{
    for (int i = 0; i < x->stages_here; i++)
        TRY(dp_gather(&x->stage[i].dp, 0, x->stage[i].stage.params.elements));
    return ERR_OK;
}

struct param_store **exec_stores(struct exec *x)
{
    return x->store;
}

int exec_stage_count(const struct exec *x)
{
    return x->stages_here;
}

struct stage *exec_stage_at(struct exec *x, int i)
{
    return &x->stage[i].stage;
}

int exec_stage_id(const struct exec *x, int i)
{
    return x->stage[i].id;
}

struct comm_group *exec_world_group(struct exec *x)
{
    return x->world;
}

struct comm_group *exec_tp_group(struct exec *x)
{
    return x->tp;
}

void exec_zero_grads(struct exec *x)
{
    for (int i = 0; i < x->stages_here; i++)
        param_grads_reset(&x->stage[i].stage.params);
}

int64_t exec_bytes(const struct exec *x)
{
    const struct arena *all[] = {&x->weights, &x->master, &x->grads, &x->moments,
                                 &x->activations, &x->work, &x->comm, &x->data};
    int64_t total = groups_scratch(x->a.groups);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        total += all[i]->used;
    return total;
}

int64_t exec_instrs(const struct exec *x)
{
    int pp = x->coord[AXIS_PP];
    return x->a.sched->begin[pp + 1] - x->a.sched->begin[pp];
}
