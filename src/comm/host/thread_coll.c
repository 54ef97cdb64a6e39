/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of threads. The members of a group share a ring of slots, one for each operation under
 * way. Starting an operation publishes the member's pointers; nothing is copied beforehand and
 * nothing waits. When the last member has come the slot opens: its work is cut into blocks, and
 * every member that finishes takes blocks until none is left. It does not matter who computes a
 * block, for its result is fixed (core/accum.c), so no member waits for one that is busy computing.
 * An operation of one block is done by the last member to come, within its start. With slots for
 * twice the 64 operations that may be unfinished none is taken too early: docs/design/comm.md.
 */
#include "comm/host/thread.h"

#include "base/mem.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    RING = 2 * COMM_UNFINISHED_MAX,
    BLOCK_BYTES = 64 << 10, /* of one member; one hold */
};

struct slot {
    atomic_int_fast64_t open;     /* 1 + number of the latest operation that all have started */
    atomic_int_fast64_t complete; /* 1 + number of the latest one that is done */
    atomic_int_fast64_t next;     /* block to take */
    atomic_int_fast64_t left;     /* blocks not done */
    int64_t blocks;               /* of the open operation; written before open */
    int came, first;              /* members so far, the first of them; guarded by group->lock */
    struct comm_coll *arg;        /* (n) what each member states; written before open */
    int64_t *here;                /* (n) 1 + number of the member's latest; under group->lock */
};

/* A group as all its members see it. */
struct comm_thread_group {
    struct comm_thread_group *next; /* in job->groups; guarded by job->lock */
    int id, n;
    int opened, closed;            /* members so far; guarded by job->lock */
    int *ranks;                    /* (n) owned */
    pthread_mutex_t lock;
    struct slot slot[RING];
    struct comm_coll *arg;         /* (RING, n) owned */
    int64_t *here;                 /* (RING, n) owned */
};

/* ---- opening and closing ---- */

static void group_free(struct comm_thread_group *m)
{
    pthread_mutex_destroy(&m->lock);
    mem_free(m->here);
    mem_free(m->arg);
    mem_free(m->ranks);
    mem_free(m);
}

static enum err group_new(const struct comm_group *g, struct comm_thread_group **out)
{
    struct comm_thread_group *m;
    enum err err;
    int64_t slots = (int64_t)RING * g->n;
    TRY(mem_new(1, sizeof *m, "a group of threads", &m));
    m->id = g->id;
    m->n = g->n;
    if (pthread_mutex_init(&m->lock, NULL) != 0) {
        mem_free(m);
        FAIL(ERR_MEMORY, "comm: no lock for group %d", g->id);
    }
    TRY_OR(out_group, mem_new(g->n, sizeof *m->ranks, "the ranks of a group", &m->ranks));
    TRY_OR(out_group, mem_new(slots, sizeof *m->arg, "the slots of a group", &m->arg));
    TRY_OR(out_group, mem_new(slots, sizeof *m->here, "the slots of a group", &m->here));
    memcpy(m->ranks, g->ranks, (size_t)g->n * sizeof *m->ranks);
    for (int i = 0; i < RING; i++) {
        m->slot[i].arg = m->arg + (int64_t)i * g->n;
        m->slot[i].here = m->here + (int64_t)i * g->n;
    }
    *out = m;
    return ERR_OK;
out_group:
    group_free(m);
    return err;
}

/* The group of g's id that not all members have opened yet, or a new one. Under job->lock. */
static enum err group_find(struct comm_thread_job *j, const struct comm_group *g,
                           struct comm_thread_group **out)
{
    struct comm_thread_group *m = j->groups;
    while (m && (m->id != g->id || m->opened == m->n))
        m = m->next;
    if (m && (m->n != g->n || memcmp(m->ranks, g->ranks, (size_t)g->n * sizeof *m->ranks) != 0))
        FAIL(ERR_MISMATCH, "comm: rank %d opens group %d with %d members from rank %d on, another "
                           "member opened it with %d from rank %d on, or in another order",
             g->world->rank, g->id, g->n, g->ranks[0], m->n, m->ranks[0]);
    if (!m) {
        TRY(group_new(g, &m));
        m->next = j->groups;
        j->groups = m; /* released by comm_thread_group_close or comm_thread_groups_release */
    }
    m->opened++;
    *out = m;
    return ERR_OK;
}

enum err comm_thread_group_open(struct comm_group *g, int64_t scratch)
{
    struct comm_thread_endpoint *e = comm_thread_endpoint(g->world);
    struct comm_thread_group *m;
    (void)scratch; /* this transport needs none */
    pthread_mutex_lock(&e->job->lock);
    enum err err = group_find(e->job, g, &m);
    pthread_mutex_unlock(&e->job->lock);
    if (err != ERR_OK) {
        comm_thread_fail(e);
        return err;
    }
    g->impl = m;
    return ERR_OK;
}

