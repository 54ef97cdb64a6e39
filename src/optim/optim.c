/* SPDX-License-Identifier: Apache-2.0
 *
 * Norm, clip, update. Squares of gradients are summed in double, by each data rank over its share
 * of every parameter; the ranks' sums are added in rank order: the same layout gives the same bits.
 * Clipping and the division by the token count are one factor, applied while the gradient is read.
 * Sums and factor stay in device memory, so that a device with a queue is never waited for.
 *
 * A store is one flat vector, and both passes over it are one call each, or a few where there are
 * more parameters than a call takes parts: of hundreds of short ones a GPU would see little but
 * launches. The padding between parameters is updated with them: zeros that stay zeros.
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

/* Elements begin .. end - 1 as one more part. */
static void add_part(struct dev_parts *p, int64_t begin, int64_t end)
{
    p->edge[2 * p->n] = begin;
    p->edge[2 * p->n + 1] = end;
    p->n++;
}

/* This rank's share of the squares of a store's parameters from *at on, as many as one call takes;
 * *at: the first of those that are left. */
static enum err square_some(const struct optim *o, const struct param_store *s, int *at)
{
    struct dev_parts counted = {0};
    for (; *at < s->n && counted.n < DEV_PARTS; ++*at) {
        const struct param *p = &s->param[*at];
        int64_t begin = part_begins(o, p, o->replica), end = part_begins(o, p, o->replica + 1);
        if (!p->counted || begin == end)
            continue;
        (void)param_grad(p); /* it has been settled */
        add_part(&counted, p->offset + begin, p->offset + end);
    }
    if (counted.n == 0)
        return ERR_OK;
    return o->dev->ops->sumsq(o->dev, &o->sums[SUMS_SQUARES], s->grad, &counted);
}

/* This rank's sums into o->sums. */
static enum err add_up(const struct optim *o, const double *loss)
{
    struct dev *dev = o->dev;
    TRY(dev->ops->zero(dev, o->sums, SUMS_COUNT * (int64_t)sizeof *o->sums));
    if (loss)
        TRY(dev->ops->copy(dev, &o->sums[SUMS_LOSS], loss, (int64_t)sizeof *o->sums));
    TRY(dev->ops->copy(dev, &o->sums[SUMS_TOKENS], &o->now[NOW_TOKENS],
                       (int64_t)sizeof *o->sums));
    for (int i = 0; i < o->stores; i++)
        for (int j = 0; j < o->store[i]->n;)
            TRY(square_some(o, o->store[i], &j));
    return ERR_OK;
}

/* AdamW over the parameters of a store from *at on, as many as one call takes; *at: the first of
 * those that are left. */
static enum err update_some(const struct optim *o, const struct param_store *s, int *at)
{
    const struct param *first = &s->param[*at], *end = s->param + s->n, *p;
    struct dev_parts decays = {0};
    for (p = first; p < end && decays.n < DEV_PARTS; p++) {
        int64_t begin = p->offset - first->offset;
        (void)param_grad(p); /* each has been settled */
        if (p->spec.decay)
            add_part(&decays, begin, begin + p->count);
    }
    struct adamw a = {.w = param_w(first), .m = s->m + first->offset * s->at,
                      .v = s->v + first->offset * s->at, .grad = param_grad(first),
                      .n = (p < end ? p->offset : s->elements) - first->offset,
                      .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps, .decay = o->decay,
                      .decays = &decays, .now = o->now};
    a.master = s->master == s->w ? NULL : param_master(first);
    *at = (int)(p - s->param);
    return o->dev->ops->adamw(o->dev, &a);
}

/* AdamW over all parameters with what stands in o->now. */
static enum err update(const struct optim *o)
{
    for (int i = 0; i < o->stores; i++)
        for (int j = 0; j < o->store[i]->n;)
            TRY(update_some(o, o->store[i], &j));
    return ERR_OK;
}

/* Rates, tokens and factor of the step into o->now. */
static enum err write_now(const struct optim *o, const struct optim_step *s, double factor)
{
    double now[NOW_COUNT] = {[NOW_LR] = s->lr, [NOW_SCALE] = factor,
                             [NOW_TOKENS] = (double)s->tokens};
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
    TRY(optim_ready(o, s));
    TRY(add_up(o, s->loss));
    TRY(optim_land(o, sums));
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

enum err optim_ready(const struct optim *o, const struct optim_step *s)
{
    return write_now(o, s, NAN);
}

enum err optim_start(const struct optim *o, const double *loss)
{
    struct dev *dev = o->dev;
    TRY(add_up(o, loss));
    if (o->world)
        TRY(comm_all_reduce(o->world, o->sums, SUMS_COUNT, DT_F64, COMM_SUM));
    TRY(dev->ops->scale(dev, o->now, o->sums, o->clip));
    return update(o);
}

enum err optim_land(const struct optim *o, double *landed)
{
    return o->dev->ops->copy_out(o->dev, landed, o->sums, SUMS_COUNT * (int64_t)sizeof *landed);
}

enum err optim_run(const struct optim *o, const struct optim_step *s, struct optim_result *out)
{
    double landed[SUMS_COUNT];
    TRY(optim_ready(o, s));
    TRY(optim_start(o, s->loss));
    TRY(optim_land(o, landed));
    TRY(o->dev->ops->sync(o->dev));
    return optim_judge(s, landed, out);
}
