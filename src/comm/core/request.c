/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages and collectives, each by its name, as requests: callers' mistakes are found here, groups
 * of one member are answered without a transport, and the rest goes to a transport's table.
 *
 * Operations of a group have numbers (started, finished). Finishing number k finishes all before
 * it, so a call that waits (a reduce_scatter between two started all_reduces) keeps the order.
 */
#include "comm/core/core.h"

#include "base/log.h"
#include "base/mem.h"
#include "device/device.h"
#include <inttypes.h>
#include <stdlib.h>

/* ---- messages ---- */

static void count(struct traffic *t, int64_t bytes)
{
    t->messages++;
    t->bytes += bytes;
}

/* bytes: of the longer side. One that goes in chunks is counted with its first. */
static void count_coll(struct comm_group *g, const struct comm_coll *c, int64_t bytes)
{
    static const enum traffic_kind kind[COMM_BARRIER] = {
        [COMM_ALL_REDUCE] = TRAFFIC_ALL_REDUCE, [COMM_REDUCE_SCATTER] = TRAFFIC_REDUCE_SCATTER,
        [COMM_ALL_GATHER] = TRAFFIC_ALL_GATHER, [COMM_ALL_TO_ALL] = TRAFFIC_ALL_TO_ALL,
        [COMM_REDUCE] = TRAFFIC_REDUCE, [COMM_BROADCAST] = TRAFFIC_BROADCAST};
    if (c->kind == COMM_BARRIER || c->chunk > 1)
        return;
    count(&g->counted[c->red == COMM_MAX ? TRAFFIC_ALL_REDUCE_MAX : kind[c->kind]],
          c->kind == COMM_ALL_TO_ALL ? c->count * c->unit : bytes);
}

/* A call that began then is over. */
static void spend(struct comm_world *w, double begin)
{
    w->spent += log_now() - begin;
    comm_heartbeat(w);
}

enum err comm_msg_start(struct comm_world *w, const struct comm_msg *m, struct comm_req *r)
{
    const struct comm_ops *ops = m->lane == COMM_HOST_LANE ? w->ops : w->device->ops;
    const char *what = m->dst ? "receive from" : "send to";
    int peer = m->dst ? m->from : m->to;
    if (peer < 0 || peer >= w->size || peer == w->rank)
        FAIL(ERR_INTERNAL, "comm: %s rank %d on rank %d of %d: not a peer", what, peer, w->rank,
             w->size);
    if (m->tag < 0 || m->bytes < 0)
        FAIL(ERR_INTERNAL, "comm: %s rank %d has tag %d and %" PRId64 " bytes; neither may be "
                           "negative", what, peer, m->tag, m->bytes);
    if (r->world)
        FAIL(ERR_INTERNAL, "comm: %s rank %d, tag %d: its request is still unfinished; finish or "
                           "zero it first", what, peer, m->tag);
    *r = (struct comm_req){.ops = ops};
    double begin = log_now();
    TRY(ops->msg_start(w, m, r));
    spend(w, begin);
    if (!m->dst)
        count(&w->sent, m->bytes);
    r->world = w;
    w->unfinished++;
    return ERR_OK;
}

enum err comm_send_start(struct comm_world *w, int to, int tag, const void *p, int64_t bytes,
                         struct comm_req *r)
{
    struct comm_msg m = {.from = w->rank, .to = to, .tag = tag, .lane = COMM_HOST_LANE,
                         .bytes = bytes, .src = p};
    return comm_msg_start(w, &m, r);
}

enum err comm_recv_start(struct comm_world *w, int from, int tag, void *p, int64_t bytes,
                         struct comm_req *r)
{
    /* A receive is known by its destination; an empty one may come without. */
    static char nothing;
    struct comm_msg m = {.from = from, .to = w->rank, .tag = tag, .lane = COMM_HOST_LANE,
                         .bytes = bytes, .dst = p || bytes != 0 ? p : &nothing};
    return comm_msg_start(w, &m, r);
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
                         .lane = w->device ? m->lane : COMM_HOST_LANE, .src = m->p};
    return comm_msg_start(w, &x, r);
}