void comm_thread_group_close(struct comm_group *g)
{
    struct comm_thread_job *j = comm_thread_endpoint(g->world)->job;
    struct comm_thread_group *m = g->impl;
    pthread_mutex_lock(&j->lock);
    bool last = ++m->closed == m->n;
    if (last) {
        struct comm_thread_group **at = &j->groups;
        while (*at != m)
            at = &(*at)->next;
        *at = m->next;
    }
    pthread_mutex_unlock(&j->lock);
    if (last)
        group_free(m);
    g->impl = NULL;
}

void comm_thread_groups_release(struct comm_thread_job *j)
{
    while (j->groups) {
        struct comm_thread_group *m = j->groups;
        j->groups = m->next;
        group_free(m);
    }
}

/* ---- the work of an operation ---- */

static int64_t block_elements(const struct comm_coll *c)
{
    return BLOCK_BYTES / c->unit;
}

/* The elements of an operation form parts, each cut into blocks: of an all_to_all what a member
 * receives, else runs of `count`. */
static int64_t part_blocks(const struct comm_coll *arg, int64_t part)
{
    return num_ceil_div(arg[arg->kind == COMM_ALL_TO_ALL ? part : 0].count, block_elements(arg));
}

/* Elements [at, at + k) of part `part`: the sum (or maximum) over the members. */
static void reduce_block(const struct comm_coll *arg, int n, int64_t part, int64_t at, int64_t k)
{
    struct comm_accum t;
    enum dtype dt = arg[0].dt;
    int64_t step = comm_accum_elements(dt), unit = arg[0].unit;
    int64_t one = arg[0].kind == COMM_REDUCE ? arg[0].root : part;
    bool all = arg[0].kind == COMM_ALL_REDUCE;
    for (int64_t end = at + k; at < end; at += step) {
        int64_t run = num_min(step, end - at), byte = (part * arg[0].count + at) * unit;
        comm_accum_set(&t, (const char *)arg[0].in + byte, run, dt);
        for (int m = 1; m < n; m++)
            comm_accum_add(&t, arg[0].red, (const char *)arg[m].in + byte, run, dt);
        const void *x = comm_accum_result(&t, run, dt);
        for (int64_t m = all ? 0 : one; m < (all ? n : one + 1); m++)
            memcpy((char *)arg[m].out + at * unit, x, (size_t)(run * unit));
    }
}

/* Elements [at, at + k) of member `from`'s input to everybody's output, from `to` on. */
static void copy_block(const struct comm_coll *arg, int n, int64_t from, int64_t at, int64_t k,
                       int64_t to)
{
    const char *x = (const char *)arg[from].in + at * arg[0].unit;
    for (int m = 0; m < n; m++) {
        char *y = (char *)arg[m].out + to * arg[0].unit;
        if (y != x)
            memcpy(y, x, (size_t)(k * arg[0].unit));
    }
}

/* all_to_all: elements [at, at + k) of what member `to` receives, sender by sender. */
static void recv_block(const struct comm_coll *arg, int n, int64_t to, int64_t at, int64_t k)
{
    const struct comm_parts *recv = &arg[to].recv;
    int64_t unit = arg[0].unit;
    for (int from = 0; from < n && k > 0; from++) {
        int64_t run = num_max(0, num_min(recv->count[from] - at, k));
        const struct comm_parts *send = &arg[from].send;
        if (run > 0)
            memcpy((char *)arg[to].out + (recv->at[from] + at) * unit,
                   (const char *)arg[from].in + (send->at[to] + at) * unit, (size_t)(run * unit));
        at = num_max(0, at - recv->count[from]);
        k -= run;
    }
}

static void do_block(const struct slot *slot, int n, int64_t block)
{
    const struct comm_coll *c = &slot->arg[0];
    int64_t part = 0;
    for (; block >= part_blocks(c, part); part++)
        block -= part_blocks(c, part);
    int64_t at = block * block_elements(c);
    int64_t k = num_min(block_elements(c), c[c->kind == COMM_ALL_TO_ALL ? part : 0].count - at);
    switch (c->kind) {
    case COMM_ALL_TO_ALL:
        recv_block(c, n, part, at, k);
        break;
    case COMM_ALL_REDUCE:
    case COMM_REDUCE_SCATTER:
    case COMM_REDUCE:
        reduce_block(c, n, part, at, k);
        break;
    case COMM_ALL_GATHER:
        copy_block(c, n, part, at, k, part * c->count + at);
        break;
    case COMM_BROADCAST:
        copy_block(c, n, c->root, at, k, at);
        break;
    case COMM_BARRIER:
        break;
    }
}

static void wake_members(struct comm_group *g)
{
    for (int i = 0; i < g->n; i++)
        if (i != g->me)
            comm_thread_wake(comm_thread_endpoint(g->world)->job, g->ranks[i]);
}

