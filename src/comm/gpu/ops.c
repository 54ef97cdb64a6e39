/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives and messages in device memory, put in order with the device's queue by events.
 *
 *     device's queue   --- work ---*ready ------- work ------- waits for done --- work ---
 *     lane's stream                 \ waits for ready; the operation *done
 *
 * The host waits for none of it: starting records `ready`, finishing makes the device's queue wait
 * for `done`. One event serves all starts, for a stream waits for what the event stood for when it
 * was told to wait. An operation that is wanted at once, with nothing of its lane on its way, goes
 * to the device's own queue and needs no second stream; operations of one communicator keep their
 * order through the same events.
 */
#include "comm/gpu/gpu.h"

#include "comm/gpu/coll.h"
#include "comm/gpu/p2p.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

static ncclDataType_t type_of(enum dtype dt)
{
    static const ncclDataType_t type[DT_COUNT] = {[DT_F64] = ncclFloat64, [DT_F32] = ncclFloat32,
                                                  [DT_BF16] = ncclBfloat16, [DT_I32] = ncclInt32};
    return type[dt];
}

const char *comm_nccl_op_text(const struct comm_nccl_lane *l, int64_t k, char buf[COMM_WANT_TEXT])
{
    const struct comm_nccl_op *op = &l->op[k % COMM_UNFINISHED_MAX];
    char what[96];
    if (op->is_msg)
        return comm_msg_text(&op->msg, buf);
    if (op->replay) {
        snprintf(buf, COMM_WANT_TEXT, "the replay of step %" PRId64 " (%" PRId64 " operations "
                                      "between ranks; a run without recording names the one)",
                 op->replay, op->of);
        return buf;
    }
    snprintf(buf, COMM_WANT_TEXT, "%s in group %d", comm_coll_text(&op->coll, what), l->id);
    return buf;
}

/* The calls below run with the lock held, so that the watcher takes no communicator away in their
 * midst. */

static enum err launch_coll(const struct comm_nccl_lane *l, const struct comm_coll *c,
                            cudaStream_t s)
{
    size_t count = (size_t)c->count;
    ncclDataType_t type = type_of(c->dt);
    switch (c->kind) {
    case COMM_ALL_REDUCE:
        TRY_NCCL(ncclAllReduce(c->in, c->out, count, type, c->red == COMM_MAX ? ncclMax : ncclSum,
                               l->comm, s));
        break;
    case COMM_REDUCE_SCATTER:
        TRY_NCCL(ncclReduceScatter(c->in, c->out, count, type, ncclSum, l->comm, s));
        break;
    case COMM_ALL_GATHER:
        TRY_NCCL(ncclAllGather(c->in, c->out, count, type, l->comm, s));
        break;
    case COMM_REDUCE:
        TRY_NCCL(ncclReduce(c->in, c->out, count, type, ncclSum, c->root, l->comm, s));
        break;
    case COMM_BROADCAST:
        TRY_NCCL(ncclBroadcast(c->in, c->out, count, ncclInt8, c->root, l->comm, s));
        break;
    case COMM_BARRIER: /* goes by the host */
        break;
    }
    return ERR_OK;
}

static enum err launch_in_group(const struct comm_nccl_lane *l, const struct comm_coll *c,
                                cudaStream_t s)
{
    char buf[96];
    if (l->copies && comm_copies_take(l, c))
        return comm_copies_do(l, c, s);
    if (c->step > 0)
        FAIL(ERR_INTERNAL, "comm: %s in group %d, which does not move by copies",
             comm_coll_text(c, buf), l->id);
    if (!l->comm)
        FAIL(ERR_INTERNAL, "comm: %s in group %d, which was opened for sums inside its window",
             comm_coll_text(c, buf), l->id);
    return launch_coll(l, c, s);
}

/* The two ends of a channel are members 0, which sends, and 1. */
static enum err launch_msg(const struct comm_nccl_lane *l, const struct comm_msg *m,
                           cudaStream_t s)
{
    if (m->src)
        TRY_NCCL(ncclSend(m->src, (size_t)m->bytes, ncclInt8, 1, l->comm, s));
    else
        TRY_NCCL(ncclRecv(m->dst, (size_t)m->bytes, ncclInt8, 0, l->comm, s));
    return ERR_OK;
}

bool comm_nccl_lock(struct comm_nccl *q)
{
    while (pthread_mutex_trylock(&q->lock) != 0) {
        if (atomic_load(&q->dead))
            return false;
        sched_yield(); /* the watcher's looks are short */
    }
    if (!atomic_load(&q->dead))
        return true;
    pthread_mutex_unlock(&q->lock);
    return false;
}

enum err comm_nccl_note(struct comm_nccl *q, struct comm_nccl_lane *l,
                        const struct comm_nccl_op *op, cudaStream_t s)
{
    int64_t k = l->started % COMM_UNFINISHED_MAX;
    enum cudaStreamCaptureStatus how;
    TRY_CUDA(cudaStreamIsCapturing(q->stream, &how));
    TRY_CUDA(cudaEventRecord(l->done[k], s));
    l->op[k] = *op;
    l->op[k].captured = how != cudaStreamCaptureStatusNone;
    q->recorded += l->op[k].captured;
    l->started++;
    return ERR_OK;
}

