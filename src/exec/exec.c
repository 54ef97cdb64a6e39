/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter: one function an instruction, and a loop at the bottom.
 *
 * A stage has as many slots as the check proved live at once. F takes one (or RECV_F, which needs
 * its input buffer), the last of B or W gives it back; forward only, its send does. What else the
 * forward saves lies in a save set, lent to the slot while it is needed. The slot's `out` first
 * holds what SEND_F sends, later the gradient that RECV_B brings; gradients for the stage before
 * leave from a ring of buffers, because their slot is free at once. Neighbouring stages on one rank
 * pass both by pointer. DROP and GATHER are of all elements of the segment they name, as rule V13
 * has it, UPDATE of the pieces that begin there; who computes waits for its own gathers alone.
 */
#include "exec/exec_local.h"

#include <stdio.h>

/* ---- messages ---- */

/* The message of an instruction: the activation of its microbatch into a stage, or the gradient of
 * what that stage gave out; at p. Of a batch whose sequences are shorter, so much less. */
static struct comm_device_msg message(const struct exec *x, struct sched_instr in, bool gradient,
                                      void *p)
{
    bool next = in.op == SCHED_SEND_F, before = in.op == SCHED_SEND_B;
    int reads = in.stage + (next || in.op == SCHED_RECV_B); /* the stage whose input it is of */
    int into = sched_stage_replica(x->sched, in.stage + next - before, in.mb);
    struct stage_mb mb = exec_mb_of(x, in.mb);
    struct model_rank r = {x->a.of.model, x->a.of.split, mb.samples, &x->a.dev->types};
    int64_t bytes = model_boundary_bytes(&r, x->a.of.cut[reads].first);
    return (struct comm_device_msg){.peer = exec_world_rank(x, in.peer),
                                    .lane = gradient,
                                    .tag = 2 * into + gradient,
                                    .p = p,
                                    .bytes = bytes / x->a.of.model->seq * mb.t};
}

/* ---- forward ---- */

static enum err run_f(struct exec *x, struct sched_instr in)
{
    struct exec_stage *e = exec_stage_of(x, in.stage, in.mb);
    struct stage_mb mb = exec_mb_of(x, in.mb);
    bool local = exec_is_here(x, in.stage - 1, in.mb);
    if (in.stage == 0 || local)
        TRY(exec_slot_take(x, e, in.mb));
    struct exec_slot *slot = exec_slot_of(e, in.mb);
    if (local) { /* the two slots change buffers: one holds the input, the other is free for its
                    gradient */
        struct exec_stage *before = exec_stage_of(x, in.stage - 1, in.mb);
        void **input = &slot->slot.save[0][SAVE_X], *free = *input;
        *input = exec_slot_of(before, in.mb)->slot.out;
        exec_slot_of(before, in.mb)->slot.out = free;
        if (x->sched->forward_only)
            exec_slot_give(before, in.mb);
    }
    TRY(exec_await(x, &slot->recv_f));
    TRY(exec_saves_take(x, e, in.mb));
    TRY(stage_forward(&e->stage, &mb, &slot->slot, NULL));
    if (stage_has_head(&e->stage) && x->hooks && x->hooks->logits)
        TRY(x->hooks->logits(x->hooks->arg, &e->stage, &mb, &slot->slot));
    if (x->sched->forward_only || e->mb[in.mb].again)
        exec_saves_give(e, in.mb);
    if (stage_has_head(&e->stage) && x->sched->forward_only)
        exec_slot_give(e, in.mb);
    return ERR_OK;
}

static enum err run_send_f(struct exec *x, struct sched_instr in)
{
    struct exec_stage *e = exec_stage_of(x, in.stage, in.mb);
    struct exec_slot *slot = exec_slot_of(e, in.mb);
    struct comm_device_msg m = message(x, in, false, slot->slot.out);
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
    struct comm_device_msg m = message(x, in, false, slot->slot.save[0][SAVE_X]);
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
    struct stage_range parts = exec_parts_of(x, e, in);
    return stage_forward(&e->stage, &mb, &exec_slot_of(e, in.mb)->slot, &parts);
}

/* B and its halves: I takes what B takes when it begins, and W gives back what B does when it ends.
 * I is of all segments. */
