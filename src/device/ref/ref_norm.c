/* SPDX-License-Identifier: Apache-2.0
 *
 * LayerNorm (Ba, Kiros & Hinton 2016) and RMSNorm (Zhang & Sennrich 2019), row by row. With
 * xhat = (x - mean) rstd and g = dy w, the gradient is
 *     dx = d + rstd (g - avg(g) - xhat avg(g xhat))
 * where RMSNorm has no mean and so no avg(g).
 */
#include "device/ref/ref.h"

static double square(double x)
{
    return x * x;
}

enum err ref_norm(struct dev *d, const struct norm *a)
{
    const double *w = a->w, *b = a->b;
    double *means = a->mean, *rstds = a->rstd;
    (void)d;
    for (int64_t r = 0; r < a->n; r++) {
        const double *x = (const double *)a->x + r * a->c;
        double *y = (double *)a->y + r * a->c;
        double mean = 0, var = 0;
        if (!a->rms) {
            for (int64_t i = 0; i < a->c; i++)
                mean += x[i];
            mean /= (double)a->c;
        }
        for (int64_t i = 0; i < a->c; i++)
            var += square(x[i] - mean);
        double rstd = isfinite(var) ? 1.0 / sqrt(var / (double)a->c + a->eps) : NAN;
        for (int64_t i = 0; i < a->c; i++)
            y[i] = (x[i] - mean) * rstd * w[i] + (b ? b[i] : 0.0);
        if (means)
            means[r] = mean;
        rstds[r] = rstd;
    }
    return ERR_OK;
}

enum err ref_norm_grad(struct dev *d, const struct norm_grad *a)
{
    const double *w = a->w, *means = a->mean, *rstds = a->rstd;
    double *dw = a->dw, *db = a->db;
    (void)d;
    for (int64_t i = 0; i < a->c; i++)
        dw[i] = 0;
    for (int64_t i = 0; db && i < a->c; i++)
        db[i] = 0;
    for (int64_t r = 0; r < a->n; r++) {
        const double *x = (const double *)a->x + r * a->c;
        const double *dy = (const double *)a->dy + r * a->c;
        const double *add = a->d ? (const double *)a->d + r * a->c : NULL;
        double *dx = (double *)a->dx + r * a->c;
        double mean = a->rms ? 0.0 : means[r], rstd = rstds[r];
        double avg_g = 0, avg_gx = 0;
        for (int64_t i = 0; i < a->c; i++) {
            double xhat = (x[i] - mean) * rstd, g = dy[i] * w[i];
            avg_g += g;
            avg_gx += g * xhat;
            dw[i] += dy[i] * xhat;
            if (db)
                db[i] += dy[i];
        }
        avg_g = a->rms ? 0.0 : avg_g / (double)a->c;
        avg_gx /= (double)a->c;
        for (int64_t i = 0; i < a->c; i++) { /* dx may be d or x: read, then write */
            double xhat = (x[i] - mean) * rstd, g = dy[i] * w[i];
            dx[i] = (add ? add[i] : 0.0) + rstd * (g - avg_g - xhat * avg_gx);
        }
    }
    return ERR_OK;
}
