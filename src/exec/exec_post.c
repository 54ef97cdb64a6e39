/* SPDX-License-Identifier: Apache-2.0
 *
 * Post-validated steps (see sched_post.c): the norm's running sum down the pipeline ranks, the step
 * that goes ahead of it, the proof on the way back up, and beginning anew.
 *
 * The sums are added one rank after the other in the order of world ranks: first over the plane of
 * ranks with one pipeline coordinate, gathered and added in their order, onto what the plane before
 * handed on. That is the order of the world's own reduction, so a step that went ahead and one at
 * which all ranks met have the same bits.
 *
 * When a step was done again, all ranks begin their lists anew, each at its own check. What was on
 * its way is known without asking: V13 has it that whatever a rank received before its check was
 * sent before the sender's, so what the others sent before theirs and this rank did not yet ask for
 * is what it must still take.
 */
#include "exec/exec_local.h"

/* Whether the step of this run goes ahead. */
static bool ahead(const struct exec *x)
{
    return x->hooks && x->hooks->ahead && x->hooks->ahead(x->hooks->arg);
}

static int post_tag(const struct exec *x, bool proof)
{
    return 2 * x->sched->replicas * x->sched->stages + proof; /* above those of exec_tag */
}

enum err exec_norm_recv(struct exec *x, struct sched_instr in)
{
    if (!ahead(x))
        return ERR_OK;
    return comm_recv_start(x->a.world, exec_world_rank(x, in.peer), post_tag(x, false),
                           x->post.in, sizeof x->post.in, &x->post.came);
}

enum err exec_norm(struct exec *x, struct sched_instr in)
{
    struct exec_post *k = &x->post;
    double mine[EXEC_SUMS];
    int plane = x->plane ? comm_group_size(x->plane) : 1;
    (void)in;
    if (!ahead(x))
        return ERR_OK;
    TRY(exec_await(x, &k->went)); /* of the step before: long gone */
    TRY(x->hooks->norm(x->hooks->arg, mine));
    memcpy(k->each, mine, sizeof mine);
    if (x->plane)
        TRY(comm_all_gather(x->plane, k->each, mine, EXEC_SUMS, DT_F64));
    memset(k->sum, 0, sizeof k->sum);
    if (x->coord[AXIS_PP] > 0) {
        TRY(exec_await(x, &k->came));
        memcpy(k->sum, k->in, sizeof k->sum);
    }
    for (int i = 0; i < plane * EXEC_SUMS; i++)
        k->sum[i % EXEC_SUMS] += k->each[i];
    return ERR_OK;
}

enum err exec_norm_send(struct exec *x, struct sched_instr in)
{
    if (!ahead(x))
        return ERR_OK;
    return comm_send_start(x->a.world, exec_world_rank(x, in.peer), post_tag(x, false),
                           x->post.sum, sizeof x->post.sum, &x->post.went);
}

enum err exec_step(struct exec *x, struct sched_instr in)
{
    struct exec_post *k = &x->post;
    (void)in;
    if (!x->hooks || !x->hooks->step)
        return ERR_OK;
    if (!k->each || !ahead(x))
        return x->hooks->step(x->hooks->arg);
    TRY(x->hooks->step_ahead(x->hooks->arg, k->sum));
    k->pending = true;
    if (x->coord[AXIS_PP] == x->a.sched->p - 1) {
        TRY(exec_await(x, &k->tells));
        memcpy(k->total, k->sum, sizeof k->total);
    }
    return ERR_OK;
}

enum err exec_pv_recv(struct exec *x, struct sched_instr in)
{
    if (!x->post.pending)
        return ERR_OK;
    TRY(exec_await(x, &x->post.tells));
    return comm_recv_start(x->a.world, exec_world_rank(x, in.peer), post_tag(x, true),
                           x->post.total, sizeof x->post.total, &x->post.told);
}

