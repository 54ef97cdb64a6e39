/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank knows of its world, what goes from its device to the transport of device memory, if
 * one is attached, groups: their members, and for one of device memory the same members in host
 * memory; and what a transport takes of memory.
 */
#include "comm/core/core.h"

#include "base/mem.h"
#include "base/text.h"
#include "device/device.h"

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
    *g = (struct comm_group){.world = w, .id = a->id, .n = a->n, .overlapped = a->overlapped,
                             .window = a->window, .window_bytes = a->window_bytes,
                             .also_nccl = a->also_nccl};
    g->device = w->dev && a->mem == COMM_DEVICE;
    g->tiny = a->max_bytes > 0 && a->max_bytes <= COMM_FEW_BYTES;
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

/* ---- what a transport takes of memory, known before it is there ----
 * Staging in host memory is ours and exact. What NCCL takes of a GPU is its own affair; the figures
 * are from cudaMemGetInfo around each opening (PLAIT_LOG=debug prints them), NCCL 2.28 on two H200,
 * rounded up: buffers of every communicator, by the SMs it may take, and once in a process the
 * kernels. Ranks that share a GPU have no communicator, and a group's staging is most of what each
 * takes. */

int64_t comm_scratch_bytes(enum comm_kind k, int n, int64_t max_bytes)
{
    if (k == COMM_THREAD || n < 2)
        return 0;
    int64_t most = COMM_WINDOW_BYTES / (n - 1) / COMM_SLICE_ALIGN;
    int64_t bytes = num_max(0, num_min(max_bytes, (int64_t)n * COMM_WINDOW_BYTES));
    int64_t slice = num_ceil_div(num_ceil_div(bytes, n), COMM_SLICE_ALIGN);
    return (n - 1) * COMM_SLICE_ALIGN * num_max(1, num_min(slice, most));
}

enum { MIB = 1 << 20, KERNELS = 384 * MIB, FULL = 490 * MIB, OVERLAPPED = 250 * MIB,
       TINY = 32 * MIB, CHANNEL = 200 * MIB, P2P = 16 * MIB };

bool comm_would_copy(enum comm_kind k, int n)
{
    return k == COMM_THREAD && n <= COMM_COPIES_MEMBERS;
}

int64_t comm_device_bytes(enum comm_kind k, const struct comm_device_plan *p)
{
    if (p->shared)
        return (p->full + (p->window > 1) + (p->also_nccl > 1)) * (int64_t)COMM_COPIES_BYTES +
               (p->tiny + p->channels) * (int64_t)P2P;
    bool sums = !p->no_p2p && comm_would_copy(k, p->window);
    bool moves = !p->no_p2p && comm_would_copy(k, p->also_nccl);
    bool p2p = !p->stages_no_p2p && comm_would_copy(k, 2);
    int64_t lanes = p->full * (int64_t)FULL + p->tiny * (int64_t)TINY +
                    p->channels * (int64_t)(p2p ? P2P : CHANNEL);
    if (p->window > 1)
        lanes += sums ? (int64_t)COMM_COPIES_BYTES : (int64_t)FULL;
    if (p->also_nccl > 1)
        lanes += moves ? (int64_t)COMM_COPIES_BYTES + TINY
                       : (int64_t)(p->overlapped ? OVERLAPPED : FULL);
    return lanes > 0 ? KERNELS + lanes : 0;
}
