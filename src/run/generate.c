/* SPDX-License-Identifier: Apache-2.0
 *
 * Text from trained weights, on the tensor and pipeline ranks of any layout. Every token runs the
 * forward-only list over the whole text so far (at most model.seq tokens): no key-value cache yet,
 * so a token costs a forward of its context. The draw depends on (seed, number of the token) and on
 * the logits alone: every tensor rank of the last stage gathers them and draws the same token, and
 * the first of them tells the world.
 */
#include "run/generate.h"

#include "run/check.h"
#include "run/handshake.h"
#include "run/train.h"

#include <stdlib.h>

struct generate_job {
    const struct setup *setup;
    const struct plait_generate *call;
    const char *tokenizer;
    const int32_t *prompt; /* (prompts) */
    int64_t prompts, length; /* tokens of the prompt; of the finished text */
    int threads;
};

struct generate_rank {
    const struct generate_job *job;
    const struct setup *s;
    struct comm_world *world;
    struct dev *dev;
    struct exec *x;
    int coord[AXIS_COUNT], teller; /* world rank whose draw counts */
    int32_t *text;    /* owned; (length) */
    int32_t *window;  /* owned; (seq) what the model reads now */
    int64_t row;      /* of the last token in the window */
    void *logits;     /* device; owned; (tp, V/tp) in the accumulation type */
    double *values;   /* owned; (tp * V/tp) on the host */
    void *raw;        /* owned; the same as they come from the device */
    bool head;
};

/* ---- drawing ---- */

struct candidate { double logit; int32_t id; };

/* Descending logits; equal ones by id, so that the order is one. */
static int by_logit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit < y->logit ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Token from candidates in order: softmax at the temperature over the first k, cut at a uniform. */
static int32_t draw(const struct candidate *c, int64_t k, double temperature, double u)
{
    double sum = 0, run = 0;
    for (int64_t i = 0; i < k; i++)
        sum += exp((c[i].logit - c[0].logit) / temperature);
    for (int64_t i = 0; i < k; i++) {
        run += exp((c[i].logit - c[0].logit) / temperature);
        if (run >= u * sum)
            return c[i].id;
    }
    return c[k - 1].id;
}

enum err generate_pick(const double *logits, int64_t vocab, const struct plait_generate *how,
                       int64_t number, int32_t *token)
{
    struct candidate *c;
    int64_t k = how->top_k > 0 ? num_min(how->top_k, vocab) : vocab;
    TRY(mem_new(vocab, sizeof *c, "candidates", &c));
    for (int64_t i = 0; i < vocab; i++)
        c[i] = (struct candidate){logits[i], (int32_t)i};
    qsort(c, (size_t)vocab, sizeof *c, by_logit);
    double u = num_uniform(how->seed, num_hash("generate"), number);
    *token = how->temperature > 0 ? draw(c, k, how->temperature, u) : c[0].id;
    mem_free(c);
    return ERR_OK;
}

/* ---- one token ---- */

/* After the head's forward: logits of the last row, all columns, on every tensor rank. */
static enum err on_logits(void *arg, const struct stage *s, const struct stage_mb *mb,
                          const struct stage_slot *slot)
{
    struct generate_rank *r = arg;
    int64_t cols = s->dims.v, at = dtype_size(r->dev->at), all = cols * r->s->split.tp;
    char *mine = (char *)r->logits + r->coord[AXIS_TP] * cols * at;
    TRY(head_row_logits(s, mb, slot, r->row, mine));
    if (exec_tp_group(r->x))
        TRY(comm_all_gather(exec_tp_group(r->x), r->logits, mine, cols, r->dev->at));
    TRY(r->dev->ops->copy_out(r->dev, r->raw, r->logits, all * at));
    TRY(r->dev->ops->sync(r->dev));
    for (int64_t i = 0; i < all; i++)
        r->values[i] = r->dev->at == DT_F64 ? ((double *)r->raw)[i] : (double)((float *)r->raw)[i];
    return ERR_OK;
}

/* The window: the last tokens, at most seq, padded behind to whole rows for sp (a causal model does
 * not see what stands behind). */
static int64_t fill_window(struct generate_rank *r, int64_t have)
{
    int64_t t = num_min(have, r->s->arch.seq), rows = t;
    if (r->s->split.sp)
        rows = num_ceil_div(t, r->s->split.tp) * r->s->split.tp;
    memcpy(r->window, r->text + have - t, (size_t)t * sizeof *r->window);
    for (int64_t i = t; i < rows; i++)
        r->window[i] = 0;
    r->row = t - 1;
    return rows;
}

static enum err next_token(struct generate_rank *r, int64_t have)
{
    struct exec_hooks hooks = {.logits = on_logits, .arg = r};
    struct exec_batch b = {.tokens = r->window, .samples = 1, .t = fill_window(r, have)};
    int32_t token = 0;
    TRY(exec_run(r->x, &r->s->sched, &b, &hooks));
    if (r->head) /* the last columns of an odd vocabulary are padding: vocab bounds them */
        TRY(generate_pick(r->values, r->s->arch.vocab, r->job->call, have, &token));
    if (exec_world_group(r->x))
        TRY(comm_broadcast(exec_world_group(r->x), r->teller, &token, (int64_t)sizeof token));
    r->text[have] = token;
    return ERR_OK;
}

