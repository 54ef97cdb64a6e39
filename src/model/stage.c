/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a stage and running its parts in order. Buffers are taken from the arenas in the order of
 * the tables in arch_bytes.c, so that the bytes taken are the bytes planned.
 *
 * The gradient stream: the last part reads the output's gradient where it arrived (slot->out),
 * every part writes into the shared scratch, and the first part writes where the executor sends
 * from. Without dropout and sp the gradient of a part's output is that of its sublayer's: no copy
 * is kept, but parts write where the part before will want it kept.
 *
 * Forward, a sublayer makes the norm of the sublayer behind it beside its own output, in one pass.
 */
#include "model/stage.h"

static const struct layer_kind *const kind_of[PART_COUNT] = {
    [PART_EMBED] = &layer_embed, [PART_ATTN] = &layer_attn,
    [PART_MLP] = &layer_mlp, [PART_HEAD] = &layer_head, [PART_INPUT] = &layer_input,
    [PART_LINEAR] = &layer_linear, [PART_RELU] = &layer_relu,
};

static void bind_parts(struct stage *s, const struct param *tokens)
{
    s->direct = !s->split.sp;
    for (int i = 0; i < s->parts; i++) {
        struct stage_part *p = &s->part[i];
        p->layer = arch_layer(s->arch, s->span.first + i);
        p->kind = kind_of[p->layer.type->part];
        arch_dims(&p->layer, &s->split, s->samples, &s->dev->types, &p->dims);
        s->direct = s->direct && p->layer.dims.dropout == 0;
        p->grad_kept = i > 0 && !p[-1].grad_kept &&
                       arch_kept(&p->layer, &p->dims, KEEP_DF) > 0;
        for (int r = 0; r < ROLE_COUNT; r++)
            p->role[r] = param_find(&s->params, i, (enum arch_role)r);
        if (p->layer.type->part == PART_HEAD && !p->role[ROLE_HEAD_W])
            p->role[ROLE_HEAD_W] =
                arch_stage_embed(&s->span) ? s->part[0].role[ROLE_TOKENS] : tokens; /* tied */
    }
}

bool stage_has_head(const struct stage *s)
{
    return arch_stage_head(s->arch, &s->span);
}

enum err stage_open(struct stage *s, const struct stage_args *a, const struct param_arenas *from)
{
    enum err err;
    *s = (struct stage){.arch = a->arch, .split = a->split, .span = a->span, .dev = a->dev,
                        .tp = a->tp, .work = a->work, .rope = a->rope, .loss = a->loss,
                        .seed = a->seed, .samples = a->samples,
                        .parts = arch_stage_parts(&a->span)};
    struct param_place at = {s->arch, &s->split, &s->span, a->tp.rank, a->copy,
                             a->share, a->shares};
    TRY(param_store_open(&s->params, a->dev, &at, from, a->training));
    TRY_OR(out_close, mem_new(s->parts, sizeof *s->part, "the parts of a stage", &s->part));
    bind_parts(s, a->tokens);
    return ERR_OK;
out_close:
    stage_close(s);
    return err;
}

void stage_close(struct stage *s)
{
    param_store_close(&s->params);
    mem_free(s->part);
    *s = (struct stage){0};
}

/* ---- buffers ---- */

/* What they are called in messages. */
static const char *const save_name[SAVE_COUNT] = {
    [SAVE_X] = "saved input", [SAVE_MEAN] = "saved mean", [SAVE_RSTD] = "saved rstd",
    [SAVE_H] = "saved norm", [SAVE_QKV] = "saved q k v", [SAVE_O] = "saved attention",
    [SAVE_LSE] = "saved log-sum-exp", [SAVE_PRE] = "saved pre-activation",
    [SAVE_ACT] = "saved activation", [SAVE_DH] = "saved gradient of the head's norm",
};
static const char *const keep_name[KEEP_COUNT] = {
    [KEEP_DF] = "kept gradient of an output", [KEEP_DMID] = "kept gradient inside a sublayer",
    [KEEP_DNORM] = "kept gradient of a norm",
};
static const char *const work_name[WORK_COUNT] = {
    [WORK_FULL] = "gathered rows", [WORK_PARTIAL] = "partial sums", [WORK_D] = "gradient stream",
    [WORK_DH] = "gradient of a norm's output", [WORK_DMID] = "gradient inside a sublayer",
    [WORK_DELTA] = "row sums of attention", [WORK_LOGITS] = "logits",
    [WORK_DLOGITS] = "gradient of logits", [WORK_ROW] = "rows of cross entropy",
};

