/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of buffers, written by one walk over the stages of a rank.
 */
#include "plan/buffers.h"

#include "base/mem.h"

/* What they are called in messages. */
static const char *const save_name[SAVE_COUNT] = {
    [SAVE_X] = "saved input", [SAVE_MEAN] = "saved mean", [SAVE_RSTD] = "saved rstd",
    [SAVE_H] = "saved norm", [SAVE_QKV] = "saved q k v", [SAVE_O] = "saved attention",
    [SAVE_LSE] = "saved log-sum-exp", [SAVE_PRE] = "saved pre-activation",
    [SAVE_ACT] = "saved activation", [SAVE_DH] = "saved gradient of the head's input",
};
static const char *const keep_name[KEEP_COUNT] = {
    [KEEP_D_SUBLAYER] = "kept gradient of an output",
    [KEEP_DMID] = "kept gradient inside a sublayer", [KEEP_DNORM] = "kept gradient of a norm",
};
static const char *const work_name[WORK_COUNT] = {
    [WORK_FULL] = "gathered rows", [WORK_PARTIAL] = "partial sums", [WORK_D] = "gradient stream",
    [WORK_DH] = "gradient of a norm's output", [WORK_DMID] = "gradient inside a sublayer",
    [WORK_DELTA] = "row sums of attention", [WORK_LOGITS] = "logits",
    [WORK_DLOGITS] = "gradient of logits", [WORK_ROW] = "rows of cross entropy",
};

void buffers_place(const struct sched *s, struct model_stage *cut)
{
    cut[s->stages - 1].embed_beside = s->stages > 1 && sched_ends_meet(s);
}

struct walk {
    const struct buffers_args *a;
    struct model_rank rank;
    buffer_fn *fn;
    void *arg;
    int stage_replica;
    int64_t work[WORK_COUNT], keep[KEEP_COUNT], sends; /* the most that the stages so far need */
};

static enum err list(struct walk *w, struct buffer b)
{
    return b.bytes > 0 && b.count > 0 ? w->fn(w->arg, &b) : ERR_OK;
}

static enum err list_store(struct walk *w, const struct model_stage *st)
{
    const struct buffers_args *a = w->a;
    int64_t ct = dtype_size(a->types.ct), at = dtype_size(a->types.at);
    int64_t n = model_stage_elements(a->model, &a->split, st);
    n = model_shared_elements(n, a->shares);
    struct buffer b = {MEMORY_WEIGHTS, BUFFER_W, "weights", n * ct, 1, w->stage_replica, 0, 0};
    TRY(list(w, b));
    if (!a->training)
        return ERR_OK;
    b = (struct buffer){MEMORY_MASTER, BUFFER_MASTER, "master weights", n / a->shares * at,
                        a->types.ct != a->types.at, w->stage_replica, 0, 0};
    TRY(list(w, b));
    b.count = 1;
    b.kind = MEMORY_OPTIM;
    b.what = BUFFER_M;
    b.name = "first moments";
    TRY(list(w, b));
    b.what = BUFFER_V;
    b.name = "second moments";
    TRY(list(w, b));
    b = (struct buffer){MEMORY_GRADS, BUFFER_GRAD, "gradients", n * at, 1, w->stage_replica, 0, 0};
    return list(w, b);
}

/* Of a stage's layers: do they begin it, or a segment; and in a save set the bytes of each buffer:
 * the most that any needs whom a layer lends it. */
struct saved { bool *begins; int *lender; int64_t (*set)[SAVE_COUNT]; };

static void saved_close(struct saved *v)
{
    mem_free(v->begins);
    mem_free(v->lender);
    mem_free(v->set);
}

static enum err find_saved(const struct walk *w, int stage, struct saved *v)
{
    const struct model_stage *st = &w->a->cut[stage];
    const struct segments *redo = w->a->redo ? &w->a->redo[stage] : NULL;
    int parts = model_stage_parts(st);
    TRY(mem_new(parts, sizeof *v->begins, "the buffers of a stage", &v->begins));
    TRY(mem_new(parts, sizeof *v->lender, "the buffers of a stage", &v->lender));
    TRY(mem_new(parts, sizeof *v->set, "the buffers of a stage", &v->set));
    for (int i = 0; i < parts; i++)
        v->lender[i] = i;
    if (redo)
        TRY(segments_lenders(redo, w->a->model, st, v->lender));
    for (int i = 0; i < parts; i++) {
        struct layer l = model_layer(w->a->model, st->first + i);
        struct model_dims d;
        model_dims(&l, &w->rank.split, w->rank.samples, w->rank.types, &d);
        v->begins[i] = segments_begin(redo, i);
        for (int id = 0; id < SAVE_COUNT; id++) {
            int64_t *most = &v->set[v->lender[i]][id];
            if (!model_save_stays(&l, v->begins[i], (enum model_save)id))
                *most = num_max(*most, model_saved(&l, &d, (enum model_save)id));
        }
    }
    return ERR_OK;
}

