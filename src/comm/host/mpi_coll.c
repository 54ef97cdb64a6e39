/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups over MPI, from point-to-point messages, so that the order of summation is ours. A group
 * works on one operation at a time, in the order of starting, by phases (docs/design/comm.md):
 *
 *     headers  every member sends every other what it is about to do (64 bytes); what goes to that
 *              one is in it, if it is up to INLINE bytes. A broadcast has one sender
 *     data     a round of payload: for reductions to the part's owner, into the scratch window;
 *              received when all headers have been compared, so that a mismatch overwrites nothing
 *     gather   all_reduce: the owner's sums to everybody, in place
 */
#include "comm/host/mpi.h"

#include "base/mem.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    HEADER_BYTES = 64,
    INLINE_BYTES = 192,
    PIECE_BYTES = 16 << 20, /* of a round without window */
};

/* What a member states, and all that it sends to the other one when that is small. */
struct header {
    int64_t seq, count, slice;
    int32_t kind, dt, red, root, n, inlined; /* inlined: bytes of `data` */
    int64_t spare[2];
    char data[INLINE_BYTES];
};
_Static_assert(sizeof(struct header) == HEADER_BYTES + INLINE_BYTES, "a header has no holes");

enum phase { PHASE_IDLE, PHASE_HEADERS, PHASE_DATA, PHASE_GATHER };

/* Requests by kind, (n) each, one row after another; the own entry stays empty. */
enum row { ROW_HEADER_SEND, ROW_HEADER_RECV, ROW_SEND, ROW_RECV, ROWS };

struct comm_mpi_group {
    struct comm_mpi_active active; /* first; in endpoint->active */
    struct comm_group *g;
    struct comm_coll queue[COMM_UNFINISHED_MAX]; /* number k at k % 64 */
    int64_t queued, done; /* operations so far */
    enum phase phase;     /* of operation `done` */
    int64_t at;           /* elements before this round */
    int64_t slice;        /* bytes of one member's slice of the window */
    char *window;         /* (n - 1, slice) owned */
    MPI_Request *request; /* (ROWS, n) owned */
    int *index;           /* (ROWS, n) owned, for MPI's answers */
    struct header *header; /* (n) owned: what came in */
    struct header *out;   /* (n) owned: what goes out to each */
    const char **source;  /* (n) owned: where the members' elements of a sum lie */
};

/* ---- opening and closing ---- */

static void group_free(struct comm_mpi_group *m)
{
    mem_free(m->source);
    mem_free(m->out);
    mem_free(m->header);
    mem_free(m->index);
    mem_free(m->request);
    mem_free(m->window);
    mem_free(m);
}

enum err comm_mpi_group_open(struct comm_group *g, int64_t scratch)
{
    struct comm_mpi_group *m;
    enum err err;
    int n = g->n;
    int64_t slice = scratch / (n - 1) / COMM_SLICE_ALIGN * COMM_SLICE_ALIGN;
    TRY(mem_new(1, sizeof *m, "a group over MPI", &m));
    m->g = g;
    m->slice = num_min(slice, COMM_WINDOW_BYTES);
    TRY_OR(out, mem_new((n - 1) * m->slice, 1, "the window of a group", &m->window));
    TRY_OR(out, mem_new(ROWS * n, sizeof *m->request, "requests of a group", &m->request));
    TRY_OR(out, mem_new(ROWS * n, sizeof *m->index, "requests of a group", &m->index));
    TRY_OR(out, mem_new(n, sizeof *m->header, "headers of a group", &m->header));
    TRY_OR(out, mem_new(n, sizeof *m->out, "headers of a group", &m->out));
    TRY_OR(out, mem_new(n, sizeof *m->source, "the members of a group", (void *)&m->source));
    for (int i = 0; i < ROWS * n; i++)
        m->request[i] = MPI_REQUEST_NULL;
    g->impl = m;
    return ERR_OK;
out:
    group_free(m);
    return err;
}

/* Take the group out of the list of those with operations under way. */
static void deactivate(struct comm_mpi_group *m)
{
    struct comm_mpi_active **at = &comm_mpi_endpoint(m->g->world)->active;
    while (*at && *at != &m->active)
        at = &(*at)->next;
    if (*at)
        *at = m->active.next;
    m->active.next = NULL;
}

void comm_mpi_group_close(struct comm_group *g)
{
    struct comm_mpi_group *m = g->impl;
    deactivate(m);
    /* With requests under way the world has failed and nothing moves any more; MPI may still hold
     * the addresses, so the memory is left to the end of the job. */
    if (m->queued == m->done)
        group_free(m);
    g->impl = NULL;
}

/* ---- posting ---- */

