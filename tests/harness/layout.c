/* SPDX-License-Identifier: Apache-2.0
 *
 * The step is put together from the same parts as src/setup and src/train, so that a test can look
 * inside. Ranks are threads and write their boxes of each parameter into shared global arrays;
 * copies that do not count are compared with what the counting rank wrote.
 */
#include "layout.h"

#include "base/mem.h"
#include "exec/exec.h"
#include "mesh/mesh.h"
#include "optim/optim.h"
#include "config/options.h"
#include "sched/sched.h"
#include "plan/buffers.h"
#include "plan/segments.h"
#include "param/param_state.h"
#include "store.h"

#include <pthread.h>
#include <stdlib.h>

struct job {
    const struct layout *l;
    struct layout_result *r;
    struct mesh mesh;
    struct sched sched;
    struct sched_report report;
    struct model_stage *cut;
    struct segments *segments;
    struct env env;
    pthread_mutex_t lock;
};

/* ---- data: a formula of global sample and position ---- */

static int32_t token_at(const struct layout *l, int64_t sample, int64_t t)
{
    return (int32_t)((uint64_t)(sample * 7919 + t * 104729 + sample * t * 31) %
                     (uint64_t)l->model.vocab);
}

/* Targets left out unevenly: sample s keeps the first (s * 5 + 3) % (T + 1) of its positions. */
static int32_t target_at(const struct layout *l, int64_t sample, int64_t t)
{
    if (!l->whole_tokens && t >= (sample * 5 + 3) % (l->model.seq + 1))
        return -1;
    return token_at(l, sample, t + 1);
}

float layout_row(int64_t sample, int64_t i)
{
    return (float)sin((double)sample * 1.7 + (double)i * (double)(sample + 3) * 0.3);
}

/* One in five does not count. */
int32_t layout_class(const struct layout *l, int64_t sample)
{
    return sample % 5 == 2 ? -1 : (int32_t)((sample * 7 + 3) % l->model.vocab);
}

static int64_t fill_batch(const struct layout *l, int64_t first, int64_t n, void *input,
                          int32_t *targets)
{
    int64_t count = 0, floats = model_floats(&l->model);
    int32_t *tokens = input;
    float *row = input;
    for (int64_t s = 0; s < n && floats; s++) {
        for (int64_t i = 0; i < floats; i++)
            row[s * floats + i] = layout_row(first + s, i);
        targets[s] = layout_class(l, first + s);
        count += targets[s] >= 0;
    }
    for (int64_t s = 0; s < n && !floats; s++)
        for (int64_t t = 0; t < l->model.seq; t++) {
            int64_t i = s * l->model.seq + t, g = (first + s) * l->model.seq + t;
            tokens[i] = l->tokens ? l->tokens[g] : token_at(l, first + s, t);
            targets[i] = l->targets ? l->targets[g] : target_at(l, first + s, t);
            count += targets[i] >= 0;
        }
    return count;
}

/* ---- results ---- */

static struct layout_param *find(struct layout_result *r, const char *name)
{
    for (int i = 0; i < r->params; i++)
        if (strcmp(r->param[i].spec.name, name) == 0)
            return &r->param[i];
    return NULL;
}

static enum err list_params(const struct model *a, struct layout_result *r)
{
    struct model_param *spec;
    int n;
    TRY(model_param_list(a, &spec, &n));
    enum err err = mem_new(n, sizeof *r->param, "results", &r->param);
    for (; r->params < n && err == ERR_OK; r->params++) {
        struct layout_param *p = &r->param[r->params];
        p->spec = spec[r->params];
        p->count = p->spec.shape[0] * p->spec.shape[1];
        err = mem_new(p->count, sizeof(double), "results", &p->grad);
        if (err == ERR_OK)
            err = mem_new(p->count, sizeof(double), "results", &p->weight);
    }
    mem_free(spec);
    return err;
}

void layout_result_free(struct layout_result *r)
{
    for (int i = 0; i < r->params; i++) {
        mem_free(r->param[i].grad);
        mem_free(r->param[i].weight);
    }
    mem_free(r->param);
    *r = (struct layout_result){0};
}

