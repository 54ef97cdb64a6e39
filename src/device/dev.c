/* SPDX-License-Identifier: Apache-2.0
 *
 * What every device has, whatever its kind. The kinds themselves stand above (device.c).
 */
#include "device/device.h"

#include "base/mem.h"

/* Logits of a cuda device in bf16 stay in bf16: they are written once, and their gradient over
 * them. Its GEMMs want many rows at once. */
struct dtypes dev_types(enum dev_kind k, enum dtype ct)
{
    struct dtypes t = {.ct = ct, .at = ct == DT_F64 ? DT_F64 : DT_F32, .chunk = 256 << 20};
    t.logits = t.at;
    if (k == DEV_CUDA) {
        t.logits = ct;
        t.chunk = 1 << 30;
    }
    return t;
}

void dev_hook_put(struct dev *d, struct dev_hook *h)
{
    h->next = d->hook;
    d->hook = h;
}

void dev_hook_take(struct dev *d, struct dev_hook *h)
{
    struct dev_hook **at = &d->hook;
    while (*at && *at != h)
        at = &(*at)->next;
    if (*at)
        *at = h->next;
}

void dev_watch(struct dev *d, enum err (*check)(void *arg), void *arg)
{
    d->watch = check;
    d->watch_arg = arg;
}

enum err dev_waited(const struct dev *d)
{
    return d->watch ? d->watch(d->watch_arg) : ERR_OK;
}

enum err dev_choices(struct dev *d, struct text *out)
{
    return d->ops->choices ? d->ops->choices(d, out) : ERR_OK;
}

enum err dev_choose(struct dev *d, const char *choices, bool *taken)
{
    *taken = true;
    return d->ops->choose ? d->ops->choose(d, choices, taken) : ERR_OK;
}

void dev_close(struct dev *d)
{
    if (!d)
        return;
    double *timer = d->timer;
    d->ops->close(d);
    mem_free(timer);
}