static enum err post_send(struct comm_mpi_group *m, enum row row, int member, const void *p,
                          int64_t bytes)
{
    struct comm_mpi_endpoint *e = comm_mpi_endpoint(m->g->world);
    if (bytes > 0 && member != m->g->me)
        TRY_MPI(MPI_Isend(p, (int)bytes, MPI_BYTE, m->g->ranks[member], m->g->id, e->coll,
                          &m->request[(int)row * m->g->n + member]));
    return ERR_OK;
}

static enum err post_recv(struct comm_mpi_group *m, enum row row, int member, void *p,
                          int64_t bytes)
{
    struct comm_mpi_endpoint *e = comm_mpi_endpoint(m->g->world);
    if (bytes > 0 && member != m->g->me)
        TRY_MPI(MPI_Irecv(p, (int)bytes, MPI_BYTE, m->g->ranks[member], m->g->id, e->coll,
                          &m->request[(int)row * m->g->n + member]));
    return ERR_OK;
}

/* Have all requests of rows [first, last] completed? */
static enum err test_rows(struct comm_mpi_group *m, enum row first, enum row last, bool *all)
{
    int n = m->g->n, count = ((int)last - (int)first + 1) * n, come;
    MPI_Request *q = m->request + (int)first * n;
    TRY_MPI(MPI_Testsome(count, q, &come, m->index, MPI_STATUSES_IGNORE));
    *all = true;
    for (int i = 0; i < count && *all; i++)
        *all = q[i] == MPI_REQUEST_NULL;
    return ERR_OK;
}

/* ---- the shape of an operation ---- */

static bool reduces(const struct comm_coll *c)
{
    return c->kind == COMM_ALL_REDUCE || c->kind == COMM_REDUCE_SCATTER || c->kind == COMM_REDUCE;
}

/* Is all that goes from one member to the other in the header? Both know. p: all_to_all's. */
static bool is_inline(const struct comm_coll *c, const struct comm_parts *p, int other)
{
    return (c->kind == COMM_ALL_TO_ALL ? p->count[other] : c->count) * c->unit <= INLINE_BYTES;
}

/* Elements that rounds go through: of an all_to_all the longest part. */
static int64_t rounds_count(const struct comm_mpi_group *m, const struct comm_coll *c)
{
    int64_t longest = c->kind == COMM_ALL_TO_ALL ? 0 : c->count;
    for (int i = 0; i < m->g->n && c->kind == COMM_ALL_TO_ALL; i++)
        longest = num_max(longest, num_max(c->send.count[i], c->recv.count[i]));
    return longest;
}

/* Elements of these that the round beginning at m->at covers. */
static int64_t round_count(const struct comm_mpi_group *m, const struct comm_coll *c)
{
    int64_t most = PIECE_BYTES / c->unit;
    if (reduces(c) && !is_inline(c, NULL, 0))
        most = m->slice / c->unit * (c->kind == COMM_ALL_REDUCE ? m->g->n : 1);
    return num_min(most, rounds_count(m, c) - m->at);
}

/* all_reduce: where member i's elements of a round begin, in bytes, and how many bytes they are. Of
 * a small one each member adds all. */
static int64_t shard_of(const struct comm_mpi_group *m, const struct comm_coll *c, int i,
                        int64_t *bytes)
{
    bool all = is_inline(c, NULL, i);
    int64_t round = round_count(m, c), each = all ? round : num_ceil_div(round, m->g->n);
    int64_t first = all ? 0 : num_min(each * i, round);
    *bytes = num_min(each, round - first) * c->unit;
    return (m->at + first) * c->unit;
}

/* What goes to member i in a round, and what comes from it. */
struct move {
    const char *from;
    char *to; /* of a reduction, the staging */
    int64_t sends, recvs; /* bytes */
};

static struct move move_of(struct comm_mpi_group *m, const struct comm_coll *c, int i)
{
    int me = m->g->me;
    int64_t at = m->at * c->unit, round = round_count(m, c) * c->unit, part = c->count * c->unit;
    char *out = c->out;
    struct move v = {.from = (const char *)c->in + at, .to = out, .sends = round, .recvs = round};
    if (!reduces(c))
        v.to += at;
    else if (i != me)
        v.to = is_inline(c, NULL, i) ? m->header[i].data
                                     : m->window + m->slice * (i < me ? i : i - 1);
    switch (c->kind) {
    case COMM_ALL_REDUCE:
        v.from = (const char *)c->in + shard_of(m, c, i, &v.sends);
        (void)shard_of(m, c, me, &v.recvs);
        if (m->phase != PHASE_GATHER)
            break;
        v.to = out + shard_of(m, c, i, &v.recvs);
        v.from = out + shard_of(m, c, me, &v.sends);
        break;
    case COMM_REDUCE_SCATTER:
        v.from += i * part;
        break;
    case COMM_ALL_GATHER:
        v.to += i * part;
        break;
    case COMM_ALL_TO_ALL:
        v.from += c->send.at[i] * c->unit;
        v.to += c->recv.at[i] * c->unit;
        v.sends = num_max(0, num_min(round, c->send.count[i] * c->unit - at));
        v.recvs = num_max(0, num_min(round, c->recv.count[i] * c->unit - at));
        break;
    case COMM_REDUCE:
        v.sends = i == c->root ? round : 0;
        v.recvs = me == c->root ? round : 0;
        break;
    case COMM_BROADCAST:
    case COMM_BARRIER: /* count 0 */
        v.sends = me == c->root ? round : 0;
        v.recvs = i == c->root ? round : 0;
        break;
    }
    return v;
}

