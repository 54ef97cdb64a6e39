/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the executor: arenas, groups, stages, slots, tables, in one fixed order. The terms follow
 * src/sim/sim_memory.c; at the end every arena must be used up to its last byte.
 */
#include "exec/exec_local.h"

static enum err arena_from_device(struct exec *x, struct arena *a, int64_t bytes, const char *name)
{
    void *p = NULL;
    int64_t block = x->guards ? arena_guarded_bytes(bytes) : bytes;
    if (bytes > 0)
        TRY(x->a.dev->ops->alloc(x->a.dev, block, name, &p));
    arena_over(a, p, bytes, name);
    return x->guards && p ? arena_guard(a) : ERR_OK;
}

/* Gradients lie where GPUs of the other ranks may read them, if the transport has such a place; and
 * where data ranks share the updates, so do the weights, behind them. */
static enum err open_grads_and_weights(struct exec *x)
{
    int64_t grads = x->a.plan.grads, weights = x->a.plan.weights;
    bool shared = x->a.shares > 1;
    void *p = NULL;
    x->window_bytes = grads + (shared ? weights : 0);
    if (x->mesh.size[AXIS_DP] > 1)
        TRY(comm_window_take(x->a.world, x->window_bytes,
                             shared ? "gradients and weights" : "gradients", &p));
    x->grads_lent = p != NULL;
    x->weights_lent = p && shared;
    if (p)
        arena_over(&x->grads, p, grads, "gradients");
    else
        TRY(arena_from_device(x, &x->grads, grads, "gradients"));
    if (x->weights_lent)
        arena_over(&x->weights, (char *)p + grads, weights, "weights");
    else
        TRY(arena_from_device(x, &x->weights, weights, "weights"));
    return ERR_OK;
}

/* So does what tensor and pipeline ranks tell each other, in one window: activations, scratch,
 * gradients on their way. The three have the same layout on all tensor ranks, since plan and shapes
 * depend on the pipeline coordinate alone. */
static enum err open_stream(struct exec *x, int64_t scratch)
{
    const struct exec_bytes *b = &x->a.plan;
    struct arena *part[] = {&x->activations, &x->work, &x->comm};
    const char *name[] = {"activations", "scratch", "communication"};
    int64_t bytes[] = {b->activations, b->work, b->comm - scratch};
    if (x->a.split.tp > 1 || x->mesh.size[AXIS_PP] > 1)
        TRY(comm_window_take(x->a.world, bytes[0] + bytes[1] + bytes[2],
                             "activations, scratch and communication", &x->stream));
    char *p = x->stream;
    for (int i = 0; i < 3; i++) {
        if (!x->stream)
            TRY(arena_from_device(x, part[i], bytes[i], name[i]));
        else
            arena_over(part[i], p, bytes[i], name[i]);
        x->stream_bytes += bytes[i];
        p = p ? p + bytes[i] : p;
    }
    return ERR_OK;
}

static enum err open_arenas(struct exec *x, int64_t scratch)
{
    const struct exec_bytes *b = &x->a.plan;
    TRY(arena_from_device(x, &x->master, b->master, "master weights"));
    TRY(open_grads_and_weights(x));
    TRY(arena_from_device(x, &x->optim, b->optim, "optimizer state"));
    TRY(arena_from_device(x, &x->shadow, b->shadow, "shadow"));
    TRY(open_stream(x, scratch));
    return arena_from_device(x, &x->data, b->data, "data and tables");
}