/* Write (or compare) the real part of a local box in a global array; returns differing values. */
static int place_box(const struct param *p, const double *local, double *global, bool write)
{
    int differ = 0;
    for (int64_t i = 0; i < p->box.real[0]; i++)
        for (int64_t j = 0; j < p->box.real[1]; j++) {
            double v = local[i * p->box.local[1] + j];
            double *g = &global[(p->box.at[0] + i) * p->spec.shape[1] + p->box.at[1] + j];
            if (write)
                *g = v;
            else
                differ += memcmp(g, &v, sizeof v) != 0;
        }
    return differ;
}

/* A parameter's gradient or weights into the global array, or compared with it. */
static enum err give_values(struct job *job, const struct param *p, bool gradient, bool write)
{
    double *local, *global;
    struct layout_param *g = find(job->r, p->spec.name);
    ENSURE(g);
    global = gradient ? g->grad : g->weight;
    TRY(mem_new(p->count, sizeof *local, "results", &local));
    enum err err = gradient ? store_read_grad(p, local) : param_read(p, DT_F64, local);
    pthread_mutex_lock(&job->lock);
    if (err == ERR_OK)
        job->r->replicas_differ += place_box(p, local, global, write);
    pthread_mutex_unlock(&job->lock);
    mem_free(local);
    return err;
}

/* What counts of the first data rank's; then what all others have is compared with it. */
static enum err give_params(struct job *job, struct exec *x, bool gradients, bool counts_tokens)
{
    for (int copies = 0; copies < 2; copies++) {
        for (int i = 0; i < x->stages_here; i++) {
            const struct param_store *s = &x->stage[i].stage.params;
            for (int j = 0; j < s->n; j++)
                if ((s->param[j].counted && counts_tokens) == !copies)
                    TRY(give_values(job, &s->param[j], gradients, !copies));
        }
        if (x->group[GROUP_WORLD])
            TRY(comm_barrier(x->group[GROUP_WORLD]));
    }
    return ERR_OK;
}

/* ---- a rank ---- */

struct rank {
    struct job *job;
    struct comm_world *world;
    struct exec *x;
    struct group groups[GROUP_KINDS];
    struct step_traffic traffic;
    struct dev *dev;
    struct optim_result result;
    int64_t step, count; /* targets of this data rank */
    int64_t replayed;
    bool counts_tokens; /* for tokens: last stage of the first replica, first tensor rank */
    bool first;  /* of the world */
    int dp_rank;
};

static double or(double x, double otherwise)
{
    return x > 0 ? x : otherwise;
}

static struct optim_step read_step(const struct rank *k)
{
    unsigned rank = (unsigned)comm_rank(k->world);
    return (struct optim_step){.step = k->step, .stop = k->job->l->stop >> rank & 1,
                               .saved = k->job->l->saved >> rank & 1,
                               .lr = k->job->l->rate ? k->job->l->rate(k->step) : 1e-3,
                               .tokens = k->counts_tokens ? k->count : 0};
}

static void on_step(void *arg, struct optim_step *out)
{
    *out = read_step(arg);
}

/* The result of a step, on each rank. */
static void note(struct rank *k)
{
    const struct layout *l = k->job->l;
    int said[2] = {0, 0};
    for (int i = 0; i < comm_size(k->world); i++) {
        said[0] += l->stop >> i & 1;
        said[1] += l->saved >> i & 1;
    }
    pthread_mutex_lock(&k->job->lock);
    k->job->r->misheard += k->result.stop != said[0] || k->result.saved != said[1];
    pthread_mutex_unlock(&k->job->lock);
}

/* Behind a step whose optimizer ran with it. */
static enum err judge(struct rank *k)
{
    double landed[SUMS_COUNT];
    struct optim_step s = read_step(k);
    TRY(optim_land(&k->x->optim, landed));
    TRY(k->dev->ops->sync(k->dev));
    TRY(optim_judge(&s, landed, &k->result));
    note(k);
    return ERR_OK;
}

static void put_number(char *to, int64_t i, int64_t bytes, double v)
{
    float single = (float)v;
    memcpy(to + i * bytes, bytes == 8 ? (void *)&v : (void *)&single, (size_t)bytes);
}

