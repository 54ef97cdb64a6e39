/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter. One function an instruction; the loop at the bottom is all of control.
 *
 * Slots. A stage has as many as the check proved live at once. F takes one (or RECV_F, which needs
 * the slot's input buffer), the last of B or W gives it back. What else the forward saves lies in a
 * save set, lent to the slot from F on; forward only, until the end of F, and for what an R makes
 * again, until then and from R on. The slot's `out` first holds what SEND_F sends, later the
 * gradient that RECV_B brings: by then the neighbour has received, so the send is over. Gradients
 * for the stage before leave from a ring of buffers, because their slot is free again at once.
 * Forward only, a slot is free again with its send, and slots are taken in turn, so that the next
 * activation is made while the last one leaves. Of all these there are as many as the check
 * counted. Neighbouring stages on one rank pass activation and gradient by pointer.
 */
#include "exec/exec_local.h"

#include <stdio.h>

/* ---- forward ---- */

/* The input of a stage whose neighbour lives on this rank too: the two slots change buffers, for
 * one holds the input, and the other is free for its gradient. */
static enum err pass_local(struct exec *x, struct exec_stage *e, int mb)
{
    struct exec_stage *before = exec_stage_of(x, e->id - 1, mb);
    TRY(exec_slot_take(x, e, mb));
    void **in = &exec_slot_of(e, mb)->slot.save[0][SAVE_X], *free = *in;
    *in = exec_slot_of(before, mb)->slot.out;
    exec_slot_of(before, mb)->slot.out = free;
    if (x->sched->forward_only)
        exec_slot_give(before, mb);
    return ERR_OK;
}

static enum err run_f(struct exec *x, struct sched_instr in)
{
    struct exec_stage *e = exec_stage_of(x, in.stage, in.mb);
    struct stage_mb mb = exec_mb_of(x, in.mb);
    if (in.stage == 0)
        TRY(exec_slot_take(x, e, in.mb));
    else if (exec_is_here(x, in.stage - 1, in.mb))
        TRY(pass_local(x, e, in.mb));
    struct exec_slot *slot = exec_slot_of(e, in.mb);
    TRY(exec_await(x, &slot->recv_f));
    TRY(exec_saves_take(x, e, in.mb));
    TRY(stage_forward(&e->stage, &mb, &slot->slot));
    if (stage_has_head(&e->stage) && x->hooks && x->hooks->logits)
        TRY(x->hooks->logits(x->hooks->arg, &e->stage, &mb, &slot->slot));
    if (x->sched->forward_only || e->again[in.mb])
        exec_saves_give(e, in.mb);
    if (stage_has_head(&e->stage) && x->sched->forward_only)
        exec_slot_give(e, in.mb);
    return ERR_OK;
}

static enum err run_send_f(struct exec *x, struct sched_instr in)
{
    struct exec_stage *e = exec_stage_of(x, in.stage, in.mb);
    struct exec_slot *slot = exec_slot_of(e, in.mb);
    struct comm_device_msg m = exec_msg(x, in, false, slot->slot.out);
    TRY(comm_device_send_start(x->a.world, &m, &slot->sent));
    if (x->sched->forward_only)
        exec_slot_give(e, in.mb);
    return ERR_OK;
}

static enum err run_recv_f(struct exec *x, struct sched_instr in)
{
    struct exec_stage *e = exec_stage_of(x, in.stage, in.mb);
    TRY(exec_slot_take(x, e, in.mb));
    struct exec_slot *slot = exec_slot_of(e, in.mb);
    struct comm_device_msg m = exec_msg(x, in, false, stage_input(&e->stage, &slot->slot));
    return comm_device_recv_start(x->a.world, &m, &slot->recv_f);
}

/* ---- backward ---- */

/* Waits for nothing: the gradient may still be on its way into the slot. */
static enum err run_r(struct exec *x, struct sched_instr in)
{
    struct exec_stage *e = exec_stage_of(x, in.stage, in.mb);
    struct stage_mb mb = exec_mb_of(x, in.mb);
    if (sched_begins_stage(x->sched, in))
        TRY(exec_saves_take(x, e, in.mb));
    return stage_recompute(&e->stage, &mb, &exec_slot_of(e, in.mb)->slot, exec_parts_of(x, e, in));
}

/* Where the gradient of the stage's input goes. */
static enum err gradient_out(struct exec *x, const struct exec_stage *e, int mb, void **out)
{
    *out = NULL;
    if (e->id == 0)
        return ERR_OK;
    if (exec_is_here(x, e->id - 1, mb)) {
        *out = exec_slot_of(exec_stage_of(x, e->id - 1, mb), mb)->slot.out;
        return ERR_OK;
    }
    x->ring_next = (x->ring_next + 1) % x->rings;
    *out = x->ring[x->ring_next];
    TRY(exec_await(x, &x->ring_sent[x->ring_next]));
    arena_poison(&x->comm, *out);
    return ERR_OK;
}

static enum err take_keep(struct exec *x, struct exec_stage *e, int mb)
{
    int k;
    TRY(exec_keep_find(x, e, &k));
    e->keep[k].used = true;
    e->keep_of[mb] = k;
    return ERR_OK;
}

/* The backward of a microbatch is over. */
static void end_backward(const struct exec *x, struct exec_stage *e, int mb)
{
    if (x->splits) {
        e->keep[e->keep_of[mb]].used = false;
        e->keep_of[mb] = EXEC_NO_SLOT;
    }
    exec_saves_give(e, mb);
    exec_slot_give(e, mb);
}

static enum err run_b(struct exec *x, struct sched_instr in)
{
    struct exec_stage *e = exec_stage_of(x, in.stage, in.mb);
    struct exec_slot *slot = exec_slot_of(e, in.mb);
    struct stage_mb mb = exec_mb_of(x, in.mb);
    struct stage_back b = {.mb = &mb, .slot = &slot->slot, .keep = &e->shared,
                           .parts = exec_parts_of(x, e, in)};
    x->cut = !sched_ends_stage(in);
    if (x->splits && sched_begins_stage(x->sched, in)) /* a list with I and W: a set serves a B */
        TRY(take_keep(x, e, in.mb));
    if (x->splits)
        b.keep = &e->keep[e->keep_of[in.mb]].keep;
    TRY(exec_await(x, &slot->recv_b));
    if (sched_ends_stage(in))
        TRY(gradient_out(x, e, in.mb, &b.dx));
    TRY(stage_backward(&e->stage, &b));
    if (sched_ends_stage(in))
        end_backward(x, e, in.mb);
    return ERR_OK;
}

static enum err run_i(struct exec *x, struct sched_instr in)
{
    struct exec_stage *e = exec_stage_of(x, in.stage, in.mb);
    struct exec_slot *slot = exec_slot_of(e, in.mb);
    struct stage_mb mb = exec_mb_of(x, in.mb);
    TRY(take_keep(x, e, in.mb));
    struct stage_back b = {.mb = &mb, .slot = &slot->slot,
                           .keep = &e->keep[e->keep_of[in.mb]].keep};
    TRY(exec_await(x, &slot->recv_b));
    TRY(gradient_out(x, e, in.mb, &b.dx));
    return stage_backward_input(&e->stage, &b);
}

static enum err run_w(struct exec *x, struct sched_instr in)
{
    struct exec_stage *e = exec_stage_of(x, in.stage, in.mb);
    struct stage_mb mb = exec_mb_of(x, in.mb);
    struct stage_back b = {.mb = &mb, .slot = &exec_slot_of(e, in.mb)->slot,
                           .keep = &e->keep[e->keep_of[in.mb]].keep,
                           .parts = exec_parts_of(x, e, in)};
    x->cut = !sched_ends_stage(in);
    TRY(stage_backward_weight(&e->stage, &b));
    if (sched_ends_stage(in))
        end_backward(x, e, in.mb);
    return ERR_OK;
}

static enum err run_send_b(struct exec *x, struct sched_instr in)
{
    struct comm_device_msg m = exec_msg(x, in, true, x->ring[x->ring_next]);
    return comm_device_send_start(x->a.world, &m, &x->ring_sent[x->ring_next]);
}

static enum err run_instr(struct exec *x);

/* A pair: its halves one after the other, x->at on the one that runs. */
static enum err run_ov(struct exec *x, struct sched_instr in)
{
    (void)in;
    x->at++;
    TRY(run_instr(x));
    x->at++;
    return run_instr(x);
}

static enum err run_recv_b(struct exec *x, struct sched_instr in)
{
    struct exec_slot *slot = exec_slot_of(exec_stage_of(x, in.stage, in.mb), in.mb);
    TRY(exec_await(x, &slot->sent));
    struct comm_device_msg m = exec_msg(x, in, true, slot->slot.out);
    return comm_device_recv_start(x->a.world, &m, &slot->recv_b);
}

/* ---- end of the step ---- */

/* Of a segment, or of all that a stage has. */
static enum err run_reduce(struct exec *x, struct sched_instr in)
{
    struct exec_stage *e = exec_stage_held(x, in.stage);
    return dp_start(&e->dp, exec_parts_of(x, e, in).first);
}

static enum err run_wait(struct exec *x, struct sched_instr in)
{
    (void)in;
    for (int i = 0; i < x->stages_here; i++)
        TRY(dp_finish(&x->stage[i].dp));
    x->flight = (struct dp_flight){.n = 0};
    return ERR_OK;
}

/* Both ranks get the same bits, so the replicas stay equal through every step. */
static enum err run_merge(struct exec *x, struct sched_instr in)
{
    struct exec_stage *e = exec_stage_held(x, in.stage);
    const struct param_store *s = &e->stage.params;
    TRY(param_grads_settle(s));
    return comm_all_reduce(x->merge, s->grad, s->elements, x->a.dev->at, COMM_SUM);
}

static enum err run_tied(struct exec *x, struct sched_instr in)
{
    struct stage *s = &exec_stage_held(x, in.stage)->stage;
    const struct stage_part *part = &s->part[model_stage_embed(&s->span) ? 0 : s->parts - 1];
    const struct param *p = part->role[model_stage_embed(&s->span) ? ROLE_TOKENS : ROLE_HEAD_W];
    TRY(param_grad_settle(p));
    /* The other end's owners have other ranges of it, so both add all of it. */
    TRY(dp_gather(&exec_stage_held(x, in.stage)->dp, p->offset, p->offset + p->count));
    return comm_all_reduce(x->tied, param_grad(p), p->count, x->a.dev->at, COMM_SUM);
}

typedef enum err exec_fn(struct exec *x, struct sched_instr in);
static exec_fn *const exec_table[SCHED_OP_COUNT] = {
    [SCHED_F] = run_f, [SCHED_B] = run_b, [SCHED_I] = run_i, [SCHED_W] = run_w, [SCHED_R] = run_r,
    [SCHED_SEND_F] = run_send_f, [SCHED_RECV_F] = run_recv_f, [SCHED_SEND_B] = run_send_b,
    [SCHED_RECV_B] = run_recv_b, [SCHED_REDUCE] = run_reduce, [SCHED_TIED] = run_tied,
    [SCHED_STEP] = exec_step, [SCHED_OV] = run_ov, [SCHED_MERGE] = run_merge,
    [SCHED_WAIT] = run_wait, [SCHED_NORM] = exec_norm, [SCHED_UPDATE] = exec_update,
    [SCHED_GATHER] = exec_gather, [SCHED_DROP] = exec_drop,
};

enum err exec_feed(struct exec *x, const struct exec_batch *b)
{
    int64_t n = b->samples * b->t, floats = model_floats(x->a.model);
    const void *input = b->input;
    ENSURE(b->samples <= x->a.share && b->t <= x->a.model->seq);
    for (int64_t i = 0; x->wide && i < n * floats; i++)
        x->wide[i] = (double)((const float *)b->input)[i];
    TRY(dev_h2d(x->a.dev, x->input, x->wide ? x->wide : input, n * x->input_bytes));
    if (b->targets)
        TRY(dev_h2d(x->a.dev, x->targets, b->targets, n * (int64_t)sizeof(int32_t)));
    TRY(dev_h2d(x->a.dev, x->step, &b->step, (int64_t)sizeof b->step));
    return dev_zero(x->a.dev, x->loss, (int64_t)sizeof(double));
}

/* The instruction at which this rank stands, for messages. */
static const char *where(const struct exec *x, char buf[SCHED_CELL])
{
    bool at = x->sched && x->at < x->sched->begin[x->coord[AXIS_PP] + 1];
    return at ? sched_cell(&x->sched->instr[x->at], buf) : "-";
}

/* The error once more, with the instruction of the schedule at which this rank stands; of a hang
 * that is said already, and a step that is found not finite lies behind. */
static enum err say_where(const struct exec *x, enum err err)
{
    char cell[SCHED_CELL];
    if (err == ERR_HANG || err == ERR_NONFINITE)
        return err;
    return err_set(err, __FILE__, __LINE__, "%s (at %s of step %u)", err_text(), where(x, cell),
                   x->batch->step);
}

/* Peers that wait for this rank can read where it is. */
static void be_at(const struct exec *x)
{
    char cell[SCHED_CELL], text[SCHED_CELL + 32];
    snprintf(text, sizeof text, "%s of step %u", where(x, cell), x->batch->step);
    comm_set_location(x->a.world, text);
}

/* The instruction at x->at. */
static enum err run_instr(struct exec *x)
{
    struct sched_instr in = x->sched->instr[x->at];
    int64_t outer;
    be_at(x);
    if (x->hooks && x->hooks->begins)
        x->hooks->begins(x->hooks->arg, in);
    TRY(exec_trace_begin(x, &outer));
    TRY(exec_weights_await(x, in));
    TRY(exec_table[in.op](x, in));
    if (!x->cut)
        exec_poison_scratch(x);
    return exec_trace_end(x, outer);
}

void exec_reset(struct exec *x)
{
    for (int i = 0; i < x->stages_here; i++) {
        struct exec_stage *e = &x->stage[i];
        e->slot_next = 0;
        exec_slots_home(e);
    }
    x->ring_next = 0;
    x->cut = false;
}

enum err exec_run(struct exec *x, const struct sched *s, const struct exec_batch *b,
                  const struct exec_hooks *hooks)
{
    ENSURE(s->checked && s->p == x->a.sched->p && s->stages == x->a.sched->stages);
    ENSURE(s->m <= x->a.sched->m && s->replicas <= x->a.sched->replicas);
    x->sched = s;
    x->batch = b;
    x->hooks = hooks;
    exec_reset(x);
    TRY(exec_feed(x, b));
    exec_trace_run(x);
    exec_count_run(x);
    return exec_perform(x);
}

enum err exec_perform(struct exec *x)
{
    const struct sched *s = x->sched;
    int pp = x->coord[AXIS_PP];
    for (x->at = s->begin[pp]; x->at < s->begin[pp + 1]; x->at++) {
        enum err err = run_instr(x);
        if (err != ERR_OK)
            return say_where(x, err);
    }
    TRY(exec_drain(x));
    return exec_guard_check(x);
}

enum err exec_loss(struct exec *x, double *sum)
{
    TRY(dev_d2h(x->a.dev, sum, x->loss, (int64_t)sizeof *sum));
    return x->a.dev->ops->sync(x->a.dev);
}
