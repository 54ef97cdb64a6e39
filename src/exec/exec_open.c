/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the executor: arenas, the groups and channels that the plan lists (plan/groups.h), in its
 * order, and all buffers of the plan's list (plan/buffers.h), from the arena of their kind to where
 * they belong; then the stages over them. And what others ask an executor about itself.
 */
#include "exec/exec_local.h"

/* ---- memory ---- */

static enum err open_arena(struct exec *x, enum memory_kind k, void *p, int64_t bytes)
{
    static const char *const name[MEMORY_KINDS] = {
        [MEMORY_WEIGHTS] = "weights", [MEMORY_MASTER] = "master weights",
        [MEMORY_GRADS] = "gradients", [MEMORY_OPTIM] = "optimizer state",
        [MEMORY_ACTIVATIONS] = "activations", [MEMORY_WORK] = "scratch",
        [MEMORY_COMM] = "communication", [MEMORY_DATA] = "data and tables"};
    int64_t block = x->guards ? arena_guarded_bytes(bytes) : bytes;
    if (!p && bytes > 0) {
        TRY(x->a.dev->ops->alloc(x->a.dev, block, name[k], &p));
        x->taken[k] = p;
    }
    arena_over(&x->arena[k], p, bytes, name[k]);
    return x->guards && x->taken[k] ? arena_guard(&x->arena[k]) : ERR_OK;
}

/* Arenas of n kinds behind one another where GPUs of the other ranks may read them, if the
 * transport has such a place; else, and with name NULL, each by itself. */
static enum err open_window(struct exec *x, const enum memory_kind *kind, int n, const char *name,
                            struct exec_window *out)
{
    const int64_t *plan = x->a.plan;
    int64_t bytes[MEMORY_KINDS];
    for (int i = 0; i < n; i++) {
        bytes[i] = plan[kind[i]] - (kind[i] == MEMORY_COMM ? groups_scratch(x->a.groups) : 0);
        out->bytes += bytes[i];
    }
    if (name)
        TRY(comm_window_take(x->a.world, out->bytes, name, &out->base));
    char *p = out->base;
    for (int i = 0; i < n; i++) {
        TRY(open_arena(x, kind[i], p, bytes[i]));
        p = p ? p + bytes[i] : NULL;
    }
    return ERR_OK;
}

/* In a window lie gradients, and where data ranks shard the optimizer the weights behind them; in
 * another what tensor and pipeline ranks tell each other: activations, scratch, gradients on their
 * way. The three have the same layout on all tensor ranks, since plan and shapes depend on the
 * pipeline coordinate alone. */
static enum err open_arenas(struct exec *x)
{
    static const enum memory_kind data[] = {MEMORY_GRADS, MEMORY_WEIGHTS};
    static const enum memory_kind stream[] = {MEMORY_ACTIVATIONS, MEMORY_WORK, MEMORY_COMM};
    const int64_t *plan = x->a.plan;
    bool shared = x->a.of.num_shards > 1;
    TRY(open_arena(x, MEMORY_MASTER, NULL, plan[MEMORY_MASTER]));
    const char *both = shared ? "gradients and weights" : "gradients";
    TRY(open_window(x, data, shared ? 2 : 1, x->mesh.size[AXIS_DP] > 1 ? both : NULL,
                    &x->data_window));
    if (!shared)
        TRY(open_arena(x, MEMORY_WEIGHTS, NULL, plan[MEMORY_WEIGHTS]));
    TRY(open_arena(x, MEMORY_OPTIM, NULL, plan[MEMORY_OPTIM]));
    bool talks = x->a.of.split.tp > 1 || x->mesh.size[AXIS_PP] > 1;
    TRY(open_window(x, stream, 3, talks ? "activations, scratch and communication" : NULL,
                    &x->stream_window));
    return open_arena(x, MEMORY_DATA, NULL, plan[MEMORY_DATA]);
}

/* ---- groups and channels ---- */

/* The channels that this rank's list names. */
static enum err open_channels(struct exec *x)
{
    const struct sched *s = x->a.of.sched;
    int pp = x->coord[AXIS_PP], n = groups_channels(s, pp, NULL), me = comm_rank(x->a.world);
    struct group_channel *of;
    struct comm_channel *c = NULL;
    TRY(mem_new(n, sizeof *of, "channels", &of));
    enum err err = mem_new(n, sizeof *c, "channels", &c);
    groups_channels(s, pp, of);
    for (int i = 0; i < n && err == ERR_OK; i++) {
        int peer = exec_world_rank(x, of[i].peer);
        c[i] = (struct comm_channel){of[i].sends ? me : peer, of[i].sends ? peer : me, of[i].lane};
    }
    if (err == ERR_OK)
        err = comm_channels_open(x->a.world, c, n);
    mem_free(of);
    mem_free(c);
    return err;
}

