/* SPDX-License-Identifier: Apache-2.0
 *
 * What is one kernel on a device that gains by it is here several calls of the device's own table.
 */
#include "device/dev_plain.h"

#include "base/log.h"
#include "base/mem.h"

enum err dev_plain_host_alloc(struct dev *d, int64_t bytes, const char *name, void **out)
{
    (void)d;
    TRY(mem_new(bytes, 1, name, out));
    return ERR_OK;
}

void dev_plain_host_free(struct dev *d, void *p)
{
    (void)d;
    mem_free(p);
}

enum err dev_plain_aside(struct dev *d, int slot, void *host_to, const void *from, int64_t bytes)
{
    (void)slot;
    return d->ops->copy_out(d, host_to, from, bytes);
}

enum err dev_plain_aside_reach(struct dev *d, bool *there)
{
    (void)d;
    if (there)
        *there = true;
    return ERR_OK;
}

enum err dev_plain_mark(struct dev *d, int which)
{
    (void)d;
    (void)which;
    return ERR_OK;
}

enum err dev_plain_stamps(struct dev *d, int64_t n, int64_t *first)
{
    TRY(mem_grow(d->stamps, d->stamps + n, sizeof *d->stamp, "stamps", &d->stamp));
    *first = d->stamps;
    d->stamps += n;
    return ERR_OK;
}

enum err dev_plain_stamp(struct dev *d, int64_t which)
{
    ENSURE(which >= 0 && which < d->stamps);
    d->stamp[which] = log_now();
    return ERR_OK;
}

enum err dev_plain_stamped(struct dev *d, int64_t which, double *seconds)
{
    ENSURE(which >= 0 && which < d->stamps);
    *seconds = d->stamp[which];
    return ERR_OK;
}

void *dev_plain_queue(struct dev *d)
{
    (void)d;
    return NULL;
}

enum err dev_plain_room(struct dev *d, int64_t *left, int64_t *all)
{
    (void)d;
    *left = *all = 0;
    return ERR_OK;
}

enum err dev_plain_residual_norm(struct dev *d, const struct residual *a, const struct norm *b)
{
    ENSURE(a->y == b->x && a->n == b->n && a->c == b->c);
    TRY(d->ops->residual(d, a));
    return d->ops->norm(d, b);
}

enum err dev_plain_xent(struct dev *d, const struct xent *x)
{
    TRY(d->ops->xent_max(d, x));
    TRY(d->ops->xent_sum(d, x));
    return d->ops->xent_grad(d, x);
}

double dev_plain_factor(const double *sums, double clip)
{
    double tokens = sums[SUMS_TOKENS] > 0 ? sums[SUMS_TOKENS] : 1.0;
    double norm = sqrt(sums[SUMS_SQUARES]) / tokens;
    if (!isfinite(sums[SUMS_LOSS]) || !isfinite(norm))
        return NAN;
    return (clip > 0 && norm > clip ? clip / norm : 1.0) / tokens;
}

enum err dev_plain_scale(struct dev *d, double *now, const double *sums, double clip)
{
    (void)d;
    now[NOW_SCALE] = now[NOW_LOST] != 0 ? NAN : dev_plain_factor(sums, clip);
    if (isnan(now[NOW_SCALE]))
        now[NOW_LOST] = 1;
    return ERR_OK;
}