/* cos and sin of pos * theta^(-2i/D), i < D/2, for each position: (T, D) in the wide type. */
static enum err fill_rope(struct exec *x)
{
    const struct arch *a = x->a.arch;
    int64_t half = a->head_dim / 2, n = a->seq * a->head_dim, at = dtype_size(x->a.dev->at);
    char *host;
    TRY(mem_new(n, (size_t)at, "the rotary table", &host));
    for (int64_t t = 0; t < a->seq; t++)
        for (int64_t i = 0; i < a->head_dim; i++) {
            double inv = pow(a->rope_theta, -2.0 * (double)(i % half) / (double)a->head_dim);
            double angle = (double)t * inv, value = i < half ? cos(angle) : sin(angle);
            float narrow = (float)value;
            memcpy(host + (t * a->head_dim + i) * at, at == 8 ? (void *)&value : (void *)&narrow,
                   (size_t)at);
        }
    enum err err = dev_h2d(x->a.dev, x->rope, host, n * at);
    mem_free(host);
    return err;
}

static enum err open_tables(struct exec *x)
{
    const struct exec_args *a = &x->a;
    int64_t n = a->share * a->arch->seq, floats = arch_floats(a->arch);
    x->input_bytes = arch_input_bytes(a->arch, &a->dev->types);
    if (floats && a->dev->at == DT_F64)
        TRY(mem_new(n * floats, sizeof *x->wide, "a batch of rows", &x->wide));
    TRY(arena_take(&x->data, n * x->input_bytes, "input", &x->input));
    TRY(arena_take(&x->data, n * (int64_t)sizeof(int32_t), "targets", &x->targets));
    TRY(arena_take(&x->data, 2 * (int64_t)sizeof(double), "loss and step", &x->loss));
    x->step = (uint32_t *)(x->loss + 1);
    TRY(arena_take(&x->data, ARCH_STEP_DOUBLES * (int64_t)sizeof(double), "sums and rates",
                   &x->scalars));
    if (!arch_rotary(a->arch))
        return ERR_OK;
    TRY(arena_take(&x->data, a->arch->seq * a->arch->head_dim * dtype_size(a->dev->at),
                   "rotary table", &x->rope));
    return fill_rope(x);
}

static enum err open_slots(struct exec *x, struct exec_stage *e)
{
    int m = x->a.sched->m;
    const struct sched_report *r = x->a.report;
    TRY(mem_new(r->stage_peak[e->holding], sizeof *e->slot, "slots", &e->slot));
    TRY(mem_new(m, sizeof *e->slot_of, "slots", &e->slot_of));
    TRY(mem_new(m, sizeof *e->keep_of, "slots", &e->keep_of));
    TRY(mem_new(m, sizeof *e->again, "slots", &e->again));
    for (int i = 0; i < m; i++)
        e->slot_of[i] = e->keep_of[i] = EXEC_NO_SLOT;
    for (; e->slots < r->stage_peak[e->holding]; e->slots++) {
        struct exec_slot *slot = &e->slot[e->slots];
        slot->set = EXEC_NO_SLOT;
        TRY(stage_slot_open(&e->stage, &x->activations, &slot->slot));
        slot->in = slot->slot.save[0][SAVE_X];
        slot->out = slot->slot.out;
    }
    TRY(mem_new(r->save_peak[e->holding], sizeof *e->saves, "save sets", &e->saves));
    for (; e->save_sets < r->save_peak[e->holding]; e->save_sets++)
        TRY(stage_saves_open(&e->stage, &x->activations, &e->saves[e->save_sets].saves));
    if (!x->splits)
        return ERR_OK;
    TRY(mem_new(r->grad_peak[e->holding], sizeof *e->keep, "keep sets", &e->keep));
    for (; e->keeps < r->grad_peak[e->holding]; e->keeps++)
        TRY(stage_keep_open(&e->stage, true, &x->activations, &e->keep[e->keeps].keep));
    return ERR_OK;
}