/* A group's id is its kind and its first member, so that the sets of one kind do not meet. */
static enum err open_groups(struct exec *x)
{
    int *ranks, n;
    enum err err = ERR_OK;
    TRY(mem_new(x->mesh.world, sizeof *ranks, "a group's ranks", &ranks));
    for (int k = 0; k < GROUP_KINDS && err == ERR_OK; k++) {
        const struct group *g = &x->a.groups[k];
        if ((n = groups_ranks(&x->mesh, g, comm_rank(x->a.world), ranks)) < 2)
            continue;
        /* Members have the same layout: in a window all lies at the same places. */
        const struct exec_window *w = k == GROUP_DP ? &x->data_window : &x->stream_window;
        struct comm_group_args a = {.id = k * x->mesh.world + ranks[0], .ranks = ranks, .n = n,
                                    .max_bytes = g->max_bytes, .overlapped = g->overlapped,
                                    .also_nccl = g->also_nccl,
                                    .mem = g->host ? COMM_HOST : COMM_DEVICE,
                                    .window = g->window ? w->base : NULL,
                                    .window_bytes = g->window ? w->bytes : 0};
        err = comm_group_open(x->a.world, &a, &x->group[k]);
    }
    mem_free(ranks);
    return err == ERR_OK ? open_channels(x) : err;
}

/* ---- stages ---- */

/* cos and sin of pos * theta^(-2i/D), i < D/2, for each position: (T, D) in the wide type. */
static enum err fill_rope(struct exec *x)
{
    const struct model *a = x->a.of.model;
    enum dtype dt = x->a.dev->at;
    int64_t half = a->head_dim / 2, n = a->seq * a->head_dim;
    char *host;
    TRY(mem_new(n, (size_t)dtype_size(dt), "the rotary table", &host));
    for (int64_t k = 0; k < n; k++) {
        int64_t t = k / a->head_dim, i = k % a->head_dim;
        double inv = pow(a->rope_theta, -2.0 * (double)(i % half) / (double)a->head_dim);
        double angle = (double)t * inv;
        dtype_put(host, dt, k, i < half ? cos(angle) : sin(angle));
    }
    enum err err = dev_h2d(x->a.dev, x->rope, host, n * dtype_size(dt));
    mem_free(host);
    return err;
}

/* Room for the pointers of all that a stage has; take() sets them. */
static enum err open_slots(struct exec *x, struct exec_stage *e)
{
    const struct sched_report *r = x->a.of.report;
    int m = x->a.of.sched->m, parts = model_stage_parts(&x->a.of.cut[e->id]);
    e->slots = r->stage_peak[e->stage_replica];
    e->save_sets = r->save_peak[e->stage_replica];
    e->keeps = x->a.of.splits ? r->grad_peak[e->stage_replica] : 1;
    TRY(mem_new(e->slots, sizeof *e->slot, "slots", &e->slot));
    TRY(mem_new(e->save_sets, sizeof *e->saves, "save sets", &e->saves));
    TRY(mem_new(e->keeps, sizeof *e->keep, "keep sets", &e->keep));
    TRY(mem_new(m, sizeof *e->mb, "slots", &e->mb));
    TRY(mem_new((int64_t)parts * ((e->slots + e->save_sets) * SAVE_COUNT + e->keeps * KEEP_COUNT),
                sizeof *e->pointer, "slots", &e->pointer));
    void *(*saves)[SAVE_COUNT] = (void *)e->pointer;
    void *(*keeps)[KEEP_COUNT] = (void *)(saves + (e->slots + e->save_sets) * parts);
    for (int i = 0; i < m; i++)
        e->mb[i] = (struct exec_mb){EXEC_NO_SLOT, EXEC_NO_SLOT, false};
    for (int i = 0; i < e->slots; i++, saves += parts) {
        e->slot[i].set = EXEC_NO_SLOT;
        e->slot[i].slot.save = saves;
    }
    for (int i = 0; i < e->save_sets; i++, saves += parts)
        e->saves[i].save = saves;
    for (int i = 0; i < e->keeps; i++, keeps += parts)
        e->keep[i].keep = (struct stage_keep){keeps, x->a.of.splits};
    return ERR_OK;
}

