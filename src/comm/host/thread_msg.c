/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between threads. Each rank has a mailbox with the sends to it and the receives by it
 * that have found no partner yet, in the order of starting; a newcomer takes the first partner with
 * the same (from, tag), which keeps the order of each channel. The bytes go straight from the
 * sender's buffer to the receiver's, once, and the side that comes second copies them, within its
 * start, so no finish ever waits for the other side's finish. Records come from a pool of the
 * starting rank, which grows by whole slabs; there is no allocation for each message.
 */
#include "comm/host/thread.h"

#include "base/mem.h"
#include "base/text.h"
#include <inttypes.h>
#include <string.h>

enum {
    SLAB_RECORDS = 128,
    PIECE_BYTES = 256 << 10, /* copied under one hold */
};

struct comm_thread_slab {
    struct comm_thread_slab *next;
    struct comm_thread_msg record[SLAB_RECORDS];
};

static enum err take(struct comm_thread_endpoint *e, struct comm_thread_msg **out)
{
    if (!e->free) {
        struct comm_thread_slab *slab;
        TRY(mem_new(1, sizeof *slab, "message records", &slab));
        slab->next = e->slabs;
        e->slabs = slab; /* released by comm_thread_msg_release */
        for (int i = 0; i < SLAB_RECORDS; i++) {
            slab->record[i].next = e->free;
            e->free = &slab->record[i];
        }
    }
    *out = e->free;
    e->free = e->free->next;
    return ERR_OK;
}

void comm_thread_msg_release(struct comm_thread_endpoint *e)
{
    while (e->slabs) {
        struct comm_thread_slab *slab = e->slabs;
        e->slabs = slab->next;
        mem_free(slab);
    }
}

/* Take the first message of (from, tag) out of the queue; NULL: none. */
static struct comm_thread_msg *queue_match(struct comm_thread_queue *q, const struct comm_msg *m)
{
    for (struct comm_thread_msg **at = &q->first; *at; at = &(*at)->next) {
        struct comm_thread_msg *x = *at;
        if (x->what.from != m->from || x->what.tag != m->tag)
            continue;
        *at = x->next;
        if (!x->next)
            q->last = at;
        return x;
    }
    return NULL;
}

/* Move the bytes of a matched pair and wake the side that came first. */
static enum err deliver(struct comm_thread_endpoint *e, const struct comm_thread_msg *mine,
                        struct comm_thread_msg *first)
{
    const struct comm_msg *send = mine->what.src ? &mine->what : &first->what;
    const struct comm_msg *recv = mine->what.src ? &first->what : &mine->what;
    char buf[COMM_PENDING_TEXT];
    if (send->bytes != recv->bytes) {
        comm_thread_fail(e);
        FAIL(ERR_MISMATCH, "comm: rank %d sends %" PRId64 " byte%s with tag %d, but rank %d "
                           "receives %" PRId64 "; both sides must agree", send->from, send->bytes,
             text_plural(send->bytes, "s"), send->tag, send->to, recv->bytes);
    }
    for (int64_t at = 0; at < send->bytes; at += PIECE_BYTES) {
        if (!comm_thread_hold(e->job))
            return comm_thread_check(&e->world, comm_msg_text(&mine->what, buf));
        memcpy((char *)recv->dst + at, (const char *)send->src + at,
               (size_t)num_min(PIECE_BYTES, send->bytes - at));
        comm_thread_unhold(e->job);
    }
    int rank = first->what.src ? first->what.from : first->what.to;
    atomic_store(&first->done, true); /* from here the record is its owner's again */
    comm_thread_wake(e->job, rank);
    return ERR_OK;
}

enum err comm_thread_msg_start(struct comm_world *w, const struct comm_msg *m, struct comm_req *r)
{
    struct comm_thread_endpoint *e = comm_thread_endpoint(w);
    struct comm_thread_mailbox *mailbox = &e->job->endpoint[m->to].mailbox;
    struct comm_thread_queue *own = m->src ? &mailbox->sends : &mailbox->recvs;
    struct comm_thread_msg *mine;
    char buf[COMM_PENDING_TEXT];
    TRY(comm_thread_check(&e->world, comm_msg_text(m, buf)));
    TRY(take(e, &mine));
    mine->what = *m;
    mine->next = NULL;
    atomic_store(&mine->done, false);
    pthread_mutex_lock(&mailbox->lock);
    struct comm_thread_msg *first = queue_match(m->src ? &mailbox->recvs : &mailbox->sends, m);
    if (!first) {
        *own->last = mine;
        own->last = &mine->next;
    }
    pthread_mutex_unlock(&mailbox->lock);
    if (first) {
        TRY(deliver(e, mine, first));
        atomic_store(&mine->done, true);
    }
    r->op = mine;
    return ERR_OK;
}

static bool msg_ready(const struct comm_pending_op *x)
{
    const struct comm_thread_msg *m = x->a;
    return atomic_load(&m->done);
}

static bool msg_missing(const struct comm_pending_op *x, int i)
{
    (void)i;
    return !msg_ready(x);
}

enum err comm_thread_msg_finish(struct comm_world *w, struct comm_req *r)
{
    struct comm_thread_endpoint *e = comm_thread_endpoint(w);
    struct comm_thread_msg *m = r->op;
    int peer = m->what.src ? m->what.to : m->what.from;
    struct comm_pending_op x = {.missing = msg_missing, .ranks = &peer, .n = 1, .msg = &m->what,
                                .a = m};
    TRY(comm_thread_wait(e, &x, msg_ready));
    m->next = e->free;
    e->free = m;
    return ERR_OK;
}
