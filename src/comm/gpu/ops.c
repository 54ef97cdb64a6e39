/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives and messages in device memory, put in order with the device's stream by events.
 *
 *     device's stream  --- work ---*ready ------- work ------- waits for done --- work ---
 *     lane's stream                 \ waits for ready; the operation *done
 *
 * The host waits for none of it. One event serves all starts, for a stream waits for what the event
 * stood for when the wait was queued. An operation that is finished at once, with nothing of its
 * lane on its way, goes to the device's own stream and needs no second stream.
 */
#include "comm/gpu/coll.h"
#include "comm/gpu/nccl.h"
#include "comm/gpu/p2p.h"

#include <time.h>

/* The calls below run with the lock held, so that the watchdog takes no communicator away in their
 * midst. */

static enum err launch_in_group(const struct comm_gpu_lane *l, const struct comm_coll *c,
                                cudaStream_t s)
{
    char buf[96];
    if (l->copies && comm_copies_take(l, c))
        return comm_copies_do(l, c, s);
    if (c->chunk > 0)
        FAIL(ERR_INTERNAL, "comm: %s in group %d, which does not move by copies",
             comm_coll_text(c, buf), l->id);
    if (!l->comm)
        FAIL(ERR_INTERNAL, "comm: %s in group %d, which was opened for sums inside its window",
             comm_coll_text(c, buf), l->id);
    return comm_nccl_coll(l, c, s);
}

enum err comm_gpu_perform(const struct comm_gpu_lane *l, const struct comm_gpu_op *op,
                          cudaStream_t s)
{
    if (!op->is_msg)
        return launch_in_group(l, &op->coll, s);
    return l->p2p ? comm_p2p_move(l->p2p, &op->msg, op->from, s) : comm_nccl_msg(l, &op->msg, s);
}

/* The operation in the queue of a shared GPU's lane, whose thread records its event. */
static enum err enqueue(struct comm_gpu *q, struct comm_gpu_lane *l, const struct comm_gpu_op *op)
{
    enum cudaStreamCaptureStatus how;
    TRY_CUDA(cudaStreamIsCapturing(q->stream, &how));
    if (how != cudaStreamCaptureStatusNone)
        FAIL(ERR_INTERNAL, "comm: a step is captured on GPU %d, which ranks share; their threads "
                           "wait, and none would at a replay", q->gpu);
    TRY(comm_queue_put(l->queue, op));
    l->op[l->started % COMM_UNFINISHED_MAX] = *op;
    l->started++;
    return ERR_OK;
}

/* The operation on stream s, and its event behind it. */
static enum err launch(struct comm_gpu *q, struct comm_gpu_lane *l,
                       const struct comm_gpu_op *op, cudaStream_t s)
{
    if (s != q->stream) {
        TRY_CUDA(cudaEventRecord(q->ready, q->stream));
        TRY_CUDA(cudaStreamWaitEvent(s, q->ready, 0));
    }
    if (l->queue)
        return enqueue(q, l, op);
    TRY(comm_gpu_perform(l, op, s));
    return comm_gpu_record(q, l, op, s);
}

static enum err start(struct comm_world *w, struct comm_gpu_lane *l,
                      const struct comm_gpu_op *op, bool now)
{
    struct comm_gpu *q = comm_gpu_of(w);
    bool alive = comm_gpu_lock(q);
    enum err err =
        alive ? launch(q, l, op, now && !l->queue ? q->stream : l->stream) : ERR_OK;
    if (alive)
        pthread_mutex_unlock(&q->lock);
    if (alive && err == ERR_OK)
        return ERR_OK;
    if (alive) { /* this call's own mistake, unless the end of all is behind it */
        TRY(comm_gpu_check(w, "starting an operation"));
        return err;
    }
    TRY(comm_gpu_check(w, "starting an operation"));
    FAIL(ERR_PEER, "comm: rank %d starts an operation on a communicator that is closed", w->rank);
}