static enum err open_stage_replicas(struct exec *x)
{
    const struct sched *s = x->a.of.sched;
    int pp = x->coord[AXIS_PP], stage_replicas = s->replicas * s->stages;
    int ring = x->a.of.report->ring;
    TRY(mem_new(sched_stage_replicas_on(s, pp), sizeof *x->stage, "the stages", &x->stage));
    TRY(mem_new(stage_replicas, sizeof *x->here, "the stages", &x->here));
    TRY(mem_new(ring, sizeof *x->ring, "the ring of gradients", &x->ring));
    TRY(mem_new(ring, sizeof *x->ring_sent, "the ring of gradients", &x->ring_sent));
    for (int h = 0; h < stage_replicas; h++)
        x->here[h] = -1;
    for (int id = 0; id < s->stages; id++) {
        int h = sched_stage_replica_on(s, id, pp);
        if (h < 0)
            continue;
        struct exec_stage *e = &x->stage[x->stages_here];
        x->here[h] = x->stages_here++;
        e->id = id;
        e->stage_replica = h;
        e->segments = &x->a.segments[id];
        TRY(open_slots(x, e));
    }
    return ERR_OK;
}

/* Where the i-th of a buffer belongs. */
static void *place_of(struct exec *x, const struct buffer *b, int i)
{
    struct exec_stage *e = b->stage_replica >= 0 ? &x->stage[x->here[b->stage_replica]] : NULL;
    switch (b->what) {
    case BUFFER_W: return &e->memory.w;
    case BUFFER_MASTER: return &e->memory.master;
    case BUFFER_GRAD: return &e->memory.grad;
    case BUFFER_M: return &e->memory.m;
    case BUFFER_V: return &e->memory.v;
    case BUFFER_SLOT: return &e->slot[i].slot.save[b->layer][b->id];
    case BUFFER_OUT: return &e->slot[i].slot.out;
    case BUFFER_SAVE: return &e->saves[i].save[b->layer][b->id];
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
    for (int i = 0; i < b->count; i++)
        TRY(arena_take(&x->arena[b->kind], b->bytes, b->name, place_of(x, b, i)));
    return ERR_OK;
}

/* Layers at the same place of segments that are recomputed each by itself share buffers. */
static enum err borrow(const struct exec *x, struct exec_stage *e)
{
    const struct model_stage *st = &x->a.of.cut[e->id];
    int *of;
    TRY(mem_new(model_stage_parts(st), sizeof *of, "the layers of segments", &of));
    enum err err = segments_lenders(e->segments, x->a.of.model, st, of);
    for (int i = 0; i < model_stage_parts(st) && err == ERR_OK; i++)
        for (int k = 0; k < e->save_sets && of[i] != i; k++)
            memcpy(e->saves[k].save[i], e->saves[k].save[of[i]], sizeof *e->saves[k].save);
    mem_free(of);
    return err;
}

static enum err open_stage(struct exec *x, struct exec_stage *e)
{
    const struct exec_args *a = &x->a;
    const struct buffers_args *of = &a->of;
    struct comm_group *tp = x->group[GROUP_TP];
    struct stage_args s = {.memory = e->memory, .copy = e->stage_replica >= of->sched->stages,
                           .shard_rank = x->coord[AXIS_DP], .num_shards = of->num_shards};
    e->stage = (struct stage){
        .model = of->model, .split = of->split, .span = of->cut[e->id], .samples = of->samples,
        .dev = a->dev, .work = &x->scratch, .rope = x->rope, .loss = x->loss, .seed = a->seed,
        .tp = {a->dev, tp, x->group[GROUP_KV], of->split.tp, x->coord[AXIS_TP], of->split.sp,
               of->split.tp > 1 ? a->tp_rows : 0, a->tp_chunked || (tp && comm_group_copies(tp))}};
    if (of->recompute) {
        TRY(borrow(x, e));
        s.recompute = e->segments->first;
        s.num_recomputed = e->segments->n;
    }
    if (e->stage.span.embed_beside) /* stages are opened in order: the first is there */
        s.tokens = param_find(&x->stage[0].stage.params, 0, PARAM_TOKENS);
    TRY(stage_open(&e->stage, &s));
    for (int i = 0; i < e->slots; i++) {
        e->slot[i].in = e->slot[i].slot.save[0][SAVE_X];
        e->slot[i].out = e->slot[i].slot.out;
    }
    if (!of->splits)
        stage_keep_share(&e->stage, &e->keep[0].keep);
    return dp_open(&e->dp, &(struct dp_args){.group = x->group[GROUP_DP], .tp = &e->stage.tp,
                                             .store = &e->stage.params,
                                             .first = e->segments->sum, .sums = e->segments->sums,
                                             .parts = e->stage.parts, .flight = &x->flight});
}

enum err exec_open(const struct exec_args *a, struct exec **out)
{
    struct exec *x;
    const struct sched *s = a->of.sched;
    if (comm_size(a->world) != a->mesh->world)
        FAIL(ERR_CONFIG, "ranks started: %d, but the layout has %d; start as many",
             comm_size(a->world), a->mesh->world);
    ENSURE(s->checked);
    TRY(mem_new(1, sizeof *x, "the executor", &x));
    x->a = *a;
    x->mesh = *a->mesh;
    x->guards = exec_guarded(a);
    mesh_coord(&x->mesh, comm_rank(a->world), x->coord);
    int64_t floats = model_floats(a->of.model);
    int pp = x->coord[AXIS_PP];
    enum err err;
    TRY_OR(out_close, open_arenas(x));
    TRY_OR(out_close, open_groups(x)); /* one of them is told where gradients lie */
    TRY_OR(out_close, open_stage_replicas(x));
    TRY_OR(out_close, buffers_each(&a->of, pp, take, x));
    x->step = (uint32_t *)(x->loss + 1);
    x->input_bytes = model_input_bytes(a->of.model, &a->dev->types);
    if (floats && a->dev->at == DT_F64)
        TRY_OR(out_close, mem_new(a->of.step_samples * a->of.model->seq * floats, sizeof *x->wide,
                                  "a batch of rows", &x->wide));
    if (x->rope)
        TRY_OR(out_close, fill_rope(x));
    TRY_OR(out_close, mem_new(x->stages_here, sizeof *x->store, "the stores of a rank", &x->store));
    for (int i = 0; i < x->stages_here; i++) {
        TRY_OR(out_close, open_stage(x, &x->stage[i]));
        x->store[i] = &x->stage[i].stage.params;
    }
    for (int64_t i = s->begin[pp]; i < s->begin[pp + 1]; i++) {
        struct sched_instr in = s->instr[i];
        if (in.op == SCHED_R) /* what the list computes again need not be kept by its forward */
            x->stage[x->here[sched_stage_replica(s, in.stage, in.mb)]].mb[in.mb].again = true;
    }
    x->optim = (struct optim){.rule = a->optim, .dev = a->dev, .world = x->group[GROUP_SUMS],
                              .store = x->store, .stores = x->stages_here, .sums = x->scalars,
                              .step_scalars = x->scalars + SUMS_COUNT,
                              .replica = x->coord[AXIS_DP], .replicas = x->mesh.size[AXIS_DP]};
    exec_poison_scratch(x);
    TRY_OR(out_close, exec_trace_open(x));
    *out = x;
    return ERR_OK;
out_close:
    exec_close(x);
    return err;
}

void exec_close(struct exec *x)
{
    if (!x)
        return;
    exec_forget(x);
    for (int i = 0; i < x->stages_here; i++) {
        struct exec_stage *e = &x->stage[i];
        mem_free(e->pointer);
        mem_free(e->slot);
        mem_free(e->saves);
        mem_free(e->keep);
        mem_free(e->mb);
        dp_close(&e->dp);
        stage_close(&e->stage);
    }
    for (int k = 0; k < MEMORY_KINDS; k++)
        arena_unguard(&x->arena[k]);
    for (int k = 0; k < MEMORY_KINDS; k++)
        if (x->taken[k])
            x->a.dev->ops->free(x->a.dev, x->taken[k]);
    for (int k = GROUP_KINDS - 1; k >= 0; k--)
        comm_group_close(x->group[k]);
    mem_free(x->stage);
    mem_free(x->here);
    mem_free(x->ring);
    mem_free(x->ring_sent);
    mem_free(x->wide);
    exec_trace_close(x);
    mem_free(x->store);
    mem_free(x);
}

enum err exec_init(struct exec *x, uint64_t seed, int threads)
{
    for (int i = 0; i < x->stages_here; i++)
        TRY(param_init(&x->stage[i].stage.params, seed, threads));
    return ERR_OK;
}

enum err exec_weights_keep(struct exec *x)
{
    for (int i = 0; i < x->stages_here; i++)
        TRY(param_shard_master(&x->stage[i].stage.params));
    return ERR_OK;
}

enum err exec_weights_gather(struct exec *x)
{
    for (int i = 0; i < x->stages_here; i++) {
        struct param_store *s = &x->stage[i].stage.params;
        if (s->whole)
            continue;
        TRY(param_unshard_master(s));
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

void exec_zero_grads(struct exec *x)
{
    for (int i = 0; i < x->stages_here; i++)
        param_grads_reset(&x->stage[i].stage.params);
}

int64_t exec_bytes(const struct exec *x)
{
    int64_t total = groups_scratch(x->a.groups);
    for (int k = 0; k < MEMORY_KINDS; k++)
        total += x->arena[k].used;
    return total;
}
