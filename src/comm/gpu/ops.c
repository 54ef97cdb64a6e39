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
 *
 * The streams of a GPU that ranks share are mapped to few hardware queues, and a stream that waits
 * for a peer holds up all of its queue, that peer's streams among them; so no stream waits there. A
 * thread takes the lane's operations in their order, waits in the stream's place for each signal
 * (comm_wait), and puts what comes behind it on the stream. Whoever finishes an operation waits
 * until the thread is through it, thus until the peers have started theirs.
 */
#include "comm/gpu/gpu.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

/* By copies, or by the lane's communicator. Under the lock, so that the watchdog takes no
 * communicator away in its midst; or of a queue by its thread. */
static enum err perform(const struct comm_gpu_lane *l, const struct comm_gpu_op *op,
                        cudaStream_t s)
{
    char buf[96];
    if (l->copies && (op->is_msg || comm_copies_take(l, &op->coll)))
        return comm_copies_do(l, op, s);
    if (op->coll.chunk > 0)
        FAIL(ERR_INTERNAL, "comm: %s in group %d, which does not move by copies",
             comm_coll_text(&op->coll, buf), l->id);
    if (!l->comm)
        FAIL(ERR_INTERNAL, "comm: %s in group %d, which was opened for sums inside its window",
             comm_coll_text(&op->coll, buf), l->id);
    return comm_nccl_do(l, op, s);
}

/* ---- the queue of a lane of a shared GPU ---- */

struct item {
    struct item *next;
    struct comm_gpu_op op;
    int64_t parts[4][COMM_COPIES_MEMBERS]; /* of an all_to_all, whose caller goes at a failure */
};

struct comm_queue {
    struct comm_gpu *q;        /* borrowed */
    struct comm_gpu_lane *lane;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct item *first, **last; /* owned; guarded by lock */
    bool stop;                 /* guarded by lock */
};

/* NULL: no more come. */
static struct item *next_item(struct comm_queue *f)
{
    pthread_mutex_lock(&f->lock);
    while (!f->first && !f->stop)
        pthread_cond_wait(&f->filled, &f->lock);
    struct item *t = f->first;
    if (t) {
        f->first = t->next;
        f->last = f->first ? f->last : &f->first;
    }
    pthread_mutex_unlock(&f->lock);
    return t;
}

static enum err work_one(const struct comm_queue *f, const struct comm_gpu_op *op)
{
    struct comm_gpu_lane *l = f->lane;
    int64_t k = atomic_load(&l->through);
    TRY_CUDA(cudaSetDevice(f->q->gpu)); /* of this thread */
    TRY(perform(l, op, l->stream));
    TRY_CUDA(cudaEventRecord(l->done[k % COMM_UNFINISHED_MAX], l->stream));
    atomic_store(&l->through, k + 1);
    return ERR_OK;
}

static void *work(void *arg)
{
    struct comm_queue *f = arg;
    struct item *t;
    enum err err = ERR_OK;
    log_set_rank(f->q->device.world->rank);
    for (; (t = next_item(f)); mem_free(t)) {
        if (err == ERR_OK && !comm_gpu_is_over(f->q))
            err = work_one(f, &t->op);
        if (err != ERR_OK && !comm_gpu_is_over(f->q)) /* this rank's own */
            comm_gpu_fault(f->q, err, err_text());
    }
    return NULL;
}

enum err comm_queue_open(struct comm_gpu *q, struct comm_gpu_lane *l)
{
    struct comm_queue *f;
    char what[48];
    TRY(mem_new(1, sizeof *f, "a lane's queue", &f));
    f->q = q;
    f->lane = l;
    f->last = &f->first;
    if (pthread_mutex_init(&f->lock, NULL) != 0 || pthread_cond_init(&f->filled, NULL) != 0) {
        mem_free(f);
        FAIL(ERR_MEMORY, "comm: no lock for a lane's queue");
    }
    snprintf(what, sizeof what, "wait for a lane of GPU %d", q->gpu);
    enum err err = thread_start(&f->thread, work, f, what);
    if (err != ERR_OK) {
        pthread_cond_destroy(&f->filled);
        pthread_mutex_destroy(&f->lock);
        mem_free(f);
        return err;
    }
    l->queue = f;
    return ERR_OK;
}

void comm_queue_close(struct comm_queue *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_cond_signal(&f->filled);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    pthread_cond_destroy(&f->filled);
    pthread_mutex_destroy(&f->lock);
    mem_free(f);
}

/* The operation behind those before; the queue's thread records its event. Waits for nothing. */
static enum err enqueue(struct comm_gpu *q, struct comm_gpu_lane *l, const struct comm_gpu_op *op)
{
    enum cudaStreamCaptureStatus how;
    struct comm_queue *f = l->queue;
    struct item *t;
    TRY_CUDA(cudaStreamIsCapturing(q->stream, &how));
    if (how != cudaStreamCaptureStatusNone)
        FAIL(ERR_INTERNAL, "comm: a step is captured on GPU %d, which ranks share; their threads "
                           "wait, and none would at a replay", q->gpu);
    TRY(mem_new(1, sizeof *t, "an operation of a lane", &t));
    t->op = *op;
    if (!op->is_msg && op->coll.kind == COMM_ALL_TO_ALL) {
        const int64_t **part[] = {&t->op.coll.recv.count, &t->op.coll.recv.at,
                                  &t->op.coll.send.count, &t->op.coll.send.at};
        for (int i = 0; i < 4; i++)
            *part[i] = memcpy(t->parts[i], *part[i], (size_t)l->n * sizeof **part[i]);
    }
    l->op[l->started++ % COMM_UNFINISHED_MAX] = *op;
    pthread_mutex_lock(&f->lock);
    *f->last = t;
    f->last = &t->next;
    pthread_cond_signal(&f->filled);
    pthread_mutex_unlock(&f->lock);
    return ERR_OK;
}

