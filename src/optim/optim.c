/* SPDX-License-Identifier: Apache-2.0
 *
 * Norm, clip, update. Squares of gradients are summed in double, by each data rank over its share
 * of every parameter; the ranks' sums are added in rank order: the same layout gives the same bits.
 * Clipping and the division by the token count are one factor, applied while the gradient is read.
 * Sums and factor stay in device memory, so that an async device is never waited for.
 *
 * A store is one flat vector, and both passes over it are one call each, or a few where there are
 * more parameters than a call takes ranges: of hundreds of short ones a GPU would see little but
 * launches. The padding between parameters is updated with them: zeros that stay zeros.
 */
#include "optim/optim.h"

/* Data ranks hold the same gradients: each squares a part of every one. Where a part begins; a
 * multiple of a few lines of memory. */
static int64_t part_begins(const struct optim *o, const struct param *p, int replica)
{
    enum { WHOLE = 256 };
    return replica == o->replicas ? p->count
                                  : p->count / WHOLE * replica / o->replicas * WHOLE;
}

/* Elements begin .. end - 1 as one more range. */
static void add_range(struct dev_ranges *p, int64_t begin, int64_t end)
{
    p->bound[2 * p->n] = begin;
    p->bound[2 * p->n + 1] = end;
    p->n++;
}

static enum err square_parts(const struct optim *o, const struct param_store *s,
                             struct dev_ranges *p)
{
    if (p->n > 0)
        TRY(dev_sumsq(o->dev,
                      &(struct sumsq){&o->sums[SUMS_SQUARES], s->grad, p, dev_ranges_count(p)}));
    p->n = 0;
    return ERR_OK;
}

/* This rank's share of the squares of a store, in as few calls as their ranges allow: where updates
 * are shared what it owns, else a part of what all data ranks hold alike. */
static enum err square(const struct optim *o, const struct param_store *s)
{
    struct dev_ranges counted = {0};
    for (int piece = 0; piece < param_share_pieces(s); piece++) {
        struct param_range own = param_share_of(s, piece);
        for (int i = 0; i < s->n; i++) {
            const struct param *p = &s->param[i];
            int64_t begin = p->offset + part_begins(o, p, o->replica);
            int64_t end = p->offset + part_begins(o, p, o->replica + 1);
            if (s->num_shards > 1) {
                begin = num_max(p->offset, own.begin);
                end = num_min(p->offset + p->count, own.end);
            }
            if (!p->counted || begin >= end)
                continue;
            add_range(&counted, begin, end);
            if (counted.n == DEV_RANGES)
                TRY(square_parts(o, s, &counted));
        }
    }
    return square_parts(o, s, &counted);
}

_Static_assert((int)SUMS_STOP == SUMS_TOKENS + 1 && (int)SCALAR_STOP == SCALAR_TOKENS + 1 &&
                   (int)SUMS_SAVED == SUMS_TOKENS + 2 && (int)SCALAR_SAVED == SCALAR_TOKENS + 2,
               "tokens and what a rank says are one copy");

/* This rank's sums into o->sums. */
static enum err add_up(const struct optim *o, const double *loss)
{
    struct dev *dev = o->dev;
    TRY(dev_zero(dev, o->sums, SUMS_COUNT * (int64_t)sizeof *o->sums));
    if (loss)
        TRY(dev_copy(dev, &o->sums[SUMS_LOSS], loss, (int64_t)sizeof *o->sums));
    TRY(dev_copy(dev, &o->sums[SUMS_TOKENS], &o->step_scalars[SCALAR_TOKENS],
                 3 * (int64_t)sizeof *o->sums));
    for (int i = 0; i < o->stores; i++) {
        TRY(param_grads_settle(o->store[i]));
        TRY(square(o, o->store[i]));
    }
    return ERR_OK;
}

/* AdamW over the elements of *left, as many as one call takes; *left: those that are left, of
 * parameter *at on. */