static enum err run_backward(struct exec *x, struct sched_instr in)
{
    static const enum stage_half half[] = {[SCHED_B] = STAGE_WHOLE, [SCHED_I] = STAGE_INPUT,
                                           [SCHED_W] = STAGE_WEIGHT};
    struct exec_stage *e = exec_stage_of(x, in.stage, in.mb);
    struct exec_slot *slot = exec_slot_of(e, in.mb);
    struct stage_mb mb = exec_mb_of(x, in.mb);
    bool input = in.op != SCHED_W, weight = in.op != SCHED_I;
    struct stage_back b = {.mb = &mb, .slot = &slot->slot, .parts = exec_parts_of(x, e, in)};
    if (!weight || (input && sched_begins_stage(x->sched, in))) {
        int k;
        TRY(exec_keep_find(x, e, &k));
        e->keep[k].used = true;
        e->mb[in.mb].keep = k;
    }
    b.keep = &e->keep[e->mb[in.mb].keep].keep;
    if (input)
        TRY(exec_await(x, &slot->recv_b));
    bool gives = e->id > 0 && (!weight || (input && sched_ends_stage(in)));
    if (gives && exec_is_here(x, e->id - 1, in.mb)) {
        b.dx = exec_slot_of(exec_stage_of(x, e->id - 1, in.mb), in.mb)->slot.out;
    } else if (gives) {
        x->ring_next = (x->ring_next + 1) % x->rings;
        b.dx = x->ring[x->ring_next];
        TRY(exec_await(x, &x->ring_sent[x->ring_next]));
        arena_poison(&x->arena[MEMORY_COMM], b.dx);
    }
    TRY(stage_backward(&e->stage, &b, half[in.op]));
    if (!weight)
        return ERR_OK;
    x->cut = !sched_ends_stage(in);
    if (x->cut)
        return ERR_OK;
    e->keep[e->mb[in.mb].keep].used = false;
    e->mb[in.mb].keep = EXEC_NO_SLOT;
    exec_saves_give(e, in.mb);
    exec_slot_give(e, in.mb);
    return ERR_OK;
}

static enum err run_send_b(struct exec *x, struct sched_instr in)
{
    struct comm_device_msg m = message(x, in, true, x->ring[x->ring_next]);
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
    struct comm_device_msg m = message(x, in, true, slot->slot.out);
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
    return comm_all_reduce(x->group[GROUP_REPLICA], s->grad, s->elements, x->a.dev->at, COMM_SUM);
}

