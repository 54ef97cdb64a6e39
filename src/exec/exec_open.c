/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the executor: arenas, groups, and all buffers of the plan's list (plan/buffers.h), from
 * the arena of their kind to where they belong; then the stages over them.
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
    int64_t grads = x->a.plan[MEMORY_GRADS], weights = x->a.plan[MEMORY_WEIGHTS];
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
    const int64_t *b = x->a.plan;
    struct arena *part[] = {&x->activations, &x->work, &x->comm};
    const char *name[] = {"activations", "scratch", "communication"};
    int64_t bytes[] = {b[MEMORY_ACTIVATIONS], b[MEMORY_WORK], b[MEMORY_COMM] - scratch};
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
    const int64_t *b = x->a.plan;
    TRY(arena_from_device(x, &x->master, b[MEMORY_MASTER], "master weights"));
    TRY(open_grads_and_weights(x));
    TRY(arena_from_device(x, &x->moments, b[MEMORY_OPTIM], "optimizer state"));
    TRY(open_stream(x, scratch));
    return arena_from_device(x, &x->data, b[MEMORY_DATA], "data and tables");
}

/* cos and sin of pos * theta^(-2i/D), i < D/2, for each position: (T, D) in the wide type. */
static enum err fill_rope(struct exec *x)
{
    const struct model *a = x->a.model;
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

/* Room for pointers, of a stage as of a holding here. */
static enum err open_slots(struct exec *x, struct exec_stage *e)
{
    const struct sched_report *r = x->a.report;
    int m = x->a.sched->m, parts = model_stage_parts(&x->a.cut[e->id]);
    TRY(mem_new(r->stage_peak[e->holding], sizeof *e->slot, "slots", &e->slot));
    TRY(mem_new(m, sizeof *e->slot_of, "slots", &e->slot_of));
    TRY(mem_new(m, sizeof *e->keep_of, "slots", &e->keep_of));
    TRY(mem_new(m, sizeof *e->again, "slots", &e->again));
    for (int i = 0; i < m; i++)
        e->slot_of[i] = e->keep_of[i] = EXEC_NO_SLOT;
    for (; e->slots < r->stage_peak[e->holding]; e->slots++) {
        e->slot[e->slots].set = EXEC_NO_SLOT;
        TRY(stage_slot_open(parts, &e->slot[e->slots].slot));
    }
    TRY(mem_new(r->save_peak[e->holding], sizeof *e->saves, "save sets", &e->saves));
    for (; e->save_sets < r->save_peak[e->holding]; e->save_sets++)
        TRY(stage_saves_open(parts, &e->saves[e->save_sets].saves));
    TRY(mem_new(r->grad_peak[e->holding], sizeof *e->keep, "keep sets", &e->keep));
    for (; x->splits && e->keeps < r->grad_peak[e->holding]; e->keeps++)
        TRY(stage_keep_open(parts, &e->keep[e->keeps].keep));
    return x->splits ? ERR_OK : stage_keep_open(parts, &e->shared);
}

static enum err open_holdings(struct exec *x)
{
    const struct sched *s = x->a.sched;
    int pp = x->coord[AXIS_PP], holdings = s->replicas * s->stages, ring = x->a.report->ring;
    TRY(mem_new(sched_held_count(s, pp), sizeof *x->stage, "the stages", &x->stage));
    TRY(mem_new(holdings, sizeof *x->here, "the stages", &x->here));
    TRY(mem_new(ring, sizeof *x->ring, "the ring of gradients", &x->ring));
    TRY(mem_new(ring, sizeof *x->ring_sent, "the ring of gradients", &x->ring_sent));
    for (int h = 0; h < holdings; h++)
        x->here[h] = -1;
    for (int id = 0; id < s->stages; id++) {
        int h = sched_held(s, id, pp);
        if (h < 0)
            continue;
        struct exec_stage *e = &x->stage[x->stages_here];
        x->here[h] = x->stages_here++;
        e->id = id;
        e->holding = h;
        e->segments = &x->a.segments[id];
        TRY(open_slots(x, e));
    }
    return ERR_OK;
}

/* Where the i-th of a buffer belongs. */
static void *place_of(struct exec *x, const struct buffer *b, int i)
{
    struct exec_stage *e = b->holding >= 0 ? &x->stage[x->here[b->holding]] : NULL;
    switch (b->what) {
    case BUFFER_W: return &e->memory.w;
    case BUFFER_MASTER: return &e->memory.master;
    case BUFFER_GRAD: return &e->memory.grad;
    case BUFFER_M: return &e->memory.m;
    case BUFFER_V: return &e->memory.v;
    case BUFFER_SLOT: return &e->slot[i].slot.save[b->layer][b->id];
    case BUFFER_OUT: return &e->slot[i].slot.out;
    case BUFFER_SAVE: return &e->saves[i].saves.save[b->layer][b->id];
    case BUFFER_KEEP: return &e->keep[i].keep.keep[b->layer][b->id];
    case BUFFER_WORK: return &x->scratch.at[b->id];
    case BUFFER_WORK_KEEP: return &x->scratch.keep[b->id];
    case BUFFER_GRAD_SEND: return &x->ring[x->rings++];
    case BUFFER_INPUT: return &x->input;
    case BUFFER_TARGETS: return &x->targets;
    case BUFFER_LOSS: return &x->loss;
    case BUFFER_SCALARS: return &x->scalars;
    case BUFFER_ROPE: return &x->rope;
    }
    return NULL;
}

static enum err take(void *arg, const struct buffer *b)
{
    struct exec *x = arg;
    struct arena *from[MEMORY_KINDS] = {
        [MEMORY_WEIGHTS] = &x->weights, [MEMORY_MASTER] = &x->master, [MEMORY_GRADS] = &x->grads,
        [MEMORY_OPTIM] = &x->moments,
        [MEMORY_ACTIVATIONS] = &x->activations, [MEMORY_WORK] = &x->work, [MEMORY_COMM] = &x->comm,
        [MEMORY_DATA] = &x->data};
    for (int i = 0; i < b->count; i++)
        TRY(arena_take(from[b->kind], b->bytes, b->name, place_of(x, b, i)));
    return ERR_OK;
}

static struct buffers_args buffers_of(const struct exec *x)
{
    const struct exec_args *a = &x->a;
    return (struct buffers_args){.model = a->model, .split = a->split, .sched = a->sched,
                                 .report = a->report, .cut = a->cut, .samples = a->samples,
                                 .share = a->share, .types = a->dev->types, .shares = a->shares,
                                 .training = a->training, .splits = x->splits,
                                 .redo = a->redo ? a->segments : NULL};
}

/* Layers at the same place of segments that are recomputed each by itself share buffers. */
static enum err borrow(const struct exec *x, struct exec_stage *e)
{
    const struct model_stage *st = &x->a.cut[e->id];
    int *of;
    TRY(mem_new(model_stage_parts(st), sizeof *of, "the layers of segments", &of));
    enum err err = segments_lenders(e->segments, x->a.model, st, of);
    for (int i = 0; i < model_stage_parts(st) && err == ERR_OK; i++)
        for (int k = 0; k < e->save_sets && of[i] != i; k++)
            memcpy(e->saves[k].saves.save[i], e->saves[k].saves.save[of[i]],
                   sizeof *e->saves[k].saves.save);
    mem_free(of);
    return err;
}

static enum err open_stage(struct exec *x, struct exec_stage *e)
{
    const struct exec_args *a = &x->a;
    struct stage_args s = {.model = a->model, .split = a->split, .span = a->cut[e->id],
                           .samples = a->samples, .dev = a->dev, .work = &x->scratch,
                           .rope = x->rope, .loss = x->loss, .seed = a->seed, .memory = e->memory,
                           .copy = e->holding >= a->sched->stages,
                           .share = x->coord[AXIS_DP], .shares = a->shares};
    if (x->a.redo) {
        TRY(borrow(x, e));
        s.redo = e->segments->first;
        s.redos = e->segments->n;
    }
    if (s.span.embed_beside) /* stages are opened in order: the first is there */
        s.tokens = param_find(&x->stage[0].stage.params, 0, ROLE_TOKENS);
    s.tp = (struct tp){a->dev, x->tp, x->kv, a->split.tp, x->coord[AXIS_TP], a->split.sp,
                       a->split.tp > 1 ? a->tp_rows : 0,
                       a->tp_chunked || (x->tp && comm_group_copies(x->tp))};
    TRY(stage_open(&e->stage, &s));
    for (int i = 0; i < e->slots; i++) {
        e->slot[i].in = e->slot[i].slot.save[0][SAVE_X];
        e->slot[i].out = e->slot[i].slot.out;
    }
    if (!x->splits)
        stage_keep_share(&e->stage, &e->shared);
    return dp_open(&e->dp, &(struct dp_args){
        .group = x->dp, .tp = &e->stage.tp, .store = &e->stage.params,
        .first = e->segments->sum, .sums = e->segments->sums, .parts = e->stage.parts,
        .flight = &x->flight});
}

/* All buffers, and what stands over them. */
static enum err open_stages(struct exec *x)
{
    struct buffers_args b = buffers_of(x);
    int64_t floats = model_floats(x->a.model);
    TRY(open_holdings(x));
    TRY(buffers_each(&b, x->coord[AXIS_PP], take, x));
    x->step = (uint32_t *)(x->loss + 1);
    x->input_bytes = model_input_bytes(x->a.model, &x->a.dev->types);
    if (floats && x->a.dev->at == DT_F64)
        TRY(mem_new(x->a.share * x->a.model->seq * floats, sizeof *x->wide, "a batch of rows",
                    &x->wide));
    if (x->rope)
        TRY(fill_rope(x));
    for (int i = 0; i < x->stages_here; i++)
        TRY(open_stage(x, &x->stage[i]));
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

static enum err open_all(struct exec *x)
{
    const struct exec_args *a = &x->a;
    TRY(open_arenas(x, groups_scratch(a->groups)));
    TRY(exec_groups_open(x)); /* one of them is told where gradients lie */
    TRY(open_stages(x));
    mark_again(x);
    TRY(exec_optim_open(x));
    exec_poison_scratch(x);
    return exec_trace_open(x);
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
    x->splits = sched_has(a->sched, SCHED_I);
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
    struct arena *own[] = {&x->weights, &x->master, &x->grads, &x->moments, &x->data,
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
    mem_free(x->store);
    mem_free(x);
}
