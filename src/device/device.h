/* SPDX-License-Identifier: Apache-2.0
 *
 * The device: memory and math behind one table. A device is opened with two number types: `ct`, in
 * which activations and the weights of GEMMs are held, and `at`, in which sums, statistics,
 * gradients, master weights and optimizer state are held. ref: f64/f64. cpu: f32/f32 or bf16/f32.
 *
 * All matrices are row-major. "ct" and "at" in a shape comment say the type of an operand. Pointers
 * are device memory (on ref and cpu: host memory). Operands do not overlap unless said so. Row
 * counts may be 0. Kernels are deterministic: the same operands give the same bits, for a given
 * device and number of threads; splitting rows into two calls gives the same rows (row-wise kernels
 * and gemm need not be bitwise equal across different m). An element of an operand that is not
 * finite leaves some of the result that is not (tests/parity/test_nonfinite.c, with exceptions).
 */
#ifndef PLAIT_DEVICE_DEVICE_H
#define PLAIT_DEVICE_DEVICE_H

/* Work is queued in order and complete for the host after sync(), or after event_synchronize() of
 * an event that was recorded behind it; cpu and ref work at once. On an async device
 * (dev.async) the host runs ahead: no call but sync, event_synchronize, alloc and free waits for
 * the device. What is asked of it is an operation (op.h), but for memory, and for the stream
 * itself.
 *
 * Graphs. Such a device may be able to capture a run of calls instead of doing them, and then
 * launch them all at once, as often as is wanted: launching thousands of kernels one by one costs
 * the host more than the GPU where they are small. The pointers and numbers of a captured call are
 * those of its capture; what changes from time to time stands in device memory. */

#include "base/text.h"
#include "device/op.h"

struct dev_graph;

enum dev_kind { DEV_REF, DEV_NULL, DEV_CPU, DEV_CUDA };

struct dev_ops {
    const char *name;
    void (*close)(struct dev *d);
    /* Plain text about the device for `plait info` and the start-up table. Required. */
    void (*describe)(const struct dev *d, char *buf, size_t n);

    /* memory: required */
    enum err (*alloc)(struct dev *d, int64_t bytes, const char *name, void **out); /* zeroed */
    void (*free)(struct dev *d, void *p);
    /* Zeroed host memory that d2h fills while the host goes on; into any other, it waits. */
    enum err (*host_alloc)(struct dev *d, int64_t bytes, const char *name, void **out);
    void (*host_free)(struct dev *d, void *p);
    /* Bytes that can still be taken, and how many there are in all; 0 and 0 of memory that is
     * shared with all else on the host. */
    enum err (*mem_info)(struct dev *d, int64_t *free_bytes, int64_t *total);
    enum err (*sync)(struct dev *d);
    /* Snapshots: copies on a stream of their own, to memory of host_alloc, so that kernels go on.
     * What they read is dealt to DEV_SNAPSHOT_SLOTS slots, so that a copy begins, and what writes
     * over it goes on, slot by slot. snapshot_ready: what is queued until now has written what
     * belongs to the slot; dev_snapshot begins a copy behind the slot's last snapshot_ready;
     * snapshot_join has the stream wait, and not the host, for the slot's copies begun until now,
     * and comes before what they read is written. Captured, both are done by each launch as if they
     * were called then. snapshot_synchronize, there NULL: the host waits until all are there; else
     * it asks whether they are. It may come from another thread than the rank's, one at a time, and
     * asks no dev_watch: call it behind what no peer can keep any more, which is also behind the
     * end of a world that has failed. */
    enum err (*snapshot_ready)(struct dev *d, int slot);
    enum err (*snapshot_join)(struct dev *d, int slot);
    enum err (*snapshot_synchronize)(struct dev *d, bool *there);
    /* DEV_EVENTS events: event_record puts one behind what is queued, event_synchronize waits until
     * the stream is through it. Both do nothing where work is done at once. */
    enum err (*event_record)(struct dev *d, int which);
    enum err (*event_synchronize)(struct dev *d, int which);
    /* Timers: when the stream came to a place, in seconds of log_now. timer_alloc makes n more and
     * says the first one's number; timer_record puts one behind what is queued, each as often as
     * wanted; timer_read is its time, once the stream is through it. Two timers of a device lie
     * right to each other within about a microsecond, those of several devices of a machine within
     * some. Where work is done at once: the time of the call. */
    enum err (*timer_alloc)(struct dev *d, int64_t n, int64_t *first);
    enum err (*timer_record)(struct dev *d, int64_t which);
    enum err (*timer_read)(struct dev *d, int64_t which, double *seconds);
    /* (optional) NULL, all four: the device cannot, or has no use for it. From graph_begin on
     * calls are captured and not done, until graph_end gives the graph of them. Between the two
     * only kernels, copy, zero, snapshot_join and snapshot_ready; work on other streams that was
     * put in order with this one is captured too and must be joined again. graph_end ends the
     * capture also where it fails; then nothing was done and the device is as before. graph_launch
     * queues the graph's calls. */
    enum err (*graph_begin)(struct dev *d);
    enum err (*graph_end)(struct dev *d, struct dev_graph **out);
    enum err (*graph_launch)(struct dev *d, struct dev_graph *g);
    void (*graph_destroy)(struct dev *d,
                          struct dev_graph *g); /* behind its launches; NULL is fine */
    /* (optional) NULL, both: nothing is chosen by measuring (dev_choices, dev_choose). */
    enum err (*choices)(struct dev *d, struct text *out);
    enum err (*choose)(struct dev *d, const char *choices, bool *taken);

