/* SPDX-License-Identifier: Apache-2.0
 *
 * The device: memory and math behind one table. A device is opened with two number types: `ct`, in
 * which activations and the weights of products are held, and `at`, in which sums, statistics,
 * gradients, master weights and optimizer state are held. ref: f64/f64. cpu: f32/f32 or bf16/f32.
 *
 * All matrices are row-major. "ct" and "at" in a shape comment say the type of an operand. Pointers
 * are device memory (on ref and cpu: host memory). Operands do not overlap unless said so. Row
 * counts may be 0. Kernels are deterministic: the same operands give the same bits, for a given
 * device and number of threads; splitting rows into two calls gives the same rows (row-wise kernels
 * and gemm need not be bitwise equal across different m). An element of an operand that is not
 * finite leaves some of the result that is not (tests/parity/test_nonfinite.c, with exceptions).
 *
 * Work is queued in order and complete for the host after sync(), or after reach() of a mark that
 * was set behind it; cpu and ref work at once. On a device that queues (dev.queues) the host runs
 * ahead: no call but sync, reach, alloc and free waits for the device. copy_in has taken what lies
 * at host_from when it returns; copy_out has written host_to once the queue is through it.
 *
 * Recording. Such a device may be able to note a run of calls instead of doing them, and then queue
 * them all at once, as often as is wanted: launching thousands of kernels one by one costs the host
 * more than the GPU where they are small. The pointers and numbers of a recorded call are those of
 * its recording; what changes from time to time stands in device memory.
 */
#ifndef PLAIT_DEVICE_DEVICE_H
#define PLAIT_DEVICE_DEVICE_H

#include "base/err.h"
#include "base/num.h"
#include "base/text.h"
#include <stddef.h>

struct dev;
struct dev_recording;
struct probe;

/* Dropout of one site. Element (row, col) of a tensor with `cols` columns has the global index
 * (row0 + row) * cols + col; it is kept when num_drop_kept(seed, stream, *step, index, threshold).
 * Kept values are scaled by 1/(1-p). p == 0: no dropout, nothing else is read. The step is read
 * when the kernel runs, so that one recorded call draws another mask in each step. */
struct drop {
    double p;
    uint64_t seed;
    uint32_t stream; /* names the site: layer and place in it */
    const uint32_t *step; /* (1) device; NULL: 0 */
    int64_t row0;    /* global row of local row 0 */
};

/* C (m,n) = op(A) (m,k) op(B) (k,n) [+ C]; then [+ bias (n)], then the activation.
 * op(A): A is stored (m,k), or (k,m) when trans_a; op(B): (k,n), or (n,k) when trans_b.
 * A, B, bias are ct. C is ct, or at when c_at. accumulate (c_at only): adds to C; else C is written
 * and what it held is not looked at, be it NaN.
 * GEMM_GELU: pre (ct, m x n) receives the value before the activation, C gelu_tanh of it.
 * GEMM_DGELU: C = product * gelu_tanh'(pre), pre read.
 * db (at, m; with trans_a only), written or added to as C is: the sum over k of op(A): where A is
 * dY and C a weight gradient, that of the bias. */
enum gemm_act { GEMM_NONE, GEMM_GELU, GEMM_DGELU };
struct gemm {
    void *c;
    const void *a, *b, *bias; /* bias NULL: none */
    void *pre;             /* tight rows, whatever ldc */
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* elements from row to row as stored; 0: tight */
    bool trans_a, trans_b, accumulate, c_at;
    enum gemm_act act;
    void *db;              /* NULL: none */
};

/* y = x + drop(f [+ bias]); x NULL: zero. y may be x. */
struct residual {
    void *y;                   /* (n, c) ct */
    const void *x, *f, *bias;  /* (n, c), (n, c), (c) ct; bias NULL: none */
    int64_t n, c;
    struct drop drop;
};

/* y = norm(x) * w [+ b]; rms: x * rstd, no mean, no b. mean may be NULL with rms. Where a row's sum
 * of squares is not finite, rstd and the row are NaN. */