enum err exec_pv_send(struct exec *x, struct sched_instr in)
{
    if (!x->post.pending)
        return ERR_OK;
    TRY(exec_await(x, &x->post.told));
    return comm_send_start(x->a.world, exec_world_rank(x, in.peer), post_tag(x, true),
                           x->post.total, sizeof x->post.total, &x->post.tells);
}

enum err exec_pv_check(struct exec *x, struct sched_instr in)
{
    (void)in;
    if (!x->post.pending)
        return ERR_OK;
    TRY(exec_await(x, &x->post.told));
    x->post.pending = false;
    return x->hooks->check(x->hooks->arg, x->post.total, &x->post.again);
}

bool exec_pending(const struct exec *x)
{
    return x->post.pending;
}

enum err exec_settle(struct exec *x, const struct exec_hooks *hooks)
{
    static enum err (*const run[])(struct exec *, struct sched_instr) = {
        [SCHED_PV_RECV] = exec_pv_recv, [SCHED_PV_SEND] = exec_pv_send,
        [SCHED_PV_CHECK] = exec_pv_check,
    };
    const struct sched *s = x->a.sched;
    int pp = x->coord[AXIS_PP];
    x->sched = s;
    x->hooks = hooks;
    enum err err = ERR_OK;
    for (x->at = s->begin[pp]; err == ERR_OK && x->post.pending; x->at++) {
        uint16_t op = s->instr[x->at].op;
        if (op >= SCHED_PV_RECV && op <= SCHED_PV_CHECK)
            err = run[op](x, s->instr[x->at]);
    }
    if (err != ERR_OK && err != ERR_NONFINITE)
        return err;
    x->post.again = false; /* nothing was computed since */
    TRY(exec_await(x, &x->post.went));
    TRY(exec_await(x, &x->post.tells));
    return err;
}

/* ---- beginning anew ---- */

/* Does this rank ask for the activation of (stage, mb) before its check, at `check`? */
static bool asked_for(const struct exec *x, int stage, int mb, int64_t check)
{
    const struct sched *s = x->sched;
    for (int64_t i = s->begin[x->coord[AXIS_PP]]; i < check; i++)
        if (s->instr[i].op == SCHED_RECV_F && s->instr[i].stage == stage && s->instr[i].mb == mb)
            return true;
    return false;
}

/* Takes what rank `from` sent before its check and this one, which stands at its own, did not. */
static enum err take_strays(struct exec *x, int from)
{
    const struct sched *s = x->sched;
    struct comm_req r = {0};
    for (int64_t i = s->begin[from]; s->instr[i].op != SCHED_PV_CHECK; i++) {
        struct sched_instr in = s->instr[i];
        int stage = in.stage + 1;
        if (in.op != SCHED_SEND_F || in.peer != x->coord[AXIS_PP] ||
            asked_for(x, stage, in.mb, x->at))
            continue;
        struct exec_stage *e = &x->stage[x->here[sched_holding(s, stage, in.mb)]];
        struct comm_device_msg m = exec_msg(x, in, false,
                                            stage_input(&e->stage, &e->slot[0].slot));
        m.peer = exec_world_rank(x, from);
        TRY(comm_device_recv_start(x->a.world, &m, &r));
        TRY(exec_await(x, &r));
    }
    return ERR_OK;
}

enum err exec_rewind(struct exec *x)
{
    x->post.again = x->counts = false;
    for (int i = 0; i < x->stages_here; i++)
        for (int k = 0; k < x->stage[i].slots; k++)
            TRY(exec_await(x, &x->stage[i].slot[k].recv_f));
    for (int from = 0; from < x->sched->p; from++)
        if (from != x->coord[AXIS_PP])
            TRY(take_strays(x, from));
    TRY(exec_drain(x)); /* the receivers take theirs at their check */
    TRY(exec_await(x, &x->post.went));
    TRY(exec_await(x, &x->post.tells));
    for (int i = 0; i < x->stages_here; i++)
        exec_drop(&x->stage[i], x->a.sched->m);
    x->at = x->sched->begin[x->coord[AXIS_PP]] - 1;
    return ERR_OK;
}
