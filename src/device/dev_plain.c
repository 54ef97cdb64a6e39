/* SPDX-License-Identifier: Apache-2.0
 *
 * Nothing waits, and time is the host's.
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

enum err dev_plain_snapshot_synchronize(struct dev *d, bool *there)
{
    (void)d;
    if (there)
        *there = true;
    return ERR_OK;
}

enum err dev_plain_event(struct dev *d, int which)
{
    (void)d;
    (void)which;
    return ERR_OK;
}

enum err dev_plain_timer_alloc(struct dev *d, int64_t n, int64_t *first)
{
    TRY(mem_grow(d->timers, d->timers + n, sizeof *d->timer, "timers", &d->timer));
    *first = d->timers;
    d->timers += n;
    return ERR_OK;
}

enum err dev_plain_timer_record(struct dev *d, int64_t which)
{
    ENSURE(which >= 0 && which < d->timers);
    d->timer[which] = log_now();
    return ERR_OK;
}

enum err dev_plain_timer_read(struct dev *d, int64_t which, double *seconds)
{
    ENSURE(which >= 0 && which < d->timers);
    *seconds = d->timer[which];
    return ERR_OK;
}

void *dev_plain_stream(struct dev *d)
{
    (void)d;
    return NULL;
}

enum err dev_plain_mem_info(struct dev *d, int64_t *free_bytes, int64_t *total)
{
    (void)d;
    *free_bytes = *total = 0;
    return ERR_OK;
}
