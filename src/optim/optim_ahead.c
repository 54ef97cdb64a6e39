/* SPDX-License-Identifier: Apache-2.0
 *
 * A step that does not wait for the norm (Qi et al., "Zero bubble pipeline parallelism", 2023,
 * section 4). The paper takes AdamW back by its inverse, which rounding makes inexact; here master
 * weights and moments are copied before the update, so that a step taken back leaves no trace and
 * one done again has the bits of one that waited. The copy costs memory, 12 bytes a parameter in
 * f32, which the plan counts.
 *
 * While many steps are clipped, as at the start of training, going ahead is work for nothing, so a
 * step goes ahead only after `trust` steps in a row that were not clipped. All ranks see the same
 * results and decide alike.
 */
#include "optim/optim_local.h"

bool optim_may_go_ahead(const struct optim_ahead *a)
{
    return a->within >= a->trust;
}

void optim_ahead_note(struct optim_ahead *a, const struct optim_result *r)
{
    a->within = optim_clips(a->o, r->grad_norm) ? 0 : a->within + 1;
}

/* Copies master weights (weights where they are one) and moments to the shadow, or back. */
static enum err copy_stores(const struct optim *o, bool back)
{
    for (int i = 0; i < o->stores; i++) {
        const struct param_store *s = o->store[i];
        int64_t bytes = s->elements * s->at;
        char *from[] = {s->master, s->m, s->v};
        for (int k = 0; k < 3; k++) {
            char *shadow = s->shadow + k * bytes;
            TRY(dev_copy(o->dev, back ? from[k] : shadow, back ? shadow : from[k], bytes));
        }
    }
    return ERR_OK;
}

static enum err each_slot(const struct optim *o, enum err (*call)(struct dev *d, int slot))
{
    for (int slot = 0; slot < DEV_ASIDES; slot++)
        TRY(call(o->dev, slot));
    return ERR_OK;
}

/* As before the step: weights are their masters, rounded. */
static enum err take_back(const struct optim *o)
{
    TRY(each_slot(o, o->dev->ops->aside_join));
    TRY(copy_stores(o, true));
    TRY(each_slot(o, o->dev->ops->aside_ready));
    for (int i = 0; i < o->stores; i++) {
        const struct param_store *s = o->store[i];
        if (s->master != s->w)
            TRY(dev_cast(o->dev, s->w, s->master, s->elements));
    }
    return ERR_OK;
}

enum err optim_go_ahead(struct optim_ahead *a, const struct optim_step *s, double tokens,
                        const double sums[SUMS_COUNT])
{
    struct optim_result so_far = {.tokens = (int64_t)tokens,
                                  .grad_norm = sqrt(sums[SUMS_SQUARES]) / tokens};
    a->step = *s;
    a->tokens = tokens;
    a->went++;
    a->stepped = isfinite(so_far.grad_norm) && !optim_clips(a->o, so_far.grad_norm);
    if (!a->stepped)
        return ERR_OK;
    TRY(copy_stores(a->o, false));
    return optim_update(a->o, s, optim_scale(a->o, &so_far));
}

enum err optim_prove(struct optim_ahead *a, const double sums[SUMS_COUNT],
                     struct optim_result *out, bool *again)
{
    struct optim_result r;
    if (sums[SUMS_TOKENS] != a->tokens)
        FAIL(ERR_INTERNAL, "step %lld went ahead for %g tokens and has %g", (long long)a->step.step,
             a->tokens, sums[SUMS_TOKENS]);
    enum err err = optim_judge(&a->step, sums, &r);
    *again = err != ERR_OK || optim_clips(a->o, r.grad_norm);
    if (*again && a->stepped)
        TRY(take_back(a->o));
    TRY(err);
    if (*again) {
        a->undone++;
        TRY(optim_update(a->o, &a->step, optim_scale(a->o, &r)));
    }
    *out = r;
    return ERR_OK;
}
