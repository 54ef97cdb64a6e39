/* SPDX-License-Identifier: Apache-2.0
 *
 * Norm, clip, update. The squared norm of each parameter is summed in double, in registry order,
 * by each data rank over its share; the ranks' sums are added in rank order: the same layout gives
 * the same bits. Clipping and the division by the token count are one factor, applied while the
 * gradient is read.
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

/* Sum of squares of the gradients that this rank counts. */
static enum err local_norm(const struct optim *o, double *out)
{
    struct dev *dev = o->dev;
    TRY(dev->ops->zero(dev, o->scalar, (int64_t)sizeof *o->scalar));
    for (int i = 0; i < o->stores; i++) {
        const struct param_store *s = o->store[i];
        for (int j = 0; j < s->n; j++) {
            const struct param *p = &s->param[j];
            int64_t begin = part_begins(o, p, o->replica);
            int64_t n = part_begins(o, p, o->replica + 1) - begin;
            if (p->counted && n > 0)
                TRY(dev->ops->sumsq(dev, o->scalar, (char *)param_grad(p) + begin * s->at, n));
        }
    }
    TRY(dev->ops->copy_out(dev, out, o->scalar, (int64_t)sizeof *out));
    return dev->ops->sync(dev);
}

enum err optim_update(const struct optim *o, const struct optim_step *s, double scale)
{
    struct adamw a = {.lr = s->lr, .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps,
                      .bias1 = 1.0 - pow(o->beta1, (double)s->step),
                      .bias2 = 1.0 - pow(o->beta2, (double)s->step), .grad_scale = scale};
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

enum err optim_sums(const struct optim *o, const struct optim_step *s, double sums[OPTIM_SUMS])
{
    sums[OPTIM_LOSS] = s->loss_sum;
    sums[OPTIM_TOKENS] = (double)s->tokens;
    return local_norm(o, &sums[OPTIM_SQUARES]);
}

enum err optim_judge(const struct optim_step *s, const double sums[OPTIM_SUMS],
                     struct optim_result *out)
{
    double tokens = sums[OPTIM_TOKENS] > 0 ? sums[OPTIM_TOKENS] : 1.0;
    *out = (struct optim_result){sums[OPTIM_LOSS] / tokens, sqrt(sums[OPTIM_SQUARES]) / tokens,
                                 (int64_t)sums[OPTIM_TOKENS]};
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

enum err optim_run(const struct optim *o, const struct optim_step *s, struct optim_result *out)
{
    double sums[OPTIM_SUMS];
    struct optim_result r;
    TRY(optim_sums(o, s, sums));
    if (o->world)
        TRY(comm_all_reduce(o->world, sums, OPTIM_SUMS, DT_F64, COMM_SUM));
    TRY(optim_judge(s, sums, &r));
    TRY(optim_update(o, s, optim_scale(o, &r)));
    *out = r;
    return ERR_OK;
}
