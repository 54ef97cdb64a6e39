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

enum err ref_embed(struct dev *d, const struct embed *a)
{
    (void)d;
    for (int64_t r = 0; r < a->n; r++) {
        int64_t local = a->token[r] - a->v0;
        bool here = local >= 0 && local < a->rows;
        for (int64_t i = 0; i < a->c; i++)
            ((double *)a->out)[r * a->c + i] =
                here ? ((const double *)a->w)[local * a->c + i] : 0.0;
    }
    return ERR_OK;
}

enum err ref_embed_grad(struct dev *d, const struct embed_grad *a)
{
    (void)d;
    for (int64_t r = 0; r < a->n; r++) {
        int64_t local = a->token[r] - a->v0;
        if (local >= 0 && local < a->rows)
            add_row((double *)a->dw + local * a->c, (const double *)a->dy + r * a->c, a->c);
    }
    return ERR_OK;
}

enum err ref_pos_add(struct dev *d, const struct pos_add *a)
{
    (void)d;
    for (int64_t r = 0; r < a->n; r++)
        add_row((double *)a->x + r * a->c, (const double *)a->w + (a->row0 + r) % a->t * a->c,
                a->c);
    return ERR_OK;
}

enum err ref_pos_grad(struct dev *d, const struct pos_grad *a)
{
    (void)d;
    for (int64_t r = 0; r < a->n; r++)
        add_row((double *)a->dw + (a->row0 + r) % a->t * a->c, (const double *)a->dy + r * a->c,
                a->c);
    return ERR_OK;
}
