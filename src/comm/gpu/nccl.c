/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory by NCCL, beside a world of threads or processes that carries the host's. Each group
 * of device memory and each channel has a communicator of its own, made once, while the executor
 * opens: member 0 tells the others its id through the base world, all meet there, and then
 * initialise. Ranks make theirs in one order (groups in the executor's, channels sorted by their
 * ends), so each that waits for a peer waits for one that has fewer left to make.
 *
 * What a lane takes of the GPU. Its kernels spin on multiprocessors that products would use. They
 * are of the highest priority: else a product that is queued behind what is to be sent may fill the
 * GPU first, and the message begins when it ends, beside nothing. Groups whose operations are meant
 * to run beside products (comm_group_args.beside) get at most 16 of the 132 multiprocessors of an
 * H100 or H200, where NCCL by itself may take 32: bytes cost the same time of multiprocessors
 * however few move them, so fewer do not save work, they only leave each wave of a product more
 * room and make the message later. 16 is chosen by that reckoning and not measured. NCCL_MAX_CTAS
 * overrules it, for all lanes.
 *
 * NCCL connects ranks at the first operation, and then the host does wait; so each lane runs one
 * tiny operation as it opens. Algorithms differ in what they connect: comm_environment fixes the
 * ring, by which results do not change from run to run either.
 *
 * How all this fails is in gpu/watch.c.
 */
#include "comm/gpu/gpu.h"

#include "comm/gpu/coll.h"
#include "comm/gpu/p2p.h"

#include "base/log.h"
#include "base/mem.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    PEERS_MS = 300,      /* until peers that look every few milliseconds have let go */
    ALL_ID = COMM_GROUP_IDS - 2, /* of the world's group; the handshake's is one above */
    ID_TAG = 32766,      /* of the messages with a channel's id */
    SMALL_CTAS = 1, CHANNEL_CTAS = 8, BESIDE_CTAS = 16, /* what a lane may take of the GPU */
};

/* NCCL keeps its interface for programs that were built with an older one, not a newer. */
enum err comm_nccl_fits(void)
{
    int is = 0;
    (void)ncclGetVersion(&is);
    if (is / 10000 != NCCL_MAJOR || is / 100 < NCCL_VERSION_CODE / 100)
        FAIL(ERR_CONFIG, "train.device cuda with several ranks: this program was built for NCCL "
                         "%d.%d.%d and finds version %d; install NCCL %d.%d or a later %d, or "
                         "build anew", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, is, NCCL_MAJOR,
             NCCL_MINOR, NCCL_MAJOR);
    return ERR_OK;
}

void comm_nccl_nap_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

enum err comm_nccl_cuda_failed(const char *file, int line, const char *call, cudaError_t e)
{
    return err_set(ERR_INTERNAL, file, line, "comm: CUDA refuses %s: %s", call,
                   cudaGetErrorString(e));
}

enum err comm_nccl_failed(const char *file, int line, const char *call, ncclResult_t e)
{
    const char *more = ncclGetLastError(NULL);
    enum err code = e == ncclRemoteError ? ERR_PEER : ERR_INTERNAL;
    return err_set(code, file, line, "comm: NCCL refuses %s: %s%s%s; NCCL_DEBUG=INFO says "
                                             "more", call, ncclGetErrorString(e),
                   more && more[0] ? ", " : "", more ? more : "");
}

/* ---- lanes ---- */

static enum err lane_parts(struct comm_nccl_lane *l, bool stream)
{
    int least, greatest;
    TRY_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    if (stream)
        TRY_CUDA(cudaStreamCreateWithPriority(&l->stream, cudaStreamNonBlocking, greatest));
    for (int i = 0; i < COMM_UNFINISHED_MAX; i++)
        TRY_CUDA(cudaEventCreateWithFlags(&l->done[i], cudaEventDisableTiming));
    return ERR_OK;
}

/* peers: they may still look at what is theirs to see. */
static void lane_free(struct comm_nccl_lane *l, bool peers)
{
    comm_copies_close(l->copies, peers);
    comm_post_close(l->post, peers);
    for (int i = 0; i < COMM_UNFINISHED_MAX; i++)
        if (l->done[i])
            (void)cudaEventDestroy(l->done[i]);
    if (l->stream)
        (void)cudaStreamDestroy(l->stream);
    mem_free(l);
}

static enum err lane_init(struct comm_nccl_lane *l, int n, int me, const ncclUniqueId *id, int ctas)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (ctas > 0) {
        config.minCTAs = 1;
        config.maxCTAs = ctas;
    }
    TRY_NCCL(ncclCommInitRankConfig(&l->comm, n, *id, me, &config));
    return ERR_OK;
}

