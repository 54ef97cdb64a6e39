/* SPDX-License-Identifier: Apache-2.0
 *
 * Ends a GPU's operations when something goes wrong. The rank's own thread may sit in any call of
 * the driver, so a thread for each rank checks every few milliseconds whether the world has failed,
 * whether NCCL reports an error, and whether a lane made no progress for the world's timeout while
 * no rank was in a file call. If so it aborts all communicators and ends all waiting of copies: the
 * host wakes, and finds the reason at its next check. Graphs must be destroyed before communicators
 * can end: docs/design/comm.md.
 */
#include "comm/gpu/gpu.h"

#include "comm/core/board.h"

#include "base/log.h"
#include <stdio.h>

enum {
    LOOK_MS = 5,
    LOCK_S = 2,          /* until a call under the lock counts as stuck in the driver */
    RELEASE_MS = 10000,   /* until streams that wait for nobody any more are through */
};

/* From the failure to the end: nobody waits for a copy's peer. A thread of its own, and stores
 * alone, for every call of the driver may stand behind what it must set free. */
static void *release_waiters(void *arg)
{
    struct comm_gpu *q = arg;
    const struct timespec nap = {.tv_nsec = 100000};
    while (!atomic_load(&q->free)) {
        for (const struct comm_gpu_lane *l = q->waiters; l; l = l->next)
            if (l->copies)
                comm_copies_release(l->copies);
        nanosleep(&nap, NULL);
    }
    return NULL;
}

void comm_gpu_end_release(struct comm_gpu *q)
{
    for (const struct comm_gpu_lane *l = q->lanes; l && q->releasing; l = l->next)
        for (int ms = 0; l->copies && ms < RELEASE_MS; ms++) {
            if (cudaStreamQuery(l->stream) != cudaErrorNotReady &&
                cudaStreamQuery(q->stream) != cudaErrorNotReady)
                break;
            comm_gpu_nap_ms(1);
        }
    (void)cudaGetLastError();
    atomic_store(&q->free, true);
    if (q->releasing)
        pthread_join(q->releaser, NULL);
}

/* False: whoever has it does not give it back for LOCK_S. */
static bool lock_soon(pthread_mutex_t *m)
{
    struct timespec until = comm_deadline(CLOCK_REALTIME, LOCK_S);
    return pthread_mutex_timedlock(m, &until) == 0;
}

/* Abort all communicators; from any thread, the first call counts. A thread that holds the lock for
 * long is stuck in the driver, behind the very kernel that must end. Ranks of one process take
 * turns: of a communicator's ranks there NCCL has the last one free what is all of theirs. */
void comm_gpu_abort_all(struct comm_gpu *q)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    if (atomic_exchange(&q->aborted, true)) {
        pthread_mutex_lock(&q->lock); /* the one that came first is done with it */
        pthread_mutex_unlock(&q->lock);
        return;
    }
    bool locked = lock_soon(&q->lock), any = false;
    for (const struct comm_gpu_lane *l = q->lanes; l; l = l->next)
        any = any || l->copies;
    q->waiters = q->lanes; /* none with copies comes behind a failure */
    q->releasing = any && pthread_create(&q->releaser, NULL, release_waiters, q) == 0;
    if (any && !q->releasing)
        log_line(LOG_WARN, "comm: no thread to free GPU %d from its peers", q->gpu);
    bool alone = lock_soon(&turn);
    comm_nccl_abort_all(q->lanes);
    if (alone)
        pthread_mutex_unlock(&turn);
    if (locked)
        pthread_mutex_unlock(&q->lock);
}

/* ---- the watchdog ---- */

static bool is_over(const struct comm_gpu_lane *l, int64_t k)
{
    if (l->queue && k >= atomic_load(&l->through))
        return false;
    k %= COMM_UNFINISHED_MAX;
    return l->op[k].captured || cudaEventQuery(l->done[k]) != cudaErrorNotReady;
}

/* Under the lock: does all go well? Else the fault is noted. */
static bool all_well(struct comm_gpu *q)
{
    const struct comm_world *w = q->device.world;
    char what[COMM_PENDING_TEXT], text[COMM_GPU_TEXT];
    for (struct comm_gpu_lane *l = q->lanes; l && atomic_load(&q->fault) == ERR_OK; l = l->next) {
        enum err fault = ERR_OK;
        int64_t before = l->seen; /* moves on to the first operation that is not over */
        l->seen = num_max(l->seen, l->started - COMM_UNFINISHED_MAX);
        while (l->seen < l->started && is_over(l, l->seen))
            l->seen++;
        if (l->seen != before || l->seen == l->started)
            l->since = log_now();
        const char *report = comm_nccl_reports(l, &fault);
        if (report) {
            snprintf(text, sizeof text, "comm: NCCL reports on rank %d, in %s: %s", w->rank,
                     l->seen < l->started ? comm_gpu_op_text(l, l->seen, what) : "no operation",
                     report);
        } else if (w->timeout_s > 0 && log_now() - l->since > w->timeout_s + l->takes &&
                   !comm_board_files(w)) {
            fault = ERR_HANG;
            snprintf(text, sizeof text,
                     "comm: rank %d has waited %g s in %s on its GPU; a member has not come, or "
                     "stands before it; look where they are, or raise the hang timeout", w->rank,
                     w->timeout_s, comm_gpu_op_text(l, l->seen, what));
        }
        if (fault != ERR_OK)
            comm_gpu_fault(q, fault, text);
    }
    return atomic_load(&q->fault) <= ERR_OK;
}

/* One look. Whoever holds the lock for longer than a hang is waiting in the driver, behind the
 * kernel that hangs. */
static bool look(struct comm_gpu *q, double *looked)
{
    const struct comm_world *w = q->device.world;
    if (w->ops->failed(q->device.world))
        return false;
    if (pthread_mutex_trylock(&q->lock) == 0) {
        bool well = all_well(q);
        pthread_mutex_unlock(&q->lock);
        *looked = log_now();
        return well;
    }
    if (w->timeout_s <= 0 || log_now() - *looked < w->timeout_s + LOCK_S || comm_board_files(w))
        return true;
    char text[COMM_GPU_TEXT];
    snprintf(text, sizeof text, "comm: rank %d has waited %g s for its GPU to take one operation "
                                "more; a member of an earlier one has not come; look where they "
                                "are, or raise the hang timeout", w->rank, w->timeout_s);
    comm_gpu_fault(q, ERR_HANG, text);
    return false;
}

/* Queries of events must not spoil the capture of another thread: mode relaxed. */
void *comm_gpu_watchdog(void *arg)
{
    struct comm_gpu *q = arg;
    struct comm_world *w = q->device.world;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    double looked = log_now();
    log_set_rank(w->rank);
    bool ready = cudaSetDevice(q->gpu) == cudaSuccess &&
                 cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess;
    if (!ready)
        log_line(LOG_WARN, "comm: GPU %d cannot be watched", q->gpu);
    while (ready && !atomic_load(&q->stop)) {
        comm_gpu_nap_ms(LOOK_MS);
        if (!look(q, &looked)) {
            comm_gpu_abort_all(q);
            break;
        }
    }
    return NULL;
}
