/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files about memory of GPUs share: a rank's groups and channels as lanes, each with a
 * stream of its own. A lane moves what it carries in one of two ways, which have the same names:
 * by copies (gpu/coll.c), which stand on windows and signals (gpu/window.c), or by NCCL's
 * communicators (gpu/nccl.c). gpu/ops.c has what is put on lanes, gpu/mailbox.c where messages by
 * copies lie, gpu/watchdog.c how lanes end when something goes wrong, gpu/life.c their life and the
 * transport's table.
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
    const void *from;      /* where a receive by copies reads; of a shared GPU READY says it */
};

/* A communicator with its stream. Operation k has its event and its description at k % 64. */
struct comm_gpu_lane {
    struct comm_gpu_lane *next;
    struct ncclComm *comm; /* owned; NULL once aborted, and where copies do the work */
    struct comm_copies *copies; /* owned; NULL: NCCL alone */
    struct comm_mailbox *mailbox; /* of a channel by copies, the receiver's; NULL: none */
    struct comm_queue *queue; /* owned; of a shared GPU; NULL: the stream itself is the queue */
    atomic_int_fast64_t through; /* operations that the queue's thread has put on the stream, all
                                    waiting for peers behind them, and their events */
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
                                and no stream waits for a peer (gpu/ops.c) */
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
/* Words of 8 bytes of each member to all, by the hosts of a group of device memory, or of the two
 * ends of a channel (gpu/coll.c). */
enum err comm_gpu_host_all_gather(const struct comm_group *g, void *all, const void *mine,
                                  int64_t words);

/* ---- gpu/window.c ----
 * On these stands all that GPUs of one process do without NCCL. A window is device memory that the
 * others may read. get: a copy out of one, by the receiver, which knows when it has room; signal: a
 * peer's stream sets a word of pinned host memory; wait: one's own stream waits for that. */

/* Can this GPU read the other's memory? */
bool comm_gpu_reads(int gpu, int other);
/* comm_gpus_reach. */
bool comm_windows_reach(const int *gpu, int n);
/* comm_window_take; and its end. */
enum err comm_window_open(struct comm_world *w, int64_t bytes, const char *name, void **out);
void comm_windows_free(struct comm_gpu *q);
/* e, of an allocation: ERR_MEMORY with a message where there was no room. */
enum err comm_window_room(cudaError_t e, int64_t bytes, const char *name, int gpu);

/* Signal words, n of them, zero: pinned memory of the host. Free of NULL does nothing. */
enum err comm_signals_new(int n, uint32_t **out);
void comm_signals_free(uint32_t *words);
/* Sets q->signals, where they serve. */
void comm_signals_find(struct comm_gpu *q);

/* On stream s: a peer's word is set; one's own is waited for, and set back; bytes come out of a
 * window, a peer's or one's own. Where no stream may wait, comm_wait returns when the peer's word
 * has come, or ends with ERR_PEER when a rank has failed. */
enum err comm_signal(const struct comm_signals *f, uint32_t *theirs, cudaStream_t s);
enum err comm_wait(const struct comm_signals *f, uint32_t *mine, cudaStream_t s);
enum err comm_get(void *to, const void *from, int64_t bytes, cudaStream_t s);

/* ---- gpu/mailbox.c ---- */

enum err comm_mailbox_new(struct comm_mailbox **out);
void comm_mailbox_free(struct comm_mailbox *b); /* NULL is fine */
/* By the hosts: a send says where its message lies; a receive waits for that, and has it in *from.
 * Where the channel has no mailbox nothing is done. */
enum err comm_mailbox_meet(struct comm_world *w, struct comm_mailbox *b, const struct comm_msg *m,
                           const void **from);

/* ---- gpu/coll.c ----
 * A group of device memory, or the two ends of a channel: a group without a host's, whose member 0
 * sends. */

/* Can they move by copies? All members answer the same; one may have no window, or none that is the
 * transport's, and then it is no, unless they share a GPU. Collective over the members. */
enum err comm_copies_agree(const struct comm_group *g, bool *yes);
/* What a lane needs for it: staging, flags, the members' addresses; s is the lane's stream. Nothing
 * is left behind an error. Collective over the members. */
enum err comm_copies_open(const struct comm_group *g, cudaStream_t s, struct comm_copies **out);
/* Is c done by copies? All members answer the same. Of a group without also_nccl everything must
 * be, and of ranks that share a GPU everything is. */
bool comm_copies_take(const struct comm_gpu_lane *l, const struct comm_coll *c);
/* Hosts wait for each other, and check that all start the same operation at the same offset of
 * the window. Collective over the members. */
enum err comm_copies_rendezvous(struct comm_group *g, const struct comm_coll *c);
/* The offsets of an all_to_all's parts in each member's window, for the next comm_copies_take and
 * comm_copies_do; hosts wait for it. Errors: ERR_MISMATCH. Collective over the members. */
enum err comm_copies_parts(struct comm_group *g, const struct comm_coll *c);
/* Device memory that it has taken. */
int64_t comm_copies_bytes(const struct comm_copies *x);
/* op on stream s: the lane's, or the device's. */
enum err comm_copies_do(const struct comm_gpu_lane *l, const struct comm_gpu_op *op,
                        cudaStream_t s);
/* Whatever is waited for just now has come; what is moved is garbage from here on. Stores alone,
 * from any thread; who has waited waits for the next, so this is done again and again. */
void comm_copies_release(const struct comm_copies *x);
/* peers: some may still write. NULL is none. */
void comm_copies_close(struct comm_copies *x, bool peers);

/* ---- gpu/nccl.c: the one file that knows NCCL's header ---- */

/* NCCL's unique id: one member makes it and sends it to the others. */
struct comm_nccl_id { char of[128]; };
struct comm_nccl_args {
    struct comm_nccl_id id;
    int n, me;
    int ctas; /* SMs that its kernels may take at most; 0: NCCL's own choice */
};

/* comm_nccl_fits. */
enum err comm_nccl_version_fits(void);
enum err comm_nccl_name(struct comm_nccl_id *out);
/* Sets l->comm; waits for the others. */
enum err comm_nccl_init(struct comm_gpu_lane *l, const struct comm_nccl_args *a);
/* The first operation, which connects; the host waits for it. */
enum err comm_nccl_connect(const struct comm_gpu *q, struct comm_gpu_lane *l, int me);
/* op on stream s. Under the lock, so that the watchdog takes no communicator away amid it. */
enum err comm_nccl_do(const struct comm_gpu_lane *l, const struct comm_gpu_op *op, cudaStream_t s);
/* What NCCL reports of a communicator, and the code that goes with it; NULL: nothing. */
const char *comm_nccl_reports(const struct comm_gpu_lane *l, enum err *fault);
/* Kernels of those of all lanes from the first on end. As one group, for giving one back waits for
 * the device, which another may hold. */
void comm_nccl_abort_all(struct comm_gpu_lane *first);
void comm_nccl_end(struct comm_gpu_lane *l);

/* ---- gpu/watchdog.c ---- */

/* The watchdog's thread, arg a struct comm_gpu. */
void *comm_gpu_watchdog(void *arg);
/* Aborts all communicators; from any thread. */
void comm_gpu_abort_all(struct comm_gpu *q);
/* Behind it no stream waits for a peer any more. */
void comm_gpu_end_release(struct comm_gpu *q);

/* ---- gpu/ops.c: what is put on a stream; slots of comm_ops ---- */

/* Sets l->queue, whose thread does on the lane's stream what is put there. */
enum err comm_queue_open(struct comm_gpu *q, struct comm_gpu_lane *l);
/* Waits for the thread, which ends once it has no work, or a rank has failed. NULL is fine. */
void comm_queue_close(struct comm_queue *f);

enum err comm_gpu_coll_start(struct comm_group *g, const struct comm_coll *c, bool now);
enum err comm_gpu_coll_finish(struct comm_group *g);
bool comm_gpu_coll_chunks(const struct comm_group *g, const struct comm_coll *c);
enum err comm_gpu_msg_start(struct comm_world *w, const struct comm_msg *m, struct comm_req *r);
enum err comm_gpu_msg_finish(struct comm_world *w, struct comm_req *r);

#endif