/* The first operation, which connects; the host waits for it. */
static enum err lane_connect(const struct comm_nccl *q, struct comm_nccl_lane *l, int me)
{
    if (l->group)
        TRY_NCCL(ncclAllReduce(q->spare, q->spare, 1, ncclFloat32, ncclSum, l->comm, l->stream));
    else if (me == 0)
        TRY_NCCL(ncclSend(q->spare, 1, ncclInt8, 1, l->comm, l->stream));
    else
        TRY_NCCL(ncclRecv(q->spare, 1, ncclInt8, 0, l->comm, l->stream));
    TRY_CUDA(cudaStreamSynchronize(l->stream));
    return ERR_OK;
}

/* Under the watcher's eyes from here on, for a peer may fail before it connects. */
static enum err lane_meet(struct comm_nccl *q, struct comm_nccl_lane *l, int me)
{
    l->since = log_now();
    pthread_mutex_lock(&q->lock);
    bool late = atomic_load(&q->dead);
    l->next = q->lanes;
    q->lanes = l;
    pthread_mutex_unlock(&q->lock);
    if (!late)
        return lane_connect(q, l, me);
    (void)ncclCommAbort(l->comm);
    l->comm = NULL;
    return ERR_OK;
}

/* What a communicator has taken of the GPU; for PLAIT_LOG=debug in words, too. */
static void note_memory(const struct comm_nccl *q, const struct comm_nccl_lane *l, size_t before)
{
    size_t left = 0, all = 0;
    char name[64];
    if (cudaMemGetInfo(&left, &all) != cudaSuccess)
        return;
    q->queue.world->device_taken += (int64_t)before - (int64_t)left;
    if (!l)
        snprintf(name, sizeof name, "NCCL to begin with");
    else if (l->group)
        snprintf(name, sizeof name, "NCCL's group %d", l->id);
    else
        snprintf(name, sizeof name, "NCCL's lane %d from rank %d to rank %d", l->channel.lane,
                 l->channel.from, l->channel.to);
    log_line(LOG_DEBUG, "comm: %s: %.1f MiB of GPU %d, which has %.1f left", name,
             ((double)before - (double)left) / (1 << 20), q->gpu, (double)left / (1 << 20));
}

/* long: the lane as it is known, its members, and its share of the GPU */
static enum err lane_open(struct comm_nccl *q, const struct comm_nccl_lane *as, int n, int me,
                          const ncclUniqueId *id, int ctas)
{
    struct comm_nccl_lane *l;
    size_t before = 0, all = 0;
    TRY_CUDA(cudaMemGetInfo(&before, &all));
    TRY(mem_new(1, sizeof *l, "a communicator", &l));
    *l = *as;
    enum err err = lane_parts(l, true);
    if (err == ERR_OK)
        err = lane_init(l, n, me, id, ctas);
    if (err == ERR_OK)
        err = lane_meet(q, l, me);
    else
        lane_free(l, true);
    TRY(comm_nccl_check(q->queue.world, "opening a communicator")); /* a peer's failure first */
    TRY(err);
    note_memory(q, l, before);
    return ERR_OK;
}

/* Under the watcher's eyes, without a communicator. False: all is over. */
static bool lane_join(struct comm_nccl *q, struct comm_nccl_lane *l)
{
    if (!comm_nccl_lock(q))
        return false;
    l->since = log_now();
    l->next = q->lanes;
    q->lanes = l;
    pthread_mutex_unlock(&q->lock);
    return true;
}

/* Sums by copies, all that such a group does, need no communicator. */
static enum err copies_open(struct comm_group *g)
{
    struct comm_nccl *q = comm_nccl_of(g->world);
    struct comm_nccl_lane *l;
    size_t before = 0, all = 0;
    TRY_CUDA(cudaMemGetInfo(&before, &all));
    TRY(mem_new(1, sizeof *l, "a lane of copies", &l));
    *l = (struct comm_nccl_lane){.group = true, .id = g->id};
    enum err err = lane_parts(l, true);
    if (err == ERR_OK)
        err = comm_copies_open(g, l->stream, &l->copies);
    if (err != ERR_OK || !lane_join(q, l)) {
        lane_free(l, true);
        TRY(comm_nccl_check(g->world, "opening a lane of copies"));
        return err;
    }
    g->lane = l;
    g->copies = true;
    note_memory(q, l, before);
    return ERR_OK;
}

