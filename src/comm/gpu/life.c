/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a rank's lanes, and the table of the transport. Each group of device memory and each
 * channel has one, with copies, with a communicator of NCCL, or both; they are made once, while the
 * executor opens, in one order on all ranks, so each that waits for a peer waits for one that has
 * fewer left to make. What NCCL's kernels may take of the GPU is bounded: docs/design/comm.md.
 */
#include "comm/gpu/gpu.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include <stdio.h>

enum {
    PEERS_MS = 300,      /* until peers that look every few milliseconds have let go */
    ALL_ID = COMM_GROUP_IDS - 2, /* of the world's group; rank_agree's is one above */
    TINY_CTAS = 1, CHANNEL_CTAS = 8, OVERLAPPED_CTAS = 16, /* what a lane may take of the GPU */
};

/* ---- lanes ---- */

/* peers: they may still look at what is theirs to see. */
static void lane_free(const struct comm_gpu *q, struct comm_gpu_lane *l, bool peers)
{
    comm_queue_close(l->queue);
    comm_copies_close(l->copies, peers);
    if (!peers && l->channel.to == q->device.world->rank)
        comm_mailbox_free(l->mailbox);
    for (int i = 0; i < COMM_UNFINISHED_MAX; i++)
        if (l->done[i])
            (void)cudaEventDestroy(l->done[i]);
    if (l->stream)
        (void)cudaStreamDestroy(l->stream);
    mem_free(l);
}

static enum err lane_parts(struct comm_gpu *q, struct comm_gpu_lane *l, bool stream)
{
    int least, greatest;
    TRY_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    if (stream)
        TRY_CUDA(cudaStreamCreateWithPriority(&l->stream, cudaStreamNonBlocking, greatest));
    for (int i = 0; i < COMM_UNFINISHED_MAX; i++)
        TRY_CUDA(cudaEventCreateWithFlags(&l->done[i], cudaEventDisableTiming));
    return q->shared && stream ? comm_queue_open(q, l) : ERR_OK; /* graphs have no operations */
}