enum err comm_device_recv_start(struct comm_world *w, const struct comm_device_msg *m,
                                struct comm_req *r)
{
    struct comm_msg x = {.from = m->peer, .to = w->rank, .tag = m->tag, .bytes = m->bytes,
                         .lane = w->device ? m->lane : COMM_HOST_LANE, .dst = m->p};
    return comm_msg_start(w, &x, r);
}

/* ---- collectives ---- */

/* Elements from the first to behind the last of a buffer's parts, and all of them together. */
static bool parts_span(const struct comm_parts *p, int n, int64_t *end, int64_t *sum)
{
    *end = *sum = 0;
    for (int i = 0; i < n; i++) {
        int64_t last;
        if (p->count[i] < 0 || p->at[i] < 0 || !num_add(p->count[i], p->at[i], &last) ||
            !num_add(*sum, p->count[i], sum))
            return false;
        *end = p->count[i] > 0 ? num_max(*end, last) : *end;
    }
    return true;
}

/* all_to_all: sets c->count. bytes: of the input, of the output. */
static enum err parts_check(const struct comm_group *g, struct comm_coll *c, int64_t bytes[2])
{
    int64_t sends, end[2];
    if (!parts_span(&c->send, g->n, &end[0], &sends) ||
        !parts_span(&c->recv, g->n, &end[1], &c->count) ||
        !num_mul(end[0], c->unit, &bytes[0]) || !num_mul(end[1], c->unit, &bytes[1]))
        FAIL(ERR_INTERNAL, "comm: a part of an all_to_all in a group of %d is negative or beyond "
                           "64 bits", g->n);
    uintptr_t a = (uintptr_t)c->in, b = (uintptr_t)c->out;
    if (sends > 0 && c->count > 0 && b < a + (uintptr_t)bytes[0] && a < b + (uintptr_t)bytes[1])
        FAIL(ERR_INTERNAL, "comm: an all_to_all of %" PRId64 " elements: input and output overlap",
             c->count);
    struct comm_pair own = {g->ranks[g->me], g->ranks[g->me], c->send.count[g->me],
                            c->recv.count[g->me]};
    return own.sends == own.receives ? ERR_OK : comm_pair_mismatch(g, g->started, &own);
}

/* Sides are disjoint, but that the root's may be one, and that the short side may lie inside the
 * long one as this member's own part. bytes: of the input, of the output. */
static enum err sides_check(const struct comm_group *g, const struct comm_coll *c, int64_t bytes[2])
{
    uintptr_t a = (uintptr_t)c->in, b = (uintptr_t)c->out;
    char buf[96];
    bool scatters = c->kind == COMM_REDUCE_SCATTER, gathers = c->kind == COMM_ALL_GATHER;
    int64_t part, whole;
    if (c->count < 0 || !num_mul(c->count, c->unit, &part) ||
        !num_mul(part, scatters || gathers ? g->n : 1, &whole))
        FAIL(ERR_INTERNAL, "comm: %s in a group of %d is negative or beyond 64 bits",
             comm_coll_text(c, buf), g->n);
    bytes[0] = gathers ? part : whole;
    bytes[1] = scatters ? part : whole;
    bool apart = b >= a + (uintptr_t)bytes[0] || a >= b + (uintptr_t)bytes[1] || part == 0;
    uintptr_t own = (uintptr_t)(part * g->me);
    if (c->kind == COMM_REDUCE && c->root == g->me && !apart && a != b)
        FAIL(ERR_INTERNAL, "comm: %s: input and output overlap, but are not the same",
             comm_coll_text(c, buf));
    if (!apart && ((scatters && b != a + own) || (gathers && a != b + own)))
        FAIL(ERR_INTERNAL, "comm: %s: input and output overlap elsewhere than in member %d's own "
                           "part", comm_coll_text(c, buf), g->me);
    return ERR_OK;
}