/* Waits until the operation started last is over. */
static enum err host_wait(struct comm_group *g, const struct comm_coll *c)
{
    const struct comm_gpu_lane *l = g->lane;
    const struct timespec nap = {.tv_nsec = 20000};
    int64_t last = l->started - 1;
    cudaError_t e;
    while ((e = cudaEventQuery(l->done[last % COMM_UNFINISHED_MAX])) == cudaErrorNotReady) {
        (void)cudaGetLastError();
        TRY(comm_gpu_check(g->world, comm_coll_name(c->kind)));
        nanosleep(&nap, NULL);
    }
    TRY_CUDA(e);
    return comm_gpu_check(g->world, comm_coll_name(c->kind));
}

/* Until the queue's thread is through operation k: the peers have started theirs. */
static enum err queue_wait(struct comm_world *w, const struct comm_gpu_lane *l, int64_t k)
{
    const struct timespec nap = {.tv_nsec = 20000};
    char buf[COMM_PENDING_TEXT];
    while (comm_queue_through(l->queue) <= k) {
        if (comm_gpu_is_over(comm_gpu_of(w)))
            TRY(comm_gpu_check(w, comm_gpu_op_text(l, k, buf)));
        nanosleep(&nap, NULL);
    }
    return ERR_OK;
}

/* The device's stream goes on when operation k is over. */
static enum err follow(struct comm_world *w, struct comm_gpu_lane *l, int64_t k)
{
    char buf[COMM_PENDING_TEXT];
    if (l->queue)
        TRY(queue_wait(w, l, k));
    if (comm_gpu_is_over(comm_gpu_of(w)))
        TRY(comm_gpu_check(w, comm_gpu_op_text(l, k, buf)));
    TRY_CUDA(cudaStreamWaitEvent(comm_gpu_of(w)->stream, l->done[k % COMM_UNFINISHED_MAX], 0));
    return ERR_OK;
}

enum err comm_gpu_coll_start(struct comm_group *g, const struct comm_coll *c, bool now)
{
    struct comm_gpu_lane *l = g->lane;
    bool parts = l->copies && !l->queue && c->kind == COMM_ALL_TO_ALL;
    if (g->world->ops->failed(g->world))
        TRY(comm_gpu_check(g->world, comm_coll_name(c->kind)));
    if (parts)
        TRY(comm_copies_parts(g, c));
    bool hosts = l->copies && !l->queue && !g->world->warm && comm_copies_take(l, c);
    if (hosts && !parts)
        TRY(comm_copies_rendezvous(g, c));
    TRY(start(g->world, l, &(struct comm_gpu_op){.coll = *c}, now));
    if (now && l->queue)
        return follow(g->world, l, l->started - 1);
    return hosts ? host_wait(g, c) : ERR_OK;
}

bool comm_gpu_coll_chunks(const struct comm_group *g, const struct comm_coll *c)
{
    const struct comm_gpu_lane *l = g->lane;
    return l->copies && comm_copies_take(l, c);
}

enum err comm_gpu_coll_finish(struct comm_group *g)
{
    return follow(g->world, g->lane, g->finished);
}

static struct comm_gpu_lane *channel_lane(const struct comm_gpu *q, const struct comm_msg *m,
                                           int lane)
{
    struct comm_gpu_lane *l = q->lanes;
    while (l && (l->group || l->channel.from != m->from || l->channel.to != m->to ||
                 l->channel.lane != lane))
        l = l->next;
    return l;
}

enum err comm_gpu_msg_start(struct comm_world *w, const struct comm_msg *m, int lane,
                             struct comm_req *r)
{
    char buf[COMM_PENDING_TEXT];
    struct comm_gpu_lane *l = channel_lane(comm_gpu_of(w), m, lane);
    if (!l)
        FAIL(ERR_INTERNAL, "comm: %s: lane %d from rank %d to rank %d was not opened",
             comm_msg_text(m, buf), lane, m->from, m->to);
    if (w->ops->failed(w))
        TRY(comm_gpu_check(w, comm_msg_text(m, buf)));
    struct comm_gpu_op op = {.is_msg = true, .msg = *m};
    if (l->p2p)
        TRY(comm_p2p_rendezvous(w, l->p2p, m, &op.from));
    r->op = l;
    r->word[1] = l->started;
    return start(w, l, &op, false);
}

/* With more than 64 messages started behind it the event stands for a later one, which is over
 * later: waiting for that is right, too. */
enum err comm_gpu_msg_finish(struct comm_world *w, struct comm_req *r)
{
    return follow(w, r->op, r->word[1]);
}
