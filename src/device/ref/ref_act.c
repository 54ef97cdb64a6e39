/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to each element or pair of elements: rotary positions, SwiGLU (Shazeer 2020),
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

enum err ref_swiglu(struct dev *d, void *out, const void *gu, int64_t n, int64_t f)
{
    (void)d;
    for (int64_t r = 0; r < n; r++) {
        const double *gate = (const double *)gu + r * 2 * f, *up = gate + f;
        double *y = (double *)out + r * f;
        for (int64_t i = 0; i < f; i++)
            y[i] = gate[i] * sigmoid(gate[i]) * up[i];
    }
    return ERR_OK;
}

enum err ref_swiglu_grad(struct dev *d, void *dgu, const void *dout, const void *gu, int64_t n,
                         int64_t f)
{
    (void)d;
    for (int64_t r = 0; r < n; r++) {
        const double *gate = (const double *)gu + r * 2 * f, *up = gate + f;
        const double *dy = (const double *)dout + r * f;
        double *dgate = (double *)dgu + r * 2 * f, *dup = dgate + f;
        for (int64_t i = 0; i < f; i++) {
            double s = sigmoid(gate[i]);
            dgate[i] = dy[i] * up[i] * s * (1.0 + gate[i] * (1.0 - s));
            dup[i] = dy[i] * gate[i] * s;
        }
    }
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

enum err ref_dropout(struct dev *d, void *dx, const void *dy, int64_t n, int64_t c,
                     const struct drop *drop)
{
    (void)d;
    for (int64_t r = 0; r < n; r++) {
        for (int64_t i = 0; i < c; i++) {
            int64_t at = r * c + i;
            double factor = drop->p == 0 ? 1.0 : ref_drop_factor(drop, (drop->row0 + r) * c + i);
            ((double *)dx)[at] = ((const double *)dy)[at] * factor;
        }
    }
    return ERR_OK;
}