/* ---- starting ---- */

/* The operation on stream s, and its event behind it. */
static enum err launch(struct comm_gpu *q, struct comm_gpu_lane *l, const struct comm_gpu_op *op,
                       cudaStream_t s)
{
    if (s != q->stream) {
        TRY_CUDA(cudaEventRecord(q->ready, q->stream));
        TRY_CUDA(cudaStreamWaitEvent(s, q->ready, 0));
    }
    if (l->queue)
        return enqueue(q, l, op);
    TRY(perform(l, op, s));
    return comm_gpu_record(q, l, op, s);
}

static enum err start(struct comm_world *w, struct comm_gpu_lane *l, const struct comm_gpu_op *op,
                      bool now)
{
    struct comm_gpu *q = comm_gpu_of(w);
    enum err err = ERR_OK;
    bool alive = comm_gpu_lock(q);
    if (alive) {
        err = launch(q, l, op, now && !l->queue ? q->stream : l->stream);
        pthread_mutex_unlock(&q->lock);
    }
    if (alive && err == ERR_OK)
        return ERR_OK;
    /* This call's own mistake, unless the end of all is behind it. */
    TRY(comm_gpu_check(w, "starting an operation"));
    TRY(err);
    FAIL(ERR_PEER, "comm: rank %d starts an operation on a communicator that is closed", w->rank);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

/* The device's stream goes on when operation k is over. */
static enum err follow(struct comm_world *w, struct comm_gpu_lane *l, int64_t k)
{
    const struct comm_gpu *q = comm_gpu_of(w);
    char buf[COMM_PENDING_TEXT];
    while (l->queue && atomic_load(&l->through) <= k && !comm_gpu_is_over(q))
        nap(); /* until the queue's thread is through it: the peers have started theirs */
    if (comm_gpu_is_over(q))
        TRY(comm_gpu_check(w, comm_gpu_op_text(l, k, buf)));
    TRY_CUDA(cudaStreamWaitEvent(q->stream, l->done[k % COMM_UNFINISHED_MAX], 0));
    return ERR_OK;
}

enum err comm_gpu_coll_start(struct comm_group *g, const struct comm_coll *c, bool now)
{
    struct comm_world *w = g->world;
    struct comm_gpu_lane *l = g->impl;
    const char *name = comm_coll_name(c->kind);
    bool parts = l->copies && !l->queue && c->kind == COMM_ALL_TO_ALL;
    if (w->ops->failed(w))
        TRY(comm_gpu_check(w, name));
    if (parts)
        TRY(comm_copies_parts(g, c));
    bool hosts = l->copies && !l->queue && !w->warm && comm_copies_take(l, c);
    if (hosts && !parts)
        TRY(comm_copies_rendezvous(g, c));
    TRY(start(w, l, &(struct comm_gpu_op){.coll = *c}, now));
    if (now && l->queue)
        return follow(w, l, l->started - 1);
    if (!hosts)
        return ERR_OK;
    cudaError_t e; /* hosts wait until it is over */
    while ((e = cudaEventQuery(l->done[(l->started - 1) % COMM_UNFINISHED_MAX])) ==
           cudaErrorNotReady) {
        (void)cudaGetLastError();
        TRY(comm_gpu_check(w, name));
        nap();
    }
    TRY_CUDA(e);
    return comm_gpu_check(w, name);
}

bool comm_gpu_coll_chunks(const struct comm_group *g, const struct comm_coll *c)
{
    const struct comm_gpu_lane *l = g->impl;
    return l->copies && comm_copies_take(l, c);
}

enum err comm_gpu_coll_finish(struct comm_group *g)
{
    return follow(g->world, g->impl, g->finished);
}

enum err comm_gpu_msg_start(struct comm_world *w, const struct comm_msg *m, struct comm_req *r)
{
    char buf[COMM_PENDING_TEXT];
    struct comm_gpu_lane *l = comm_gpu_of(w)->lanes;
    while (l && (l->group || l->channel.from != m->from || l->channel.to != m->to ||
                 l->channel.lane != m->lane))
        l = l->next;
    if (!l)
        FAIL(ERR_INTERNAL, "comm: %s: lane %d from rank %d to rank %d was not opened",
             comm_msg_text(m, buf), m->lane, m->from, m->to);
    if (w->ops->failed(w))
        TRY(comm_gpu_check(w, comm_msg_text(m, buf)));
    struct comm_gpu_op op = {.is_msg = true, .msg = *m};
    TRY(comm_mailbox_meet(w, l->mailbox, m, &op.from));
    r->op = l;
    r->word[0] = l->started;
    return start(w, l, &op, false);
}

/* With more than 64 messages started behind it the event stands for a later one, which is over
 * later: waiting for that is right, too. */
enum err comm_gpu_msg_finish(struct comm_world *w, struct comm_req *r)
{
    return follow(w, r->op, r->word[0]);
}