struct norm {
    void *y;            /* (n, c) ct */
    void *mean, *rstd;  /* (n) at */
    const void *x;      /* (n, c) ct */
    const void *w, *b;  /* (c) ct; b NULL: none */
    int64_t n, c;
    double eps;
    bool rms;
};
/* dx = d + J^T dy; dw = sum dy * xhat; db = sum dy. dx may be d or x itself. */
struct norm_grad {
    void *dx;           /* (n, c) ct */
    const void *d;      /* (n, c) ct, NULL: zero */
    void *dw, *db;      /* (c) at, written; db NULL: none */
    const void *dy, *x; /* (n, c) ct */
    const void *w;      /* (c) ct */
    const void *mean, *rstd; /* (n) at */
    int64_t n, c;
    bool rms;
};

/* Causal attention, blockwise softmax (Dao et al. 2022; Rabe & Staats 2021): no T x T matrix is
 * stored. b sequences of tq queries and tk >= tq keys; query i of a sequence stands at position
 * tk - tq + i and sees keys 0..its own position. Head h uses kv head h / (heads / kv_heads).
 * Row r of q is sequence r / tq; element (head, dim) of a row is at [head * d + dim].
 * Dropout of probabilities: the element (query row, head, key) has the global index
 * ((row0 + row) * heads_total + head0 + head) * tk + key, row0 from `drop`. */
struct attn {
    void *o;            /* (b*tq, heads*d) ct, tight rows of ldo */
    void *lse;          /* (b*tq, heads) at: log-sum-exp of scaled scores, before dropout */
    const void *q, *k, *v; /* ct */
    int64_t b, tq, tk, heads, kv_heads, d;
    int64_t ldq, ldk, ldv, ldo; /* row strides, elements */
    double scale;       /* of scores: 1/sqrt(d) */
    int64_t heads_total, head0; /* for the dropout index */
    struct drop drop;
};
struct attn_grad {
    struct attn f;      /* as in forward: o, lse now read */
    const void *do_;    /* (b*tq, heads*d) ct, row stride ldo */
    void *dq, *dk, *dv; /* ct, written; row strides ldq, ldk, ldv of f */
    void *delta;        /* (b*tq, heads) at, scratch */
};

/* Rotary positions, half-split (Su et al. 2021; layout of Hugging Face): for each of n rows and
 * `heads` heads of d, element i < d/2 pairs with i + d/2. Position of row r is pos0 + r % t.
 * table: (positions, d) at: cos of the d/2 angles, then sin. inverse: rotate back (gradient). */
struct rope {
    void *x; /* ct, in place, row stride ld */
    const void *table;
    int64_t n, t, pos0, heads, d, ld;
    bool inverse;
};

/* What changes from step to step, in device memory, so that a step that was recorded once can be
 * run again: learning rate, 1 - beta1^t, 1 - beta2^t, what gradients are multiplied by, the tokens
 * that this rank speaks for, whether it asks to stop, whether its part of a checkpoint is written.
 * The last is the device's own: not 0 once a loss or norm was not finite; no step behind that one
 * updates anything either, for the host may have queued it already. */
enum dev_now {
    NOW_LR, NOW_BIAS1, NOW_BIAS2, NOW_SCALE, NOW_TOKENS, NOW_STOP, NOW_SAVED, NOW_LOST, NOW_COUNT
};
/* What a step adds up over all ranks: losses, their tokens, requests to stop, parts of a checkpoint
 * that are written, squares of gradients. */
enum dev_sums { SUMS_LOSS, SUMS_TOKENS, SUMS_STOP, SUMS_SAVED, SUMS_SQUARES, SUMS_COUNT };

/* Parts of a flat vector, so that one call does for many parameters: elements edge[0] ..
 * edge[1] - 1, edge[2] .. edge[3] - 1, and so on. Edges never fall; parts may touch and be empty.
 * Lies in host memory and is read before the call returns. */
enum { DEV_PARTS = 240 }; /* with it, a kernel's arguments stay below 4096 bytes */
struct dev_parts { int n; int64_t edge[2 * DEV_PARTS]; };

static inline int64_t dev_parts_count(const struct dev_parts *p)
{
    int64_t count = 0;
    for (int i = 0; i < p->n; i++)
        count += p->edge[2 * i + 1] - p->edge[2 * i];
    return count;
}

/* AdamW (Loshchilov and Hutter 2019). Nothing is written where now[NOW_SCALE] is not finite. */
struct adamw {
    void *w;         /* (n) ct, written */
    void *master;    /* (n) at; NULL when ct == at and w is the master */
    void *m, *v;     /* (n) at */
    const void *grad; /* (n) at; read as grad * now[NOW_SCALE] */
    int64_t n;
    double beta1, beta2, eps, decay; /* decay: decoupled, w -= lr * decay * w */
    const struct dev_parts *decays;  /* of 0 .. n: the elements that decay; others do not */
    const double *now;               /* (NOW_COUNT) device */
};

