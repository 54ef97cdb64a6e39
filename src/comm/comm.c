/* SPDX-License-Identifier: Apache-2.0
 *
 * The face of the folder: each kind of message and collective by its name.
 */
#include "comm/comm.h"

#include "base/mem.h"
#include "comm/core/core.h"
#include <stdlib.h>

/* ---- messages ---- */

enum err comm_send_start(struct comm_world *w, int to, int tag, const void *p, int64_t bytes,
                         struct comm_req *r)
{
    struct comm_msg m = {.from = w->rank, .to = to, .tag = tag, .bytes = bytes, .src = p};
    return comm_msg_start(w, &m, COMM_HOST_LANE, r);
}

enum err comm_recv_start(struct comm_world *w, int from, int tag, void *p, int64_t bytes,
                         struct comm_req *r)
{
    /* A receive is known by its destination; an empty one may come without. */
    static char nothing;
    struct comm_msg m = {.from = from, .to = w->rank, .tag = tag, .bytes = bytes,
                         .dst = p || bytes != 0 ? p : &nothing};
    return comm_msg_start(w, &m, COMM_HOST_LANE, r);
}

/* ---- messages in device memory ---- */

/* The order in which every rank opens its channels. */
static int by_ends(const void *a, const void *b)
{
    const struct comm_channel *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    return (x->lane > y->lane) - (x->lane < y->lane);
}

enum err comm_channels_open(struct comm_world *w, const struct comm_channel *c, int n)
{
    for (int i = 0; i < n; i++) {
        int peer = c[i].from == w->rank ? c[i].to : c[i].from;
        bool mine = c[i].from == w->rank || c[i].to == w->rank;
        if (!mine || peer == w->rank || peer < 0 || peer >= w->size || c[i].lane < 0 ||
            c[i].lane >= COMM_LANES)
            FAIL(ERR_INTERNAL, "comm: rank %d of %d opens lane %d from rank %d to rank %d; it must "
                               "be one end of it, and lanes are 0..%d", w->rank, w->size, c[i].lane,
                 c[i].from, c[i].to, COMM_LANES - 1);
    }
    if (!w->device || n == 0)
        return ERR_OK;
    struct comm_channel *sorted;
    TRY(mem_new(n, sizeof *sorted, "channels", &sorted));
    memcpy(sorted, c, (size_t)n * sizeof *c);
    qsort(sorted, (size_t)n, sizeof *sorted, by_ends);
    enum err err = ERR_OK;
    for (int i = 0; i < n && err == ERR_OK; i++)
        err = w->device->ops->channel_open(w, &sorted[i]);
    mem_free(sorted);
    return err;
}

enum err comm_device_send_start(struct comm_world *w, const struct comm_device_msg *m,
                                struct comm_req *r)
{
    struct comm_msg x = {.from = w->rank, .to = m->peer, .tag = m->tag, .bytes = m->bytes,
                         .src = m->p};
    return comm_msg_start(w, &x, w->device ? m->lane : COMM_HOST_LANE, r);
}

enum err comm_device_recv_start(struct comm_world *w, const struct comm_device_msg *m,
                                struct comm_req *r)
{
    struct comm_msg x = {.from = m->peer, .to = w->rank, .tag = m->tag, .bytes = m->bytes,
                         .dst = m->p};
    return comm_msg_start(w, &x, w->device ? m->lane : COMM_HOST_LANE, r);
}

/* ---- collectives ---- */

static struct comm_coll coll(enum comm_coll_kind k, void *out, const void *in, int64_t count,
                             enum dtype dt)
{
    return (struct comm_coll){.kind = k, .dt = dt, .count = count, .out = out, .in = in};
}

enum err comm_all_reduce_start(struct comm_group *g, void *p, int64_t count, enum dtype dt,
                               enum comm_red op, struct comm_req *r)
{
    struct comm_coll c = coll(COMM_ALL_REDUCE, p, p, count, dt);
    c.red = op;
    return comm_coll_start(g, &c, r);
}

enum err comm_all_reduce(struct comm_group *g, void *p, int64_t count, enum dtype dt,
                         enum comm_red op)
{
    struct comm_coll c = coll(COMM_ALL_REDUCE, p, p, count, dt);
    c.red = op;
    return comm_coll_run(g, &c);
}

enum err comm_reduce_scatter_start(struct comm_group *g, void *out, const void *in, int64_t count,
                                   enum dtype dt, struct comm_req *r)
{
    struct comm_coll c = coll(COMM_REDUCE_SCATTER, out, in, count, dt);
    return comm_coll_start(g, &c, r);
}

enum err comm_reduce_scatter(struct comm_group *g, void *out, const void *in, int64_t count,
                             enum dtype dt)
{
    struct comm_coll c = coll(COMM_REDUCE_SCATTER, out, in, count, dt);
    return comm_coll_run(g, &c);
}

enum err comm_all_gather_start(struct comm_group *g, void *out, const void *in, int64_t count,
                               enum dtype dt, struct comm_req *r)
{
    struct comm_coll c = coll(COMM_ALL_GATHER, out, in, count, dt);
    return comm_coll_start(g, &c, r);
}

enum err comm_all_gather(struct comm_group *g, void *out, const void *in, int64_t count,
                         enum dtype dt)
{
    struct comm_coll c = coll(COMM_ALL_GATHER, out, in, count, dt);
    return comm_coll_run(g, &c);
}

enum err comm_reduce_start(struct comm_group *g, int root, void *out, const void *in, int64_t count,
                           enum dtype dt, struct comm_req *r)
{
    struct comm_coll c = coll(COMM_REDUCE, out, in, count, dt);
    c.root = root;
    return comm_coll_start(g, &c, r);
}

enum err comm_all_to_all(struct comm_group *g, const struct comm_to_all *a)
{
    struct comm_coll c = coll(COMM_ALL_TO_ALL, a->out, a->in, 0, a->dt);
    c.recv = a->recv;
    c.send = a->send;
    return comm_coll_run(g, &c);
}

enum err comm_broadcast(struct comm_group *g, int root, void *p, int64_t bytes)
{
    struct comm_coll c = {.kind = COMM_BROADCAST, .root = root, .count = bytes, .out = p, .in = p};
    return comm_coll_run(g, &c);
}

enum err comm_barrier(struct comm_group *g)
{
    return comm_coll_run(g->host ? g->host : g, &(struct comm_coll){.kind = COMM_BARRIER});
}
