/* SPDX-License-Identifier: Apache-2.0
 *
 * How ranks that are threads wait, and how they fail. Each waits on a condition variable of its
 * own, `wakeup`. Whoever changes something a rank may wait for stores it atomically first and
 * signals second; the waiter looks again under the lock before it sleeps.
 * With more ranks than cores it sleeps at once, for one that spins keeps the awaited one from
 * running. Every piece of another rank's buffers is held while it is copied, and a rank that
 * fails waits until none is (docs/design/comm.md).
 */
#include "comm/host/thread.h"

#include <sched.h>

void comm_thread_wake(struct comm_thread_job *j, int rank)
{
    struct comm_thread_endpoint *e = &j->endpoint[rank];
    pthread_mutex_lock(&e->lock);
    pthread_cond_signal(&e->wakeup);
    pthread_mutex_unlock(&e->lock);
}

void comm_thread_wake_all(struct comm_thread_job *j)
{
    for (int i = 0; i < j->size; i++)
        comm_thread_wake(j, i);
}

/* ---- failing ---- */

bool comm_thread_hold(struct comm_thread_job *j)
{
    atomic_fetch_add(&j->copying, 1);
    if (atomic_load(&j->failed) == 0)
        return true;
    atomic_fetch_sub(&j->copying, 1);
    return false;
}

void comm_thread_unhold(struct comm_thread_job *j)
{
    atomic_fetch_sub(&j->copying, 1);
}

static void drain(struct comm_thread_job *j)
{
    while (atomic_load(&j->copying) != 0)
        sched_yield();
}

bool comm_thread_fail(struct comm_thread_endpoint *e)
{
    int none = 0;
    bool first = atomic_compare_exchange_strong(&e->job->failed, &none, 1 + e->world.rank);
    if (first)
        comm_thread_wake_all(e->job);
    drain(e->job);
    return first;
}

enum err comm_thread_check(struct comm_world *w, const char *what)
{
    const struct comm_thread_endpoint *e = comm_thread_endpoint(w);
    int failed = atomic_load(&e->job->failed);
    if (failed == 0)
        return ERR_OK;
    drain(e->job);
    FAIL(ERR_PEER, "comm: rank %d has failed; rank %d gives up %s", failed - 1, w->rank, what);
}

/* ---- waiting ---- */

/* Has a rank ended that must still come? A rank that has come before it ended is not missing, so
 * `exited` is read before `missing`. */
static enum err check_exited(struct comm_thread_endpoint *e, const struct comm_pending_op *x)
{
    if (atomic_load(&e->job->exited) == 0)
        return ERR_OK;
    for (int i = 0; i < x->n; i++) {
        if (!atomic_load(&e->job->endpoint[x->ranks[i]].exited) || !x->missing(x, i))
            continue;
        comm_thread_fail(e);
        return comm_peer_exited(x, &e->world, i);
    }
    return ERR_OK;
}

/* For so many seconds at most; negative: without end. exited: of the job, as it was before
 * check_exited looked. */
static void sleep_until_woken(struct comm_thread_endpoint *e,
                              bool (*ready)(const struct comm_pending_op *x),
                              const struct comm_pending_op *x, int exited, double seconds)
{
    struct timespec deadline = comm_deadline(CLOCK_MONOTONIC, fmax(0, seconds));
    pthread_mutex_lock(&e->lock);
    /* One look under the lock, at all that wakes this rank: whoever wakes stores first. */
    bool woken =
        ready(x) || atomic_load(&e->job->failed) != 0 || atomic_load(&e->job->exited) != exited;
    if (!woken && seconds >= 0)
        pthread_cond_timedwait(&e->wakeup, &e->lock, &deadline);
    else if (!woken)
        pthread_cond_wait(&e->wakeup, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

static enum err wait_loop(struct comm_thread_endpoint *e, const struct comm_pending_op *x,
                          bool (*ready)(const struct comm_pending_op *x), struct comm_hang_timer *t)
{
    char buf[COMM_PENDING_TEXT];
    while (!ready(x)) {
        if (atomic_load(&e->job->failed) != 0)
            TRY(comm_thread_check(&e->world, comm_pending_text(x, buf)));
        int exited = atomic_load(&e->job->exited);
        TRY(check_exited(e, x));
        enum err err = comm_hang_timer_check(&e->world, x, t);
        if (err != ERR_OK && !comm_thread_fail(e)) /* another one has found it */
            TRY(comm_thread_check(&e->world, comm_pending_text(x, buf)));
        TRY(err);
        sleep_until_woken(e, ready, x, exited, comm_hang_timer_nap(&e->world, t));
    }
    return ERR_OK;
}

enum err comm_thread_wait(struct comm_thread_endpoint *e, const struct comm_pending_op *x,
                          bool (*ready)(const struct comm_pending_op *x))
{
    struct comm_hang_timer t;
    for (int i = 0; i < e->job->spins; i++)
        if (ready(x))
            return ERR_OK;
    comm_hang_timer_start(&e->world, &t);
    enum err err = wait_loop(e, x, ready, &t);
    comm_board_waits_end(&e->world);
    return err;
}