struct xent {
    const void *logits;     /* (n, v) of dev.logits, row stride ld */
    const int32_t *target;  /* (n) global token ids; -1: this row does not count */
    int64_t n, v, ld;       /* v: columns that are real vocabulary, <= ld */
    int64_t v0;             /* global id of column 0 */
    void *max;              /* (n) at */
    void *sum, *hit;        /* (n) at: sum of exp(logit - max); target's logit if here, else 0 */
    void *loss;             /* (n) at */
    void *dlogits;          /* (n, ld) ct, row stride ld; may be the logits where both are ct */
};

enum dev_kind { DEV_REF, DEV_NULL, DEV_CPU, DEV_CUDA };

struct dev_ops {
    const char *name;
    void (*close)(struct dev *d);
    /* Plain text about the device for `plait info` and the start-up table. Required. */
    void (*describe)(const struct dev *d, char *buf, size_t n);

    /* memory: required */
    enum err (*alloc)(struct dev *d, int64_t bytes, const char *name, void **out); /* zeroed */
    void (*free)(struct dev *d, void *p);
    /* Zeroed host memory that copy_out fills while the host goes on; into any other, it waits. */
    enum err (*host_alloc)(struct dev *d, int64_t bytes, const char *name, void **out);
    void (*host_free)(struct dev *d, void *p);
    enum err (*copy_in)(struct dev *d, void *to, const void *host_from, int64_t bytes);
    enum err (*copy_out)(struct dev *d, void *host_to, const void *from, int64_t bytes);
    enum err (*copy)(struct dev *d, void *to, const void *from, int64_t bytes);
    enum err (*zero)(struct dev *d, void *p, int64_t bytes);
    /* Bytes that can still be taken, and how many there are in all; 0 and 0 of memory that is
     * shared with all else on the host. */
    enum err (*room)(struct dev *d, int64_t *left, int64_t *all);
    enum err (*sync)(struct dev *d);
    /* Copies beside the queue, to memory of host_alloc, so that kernels go on. What they read is
     * dealt to DEV_ASIDES slots, so that a copy begins, and what writes over it goes on, slot by
     * slot. `aside_ready`: what is queued until now has written what belongs to the slot; `aside`
     * begins a copy behind the slot's last aside_ready; `aside_join` has the queue wait, and not
     * the host, for the slot's copies begun until now, and comes before what they read is written.
     * Recorded, both are done by each replay as if they were called then. `aside_reach`, there
     * NULL: the host waits until all are there; else it asks whether they are. It may come from
     * another thread than the rank's, one at a time, and asks no dev_watch: call it behind what no
     * peer can keep any more, which is also behind the end of a world that has failed. */
    enum err (*aside_ready)(struct dev *d, int slot);
    enum err (*aside)(struct dev *d, int slot, void *host_to, const void *from, int64_t bytes);
    enum err (*aside_join)(struct dev *d, int slot);
    enum err (*aside_reach)(struct dev *d, bool *there);
    /* Marks, DEV_MARKS of them: `mark` sets one behind what is queued, `reach` waits until the
     * queue is through it. Both do nothing where work is done at once. */
    enum err (*mark)(struct dev *d, int which);
    enum err (*reach)(struct dev *d, int which);
    /* Stamps: when the queue came to a place, in seconds of log_now. `stamps` takes room for n more
     * and says the first one's number; `stamp` sets one behind what is queued, each as often as
     * wanted; `stamped` is its time, once the queue is through it (reach, sync). Two stamps of a
     * device lie right to each other within about a microsecond, those of several devices of a
     * machine within some. Where work is done at once: the time of the call. */
    enum err (*stamps)(struct dev *d, int64_t n, int64_t *first);
    enum err (*stamp)(struct dev *d, int64_t which);
    enum err (*stamped)(struct dev *d, int64_t which, double *seconds);
    /* (optional) NULL, all four: the device cannot, or has no use for it. From record_begin on
     * calls are noted and not done, until record_end gives what was noted. Between the two only
     * kernels, copy, zero, aside_join and aside_ready; work on other queues that was put in order
     * with this one is noted too and must be joined again. record_end ends the noting also where it
     * fails; then nothing was done and the device is as before. */
    enum err (*record_begin)(struct dev *d);
    enum err (*record_end)(struct dev *d, struct dev_recording **out);
    enum err (*replay)(struct dev *d, struct dev_recording *r);
    void (*forget)(struct dev *d, struct dev_recording *r); /* behind its replays; NULL is fine */
    /* (optional) NULL, both: nothing is chosen by measuring (dev_choices, dev_choose). */
    enum err (*choices)(struct dev *d, struct text *out);
    enum err (*choose)(struct dev *d, const char *choices, bool *taken);
    /* The queue itself, for a transport that puts its own work in order with it (cuda: the
     * cudaStream_t); NULL where work is done at once. */
    void *(*queue)(struct dev *d);