    /* One operation, queued. What the device has no way of its own for goes to dev_plain_run. */
    op_fn *run;
};

enum { DEV_EVENTS = 8, DEV_SNAPSHOT_SLOTS = 16 };

/* Who stands around each operation of a device: it passes the operation on by dev_next, or does
 * not. The first one that was put there is the innermost. */
struct dev_hook {
    enum err (*around)(struct dev_hook *h, struct dev *d, const struct op *op);
    struct dev_hook *next; /* nearer to the device; NULL: the device itself */
};

struct dev {
    const struct dev_ops *ops;
    struct dev_hook *hook; /* borrowed; the outermost; NULL: none */
    enum dev_kind kind;
    union {
        struct dtypes types;
        struct { enum dtype ct, at, logits; int64_t chunk; }; /* the same, by name */
    };
    bool async;        /* the host runs ahead of the device */
    void *stream;      /* for a transport that puts its own work in order with it (cuda: the
                          cudaStream_t); NULL where work is done at once */
    int64_t workspace_bytes; /* of its memory, for itself: dev_workspace_bytes */
    int64_t graph_bytes;     /* of these, what it takes only when it captures a graph */
    enum err (*watch)(void *arg); /* asked in each wait of the host; NULL: nobody */
    void *watch_arg;   /* borrowed */
    int threads;
    int part;          /* of a stage, that is at work: for messages */
    double *timer;     /* owned; [timers] where work is done at once, else NULL */
    int64_t timers;
    void *impl; /* owned by the device */
};

enum { DEV_MAX_THREADS = 1024 }; /* of a rank */

/* cuda: who is asked first for attention's gradient. auto: the faster one by shape; hopper: kernels
 * for Hopper wherever they can; cudnn: as if there were none of these; own: plain kernels alone. */
enum dev_attn_grad { DEV_GRAD_AUTO, DEV_GRAD_HOPPER, DEV_GRAD_CUDNN, DEV_GRAD_OWN };

