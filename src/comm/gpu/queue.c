/* SPDX-License-Identifier: Apache-2.0
 *
 * A lane of a GPU that ranks share. Its streams are mapped to few hardware queues, and a stream
 * that waits for a peer holds up all of its queue, that peer's streams among them; so no stream
 * waits. A thread takes the lane's operations in their order, waits in the stream's place for each
 * signal (comm_wait), and queues what comes behind it. Whoever finishes an operation waits until
 * the thread is through it, thus until the peers have started theirs.
 */
#include "comm/gpu/gpu.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include <stdio.h>
#include <string.h>

struct item {
    struct item *next;
    struct comm_gpu_op op;
    int64_t parts[4][COMM_COPIES_MEMBERS]; /* of an all_to_all, whose caller goes at a failure */
};

struct comm_queue {
    struct comm_gpu *q;        /* borrowed */
    struct comm_gpu_lane *lane;
    comm_perform_fn *perform;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct item *first, **last; /* owned; guarded by lock */
    bool stop;                 /* guarded by lock */
    atomic_int_fast64_t through;
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

static enum err perform(struct comm_queue *f, const struct comm_gpu_op *op)
{
    struct comm_gpu_lane *l = f->lane;
    int64_t k = atomic_load(&f->through);
    TRY(f->perform(l, op, l->stream));
    TRY_CUDA(cudaEventRecord(l->done[k % COMM_UNFINISHED_MAX], l->stream));
    atomic_store(&f->through, k + 1);
    return ERR_OK;
}

static enum err use_gpu(const struct comm_queue *f)
{
    TRY_CUDA(cudaSetDevice(f->q->gpu));
    return ERR_OK;
}

static void *work(void *arg)
{
    struct comm_queue *f = arg;
    struct item *t;
    log_set_rank(f->q->device.world->rank);
    enum err err = use_gpu(f);
    for (; (t = next_item(f)); mem_free(t)) {
        if (err == ERR_OK && !comm_gpu_is_over(f->q))
            err = perform(f, &t->op);
        if (err != ERR_OK && !comm_gpu_is_over(f->q)) /* this rank's own */
            comm_gpu_fault(f->q, err, err_text());
    }
    return NULL;
}

enum err comm_queue_open(struct comm_gpu *q, struct comm_gpu_lane *l, comm_perform_fn *perform_one)
{
    struct comm_queue *f;
    TRY(mem_new(1, sizeof *f, "a lane's queue", &f));
    f->q = q;
    f->lane = l;
    f->perform = perform_one;
    f->last = &f->first;
    if (pthread_mutex_init(&f->lock, NULL) != 0 || pthread_cond_init(&f->filled, NULL) != 0) {
        mem_free(f);
        FAIL(ERR_MEMORY, "comm: no lock for a lane's queue");
    }
    char what[48];
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

enum err comm_queue_put(struct comm_queue *f, const struct comm_gpu_op *op)
{
    struct item *t;
    TRY(mem_new(1, sizeof *t, "an operation of a lane", &t));
    t->op = *op;
    if (!op->is_msg && op->coll.kind == COMM_ALL_TO_ALL) {
        const int64_t **part[] = {&t->op.coll.recv.count, &t->op.coll.recv.at,
                                  &t->op.coll.send.count, &t->op.coll.send.at};
        for (int i = 0; i < 4; i++)
            *part[i] = memcpy(t->parts[i], *part[i], (size_t)f->lane->n * sizeof **part[i]);
    }
    pthread_mutex_lock(&f->lock);
    *f->last = t;
    f->last = &t->next;
    pthread_cond_signal(&f->filled);
    pthread_mutex_unlock(&f->lock);
    return ERR_OK;
}

int64_t comm_queue_through(const struct comm_queue *f)
{
    return atomic_load(&f->through);
}