/* Take blocks of an open slot until none is left; whoever does the last one completes it. */
static enum err work(struct comm_group *g, struct slot *slot, int64_t seq)
{
    struct comm_thread_endpoint *e = comm_thread_endpoint(g->world);
    int64_t block;
    while ((block = atomic_fetch_add(&slot->next, 1)) < slot->blocks) {
        if (!comm_thread_hold(e->job))
            return comm_thread_check(&e->world, comm_coll_name(slot->arg[0].kind));
        do_block(slot, g->n, block);
        comm_thread_unhold(e->job);
        if (atomic_fetch_sub(&slot->left, 1) > 1)
            continue;
        atomic_store(&slot->complete, seq + 1);
        wake_members(g);
    }
    return ERR_OK;
}

/* ---- starting ---- */

/* Write down what this member states; true when it is the last. Under group->lock. */
static enum err arrive(struct comm_group *g, struct slot *slot, const struct comm_coll *c,
                       bool *last)
{
    int64_t seq = g->started;
    struct comm_coll *arg = slot->arg;
    enum err err = ERR_OK;
    arg[g->me] = *c;
    slot->here[g->me] = seq + 1;
    if (slot->came == 0)
        slot->first = g->me;
    int first = slot->first;
    if (!comm_coll_same(c, &arg[first]))
        return comm_coll_mismatch(g, seq, (int[2]){g->ranks[first], g->world->rank},
                                  (struct comm_coll[2]){arg[first], *c});
    *last = ++slot->came == g->n;
    if (*last)
        slot->came = 0;
    if (!*last || c->kind != COMM_ALL_TO_ALL)
        return ERR_OK;
    /* Does each receive what the other sends? Peers keep their counts meanwhile. */
    struct comm_thread_endpoint *e = comm_thread_endpoint(g->world);
    if (!comm_thread_hold(e->job))
        return comm_thread_check(&e->world, comm_coll_name(c->kind));
    for (int i = 0; i < g->n; i++)
        for (int j = 0; j < g->n && err == ERR_OK; j++)
            if (arg[i].send.count[j] != arg[j].recv.count[i])
                err = comm_pair_mismatch(g, seq, &(struct comm_pair){
                    g->ranks[i], g->ranks[j], arg[i].send.count[j], arg[j].recv.count[i]});
    comm_thread_unhold(e->job);
    return err;
}

enum err comm_thread_coll_start(struct comm_group *g, const struct comm_coll *c, bool now)
{
    (void)now;
    struct comm_thread_endpoint *e = comm_thread_endpoint(g->world);
    struct comm_thread_group *m = g->impl;
    struct slot *slot = &m->slot[g->started % RING];
    bool last = false;
    TRY(comm_thread_check(&e->world, comm_coll_name(c->kind)));
    pthread_mutex_lock(&m->lock);
    enum err err = arrive(g, slot, c, &last);
    pthread_mutex_unlock(&m->lock);
    if (err != ERR_OK) {
        comm_thread_fail(e);
        return err;
    }
    if (!last)
        return ERR_OK;
    bool parts = c->kind == COMM_REDUCE_SCATTER || c->kind == COMM_ALL_GATHER ||
                 c->kind == COMM_ALL_TO_ALL;
    slot->blocks = 0;
    for (int part = 0; part < (parts ? g->n : 1); part++)
        slot->blocks += part_blocks(slot->arg, part);
    atomic_store(&slot->next, 0);
    atomic_store(&slot->left, slot->blocks);
    atomic_store(&slot->open, g->started + 1);
    if (slot->blocks == 1)
        return work(g, slot, g->started);
    if (slot->blocks == 0)
        atomic_store(&slot->complete, g->started + 1);
    wake_members(g);
    return ERR_OK;
}

/* ---- finishing ---- */

static const struct slot *slot_of(const struct comm_pending_op *x)
{
    const struct comm_thread_group *m = x->group->impl;
    return &m->slot[x->seq % RING];
}

static bool is_open(const struct comm_pending_op *x)
{
    return atomic_load(&slot_of(x)->open) > x->seq;
}

static bool is_complete(const struct comm_pending_op *x)
{
    return atomic_load(&slot_of(x)->complete) > x->seq;
}

static bool member_missing(const struct comm_pending_op *x, int i)
{
    struct comm_thread_group *m = x->group->impl;
    pthread_mutex_lock(&m->lock);
    bool here = slot_of(x)->here[i] > x->seq;
    pthread_mutex_unlock(&m->lock);
    return !here;
}

enum err comm_thread_coll_finish(struct comm_group *g)
{
    struct comm_thread_endpoint *e = comm_thread_endpoint(g->world);
    struct comm_thread_group *m = g->impl;
    struct slot *slot = &m->slot[g->finished % RING];
    struct comm_pending_op x = {.missing = member_missing, .ranks = g->ranks, .n = g->n, .group = g,
                                .coll = &slot->arg[g->me], .seq = g->finished};
    TRY(comm_thread_wait(e, &x, is_open));
    if (is_complete(&x))
        return ERR_OK;
    TRY(work(g, slot, x.seq));
    return comm_thread_wait(e, &x, is_complete);
}
