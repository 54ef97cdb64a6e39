/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows by token and by position. A shard of the vocabulary holds the tokens v0 .. v0 + rows - 1;
 * other tokens are some other rank's and give zeros here, so that the sum over ranks is the
 * whole table's row.
 */
#include "device/ref/ref.h"

static void add_row(double *restrict to, const double *restrict from, int64_t c)
{
    for (int64_t i = 0; i < c; i++)
        to[i] += from[i];
}

enum err ref_embed(struct dev *d, void *out, const void *w, const int32_t *token, int64_t n,
                   int64_t c, int64_t v0, int64_t rows)
{
    (void)d;
    for (int64_t r = 0; r < n; r++) {
        int64_t local = token[r] - v0;
        bool here = local >= 0 && local < rows;
        for (int64_t i = 0; i < c; i++)
            ((double *)out)[r * c + i] = here ? ((const double *)w)[local * c + i] : 0.0;
    }
    return ERR_OK;
}

enum err ref_embed_grad(struct dev *d, void *dw, const void *dy, const int32_t *token, int64_t n,
                        int64_t c, int64_t v0, int64_t rows)
{
    (void)d;
    for (int64_t r = 0; r < n; r++) {
        int64_t local = token[r] - v0;
        if (local >= 0 && local < rows)
            add_row((double *)dw + local * c, (const double *)dy + r * c, c);
    }
    return ERR_OK;
}

enum err ref_pos_add(struct dev *d, void *x, const void *w, int64_t n, int64_t c, int64_t t,
                     int64_t row0)
{
    (void)d;
    for (int64_t r = 0; r < n; r++)
        add_row((double *)x + r * c, (const double *)w + (row0 + r) % t * c, c);
    return ERR_OK;
}

enum err ref_pos_grad(struct dev *d, void *dw, const void *dy, int64_t n, int64_t c, int64_t t,
                      int64_t row0)
{
    (void)d;
    for (int64_t r = 0; r < n; r++)
        add_row((double *)dw + (row0 + r) % t * c, (const double *)dy + r * c, c);
    return ERR_OK;
}
