/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a stage and running its parts in order.
 *
 * The gradient stream: the last part reads the output's gradient where it arrived (slot->out),
 * every part writes into the shared scratch, and the first part writes where the executor sends
 * from. Without dropout and sp the gradient of a part's output is that of its sublayer's: no copy
 * is kept, but parts write where the part before will want it kept.
 *
 * Forward, a sublayer makes the norm of the sublayer behind it beside its own output, in one pass.
 */
#include "layer/stage.h"

static const struct layer_kind *const kind_of[LAYER_COUNT] = {
    [LAYER_EMBED] = &layer_embed, [LAYER_ATTN] = &layer_attn,
    [LAYER_MLP] = &layer_mlp, [LAYER_HEAD] = &layer_head, [LAYER_INPUT] = &layer_input,
    [LAYER_LINEAR] = &layer_linear, [LAYER_RELU] = &layer_relu,
};

enum err stage_open(struct stage *s, const struct stage_args *a)
{
    struct param_place at = {s->model, &s->split, &s->span, s->tp.rank, a->copy,
                             a->shard_rank, a->num_shards};
    s->parts = model_stage_parts(&s->span);
    TRY(param_store_open(&s->params, s->dev, &at, &a->memory));
    enum err err = mem_new(s->parts, sizeof *s->part, "the parts of a stage", &s->part);
    if (err != ERR_OK) {
        stage_close(s);
        return err;
    }
    s->aliases_dy = !s->split.sp;
    for (int i = 0; i < s->parts; i++) {
        struct stage_part *p = &s->part[i];
        p->layer = model_layer(s->model, s->span.first + i);
        p->kind = kind_of[p->layer.type->part];
        model_dims(&p->layer, &s->split, s->samples, &s->dev->types, &p->dims);
        s->aliases_dy = s->aliases_dy && p->layer.dims.dropout == 0;
        p->begins = i == 0;
        p->grad_kept = i > 0 && !p[-1].grad_kept &&
                       model_kept(&p->layer, &p->dims, KEEP_D_SUBLAYER) > 0;
        for (int r = 0; r < PARAM_COUNT; r++)
            p->role[r] = param_find(&s->params, i, (enum param_id)r);
        if (p->layer.type->part == LAYER_HEAD && !p->role[PARAM_HEAD_W]) /* tied */
            p->role[PARAM_HEAD_W] =
                model_stage_embed(&s->span) ? s->part[0].role[PARAM_TOKENS] : a->tokens;
    }
    for (int i = 0; a->recompute && i < a->num_recomputed; i++)
        s->part[a->recompute[i]].begins = true;
    return ERR_OK;
}

void stage_close(struct stage *s)
{
    param_store_close(&s->params);
    mem_free(s->part);
    *s = (struct stage){0};
}

/* ---- buffers ---- */

void stage_lend(const struct stage *s, struct stage_slot *slot, void *(*set)[SAVE_COUNT])
{
    for (int i = 0; i < s->parts; i++)
        for (int id = 0; id < SAVE_COUNT; id++)
            if (!model_save_stays(&s->part[i].layer, s->part[i].begins, (enum model_save)id))
                slot->save[i][id] = set ? set[i][id] : NULL;
}

void stage_keep_share(const struct stage *s, struct stage_keep *k)
{
    for (int i = 0; i < s->parts; i++)
        for (int id = 0; id < KEEP_COUNT; id++)
            if (model_kept(&s->part[i].layer, &s->part[i].dims, (enum model_keep)id))
                k->keep[i][id] = s->work->keep[id];
}

/* ---- running ---- */

static bool is_sublayer(const struct stage *s, int part)
{
    return part < s->parts && s->part[part].layer.type->sublayer;
}

enum err stage_forward(const struct stage *s, const struct stage_mb *mb,
                       const struct stage_slot *slot, const struct stage_range *again)
{
    struct stage_range parts = again ? *again : (struct stage_range){0, s->parts};
    void *out = again ? s->work->at[WORK_D] : slot->out;
    parts.end -= again && parts.end == s->parts && stage_has_head(s);
    struct stage_call c = stage_call_of(s, mb, parts.first), next = c;
    c.save = slot->save[parts.first];
    for (int i = parts.first; i < parts.end; i++, c = next) {
        bool fused = is_sublayer(s, i) && is_sublayer(s, i + 1) && i + 1 < parts.end;
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
    bool kept = b->keep->per_slot ? b->keep->keep[part][KEEP_D_SUBLAYER] != NULL : p->grad_kept;
    return s->aliases_dy && kept ? b->keep->keep[part][KEEP_D_SUBLAYER] : s->work->at[WORK_D];
}

enum err stage_backward(const struct stage *s, const struct stage_back *b, enum stage_half half)
{
    for (int i = b->parts.end - 1; i >= b->parts.first; i--) {
        struct stage_call c = stage_call_of(s, b->mb, i);
        s->dev->part = i;
        c.save = b->slot->save[i];
        c.keep = b->keep->keep[i];
        c.dy = gradient_at(s, b, i);
        c.dx = i > 0                         ? gradient_at(s, b, i - 1)
               : model_stage_embed(&s->span) ? s->work->at[WORK_D]
                                             : b->dx;
        c.aliases_dy = s->aliases_dy;
        c.d_sublayer = c.aliases_dy ? c.dy : c.keep[KEEP_D_SUBLAYER] ? c.keep[KEEP_D_SUBLAYER]
                                                                     : c.dx;
        if (half == STAGE_WHOLE && s->tp.rows > 0 && c.p->kind->backward) {
            TRY(c.p->kind->backward(&c));
            continue;
        }
        if (half != STAGE_WEIGHT)
            TRY(c.p->kind->backward_input(&c));
        if (half != STAGE_INPUT)
            TRY(c.p->kind->backward_weight(&c));
    }
    return ERR_OK;
}