/* What the group reads in its window goes by copies, the rest by its communicator: one lane, so
 * that operations keep their order. The lane is known to the watcher, which at a failure looks at
 * its copies: they are whole when it gets them, and none come behind that. */
static enum err copies_beside(struct comm_group *g)
{
    struct comm_nccl *q = comm_nccl_of(g->world);
    struct comm_nccl_lane *l = g->lane;
    struct comm_copies *copies;
    size_t before = 0, all = 0;
    TRY_CUDA(cudaMemGetInfo(&before, &all));
    TRY(comm_copies_open(g, l->stream, &copies));
    if (!comm_nccl_lock(q)) {
        comm_copies_close(copies, true);
        return comm_nccl_check(g->world, "opening copies beside a communicator");
    }
    l->copies = copies;
    pthread_mutex_unlock(&q->lock);
    g->copies = true;
    note_memory(q, l, before);
    return ERR_OK;
}

static enum err group_open(struct comm_group *g)
{
    struct comm_nccl *q = comm_nccl_of(g->world);
    ncclUniqueId id = {{0}};
    bool copies;
    TRY(comm_copies_agree(g, &copies));
    if (copies && !g->mixed)
        return copies_open(g);
    if (g->me == 0)
        TRY_NCCL(ncclGetUniqueId(&id));
    TRY(comm_broadcast(g->host, 0, &id, (int64_t)sizeof id));
    TRY(comm_barrier(g->host)); /* all are there: initialising waits without a limit */
    TRY(lane_open(q, &(struct comm_nccl_lane){.group = true, .id = g->id}, g->n, g->me, &id,
                  g->small || copies ? SMALL_CTAS : g->beside ? BESIDE_CTAS : 0));
    g->lane = q->lanes;
    return copies ? copies_beside(g) : ERR_OK;
}

/* long: a message of an opening */
enum err comm_nccl_pass(struct comm_world *w, int to, int from, void *p, int64_t bytes)
{
    struct comm_req r = {0};
    TRY(to == w->rank ? comm_recv_start(w, from, ID_TAG, p, bytes, &r)
                      : comm_send_start(w, to, ID_TAG, p, bytes, &r));
    return comm_finish(&r);
}

/* A channel by copies needs no communicator. */
static enum err post_open(struct comm_world *w, const struct comm_channel *c,
                          struct comm_post *post)
{
    struct comm_nccl *q = comm_nccl_of(w);
    struct comm_nccl_lane *l;
    enum err err = mem_new(1, sizeof *l, "a channel", &l);
    if (err != ERR_OK) {
        comm_post_close(post, true);
        return err;
    }
    *l = (struct comm_nccl_lane){.channel = *c, .post = post};
    err = lane_parts(l, true);
    if (err == ERR_OK && lane_join(q, l))
        return ERR_OK;
    lane_free(l, true);
    TRY(err);
    return comm_nccl_check(w, "opening a channel");
}

static enum err channel_open(struct comm_world *w, const struct comm_channel *c)
{
    struct comm_post *post;
    TRY(comm_post_open(w, c, &post));
    if (post)
        return post_open(w, c, post);
    ncclUniqueId id = {{0}};
    char here = 1;
    bool sends = c->from == w->rank;
    if (sends)
        TRY_NCCL(ncclGetUniqueId(&id));
    TRY(comm_nccl_pass(w, c->to, c->from, &id, (int64_t)sizeof id));
    TRY(comm_nccl_pass(w, c->from, c->to, &here, 1));
    return lane_open(comm_nccl_of(w), &(struct comm_nccl_lane){.channel = *c}, 2, !sends, &id,
                     CHANNEL_CTAS);
}

/* ---- life ---- */

static void abort_queue(struct comm_world *w)
{
    void (*forget)(void *arg) = w->forget;
    comm_nccl_nap_ms(PEERS_MS); /* the base world is told; so is the watcher, and kernels end */
    w->forget = NULL;
    if (forget)
        forget(w->forget_arg);
    comm_nccl_kill(comm_nccl_of(w));
}

static enum err settle(struct comm_nccl *q)
{
    TRY_CUDA(cudaStreamSynchronize(q->stream));
    for (struct comm_nccl_lane *l = q->lanes; l; l = l->next)
        if (l->stream)
            TRY_CUDA(cudaStreamSynchronize(l->stream));
    TRY(comm_nccl_check(q->queue.world, "ending"));
    return comm_barrier(q->all); /* peers may still write to what is given back below */
}

