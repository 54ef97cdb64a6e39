/* SPDX-License-Identifier: Apache-2.0
 *
 * The face of the folder: checks what callers hand in, answers groups of one member without a
 * transport, and passes the rest to the transport's table.
 *
 * Operations of a group carry numbers (started, finished), and finishing number k finishes all
 * before it, so that a call that waits (a reduce_scatter between two started all_reduces, say)
 * keeps the order by itself.
 */
#include "comm/comm.h"

#include "base/log.h"
#include "base/mem.h"
#include "comm/core/core.h"
#include "device/device.h"
#include <inttypes.h>
#include <stdlib.h>

bool comm_built(enum comm_kind k)
{
#ifdef PLAIT_HAVE_MPI
    return k == COMM_THREAD || k == COMM_MPI;
#else
    return k == COMM_THREAD;
#endif
}

bool comm_nccl_built(void)
{
#ifdef PLAIT_HAVE_NCCL
    return true;
#else
    return false;
#endif
}

#ifndef PLAIT_HAVE_NCCL
enum err comm_nccl_fits(void)
{
    return ERR_OK;
}

bool comm_gpus_reach(const int *gpu, int n)
{
    (void)gpu;
    (void)n;
    return true;
}
#endif

#ifndef PLAIT_HAVE_MPI
enum err comm_mpi_run(const char *what, double timeout_s,
                      enum err (*body)(void *arg, struct comm_world *w), void *arg)
{
    (void)what;
    (void)timeout_s;
    (void)body;
    (void)arg;
    FAIL(ERR_CONFIG, "comm: transport mpi is not built in; build where Open MPI is found, or use "
                     "thread");
}

enum err comm_say(enum err code, const char *text, void (*say)(const char *text))
{
    if (code != ERR_OK)
        say(text);
    return code;
}
#endif

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

void comm_abort(struct comm_world *w, enum err code)
{
    w->ops->abort(w, code);
    if (w->queue)
        w->queue->ops->abort(w);
}

/* ---- the device's memory ---- */

