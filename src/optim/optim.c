/* SPDX-License-Identifier: Apache-2.0
 *
 * Norm, clip, update. The squared norm of each parameter is summed in double, in registry order,
 * by each data rank over its share; the ranks' sums are added in rank order: the same layout gives
 * the same bits. Clipping and the division by the token count are one factor, applied while the
 * gradient is read. Sums and factor stay in device memory, so that a device with a queue is never
 * waited for.
 */
#include "optim/optim_local.h"

/* Data ranks hold the same gradients: each squares a part of every one. Where a part begins; a
 * multiple of a few lines of memory. */
static int64_t part_begins(const struct optim *o, const struct param *p, int replica)
{
    enum { WHOLE = 256 };
    return replica == o->replicas ? p->count
                                  : p->count / WHOLE * replica / o->replicas * WHOLE;
}

/* This rank's sums into o->sums. */
static enum err add_up(const struct optim *o, const struct optim_step *step)
{
    struct dev *dev = o->dev;
    double tokens = (double)step->tokens;
    TRY(dev->ops->zero(dev, o->sums, SUMS_COUNT * (int64_t)sizeof *o->sums));
    if (step->loss)
        TRY(dev->ops->copy(dev, &o->sums[SUMS_LOSS], step->loss, (int64_t)sizeof *o->sums));
    if (step->tokens > 0)
        TRY(dev->ops->copy_in(dev, &o->sums[SUMS_TOKENS], &tokens, (int64_t)sizeof tokens));
    for (int i = 0; i < o->stores; i++) {
        const struct param_store *s = o->store[i];
        for (int j = 0; j < s->n; j++) {
            const struct param *p = &s->param[j];
            int64_t begin = part_begins(o, p, o->replica);
            int64_t n = part_begins(o, p, o->replica + 1) - begin;
            if (p->counted && n > 0)
                TRY(dev->ops->sumsq(dev, &o->sums[SUMS_SQUARES],
                                    (char *)param_grad(p) + begin * s->at, n));
        }
    }
    return ERR_OK;
}

/* AdamW over all parameters with what stands in o->now. */
static enum err update(const struct optim *o)
{
    struct adamw a = {.beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps, .now = o->now};
    for (int i = 0; i < o->stores; i++) {
        const struct param_store *st = o->store[i];
        for (int j = 0; j < st->n; j++) {
            const struct param *p = &st->param[j];
            a.w = param_w(p);
            a.master = st->master == st->w ? NULL : param_master(p);
            a.m = st->m + p->offset * st->at;
            a.v = st->v + p->offset * st->at;
            a.grad = param_grad(p);
            a.n = p->count;
            a.decay = p->spec.decay ? o->decay : 0;
            TRY(o->dev->ops->adamw(o->dev, &a));
        }
    }
    return ERR_OK;
}

/* Rates and factor of the step into o->now. */
static enum err write_now(const struct optim *o, const struct optim_step *s, double factor)
{
    double now[NOW_COUNT] = {[NOW_LR] = s->lr, [NOW_SCALE] = factor};
    now[NOW_BIAS1] = 1.0 - pow(o->beta1, (double)s->step);
    now[NOW_BIAS2] = 1.0 - pow(o->beta2, (double)s->step);
    return o->dev->ops->copy_in(o->dev, o->now, now, (int64_t)sizeof now);
}

enum err optim_update(const struct optim *o, const struct optim_step *s, double scale)
{
    TRY(write_now(o, s, scale));
    return update(o);
}

enum err optim_sums(const struct optim *o, const struct optim_step *s, double sums[SUMS_COUNT])
{
    TRY(add_up(o, s));
    TRY(o->dev->ops->copy_out(o->dev, sums, o->sums, SUMS_COUNT * (int64_t)sizeof *sums));
    return o->dev->ops->sync(o->dev);
}

enum err optim_judge(const struct optim_step *s, const double sums[SUMS_COUNT],
                     struct optim_result *out)
{
    double tokens = sums[SUMS_TOKENS] > 0 ? sums[SUMS_TOKENS] : 1.0;
    *out = (struct optim_result){sums[SUMS_LOSS] / tokens, sqrt(sums[SUMS_SQUARES]) / tokens,
                                 (int64_t)sums[SUMS_TOKENS]};
    if (!isfinite(out->loss) || !isfinite(out->grad_norm))
        FAIL(ERR_NONFINITE, "step %lld has loss %g and gradient norm %g; use a smaller optim.lr, a "
                            "longer optim.warmup or optim.clip, or look at the data",
             (long long)s->step, out->loss, out->grad_norm);
    return ERR_OK;
}

bool optim_clips(const struct optim *o, double grad_norm)
{
    return o->clip > 0 && grad_norm > o->clip;
}

double optim_scale(const struct optim *o, const struct optim_result *r)
{
    double tokens = r->tokens > 0 ? (double)r->tokens : 1.0;
    return (optim_clips(o, r->grad_norm) ? o->clip / r->grad_norm : 1.0) / tokens;
}

enum err optim_start(const struct optim *o, const struct optim_step *s, double *landed)
{
    struct dev *dev = o->dev;
    TRY(add_up(o, s));
    if (o->world)
        TRY(comm_all_reduce(o->world, o->sums, SUMS_COUNT, DT_F64, COMM_SUM));
    TRY(dev->ops->copy_out(dev, landed, o->sums, SUMS_COUNT * (int64_t)sizeof *landed));
    TRY(write_now(o, s, NAN));
    TRY(dev->ops->scale(dev, o->now, o->sums, o->clip));
    return update(o);
}

enum err optim_run(const struct optim *o, const struct optim_step *s, struct optim_result *out)
{
    double landed[SUMS_COUNT];
    TRY(optim_start(o, s, landed));
    TRY(o->dev->ops->sync(o->dev));
    return optim_judge(s, landed, out);
}
