/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank knows of its world, and what goes from its device to the transport of device memory,
 * if one is attached.
 */
#include "comm/core/core.h"

#include "device/device.h"

int comm_rank(const struct comm_world *w)
{
    return w->rank;
}

int comm_size(const struct comm_world *w)
{
    return w->size;
}

enum comm_kind comm_kind(const struct comm_world *w)
{
    return w->ops->kind;
}

double comm_spent(const struct comm_world *w)
{
    return w->spent;
}

struct traffic comm_sent(const struct comm_world *w)
{
    return w->sent;
}

void comm_abort(struct comm_world *w, enum err code)
{
    w->ops->abort(w, code);
    if (w->device)
        w->device->ops->abort(w);
}

enum err comm_detach(struct comm_world *w)
{
    if (w->device)
        dev_watch(w->dev, NULL, NULL);
    enum err err = w->device ? w->device->ops->close(w) : ERR_OK;
    w->device = NULL;
    w->dev = NULL;
    w->warm = false;
    return err;
}

void comm_graph_captured(struct comm_world *w, void (*graph_destroy)(void *arg), void *arg)
{
    w->graph_destroy = graph_destroy;
    w->graph_arg = arg;
}

enum err comm_graph_launched(struct comm_world *w, int64_t step, double seconds)
{
    return w->device ? w->device->ops->graph_launched(w, step, seconds) : ERR_OK;
}

void comm_warmup_end(struct comm_world *w)
{
    w->warm = true;
}

enum err comm_window_take(struct comm_world *w, int64_t bytes, const char *name, void **out)
{
    *out = NULL;
    return w->device && bytes > 0 ? w->device->ops->window_take(w, bytes, name, out) : ERR_OK;
}

int64_t comm_device_taken(const struct comm_world *w)
{
    return w->device_taken;
}