/* bytes: of the longer side. */
static enum err coll_check(const struct comm_group *g, struct comm_coll *c,
                           const struct comm_req *r, int64_t *bytes)
{
    char buf[96];
    int64_t side[2];
    if ((unsigned)c->dt >= DT_COUNT)
        FAIL(ERR_INTERNAL, "comm: element type %d is none of f64, f32, bf16, i32", (int)c->dt);
    if (c->root < 0 || c->root >= g->n)
        FAIL(ERR_INTERNAL, "comm: %s %s member %d in a group of %d", comm_coll_name(c->kind),
             c->kind == COMM_REDUCE ? "to" : "from", c->root, g->n);
    c->unit = c->kind == COMM_BROADCAST || c->kind == COMM_BARRIER ? 1 : dtype_size(c->dt);
    if (r->world)
        FAIL(ERR_INTERNAL, "comm: %s: its request is still unfinished; finish or zero it first",
             comm_coll_text(c, buf));
    TRY(c->kind == COMM_ALL_TO_ALL ? parts_check(g, c, side) : sides_check(g, c, side));
    *bytes = num_max(side[0], side[1]);
    return ERR_OK;
}

/* now: starts and finishes it in one, where nothing else of the group is unfinished. */
static enum err coll_start(struct comm_group *g, struct comm_coll *c, struct comm_req *r, bool now)
{
    char buf[96];
    int64_t bytes;
    TRY(coll_check(g, c, r, &bytes));
    if (g->chunk > 0 && c->chunk == 0)
        FAIL(ERR_INTERNAL, "comm: %s in group %d between chunks %d and %d of another",
             comm_coll_text(c, buf), g->id, g->chunk, g->chunk + 1);
    *r = (struct comm_req){0};
    if (g->n == 1) { /* the result is the input */
        bool parts = c->kind == COMM_ALL_TO_ALL;
        bytes = c->count * c->unit;
        if (bytes == 0)
            return ERR_OK;
        char *out = (char *)c->out + (parts ? c->recv.at[0] * c->unit : 0);
        const char *in = (const char *)c->in + (parts ? c->send.at[0] * c->unit : 0);
        if (out != in && g->device)
            return dev_copy(g->world->dev, out, in, bytes);
        if (out != in)
            memmove(out, in, (size_t)bytes);
        return ERR_OK;
    }
    if (g->started - g->finished >= COMM_UNFINISHED_MAX)
        FAIL(ERR_INTERNAL, "comm: %s: group %d has %d unfinished operations, the most there can be",
             comm_coll_text(c, buf), g->id, COMM_UNFINISHED_MAX);
    double begin = log_now();
    TRY(g->ops->coll_start(g, c, now));
    spend(g->world, begin);
    count_coll(g, c, bytes);
    int64_t seq = g->started++;
    if (now) {
        g->finished = g->started;
        return ERR_OK;
    }
    *r = (struct comm_req){.world = g->world, .op = g, .word = {seq}};
    g->world->unfinished++;
    return ERR_OK;
}

/* ---- finishing ---- */

enum err comm_finish(struct comm_req *r)
{
    struct comm_world *w = r->world;
    if (!w)
        return ERR_OK;
    double begin = log_now();
    enum err err = r->ops ? r->ops->msg_finish(w, r) : ERR_OK;
    for (struct comm_group *g = r->op; !r->ops && err == ERR_OK && g->finished <= r->word[0];) {
        err = g->ops->coll_finish(g);
        g->finished += err == ERR_OK;
    }
    spend(w, begin);
    *r = (struct comm_req){0};
    w->unfinished--;
    return err;
}

enum err comm_coll_run(struct comm_group *g, struct comm_coll *c)
{
    struct comm_req r = {0};
    TRY(coll_start(g, c, &r, g->device && g->n > 1 && g->started == g->finished));
    return comm_finish(&r);
}

/* ---- collectives by name ---- */

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
    return coll_start(g, &c, r, false);
}

