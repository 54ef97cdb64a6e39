/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank knows of its world, what goes from its device to the transport of device memory, if
 * one is attached, and groups: their members, and for one of device memory the same members in host
 * memory.
 */
#include "comm/core/core.h"

#include "base/mem.h"
#include "base/text.h"
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
        w->device->ops->abort(w, code);
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

enum err comm_check_finished(const struct comm_world *w)
{
    if (w->unfinished != 0)
        FAIL(ERR_INTERNAL, "comm: the rank ends with %lld unfinished operation%s",
             (long long)w->unfinished, text_plural(w->unfinished, "s"));
    return ERR_OK;
}

/* ---- groups ---- */

static enum err group_check(const struct comm_world *w, const struct comm_group_args *a)
{
    const int *ranks = a->ranks;
    int id = a->id, n = a->n;
    if (id < 0 || id >= COMM_GROUP_IDS)
        FAIL(ERR_INTERNAL, "comm: group id %d is outside 0..%d", id, COMM_GROUP_IDS - 1);
    if (n < 1 || n > w->size)
        FAIL(ERR_INTERNAL, "comm: group %d of %d members in a world of %d ranks", id, n, w->size);
    int me = 0;
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= w->size)
            FAIL(ERR_INTERNAL, "comm: group %d names rank %d, the world has 0..%d", id, ranks[i],
                 w->size - 1);
        for (int j = 0; j < i; j++)
            if (ranks[i] == ranks[j])
                FAIL(ERR_INTERNAL, "comm: group %d names rank %d twice", id, ranks[i]);
        me += ranks[i] == w->rank;
    }
    if (!me)
        FAIL(ERR_INTERNAL, "comm: rank %d opens group %d without being a member", w->rank, id);
    return ERR_OK;
}

enum err comm_group_open(struct comm_world *w, const struct comm_group_args *a,
                         struct comm_group **out)
{
    struct comm_group *g;
    enum err err;
    TRY(group_check(w, a));
    TRY(mem_new(1, sizeof *g, "a group", &g));
    *g = (struct comm_group){.world = w, .id = a->id, .n = a->n};
    g->device = w->dev && a->mem == COMM_DEVICE;
    g->tiny = a->max_bytes > 0 && a->max_bytes <= COMM_FEW_BYTES;
    g->overlapped = a->overlapped;
    g->window = a->window;
    g->window_bytes = a->window_bytes;
    g->also_nccl = a->also_nccl;
    TRY_OR(out_group, mem_new(a->n, sizeof *g->ranks, "the ranks of a group", &g->ranks));
    for (int i = 0; i < a->n; i++) {
        g->ranks[i] = a->ranks[i];
        if (a->ranks[i] == w->rank)
            g->me = i;
    }
    if (a->n > 1) {
        struct comm_group_args host = {.id = a->id, .ranks = a->ranks, .n = a->n};
        g->ops = g->device ? w->device->ops : w->ops;
        if (g->device)
            TRY_OR(out_group, comm_group_open(w, &host, &g->host));
        TRY_OR(out_group, g->ops->group_open(g, comm_scratch_bytes(comm_kind(w), a->n,
                                                                   a->max_bytes)));
    }
    *out = g;
    return ERR_OK;
out_group:
    comm_group_close(g->host);
    mem_free(g->ranks);
    mem_free(g);
    return err;
}

void comm_group_close(struct comm_group *g)
{
    if (!g)
        return;
    /* Only a rank that is failing leaves operations behind. Its buffers are about to go, so the
     * peers must stop using them first. */
    if (g->finished < g->started)
        comm_abort(g->world, ERR_INTERNAL);
    if (g->impl && g->ops->group_close)
        g->ops->group_close(g);
    comm_group_close(g->host);
    mem_free(g->ranks);
    mem_free(g);
}

int comm_group_rank(const struct comm_group *g)
{
    return g->me;
}

int comm_group_size(const struct comm_group *g)
{
    return g->n;
}

const struct traffic *comm_group_counted(const struct comm_group *g)
{
    return g->counted;
}

bool comm_group_copies(const struct comm_group *g)
{
    return g->copies;
}
