/* SPDX-License-Identifier: Apache-2.0
 *
 * Flat vectors: AdamW (Loshchilov & Hutter 2019), sums, conversion, addition. Sums add in order
 * of the index.
 */
#include "device/ref/ref.h"

enum err ref_adamw(struct dev *d, const struct adamw *a)
{
    double *w = a->master ? a->master : a->w, *m = a->m, *v = a->v;
    const double *grad = a->grad, *scalars = a->step_scalars;
    const double lr = scalars[SCALAR_LR], scale = scalars[SCALAR_SCALE];
    (void)d;
    int bound = 0; /* bounds at or below i: an odd number inside a range */
    if (!isfinite(scale))
        return ERR_OK;
    for (int64_t i = 0; i < a->n; i++) {
        while (bound < 2 * a->decays->n && a->decays->bound[bound] <= i)
            bound++;
        double decay = bound & 1 ? a->decay : 0;
        double g = grad[i] * scale;
        m[i] = a->beta1 * m[i] + (1.0 - a->beta1) * g;
        v[i] = a->beta2 * v[i] + (1.0 - a->beta2) * g * g;
        double root = sqrt(v[i] / scalars[SCALAR_BIAS2]) + a->eps;
        double step = (m[i] / scalars[SCALAR_BIAS1]) / root;
        w[i] -= lr * (step + decay * w[i]);
        ((double *)a->w)[i] = w[i];
    }
    return ERR_OK;
}

enum err ref_sum(struct dev *d, const struct sum *a)
{
    (void)d;
    for (int64_t i = 0; i < a->n; i++)
        *a->out += ((const double *)a->x)[i];
    return ERR_OK;
}

enum err ref_sumsq(struct dev *d, const struct sumsq *a)
{
    (void)d;
    for (int p = 0; p < a->of->n; p++)
        for (int64_t i = a->of->bound[2 * p]; i < a->of->bound[2 * p + 1]; i++)
            *a->out += ((const double *)a->x)[i] * ((const double *)a->x)[i];
    return ERR_OK;
}

enum err ref_cast(struct dev *d, const struct flat *a)
{
    (void)d;
    for (int64_t i = 0; i < a->n; i++)
        ((double *)a->to)[i] = ((const double *)a->from)[i];
    return ERR_OK;
}

enum err ref_add(struct dev *d, const struct flat *a)
{
    (void)d;
    for (int64_t i = 0; i < a->n; i++)
        ((double *)a->to)[i] += ((const double *)a->from)[i];
    return ERR_OK;
}
