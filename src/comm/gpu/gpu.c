/* SPDX-License-Identifier: Apache-2.0
 *
 * What all files about GPUs stand on: errors, what an operation is called, and the lock by which
 * the watchdog and a rank's own thread keep out of each other's way (gpu/watchdog.c).
 */
#include "comm/gpu/gpu.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { OPENING_TAG = 32766 }; /* of the messages of an opening */

void comm_gpu_nap_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

enum err comm_gpu_failed(const char *file, int line, const char *call, cudaError_t e)
{
    return err_set(ERR_INTERNAL, file, line, "comm: CUDA refuses %s: %s", call,
                   cudaGetErrorString(e));
}

const char *comm_gpu_op_text(const struct comm_gpu_lane *l, int64_t k, char buf[COMM_PENDING_TEXT])
{
    const struct comm_gpu_op *op = &l->op[k % COMM_UNFINISHED_MAX];
    char what[96];
    if (op->is_msg)
        return comm_msg_text(&op->msg, buf);
    if (op->graph_step) {
        snprintf(buf, COMM_PENDING_TEXT, "the CUDA graph of step %" PRId64 " (%" PRId64
                                         " operations between ranks; train.graph=off names the "
                                         "one)", op->graph_step, op->graph_ops);
        return buf;
    }
    snprintf(buf, COMM_PENDING_TEXT, "%s in group %d", comm_coll_text(&op->coll, what), l->id);
    return buf;
}

bool comm_gpu_lock(struct comm_gpu *q)
{
    while (pthread_mutex_trylock(&q->lock) != 0) {
        if (atomic_load(&q->aborted))
            return false;
        sched_yield(); /* the watchdog's looks are short */
    }
    if (!atomic_load(&q->aborted))
        return true;
    pthread_mutex_unlock(&q->lock);
    return false;
}

enum err comm_gpu_record(struct comm_gpu *q, struct comm_gpu_lane *l,
                        const struct comm_gpu_op *op, cudaStream_t s)
{
    int64_t k = l->started % COMM_UNFINISHED_MAX;
    enum cudaStreamCaptureStatus how;
    TRY_CUDA(cudaStreamIsCapturing(q->stream, &how));
    TRY_CUDA(cudaEventRecord(l->done[k], s));
    l->op[k] = *op;
    l->op[k].captured = how != cudaStreamCaptureStatusNone;
    q->captured += l->op[k].captured;
    l->started++;
    return ERR_OK;
}

void comm_gpu_fault(struct comm_gpu *q, enum err code, const char *text)
{
    int none = ERR_OK;
    if (!atomic_compare_exchange_strong(&q->fault, &none, -1))
        return;
    snprintf(q->text, sizeof q->text, "%s", text);
    atomic_store(&q->fault, (int)code);
}

enum err comm_gpu_check(struct comm_world *w, const char *what)
{
    struct comm_gpu *q = comm_gpu_of(w);
    if (!atomic_load(&q->aborted))
        return w->ops->failed(w) ? w->ops->check(w, what) : ERR_OK;
    enum err fault = (enum err)num_max(ERR_OK, atomic_load(&q->fault));
    if (fault != ERR_OK)
        FAIL(fault, "%s", q->text);
    TRY(w->ops->check(w, what));
    FAIL(ERR_PEER, "comm: rank %d has given up its communicators; it cannot go on with %s", w->rank,
         what);
}

/* For the device's waits, which are the rank's own: so a world of processes may listen, too. */
enum err comm_gpu_check_device(void *arg)
{
    struct comm_world *w = arg;
    const char *what = "what its GPU was about";
    return atomic_load(&comm_gpu_of(w)->aborted) ? comm_gpu_check(w, what) : w->ops->check(w, what);
}

enum err comm_gpu_pass(struct comm_world *w, int to, int from, void *p, int64_t bytes)
{
    struct comm_req r = {0};
    struct comm_msg m = {.from = from, .to = to, .tag = OPENING_TAG, .lane = COMM_HOST_LANE,
                         .bytes = bytes};
    m.src = to == w->rank ? NULL : p;
    m.dst = to == w->rank ? p : NULL;
    TRY(comm_msg_start(w, &m, &r));
    return comm_finish(&r);
}

enum err comm_gpu_barrier(struct comm_group *g)
{
    return comm_coll_run(g, &(struct comm_coll){.kind = COMM_BARRIER});
}

enum err comm_gpu_host_all_gather(const struct comm_group *g, void *all, const void *mine,
                                  int64_t words)
{
    int64_t bytes = words * 8;
    if (g->host)
        return comm_coll_run(g->host, &(struct comm_coll){.kind = COMM_ALL_GATHER, .dt = DT_F64,
                                                          .count = words, .out = all, .in = mine});
    memcpy((char *)all + g->me * bytes, mine, (size_t)bytes);
    for (int i = 0; i < 2; i++)
        TRY(comm_gpu_pass(g->world, g->ranks[1 - i], g->ranks[i], (char *)all + i * bytes, bytes));
    return ERR_OK;
}
