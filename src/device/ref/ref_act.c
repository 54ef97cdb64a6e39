/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to each element or pair of elements: rotary positions, SwiGLU (Shazeer 2020), ReLU,
 * residual addition with bias and dropout.
 */
#include "device/ref/ref.h"

enum err ref_rope(struct dev *d, const struct rope *a)
{
    int64_t half = a->d / 2;
    (void)d;
    for (int64_t r = 0; r < a->n; r++) {
        const double *cosine = (const double *)a->table + (a->pos0 + r % a->t) * a->d;
        const double *sine = cosine + half;
        for (int64_t h = 0; h < a->heads; h++) {
            double *x = (double *)a->x + r * a->ld + h * a->d;
            for (int64_t i = 0; i < half; i++) {
                double s = a->inverse ? -sine[i] : sine[i];
                double x0 = x[i], x1 = x[i + half];
                x[i] = x0 * cosine[i] - x1 * s;
                x[i + half] = x1 * cosine[i] + x0 * s;
            }
        }
    }
    return ERR_OK;
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

enum err ref_swiglu(struct dev *d, const struct swiglu *a)
{
    (void)d;
    for (int64_t r = 0; r < a->n; r++) {
        const double *gate = (const double *)a->gu + r * 2 * a->f, *up = gate + a->f;
        double *y = (double *)a->out + r * a->f;
        for (int64_t i = 0; i < a->f; i++)
            y[i] = gate[i] * sigmoid(gate[i]) * up[i];
    }
    return ERR_OK;
}

enum err ref_swiglu_grad(struct dev *d, const struct swiglu_grad *a)
{
    (void)d;
    for (int64_t r = 0; r < a->n; r++) {
        const double *gate = (const double *)a->gu + r * 2 * a->f, *up = gate + a->f;
        const double *dy = (const double *)a->dout + r * a->f;
        double *dgate = (double *)a->dgu + r * 2 * a->f, *dup = dgate + a->f;
        for (int64_t i = 0; i < a->f; i++) {
            double s = sigmoid(gate[i]);
            dgate[i] = dy[i] * up[i] * s * (1.0 + gate[i] * (1.0 - s));
            dup[i] = dy[i] * gate[i] * s;
        }
    }
    return ERR_OK;
}

enum err ref_relu(struct dev *d, const struct relu *a)
{
    const double *x = a->x;
    double *y = a->y;
    (void)d;
    for (int64_t i = 0; i < a->n; i++)
        y[i] = x[i] <= 0 ? 0 : x[i];
    return ERR_OK;
}

enum err ref_relu_grad(struct dev *d, const struct relu_grad *a)
{
    const double *dy = a->dy, *x = a->x;
    double *dx = a->dx;
    (void)d;
    for (int64_t i = 0; i < a->n; i++)
        dx[i] = x[i] <= 0 ? 0 : dy[i];
    return ERR_OK;
}

enum err ref_residual(struct dev *d, const struct residual *a)
{
    const double *x = a->x, *f = a->f, *bias = a->bias;
    (void)d;
    for (int64_t r = 0; r < a->n; r++) {
        for (int64_t i = 0; i < a->c; i++) {
            int64_t at = r * a->c + i;
            double add = f[at] + (bias ? bias[i] : 0.0);
            if (a->drop.p != 0)
                add *= ref_drop_factor(&a->drop, (a->drop.row0 + r) * a->c + i);
            ((double *)a->y)[at] = (x ? x[at] : 0.0) + add;
        }
    }
    return ERR_OK;
}

enum err ref_dropout(struct dev *d, const struct dropout *a)
{
    (void)d;
    for (int64_t r = 0; r < a->n; r++) {
        for (int64_t i = 0; i < a->c; i++) {
            int64_t at = r * a->c + i;
            double factor = ref_drop_factor(&a->drop, (a->drop.row0 + r) * a->c + i);
            ((double *)a->dx)[at] = ((const double *)a->dy)[at] * factor;
        }
    }
    return ERR_OK;
}
