/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files about memory of GPUs share: a rank's groups and channels as lanes, each with a
 * stream of its own. From below: gpu/window.c windows and signals, gpu/coll.c and gpu/p2p.c what
 * stands on them, gpu/nccl.c communicators, gpu/queue.c lanes whose streams may not wait,
 * gpu/ops.c what lanes carry, gpu/watchdog.c how they end when something goes wrong, gpu/life.c
 * their life and the transport's table.
 */
#ifndef PLAIT_COMM_GPU_H
#define PLAIT_COMM_GPU_H

#include "comm/core/core.h"
#include "device/device.h"
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

enum { COMM_GPU_TEXT = 512 };

/* The driver's two calls by which streams write and wait for signal words; NULL both: it has none
 * that serve. */
typedef CUresult comm_signal_fn(CUstream, CUdeviceptr, cuuint32_t, unsigned);
struct comm_signals {
    comm_signal_fn *write, *wait;
    struct comm_gpu *host; /* no stream may wait: its lanes' threads do; NULL: streams wait */
};

/* An operation as the watchdog reads it. */
struct comm_gpu_op {
    bool is_msg, captured; /* captured: by a graph, not run; it has no event to look at */
    int64_t graph_step, graph_ops; /* of a launched graph: its step, its operations; else 0 */
    struct comm_coll coll;
    struct comm_msg msg;
    const void *from;      /* where a receive by copies reads */
};

/* A communicator with its stream. Operation k has its event and its description at k % 64. */
struct comm_gpu_lane {
    struct comm_gpu_lane *next;
    struct ncclComm *comm; /* owned; NULL once aborted, and where copies do the work */
    struct comm_copies *copies; /* owned; NULL: NCCL alone */
    struct comm_p2p *p2p; /* owned; of a channel by copies; NULL: NCCL */
    struct comm_queue *queue; /* owned; of a shared GPU; NULL: the stream itself is the queue */
    cudaStream_t stream; /* owned; for operations that overlap the device's own work */
    cudaEvent_t done[COMM_UNFINISHED_MAX]; /* owned */
    struct comm_gpu_op op[COMM_UNFINISHED_MAX]; /* guarded by lock */
    int64_t started;     /* guarded by lock */
    int64_t seen;        /* the watchdog's: operations that were over when it last looked */
    double since;        /* the watchdog's: when `seen` last grew or the lane was idle */
    double takes;        /* seconds that an operation may take of its own; guarded by lock */
    bool group;
    int id, n;           /* of the group; its members */
    struct comm_channel channel;
};

struct comm_gpu {
    struct comm_device device; /* first: world.device points here */
    struct comm_group *all;  /* owned; the world, in host memory */
    int gpu;
    bool shared;             /* by all ranks: peers may read all of its memory, NCCL is not there,
                                and no stream waits for a peer (gpu/queue.c) */
    cudaStream_t stream;     /* the device's, borrowed */
    cudaEvent_t ready;       /* owned; where the device's stream is at a start */
    cudaMemPool_t pool;      /* owned; of the windows; NULL: none */
    void *window[COMM_WINDOWS]; /* device, owned; what other ranks' GPUs may read */
    int64_t window_bytes[COMM_WINDOWS];
    int windows;
    struct comm_signals signals; /* looked for as a window is taken, or at once where shared */
    void *spare;             /* device, owned: a few words for the first operation of a lane */
    struct comm_gpu_lane *lanes; /* owned, the newest first */
    struct comm_gpu_lane *graphs; /* one of them, or NULL: no communicator; its operations are
                                     launched graphs, on the device's stream */
    int64_t captured;        /* operations of the graph */
    pthread_mutex_t lock;    /* around calls on communicators */
    pthread_t watchdog;
    bool watched;
    atomic_bool stop;        /* the watchdog's end is asked for */
    pthread_t releaser;
    const struct comm_gpu_lane *waiters; /* the releaser's: lanes at the failure, newest first */
    bool releasing;           /* the releaser runs */
    atomic_bool free;        /* the releaser's end is asked for */
    atomic_bool aborted;     /* communicators are aborted */
    atomic_int fault;        /* what was found here first, behind its text; -1: that is written */
    char text[COMM_GPU_TEXT];
};

static inline struct comm_gpu *comm_gpu_of(struct comm_world *w)
{
    return (struct comm_gpu *)w->device;
}