    /* long: some slots take six to eight plain numbers and pointers; a struct would say no more */

    /* products */
    enum err (*gemm)(struct dev *d, const struct gemm *g);
    enum err (*bias_grad)(struct dev *d, void *db /* (c) at += */, const void *dy /* (n,c) ct */,
                          int64_t n, int64_t c);
    /* norms, attention, positions, activations */
    enum err (*norm)(struct dev *d, const struct norm *a);
    enum err (*norm_grad)(struct dev *d, const struct norm_grad *a);
    enum err (*attn)(struct dev *d, const struct attn *a);
    enum err (*attn_grad)(struct dev *d, const struct attn_grad *a);
    enum err (*rope)(struct dev *d, const struct rope *a);
    /* out (n,f) = silu(gu[:, :f]) * gu[:, f:]; gu (n, 2f) ct */
    enum err (*swiglu)(struct dev *d, void *out, const void *gu, int64_t n, int64_t f);
    enum err (*swiglu_grad)(struct dev *d, void *dgu, const void *dout, const void *gu, int64_t n,
                            int64_t f);
    enum err (*residual)(struct dev *d, const struct residual *a);
    /* The residual, then the norm of what it gave: a->y is b->x. */
    enum err (*residual_norm)(struct dev *d, const struct residual *a, const struct norm *b);
    /* dx (n,c) = drop(dy): the same mask and scale. dx may be dy. */
    enum err (*dropout)(struct dev *d, void *dx, const void *dy, int64_t n, int64_t c,
                        const struct drop *drop);

    /* vocabulary. tokens outside [v0, v0 + rows) give a row of zeros and no gradient. */
    enum err (*embed)(struct dev *d, void *out /* (n,c) ct */, const void *w /* (rows,c) ct */,
                      const int32_t *token, int64_t n, int64_t c, int64_t v0, int64_t rows);
    enum err (*embed_grad)(struct dev *d, void *dw /* (rows,c) at += */, const void *dy,
                           const int32_t *token, int64_t n, int64_t c, int64_t v0, int64_t rows);
    /* x[r] += w[(row0 + r) % t]; dw[(row0 + r) % t] += dy[r]. w (t, c) ct, dw at. */
    enum err (*pos_add)(struct dev *d, void *x, const void *w, int64_t n, int64_t c, int64_t t,
                        int64_t row0);
    enum err (*pos_grad)(struct dev *d, void *dw, const void *dy, int64_t n, int64_t c, int64_t t,
                         int64_t row0);
    /* Cross entropy in three steps, so that tensor ranks can agree between them: row maxima
     * (-inf when v == 0); sums and hits given the agreed max; loss and dlogits given the agreed sum
     * and hit. loss = log(sum) + max - hit, 0 and zero gradient where target is -1; columns v..ld
     * of dlogits are zero. dlogits NULL: loss only. The loss is a sum; nothing is divided.
     * xent: all three, for a vocabulary that lies here whole. */
    enum err (*xent)(struct dev *d, const struct xent *x);
    enum err (*xent_max)(struct dev *d, const struct xent *x);
    enum err (*xent_sum)(struct dev *d, const struct xent *x);
    enum err (*xent_grad)(struct dev *d, const struct xent *x);