/* ---- the phases ---- */

/* Payload of the round that goes out: right behind the header, or behind the last round. */
static enum err send_round(struct comm_mpi_group *m, const struct comm_coll *c)
{
    for (int i = 0; i < m->g->n; i++) {
        struct move v = move_of(m, c, i);
        if (!is_inline(c, &c->send, i))
            TRY(post_send(m, ROW_SEND, i, v.from, v.sends));
    }
    return ERR_OK;
}

/* What comes in; and what a member sends itself, or came with the headers, to its place. */
static enum err recv_round(struct comm_mpi_group *m, const struct comm_coll *c)
{
    for (int i = 0; i < m->g->n; i++) {
        struct move v = move_of(m, c, i);
        const char *here = i == m->g->me ? v.from : m->header[i].data;
        if (i != m->g->me && !is_inline(c, &c->recv, i))
            TRY(post_recv(m, ROW_RECV, i, v.to, v.recvs));
        else if (!reduces(c) && v.recvs > 0 && here != v.to)
            memcpy(v.to, here, (size_t)v.recvs);
    }
    return ERR_OK;
}

/* This member's part of the round, from all members in their order. */
static void reduce_round(struct comm_mpi_group *m, const struct comm_coll *c)
{
    struct move own = move_of(m, c, m->g->me);
    struct comm_accum t;
    int64_t step = comm_accum_elements(c->dt) * c->unit;
    if (own.recvs == 0)
        return;
    int64_t at = c->kind == COMM_ALL_REDUCE ? own.from - (const char *)c->in : m->at * c->unit;
    char *out = (char *)c->out + at; /* may be one of the summands */
    for (int i = 0; i < m->g->n; i++)
        m->source[i] = i == m->g->me ? own.from : move_of(m, c, i).to;
    for (int64_t byte = 0; byte < own.recvs; byte += step) {
        int64_t bytes = num_min(step, own.recvs - byte), k = bytes / c->unit;
        comm_accum_set(&t, m->source[0] + byte, k, c->dt);
        for (int i = 1; i < m->g->n; i++)
            comm_accum_add(&t, c->red, m->source[i] + byte, k, c->dt);
        memcpy(out + byte, comm_accum_result(&t, k, c->dt), (size_t)bytes);
    }
}

/* Begin operation `done`: headers, and the first payload in or behind them. */
static enum err launch(struct comm_mpi_group *m, const struct comm_coll *c)
{
    int n = m->g->n, me = m->g->me;
    bool flat = c->kind == COMM_BROADCAST;
    m->at = 0;
    m->phase = PHASE_HEADERS;
    for (int i = 0; i < n; i++) {
        struct move v = move_of(m, c, i);
        struct header *h = &m->out[i];
        int64_t inlined = is_inline(c, &c->send, i) ? v.sends : 0;
        *h = (struct header){.seq = m->done, .count = c->count, .slice = m->slice,
                             .kind = (int)c->kind, .dt = (int)c->dt, .red = (int)c->red,
                             .root = c->root, .n = n, .inlined = (int)inlined};
        if (c->kind == COMM_ALL_TO_ALL)
            h->count = c->send.count[i];
        if (inlined > 0)
            memcpy(h->data, v.from, (size_t)inlined);
        if (!flat || me == c->root)
            TRY(post_send(m, ROW_HEADER_SEND, i, h, HEADER_BYTES + inlined));
        if (!flat || i == c->root)
            TRY(post_recv(m, ROW_HEADER_RECV, i, &m->header[i], sizeof *h));
    }
    return send_round(m, c);
}

