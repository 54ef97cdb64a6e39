/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of the pipeline over GPUs of one process, by their copy engines:
 *
 *     sender's stream     signals READY                         waits for READ
 *     receiver's stream   waits for READY, copies from where the sender has it, signals READ
 *
 * The sender's memory is in a window; where, its host writes to a mailbox that both threads see as
 * it starts the send, and the receiver's host waits for that. A launched graph writes nothing: its
 * addresses are those of the capture. Why, and why nobody waits for good: docs/design/comm.md.
 */
#include "comm/gpu/p2p.h"

#include "comm/core/board.h"
#include "comm/gpu/window.h"

#include "base/log.h"
#include "base/mem.h"

static const double look_s = 0.005;
enum { FIRST = 64 }; /* bytes */

/* Where messages lie that were sent and not yet received, [taken, put). */
struct source { const void *p; int64_t bytes; };
struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct source *of; /* owned */
    int64_t taken, put, room;
};

struct comm_p2p {
    uint32_t *mine, *theirs; /* pinned: what I wait for, owned; what my peer does */
    struct mailbox *mailbox; /* the receiver's, owned; the sender's, borrowed */
    bool sends;
    const struct comm_signals *signals; /* the transport's */
};

/* What one end sends the other. */
struct end {
    int64_t gpu, able;
    uint32_t *word;
    struct mailbox *mailbox;
    const void *window;
};

/* ---- life ---- */

static enum err mailbox_new(struct mailbox **out)
{
    struct mailbox *b;
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

static void mailbox_free(struct mailbox *b)
{
    if (!b)
        return;
    pthread_cond_destroy(&b->filled);
    pthread_mutex_destroy(&b->lock);
    mem_free(b->of);
    mem_free(b);
}

/* Both ends at once: each sends `mine` and receives `theirs`. */
static enum err swap(struct comm_world *w, const struct comm_channel *c, const struct end *mine,
                     struct end *theirs)
{
    struct end out = *mine;
    bool sends = c->from == w->rank;
    for (int way = 0; way < 2; way++) {
        int from = way ? c->to : c->from, to = way ? c->from : c->to;
        TRY(comm_gpu_pass(w, to, from, sends == (way == 0) ? (void *)&out : theirs,
                           (int64_t)sizeof out));
    }
    return ERR_OK;
}

/* The two agree whether they can. */
static enum err agree(struct comm_world *w, const struct comm_channel *c, struct comm_p2p *p,
                      bool *yes)
{
    const struct comm_gpu *q = comm_gpu_of(w);
    struct end mine = {.gpu = q->gpu, .word = p->mine, .mailbox = p->mailbox}, theirs = {0};
    mine.window = q->windows > 0 ? q->window[0] : NULL;
    TRY(swap(w, c, &mine, &theirs));
    p->theirs = theirs.word;
    if (p->sends)
        p->mailbox = theirs.mailbox;
    mine.able = (q->windows > 0 || q->shared) && comm_signals_serve(q) &&
                comm_gpu_reads((int)mine.gpu, (int)theirs.gpu);
    TRY(swap(w, c, &mine, &theirs));
    *yes = mine.able && theirs.able;
    /* What a first copy needs is made here, where nobody waits. */
    if (*yes && !p->sends && theirs.window) {
        TRY(comm_get(q->spare, theirs.window, FIRST, q->stream));
        TRY_CUDA(cudaStreamSynchronize(q->stream));
    }
    return ERR_OK;
}

enum err comm_p2p_open(struct comm_world *w, const struct comm_channel *c, struct comm_p2p **out)
{
    struct comm_p2p *p;
    bool yes = false;
    *out = NULL;
    if (comm_kind(w) != COMM_THREAD)
        return ERR_OK;
    TRY(mem_new(1, sizeof *p, "a channel by copies", &p));
    p->sends = c->from == w->rank;
    p->signals = &comm_gpu_of(w)->signals;
    enum err err = p->sends ? ERR_OK : mailbox_new(&p->mailbox);
    if (err == ERR_OK)
        err = comm_signals_new(1, &p->mine);
    if (err == ERR_OK)
        err = agree(w, c, p, &yes);
    if (err == ERR_OK && !yes && p->sends && c->lane == 0 && comm_gpu_of(w)->windows > 0)
        log_line(LOG_WARN, "comm: messages from rank %d to rank %d go by NCCL and not by copies: "
                           "their GPUs cannot read each other's memory, or wait for signal "
                           "words", c->from, c->to);
    if (err == ERR_OK && yes)
        *out = p;
    else
        comm_p2p_close(p, err != ERR_OK);
    return err;
}

void comm_p2p_close(struct comm_p2p *p, bool peers)
{
    if (!p)
        return;
    if (!p->sends && !peers)
        mailbox_free(p->mailbox);
    if (!peers)
        comm_signals_free(p->mine);
    mem_free(p);
}

void comm_p2p_release(const struct comm_p2p *p)
{
    comm_signals_release(p->mine, 1);
}

/* ---- the hosts ---- */

/* Can the receiver read it? */
static bool is_open(const struct comm_gpu *q, const struct comm_msg *m)
{
    if (q->shared)
        return true;
    for (int i = 0; i < q->windows; i++) {
        const char *w = q->window[i], *p = m->src;
        if (p >= w && p + m->bytes <= w + q->window_bytes[i])
            return true;
    }
    return false;
}

static enum err put(struct mailbox *b, struct source at)
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
static bool take(struct mailbox *b, struct source *out)
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

enum err comm_p2p_rendezvous(struct comm_world *w, struct comm_p2p *p, const struct comm_msg *m,
                        const void **from)
{
    char buf[COMM_PENDING_TEXT];
    struct source at = {m->src, m->bytes};
    *from = NULL;
    if (p->sends) {
        if (!is_open(comm_gpu_of(w), m))
            FAIL(ERR_INTERNAL, "comm: %s is not in a window, where its receiver could read it",
                 comm_msg_text(m, buf));
        return put(p->mailbox, at);
    }
    double begin = log_now();
    while (!take(p->mailbox, &at)) {
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

/* ---- the GPUs ---- */

enum err comm_p2p_move(const struct comm_p2p *p, const struct comm_msg *m, const void *from,
                        cudaStream_t s)
{
    if (p->sends) {
        TRY(comm_signal(p->signals, p->theirs, s));
        return comm_wait(p->signals, p->mine, s);
    }
    TRY(comm_wait(p->signals, p->mine, s));
    TRY(comm_get(m->dst, from, m->bytes, s));
    return comm_signal(p->signals, p->theirs, s);
}