    /* flat vectors of at unless said */
    enum err (*adamw)(struct dev *d, const struct adamw *a);
    /* now[NOW_SCALE] = 1 / tokens, times clip / norm where clip > 0 and the norm of the mean
     * gradient, sqrt(squares) / tokens, is above it. NaN where the loss or the norm is not finite,
     * and from then on (now[NOW_LOST]). No tokens count as one. */
    enum err (*scale)(struct dev *d, double *now, const double *sums /* (SUMS_COUNT) device */,
                      double clip);
    enum err (*sum)(struct dev *d, double *out /* device, += */, const void *x, int64_t n);
    /* The parts of x. ref and cpu add part after part. */
    enum err (*sumsq)(struct dev *d, double *out /* device, += */, const void *x,
                      const struct dev_parts *of);
    enum err (*cast)(struct dev *d, void *to /* ct */, const void *from /* at */, int64_t n);
    enum err (*add)(struct dev *d, void *to, const void *from, int64_t n); /* to += from */
};

enum { DEV_MARKS = 8, DEV_ASIDES = 16 };

struct dev {
    const struct dev_ops *ops;
    enum dev_kind kind;
    union {
        struct dtypes types;
        struct { enum dtype ct, at, logits; int64_t chunk; }; /* the same, by name */
    };
    bool queues;       /* the host runs ahead of the device */
    int64_t own;       /* bytes of its memory that are for itself: dev_own_bytes */
    int64_t later;     /* of these, what it takes only when it records */
    enum err (*watch)(void *arg); /* asked in each wait of the host; NULL: nobody */
    void *watch_arg;   /* borrowed */
    int threads;
    int part;          /* of a stage, that is at work: for messages */
    struct probe *probe; /* borrowed; looks at each call (probe.h); NULL: none does */
    double *stamp;     /* owned; [stamps] where work is done at once, else NULL */
    int64_t stamps;
    void *impl; /* owned by the device */
};

enum { DEV_MAX_THREADS = 1024 }; /* of a rank */

struct dev_args {
    enum dev_kind kind;
    enum dtype ct; /* cpu, cuda: DT_F32 or DT_BF16; ref: DT_F64; null: any */
    int threads;   /* of this rank; 1 to DEV_MAX_THREADS */
    int index;     /* cuda: which GPU of this machine, from 0 */
    bool records;  /* cuda: a step will be recorded, which takes memory: dev_own_bytes */
    bool deterministic; /* cuda: the same bits from every run, where a faster way has not them */
    const struct attn *largest; /* cuda: the attention that needs most (extents, drop.p); NULL: of
                                   any, and what finds no room goes a slower way */
};

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

/* Are the words that the environment has for this kind of device ones that it knows? What asks
 * this beforehand is spared the same error at opening. Errors: ERR_CONFIG. Opens nothing. */
enum err dev_environment(enum dev_kind k);

/* Bytes of its memory that a device opened like that takes for itself, as workspace of its
 * kernels; cpu: of each of its threads. Pure. */
int64_t dev_own_bytes(const struct dev_args *a);

/* Errors: ERR_CONFIG when the device is not built in or cannot do the type. */
enum err dev_open(const struct dev_args *a, struct dev **out);
void dev_close(struct dev *d); /* NULL is fine */

/* On a device that queues, sync and reach ask `check`, while they wait and behind it, whether what
 * they wait for will come and has come: a peer may have failed, and a transport that has given up
 * leaves wrong numbers behind. It runs on the waiting thread; they end with its error. */
void dev_watch(struct dev *d, enum err (*check)(void *arg), void *arg);
/* The answer, for sync and reach. */
enum err dev_waited(const struct dev *d);

/* Built in? One line on what it is and can do ("cpu: oneDNN 2.6.3, avx2, bf16 by conversion"). */
bool dev_built(enum dev_kind k);
void dev_describe_kind(enum dev_kind k, char *buf, size_t n);
/* A line on each of this kind that the machine has (GPUs); none where there are no such units. */
void dev_describe_units(enum dev_kind k, struct text *out);

/* A device in front of `inner`, which it owns, that times every call (profile.c). Its steps are
 * what lies between begin and end, which are told the seconds that the rank has spent in
 * communication so far; `opened` is the time (log_now) since which the rank has been starting up.
 * The table: one line an operation with seconds, share of the steps, rates; then communication, the
 * rest of the host, the sum, and the start-up before. Nothing for a device that is not such a
 * one. */
enum err dev_profile_open(struct dev *inner, double opened, struct dev **out);
void dev_profile_begin(struct dev *d, double comm_s);
void dev_profile_end(struct dev *d, double comm_s);
void dev_profile_table(const struct dev *d, struct text *out);

/* null device: what has been asked of it since opening. */
struct dev_counts { double flops; double bytes; int64_t calls; };
void dev_null_counts(const struct dev *d, struct dev_counts *out);

#endif