struct dev_args {
    enum dev_kind kind;
    enum dtype ct; /* cpu, cuda: DT_F32 or DT_BF16; ref: DT_F64; null: any */
    int threads;   /* of this rank; 1 to DEV_MAX_THREADS */
    int index;     /* cuda: which GPU of this machine, from 0 */
    bool graph;    /* cuda: a step will be captured, which takes memory: dev_workspace_bytes */
    bool deterministic; /* cuda: the same bits from every run, where a faster way has not them */
    const struct attn *largest; /* cuda: the attention that needs most (extents, drop.p); NULL: of
                                   any, and what finds no room goes a slower way */
    enum dev_attn_grad attn_grad;
    const char *cache; /* cuda: the folder in which choices are kept, while the device is open; ""
                          or NULL: they are this device's alone */
};

static inline enum err dev_next(struct dev_hook *h, struct dev *d, const struct op *op)
{
    return h ? h->around(h, d, op) : d->ops->run(d, op);
}

static inline enum err dev_run(struct dev *d, const struct op *op)
{
    return dev_next(d->hook, d, op);
}

/* Run an operation: dev_norm(d, &(struct norm){...}), dev_add(d, to, from, n). Errors: the
 * device's. */
#ifndef __cplusplus
#define DEV_CALL(kind_, member, type, call, plain)               \
    static inline enum err call(struct dev *d, const struct type *a) \
    {                                                                \
        return dev_run(d, &(struct op){.kind = kind_, .member = *a}); \
    }
OP_KERNELS(DEV_CALL)
OP_COMPOSITES(DEV_CALL)
#undef DEV_CALL
#define DEV_FLAT(kind_, member, type, call, plain)                                    \
    static inline enum err call(struct dev *d, void *to, const void *from, int64_t n) \
    {                                                                                 \
        return dev_run(d, &(struct op){.kind = kind_, .member = {to, from, n}});      \
    }
OP_FLAT_KERNELS(DEV_FLAT)
OP_MOVES(DEV_FLAT)
#undef DEV_FLAT
static inline enum err dev_zero(struct dev *d, void *p, int64_t bytes)
{
    return dev_run(d, &(struct op){.kind = OP_ZERO, .zero = {p, NULL, bytes}});
}
#endif

/* Puts a hook around all that are there, and takes it away. */
void dev_hook_put(struct dev *d, struct dev_hook *h);
void dev_hook_take(struct dev *d, struct dev_hook *h);

/* What a device of kind k works in when its operands are ct. Pure. */
struct dtypes dev_types(enum dev_kind k, enum dtype ct);

/* What this device has chosen by measuring until now, of ways to the same result up to its last
 * bits: lines of text, none where it measures nothing. And such text of another time: what was
 * chosen then holds from now on. Before the first GEMM; of a device or libraries of another kind
 * nothing is taken. *taken: the device goes on with what was chosen then; false where it measures
 * and the text has nothing for it, or has something and it does not measure. Of one that never
 * measures: true. Errors: ERR_MEMORY, the device's. Local. */
enum err dev_choices(struct dev *d, struct text *out);
enum err dev_choose(struct dev *d, const char *choices, bool *taken);

/* Bytes of its memory that a device opened like that takes for itself, as workspace of its
 * kernels; cpu: of each of its threads. Pure. */
int64_t dev_workspace_bytes(const struct dev_args *a);

/* Errors: ERR_CONFIG when the device is not built in or cannot do the type. */
enum err dev_open(const struct dev_args *a, struct dev **out);
void dev_close(struct dev *d); /* NULL is fine */

/* On an async device, sync and event_synchronize ask `check`, while they wait and behind it,
 * whether what they wait for will come and has come: a peer may have failed, and a transport that
 * has given up leaves wrong numbers behind. It runs on the waiting thread; they end with its error.
 */
void dev_watch(struct dev *d, enum err (*check)(void *arg), void *arg);
/* The answer, for sync and event_synchronize. */
enum err dev_waited(const struct dev *d);

/* Built in? One line on what it is and can do ("cpu: f32 GEMMs in avx2; ..."). */
bool dev_built(enum dev_kind k);
void dev_describe_kind(enum dev_kind k, char *buf, size_t n);
/* A line on each of this kind that the machine has (GPUs); none where there are no such units. */
void dev_describe_units(enum dev_kind k, struct text *out);

#endif
