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
    n = model_sharded_elements(n, a->num_shards);
    int64_t own = n / a->num_shards * at;
    int h = w->stage_replica;
    const struct buffer all[] = {
        {MEMORY_WEIGHTS, BUFFER_W, "weights", n * ct, 1, h, 0, 0},
        {MEMORY_MASTER, BUFFER_MASTER, "master weights", own, a->types.ct != a->types.at, h, 0, 0},
        {MEMORY_OPTIM, BUFFER_M, "first moments", own, 1, h, 0, 0},
        {MEMORY_OPTIM, BUFFER_V, "second moments", own, 1, h, 0, 0},
        {MEMORY_GRADS, BUFFER_GRAD, "gradients", n * at, 1, h, 0, 0},
    };
    for (int i = 0; i < (a->training ? (int)(sizeof all / sizeof *all) : 1); i++)
        TRY(list(w, all[i]));
    return ERR_OK;
}

/* Of a stage's layers: do they begin it, or a segment; and in a save set the bytes of each buffer:
 * the most that any needs whom a layer lends it. */
struct saved { bool *begins; int *lender; int64_t (*set)[SAVE_COUNT]; };

static enum err find_saved(const struct walk *w, int stage, struct saved *v)
{
    const struct model_stage *st = &w->a->cut[stage];
    const struct segments *recompute = w->a->recompute ? &w->a->recompute[stage] : NULL;
    int parts = model_stage_parts(st);
    TRY(mem_new(parts, sizeof *v->begins, "the buffers of a stage", &v->begins));
    TRY(mem_new(parts, sizeof *v->lender, "the buffers of a stage", &v->lender));
    TRY(mem_new(parts, sizeof *v->set, "the buffers of a stage", &v->set));
    for (int i = 0; i < parts; i++)
        v->lender[i] = i;
    if (recompute)
        TRY(segments_lenders(recompute, w->a->model, st, v->lender));
    for (int i = 0; i < parts; i++) {
        struct layer l = model_layer(w->a->model, st->first + i);
        struct model_dims d;
        model_dims(&l, &w->rank.split, w->rank.samples, w->rank.types, &d);
        v->begins[i] = segments_begin(recompute, i);
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
    mem_free(v.begins);
    mem_free(v.lender);
    mem_free(v.set);
    TRY(err);
    if (stage > 0 && a->sched->place[w->stage_replica - 1] != pp)
        w->sends = num_max(w->sends, model_boundary_bytes(&w->rank, st->first));
    return list(w, (struct buffer){MEMORY_ACTIVATIONS, BUFFER_OUT, "output of a stage",
                                   model_boundary_bytes(&w->rank, st->end),
                                   a->report->stage_peak[w->stage_replica], w->stage_replica, 0,
                                   0});
}

enum err buffers_each(const struct buffers_args *a, int pp, buffer_fn *fn, void *arg)
{
    struct walk w = {.a = a, .rank = {a->model, a->split, a->samples, &a->types}, .fn = fn,
                     .arg = arg};
    for (; w.stage_replica < a->sched->replicas * a->sched->stages; w.stage_replica++)
        if (a->sched->place[w.stage_replica] == pp)
            TRY(list_stage(&w, pp));
    for (int id = 0; id < WORK_COUNT; id++)
        TRY(list(&w, (struct buffer){MEMORY_WORK, BUFFER_WORK, work_name[id], w.work[id], 1, -1, 0,
                                     id}));
    for (int id = 0; id < KEEP_COUNT; id++)
        TRY(list(&w, (struct buffer){MEMORY_WORK, BUFFER_WORK_KEEP, keep_name[id], w.keep[id], 1,
                                     -1, 0, id}));
    int64_t n = a->step_samples * a->model->seq, at = dtype_size(a->types.at);
    const struct buffer all[] = {
        {MEMORY_COMM, BUFFER_GRAD_SEND, "gradient on its way", w.sends,
         a->training ? a->report->ring : 0, -1, 0, 0},
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
        TRY(list(&w, all[i]));
    return ERR_OK;
}

/* ---- sums over the list ---- */

enum { COPIED = 3 }; /* weights and both moments */

const char *memory_name(enum memory_kind k)
{
    static const char *const name[MEMORY_KINDS] = {"weights", "master weights", "gradients",
                                                   "optimizer", "activations", "scratch",
                                                   "communication", "data and tables",
                                                   "library", "transport"};
    return name[k];
}

int64_t memory_total(const struct memory *m)
{
    int64_t total = 0;
    for (int k = 0; k < MEMORY_KINDS; k++)
        total += m->bytes[k];
    return total;
}

static enum err add(void *arg, const struct buffer *b)
{
    ((struct memory *)arg)->bytes[b->kind] += b->count * arena_round(b->bytes);
    return ERR_OK;
}

enum err memory_plan(const struct memory_args *m, int pp, struct memory *out)
{
    const struct buffers_args *a = &m->buffers;
    int64_t copied = 0; /* elements; a second replica is saved by the first */
    for (int i = 0; i < a->sched->stages && m->copiers > 0; i++)
        if (a->sched->place[i] == pp)
            copied += model_saved_elements(a->model, &a->split, &a->cut[i], m->copiers);
    *out = (struct memory){.copy = COPIED * dtype_size(a->types.at) * copied};
    TRY(buffers_each(a, pp, add, out));
    out->bytes[MEMORY_COMM] += m->scratch;
    out->bytes[MEMORY_LIBRARY] = m->library;
    out->bytes[MEMORY_TRANSPORT] = m->transport;
    return ERR_OK;
}

struct by_stage { struct stage_bytes *out; int stages; };

static enum err add_to_stage(void *arg, const struct buffer *b)
{
    const struct by_stage *s = arg;
    if (b->stage_replica < 0 || b->stage_replica >= s->stages)
        return ERR_OK;
    struct stage_bytes *to = &s->out[b->stage_replica];
    bool slot = b->what == BUFFER_SLOT || b->what == BUFFER_OUT;
    to->slot += slot ? arena_round(b->bytes) : 0;
    to->saves += b->what == BUFFER_SAVE ? arena_round(b->bytes) : 0;
    to->keep += b->what == BUFFER_KEEP ? arena_round(b->bytes) : 0;
    return ERR_OK;
}

enum err memory_stages(const struct buffers_args *a, int pp, struct stage_bytes *out)
{
    return buffers_each(a, pp, add_to_stage, &(struct by_stage){out, a->sched->stages});
}