static void tell(struct generate_rank *r, int64_t i)
{
    char bytes[64];
    int n = tokenizer_decode(r->job->tokenizer, r->text[i], bytes);
    if (comm_rank(r->world) == r->teller && r->job->call->on_text && n > 0)
        r->job->call->on_text(r->job->call->arg, bytes, n);
}

/* ---- one rank ---- */

static enum err open_rank(struct generate_rank *r)
{
    const struct setup *s = r->s;
    int last = s->sched.place[s->sched.stages - 1], teller[AXIS_COUNT] = {0};
    struct dev_args dev;
    struct exec_args a;
    mesh_coord(&s->mesh, comm_rank(r->world), r->coord);
    teller[AXIS_PP] = last;
    r->teller = mesh_rank(&s->mesh, teller);
    r->head = r->coord[AXIS_PP] == last;
    enum dev_kind kind = s->o->train.device == OPTIONS_NULL ? DEV_CPU : options_device(s->o);
    TRY(handshake(s, (uint64_t[]){0, 0}, r->world));
    setup_dev_args(s, kind, &dev);
    dev.threads = r->job->threads;
    dev.index = comm_local_rank(r->world);
    TRY(dev_open(&dev, &r->dev));
    setup_exec_args(s, r->coord[AXIS_PP], &a);
    a.dev = r->dev;
    a.world = r->world;
    TRY(comm_attach(r->world, r->dev));
    TRY(exec_open(&a, &r->x));
    TRY(load_weights(s, r->x, r->job->call->run));
    TRY(mem_new(r->job->length, sizeof *r->text, "the text", &r->text));
    TRY(mem_new(s->arch.seq + s->split.tp, sizeof *r->window, "the window", &r->window));
    memcpy(r->text, r->job->prompt, (size_t)r->job->prompts * sizeof *r->text);
    int64_t cols = num_ceil_div(s->arch.vocab, s->split.tp) * s->split.tp;
    TRY(mem_new(cols, sizeof(double), "logits", &r->values));
    TRY(mem_new(cols, sizeof(double), "logits", &r->raw));
    return r->dev->ops->alloc(r->dev, cols * dtype_size(r->dev->at), "logits", &r->logits);
}

static enum err run_rank(struct generate_rank *r)
{
    TRY(open_rank(r));
    for (int64_t i = 0; i < r->job->prompts; i++)
        tell(r, i);
    for (int64_t have = r->job->prompts; have < r->job->length; have++) {
        TRY(next_token(r, have));
        tell(r, have);
    }
    return ERR_OK;
}

static enum err rank_body(void *arg, struct comm_world *world)
{
    const struct generate_job *job = arg;
    struct generate_rank r = {.job = job, .s = job->setup, .world = world};
    enum err err = run_rank(&r);
    if (err != ERR_OK)
        comm_abort(world, err); /* peers may still read what is freed below */
    exec_close(r.x);
    if (r.dev && r.logits)
        r.dev->ops->free(r.dev, r.logits);
    enum err last = comm_detach(world);
    if (err == ERR_OK)
        err = last;
    dev_close(r.dev);
    mem_free(r.text);
    mem_free(r.window);
    mem_free(r.values);
    mem_free(r.raw);
    return err;
}

/* ---- the run ---- */

static enum err check_ranks(const struct setup *s, int ranks)
{
    if (ranks && ranks != s->mesh.world)
        FAIL(ERR_CONFIG, "ranks started: %d, but the layout has parallel.tp %d x parallel.pp %d = "
                         "%d; change them with parallel.tp=... parallel.pp=...",
             ranks, s->split.tp, s->sched.p, s->mesh.world);
    return ERR_OK;
}

/* A run that was told to keep no weights, and has none. */
static enum err check_weights(const struct options *o, const char *run)
{
    char *path;
    if (o->run.save)
        return ERR_OK;
    TRY(fs_join(run, "model.safetensors", &path));
    bool there = fs_exists(path);
    mem_free(path);
    if (!there)
        FAIL(ERR_CONFIG, "run.save is false in %s/config.yaml, so the run left no weights to "
                         "generate from; train again with run.save true", run);
    return ERR_OK;
}

enum err run_generate(const struct options *o, const struct plait_generate *call)
{
    struct setup s;
    struct generate_job job = {.setup = &s, .call = call, .tokenizer = "bytes"};
    int32_t *prompt = NULL;
    const char *text = call->prompt && call->prompt[0] ? call->prompt : "\n";
    int ranks = call->ranks;
    TRY(check_weights(o, call->run));
    enum err err = setup_make(o, tokenizer_vocab(job.tokenizer), false, &s);
    if (err == ERR_OK)
        err = tokenizer_check(job.tokenizer, s.arch.vocab);
    if (err == ERR_OK)
        err = check_launch(o, &ranks);
    if (err == ERR_OK)
        err = check_ranks(&s, ranks);
    if (err == ERR_OK)
        err = tokenizer_encode(job.tokenizer, text, (int64_t)strlen(text), &prompt, &job.prompts);
    job.prompt = prompt;
    job.length = job.prompts + (call->tokens > 0 ? call->tokens : 200);
    job.threads = options_threads(o, s.mesh.world);
    comm_environment();
    if (err == ERR_OK && o->train.transport == COMM_MPI)
        err = comm_mpi_run(o->train.hang_timeout, rank_body, &job);
    else if (err == ERR_OK)
        err = comm_thread_run(s.mesh.world, o->train.hang_timeout, rank_body, &job);
    mem_free(prompt);
    setup_free(&s);
    return err;
}