static enum err run_tied(struct exec *x, struct sched_instr in)
{
    struct stage *s = &exec_stage_held(x, in.stage)->stage;
    const struct stage_part *part = &s->part[model_stage_embed(&s->span) ? 0 : s->parts - 1];
    const struct param *p = part->role[model_stage_embed(&s->span) ? PARAM_TOKENS : PARAM_HEAD_W];
    TRY(param_grad_settle(p));
    /* The other end's owners have other ranges of it, so both add all of it. */
    TRY(dp_gather(&exec_stage_held(x, in.stage)->dp, p->offset, p->offset + p->count));
    return comm_all_reduce(x->group[GROUP_EMBED], param_grad(p), p->count, x->a.dev->at, COMM_SUM);
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

static enum err run_norm(struct exec *x, struct sched_instr in)
{
    (void)in;
    if (!steps(x))
        return ERR_OK;
    if (!x->records) /* replays bring their own */
        TRY(exec_step_set(x, x->hooks));
    return optim_norm(&x->optim, own_loss(x));
}

static enum err run_step(struct exec *x, struct sched_instr in)
{
    (void)in;
    ENSURE(x->a.of.num_shards == 1);
    for (int i = 0; steps(x) && i < x->stages_here; i++)
        TRY(optim_update(&x->optim, x->store[i], 0));
    return ERR_OK;
}

static int64_t begin_of(const struct param_store *s, int part)
{
    int first = s->part_first[part];
    return first < s->n ? s->param[first].offset : s->elements;
}

static struct dp_range elements_of(const struct exec_stage *e, struct stage_range parts)
{
    const struct param_store *s = &e->stage.params;
    return (struct dp_range){begin_of(s, parts.first), begin_of(s, parts.end)};
}

/* Those of the segment that an instruction of shared updates names. */
static struct exec_stage *shared_of(struct exec *x, struct sched_instr in, struct dp_range *at)
{
    struct exec_stage *e = exec_stage_held(x, in.stage);
    ENSURE(x->a.of.num_shards > 1);
    *at = elements_of(e, exec_parts_of(x, e, in));
    return e;
}

static enum err run_update(struct exec *x, struct sched_instr in)
{
    struct dp_range at;
    struct exec_stage *e = shared_of(x, in, &at);
    const struct param_store *s = &e->stage.params;
    for (int i = 0; i < s->pieces; i++) {
        struct dp_range piece = {s->edge[i], s->edge[i + 1]};
        if (piece.begin < at.begin || piece.begin >= at.end)
            continue;
        TRY(dp_weights_finish(&e->dp, piece));
        if (steps(x))
            TRY(optim_update(&x->optim, s, i));
        dp_weights_give(&e->dp, piece);
    }
    return ERR_OK;
}

static enum err run_gather(struct exec *x, struct sched_instr in)
{
    struct dp_range at;
    struct exec_stage *e = shared_of(x, in, &at);
    return dp_weights_start(&e->dp, at);
}

/* Their memory stays: with guards whoever uses it meets NaN. */
static enum err run_drop(struct exec *x, struct sched_instr in)
{
    struct dp_range at;
    struct exec_stage *e = shared_of(x, in, &at);
    TRY(dp_weights_finish(&e->dp, at)); /* of pieces that others have a part of, too */
    dp_weights_give(&e->dp, at);
    exec_poison_weights(x, &e->stage.params, at);
    return ERR_OK;
}

static enum err await_weights(struct exec *x, struct sched_instr in)
{
    if (x->a.of.num_shards == 1 || in.op >= SCHED_COMPUTE_OPS)
        return ERR_OK;
    struct exec_stage *e = exec_stage_of(x, in.stage, in.mb);
    struct stage_range parts = exec_parts_of(x, e, in);
    bool head = parts.end == e->stage.parts && stage_has_head(&e->stage) && x->a.of.model->tied;
    if (head && x->stage[0].id == 0) /* its matrix is the embedding's */
        TRY(dp_weights_finish(&x->stage[0].dp,
                              elements_of(&x->stage[0], (struct stage_range){0, 1})));
    return dp_weights_finish(&e->dp, elements_of(e, parts));
}

/* ---- the interpreter ---- */

typedef enum err exec_fn(struct exec *x, struct sched_instr in);
static exec_fn *const exec_table[SCHED_OP_COUNT] = {
    [SCHED_F] = run_f, [SCHED_B] = run_backward, [SCHED_I] = run_backward,
    [SCHED_W] = run_backward, [SCHED_R] = run_r,
    [SCHED_SEND_F] = run_send_f, [SCHED_RECV_F] = run_recv_f, [SCHED_SEND_B] = run_send_b,
    [SCHED_RECV_B] = run_recv_b, [SCHED_REDUCE] = run_reduce, [SCHED_EMBED_REDUCE] = run_tied,
    [SCHED_STEP] = run_step, [SCHED_OVERLAP_F_B] = run_ov, [SCHED_REPLICA_REDUCE] = run_merge,
    [SCHED_WAIT] = run_wait, [SCHED_NORM] = run_norm, [SCHED_UPDATE] = run_update,
    [SCHED_GATHER] = run_gather, [SCHED_DROP] = run_drop,
};

/* The instruction at which this rank stands, for messages. */
static const char *where(const struct exec *x, char buf[SCHED_CELL])
{
    bool at = x->sched && x->at < x->sched->begin[x->coord[AXIS_PP] + 1];
    return at ? sched_cell(&x->sched->instr[x->at], buf) : "-";
}

/* The instruction at x->at. */
static enum err run_instr(struct exec *x)
{
    struct sched_instr in = x->sched->instr[x->at];
    char cell[SCHED_CELL], text[SCHED_CELL + 32];
    int64_t outer;
    snprintf(text, sizeof text, "%s of step %u", where(x, cell), x->batch->step);
    comm_set_location(x->a.world, text); /* peers that wait for this rank can read where it is */
    if (x->hooks && x->hooks->begins)
        x->hooks->begins(x->hooks->arg, in);
    TRY(exec_trace_begin(x, &outer));
    TRY(await_weights(x, in));
    TRY(exec_table[in.op](x, in));
    if (!x->cut)
        exec_poison_scratch(x);
    return exec_trace_end(x, outer);
}

enum err exec_feed(struct exec *x, const struct exec_batch *b)
{
    int64_t n = b->samples * b->t, floats = model_floats(x->a.of.model);
    ENSURE(b->samples <= x->a.of.step_samples && b->t <= x->a.of.model->seq);
    for (int64_t i = 0; x->wide && i < n * floats; i++)
        x->wide[i] = (double)((const float *)b->input)[i];
    TRY(dev_h2d(x->a.dev, x->input, x->wide ? x->wide : b->input, n * x->input_bytes));
    if (b->targets)
        TRY(dev_h2d(x->a.dev, x->targets, b->targets, n * (int64_t)sizeof(int32_t)));
    TRY(dev_h2d(x->a.dev, x->step, &b->step, (int64_t)sizeof b->step));
    return dev_zero(x->a.dev, x->loss, (int64_t)sizeof(double));
}

void exec_begin(struct exec *x, const struct sched *s, const struct exec_batch *b,
                const struct exec_hooks *hooks)
{
    x->sched = s;
    x->batch = b;
    x->hooks = hooks;
    x->at = s->begin[x->coord[AXIS_PP] + 1]; /* at no instruction that could be named */
    x->ring_next = 0;
    x->cut = false;
    for (int i = 0; i < x->stages_here; i++) {
        struct exec_stage *e = &x->stage[i];
        e->slot_next = 0;
        for (int k = 0; k < e->slots; k++) { /* neighbours on a rank change buffers */
            e->slot[k].slot.save[0][SAVE_X] = e->slot[k].in;
            e->slot[k].slot.out = e->slot[k].out;
        }
    }
}

enum err exec_run(struct exec *x, const struct sched *s, const struct exec_batch *b,
                  const struct exec_hooks *hooks)
{
    ENSURE(s->checked && s->p == x->a.of.sched->p && s->stages == x->a.of.sched->stages);
    ENSURE(s->m <= x->a.of.sched->m && s->replicas <= x->a.of.sched->replicas);
    exec_begin(x, s, b, hooks);
    TRY(exec_feed(x, b));
    x->trace.runs += x->trace.event && s == x->a.of.sched;
    exec_count_run(x);
    return exec_perform(x);
}

enum err exec_perform(struct exec *x)
{
    const struct sched *s = x->sched;
    int pp = x->coord[AXIS_PP];
    for (x->at = s->begin[pp]; x->at < s->begin[pp + 1]; x->at++) {
        char cell[SCHED_CELL];
        enum err err = run_instr(x);
        /* Of a hang it is said already, and a step that is found not finite lies behind. */
        if (err == ERR_HANG || err == ERR_NONFINITE)
            return err;
        if (err != ERR_OK)
            return err_set(err, __FILE__, __LINE__, "%s (at %s of step %u)", err_text(),
                           where(x, cell), x->batch->step);
    }
    /* Buffers of the run are used again when every send is over. */
    for (int i = 0; i < x->rings; i++)
        TRY(exec_await(x, &x->ring_sent[i]));
    for (int i = 0; i < x->stages_here; i++)
        for (int k = 0; k < x->stage[i].slots; k++)
            TRY(exec_await(x, &x->stage[i].slot[k].sent));
    for (int k = 0; k < MEMORY_KINDS; k++)
        TRY(arena_check(&x->arena[k]));
    return ERR_OK;
}

enum err exec_loss(struct exec *x, double *sum)
{
    TRY(dev_d2h(x->a.dev, sum, x->loss, (int64_t)sizeof *sum));
    return x->a.dev->ops->sync(x->a.dev);
}

enum err exec_own_sums(struct exec *x, const struct optim_step *s, double *sums)
{
    return optim_sums(&x->optim, s, own_loss(x), sums);
}