static enum err open_weights(const struct layout *l, struct exec *x)
{
    TRY(exec_init(x, 1234, 2));
    for (int i = 0; l->weights && i < x->stages_here; i++) {
        struct param_store *s = &x->stage[i].stage.params;
        for (int j = 0; j < s->n; j++) {
            struct param *p = &s->param[j];
            double *global;
            char *local;
            int64_t at = p->store->at, n = p->box.real[0] * p->box.local[1];
            TRY(mem_new(p->spec.shape[0] * p->spec.shape[1], sizeof *global, "weights", &global));
            TRY(mem_new(n, (size_t)at, "weights", &local));
            l->weights(&p->spec, global);
            for (int64_t r = 0; r < p->box.real[0]; r++)
                for (int64_t c = 0; c < p->box.real[1]; c++)
                    put_number(local, r * p->box.local[1] + c, at,
                               global[(p->box.at[0] + r) * p->spec.shape[1] + p->box.at[1] + c]);
            TRY(param_state_write(p, PARAM_WEIGHT, 0, local, n));
            mem_free(global);
            mem_free(local);
        }
    }
    return ERR_OK;
}

/* Gradients of NaN: what they held before a step must leave no trace. Not between parameters,
 * where zeros are kept. */
static enum err poison(struct exec *x)
{
    for (int i = 0; i < x->stages_here; i++) {
        const struct param_store *s = &x->stage[i].stage.params;
        for (int j = 0; j < s->n; j++) {
            char *host;
            int64_t bytes = s->param[j].count * s->at;
            TRY(mem_new(bytes, 1, "NaNs", &host));
            memset(host, 0xff, (size_t)bytes);
            enum err err = dev_h2d(s->dev, param_grad(&s->param[j]), host, bytes);
            mem_free(host);
            TRY(err);
        }
    }
    return ERR_OK;
}

static enum err run_step(struct rank *k, const struct exec_batch *b, const struct exec_hooks *hooks)
{
    const struct layout *l = k->job->l;
    bool done;
    if (l->recorded == k->step && k->dev->ops->graph_begin) {
        exec_zero_grads(k->x);
        TRY(exec_record(k->x, b, hooks, &done));
    }
    if (k->x->graph) {
        k->replayed++;
        return exec_replay(k->x, b, hooks, 10);
    }
    exec_zero_grads(k->x);
    TRY(exec_run(k->x, &k->job->sched, b, hooks));
    return exec_count_check(k->x);
}

/* Gradients hold NaN before it, and words of another batch are read. */
static enum err rehearse(struct rank *k, int64_t share, void *input, int32_t *targets)
{
    const struct layout *l = k->job->l;
    struct exec_batch b = {.input = input, .targets = targets, .samples = share, .t = l->model.seq,
                           .step = 99};
    (void)fill_batch(l, 3 * l->batch, share, input, targets);
    TRY(poison(k->x));
    TRY(exec_rehearse(k->x, &b));
    return exec_rehearse_forward(k->x, &b);
}

static enum err train(struct rank *k)
{
    const struct layout *l = k->job->l;
    int64_t share = l->batch / l->dp;
    int32_t *targets;
    char *input;
    struct exec_hooks hooks = {.step = on_step, .arg = k};
    TRY(mem_new(share * l->model.seq * num_max(1, model_floats(&l->model)), 4, "input", &input));
    TRY(mem_new(share * l->model.seq, sizeof *targets, "targets", &targets));
    enum err err = l->rehearsed ? rehearse(k, share, input, targets) : ERR_OK;
    for (k->step = l->done + 1; k->step <= l->steps && err == ERR_OK; k->step++) {
        int64_t first = (k->step - 1) * l->batch + k->dp_rank * share;
        k->count = fill_batch(l, first, share, input, targets);
        struct exec_batch b = {.input = input, .targets = targets, .samples = share,
                               .t = l->model.seq, .row0 = k->dp_rank * share * l->model.seq,
                               .step = (uint32_t)k->step};
        err = poison(k->x);
        if (l->stepping)
            l->stepping(k->dev, comm_rank(k->world), k->step);
        if (err == ERR_OK)
            err = run_step(k, &b, &hooks);
        comm_warmup_end(k->world);  /* no step behind the first meets kernels that are new */
        if (err == ERR_OK)
            err = judge(k);
        if (err == ERR_OK && l->ran)
            err = l->ran(k->x, comm_rank(k->world));
    }
    mem_free(input);
    mem_free(targets);
    return err;
}

static enum err give_results(struct rank *k, const struct memory *plan)
{
    struct job *job = k->job;
    pthread_mutex_lock(&job->lock);
    job->r->planned += memory_total(plan);
    job->r->taken += exec_bytes(k->x);
    pthread_mutex_unlock(&job->lock);
    TRY(exec_grads_gather(k->x));
    TRY(give_params(job, k->x, true, k->dp_rank == 0));
    TRY(exec_weights_gather(k->x));
    TRY(give_params(job, k->x, false, k->dp_rank == 0));
    if (k->first) {
        job->r->loss = k->result.loss;
        job->r->norm = k->result.grad_norm;
        job->r->tokens = k->result.tokens;
        job->r->replayed = k->replayed;
    }
    return ERR_OK;
}

