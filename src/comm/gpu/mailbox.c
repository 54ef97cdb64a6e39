/* SPDX-License-Identifier: Apache-2.0
 *
 * Where messages of a channel by copies lie. The sender's memory is in a window; where, its host
 * writes to a mailbox that both threads see as it starts the send, and the receiver's host waits
 * for that. A launched graph writes nothing: its addresses are those of the capture. Why nobody
 * waits for good: docs/design/comm.md.
 */
#include "comm/gpu/gpu.h"

#include "comm/core/board.h"

#include "base/log.h"
#include "base/mem.h"

static const double look_s = 0.005;

/* Where messages lie that were sent and not yet received, [taken, put). */
struct source { const void *p; int64_t bytes; };
struct comm_mailbox {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct source *of; /* owned */
    int64_t taken, put, room;
};

enum err comm_mailbox_new(struct comm_mailbox **out)
{
    struct comm_mailbox *b;
    pthread_condattr_t attr;
    TRY(mem_new(1, sizeof *b, "a channel's messages", &b));
    bool ok = pthread_condattr_init(&attr) == 0;
    ok = ok && pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0;
    ok = ok && pthread_cond_init(&b->filled, &attr) == 0;
    ok = ok && pthread_mutex_init(&b->lock, NULL) == 0;
    if (!ok) {
        mem_free(b);
        FAIL(ERR_MEMORY, "comm: no lock for a channel's messages");
    }
    pthread_condattr_destroy(&attr);
    *out = b;
    return ERR_OK;
}

void comm_mailbox_free(struct comm_mailbox *b)
{
    if (!b)
        return;
    pthread_cond_destroy(&b->filled);
    pthread_mutex_destroy(&b->lock);
    mem_free(b->of);
    mem_free(b);
}

static enum err put(struct comm_mailbox *b, struct source at)
{
    enum err err = ERR_OK;
    pthread_mutex_lock(&b->lock);
    if (b->put == b->room && b->taken > 0) {
        memmove(b->of, b->of + b->taken, (size_t)(b->put - b->taken) * sizeof *b->of);
        b->put -= b->taken;
        b->taken = 0;
    }
    if (b->put == b->room) {
        int64_t room = num_max(64, 2 * b->room);
        err = mem_grow(b->room, room, sizeof *b->of, "a channel's messages", &b->of);
        b->room = err == ERR_OK ? room : b->room;
    }
    if (err == ERR_OK)
        b->of[b->put++] = at;
    pthread_cond_signal(&b->filled);
    pthread_mutex_unlock(&b->lock);
    return err;
}

/* The next one, if one comes within a look. */
static bool take(struct comm_mailbox *b, struct source *out)
{
    struct timespec until = comm_deadline(CLOCK_MONOTONIC, look_s);
    pthread_mutex_lock(&b->lock);
    if (b->taken == b->put)
        (void)pthread_cond_timedwait(&b->filled, &b->lock, &until);
    bool there = b->taken < b->put;
    if (there)
        *out = b->of[b->taken++];
    pthread_mutex_unlock(&b->lock);
    return there;
}

enum err comm_mailbox_meet(struct comm_world *w, struct comm_mailbox *b, const struct comm_msg *m,
                           const void **from)
{
    const struct comm_gpu *q = comm_gpu_of(w);
    char buf[COMM_PENDING_TEXT];
    struct source at = {m->src, m->bytes};
    if (!b)
        return ERR_OK;
    if (m->src) {
        bool open = false; /* to the receiver */
        for (int i = 0; i < q->windows; i++) {
            const char *window = q->window[i], *p = m->src;
            open = open || (p >= window && p + m->bytes <= window + q->window_bytes[i]);
        }
        if (!open)
            FAIL(ERR_INTERNAL, "comm: %s is not in a window, where its receiver could read it",
                 comm_msg_text(m, buf));
        return put(b, at);
    }
    double begin = log_now();
    while (!take(b, &at)) {
        TRY(comm_gpu_check(w, comm_msg_text(m, buf)));
        if (w->timeout_s > 0 && log_now() - begin > w->timeout_s && !comm_board_files(w))
            FAIL(ERR_HANG, "comm: rank %d has waited %g s for rank %d to begin %s; look where that "
                           "one is, or raise the hang timeout", w->rank, w->timeout_s, m->from,
                 comm_msg_text(m, buf));
    }
    if (at.bytes != m->bytes)
        FAIL(ERR_MISMATCH, "comm: %s, but %lld bytes were sent", comm_msg_text(m, buf),
             (long long)at.bytes);
    *from = at.p;
    return ERR_OK;
}