static enum err take(struct arena *from, int64_t bytes, const char *name, void **out)
{
    *out = NULL;
    return bytes ? arena_take(from, bytes, name, out) : ERR_OK;
}

static bool stays(const struct stage *s, int part, int id)
{
    return arch_save_stays(&s->part[part].layer, part == 0, (enum arch_save)id);
}

/* The saves of a stage that stay in a slot, or the others. */
static enum err take_saves(const struct stage *s, bool stay, struct arena *from,
                           void *(*out)[SAVE_COUNT])
{
    for (int i = 0; i < s->parts; i++) {
        const struct stage_part *p = &s->part[i];
        for (int id = 0; id < SAVE_COUNT; id++)
            if (stays(s, i, id) == stay)
                TRY(take(from, arch_saved(&p->layer, &p->dims, (enum arch_save)id), save_name[id],
                         &out[i][id]));
    }
    return ERR_OK;
}

enum err stage_slot_open(const struct stage *s, struct arena *from, struct stage_slot *out)
{
    *out = (struct stage_slot){0};
    TRY(mem_new(s->parts, sizeof *out->save, "a slot", &out->save));
    TRY(take_saves(s, true, from, out->save));
    struct arch_rank r = {s->arch, s->split, s->samples, &s->dev->types};
    return take(from, arch_boundary_bytes(&r, s->span.end), "output of a stage", &out->out);
}

void stage_slot_close(struct stage_slot *slot)
{
    mem_free(slot->save);
    *slot = (struct stage_slot){0};
}

enum err stage_saves_open(const struct stage *s, struct arena *from, struct stage_saves *out)
{
    *out = (struct stage_saves){0};
    TRY(mem_new(s->parts, sizeof *out->save, "a save set", &out->save));
    return take_saves(s, false, from, out->save);
}

void stage_saves_close(struct stage_saves *set)
{
    mem_free(set->save);
    *set = (struct stage_saves){0};
}

void stage_lend(const struct stage *s, struct stage_slot *slot, const struct stage_saves *set)
{
    for (int i = 0; i < s->parts; i++)
        for (int id = 0; id < SAVE_COUNT; id++)
            if (!stays(s, i, id))
                slot->save[i][id] = set ? set->save[i][id] : NULL;
}

enum err stage_keep_open(const struct stage *s, bool per_slot, struct arena *from,
                         struct stage_keep *out)
{
    *out = (struct stage_keep){.per_slot = per_slot};
    TRY(mem_new(s->parts, sizeof *out->keep, "a keep set", &out->keep));
    for (int i = 0; i < s->parts; i++) {
        const struct stage_part *p = &s->part[i];
        for (int id = 0; id < KEEP_COUNT; id++) {
            int64_t bytes = arch_kept(&p->layer, &p->dims, (enum arch_keep)id);
            out->keep[i][id] = bytes ? s->work->keep[id] : NULL;
            if (per_slot)
                TRY(take(from, bytes, keep_name[id], &out->keep[i][id]));
        }
    }
    return ERR_OK;
}

void stage_keep_close(struct stage_keep *k)
{
    mem_free(k->keep);
    *k = (struct stage_keep){0};
}

enum err stage_work_open(const struct stage_work_bytes *bytes, struct arena *from,
                         struct stage_work *out)
{
    for (int id = 0; id < WORK_COUNT; id++)
        TRY(take(from, bytes->at[id], work_name[id], &out->at[id]));
    for (int id = 0; id < KEEP_COUNT; id++)
        TRY(take(from, bytes->keep[id], keep_name[id], &out->keep[id]));
    return ERR_OK;
}

/* ---- running ---- */

struct stage_call stage_call_of(const struct stage *s, const struct stage_mb *mb, int part)
{
    const struct stage_part *p = &s->part[part];
    struct stage_call c = {.s = s, .p = p, .mb = mb, .dims = p->dims};
    struct arch_dims *d = &c.dims;
    ENSURE(mb->samples * mb->t <= d->n);
    d->b = mb->samples;
    d->t = mb->t;
    d->n = d->b * d->t;
    d->nl = s->tp.sp ? d->n / s->tp.size : d->n;
    return c;
}

