/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as threads of one process: their life, and the table of their transport.
 */
#include "comm/comm.h"

#include "base/thread.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "comm/host/thread.h"
#include <stdio.h>
#include <string.h>

enum {
    STACK_BYTES = 8 << 20,
    SPINS = 20000,   /* looks before sleeping, when there are cores enough; about a millisecond:
                        a rank that sleeps is woken late, and often on its waker's core */
};

static void abort_rank(struct comm_world *w, enum err code)
{
    (void)code; /* the body's return value is what is reported */
    comm_thread_fail(comm_thread_endpoint(w));
}

static bool has_failed(struct comm_world *w)
{
    return atomic_load(&comm_thread_endpoint(w)->job->failed) != 0;
}

static const struct comm_ops thread_ops = {
    .msg_start = comm_thread_msg_start,
    .msg_finish = comm_thread_msg_finish,
    .coll_start = comm_thread_coll_start,
    .coll_finish = comm_thread_coll_finish,
    .group_open = comm_thread_group_open,
    .group_close = comm_thread_group_close,
    .abort = abort_rank,
    .failed = has_failed,
    .check = comm_thread_check,
};

static void *rank_main(void *arg)
{
    struct comm_thread_endpoint *e = arg;
    struct comm_thread_job *j = e->job;
    log_set_rank(e->world.rank);
    e->err = j->body(j->arg, &e->world);
    if (e->err == ERR_OK)
        e->err = comm_check_finished(&e->world);
    if (e->err != ERR_OK) {
        snprintf(e->text, sizeof e->text, "%s", err_text());
        comm_thread_fail(e);
    } else {
        comm_board_ended(&e->world);
        atomic_store(&e->exited, true);
        atomic_fetch_add(&j->exited, 1);
        comm_thread_wake_all(j);
    }
    return NULL;
}

static enum err endpoint_init(struct comm_thread_job *j, int rank)
{
    struct comm_thread_endpoint *e = &j->endpoint[rank];
    pthread_condattr_t attr;
    e->job = j;
    e->world = (struct comm_world){.ops = &thread_ops, .kind = COMM_THREAD, .rank = rank,
                                   .size = j->size, .timeout_s = j->timeout_s,
                                   .board = &j->board, .impl = e};
    j->board.of[rank] = &e->entry;
    comm_heartbeat(&e->world);
    e->mailbox.sends.last = &e->mailbox.sends.first;
    e->mailbox.recvs.last = &e->mailbox.recvs.first;
    bool ok = pthread_condattr_init(&attr) == 0;
    ok = ok && pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0;
    ok = ok && pthread_cond_init(&e->wakeup, &attr) == 0;
    ok = ok && pthread_mutex_init(&e->lock, NULL) == 0;
    ok = ok && pthread_mutex_init(&e->mailbox.lock, NULL) == 0;
    if (!ok)
        FAIL(ERR_MEMORY, "comm: no lock for rank %d of %d; run fewer ranks", rank, j->size);
    pthread_condattr_destroy(&attr);
    return ERR_OK;
}

/* Start a thread for each rank and wait for all. When a thread cannot be started, those that run
 * see that this rank has failed. */
static enum err run_threads(struct comm_thread_job *j)
{
    pthread_attr_t attr;
    int started = 0, rc = pthread_attr_init(&attr);
    if (rc == 0)
        rc = pthread_attr_setstacksize(&attr, STACK_BYTES);
    while (rc == 0 && started < j->size) {
        struct comm_thread_endpoint *e = &j->endpoint[started];
        rc = pthread_create(&e->thread, &attr, rank_main, e);
        started += rc == 0;
    }
    if (rc != 0)
        comm_thread_fail(&j->endpoint[started < j->size ? started : 0]);
    for (int i = 0; i < started; i++)
        pthread_join(j->endpoint[i].thread, NULL);
    pthread_attr_destroy(&attr);
    if (rc != 0)
        FAIL(ERR_MEMORY, "comm: thread %d of %d with a stack of %d MB cannot start: %s; run fewer "
                         "ranks", started, j->size, STACK_BYTES >> 20, strerror(rc));
    return ERR_OK;
}

/* The first error that is not a peer's; else the first. */
static enum err first_error(const struct comm_thread_job *j)
{
    const struct comm_thread_endpoint *first = &j->endpoint[0];
    char text[COMM_RANK_TEXT];
    for (int i = 1; i < j->size; i++) {
        const struct comm_thread_endpoint *e = &j->endpoint[i];
        if (e->err != ERR_OK &&
            (first->err == ERR_OK || (first->err == ERR_PEER && e->err != ERR_PEER)))
            first = e;
    }
    return first->err == ERR_OK
               ? ERR_OK
               : err_adopt(first->err, comm_rank_error(&first->world, first->text, text));
}

enum err comm_thread_run(int size, double timeout_s,
                         enum err (*body)(void *arg, struct comm_world *w), void *arg)
{
    if (size < 1 || size > COMM_RANKS_MAX)
        FAIL(ERR_CONFIG, "comm: %d ranks as threads; legal are 1..%d", size, COMM_RANKS_MAX);
    bool roomy = size <= cores_usable();
    struct comm_thread_job j = {.size = size, .timeout_s = timeout_s, .spins = roomy ? SPINS : 0,
                                .body = body, .arg = arg};
    int made = 0;
    enum err err;
    j.board.n = size;
    TRY(mem_new(size, sizeof *j.endpoint, "the ranks of a world", &j.endpoint));
    TRY_OR(out_endpoints, mem_new(size, sizeof *j.board.of, "the ranks of a world", &j.board.of));
    if (pthread_mutex_init(&j.lock, NULL) != 0) {
        err = err_set(ERR_MEMORY, __FILE__, __LINE__, "comm: no lock for a world of %d ranks",
                      size);
        goto out_endpoints;
    }
    for (; made < size; made++)
        TRY_OR(out_locks, endpoint_init(&j, made));
    TRY_OR(out_locks, run_threads(&j));
    err = first_error(&j);
out_locks:
    while (made-- > 0) {
        struct comm_thread_endpoint *e = &j.endpoint[made];
        comm_thread_msg_release(e);
        pthread_mutex_destroy(&e->mailbox.lock);
        pthread_mutex_destroy(&e->lock);
        pthread_cond_destroy(&e->wakeup);
    }
    comm_thread_groups_release(&j);
    pthread_mutex_destroy(&j.lock);
out_endpoints:
    mem_free(j.board.of);
    mem_free(j.endpoint);
    return err;
}
