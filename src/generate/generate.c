/* SPDX-License-Identifier: Apache-2.0
 *
 * Text from trained weights, or ids, on the tensor and pipeline ranks of any layout. Every token
 * runs the forward-only list over the whole text so far (at most model.seq tokens): no key-value
 * cache yet, so a token costs a forward of its context. The draw depends on (seed, number of the
 * token) and on the logits alone: every tensor rank of the last stage gathers them and draws the
 * same token, and the first of them tells the world.
 */
#include "generate/generate.h"

#include "check/check.h"
#include "folder/folder.h"
#include "setup/setup.h"
#include "train/rank.h"

#include <stdarg.h>
#include <stdio.h>

struct generate_job {
    const struct setup *setup;
    const struct plait_generate *call;
    const struct model_folder *folder;
    const struct weights *weights;
    const char *tokenizer;  /* NULL: ids in, ids out */
    struct generate_how how;
    const int32_t *prompt;  /* (prompts) */
    int64_t prompts, shown; /* tokens of the prompt; the first of them that is shown */
    int64_t length;         /* of the finished text */
    int32_t end[HF_ENDS];   /* ids that end it */
    int ends;
};

struct generate_rank {
    struct rank rank; /* owned; the one that reports is whose draw counts */
    const struct generate_job *job;
    const struct setup *s;
    int32_t *text;    /* owned; (length) */
    int32_t *window;  /* owned; (seq) what the model reads now */
    int64_t row;      /* of the last token in the window */
    void *logits;     /* device; owned; (tp, V/tp) in the accumulation type */
    double *values;   /* owned; (tp * V/tp) on the host */
    void *raw;        /* owned; the same as they come from the device */
    bool head;        /* has logits */
    struct generate_text out;
    struct fs_file file; /* call->logits, on the one that reports */
};

/* ---- what is told ---- */

