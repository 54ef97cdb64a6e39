/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross entropy over a vocabulary that may be split by columns. Between the steps the ranks take
 * the maximum of `max` and add up `sum` and `target_logit`; what the last step reads is therefore
 * the whole row's, while its columns are this shard's. A row without a target is skipped by the
 * last step alone, so that the sums in between need no case.
 */
#include "device/ref/ref.h"

/* Column of row r's target in this shard, or -1. */
static int64_t target_column(const struct xent *x, int64_t r)
{
    int64_t column = x->target[r] - x->v0;
    return x->target[r] >= 0 && column >= 0 && column < x->v ? column : -1;
}

enum err ref_xent_max(struct dev *d, const struct xent *x)
{
    (void)d;
    for (int64_t r = 0; r < x->n; r++) {
        const double *logit = (const double *)x->logits + r * x->ld;
        double max = -INFINITY;
        for (int64_t j = 0; j < x->v; j++)
            max = logit[j] > max ? logit[j] : max;
        ((double *)x->max)[r] = max;
    }
    return ERR_OK;
}

enum err ref_xent_sum(struct dev *d, const struct xent *x)
{
    (void)d;
    for (int64_t r = 0; r < x->n; r++) {
        const double *logit = (const double *)x->logits + r * x->ld;
        double max = ((const double *)x->max)[r], sum = 0;
        int64_t target = target_column(x, r);
        for (int64_t j = 0; j < x->v; j++)
            sum += exp(logit[j] - max);
        ((double *)x->sum)[r] = sum;
        ((double *)x->target_logit)[r] = target < 0 ? 0.0 : logit[target];
    }
    return ERR_OK;
}

/* dlogits of one row that counts: softmax minus one at the target. */
static void grad_row(const struct xent *x, int64_t r, double *dlogit)
{
    const double *logit = (const double *)x->logits + r * x->ld;
    double max = ((const double *)x->max)[r], sum = ((const double *)x->sum)[r];
    int64_t target = target_column(x, r);
    for (int64_t j = 0; j < x->v; j++)
        dlogit[j] = exp(logit[j] - max) / sum - (j == target ? 1.0 : 0.0);
}

enum err ref_xent_grad(struct dev *d, const struct xent *x)
{
    const double *max = x->max, *sum = x->sum, *target_logit = x->target_logit;
    (void)d;
    for (int64_t r = 0; r < x->n; r++) {
        bool counts = x->target[r] >= 0;
        ((double *)x->loss)[r] = counts ? log(sum[r]) + max[r] - target_logit[r] : 0.0;
        if (!x->dlogits)
            continue;
        double *dlogit = (double *)x->dlogits + r * x->ld;
        for (int64_t j = 0; j < x->ld; j++)
            dlogit[j] = 0;
        if (counts)
            grad_row(x, r, dlogit);
    }
    return ERR_OK;
}
