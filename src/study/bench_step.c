/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of one step: the executor runs the model's step on a null device that notes what it is
 * asked for. So the list is what training does, chunks of the head and the optimizer included, and
 * cannot go out of date. Nothing is allocated but host tables, so any model fits.
 *
 * The layout is one rank: of a data rank its share of the batch, of a pipeline all of its stages,
 * of tensor ranks the whole tensors.
 */
#include "study/bench.h"

#include "base/mem.h"
#include "check/check.h"
#include "train/rank.h"

struct step {
    struct bench *b;
    const struct setup *s;
    struct rank rank;           /* owned */
    struct calls_list list;
    int32_t *input;             /* owned; host: zeros, the targets, too */
};

static void on_step(void *arg, struct optim_step *out)
{
    const struct step *t = arg;
    *out = (struct optim_step){.step = 1, .lr = 1, .tokens = t->s->share * t->s->model.seq};
}

static enum err open_step(struct step *t)
{
    TRY(rank_open(&t->rank, &(struct rank_args){.null = true}));
    calls_record(&t->list, t->rank.dev, t->s->model.vocab); /* opening is no part of a step */
    int64_t numbers = t->s->share * t->s->model.seq * num_max(1, model_floats(&t->s->model));
    return mem_new(numbers, sizeof *t->input, "the step's input", &t->input);
}

static enum err run_step(struct step *t)
{
    struct exec_hooks hooks = {.step = on_step, .arg = t};
    struct exec_batch batch = {.input = t->input, .targets = t->input, .samples = t->s->share,
                               .t = t->s->model.seq, .step = 1};
    exec_zero_grads(t->rank.x);
    return exec_run(t->rank.x, &t->s->sched, &batch, &hooks);
}

static enum err keep_calls(struct step *t)
{
    struct bench *b = t->b;
    b->calls = t->list.n;
    TRY(mem_new(b->calls, sizeof *b->call, "the calls of a step", &b->call));
    for (int i = 0; i < b->calls; i++)
        b->call[i].call = t->list.call[i];
    b->tokens = t->s->share * t->s->model.seq;
    return ERR_OK;
}

static void release(void *arg)
{
    struct step *t = arg;
    calls_free(&t->list, t->rank.dev);
    mem_free(t->input);
}

static enum err body(void *arg, struct comm_world *world)
{
    struct step *t = arg;
    t->rank = rank_at(t->s, world);
    enum err err = open_step(t);
    if (err == ERR_OK)
        err = run_step(t);
    if (err == ERR_OK)
        err = keep_calls(t);
    return rank_close(&t->rank, err, release, t);
}

enum err bench_step(struct bench *b)
{
    struct setup s = {0};
    struct step t = {.b = b, .s = &s};
    int64_t vocab;
    TRY(check_vocab(&b->shape, &vocab));
    enum err err = setup_make(&b->shape, vocab, true, &s);
    if (err == ERR_OK)
        err = comm_thread_run(1, 0, body, &t);
    setup_free(&s);
    return err;
}