/* A layer's in the slots and sets of its stage; and what it needs of the rank. */
static enum err list_layer(struct walk *w, const struct model_stage *st, int64_t at,
                           const struct saved *v)
{
    const struct sched_report *r = w->a->report;
    struct layer l = model_layer(w->a->model, at);
    struct model_dims d;
    struct buffer b = {.kind = MEMORY_ACTIVATIONS, .stage_replica = w->stage_replica,
                       .layer = (int)(at - st->first)};
    bool splits = w->a->splits;
    model_dims(&l, &w->rank.split, w->rank.samples, w->rank.types, &d);
    for (b.id = 0; b.id < SAVE_COUNT; b.id++) {
        b.name = save_name[b.id];
        if (model_save_stays(&l, v->begins[b.layer], (enum model_save)b.id)) {
            b.what = BUFFER_SLOT;
            b.count = r->stage_peak[w->stage_replica];
            b.bytes = model_saved(&l, &d, (enum model_save)b.id);
            TRY(list(w, b));
        }
        b.what = BUFFER_SAVE;
        b.count = r->save_peak[w->stage_replica];
        b.bytes = v->set[b.layer][b.id];
        TRY(list(w, b));
    }
    for (b.id = 0; b.id < KEEP_COUNT && w->a->training; b.id++) {
        b.what = BUFFER_KEEP;
        b.count = splits ? r->grad_peak[w->stage_replica] : 0;
        b.name = keep_name[b.id];
        b.bytes = model_kept(&l, &d, (enum model_keep)b.id);
        if (!splits)
            w->keep[b.id] = num_max(w->keep[b.id], b.bytes);
        TRY(list(w, b));
    }
    for (int id = 0; id < WORK_COUNT; id++)
        w->work[id] = num_max(w->work[id], l.type->work(&d, (enum model_work)id));
    return ERR_OK;
}

static enum err list_stage(struct walk *w, int pp)
{
    const struct buffers_args *a = w->a;
    int stage = w->stage_replica % a->sched->stages;
    const struct model_stage *st = &a->cut[stage];
    TRY(list_store(w, st));
    struct saved v = {0};
    enum err err = find_saved(w, stage, &v);
    for (int64_t at = st->first; at < st->end && err == ERR_OK; at++)
        err = list_layer(w, st, at, &v);
    saved_close(&v);
    TRY(err);
    if (stage > 0 && a->sched->place[w->stage_replica - 1] != pp)
        w->sends = num_max(w->sends, model_boundary_bytes(&w->rank, st->first));
    return list(w, (struct buffer){MEMORY_ACTIVATIONS, BUFFER_OUT, "output of a stage",
                                   model_boundary_bytes(&w->rank, st->end),
                                   a->report->stage_peak[w->stage_replica], w->stage_replica, 0,
                                   0});
}

static enum err list_shared(struct walk *w)
{
    struct buffer b = {.kind = MEMORY_WORK, .what = BUFFER_WORK, .count = 1, .stage_replica = -1};
    for (b.id = 0; b.id < WORK_COUNT; b.id++) {
        b.name = work_name[b.id];
        b.bytes = w->work[b.id];
        TRY(list(w, b));
    }
    b.what = BUFFER_WORK_KEEP;
    for (b.id = 0; b.id < KEEP_COUNT; b.id++) {
        b.name = keep_name[b.id];
        b.bytes = w->keep[b.id];
        TRY(list(w, b));
    }
    return list(w, (struct buffer){MEMORY_COMM, BUFFER_GRAD_SEND, "gradient on its way", w->sends,
                                   w->a->training ? w->a->report->ring : 0, -1, 0, 0});
}

static enum err list_tables(struct walk *w)
{
    const struct buffers_args *a = w->a;
    int64_t n = a->share * a->model->seq, at = dtype_size(a->types.at);
    const struct buffer all[] = {
        {MEMORY_DATA, BUFFER_INPUT, "input", n * model_input_bytes(a->model, &a->types), 1, -1, 0,
         0},
        {MEMORY_DATA, BUFFER_TARGETS, "targets", n * (int64_t)sizeof(int32_t), 1, -1, 0, 0},
        {MEMORY_DATA, BUFFER_LOSS, "loss and step", 2 * (int64_t)sizeof(double), 1, -1, 0, 0},
        {MEMORY_DATA, BUFFER_SCALARS, "sums and rates",
         MODEL_STEP_DOUBLES * (int64_t)sizeof(double), 1, -1, 0, 0},
        {MEMORY_DATA, BUFFER_ROPE, "rotary table", a->model->seq * a->model->head_dim * at,
         model_rotary(a->model), -1, 0, 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        TRY(list(w, all[i]));
    return ERR_OK;
}

enum err buffers_each(const struct buffers_args *a, int pp, buffer_fn *fn, void *arg)
{
    struct walk w = {.a = a, .rank = {a->model, a->split, a->samples, &a->types}, .fn = fn,
                     .arg = arg};
    int stage_replicas = a->sched->replicas * a->sched->stages;
    for (w.stage_replica = 0; w.stage_replica < stage_replicas; w.stage_replica++)
        if (a->sched->place[w.stage_replica] == pp)
            TRY(list_stage(&w, pp));
    TRY(list_shared(&w));
    return list_tables(&w);
}