/* Compare the headers with the own one. */
static enum err check_headers(const struct comm_mpi_group *m, const struct comm_coll *c)
{
    for (int i = 0; i < m->g->n; i++) {
        const struct header *h = &m->header[i];
        if (i == m->g->me || (c->kind == COMM_BROADCAST && i != c->root))
            continue;
        struct comm_coll other = {.kind = (enum comm_coll_kind)h->kind, .dt = (enum dtype)h->dt,
                                  .red = (enum comm_red)h->red, .root = h->root,
                                  .count = h->count};
        if (h->n != m->g->n || h->slice != m->slice)
            FAIL(ERR_MISMATCH, "comm: group %d has %d members and slices of %" PRId64 " bytes on "
                               "rank %d, but %d and %" PRId64 " on rank %d", m->g->id, m->g->n,
                 m->slice, m->g->world->rank, h->n, h->slice, m->g->ranks[i]);
        if (h->seq != m->done || !comm_coll_same(&other, c))
            return comm_coll_mismatch(m->g, m->done,
                                      (int[2]){m->g->ranks[i], m->g->world->rank},
                                      (struct comm_coll[2]){other, *c});
        if (c->kind == COMM_ALL_TO_ALL && h->count != c->recv.count[i])
            return comm_pair_mismatch(m->g, m->done, &(struct comm_pair){
                m->g->ranks[i], m->g->world->rank, h->count, c->recv.count[i]});
    }
    return ERR_OK;
}

/* All messages of the phase have completed. */
static enum err after_round(struct comm_mpi_group *m, const struct comm_coll *c)
{
    if (m->phase == PHASE_HEADERS) {
        TRY(check_headers(m, c));
        m->phase = PHASE_DATA;
        return recv_round(m, c);
    }
    if (m->phase == PHASE_DATA && reduces(c))
        reduce_round(m, c);
    if (m->phase == PHASE_DATA && c->kind == COMM_ALL_REDUCE && !is_inline(c, NULL, 0)) {
        m->phase = PHASE_GATHER; /* own sums to all, theirs in place */
    } else {
        m->at += round_count(m, c);
        m->phase = m->at < rounds_count(m, c) ? PHASE_DATA : PHASE_IDLE;
    }
    if (m->phase == PHASE_IDLE) {
        m->done++;
        return ERR_OK;
    }
    TRY(send_round(m, c));
    return recv_round(m, c);
}

/* Move the operations of a group on as far as they go without waiting. */
static enum err advance(struct comm_mpi_active *a)
{
    struct comm_mpi_group *m = (struct comm_mpi_group *)a;
    while (m->done < m->queued) {
        const struct comm_coll *c = &m->queue[m->done % COMM_UNFINISHED_MAX];
        bool all = true;
        if (m->phase == PHASE_HEADERS)
            TRY(test_rows(m, ROW_HEADER_SEND, ROW_HEADER_RECV, &all));
        else if (m->phase != PHASE_IDLE)
            TRY(test_rows(m, ROW_SEND, ROW_RECV, &all));
        if (!all)
            return ERR_OK;
        TRY(m->phase == PHASE_IDLE ? launch(m, c) : after_round(m, c));
    }
    deactivate(m);
    return ERR_OK;
}

/* ---- the slots ---- */

static enum err start(struct comm_group *g, const struct comm_coll *c)
{
    struct comm_mpi_endpoint *e = comm_mpi_endpoint(g->world);
    struct comm_mpi_group *m = g->impl;
    TRY(comm_mpi_check(e, comm_coll_name(c->kind)));
    if (m->queued == m->done) {
        m->active = (struct comm_mpi_active){e->active, advance};
        e->active = &m->active;
    }
    m->queue[m->queued++ % COMM_UNFINISHED_MAX] = *c;
    TRY(comm_mpi_progress(e));
    return comm_mpi_check(e, comm_coll_name(c->kind));
}

enum err comm_mpi_coll_start(struct comm_group *g, const struct comm_coll *c, bool now)
{
    (void)now;
    enum err err = start(g, c);
    return err == ERR_OK ? ERR_OK : comm_mpi_give_up(comm_mpi_endpoint(g->world), err);
}

static enum err coll_step(const struct comm_pending_op *x, bool *done)
{
    const struct comm_mpi_group *m = x->group->impl;
    *done = m->done > x->seq;
    return ERR_OK;
}

/* A member is missing while a message of the phase from or to it is. When an earlier operation
 * holds this one up, its missing members are this one's too. */
static bool member_missing(const struct comm_pending_op *x, int i)
{
    const struct comm_group *g = x->group;
    const struct comm_mpi_group *m = g->impl;
    if (m->phase == PHASE_HEADERS)
        return m->request[ROW_HEADER_RECV * g->n + i] != MPI_REQUEST_NULL;
    return m->request[ROW_RECV * g->n + i] != MPI_REQUEST_NULL ||
           m->request[ROW_SEND * g->n + i] != MPI_REQUEST_NULL;
}

enum err comm_mpi_coll_finish(struct comm_group *g)
{
    const struct comm_mpi_group *m = g->impl;
    struct comm_pending_op x = {.missing = member_missing, .ranks = g->ranks, .n = g->n, .group = g,
                                .coll = &m->queue[g->finished % COMM_UNFINISHED_MAX],
                                .seq = g->finished};
    return comm_mpi_wait(comm_mpi_endpoint(g->world), &x, coll_step);
}