static enum err open_stage(struct exec *x, struct exec_stage *e, int holding)
{
    const struct exec_args *a = &x->a;
    int id = holding % a->sched->stages;
    struct stage_args s = {.arch = a->arch, .split = a->split, .span = a->cut[id],
                           .samples = a->samples, .dev = a->dev, .work = &x->scratch,
                           .rope = x->rope, .loss = x->loss, .seed = a->seed,
                           .training = a->training, .copy = holding >= a->sched->stages,
                           .share = x->coord[AXIS_DP], .shares = a->shares};
    if (s.span.embed_beside) /* stages are opened in order: the first is there */
        s.tokens = param_find(&x->stage[0].stage.params, 0, ROLE_TOKENS);
    s.tp = (struct tp){a->dev, x->tp, x->kv, a->split.tp, x->coord[AXIS_TP], a->split.sp,
                       a->split.tp > 1 ? a->tp_rows : 0,
                       a->tp_steps || (x->tp && comm_group_copies(x->tp))};
    struct param_arenas from = {&x->weights, &x->master, &x->grads, &x->optim,
                                x->a.plan.shadow ? &x->shadow : NULL};
    e->id = id;
    e->holding = holding;
    TRY(stage_open(&e->stage, &s, &from));
    TRY(dp_open(&e->dp, x->dp, &e->stage.tp, &e->stage.params, e->stage.parts));
    return open_slots(x, e);
}

static enum err open_stages(struct exec *x)
{
    const struct sched *s = x->a.sched;
    int pp = x->coord[AXIS_PP], holdings = s->replicas * s->stages;
    TRY(mem_new(sched_held_count(s, pp), sizeof *x->stage, "the stages", &x->stage));
    TRY(mem_new(holdings, sizeof *x->here, "the stages", &x->here));
    for (int h = 0; h < holdings; h++)
        x->here[h] = -1;
    for (int id = 0; id < s->stages; id++) {
        int h = sched_held(s, id, pp);
        if (h < 0)
            continue;
        x->here[h] = x->stages_here;
        TRY(open_stage(x, &x->stage[x->stages_here++], h));
    }
    return ERR_OK;
}

/* What the list computes again need not be kept by its forward. */
static void mark_again(struct exec *x)
{
    const struct sched *s = x->a.sched;
    int pp = x->coord[AXIS_PP];
    for (int64_t i = s->begin[pp]; i < s->begin[pp + 1]; i++) {
        struct sched_instr in = s->instr[i];
        if (in.op == SCHED_R)
            x->stage[x->here[sched_holding(s, in.stage, in.mb)]].again[in.mb] = true;
    }
}

static enum err open_shared(struct exec *x)
{
    struct arch_rank r = {x->a.arch, x->a.split, x->a.samples, &x->a.dev->types};
    struct stage_work_bytes work = {0};
    int64_t sends = 0;
    for (int i = 0; i < x->stages_here; i++) {
        const struct arch_stage *st = &x->stage[i].stage.span;
        int before = x->stage[i].holding - 1;
        for (int id = 0; id < WORK_COUNT; id++)
            work.at[id] = num_max(work.at[id], arch_work_shared(&r, st, (enum arch_work)id));
        for (int id = 0; id < KEEP_COUNT && x->a.training && !x->splits; id++)
            work.keep[id] = num_max(work.keep[id], arch_keep_shared(&r, st, (enum arch_keep)id));
        if (x->stage[i].id > 0 && x->a.sched->place[before] != x->coord[AXIS_PP])
            sends = num_max(sends, arch_boundary_bytes(&r, st->first));
    }
    TRY(stage_work_open(&work, &x->work, &x->scratch));
    for (int i = 0; i < x->stages_here && x->a.training && !x->splits; i++)
        TRY(stage_keep_open(&x->stage[i].stage, false, NULL, &x->stage[i].shared));
    if (!x->a.training || !sends)
        return ERR_OK;
    TRY(mem_new(x->a.report->ring, sizeof *x->ring, "the ring of gradients", &x->ring));
    TRY(mem_new(x->a.report->ring, sizeof *x->ring_sent, "the ring of gradients", &x->ring_sent));
    for (; x->rings < x->a.report->ring; x->rings++)
        TRY(arena_take(&x->comm, sends, "gradient on its way", &x->ring[x->rings]));
    return ERR_OK;
}