void comm_environment(void)
{
    /* Streams that wait for peers must not share a hardware queue with each other. */
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    /* One algorithm: it connects once, and adds in the same order in every run. */
    (void)setenv("NCCL_ALGO", "Ring", 0);
    /* Registering the buffers of recorded operations would have ranks wait for each other while
     * they record, each in its own order. */
    (void)setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

enum err comm_attach(struct comm_world *w, struct dev *d, bool copies)
{
    if (!d->queues)
        return ERR_OK;
    w->copies = copies;
#ifndef PLAIT_HAVE_NCCL
    if (w->size > 1)
        FAIL(ERR_CONFIG, "comm: %d ranks on GPUs talk by NCCL, which is not built in; build plait "
                         "where nccl.h and libnccl are installed, or use one rank", w->size);
#else
    if (w->size > 1)
        TRY(comm_nccl_open(w, d));
#endif
    w->dev = d;
    return ERR_OK;
}

enum err comm_detach(struct comm_world *w)
{
    if (w->queue)
        dev_watch(w->dev, NULL, NULL);
    enum err err = w->queue ? w->queue->ops->close(w) : ERR_OK;
    w->queue = NULL;
    w->dev = NULL;
    w->warm = false;
    return err;
}

void comm_recorded(struct comm_world *w, void (*forget)(void *arg), void *arg)
{
    w->forget = forget;
    w->forget_arg = arg;
}

enum err comm_replayed(struct comm_world *w, int64_t step, double seconds)
{
    return w->queue ? w->queue->ops->replayed(w, step, seconds) : ERR_OK;
}

void comm_warm(struct comm_world *w)
{
    w->warm = true;
}

enum err comm_window_take(struct comm_world *w, int64_t bytes, const char *name, void **out)
{
    *out = NULL;
    return w->queue && bytes > 0 ? w->queue->ops->window_take(w, bytes, name, out) : ERR_OK;
}

int64_t comm_device_taken(const struct comm_world *w)
{
    return w->device_taken;
}

double comm_spent(const struct comm_world *w)
{
    return w->spent;
}

/* ---- point to point ---- */

enum { HOST_LANE = -1 }; /* goes by the transport */

/* A call that began then is over. */
static void spend(struct comm_world *w, double begin)
{
    w->spent += log_now() - begin;
    comm_alive(w);
}

static enum err msg_start(struct comm_world *w, const struct comm_msg *m, int lane,
                          struct comm_req *r)
{
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
    *r = (struct comm_req){.word = {lane == HOST_LANE ? COMM_REQ_MSG : COMM_REQ_DEVICE}};
    double begin = log_now();
    TRY(lane == HOST_LANE ? w->ops->msg_start(w, m, r) : w->queue->ops->msg_start(w, m, lane, r));
    spend(w, begin);
    r->world = w;
    w->unfinished++;
    return ERR_OK;
}

/* long: the words of a message; one line at each of its many callers */
enum err comm_send_start(struct comm_world *w, int to, int tag, const void *p, int64_t bytes,
                         struct comm_req *r)
{
    return msg_start(w, &(struct comm_msg){.from = w->rank, .to = to, .tag = tag, .bytes = bytes,
                                           .src = p}, HOST_LANE, r);
}

/* long: as comm_send_start */
enum err comm_recv_start(struct comm_world *w, int from, int tag, void *p, int64_t bytes,
                         struct comm_req *r)
{
    /* A receive is known by its destination; an empty one may come without. */
    static char nothing;
    return msg_start(w, &(struct comm_msg){.from = from, .to = w->rank, .tag = tag, .bytes = bytes,
                                           .dst = p || bytes != 0 ? p : &nothing}, HOST_LANE, r);
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
    if (!w->queue || n == 0)
        return ERR_OK;
    struct comm_channel *sorted;
    TRY(mem_new(n, sizeof *sorted, "channels", &sorted));
    memcpy(sorted, c, (size_t)n * sizeof *c);
    qsort(sorted, (size_t)n, sizeof *sorted, by_ends);
    enum err err = ERR_OK;
    for (int i = 0; i < n && err == ERR_OK; i++)
        err = w->queue->ops->channel_open(w, &sorted[i]);
    mem_free(sorted);
    return err;
}

enum err comm_device_send_start(struct comm_world *w, const struct comm_device_msg *m,
                                struct comm_req *r)
{
    struct comm_msg x = {.from = w->rank, .to = m->peer, .tag = m->tag, .bytes = m->bytes,
                         .src = m->p};
    return msg_start(w, &x, w->queue ? m->lane : HOST_LANE, r);
}

enum err comm_device_recv_start(struct comm_world *w, const struct comm_device_msg *m,
                                struct comm_req *r)
{
    struct comm_msg x = {.from = m->peer, .to = w->rank, .tag = m->tag, .bytes = m->bytes,
                         .dst = m->p};
    return msg_start(w, &x, w->queue ? m->lane : HOST_LANE, r);
}

/* Complete all operations of the group up to number `seq`. */
static enum err coll_finish(struct comm_group *g, int64_t seq)
{
    while (g->finished <= seq) {
        TRY(g->lane ? g->world->queue->ops->coll_finish(g) : g->world->ops->coll_finish(g));
        g->finished++;
    }
    return ERR_OK;
}

enum err comm_finish(struct comm_req *r)
{
    struct comm_world *w = r->world;
    if (!w)
        return ERR_OK;
    double begin = log_now();
    enum err err = r->word[0] == COMM_REQ_MSG      ? w->ops->msg_finish(w, r)
                   : r->word[0] == COMM_REQ_DEVICE ? w->queue->ops->msg_finish(w, r)
                                                   : coll_finish(r->op, r->word[1]);
    spend(w, begin);
    *r = (struct comm_req){0};
    w->unfinished--;
    return err;
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

/* The same members in host memory beside it: they tell each other how to meet, and are what a
 * barrier is made of. */
static enum err open_lane(struct comm_group *g, const struct comm_group_args *a)
{
    struct comm_group_args host = {.id = a->id, .ranks = a->ranks, .n = a->n};
    host.scratch = comm_scratch_bytes(comm_kind(g->world), a->n, 1);
    TRY(comm_group_open(g->world, &host, &g->host));
    return g->world->queue->ops->group_open(g);
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
    g->small = a->small;
    g->beside = a->beside;
    g->window = a->window;
    g->window_bytes = a->window_bytes;
    g->mixed = a->mixed;
    TRY_OR(out_group, mem_new(a->n, sizeof *g->ranks, "the ranks of a group", &g->ranks));
    for (int i = 0; i < a->n; i++) {
        g->ranks[i] = a->ranks[i];
        if (a->ranks[i] == w->rank)
            g->me = i;
    }
    if (a->n > 1 && g->device)
        TRY_OR(out_host, open_lane(g, a));
    else if (a->n > 1)
        TRY_OR(out_group, w->ops->group_open(g, a->scratch));
    *out = g;
    return ERR_OK;
out_host:
    comm_group_close(g->host);
out_group:
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
    if (g->impl)
        g->world->ops->group_close(g);
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

bool comm_group_copies(const struct comm_group *g)
{
    return g->copies;
}

/* ---- collectives ---- */

/* Bytes of the longer side: `parts` x count x unit. */
static enum err coll_bytes(const struct comm_group *g, const struct comm_coll *c, int64_t *out)
{
    bool wide = c->kind == COMM_REDUCE_SCATTER || c->kind == COMM_ALL_GATHER;
    int64_t elements;
    char buf[96];
    if (c->count < 0 || !num_mul(c->count, wide ? g->n : 1, &elements) ||
        !num_mul(elements, c->unit, out))
        FAIL(ERR_INTERNAL, "comm: %s in a group of %d is negative or beyond 64 bits",
             comm_coll_text(c, buf), g->n);
    return ERR_OK;
}

/* The root's two sides are one or apart. */
static enum err root_apart(const struct comm_group *g, const struct comm_coll *c, int64_t bytes)
{
    uintptr_t a = (uintptr_t)c->in, b = (uintptr_t)c->out;
    bool apart = b >= a + (uintptr_t)bytes || a >= b + (uintptr_t)bytes;
    char buf[96];
    if (c->root == g->me && !apart && a != b)
        FAIL(ERR_INTERNAL, "comm: %s: input and output overlap, but are not the same",
             comm_coll_text(c, buf));
    return ERR_OK;
}

/* The short side may lie inside the long one, but only at this member's own place. */
static enum err coll_overlap(const struct comm_group *g, const struct comm_coll *c, int64_t bytes)
{
    if (c->kind == COMM_REDUCE)
        return root_apart(g, c, bytes);
    if (c->kind != COMM_REDUCE_SCATTER && c->kind != COMM_ALL_GATHER)
        return ERR_OK;
    int64_t part = bytes / g->n;
    uintptr_t a = (uintptr_t)(c->kind == COMM_REDUCE_SCATTER ? c->in : c->out); /* long */
    uintptr_t b = (uintptr_t)(c->kind == COMM_REDUCE_SCATTER ? c->out : c->in); /* short */
    bool apart = b >= a + (uintptr_t)bytes || a >= b + (uintptr_t)part;
    char buf[96];
    if (part > 0 && !apart && b != a + (uintptr_t)(part * g->me))
        FAIL(ERR_INTERNAL, "comm: %s: input and output overlap elsewhere than at member %d's own "
                           "place", comm_coll_text(c, buf), g->me);
    return ERR_OK;
}

/* A group of one: the result is the input. */
static enum err coll_alone(const struct comm_group *g, const struct comm_coll *c, int64_t bytes)
{
    if (bytes == 0 || c->out == c->in)
        return ERR_OK;
    if (g->device)
        return dev_copy(g->world->dev, c->out, c->in, bytes);
    memmove(c->out, c->in, (size_t)bytes);
    return ERR_OK;
}

enum err comm_coll_check(const struct comm_group *g, const struct comm_coll *c,
                         const struct comm_req *r, int64_t *bytes)
{
    char buf[96];
    if (r->world)
        FAIL(ERR_INTERNAL, "comm: %s: its request is still unfinished; finish or zero it first",
             comm_coll_text(c, buf));
    TRY(coll_bytes(g, c, bytes));
    return coll_overlap(g, c, *bytes);
}

enum err comm_coll_start(struct comm_group *g, const struct comm_coll *c, struct comm_req *r)
{
    char buf[96];
    int64_t bytes;
    TRY(comm_steps_over(g, c));
    TRY(comm_coll_check(g, c, r, &bytes));
    *r = (struct comm_req){0};
    if (g->n == 1)
        return coll_alone(g, c, bytes);
    if (g->started - g->finished >= COMM_UNFINISHED_MAX)
        FAIL(ERR_INTERNAL, "comm: %s: group %d has %d unfinished operations, the most there can be",
             comm_coll_text(c, buf), g->id, COMM_UNFINISHED_MAX);
    double begin = log_now();
    TRY(g->lane ? g->world->queue->ops->coll_start(g, c) : g->world->ops->coll_start(g, c));
    spend(g->world, begin);
    *r = (struct comm_req){.world = g->world, .op = g, .word = {COMM_REQ_COLL, g->started}};
    g->started++;
    g->world->unfinished++;
    return ERR_OK;
}

static enum err coll_run(struct comm_group *g, const struct comm_coll *c)
{
    struct comm_req r = {0};
    int64_t bytes;
    if (g->lane && g->started == g->finished) {
        TRY(comm_steps_over(g, c));
        TRY(comm_coll_check(g, c, &r, &bytes));
        TRY(g->world->queue->ops->coll_now(g, c));
        g->finished = ++g->started;
        return ERR_OK;
    }
    TRY(comm_coll_start(g, c, &r));
    TRY(comm_finish(&r));
    return ERR_OK;
}

enum err comm_dtype_check(enum dtype dt)
{
    if ((unsigned)dt >= DT_COUNT)
        FAIL(ERR_INTERNAL, "comm: element type %d is none of f64, f32, bf16, i32", (int)dt);
    return ERR_OK;
}

/* long: comm_all_reduce and its request */
enum err comm_all_reduce_start(struct comm_group *g, void *p, int64_t count, enum dtype dt,
                               enum comm_red op, struct comm_req *r)
{
    TRY(comm_dtype_check(dt));
    return comm_coll_start(g, &(struct comm_coll){.kind = COMM_ALL_REDUCE, .dt = dt, .red = op,
                                                  .count = count, .unit = dtype_size(dt), .out = p,
                                                  .in = p}, r);
}

enum err comm_all_reduce(struct comm_group *g, void *p, int64_t count, enum dtype dt,
                         enum comm_red op)
{
    TRY(comm_dtype_check(dt));
    return coll_run(g, &(struct comm_coll){.kind = COMM_ALL_REDUCE, .dt = dt, .red = op,
                                           .count = count, .unit = dtype_size(dt), .out = p,
                                           .in = p});
}

enum err comm_reduce_scatter(struct comm_group *g, void *out, const void *in, int64_t count,
                             enum dtype dt)
{
    TRY(comm_dtype_check(dt));
    return coll_run(g, &(struct comm_coll){.kind = COMM_REDUCE_SCATTER, .dt = dt, .count = count,
                                           .unit = dtype_size(dt), .out = out, .in = in});
}

enum err comm_all_gather(struct comm_group *g, void *out, const void *in, int64_t count,
                         enum dtype dt)
{
    TRY(comm_dtype_check(dt));
    return coll_run(g, &(struct comm_coll){.kind = COMM_ALL_GATHER, .dt = dt, .count = count,
                                           .unit = dtype_size(dt), .out = out, .in = in});
}

/* long: as comm_reduce_scatter */
enum err comm_reduce_scatter_start(struct comm_group *g, void *out, const void *in, int64_t count,
                                   enum dtype dt, struct comm_req *r)
{
    TRY(comm_dtype_check(dt));
    return comm_coll_start(g, &(struct comm_coll){.kind = COMM_REDUCE_SCATTER, .dt = dt,
                                                  .count = count, .unit = dtype_size(dt),
                                                  .out = out, .in = in}, r);
}

/* long: as comm_all_gather */
enum err comm_all_gather_start(struct comm_group *g, void *out, const void *in, int64_t count,
                               enum dtype dt, struct comm_req *r)
{
    TRY(comm_dtype_check(dt));
    return comm_coll_start(g, &(struct comm_coll){.kind = COMM_ALL_GATHER, .dt = dt,
                                                  .count = count, .unit = dtype_size(dt),
                                                  .out = out, .in = in}, r);
}

/* long: comm_reduce_scatter_start's words and a root */
enum err comm_reduce_start(struct comm_group *g, int root, void *out, const void *in, int64_t count,
                           enum dtype dt, struct comm_req *r)
{
    TRY(comm_dtype_check(dt));
    if (root < 0 || root >= g->n)
        FAIL(ERR_INTERNAL, "comm: reduce to member %d in a group of %d", root, g->n);
    return comm_coll_start(g, &(struct comm_coll){.kind = COMM_REDUCE, .dt = dt, .root = root,
                                                  .count = count, .unit = dtype_size(dt),
                                                  .out = out, .in = in}, r);
}

enum err comm_broadcast(struct comm_group *g, int root, void *p, int64_t bytes)
{
    if (root < 0 || root >= g->n)
        FAIL(ERR_INTERNAL, "comm: broadcast from member %d in a group of %d", root, g->n);
    return coll_run(g, &(struct comm_coll){.kind = COMM_BROADCAST, .root = root, .count = bytes,
                                           .unit = 1, .out = p, .in = p});
}

enum err comm_barrier(struct comm_group *g)
{
    return coll_run(g->host ? g->host : g, &(struct comm_coll){.kind = COMM_BARRIER, .unit = 1});
}