void *stage_input(const struct stage *s, const struct stage_slot *slot)
{
    return arch_stage_embed(&s->span) ? NULL : slot->save[0][SAVE_X];
}

static bool is_sublayer(const struct stage *s, int part)
{
    return part < s->parts && s->part[part].layer.type->sublayer;
}

/* The first `parts` parts; what the stage as a whole gives out goes to `out`. */
static enum err run_forward(const struct stage *s, const struct stage_mb *mb,
                            const struct stage_slot *slot, int parts, void *out)
{
    struct stage_call c = stage_call_of(s, mb, 0), next = c;
    c.save = slot->save[0];
    for (int i = 0; i < parts; i++, c = next) {
        bool fused = is_sublayer(s, i) && is_sublayer(s, i + 1) && i + 1 < parts;
        c.y = i + 1 < s->parts ? slot->save[i + 1][SAVE_X] : out;
        if (i + 1 < s->parts) {
            next = stage_call_of(s, mb, i + 1);
            next.save = slot->save[i + 1];
            next.normed = fused;
        }
        c.next = fused ? &next : NULL;
        s->dev->part = i;
        TRY(c.p->kind->forward(&c));
    }
    return ERR_OK;
}

enum err stage_forward(const struct stage *s, const struct stage_mb *mb,
                       const struct stage_slot *slot)
{
    return run_forward(s, mb, slot, s->parts, slot->out);
}

enum err stage_recompute(const struct stage *s, const struct stage_mb *mb,
                         const struct stage_slot *slot)
{
    return run_forward(s, mb, slot, stage_has_head(s) ? s->parts - 1 : s->parts,
                       s->work->at[WORK_D]);
}

/* Where the gradient of a part's output stands. Where it must stay until the part's weights have
 * theirs, it is kept; of a keep set that parts share neighbours take turns with the scratch
 * (grad_kept), for one reads its gradient when the other's is made. */
static void *gradient_at(const struct stage *s, const struct stage_back *b, int part)
{
    const struct stage_part *p = &s->part[part];
    if (part + 1 == s->parts)
        return b->slot->out;
    if (p->layer.type->leaf)
        return NULL;
    bool kept = b->keep->per_slot ? b->keep->keep[part][KEEP_DF] != NULL : p->grad_kept;
    return s->direct && kept ? b->keep->keep[part][KEEP_DF] : s->work->at[WORK_D];
}

/* The backward of a part, from here on. */
static struct stage_call back_call(const struct stage *s, const struct stage_back *b, int part)
{
    s->dev->part = part;
    struct stage_call c = stage_call_of(s, b->mb, part);
    c.save = b->slot->save[part];
    c.keep = b->keep->keep[part];
    c.d_in = gradient_at(s, b, part);
    c.d_out = part > 0                     ? gradient_at(s, b, part - 1)
              : arch_stage_embed(&s->span) ? s->work->at[WORK_D]
                                           : b->d_out;
    c.direct = s->direct;
    c.df = c.direct ? c.d_in : c.keep[KEEP_DF] ? c.keep[KEEP_DF] : c.d_out;
    return c;
}

enum err stage_backward(const struct stage *s, const struct stage_back *b)
{
    for (int i = s->parts - 1; i >= 0; i--) {
        struct stage_call c = back_call(s, b, i);
        if (s->tp.rows > 0 && c.p->kind->backward) {
            TRY(c.p->kind->backward(&c));
        } else {
            TRY(c.p->kind->backward_input(&c));
            TRY(c.p->kind->backward_weight(&c));
        }
        if (b->hook.done)
            TRY(b->hook.done(b->hook.arg, i));
    }
    return ERR_OK;
}

enum err stage_backward_input(const struct stage *s, const struct stage_back *b)
{
    for (int i = s->parts - 1; i >= 0; i--) {
        struct stage_call c = back_call(s, b, i);
        TRY(c.p->kind->backward_input(&c));
    }
    return ERR_OK;
}

enum err stage_backward_weight(const struct stage *s, const struct stage_back *b)
{
    for (int i = s->parts - 1; i >= 0; i--) {
        struct stage_call c = back_call(s, b, i);
        TRY(c.p->kind->backward_weight(&c));
        if (b->hook.done)
            TRY(b->hook.done(b->hook.arg, i));
    }
    return ERR_OK;
}