/* FAIL with ERR_INTERNAL and the library's own message. */
enum err comm_gpu_failed(const char *file, int line, const char *call, cudaError_t e);
#define TRY_CUDA(call)                                                                             \
    do {                                                                                           \
        cudaError_t try_cuda_ = (call);                                                            \
        if (try_cuda_ != cudaSuccess)                                                              \
            return comm_gpu_failed(__FILE__, __LINE__, #call, try_cuda_);                          \
    } while (0)

/* "all_reduce of 12 f32 elements in group 3", into buf, which is returned. */
const char *comm_gpu_op_text(const struct comm_gpu_lane *l, int64_t k, char buf[COMM_PENDING_TEXT]);

/* Take the lock around a call on a communicator. False: they are aborted, and who does it may hold
 * the lock until this rank's graph is destroyed. */
bool comm_gpu_lock(struct comm_gpu *q);
/* For the watchdog: the operation that was just put on stream s, with its event. Under the lock. */
enum err comm_gpu_record(struct comm_gpu *q, struct comm_gpu_lane *l, const struct comm_gpu_op *op,
                         cudaStream_t s);
/* Has a peer or this rank failed, so that nobody waits any more? */
static inline bool comm_gpu_is_over(const struct comm_gpu *q)
{
    struct comm_world *w = q->device.world;
    return atomic_load(&q->aborted) || w->ops->failed(w);
}
/* This rank's own fault, if it is the first; its watchdog finds it. From any thread. */
void comm_gpu_fault(struct comm_gpu *q, enum err code, const char *text);
/* FAIL when a peer or this rank has failed, naming what this rank was about. */
enum err comm_gpu_check(struct comm_world *w, const char *what);
/* The same, arg a world, for the device's waits. */
enum err comm_gpu_check_device(void *arg);
void comm_gpu_nap_ms(long ms);

/* ---- hosts, as something opens ---- */

/* Bytes of host memory from one rank to another. */
enum err comm_gpu_pass(struct comm_world *w, int to, int from, void *p, int64_t bytes);
/* All members of g, a group of host memory, are there. */
enum err comm_gpu_barrier(struct comm_group *g);
/* Words of 8 bytes of each member to all, by the hosts of a group of device memory. */
enum err comm_gpu_host_all_gather(struct comm_group *g, void *all, const void *mine, int64_t words);

/* ---- gpu/watchdog.c ---- */

/* The watchdog's thread, arg a struct comm_gpu. */
void *comm_gpu_watchdog(void *arg);
/* Aborts all communicators; from any thread. */
void comm_gpu_abort_all(struct comm_gpu *q);
/* Behind it no stream waits for a peer any more. */
void comm_gpu_end_release(struct comm_gpu *q);

/* ---- gpu/queue.c ---- */

typedef enum err comm_perform_fn(const struct comm_gpu_lane *l, const struct comm_gpu_op *op,
                                 cudaStream_t s);
/* Sets l->queue, whose thread does by `perform`, on the lane's stream, what is put there. */
enum err comm_queue_open(struct comm_gpu *q, struct comm_gpu_lane *l, comm_perform_fn *perform);
/* Waits for the thread, which ends once it has no work, or a rank has failed. NULL is fine. */
void comm_queue_close(struct comm_queue *f);
/* Behind those before. Waits for nothing. */
enum err comm_queue_put(struct comm_queue *f, const struct comm_gpu_op *op);
/* How many are on the stream, all waiting for peers behind them, and their events recorded. */
int64_t comm_queue_through(const struct comm_queue *f);

/* ---- gpu/ops.c: what is put on a stream; slots of comm_device_ops ---- */

/* Under the lock, or of a queue by its thread. */
enum err comm_gpu_perform(const struct comm_gpu_lane *l, const struct comm_gpu_op *op,
                          cudaStream_t s);

enum err comm_gpu_coll_start(struct comm_group *g, const struct comm_coll *c, bool now);
enum err comm_gpu_coll_finish(struct comm_group *g);
bool comm_gpu_coll_chunks(const struct comm_group *g, const struct comm_coll *c);
enum err comm_gpu_msg_start(struct comm_world *w, const struct comm_msg *m, int lane,
                            struct comm_req *r);
enum err comm_gpu_msg_finish(struct comm_world *w, struct comm_req *r);

#endif
