/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups over MPI, from point-to-point messages, so that the order of summation is ours. A group
 * works on one operation at a time, in the order of starting, by phases (docs/design/comm.md):
 *
 *     headers  every member sends every other what it is about to do (64 bytes); inputs of up to
 *              INLINE bytes are in it, and then this is all there is. A broadcast has one sender
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

/* What a member states, and its whole input when that is small. */
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
    struct header *header; /* (n) owned: what came in; at the own index, what goes out to all */
    struct header *pair;  /* (n) owned: all_to_all: what goes out to each */
    const char **source;  /* (n) owned: where the members' elements of a sum lie */
};

/* ---- opening and closing ---- */

static void group_free(struct comm_mpi_group *m)
{
    mem_free(m->source);
    mem_free(m->pair);
    mem_free(m->header);
    mem_free(m->index);
    mem_free(m->request);
    mem_free(m->window);
    mem_free(m);
}

static enum err group_memory(struct comm_mpi_group *m, int n)
{
    TRY(mem_new((n - 1) * m->slice, 1, "the window of a group", &m->window));
    TRY(mem_new(ROWS * n, sizeof *m->request, "requests of a group", &m->request));
    TRY(mem_new(ROWS * n, sizeof *m->index, "requests of a group", &m->index));
    TRY(mem_new(n, sizeof *m->header, "headers of a group", &m->header));
    TRY(mem_new(n, sizeof *m->pair, "headers of a group", &m->pair));
    TRY(mem_new(n, sizeof *m->source, "the members of a group", (void *)&m->source));
    for (int i = 0; i < ROWS * n; i++)
        m->request[i] = MPI_REQUEST_NULL;
    return ERR_OK;
}