/* Do the ranks' GPUs copy? */
static bool gpus_copy(const struct job *job)
{
    enum { MOST = 64 };
    int gpu[MOST], n = job->l->shares_gpu ? 1 : job->mesh.world;
    ENSURE(n <= MOST);
    for (int i = 0; i < n; i++)
        gpu[i] = i;
    return job->l->dev == DEV_CUDA && !job->env.no_copies && comm_gpus_reach(gpu, n);
}

/* As setup/setup.c does. */
static enum err plan_comm(struct rank *k, const struct exec_args *a, int pp)
{
    struct traffic_args t = {
        .of = {a->of.model, a->of.split, a->mesh, a->of.sched, a->of.cut, a->dev->types,
               a->of.samples, a->of.num_shards, a->tp_rows > 0},
        .group = k->groups, .step_samples = a->of.step_samples, .rows = a->tp_rows,
        .chunked = a->tp_chunked || gpus_copy(k->job), .segments = a->segments};
    groups_make(&t.of, pp, k->groups);
    for (int i = 0; i < GROUP_KINDS; i++)
        k->groups[i].scratch = comm_scratch_bytes(comm_kind(a->world), k->groups[i].members,
                                                  k->groups[i].max_bytes);
    TRY(traffic_plan(&t, pp, &k->traffic));
    if (k->job->l->planned)
        k->job->l->planned(&k->traffic, comm_rank(a->world));
    return ERR_OK;
}

static enum err run_rank(struct rank *k, struct comm_world *w, struct dev *dev)
{
    struct job *job = k->job;
    const struct layout *l = job->l;
    int coord[AXIS_COUNT];
    mesh_coord(&job->mesh, comm_rank(w), coord);
    struct exec_args a = {
        .of = {.model = &l->model, .split = {l->tp, l->sp}, .sched = &job->sched,
               .report = &job->report, .cut = job->cut, .samples = l->microbatch,
               .step_samples = l->batch / l->dp, .types = dev->types,
               .num_shards = l->zero ? l->dp : 1,
               .training = true, .splits = sched_has(&job->sched, SCHED_I),
               .recompute = l->every != 0 ? job->segments : NULL},
        .mesh = &job->mesh, .segments = job->segments, .dev = dev, .world = w, .seed = 77,
        .trace = l->trace, .guards = true,
        .optim = {or(l->beta1, 0.9), or(l->beta2, 0.95), or(l->eps, 1e-8), or(l->decay, 0.1),
                  l->clip},
        .tp_rows = l->tp_rows, .tp_chunked = l->tp_chunked, .groups = k->groups,
        .traffic = &k->traffic};
    struct memory_args ma = {.buffers = a.of, .copiers = l->dp};
    struct memory plan;
    TRY(plan_comm(k, &a, coord[AXIS_PP]));
    ma.scratch = groups_scratch(k->groups);
    TRY(memory_plan(&ma, coord[AXIS_PP], &plan));
    a.plan = plan.bytes;
    if (comm_rank(w) < LAYOUT_COPIES)
        job->r->copy[comm_rank(w)] = plan.copy;
    k->dev = dev;
    k->dp_rank = coord[AXIS_DP];
    k->first = comm_rank(w) == 0;
    k->counts_tokens =
        coord[AXIS_PP] == job->sched.place[job->sched.stages - 1] && coord[AXIS_TP] == 0;
    TRY(exec_open(&a, &k->x));
    TRY(open_weights(l, k->x));
    if (l->filled)
        TRY(l->filled(k->x, comm_rank(w)));
    TRY(exec_weights_keep(k->x));
    TRY(train(k));
    return give_results(k, &plan);
}