enum err comm_all_reduce(struct comm_group *g, void *p, int64_t count, enum dtype dt,
                         enum comm_red op)
{
    struct comm_coll c = coll(COMM_ALL_REDUCE, p, p, count, dt);
    c.red = op;
    return g ? comm_coll_run(g, &c) : ERR_OK;
}

enum err comm_reduce_scatter_start(struct comm_group *g, void *out, const void *in, int64_t count,
                                   enum dtype dt, struct comm_req *r)
{
    struct comm_coll c = coll(COMM_REDUCE_SCATTER, out, in, count, dt);
    return coll_start(g, &c, r, false);
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
    return coll_start(g, &c, r, false);
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
    return coll_start(g, &c, r, false);
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
    return g ? comm_coll_run(g, &c) : ERR_OK;
}

enum err comm_barrier(struct comm_group *g)
{
    struct comm_coll c = {.kind = COMM_BARRIER};
    return g ? comm_coll_run(g->host ? g->host : g, &c) : ERR_OK;
}

/* ---- in chunks ----
 * Sums to owners and gathers, member by member, so that GEMMs overlap them: each member computes
 * another owner's chunk first, or takes the chunks as they come. With chunk k each member sends to
 * one and receives from one, all of them different, so that every link is in use both ways (Wang et
 * al. 2023 cut GEMMs so). Only copies between GPUs gain by that; else one chunk does all.
 *
 *     chunk                1          2          3
 *     summand goes to      me + 1     me + 2     me + 3     (and from there comes
 *     comes from           me - 1     me - 2     me - 3      what is gathered) */

/* whole: the chunk that does all where none goes by itself. */
static enum err start_chunk(struct comm_group *g, struct comm_coll *c, int whole,
                            struct comm_req *r)
{
    int chunks = (int)num_max(1, g->n - (c->kind == COMM_ALL_GATHER)), chunk = c->chunk;
    int64_t bytes;
    char buf[96];
    TRY(coll_check(g, c, r, &bytes)); /* here, as not every chunk starts something */
    if (chunk < 1 || chunk > chunks)
        FAIL(ERR_INTERNAL, "comm: %s in a group of %d; chunks are 1 to %d", comm_coll_text(c, buf),
             g->n, chunks);
    if (chunk != g->chunk + 1 || (g->chunk > 0 && (int)c->kind != g->chunk_of))
        FAIL(ERR_INTERNAL, "comm: %s in group %d behind chunk %d of %s", comm_coll_text(c, buf),
             g->id, g->chunk,
             g->chunk > 0 ? comm_coll_name((enum comm_coll_kind)g->chunk_of) : "none");
    bool alone = g->ops && g->ops->coll_chunks && g->ops->coll_chunks(g, c);
    if (!alone)
        c->chunk = 0;
    g->chunk = 0; /* for what may be started now */
    if (alone || chunk == whole)
        TRY(coll_start(g, c, r, false));
    g->chunk = chunk < chunks ? chunk : 0;
    g->chunk_of = (int)c->kind;
    return ERR_OK;
}

enum err comm_reduce_scatter_chunk_start(struct comm_group *g, int chunk, void *out, const void *in,
                                         int64_t count, enum dtype dt, struct comm_req *r)
{
    struct comm_coll c = coll(COMM_REDUCE_SCATTER, out, in, count, dt);
    c.chunk = chunk;
    return start_chunk(g, &c, g->n, r);
}

enum err comm_all_gather_chunk_start(struct comm_group *g, int chunk, void *out, const void *in,
                                     int64_t count, enum dtype dt, struct comm_req *r)
{
    struct comm_coll c = coll(COMM_ALL_GATHER, out, in, count, dt);
    c.chunk = chunk;
    return start_chunk(g, &c, 1, r);
}

bool comm_group_chunks(const struct comm_group *g, int64_t bytes)
{
    return !g->copies || bytes <= COMM_COPIES_BYTES / g->n;
}