/* The operation on stream s, and its event behind it. */
static enum err launch(struct comm_nccl *q, struct comm_nccl_lane *l,
                       const struct comm_nccl_op *op, cudaStream_t s)
{
    if (s != q->stream) {
        TRY_CUDA(cudaEventRecord(q->ready, q->stream));
        TRY_CUDA(cudaStreamWaitEvent(s, q->ready, 0));
    }
    TRY(!op->is_msg ? launch_in_group(l, &op->coll, s)
        : l->post   ? comm_post_move(l->post, &op->msg, op->from, s)
                    : launch_msg(l, &op->msg, s));
    return comm_nccl_note(q, l, op, s);
}

static enum err start(struct comm_world *w, struct comm_nccl_lane *l,
                      const struct comm_nccl_op *op, bool now)
{
    struct comm_nccl *q = comm_nccl_of(w);
    bool alive = comm_nccl_lock(q);
    enum err err = alive ? launch(q, l, op, now ? q->stream : l->stream) : ERR_OK;
    if (alive)
        pthread_mutex_unlock(&q->lock);
    if (alive && err == ERR_OK)
        return ERR_OK;
    if (alive) { /* this call's own mistake, unless the end of all is behind it */
        TRY(comm_nccl_check(w, "starting an operation"));
        return err;
    }
    TRY(comm_nccl_check(w, "starting an operation"));
    FAIL(ERR_PEER, "comm: rank %d starts an operation on a communicator that is closed", w->rank);
}

/* Waits until the operation started last is over. */
static enum err see_through(struct comm_group *g, const struct comm_coll *c)
{
    const struct comm_nccl_lane *l = g->lane;
    const struct timespec nap = {.tv_nsec = 20000};
    int64_t last = l->started - 1;
    cudaError_t e;
    while ((e = cudaEventQuery(l->done[last % COMM_UNFINISHED_MAX])) == cudaErrorNotReady) {
        (void)cudaGetLastError();
        TRY(comm_nccl_check(g->world, comm_coll_name(c->kind)));
        nanosleep(&nap, NULL);
    }
    TRY_CUDA(e);
    return comm_nccl_check(g->world, comm_coll_name(c->kind));
}

static enum err coll_start(struct comm_group *g, const struct comm_coll *c, bool now)
{
    const struct comm_nccl_lane *l = g->lane;
    bool met = l->copies && !g->world->warm && comm_copies_take(l, c);
    if (g->world->ops->failed(g->world))
        TRY(comm_nccl_check(g->world, comm_coll_name(c->kind)));
    if (met)
        TRY(comm_copies_meet(g, c));
    TRY(start(g->world, g->lane, &(struct comm_nccl_op){.coll = *c}, now));
    return met ? see_through(g, c) : ERR_OK;
}

enum err comm_nccl_coll_start(struct comm_group *g, const struct comm_coll *c)
{
    return coll_start(g, c, false);
}

enum err comm_nccl_coll_now(struct comm_group *g, const struct comm_coll *c)
{
    return coll_start(g, c, true);
}

/* The device's queue goes on when operation k is over. */
static enum err follow(struct comm_world *w, struct comm_nccl_lane *l, int64_t k)
{
    char buf[COMM_WANT_TEXT];
    if (w->ops->failed(w) || atomic_load(&comm_nccl_of(w)->dead))
        TRY(comm_nccl_check(w, comm_nccl_op_text(l, k, buf)));
    TRY_CUDA(cudaStreamWaitEvent(comm_nccl_of(w)->stream, l->done[k % COMM_UNFINISHED_MAX], 0));
    return ERR_OK;
}

bool comm_nccl_coll_steps(const struct comm_group *g, const struct comm_coll *c)
{
    const struct comm_nccl_lane *l = g->lane;
    return l->copies && comm_copies_take(l, c);
}

enum err comm_nccl_coll_finish(struct comm_group *g)
{
    return follow(g->world, g->lane, g->finished);
}

static struct comm_nccl_lane *channel_lane(const struct comm_nccl *q, const struct comm_msg *m,
                                           int lane)
{
    struct comm_nccl_lane *l = q->lanes;
    while (l && (l->group || l->channel.from != m->from || l->channel.to != m->to ||
                 l->channel.lane != lane))
        l = l->next;
    return l;
}

enum err comm_nccl_msg_start(struct comm_world *w, const struct comm_msg *m, int lane,
                             struct comm_req *r)
{
    char buf[COMM_WANT_TEXT];
    struct comm_nccl_lane *l = channel_lane(comm_nccl_of(w), m, lane);
    if (!l)
        FAIL(ERR_INTERNAL, "comm: %s: lane %d from rank %d to rank %d was not opened",
             comm_msg_text(m, buf), lane, m->from, m->to);
    if (w->ops->failed(w))
        TRY(comm_nccl_check(w, comm_msg_text(m, buf)));
    struct comm_nccl_op op = {.is_msg = true, .msg = *m};
    if (l->post)
        TRY(comm_post_meet(w, l->post, m, &op.from));
    r->op = l;
    r->word[1] = l->started;
    return start(w, l, &op, false);
}

/* With more than 64 messages started behind it the event stands for a later one, which is over
 * later: waiting for that is right, too. */
enum err comm_nccl_msg_finish(struct comm_world *w, struct comm_req *r)
{
    return follow(w, r->op, r->word[1]);
}
