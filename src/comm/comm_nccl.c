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
 * Failing. A kernel that waits for a peer spins on the GPU and knows no timeout, and the host may
 * sit in any call of the driver behind it, so nothing on the rank's own thread can be relied upon.
 * A watcher, a thread for each rank, looks every few milliseconds whether the world has failed,
 * whether NCCL reports an error, and whether a lane has stood still for longer than the world's
 * timeout. If so it aborts all communicators: their kernels end, the host wakes, and finds the
 * reason at its next look. They are aborted as one group, for giving one back waits for the device,
 * which another may hold. A failing rank gives its peers time to do the same before it frees what
 * they write to.
 *
 * Recorded operations have no events of their own. A replay is one operation of a lane without a
 * communicator, with an event behind it, so that one that hangs is found and named by its step.
 * NCCL gives a communicator back only when no recording has operations of it: aborting ends its
 * kernels at once and then waits until the rank's own thread has woken, failed, and forgotten its
 * recording. So that thread must not wait for the lock which the aborting one holds.
 */
#include "comm/comm_nccl.h"

#include "comm/comm_nccl_copies.h"

#include "base/log.h"
#include "base/mem.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    LOOK_MS = 5,
    PEERS_MS = 300,      /* until peers that look every LOOK_MS have let go */
    LOCK_S = 2,          /* until a call under the lock counts as stuck in the driver */
    ALL_ID = COMM_GROUP_IDS - 2, /* of the world's group; the handshake's is one above */
    ID_TAG = 32766,      /* of the messages with a channel's id */
    LET_GO_MS = 10000,   /* until streams that wait for nobody any more are through */
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

static void nap_ms(long ms)
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

/* ---- failing ---- */

/* From the failure to the end: nobody waits for a copy's peer. A thread of its own, and stores
 * alone, for every call of the driver may stand behind what it must set free. */
static void *let_go(void *arg)
{
    struct comm_nccl *q = arg;
    const struct timespec nap = {.tv_nsec = 100000};
    while (!atomic_load(&q->free)) {
        for (const struct comm_nccl_lane *l = q->let_go; l; l = l->next)
            if (l->copies)
                comm_copies_let_go(l);
        nanosleep(&nap, NULL);
    }
    return NULL;
}

static void begin_to_let_go(struct comm_nccl *q)
{
    bool any = false;
    for (const struct comm_nccl_lane *l = q->lanes; l; l = l->next)
        any = any || l->copies;
    if (!any)
        return;
    q->let_go = q->lanes; /* none with copies comes behind a failure */
    q->lets_go = pthread_create(&q->saver, NULL, let_go, q) == 0;
    if (!q->lets_go)
        log_line(LOG_WARN, "comm: no thread to free GPU %d from its peers", q->gpu);
}

/* Behind it no stream waits for a peer any more. */
static void end_letting_go(struct comm_nccl *q)
{
    for (const struct comm_nccl_lane *l = q->lanes; l && q->lets_go; l = l->next)
        for (int ms = 0; l->copies && ms < LET_GO_MS; ms++) {
            if (cudaStreamQuery(l->stream) != cudaErrorNotReady &&
                cudaStreamQuery(q->stream) != cudaErrorNotReady)
                break;
            nap_ms(1);
        }
    (void)cudaGetLastError();
    atomic_store(&q->free, true);
    if (q->lets_go)
        pthread_join(q->saver, NULL);
}

/* Abort all communicators; from any thread, the first call counts. A thread that holds the lock for
 * long is stuck in the driver, behind the very kernel that must end. */