static enum err check_full(const struct exec *x)
{
    const struct arena *all[] = {&x->weights, &x->master, &x->grads, &x->optim, &x->shadow,
                                 &x->activations, &x->work, &x->comm, &x->data};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->used != all[i]->size)
            FAIL(ERR_INTERNAL, "memory: the plan gives %s %lld bytes, the layout takes %lld",
                 all[i]->name, (long long)all[i]->size, (long long)all[i]->used);
    return ERR_OK;
}

static enum err open_post(struct exec *x)
{
    int plane = x->plane ? comm_group_size(x->plane) : 1;
    if (x->a.report->ahead)
        TRY(mem_new(plane * EXEC_SUMS, sizeof *x->post.each, "the plane's sums", &x->post.each));
    return ERR_OK;
}

static enum err open_all(struct exec *x)
{
    const struct exec_args *a = &x->a;
    TRY(open_arenas(x, groups_scratch(a->groups)));
    TRY(exec_groups_open(x)); /* one of them is told where gradients lie */
    TRY(open_tables(x));
    TRY(open_stages(x));
    mark_again(x);
    TRY(open_shared(x));
    exec_poison_scratch(x);
    TRY(exec_trace_open(x));
    TRY(open_post(x));
    return check_full(x);
}

enum err exec_open(const struct exec_args *a, struct exec **out)
{
    struct exec *x;
    if (comm_size(a->world) != a->mesh->world)
        FAIL(ERR_CONFIG, "ranks started: %d, but the layout has %d; start as many",
             comm_size(a->world), a->mesh->world);
    ENSURE(a->sched->checked);
    TRY(mem_new(1, sizeof *x, "the executor", &x));
    x->a = *a;
    x->mesh = *a->mesh;
    x->guards = exec_guarded(a);
    x->splits = false;
    for (int64_t i = 0; i < a->sched->begin[a->sched->p]; i++)
        x->splits = x->splits || a->sched->instr[i].op == SCHED_I;
    mesh_coord(&x->mesh, comm_rank(a->world), x->coord);
    enum err err = open_all(x);
    if (err != ERR_OK) {
        exec_close(x);
        return err;
    }
    *out = x;
    return ERR_OK;
}

static void close_stage(struct exec_stage *e)
{
    for (int i = 0; e->slot && i < e->slots; i++)
        stage_slot_close(&e->slot[i].slot);
    for (int i = 0; e->saves && i < e->save_sets; i++)
        stage_saves_close(&e->saves[i].saves);
    for (int i = 0; e->keep && i < e->keeps; i++)
        stage_keep_close(&e->keep[i].keep);
    stage_keep_close(&e->shared);
    mem_free(e->slot);
    mem_free(e->saves);
    mem_free(e->keep);
    mem_free(e->slot_of);
    mem_free(e->keep_of);
    mem_free(e->again);
    dp_close(&e->dp);
    stage_close(&e->stage);
}

void exec_close(struct exec *x)
{
    if (!x)
        return;
    exec_forget(x);
    for (int i = 0; i < x->stages_here; i++)
        close_stage(&x->stage[i]);
    struct arena *own[] = {&x->weights, &x->master, &x->grads, &x->optim, &x->shadow, &x->data,
                           &x->activations, &x->work, &x->comm};
    int n = (int)(sizeof own / sizeof *own) - (x->stream ? 3 : 0); /* these are lent together */
    for (int i = 0; i < n; i++)
        arena_unguard(own[i]);
    for (int i = 0; i < n; i++)
        if (own[i]->base && !(own[i] == &x->grads && x->grads_lent) &&
            !(own[i] == &x->weights && x->weights_lent))
            x->a.dev->ops->free(x->a.dev, own[i]->base);
    exec_groups_close(x);
    mem_free(x->stage);
    mem_free(x->here);
    mem_free(x->ring);
    mem_free(x->ring_sent);
    mem_free(x->wide);
    exec_trace_close(x);
    mem_free(x->post.each);
    mem_free(x);
}