static void release(struct comm_nccl *q)
{
    atomic_store(&q->stop, true);
    if (q->watched)
        pthread_join(q->watcher, NULL);
    comm_nccl_end_letting_go(q);
    while (q->lanes) {
        struct comm_nccl_lane *l = q->lanes;
        q->lanes = l->next;
        if (l->comm)
            (void)ncclCommDestroy(l->comm);
        lane_free(l, atomic_load(&q->dead));
    }
    comm_group_close(q->all);
    if (!atomic_load(&q->dead)) /* else peers may be at it still: it ends with the process */
        comm_copies_window_free(q);
    if (q->ready)
        (void)cudaEventDestroy(q->ready);
    (void)cudaFree(q->spare);
    pthread_mutex_destroy(&q->lock);
    mem_free(q);
}

static enum err close_queue(struct comm_world *w)
{
    struct comm_nccl *q = comm_nccl_of(w);
    bool failed = w->ops->failed(w) || atomic_load(&q->dead);
    enum err err = failed ? ERR_OK : settle(q);
    if (failed || err != ERR_OK)
        comm_nccl_kill(q);
    release(q);
    return err;
}

/* The lane of replays, with the first of them. */
static enum err open_replays(struct comm_nccl *q)
{
    struct comm_nccl_lane *l;
    TRY(mem_new(1, sizeof *l, "the lane of replays", &l));
    enum err err = lane_parts(l, false);
    if (err != ERR_OK || !lane_join(q, l)) {
        lane_free(l, true);
        return err;
    }
    q->replays = l;
    return ERR_OK;
}

enum err comm_nccl_replayed(struct comm_world *w, int64_t step, double seconds)
{
    struct comm_nccl *q = comm_nccl_of(w);
    if (!q->replays)
        TRY(open_replays(q));
    if (!comm_nccl_lock(q))
        return comm_nccl_check(w, "replaying a step");
    q->replays->takes = seconds;
    struct comm_nccl_op op = {.replay = step, .of = q->recorded};
    enum err err = comm_nccl_note(q, q->replays, &op, q->stream);
    pthread_mutex_unlock(&q->lock);
    return err;
}

static const struct comm_queue_ops nccl_ops = {
    .group_open = group_open, .channel_open = channel_open, .coll_start = comm_nccl_coll_start,
    .coll_now = comm_nccl_coll_now, .coll_finish = comm_nccl_coll_finish,
    .coll_steps = comm_nccl_coll_steps,
    .msg_start = comm_nccl_msg_start, .msg_finish = comm_nccl_msg_finish,
    .window_take = comm_copies_window, .replayed = comm_nccl_replayed, .abort = abort_queue,
    .close = close_queue,
};

static enum err open_parts(struct comm_nccl *q, struct comm_world *w)
{
    int *ranks;
    size_t before = 0, all = 0;
    TRY_CUDA(cudaGetDevice(&q->gpu));
    TRY_CUDA(cudaMemGetInfo(&before, &all));
    TRY_CUDA(cudaEventCreateWithFlags(&q->ready, cudaEventDisableTiming));
    TRY_CUDA(cudaMalloc(&q->spare, 256));
    TRY_CUDA(cudaMemset(q->spare, 0, 256));
    TRY(mem_new(w->size, sizeof *ranks, "the ranks of the world", &ranks));
    for (int i = 0; i < w->size; i++)
        ranks[i] = i;
    struct comm_group_args a = {.id = ALL_ID, .ranks = ranks, .n = w->size};
    a.scratch = comm_scratch_bytes(comm_kind(w), w->size, 1);
    enum err err = comm_group_open(w, &a, &q->all);
    mem_free(ranks);
    TRY(err);
    int rc = pthread_create(&q->watcher, NULL, comm_nccl_watch, q);
    if (rc != 0)
        FAIL(ERR_MEMORY, "comm: no thread to watch GPU %d: %s", q->gpu, strerror(rc));
    q->watched = true;
    note_memory(q, NULL, before);
    return ERR_OK;
}

enum err comm_nccl_open(struct comm_world *w, struct dev *d)
{
    struct comm_nccl *q;
    TRY(mem_new(1, sizeof *q, "NCCL", &q));
    q->queue = (struct comm_queue){.ops = &nccl_ops, .world = w};
    q->stream = d->ops->queue(d);
    if (pthread_mutex_init(&q->lock, NULL) != 0) {
        mem_free(q);
        FAIL(ERR_MEMORY, "comm: no lock for rank %d's GPU", w->rank);
    }
    enum err err = open_parts(q, w);
    if (err != ERR_OK) {
        release(q);
        return err;
    }
    w->queue = &q->queue;
    dev_watch(d, comm_nccl_check_device, w);
    return ERR_OK;
}