static void kill_all(struct comm_nccl *q)
{
    struct timespec until;
    if (atomic_exchange(&q->dead, true)) {
        pthread_mutex_lock(&q->lock); /* the one that came first is done with it */
        pthread_mutex_unlock(&q->lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LOCK_S;
    bool locked = pthread_mutex_timedlock(&q->lock, &until) == 0;
    begin_to_let_go(q);
    ncclResult_t e = ncclGroupStart();
    for (struct comm_nccl_lane *l = q->lanes; l; l = l->next) {
        if (l->comm && e == ncclSuccess)
            e = ncclCommAbort(l->comm);
        l->comm = NULL;
    }
    if (e == ncclSuccess)
        e = ncclGroupEnd();
    if (e != ncclSuccess)
        log_line(LOG_WARN, "comm: NCCL's communicators do not end: %s", ncclGetErrorString(e));
    if (locked)
        pthread_mutex_unlock(&q->lock);
}

enum err comm_nccl_check(struct comm_world *w, const char *what)
{
    struct comm_nccl *q = comm_nccl_of(w);
    if (!atomic_load(&q->dead))
        return w->ops->failed(w) ? w->ops->check(w, what) : ERR_OK;
    if (atomic_load(&q->told))
        FAIL(q->fault, "%s", q->text);
    TRY(w->ops->check(w, what));
    FAIL(ERR_PEER, "comm: rank %d has given up its communicators; it cannot go on with %s", w->rank,
         what);
}

/* For the device's waits, which are the rank's own: so a world of processes may listen, too. */
static enum err check_device(void *arg)
{
    struct comm_world *w = arg;
    const char *what = "what its GPU was about";
    return atomic_load(&comm_nccl_of(w)->dead) ? comm_nccl_check(w, what) : w->ops->check(w, what);
}

/* ---- the watcher ---- */

/* Moves `seen` on to the first operation that is not over. */
static void look_at_lane(struct comm_nccl_lane *l)
{
    int64_t before = l->seen;
    l->seen = num_max(l->seen, l->started - COMM_UNFINISHED_MAX);
    while (l->seen < l->started) {
        int64_t k = l->seen % COMM_UNFINISHED_MAX;
        if (!l->op[k].captured && cudaEventQuery(l->done[k]) == cudaErrorNotReady)
            break;
        l->seen++;
    }
    if (l->seen != before || l->seen == l->started)
        l->since = log_now();
}

/* Under the lock: does all go well? Else the fault is noted. */
static bool all_well(struct comm_nccl *q)
{
    const struct comm_world *w = q->queue.world;
    char what[COMM_WANT_TEXT];
    for (struct comm_nccl_lane *l = q->lanes; l && q->fault == ERR_OK; l = l->next) {
        ncclResult_t e = ncclSuccess;
        look_at_lane(l);
        if (l->comm && ncclCommGetAsyncError(l->comm, &e) == ncclSuccess && e != ncclSuccess &&
            e != ncclInProgress) {
            q->fault = e == ncclRemoteError ? ERR_PEER : ERR_INTERNAL;
            snprintf(q->text, sizeof q->text, "comm: NCCL reports on rank %d, in %s: %s", w->rank,
                     l->seen < l->started ? comm_nccl_op_text(l, l->seen, what) : "no operation",
                     ncclGetErrorString(e));
        } else if (w->timeout_s > 0 && log_now() - l->since > w->timeout_s + l->takes) {
            q->fault = ERR_HANG;
            snprintf(q->text, sizeof q->text,
                     "comm: rank %d has waited %g s in %s on its GPU; a member has not come, or "
                     "stands before it; look where they are, or raise the hang timeout", w->rank,
                     w->timeout_s, comm_nccl_op_text(l, l->seen, what));
        }
    }
    return q->fault == ERR_OK;
}

/* One look. Whoever holds the lock for longer than a hang is waiting in the driver, behind the
 * kernel that hangs. */
static bool look(struct comm_nccl *q, double *looked)
{
    const struct comm_world *w = q->queue.world;
    if (w->ops->failed(q->queue.world))
        return false;
    if (pthread_mutex_trylock(&q->lock) == 0) {
        bool well = all_well(q);
        pthread_mutex_unlock(&q->lock);
        *looked = log_now();
        return well;
    }
    if (w->timeout_s <= 0 || log_now() - *looked < w->timeout_s + LOCK_S)
        return true;
    q->fault = ERR_HANG;
    snprintf(q->text, sizeof q->text, "comm: rank %d has waited %g s for its GPU to take one "
                                      "operation more; a member of an earlier one has not come; "
                                      "look where they are, or raise the hang timeout", w->rank,
             w->timeout_s);
    return false;
}

/* Queries of events must not spoil a recording that another thread makes: mode relaxed. */
static void *watch(void *arg)
{
    struct comm_nccl *q = arg;
    struct comm_world *w = q->queue.world;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    double looked = log_now();
    log_set_rank(w->rank);
    bool ready = cudaSetDevice(q->gpu) == cudaSuccess &&
                 cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess;
    if (!ready)
        log_line(LOG_WARN, "comm: GPU %d cannot be watched", q->gpu);
    while (ready && !atomic_load(&q->stop)) {
        nap_ms(LOOK_MS);
        if (!look(q, &looked)) {
            atomic_store(&q->told, q->fault != ERR_OK);
            kill_all(q);
            break;
        }
    }
    return NULL;
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
    comm_copies_close(l, peers);
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
        err = comm_copies_open(g, l);
    if (err != ERR_OK || !comm_nccl_lock(q)) {
        lane_free(l, true);
        TRY(comm_nccl_check(g->world, "opening a lane of copies"));
        return err;
    }
    l->since = log_now();
    l->next = q->lanes;
    q->lanes = l;
    pthread_mutex_unlock(&q->lock);
    g->lane = l;
    g->copies = true;
    note_memory(q, l, before);
    return ERR_OK;
}

/* What the group reads in its window goes by copies, the rest by its communicator: one lane, so
 * that operations keep their order. */
static enum err copies_beside(struct comm_group *g)
{
    struct comm_nccl *q = comm_nccl_of(g->world);
    struct comm_nccl_lane *l = g->lane;
    size_t before = 0, all = 0;
    TRY_CUDA(cudaMemGetInfo(&before, &all));
    TRY(comm_copies_open(g, l));
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
    g->copies = copies;
    return copies ? copies_beside(g) : ERR_OK;
}

static enum err pass(struct comm_world *w, int to, int from, void *p, int64_t bytes)
{
    struct comm_req r = {0};
    TRY(to == w->rank ? comm_recv_start(w, from, ID_TAG, p, bytes, &r)
                      : comm_send_start(w, to, ID_TAG, p, bytes, &r));
    return comm_finish(&r);
}

static enum err channel_open(struct comm_world *w, const struct comm_channel *c)
{
    ncclUniqueId id = {{0}};
    char here = 1;
    bool sends = c->from == w->rank;
    if (sends)
        TRY_NCCL(ncclGetUniqueId(&id));
    TRY(pass(w, c->to, c->from, &id, (int64_t)sizeof id));
    TRY(pass(w, c->from, c->to, &here, 1));
    return lane_open(comm_nccl_of(w), &(struct comm_nccl_lane){.channel = *c}, 2, !sends, &id,
                     CHANNEL_CTAS);
}

/* ---- life ---- */

static void abort_queue(struct comm_world *w)
{
    void (*forget)(void *arg) = w->forget;
    nap_ms(PEERS_MS); /* the base world has been told; so has the watcher, and kernels end */
    w->forget = NULL;
    if (forget)
        forget(w->forget_arg);
    kill_all(comm_nccl_of(w));
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
    end_letting_go(q);
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
        kill_all(q);
    release(q);
    return err;
}

/* The lane of replays, with the first of them. */
static enum err open_replays(struct comm_nccl *q)
{
    struct comm_nccl_lane *l;
    TRY(mem_new(1, sizeof *l, "the lane of replays", &l));
    enum err err = lane_parts(l, false);
    if (err != ERR_OK || !comm_nccl_lock(q)) {
        lane_free(l, true);
        return err;
    }
    l->since = log_now();
    l->next = q->lanes;
    q->lanes = q->replays = l;
    pthread_mutex_unlock(&q->lock);
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
    int rc = pthread_create(&q->watcher, NULL, watch, q);
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
    dev_watch(d, check_device, w);
    return ERR_OK;
}