static enum err update_some(const struct optim *o, const struct param_store *s,
                            struct param_range *left, int *at)
{
    struct dev_ranges decays = {0};
    int64_t begin = left->begin, end = left->end;
    for (; *at < s->n && s->param[*at].offset < end; ++*at) {
        const struct param *p = &s->param[*at];
        int64_t from = num_max(p->offset, begin), to = num_min(p->offset + p->count, end);
        if (decays.n == DEV_RANGES) {
            end = p->offset;
            break;
        }
        (void)param_grad(p); /* each has been settled */
        if (p->spec.decay && from < to)
            add_range(&decays, from - begin, to - begin);
    }
    struct adamw a = {.w = s->w + begin * s->ct, .m = s->m + left->own * s->at,
                      .v = s->v + left->own * s->at, .grad = s->grad + begin * s->at,
                      .n = end - begin, .beta1 = o->rule.beta1, .beta2 = o->rule.beta2,
                      .eps = o->rule.eps, .decay = o->rule.decay, .decays = &decays,
                      .step_scalars = o->step_scalars};
    a.master = s->master == s->w ? NULL : s->master + left->own * s->at;
    *left = (struct param_range){end, left->end, left->own + end - begin};
    return dev_adamw(o->dev, &a);
}

enum err optim_update(const struct optim *o, const struct param_store *s, int piece)
{
    struct param_range left = param_share_of(s, piece);
    while (left.begin < left.end) {
        int64_t n = num_min(left.end - left.begin, s->slot - left.own % s->slot);
        /* What lies in one slot: a snapshot may still read it (param_state.h), and the next may
         * begin with it while the others are updated. */
        struct param_range some = {left.begin, left.begin + n, left.own};
        int at = 0, slot = param_slot(s, left.own);
        while (at < s->n && s->param[at].offset + s->param[at].count <= some.begin)
            at++;
        TRY(o->dev->ops->snapshot_join(o->dev, slot));
        while (some.begin < some.end)
            TRY(update_some(o, s, &some, &at));
        TRY(o->dev->ops->snapshot_ready(o->dev, slot));
        left.begin += n;
        left.own += n;
    }
    return ERR_OK;
}

/* Two counts of ranks travel as one number, which is exact. */
enum { SAVE_UNIT = 1 << 24 };

enum err optim_ready(const struct optim *o, const struct optim_step *s)
{
    double scalars[SCALAR_LOST] = {[SCALAR_LR] = s->lr, [SCALAR_SCALE] = NAN,
                                   [SCALAR_TOKENS] = (double)s->tokens,
                                   [SCALAR_STOP] = s->stop + (double)SAVE_UNIT * s->save,
                                   [SCALAR_SAVED] = s->saved};
    scalars[SCALAR_BIAS1] = 1.0 - pow(o->rule.beta1, (double)s->step);
    scalars[SCALAR_BIAS2] = 1.0 - pow(o->rule.beta2, (double)s->step);
    return dev_h2d(o->dev, o->step_scalars, scalars, (int64_t)sizeof scalars);
}

enum err optim_sums(const struct optim *o, const struct optim_step *s, const double *loss,
                    double sums[SUMS_COUNT])
{
    TRY(optim_ready(o, s));
    TRY(add_up(o, loss));
    TRY(optim_land(o, sums));
    return o->dev->ops->sync(o->dev);
}

enum err optim_judge(const struct optim_step *s, const double sums[SUMS_COUNT],
                     struct optim_result *out)
{
    double tokens = sums[SUMS_TOKENS] > 0 ? sums[SUMS_TOKENS] : 1.0;
    int64_t asks = (int64_t)sums[SUMS_STOP];
    *out = (struct optim_result){sums[SUMS_LOSS] / tokens, sqrt(sums[SUMS_SQUARES]) / tokens,
                                 (int64_t)sums[SUMS_TOKENS], (int)(asks % SAVE_UNIT),
                                 (int)(asks / SAVE_UNIT), (int)sums[SUMS_SAVED]};
    if (!isfinite(out->loss) || !isfinite(out->grad_norm))
        FAIL(ERR_NONFINITE, "step %lld has loss %g and gradient norm %g", (long long)s->step,
             num_unsigned_nan(out->loss), num_unsigned_nan(out->grad_norm));
    return ERR_OK;
}

enum err optim_norm(const struct optim *o, const double *loss)
{
    TRY(add_up(o, loss));
    TRY(comm_all_reduce(o->world, o->sums, SUMS_COUNT, DT_F64, COMM_SUM));
    return dev_scale(o->dev, &(struct scale){o->step_scalars, o->sums, o->rule.clip});
}

enum err optim_land(const struct optim *o, double *landed)
{
    return dev_d2h(o->dev, landed, o->sums, SUMS_COUNT * (int64_t)sizeof *landed);
}