static enum err rank_body(void *arg, struct comm_world *w)
{
    struct job *job = arg;
    struct rank k = {.job = job, .world = w};
    struct dev *dev;
    int index = job->l->shares_gpu ? 0 : comm_rank(w);
    TRY(dev_open(&(struct dev_args){.kind = job->l->dev, .ct = job->l->ct, .index = index,
                                  .cache = "choices", .deterministic = job->l->deterministic,
                                  .threads = job->l->threads ? job->l->threads : 1}, &dev));
    if (job->l->opened)
        job->l->opened(dev, comm_rank(w));
    enum err err = comm_attach(w, dev, !job->env.no_copies);
    if (err == ERR_OK)
        err = run_rank(&k, w, dev);
    if (err != ERR_OK)
        comm_abort(w, err); /* peers may still read what is freed below */
    exec_close(k.x);
    enum err last = comm_detach(w);
    dev_close(dev);
    return err == ERR_OK ? last : err;
}

static enum err rewrite(const struct layout *l, struct job *job)
{
    struct sched_report report = {0};
    TRY(l->program(&job->sched));
    enum err err = sched_check(&job->sched, &report);
    job->report.hash = report.hash;
    sched_report_free(&report);
    return err;
}

static enum err make_sched(const struct layout *l, struct job *job)
{
    struct sched compute;
    int64_t share = l->batch / l->dp, m = num_ceil_div(share, l->microbatch);
    struct sched_shape shape = {l->pp, (int)m, l->v ? l->v : 1, l->group};
    if (l->text)
        TRY(sched_parse("test", l->text, (int64_t)strlen(l->text), &compute));
    else
        TRY(sched_make(l->schedule, &shape, NULL, &compute));
    if (l->canonical) {
        struct sched made = compute;
        enum err err = sched_canonical(&made, l->model.tied, &compute);
        sched_free(&made);
        TRY(err);
    }
    if (l->recompute || l->every != 0) {
        struct sched made = compute;
        enum err err = sched_recompute(&made, &compute);
        sched_free(&made);
        TRY(err);
    }
    struct model_split split = {l->tp, l->sp};
    struct sched_lower_args la = {.reduce = segments_summed(&l->model, &split, l->dp),
                                  .step = true, .tied = l->model.tied,
                                  .shared = l->zero && l->dp > 1};
    enum err err = sched_lower(&compute, &la, &job->sched);
    sched_free(&compute);
    TRY(err);
    TRY(sched_check(&job->sched, &job->report));
    TRY(mem_new(job->sched.stages, sizeof *job->cut, "the cut", &job->cut));
    if (!l->first)
        TRY(model_cut(&l->model, job->sched.stages, NULL, job->cut));
    for (int i = 0; l->first && i < job->sched.stages; i++)
        job->cut[i] = (struct model_stage){
            i ? l->first[i - 1] : 0,
            i + 1 < job->sched.stages ? l->first[i] : model_layers(&l->model), false};
    for (int i = 1; l->halves && i < job->sched.stages; i++)
        job->cut[i - 1].end = --job->cut[i].first; /* the mlp goes to the stage behind */
    buffers_place(&job->sched, job->cut);
    struct segments_args sa = {.model = &l->model, .split = split,
                               .element = l->ct == DT_F64 ? 8 : 4,
                               .num_shards = l->zero ? l->dp : 1,
                               .bytes = l->sum_bytes, .every = l->every};
    TRY(segments_make(&sa, job->cut, job->sched.stages, &job->segments));
    if (l->dp > 1 || l->every != 0)
        TRY(segments_cut(job->segments, l->every != 0, l->zero && l->dp > 1, &job->sched,
                         &job->report));
    return l->program ? rewrite(l, job) : ERR_OK;
}

enum err layout_run(const struct layout *l, struct layout_result *out)
{
    int size[AXIS_COUNT] = {l->tp, 1, 1, l->dp, l->pp};
    struct job job = {.l = l, .r = out};
    env_read(&job.env);
    *out = (struct layout_result){0};
    comm_environment();
    TRY(model_check(&l->model));
    TRY(model_check_split(&l->model, &(struct model_split){l->tp, l->sp}));
    TRY(mesh_make(size, &job.mesh));
    TRY(list_params(&l->model, out));
    enum err err = make_sched(l, &job);
    if (err == ERR_OK) {
        pthread_mutex_init(&job.lock, NULL);
        double timeout_s = l->timeout_s > 0 ? l->timeout_s : 60;
        err = comm_thread_run(job.mesh.world, timeout_s, rank_body, &job);
        pthread_mutex_destroy(&job.lock);
    }
    segments_free(job.segments, job.sched.stages);
    sched_free(&job.sched);
    sched_report_free(&job.report);
    mem_free(job.cut);
    return err;
}
