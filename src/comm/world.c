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
#include "base/text.h"
#include "comm/comm_ops.h"
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

bool comm_built(enum comm_kind k)
{
#ifdef PLAIT_HAVE_MPI
    return k == COMM_THREAD || k == COMM_MPI;
#else
    return k == COMM_THREAD;
#endif
}

/* ---- the launcher ---- */

int comm_mpi_launched_size(void)
{
    /* Open MPI's mpirun, other process managers, and srun when it speaks PMIx to its tasks. */
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    int64_t n;
    if (!size)
        size = getenv("PMI_SIZE");
    if (!size && getenv("PMIX_RANK"))
        size = getenv("SLURM_NTASKS");
    return size && text_to_int(size, &n) && n >= 1 && n <= INT_MAX ? (int)n : 0;
}

#ifndef PLAIT_HAVE_MPI
enum err comm_mpi_run(double timeout_s, enum err (*body)(void *arg, struct comm_world *w),
                      void *arg)
{
    (void)timeout_s;
    (void)body;
    (void)arg;
    FAIL(ERR_CONFIG, "comm: transport mpi is not built in; build where Open MPI is found, or use "
                     "thread");
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
}

double comm_spent(const struct comm_world *w)
{
    return w->spent;
}

/* ---- point to point ---- */

static enum err msg_start(struct comm_world *w, const struct comm_msg *m, struct comm_req *r)
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
    *r = (struct comm_req){.word = {COMM_REQ_MSG}};
    double begin = log_now();
    TRY(w->ops->msg_start(w, m, r));
    w->spent += log_now() - begin;
    r->world = w;
    w->unfinished++;
    return ERR_OK;
}

/* long: the words of a message; one line at each of its many callers */
enum err comm_send_start(struct comm_world *w, int to, int tag, const void *p, int64_t bytes,
                         struct comm_req *r)
{
    return msg_start(w, &(struct comm_msg){.from = w->rank, .to = to, .tag = tag, .bytes = bytes,
                                           .src = p}, r);
}

/* long: as comm_send_start */
enum err comm_recv_start(struct comm_world *w, int from, int tag, void *p, int64_t bytes,
                         struct comm_req *r)
{
    /* A receive is known by its destination; an empty one may come without. */
    static char nothing;
    return msg_start(w, &(struct comm_msg){.from = from, .to = w->rank, .tag = tag, .bytes = bytes,
                                           .dst = p || bytes != 0 ? p : &nothing}, r);
}

/* ---- messages in device memory ---- */

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
    return ERR_OK;
}

enum err comm_device_send_start(struct comm_world *w, const struct comm_device_msg *m,
                                struct comm_req *r)
{
    return comm_send_start(w, m->peer, m->tag, m->p, m->bytes, r);
}

enum err comm_device_recv_start(struct comm_world *w, const struct comm_device_msg *m,
                                struct comm_req *r)
{
    return comm_recv_start(w, m->peer, m->tag, m->p, m->bytes, r);
}