/* What a lane has taken of the GPU; for PLAIT_LOG=debug a line, too. NULL: what came before all. */
static void note_memory(const struct comm_gpu *q, const struct comm_gpu_lane *l, size_t before)
{
    size_t left = 0, all = 0;
    char name[64];
    if (q->shared && l && l->copies) /* the GPU's count is of what others take meanwhile, too */
        q->device.world->device_taken += comm_copies_bytes(l->copies);
    if (q->shared || cudaMemGetInfo(&left, &all) != cudaSuccess)
        return;
    q->device.world->device_taken += (int64_t)before - (int64_t)left;
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

/* By what a new lane moves: a communicator of NCCL; NULL: none; and, or, copies between the members
 * of a group; NULL: none. Without both it has no stream of its own. */
struct lane_ways {
    const struct comm_nccl_args *nccl;
    const struct comm_group *copies;
};

/* The lane is under the watchdog's eyes before it connects, for a peer may fail meanwhile; at a
 * failure the watchdog looks at its copies: they are whole when it gets them, and none come behind
 * that. Behind an error it is freed where all is over. */
static enum err lane_connect(struct comm_gpu *q, struct comm_gpu_lane *l,
                             const struct lane_ways *by)
{
    struct comm_copies *copies;
    if (by->nccl)
        TRY(comm_nccl_connect(q, l, by->nccl->me));
    if (!by->copies)
        return ERR_OK;
    TRY(comm_copies_open(by->copies, l->stream, &copies));
    if (!comm_gpu_lock(q)) {
        comm_copies_close(copies, true);
        return ERR_OK; /* the caller finds why */
    }
    l->copies = copies;
    pthread_mutex_unlock(&q->lock);
    return ERR_OK;
}

/* A lane known as *as. `what` is about to open. */
static enum err lane_open(struct comm_gpu *q, const struct comm_gpu_lane *as,
                          const struct lane_ways *by, struct comm_gpu_lane **out)
{
    const char *what = by->nccl     ? "opening a communicator"
                       : by->copies ? "opening a lane of copies"
                                    : "launching a CUDA graph";
    struct comm_gpu_lane *l;
    size_t before = 0, all = 0;
    bool noted = by->nccl || as->group;
    if (noted)
        TRY_CUDA(cudaMemGetInfo(&before, &all));
    TRY(mem_new(1, sizeof *l, "a lane", &l));
    *l = *as;
    enum err err = lane_parts(q, l, by->nccl || by->copies);
    if (err == ERR_OK && by->nccl)
        err = comm_nccl_init(l, by->nccl);
    bool linked = err == ERR_OK && comm_gpu_lock(q);
    if (linked) {
        l->since = log_now();
        l->next = q->lanes;
        q->lanes = l;
        pthread_mutex_unlock(&q->lock);
        err = lane_connect(q, l, by);
    } else {
        if (err == ERR_OK && l->comm) { /* too late: behind whoever aborts the others */
            comm_gpu_abort_all(q);
            comm_nccl_abort_all(l);
        }
        lane_free(q, l, true);
    }
    TRY(comm_gpu_check(q->device.world, what)); /* a peer's failure first */
    TRY(err);
    *out = l;
    if (noted)
        note_memory(q, l, before);
    return ERR_OK;
}

static enum err group_open(struct comm_group *g, int64_t scratch)
{
    struct comm_gpu *q = comm_gpu_of(g->world);
    struct comm_nccl_args a = {.n = g->n, .me = g->me};
    struct comm_gpu_lane *l;
    bool copies;
    (void)scratch; /* of the host */
    TRY(comm_copies_agree(g, &copies));
    if (q->shared && !copies)
        FAIL(ERR_CONFIG, "comm: group %d has %d ranks that share a GPU; at most %d can", g->id,
             g->n, COMM_COPIES_MEMBERS);
    /* Sums by copies, all that a group without also_nccl does, need no communicator. With it, one
     * lane has both, so that operations keep their order. */
    bool nccl = !copies || (g->also_nccl && !q->shared);
    a.ctas = g->tiny || copies ? TINY_CTAS : g->overlapped ? OVERLAPPED_CTAS : 0;
    if (nccl && g->me == 0)
        TRY(comm_nccl_name(&a.id));
    if (nccl) {
        TRY(comm_coll_run(g->host, &(struct comm_coll){.kind = COMM_BROADCAST, .out = &a.id,
                                                       .in = &a.id,
                                                       .count = (int64_t)sizeof a.id}));
        TRY(comm_gpu_barrier(g->host)); /* all are there: initialising waits without a limit */
    }
    struct lane_ways by = {nccl ? &a : NULL, copies ? g : NULL};
    TRY(lane_open(q, &(struct comm_gpu_lane){.group = true, .id = g->id, .n = g->n}, &by, &l));
    g->impl = l;
    g->copies = copies;
    return ERR_OK;
}

static enum err channel_open(struct comm_world *w, const struct comm_channel *c)
{
    struct comm_gpu *q = comm_gpu_of(w);
    bool sends = c->from == w->rank, copies;
    struct comm_nccl_args a = {.n = 2, .me = !sends, .ctas = CHANNEL_CTAS};
    struct comm_group ends = {.world = w, .n = 2, .me = !sends, .ranks = (int[]){c->from, c->to},
                              .window = q->windows > 0 ? q->window[0] : NULL, .window_bytes = 1};
    struct comm_gpu_lane *l;
    struct comm_mailbox *box[2];
    char here = 1;
    TRY(comm_copies_agree(&ends, &copies));
    if (!copies && sends && c->lane == 0 && q->windows > 0)
        log_line(LOG_WARN, "comm: messages from rank %d to rank %d go by NCCL and not by copies: "
                           "their GPUs cannot read each other's memory, or wait for signal "
                           "words", c->from, c->to);
    if (!copies && sends)
        TRY(comm_nccl_name(&a.id));
    if (!copies) {
        TRY(comm_gpu_pass(w, c->to, c->from, &a.id, (int64_t)sizeof a.id));
        TRY(comm_gpu_pass(w, c->from, c->to, &here, 1));
    }
    struct lane_ways by = {copies ? NULL : &a, copies ? &ends : NULL};
    TRY(lane_open(q, &(struct comm_gpu_lane){.channel = *c}, &by, &l));
    if (!copies || q->shared)
        return ERR_OK;
    if (!sends)
        TRY(comm_mailbox_new(&l->mailbox));
    TRY(comm_gpu_host_all_gather(&ends, box, &l->mailbox, 1));
    l->mailbox = box[1];
    return ERR_OK;
}

/* ---- life ---- */

static void abort_device(struct comm_world *w, enum err code)
{
    (void)code;
    void (*destroy)(void *arg) = w->graph_destroy;
    comm_gpu_nap_ms(PEERS_MS); /* the base world and the watchdog know, and kernels end */
    w->graph_destroy = NULL;
    if (destroy)
        destroy(w->graph_arg);
    comm_gpu_abort_all(comm_gpu_of(w));
}

static enum err synchronize(struct comm_gpu *q)
{
    TRY_CUDA(cudaStreamSynchronize(q->stream));
    for (struct comm_gpu_lane *l = q->lanes; l; l = l->next)
        if (l->stream)
            TRY_CUDA(cudaStreamSynchronize(l->stream));
    TRY(comm_gpu_check(q->device.world, "ending"));
    return comm_gpu_barrier(q->all); /* peers may still write to what is given back below */
}

/* Of a shared GPU all ranks meet again: what a rank's device does as it ends waits for all of the
 * GPU, and peers still give back. */
static enum err release(struct comm_gpu *q)
{
    enum err err = ERR_OK;
    atomic_store(&q->stop, true);
    if (q->watched)
        pthread_join(q->watchdog, NULL);
    comm_gpu_end_release(q);
    while (q->lanes) {
        struct comm_gpu_lane *l = q->lanes;
        q->lanes = l->next;
        comm_nccl_end(l);
        lane_free(q, l, atomic_load(&q->aborted));
    }
    if (!atomic_load(&q->aborted)) /* else peers may be at it still: it ends with the process */
        comm_windows_free(q);
    if (q->ready)
        (void)cudaEventDestroy(q->ready);
    (void)cudaFree(q->spare);
    if (q->shared && q->watched && !atomic_load(&q->aborted))
        err = comm_gpu_barrier(q->all);
    comm_group_close(q->all);
    pthread_mutex_destroy(&q->lock);
    mem_free(q);
    return err;
}

static enum err close_device(struct comm_world *w)
{
    struct comm_gpu *q = comm_gpu_of(w);
    bool failed = comm_gpu_is_over(q);
    enum err err = failed ? ERR_OK : synchronize(q);
    if (failed || err != ERR_OK)
        comm_gpu_abort_all(q);
    enum err end = release(q);
    return err == ERR_OK ? end : err;
}

static enum err graph_launched(struct comm_world *w, int64_t step, double seconds)
{
    struct comm_gpu *q = comm_gpu_of(w);
    struct lane_ways none = {NULL, NULL};
    if (!q->graphs)
        TRY(lane_open(q, &(struct comm_gpu_lane){.copies = NULL}, &none, &q->graphs));
    if (!comm_gpu_lock(q))
        return comm_gpu_check(w, "launching a CUDA graph");
    q->graphs->takes = seconds;
    struct comm_gpu_op op = {.graph_step = step, .graph_ops = q->captured};
    enum err err = comm_gpu_record(q, q->graphs, &op, q->stream);
    pthread_mutex_unlock(&q->lock);
    return err;
}

static const struct comm_ops gpu_ops = {
    .group_open = group_open, .channel_open = channel_open,
    .coll_start = comm_gpu_coll_start, .coll_finish = comm_gpu_coll_finish,
    .coll_chunks = comm_gpu_coll_chunks,
    .msg_start = comm_gpu_msg_start, .msg_finish = comm_gpu_msg_finish,
    .window_take = comm_window_open, .graph_launched = graph_launched, .abort = abort_device,
    .close = close_device,
};

/* Do all ranks, threads of this process, have one GPU? */
static enum err agree_shared(struct comm_gpu *q, struct comm_world *w)
{
    double *gpu, mine = q->gpu;
    int same = 0;
    bool twice = false;
    if (comm_kind(w) != COMM_THREAD)
        return ERR_OK;
    TRY(mem_new(w->size, sizeof *gpu, "the GPUs of ranks", &gpu));
    enum err err = comm_coll_run(q->all, &(struct comm_coll){.kind = COMM_ALL_GATHER, .dt = DT_F64,
                                                             .count = 1, .out = gpu, .in = &mine});
    for (int i = 0; i < w->size && err == ERR_OK; i++) {
        same += gpu[i] == mine;
        for (int j = 0; j < i; j++)
            twice = twice || gpu[i] == gpu[j];
    }
    mem_free(gpu);
    TRY(err);
    q->shared = same == w->size;
    if (twice && !q->shared)
        FAIL(ERR_CONFIG, "comm: rank %d has GPU %d with %d of %d ranks; give all of them one GPU, "
                         "or each its own", w->rank, q->gpu, same, w->size);
    if (q->shared)
        comm_signals_find(q);
    if (q->shared && !q->signals.wait)
        FAIL(ERR_CONFIG, "comm: %d ranks share GPU %d, whose driver writes no signal words for "
                         "streams; give each rank its own GPU", w->size, q->gpu);
    return ERR_OK;
}

static enum err open_parts(struct comm_gpu *q, struct comm_world *w)
{
    int *ranks;
    char what[32];
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
    enum err err = comm_group_open(w, &a, &q->all);
    mem_free(ranks);
    TRY(err);
    TRY(agree_shared(q, w));
    snprintf(what, sizeof what, "watch GPU %d", q->gpu);
    TRY(thread_start(&q->watchdog, comm_gpu_watchdog, q, what));
    q->watched = true;
    note_memory(q, NULL, before);
    return ERR_OK;
}

static enum err open_device(struct comm_world *w, struct dev *d)
{
    struct comm_gpu *q;
    TRY(mem_new(1, sizeof *q, "NCCL", &q));
    q->device = (struct comm_device){.ops = &gpu_ops, .world = w};
    q->stream = d->stream;
    if (pthread_mutex_init(&q->lock, NULL) != 0) {
        mem_free(q);
        FAIL(ERR_MEMORY, "comm: no lock for rank %d's GPU", w->rank);
    }
    enum err err = open_parts(q, w);
    if (err != ERR_OK) {
        (void)release(q);
        return err;
    }
    w->device = &q->device;
    dev_watch(d, comm_gpu_check_device, w);
    return ERR_OK;
}

const struct comm_gpus comm_gpu_transport = {
    .fits = comm_nccl_version_fits, .reach = comm_windows_reach, .open = open_device,
};
