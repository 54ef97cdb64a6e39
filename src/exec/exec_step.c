/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a step: NORM, and what updates the weights. Where data ranks share the updates,
 * UPDATE, GATHER and DROP are of the pieces of a store that begin in the segment they name. Whoever
 * computes with weights that are being gathered waits for these alone.
 */
#include "exec/exec_local.h"

enum err exec_optim_open(struct exec *x)
{
    TRY(mem_new(x->stages_here, sizeof *x->store, "the stores of a rank", &x->store));
    for (int i = 0; i < x->stages_here; i++)
        x->store[i] = &x->stage[i].stage.params;
    x->optim = (struct optim){.rule = x->a.optim, .dev = x->a.dev, .world = x->sums,
                              .store = x->store, .stores = x->stages_here, .sums = x->scalars,
                              .step_scalars = x->scalars + SUMS_COUNT, .replica = x->coord[AXIS_DP],
                              .replicas = x->mesh.size[AXIS_DP]};
    return ERR_OK;
}

/* A list whose steps nobody names is run without its step. */
static bool steps(const struct exec *x)
{
    return x->hooks && x->hooks->step;
}

/* One tensor rank adds the loss; ranks without a head have none. */
static const double *own_loss(const struct exec *x)
{
    return x->coord[AXIS_TP] == 0 ? x->loss : NULL;
}

enum err exec_step_set(struct exec *x, const struct exec_hooks *hooks)
{
    struct optim_step step;
    hooks->step(hooks->arg, &step);
    return optim_ready(&x->optim, &step);
}

enum err exec_norm(struct exec *x, struct sched_instr in)
{
    (void)in;
    if (!steps(x))
        return ERR_OK;
    if (!x->records) /* replays bring their own */
        TRY(exec_step_set(x, x->hooks));
    return optim_norm(&x->optim, own_loss(x));
}

enum err exec_step(struct exec *x, struct sched_instr in)
{
    (void)in;
    ENSURE(x->a.shares == 1);
    for (int i = 0; steps(x) && i < x->stages_here; i++)
        TRY(optim_update(&x->optim, x->store[i], 0));
    return ERR_OK;
}

/* The pieces that begin in the segment, of a stage that may have none: *from .. *to - 1. */
static struct exec_stage *pieces_of(struct exec *x, struct sched_instr in, int *from, int *to)
{
    struct exec_stage *e = exec_stage_held(x, in.stage);
    struct stage_range parts = exec_parts_of(x, e, in);
    ENSURE(x->a.shares > 1);
    dp_pieces(&e->dp, parts.first, parts.end, from, to);
    *to = (int)num_min(*to, param_share_pieces(&e->stage.params));
    return e;
}

enum err exec_update(struct exec *x, struct sched_instr in)
{
    int piece, to;
    struct exec_stage *e = pieces_of(x, in, &piece, &to);
    for (; steps(x) && piece < to; piece++)
        TRY(optim_update(&x->optim, &e->stage.params, piece));
    return ERR_OK;
}

enum err exec_gather(struct exec *x, struct sched_instr in)
{
    int piece, to;
    struct exec_stage *e = pieces_of(x, in, &piece, &to);
    for (; piece < to; piece++)
        TRY(dp_weights_start(&e->dp, piece));
    return ERR_OK;
}

/* Their memory stays: with guards whoever uses it meets NaN. */
enum err exec_drop(struct exec *x, struct sched_instr in)
{
    int piece, to;
    struct exec_stage *e = pieces_of(x, in, &piece, &to);
    for (; piece < to; piece++)
        exec_poison_weights(x, &e->stage.params, piece);
    return ERR_OK;
}

static int64_t begin_of(const struct param_store *s, int part)
{
    int first = s->part_first[part];
    return first < s->n ? s->param[first].offset : s->elements;
}

/* The weights of some parts are whole. */
static enum err await(struct exec_stage *e, struct stage_range parts)
{
    const struct param_store *s = &e->stage.params;
    int64_t begin = begin_of(s, parts.first), end = begin_of(s, parts.end);
    for (int i = 0; i < s->pieces; i++)
        if (s->edge[i] < end && s->edge[i + 1] > begin)
            TRY(dp_weights_finish(&e->dp, i));
    return ERR_OK;
}

enum err exec_weights_await(struct exec *x, struct sched_instr in)
{
    if (x->a.shares == 1 || in.op >= SCHED_COMPUTE_OPS)
        return ERR_OK;
    struct exec_stage *e = exec_stage_of(x, in.stage, in.mb);
    struct stage_range parts = exec_parts_of(x, e, in);
    bool head = parts.end == e->stage.parts && stage_has_head(&e->stage) && x->a.model->tied;
    if (head && x->stage[0].id == 0) /* its matrix is the embedding's */
        TRY(await(&x->stage[0], (struct stage_range){0, 1}));
    return await(e, parts);
}

enum err exec_land(struct exec *x, double *landed)
{
    return optim_land(&x->optim, landed);
}

enum err exec_own_sums(struct exec *x, const struct optim_step *s, double *sums)
{
    return optim_sums(&x->optim, s, own_loss(x), sums);
}