/* Complete all operations of the group up to number `seq`. */
static enum err coll_finish(struct comm_group *g, int64_t seq)
{
    while (g->finished <= seq) {
        TRY(g->world->ops->coll_finish(g));
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
    enum err err = r->word[0] == COMM_REQ_MSG ? w->ops->msg_finish(w, r)
                                              : coll_finish(r->op, r->word[1]);
    w->spent += log_now() - begin;
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

enum err comm_group_open(struct comm_world *w, const struct comm_group_args *a,
                         struct comm_group **out)
{
    struct comm_group *g;
    enum err err;
    TRY(group_check(w, a));
    TRY(mem_new(1, sizeof *g, "a group", &g));
    *g = (struct comm_group){.world = w, .id = a->id, .n = a->n};
    TRY_OR(out_group, mem_new(a->n, sizeof *g->ranks, "the ranks of a group", &g->ranks));
    for (int i = 0; i < a->n; i++) {
        g->ranks[i] = a->ranks[i];
        if (a->ranks[i] == w->rank)
            g->me = i;
    }
    if (a->n > 1)
        TRY_OR(out_group, w->ops->group_open(g, a->scratch));
    *out = g;
    return ERR_OK;
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

int64_t comm_scratch_bytes(enum comm_kind k, int n, int64_t max_bytes)
{
    if (k == COMM_THREAD || n < 2)
        return 0;
    int64_t most = COMM_WINDOW_BYTES / (n - 1) / COMM_SLICE_ALIGN;
    int64_t bytes = num_max(0, num_min(max_bytes, (int64_t)n * COMM_WINDOW_BYTES));
    int64_t slice = num_ceil_div(num_ceil_div(bytes, n), COMM_SLICE_ALIGN);
    return (n - 1) * COMM_SLICE_ALIGN * num_max(1, num_min(slice, most));
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

/* The short side may lie inside the long one, but only at this member's own place. */
static enum err coll_overlap(const struct comm_group *g, const struct comm_coll *c, int64_t bytes)
{
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
static void coll_alone(const struct comm_coll *c, int64_t bytes)
{
    if (bytes > 0 && c->out != c->in)
        memmove(c->out, c->in, (size_t)bytes);
}

static enum err coll_start(struct comm_group *g, const struct comm_coll *c, struct comm_req *r)
{
    char buf[96];
    int64_t bytes;
    if (r->world)
        FAIL(ERR_INTERNAL, "comm: %s: its request is still unfinished; finish or zero it first",
             comm_coll_text(c, buf));
    TRY(coll_bytes(g, c, &bytes));
    TRY(coll_overlap(g, c, bytes));
    *r = (struct comm_req){0};
    if (g->n == 1) {
        coll_alone(c, bytes);
        return ERR_OK;
    }
    if (g->started - g->finished >= COMM_UNFINISHED_MAX)
        FAIL(ERR_INTERNAL, "comm: %s: group %d has %d unfinished operations, the most there can be",
             comm_coll_text(c, buf), g->id, COMM_UNFINISHED_MAX);
    double begin = log_now();
    TRY(g->world->ops->coll_start(g, c));
    g->world->spent += log_now() - begin;
    *r = (struct comm_req){.world = g->world, .op = g, .word = {COMM_REQ_COLL, g->started}};
    g->started++;
    g->world->unfinished++;
    return ERR_OK;
}

static enum err coll_run(struct comm_group *g, const struct comm_coll *c)
{
    struct comm_req r = {0};
    TRY(coll_start(g, c, &r));
    TRY(comm_finish(&r));
    return ERR_OK;
}

static enum err dtype_check(enum dtype dt)
{
    if ((unsigned)dt >= DT_COUNT)
        FAIL(ERR_INTERNAL, "comm: element type %d is none of f64, f32, bf16, i32", (int)dt);
    return ERR_OK;
}

/* long: comm_all_reduce and its request */
enum err comm_all_reduce_start(struct comm_group *g, void *p, int64_t count, enum dtype dt,
                               enum comm_red op, struct comm_req *r)
{
    TRY(dtype_check(dt));
    TRY(coll_start(g, &(struct comm_coll){.kind = COMM_ALL_REDUCE, .dt = dt, .red = op,
                                          .count = count, .unit = dtype_size(dt), .out = p,
                                          .in = p}, r));
    return ERR_OK;
}

enum err comm_all_reduce(struct comm_group *g, void *p, int64_t count, enum dtype dt,
                         enum comm_red op)
{
    struct comm_req r = {0};
    TRY(comm_all_reduce_start(g, p, count, dt, op, &r));
    TRY(comm_finish(&r));
    return ERR_OK;
}

enum err comm_reduce_scatter(struct comm_group *g, void *out, const void *in, int64_t count,
                             enum dtype dt)
{
    TRY(dtype_check(dt));
    return coll_run(g, &(struct comm_coll){.kind = COMM_REDUCE_SCATTER, .dt = dt, .count = count,
                                           .unit = dtype_size(dt), .out = out, .in = in});
}

enum err comm_all_gather(struct comm_group *g, void *out, const void *in, int64_t count,
                         enum dtype dt)
{
    TRY(dtype_check(dt));
    return coll_run(g, &(struct comm_coll){.kind = COMM_ALL_GATHER, .dt = dt, .count = count,
                                           .unit = dtype_size(dt), .out = out, .in = in});
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
    return coll_run(g, &(struct comm_coll){.kind = COMM_BARRIER, .unit = 1});
}