enum err comm_mpi_group_open(struct comm_group *g, int64_t scratch)
{
    struct comm_mpi_group *m;
    int64_t slice = scratch / (g->n - 1) / COMM_SLICE_ALIGN * COMM_SLICE_ALIGN;
    TRY(mem_new(1, sizeof *m, "a group over MPI", &m));
    m->g = g;
    m->slice = num_min(slice, COMM_WINDOW_BYTES);
    enum err err = group_memory(m, g->n);
    if (err != ERR_OK) {
        group_free(m);
        return err;
    }
    g->impl = m;
    return ERR_OK;
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

/* Elements of the whole input of a member. */
static int64_t input_count(const struct comm_coll *c, int n)
{
    return c->kind == COMM_REDUCE_SCATTER ? c->count * n : c->count;
}

/* Is the whole input in the headers? */
static bool is_inline(const struct comm_coll *c, int n)
{
    return c->kind != COMM_ALL_TO_ALL && input_count(c, n) * c->unit <= INLINE_BYTES;
}

/* all_to_all: is a part, which both sides of a pair know? */
static bool part_is_inline(const struct comm_coll *c, int64_t count)
{
    return count * c->unit <= INLINE_BYTES;
}

/* Elements that rounds go through: of an all_to_all the longest part to or from another member. */
static int64_t rounds_count(const struct comm_mpi_group *m, const struct comm_coll *c)
{
    int64_t longest = 0;
    if (c->kind != COMM_ALL_TO_ALL)
        return c->count;
    for (int i = 0; i < m->g->n; i++)
        if (i != m->g->me)
            longest = num_max(longest, num_max(c->send.count[i], c->recv.count[i]));
    return longest;
}

/* Elements of c->count that the round beginning at m->at covers. */
static int64_t round_count(const struct comm_mpi_group *m, const struct comm_coll *c)
{
    int64_t most = PIECE_BYTES / c->unit;
    if (c->kind == COMM_ALL_REDUCE)
        most = m->slice / c->unit * m->g->n;
    else if (reduces(c))
        most = m->slice / c->unit;
    return num_min(most, rounds_count(m, c) - m->at);
}

/* The elements of member `i`'s part of a round, as (first element in the long buffer, count). */
struct part {
    int64_t first, count;
};

static struct part part_of(const struct comm_mpi_group *m, const struct comm_coll *c, int i)
{
    int64_t round = round_count(m, c);
    if (c->kind == COMM_REDUCE)
        return (struct part){m->at, i == c->root ? round : 0};
    if (c->kind != COMM_ALL_REDUCE)
        return (struct part){i * c->count + m->at, round};
    int64_t each = num_ceil_div(round, m->g->n);
    int64_t first = num_min(each * i, round);
    return (struct part){m->at + first, num_min(each, round - first)};
}

/* all_to_all: what goes to or comes from member i in a round. */
static struct part pair_part(const struct comm_mpi_group *m, const struct comm_coll *c,
                             const struct comm_parts *p, int i)
{
    int64_t left = part_is_inline(c, p->count[i]) ? 0 : p->count[i] - m->at;
    return (struct part){p->at[i] + m->at, num_max(0, num_min(round_count(m, c), left))};
}

static char *slice_of(const struct comm_mpi_group *m, int member)
{
    return m->window + m->slice * (member < m->g->me ? member : member - 1);
}

/* ---- the phases ---- */

/* Payload of the round that goes out: right behind the header, or behind the last round. */
static enum err send_round(struct comm_mpi_group *m, const struct comm_coll *c)
{
    bool pairs = c->kind == COMM_ALL_TO_ALL;
    for (int i = 0; i < m->g->n; i++) {
        struct part p = pairs ? pair_part(m, c, &c->send, i) : part_of(m, c, i);
        if (reduces(c) || pairs)
            TRY(post_send(m, ROW_SEND, i, (const char *)c->in + p.first * c->unit,
                          p.count * c->unit));
        else if (c->kind == COMM_ALL_GATHER || c->root == m->g->me)
            TRY(post_send(m, ROW_SEND, i, (const char *)c->in + m->at * c->unit,
                          p.count * c->unit));
    }
    return ERR_OK;
}

static enum err recv_round(struct comm_mpi_group *m, const struct comm_coll *c)
{
    int me = m->g->me;
    bool pairs = c->kind == COMM_ALL_TO_ALL;
    for (int i = 0; i < m->g->n; i++) {
        struct part p = pairs ? pair_part(m, c, &c->recv, i) : part_of(m, c, reduces(c) ? me : i);
        if (reduces(c))
            TRY(post_recv(m, ROW_RECV, i, i == me ? NULL : slice_of(m, i), p.count * c->unit));
        else if (c->kind == COMM_ALL_GATHER || pairs)
            TRY(post_recv(m, ROW_RECV, i, (char *)c->out + p.first * c->unit, p.count * c->unit));
        else if (i == c->root)
            TRY(post_recv(m, ROW_RECV, i, (char *)c->out + m->at, p.count));
    }
    return ERR_OK;
}

/* Reduce `count` elements of m->source, in member order, to `out`, which may be one of them. */
static void reduce(const struct comm_mpi_group *m, const struct comm_coll *c, char *out,
                   int64_t count)
{
    struct comm_accum t;
    int64_t step = comm_accum_elements(c->dt);
    for (int64_t at = 0; at < count; at += step) {
        int64_t k = num_min(step, count - at), byte = at * c->unit;
        comm_accum_set(&t, m->source[0] + byte, k, c->dt);
        for (int i = 1; i < m->g->n; i++)
            comm_accum_add(&t, c->red, m->source[i] + byte, k, c->dt);
        memcpy(out + byte, comm_accum_result(&t, k, c->dt), (size_t)(k * c->unit));
    }
}

/* This member's part of the round from all slices. */
static void reduce_round(struct comm_mpi_group *m, const struct comm_coll *c)
{
    struct part p = part_of(m, c, m->g->me);
    int64_t to = c->kind == COMM_ALL_REDUCE ? p.first : m->at;
    if (p.count == 0)
        return;
    for (int i = 0; i < m->g->n; i++)
        m->source[i] = i == m->g->me ? (const char *)c->in + p.first * c->unit : slice_of(m, i);
    reduce(m, c, (char *)c->out + to * c->unit, p.count);
}

/* all_reduce: own sums to all, theirs in place. The round's other messages have completed. */
static enum err gather_round(struct comm_mpi_group *m, const struct comm_coll *c)
{
    struct part own = part_of(m, c, m->g->me);
    for (int i = 0; i < m->g->n; i++) {
        struct part p = part_of(m, c, i);
        TRY(post_send(m, ROW_SEND, i, (char *)c->out + own.first * c->unit, own.count * c->unit));
        TRY(post_recv(m, ROW_RECV, i, (char *)c->out + p.first * c->unit, p.count * c->unit));
    }
    return ERR_OK;
}

/* The whole result from the headers. */
static void take_inline(struct comm_mpi_group *m, const struct comm_coll *c)
{
    int n = m->g->n, me = m->g->me;
    int64_t bytes = c->count * c->unit;
    for (int i = 0; i < n; i++)
        m->source[i] = m->header[i].data + (c->kind == COMM_REDUCE_SCATTER ? me * bytes : 0);
    if (bytes == 0 || (c->kind == COMM_REDUCE && me != c->root))
        return;
    if (reduces(c))
        reduce(m, c, c->out, c->count);
    else if (c->kind == COMM_ALL_GATHER)
        for (int i = 0; i < n; i++)
            memcpy((char *)c->out + i * bytes, m->source[i], (size_t)bytes);
    else if (c->kind == COMM_BROADCAST && me != c->root)
        memcpy(c->out, m->source[c->root], (size_t)bytes);
}

/* all_to_all: the header for member i, with its part if that is inline. */
static struct header *pair_header(struct comm_mpi_group *m, const struct comm_coll *c, int i)
{
    struct header *h = &m->pair[i];
    int64_t count = c->send.count[i];
    *h = m->header[m->g->me];
    h->count = count;
    h->inlined = part_is_inline(c, count) ? (int)(count * c->unit) : 0;
    if (h->inlined > 0)
        memcpy(h->data, (const char *)c->in + c->send.at[i] * c->unit, (size_t)h->inlined);
    return h;
}

/* Begin operation `done`: headers, and the first payload behind them. */
static enum err launch(struct comm_mpi_group *m, const struct comm_coll *c)
{
    int n = m->g->n, me = m->g->me;
    bool all_inline = is_inline(c, n), flat = c->kind == COMM_BROADCAST;
    int64_t inlined = all_inline ? input_count(c, n) * c->unit : 0;
    struct header *own = &m->header[me];
    *own = (struct header){.seq = m->done, .count = c->count, .slice = m->slice,
                           .kind = (int)c->kind, .dt = (int)c->dt, .red = (int)c->red,
                           .root = c->root, .n = n, .inlined = (int)inlined};
    if (inlined > 0)
        memcpy(own->data, c->in, (size_t)inlined);
    m->at = 0;
    m->phase = PHASE_HEADERS;
    for (int i = 0; i < n; i++) {
        struct header *h = c->kind == COMM_ALL_TO_ALL ? pair_header(m, c, i) : own;
        if (!flat || me == c->root)
            TRY(post_send(m, ROW_HEADER_SEND, i, h, HEADER_BYTES + h->inlined));
        if (!flat || i == c->root)
            TRY(post_recv(m, ROW_HEADER_RECV, i, &m->header[i], sizeof *h));
    }
    return all_inline ? ERR_OK : send_round(m, c);
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

/* all_gather: what a member sends to the others, in its own output, too. */
static void place_own(const struct comm_mpi_group *m, const struct comm_coll *c)
{
    int64_t bytes = c->count * c->unit;
    char *own = (char *)c->out + m->g->me * bytes;
    if (own != c->in)
        memcpy(own, c->in, (size_t)bytes);
}

/* all_to_all: what a member sends itself, and what came with the headers, to its place. */
static void place_parts(const struct comm_mpi_group *m, const struct comm_coll *c)
{
    int me = m->g->me;
    for (int i = 0; i < m->g->n; i++) {
        int64_t bytes = c->recv.count[i] * c->unit;
        const char *from = i == me ? (const char *)c->in + c->send.at[i] * c->unit
                                   : m->header[i].data;
        if (bytes > 0 && (i == me || part_is_inline(c, c->recv.count[i])))
            memcpy((char *)c->out + c->recv.at[i] * c->unit, from, (size_t)bytes);
    }
}

/* The headers are here. */
static enum err after_headers(struct comm_mpi_group *m, const struct comm_coll *c)
{
    TRY(check_headers(m, c));
    if (is_inline(c, m->g->n)) {
        take_inline(m, c);
        m->phase = PHASE_IDLE;
        m->done++;
        return ERR_OK;
    }
    if (c->kind == COMM_ALL_GATHER)
        place_own(m, c);
    if (c->kind == COMM_ALL_TO_ALL)
        place_parts(m, c);
    m->phase = PHASE_DATA;
    return recv_round(m, c);
}

/* All messages of the phase have completed. */
static enum err after_round(struct comm_mpi_group *m, const struct comm_coll *c)
{
    if (m->phase == PHASE_DATA && reduces(c))
        reduce_round(m, c);
    if (m->phase == PHASE_DATA && c->kind == COMM_ALL_REDUCE) {
        m->phase = PHASE_GATHER;
        return gather_round(m, c);
    }
    m->at += round_count(m, c);
    m->phase = m->at < rounds_count(m, c) ? PHASE_DATA : PHASE_IDLE;
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
        bool all;
        if (m->phase == PHASE_IDLE) {
            TRY(launch(m, c));
        } else if (m->phase == PHASE_HEADERS) {
            TRY(test_rows(m, ROW_HEADER_SEND, ROW_HEADER_RECV, &all));
            if (!all)
                return ERR_OK;
            TRY(after_headers(m, c));
        } else {
            TRY(test_rows(m, ROW_SEND, ROW_RECV, &all));
            if (!all)
                return ERR_OK;
            TRY(after_round(m, c));
        }
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
    const struct comm_group *g = x->a;
    const struct comm_mpi_group *m = g->impl;
    *done = m->done > x->seq;
    return ERR_OK;
}

/* A member is missing while a message of the phase from or to it is. When an earlier operation
 * holds this one up, its missing members are this one's too. */
static bool member_missing(const struct comm_pending_op *x, int i)
{
    const struct comm_group *g = x->a;
    const struct comm_mpi_group *m = g->impl;
    if (m->phase == PHASE_HEADERS)
        return m->request[ROW_HEADER_RECV * g->n + i] != MPI_REQUEST_NULL;
    return m->request[ROW_RECV * g->n + i] != MPI_REQUEST_NULL ||
           m->request[ROW_SEND * g->n + i] != MPI_REQUEST_NULL;
}

static const char *coll_text(const struct comm_pending_op *x, char buf[COMM_PENDING_TEXT])
{
    const struct comm_group *g = x->a;
    const struct comm_mpi_group *m = g->impl;
    return comm_coll_pending_text(g, &m->queue[x->seq % COMM_UNFINISHED_MAX], x->seq, buf);
}

enum err comm_mpi_coll_finish(struct comm_group *g)
{
    struct comm_pending_op x = {.missing = member_missing, .text = coll_text, .ranks = g->ranks,
                                .n = g->n, .a = g, .seq = g->finished};
    return comm_mpi_wait(comm_mpi_endpoint(g->world), &x, coll_step);
}