/* A sentence of the rank that reports. */
static void note(const struct generate_rank *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void note(const struct generate_rank *r, const char *fmt, ...)
{
    char text[320];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (r->rank.is_logger && r->job->call->on_note)
        r->job->call->on_note(r->job->call->arg, text);
}

/* A character may be cut between two tokens. So bytes are held until they are one, and whoever
 * shows or stores what is given on sees valid UTF-8 at any moment. */
static void add_byte(struct generate_text *t, uint8_t byte)
{
    t->held[t->n++] = byte;
    int bytes = text_utf8(t->held, t->n);
    if (bytes < 0)
        return;
    bool begins = bytes == 0 && t->n > 1; /* the byte is not of what is held, and may begin anew */
    t->give(t->arg, bytes > 0 ? (const char *)t->held : "\xef\xbf\xbd", bytes > 0 ? bytes : 3);
    t->n = 0;
    if (begins)
        add_byte(t, byte);
}

void generate_text_add(struct generate_text *t, const char *bytes, int n)
{
    if (t->raw && n > 0)
        t->give(t->arg, bytes, n);
    for (int i = 0; i < n && !t->raw; i++)
        add_byte(t, (uint8_t)bytes[i]);
}

static void tell(struct generate_rank *r, int32_t id)
{
    const struct plait_generate *call = r->job->call;
    char bytes[64];
    if (!r->rank.is_logger)
        return;
    if (!r->job->tokenizer && call->on_id)
        call->on_id(call->arg, id);
    if (!r->job->tokenizer || !call->on_text)
        return;
    if (id == r->job->end[0])
        generate_text_add(&r->out, "<|endoftext|>", 13);
    else
        generate_text_add(&r->out, bytes, tokenizer_decode(r->job->tokenizer, id, bytes));
}

/* ---- one token ---- */

/* After the head's forward: logits of the last row, all columns, on every tensor rank. */
static enum err on_logits(void *arg, const struct stage *s, const struct stage_mb *mb,
                          const struct stage_slot *slot)
{
    struct generate_rank *r = arg;
    struct dev *dev = r->rank.dev;
    int64_t cols = s->part[s->parts - 1].dims.v, all = cols * r->s->split.tp;
    int64_t at = dtype_size(dev->at);
    char *mine = (char *)r->logits + r->rank.coord[AXIS_TP] * cols * at;
    TRY(head_row_logits(s, mb, slot, r->row, mine));
    if (r->rank.x->group[GROUP_TP])
        TRY(comm_all_gather(r->rank.x->group[GROUP_TP], r->logits, mine, cols, dev->at));
    TRY(dev_d2h(dev, r->raw, r->logits, all * at));
    TRY(dev->ops->sync(dev));
    for (int64_t i = 0; i < all; i++)
        r->values[i] = dev->at == DT_F64 ? ((double *)r->raw)[i] : (double)((float *)r->raw)[i];
    return ERR_OK;
}

static enum err next_token(struct generate_rank *r, int64_t have)
{
    struct exec_hooks hooks = {.logits = on_logits, .arg = r};
    int64_t t = num_min(have, r->s->model.seq), rows = t, tp = r->s->split.tp;
    struct text line = {0};
    int32_t token = 0;
    if (r->s->split.sp) /* whole rows: a causal model does not see what stands behind */
        rows = num_ceil_div(t, tp) * tp;
    memset(r->window + t, 0, (size_t)(rows - t) * sizeof *r->window);
    memcpy(r->window, r->text + have - t, (size_t)t * sizeof *r->window);
    r->row = t - 1;
    struct exec_batch b = {.input = r->window, .samples = 1, .t = rows};
    TRY(exec_run(r->rank.x, &r->s->sched, &b, &hooks));
    if (r->head) /* the last columns of an odd vocabulary are padding: vocab bounds them */
        TRY(generate_pick(r->values, r->s->model.vocab, &r->job->how, have, &token));
    if (r->file.path) {
        int digits = r->rank.dev->at == DT_F64 ? 17 : 9;
        for (int64_t i = 0; i < r->s->model.vocab; i++)
            text_add(&line, "%s%.*g", i ? " " : "", digits, r->values[i]);
        text_add(&line, "\n");
        enum err err = line.err == ERR_OK ? fs_write(&r->file, line.s, line.len) : line.err;
        text_free(&line);
        TRY(err);
    }
    TRY(comm_broadcast(r->rank.all, r->rank.logger, &token, (int64_t)sizeof token));
    r->text[have] = token;
    return ERR_OK;
}

/* ---- one rank ---- */

/* Prompt and options, as far as they change what is written. */
static uint64_t prompt_digest(const struct generate_job *job)
{
    const struct plait_generate *call = job->call;
    struct text t = {0};
    text_add(&t, "%lld %.17g %lld %llu %d %d %d %s", (long long)job->length, job->how.temperature,
             (long long)job->how.top_k, (unsigned long long)job->how.seed, call->ignore_eot != 0,
             call->raw != 0, call->logits != NULL,
             job->tokenizer ? job->tokenizer : "ids");
    for (int64_t i = 0; i < job->prompts; i++)
        text_add(&t, " %d", job->prompt[i]);
    uint64_t sum = t.err == ERR_OK ? num_hash(t.s) : 0;
    text_free(&t);
    return sum;
}

static enum err run_rank(struct generate_rank *r)
{
    const struct generate_job *job = r->job;
    const struct setup *s = r->s;
    int64_t seen = s->model.seq, unseen = job->prompts - seen;
    int64_t cols = num_ceil_div(s->model.vocab, s->split.tp) * s->split.tp;
    bool stop = false;
    r->head = r->rank.coord[AXIS_PP] == s->sched.place[s->sched.stages - 1];
    TRY(rank_open(&r->rank,
                  &(struct rank_args){.read = {.prompt = prompt_digest(job),
                                               .weights = weights_digest(job->weights)}}));
    TRY(folder_others(load_stores(&r->rank, job->weights, false), job->weights->state.dir));
    if (r->rank.is_logger && job->call->logits)
        TRY(fs_create(&r->file, job->call->logits));
    TRY(mem_new(job->length, sizeof *r->text, "the text", &r->text));
    TRY(mem_new(seen + s->split.tp, sizeof *r->window, "the window", &r->window));
    memcpy(r->text, job->prompt, (size_t)job->prompts * sizeof *r->text);
    TRY(mem_new(cols, sizeof(double), "logits", &r->values));
    TRY(mem_new(cols, sizeof(double), "logits", &r->raw));
    struct dev *dev = r->rank.dev;
    TRY(dev->ops->alloc(dev, cols * dtype_size(dev->at), "logits", &r->logits));
    if (job->folder->unknown[0])
        note(r, "config.json has keys that plait does not know and passes over: %s",
             job->folder->unknown);
    if (unseen > 0)
        note(r, "the prompt has %lld tokens and model.seq is %lld: the first %lld %s not seen",
             (long long)job->prompts, (long long)seen, (long long)unseen,
             unseen == 1 ? "is" : "are");
    for (int64_t i = job->shown; i < job->prompts; i++)
        tell(r, job->prompt[i]);
    for (int64_t have = job->prompts; have < job->length && !stop; have++) {
        TRY(next_token(r, have));
        for (int i = 0; i < job->ends && !job->call->ignore_eot; i++)
            stop = stop || job->end[i] == r->text[have];
        if (!stop || !job->tokenizer)
            tell(r, r->text[have]);
    }
    if (r->out.n > 0)
        note(r, "the text ends within a character, of which %d byte%s not shown (--raw shows them)",
             r->out.n, r->out.n == 1 ? " is" : "s are");
    return r->file.path ? fs_commit(&r->file) : ERR_OK;
}

static void release(void *arg)
{
    struct generate_rank *r = arg;
    if (r->logits)
        r->rank.dev->ops->free(r->rank.dev, r->logits);
}

static enum err rank_body(void *arg, struct comm_world *world)
{
    const struct generate_job *job = arg;
    struct generate_rank r = {.rank = rank_at(job->setup, world), .job = job, .s = job->setup,
                              .out = {.give = job->call->on_text, .arg = job->call->arg,
                                      .raw = job->call->raw != 0}};
    enum err err = rank_close(&r.rank, run_rank(&r), release, &r);
    if (r.file.path)
        fs_abandon(&r.file);
    mem_free(r.text);
    mem_free(r.window);
    mem_free(r.values);
    mem_free(r.raw);
    return err;
}

/* ---- the run ---- */

static enum err check_call(const struct model_folder *folder, const struct plait_generate *c)
{
    const struct options *o = &folder->options;
    if (c->tokens < 0 || c->top_k < 0 || !(c->temperature >= 0 && isfinite(c->temperature)))
        FAIL(ERR_CONFIG, "generate: tokens %lld, top_k %d and temperature %g: each has to be a "
                         "number from 0 on", (long long)c->tokens, c->top_k, c->temperature);
    if (c->ids && c->prompt && c->prompt[0])
        FAIL(ERR_CONFIG, "generate: a prompt is given as text and as ids; give one");
    if (c->ids && c->id_count < 1)
        FAIL(ERR_CONFIG, "generate: ids are asked for and none is given to begin with; give one or "
                         "more");
    if (!model_traits(folder->model.kind)->text)
        FAIL(ERR_CONFIG, "generate: %s has model.kind %s, which tells classes and writes no text; "
                         "use a folder of gpt or llama", folder->dir,
             model_traits(folder->model.kind)->name);
    if (o->train.device == OPTIONS_NULL)
        FAIL(ERR_CONFIG, "train.device null computes nothing, so it has no text to draw; use "
                         "train.device=cpu");
    return model_folder_filled(folder);
}

/* What the weights are of, and with it what is read and written: text or ids. */
static enum err take_prompt(struct generate_job *job, char name[SAFET_NOTE], int32_t **prompt,
                            bool **legal)
{
    const struct model_folder *folder = job->folder;
    const struct plait_generate *c = job->call;
    int64_t vocab = job->setup->model.vocab;
    enum err err = model_folder_tokenizer(folder, job->weights, name);
    if (c->ids && (err == ERR_OK || err == ERR_TOKEN)) {
        bool known = err == ERR_OK; /* else its end is not known, and config.json's may be */
        job->ends = known ? 1 : folder->ends;
        memcpy(job->end, folder->end, sizeof job->end);
        if (known)
            job->end[0] = tokenizer_end(name);
        for (int64_t i = 0; i < c->id_count; i++)
            if (c->ids[i] < 0 || c->ids[i] >= vocab)
                FAIL(ERR_TOKEN, "generate: id %lld of the prompt is %d, the model has ids 0 to "
                                "%lld", (long long)i + 1, c->ids[i], (long long)vocab - 1);
        TRY(mem_new(c->id_count, sizeof **prompt, "the prompt", prompt));
        memcpy(*prompt, c->ids, (size_t)c->id_count * sizeof **prompt);
        job->prompts = c->id_count;
        return ERR_OK;
    }
    TRY(err);
    TRY(tokenizer_check(name, vocab));
    job->tokenizer = name;
    job->end[0] = tokenizer_end(name);
    job->ends = 1;
    char bytes[64];
    TRY(mem_new(vocab, sizeof **legal, "the ids that are text", legal)); /* or end one */
    for (int64_t i = 0; i < vocab; i++)
        (*legal)[i] = i == job->end[0] || tokenizer_decode(name, (int32_t)i, bytes) > 0;
    job->how.legal = *legal;
    const char *text = c->prompt ? c->prompt : "";
    TRY(tokenizer_encode(name, text, (int64_t)strlen(text), prompt, &job->prompts));
    if (job->prompts > 0)
        return ERR_OK;
    mem_free(*prompt); /* without text the model begins as behind the end of another */
    TRY(mem_new(1, sizeof **prompt, "the prompt", prompt));
    (*prompt)[0] = job->end[0];
    job->prompts = job->shown = 1;
    return ERR_OK;
}

enum err generate_run(const struct model_folder *folder, const struct plait_generate *call)
{
    const struct options *o = &folder->options;
    struct setup s;
    struct weights w = {.files = {NULL, 0}};
    struct generate_job job = {.setup = &s, .call = call, .folder = folder, .weights = &w,
                               .how = {call->temperature, call->top_k, call->seed, NULL}};
    char name[SAFET_NOTE];
    int32_t *prompt = NULL;
    bool *legal = NULL;
    int ranks = call->ranks;
    enum err err;
    TRY(check_call(folder, call));
    TRY_OR(out_setup, setup_make(o, tokenizer_vocab(o->data.tokenizer), false, &s));
    TRY_OR(out_setup, check_launch(o, &ranks));
    if (ranks && ranks != s.mesh.world) {
        err = err_set(ERR_CONFIG, __FILE__, __LINE__, "ranks started: %d, but the layout has "
                      "parallel.tp %d x parallel.pp %d = %d; start %d, or change the layout with "
                      "parallel.tp=... parallel.pp=...; -n is the number of ranks: for tokens to "
                      "write, did you mean --tokens %d", ranks, s.split.tp, s.sched.p, s.mesh.world,
                      s.mesh.world, ranks);
        goto out_setup;
    }
    TRY_OR(out_setup, host_check(&s, NULL));
    TRY_OR(out_setup, model_folder_weights(folder, call->step ? call->step : "", &w));
    TRY_OR(out_setup, weights_check_rest(&w, &s.model));
    TRY_OR(out_setup, take_prompt(&job, name, &prompt, &legal));
    job.prompt = prompt;
    job.length = job.prompts + (call->tokens > 0 ? call->tokens : 200);
    comm_environment();
    err = rank_run("plait generate", o, s.mesh.world, rank_body, &job);
out_setup:
    mem_free(prompt);
    mem_free(legal);
    weights_close(&w);
    setup_free(&s);
    return err;
}
