/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread transport's own objects. A job is a world of ranks that are threads; an endpoint is
 * one rank in it. host/thread.c has ranks, host/thread_wait.c waiting and failing,
 * host/thread_msg.c the messages, host/thread_coll.c the groups.
 */
#ifndef PLAIT_COMM_THREAD_H
#define PLAIT_COMM_THREAD_H

#include "comm/core/board.h"
#include <pthread.h>
#include <stdatomic.h>

enum { COMM_THREAD_TEXT = 2048 };

/* One side of a message. A record of the starting rank's own pool. */
struct comm_thread_msg {
    struct comm_thread_msg *next; /* in a mailbox while unmatched, or in the pool's free list */
    struct comm_msg what;
    atomic_bool done; /* the bytes are at the receiver's */
};

/* Unmatched messages in the order of starting. */
struct comm_thread_queue {
    struct comm_thread_msg *first, **last;
};

/* Messages that have this rank as receiver. */
struct comm_thread_mailbox {
    pthread_mutex_t lock;
    struct comm_thread_queue sends, recvs; /* guarded by lock */
};

struct comm_thread_slab; /* a block of message records */

struct comm_thread_endpoint {
    struct comm_world world; /* what the rank's body holds; world.impl points back here */
    struct comm_thread_job *job;
    struct comm_entry entry;
    pthread_t thread;
    pthread_mutex_t lock; /* of wakeup */
    pthread_cond_t wakeup; /* signalled when what this rank may wait for has changed */
    struct comm_thread_mailbox mailbox;
    struct comm_thread_msg *free;   /* records not in use; touched by the own thread only */
    struct comm_thread_slab *slabs; /* owned */
    atomic_bool exited; /* the body has returned ERR_OK */
    enum err err;     /* what the body returned; read after the join */
    char text[COMM_THREAD_TEXT]; /* its message */
};

struct comm_thread_job {
    int size;
    double timeout_s; /* of one wait; 0: none */
    int spins;        /* looks before a waiting rank sleeps */
    enum err (*body)(void *arg, struct comm_world *w);
    void *arg;
    atomic_int failed;  /* 1 + the rank that failed first; 0: none */
    atomic_int exited;  /* ranks whose body has returned ERR_OK */
    atomic_int copying; /* ranks that are amid a piece of other ranks' buffers */
    pthread_mutex_t lock;
    struct comm_thread_group *groups; /* of all groups; guarded by lock */
    struct comm_thread_endpoint *endpoint; /* (size) owned */
    struct comm_board board;        /* of the endpoints' entries */
};

static inline struct comm_thread_endpoint *comm_thread_endpoint(const struct comm_world *w)
{
    return w->impl;
}

/* Wait until ready. Errors: ERR_PEER when a rank has failed or one that is missing has ended,
 * ERR_HANG as of comm_hang_timer_check; then the world has failed and no peer is amid this rank's
 * buffers. */
enum err comm_thread_wait(struct comm_thread_endpoint *e, const struct comm_pending_op *x,
                          bool (*ready)(const struct comm_pending_op *x));

/* Make rank `rank`, or all, look again at what they wait for. */
void comm_thread_wake(struct comm_thread_job *j, int rank);
void comm_thread_wake_all(struct comm_thread_job *j);

/* This rank has failed: wake all, and return when no peer touches published buffers any more
 * (each is at most one piece away from noticing). True: it is the first. */
bool comm_thread_fail(struct comm_thread_endpoint *e);

/* FAIL with ERR_PEER when the world has failed, naming what this rank was about. */
enum err comm_thread_check(struct comm_world *w, const char *what);

/* Around each piece of other ranks' buffers, which they keep meanwhile; false: the world has
 * failed, keep off. */
bool comm_thread_hold(struct comm_thread_job *j);
void comm_thread_unhold(struct comm_thread_job *j);

/* The slots of comm_ops. */
enum err comm_thread_msg_start(struct comm_world *w, const struct comm_msg *m, struct comm_req *r);
enum err comm_thread_msg_finish(struct comm_world *w, struct comm_req *r);
enum err comm_thread_coll_start(struct comm_group *g, const struct comm_coll *c, bool now);
enum err comm_thread_coll_finish(struct comm_group *g);
enum err comm_thread_group_open(struct comm_group *g, int64_t scratch);
void comm_thread_group_close(struct comm_group *g);

/* What is left when all ranks have ended. */
void comm_thread_msg_release(struct comm_thread_endpoint *e);
void comm_thread_groups_release(struct comm_thread_job *j);

#endif
