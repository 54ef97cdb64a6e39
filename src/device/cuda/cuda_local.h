/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the cuda device share: the device, its workspace, error handling, the functions
 * of its table. Read by C files and, inside extern "C", by CUDA C++ files.
 *
 * Workspace. One buffer, taken at opening, serves every call that needs room: split GEMMs,
 * attention's backward, partial sums of reductions. Calls are in the order of the stream, so it
 * holds nothing from one call to the next. What asks for more than it has is refused by name.
 */
#ifndef PLAIT_DEVICE_CUDA_LOCAL_H
#define PLAIT_DEVICE_CUDA_LOCAL_H

#include "device/device.h"
#include <cuda_runtime_api.h>

struct cuda_lt;    /* cuda_gemm.c: cuBLASLt with its choices */
struct cuda_dnn;   /* cuda_attn_dnn.c: cuDNN with its plans */
struct cuda_stage; /* cuda_stage.c: pinned memory on its way to the device */
struct cuda_clock;  /* cuda_timer.c: timed events, and the clocks of GPU and host */

struct cuda {
    struct dev dev;          /* first: a struct dev * is a struct cuda * */
    int index;               /* the GPU */
    int sms;                 /* how many SMs it has */
    int shared;              /* bytes of shared memory that a block may ask for */
    bool bf16;               /* ct is bf16 */
    bool sm90;               /* compute capability 9.0 */
    bool deterministic;
    bool capturing;          /* between graph_begin and graph_end */
    cudaStream_t stream;
    void *work;              /* device, owned: the workspace */
    int64_t work_bytes;
    cudaEvent_t event[DEV_EVENTS];
    cudaStream_t copy_stream; /* of snapshots: cuda_snapshot.c */
    cudaEvent_t ready[DEV_SNAPSHOT_SLOTS]; /* on the stream */
    cudaEvent_t gone[DEV_SNAPSHOT_SLOTS];  /* behind a slot's last copy */
    cudaEvent_t all_gone;    /* behind the last copy */
    struct cuda_lt *lt;      /* owned; NULL until the first GEMM */
    struct cuda_dnn *dnn;    /* owned; NULL: f32, or without cuDNN */
    struct cuda_stage *stage; /* owned */
    struct cuda_clock *clock; /* owned */
    enum dev_attn_grad attn_grad;
    const char *cache;        /* borrowed: dev_args.cache */
    int64_t attn_told[6];     /* the shape that the log was told of last */
};

static inline struct cuda *cuda_of(struct dev *d) { return (struct cuda *)d; }

/* FAIL with what the runtime says: ERR_MEMORY for cudaErrorMemoryAllocation, else ERR_INTERNAL. */
enum err cuda_failed(const char *file, int line, const char *what, cudaError_t e);
#define CUDA_TRY(call)                                                                             \
    do {                                                                                           \
        cudaError_t cuda_err_ = (call);                                                            \
        if (cuda_err_ != cudaSuccess)                                                              \
            return cuda_failed(__FILE__, __LINE__, #call, cuda_err_);                              \
    } while (0)
/* Behind each launch: an error of the launch itself. */
#define CUDA_LAUNCHED(name)                                                                        \
    do {                                                                                           \
        cudaError_t cuda_err_ = cudaGetLastError();                                                \
        if (cuda_err_ != cudaSuccess)                                                              \
            return cuda_failed(__FILE__, __LINE__, name, cuda_err_);                               \
    } while (0)

/* cuda_info.c: how many GPUs this process sees, at least one. Errors: ERR_CONFIG, why it sees
 * none. */
enum err cuda_count(int *out);
/* Are the libraries of the versions that this program needs? cuda_lt.c, cuda_attn_dnn.c. Errors:
 * ERR_CONFIG. No GPU is needed for the answer. */
enum err cuda_lt_fits(void);
enum err cuda_dnn_fits(void); /* always, without cuDNN */
int64_t cuda_dnn_version(void); /* 0: without cuDNN */
/* "13.0" of 13000, a version of the runtime or the driver; buf. */
const char *cuda_version_text(int v, char buf[16]);

/* cuda_base.c: the workspace, when it has `bytes`; ERR_INTERNAL naming `who` when it has not. */
enum err cuda_work(struct cuda *c, int64_t bytes, const char *who, void **out);
enum err cuda_zeros(struct cuda *c, void *p, int64_t bytes);
enum err cuda_event_new(cudaEvent_t *out, unsigned flags);
void cuda_event_drop(cudaEvent_t e); /* NULL is fine */

/* cuda_graph.c. What the graph of a step may take of the GPU's memory, as planned. */
enum { CUDA_GRAPH_BYTES = 64 << 20 };
enum err cuda_graph_begin(struct dev *d);
enum err cuda_graph_end(struct dev *d, struct dev_graph **out);
enum err cuda_graph_launch(struct dev *d, struct dev_graph *r);
void cuda_graph_destroy(struct dev *d, struct dev_graph *r);

/* cuda_stage.c */
enum err cuda_stage_open(struct cuda *c);
void cuda_stage_close(struct cuda *c);

/* cuda_snapshot.c */
enum err cuda_snapshot_open(struct cuda *c);
void cuda_snapshot_close(struct cuda *c);
enum err cuda_snapshot_ready(struct dev *d, int slot);
enum err cuda_snapshot_join(struct dev *d, int slot);
enum err cuda_snapshot_synchronize(struct dev *d, bool *there);

/* cuda_timer.c */
enum err cuda_clock_open(struct cuda *c);
void cuda_clock_close(struct cuda *c);
enum err cuda_timer_alloc(struct dev *d, int64_t n, int64_t *first);
enum err cuda_timer_record(struct dev *d, int64_t which);
enum err cuda_timer_read(struct dev *d, int64_t which, double *seconds);

/* cuda_lt.c */
enum err cuda_choices(struct dev *d, struct text *out);
enum err cuda_choose(struct dev *d, const char *choices, bool *taken);
void cuda_lt_close(struct cuda *c);

/* cuda_attn.c chooses; cuda_attn_dnn.c: cuDNN; cuda_attn_own.cu: any type, dropout, any length.
 * Bytes of workspace that attention's gradient takes (bf16, no dropout), by cuDNN or by the kernels
 * for Hopper, from extents alone; 0 where neither is asked. A plan takes the largest of its layers
 * beforehand. */
int64_t cuda_attn_work_bytes(const struct attn *a, bool deterministic);

/* cuDNN's handle, of a device of bf16. Nothing without cuDNN. */
enum err cuda_dnn_open(struct cuda *c);
void cuda_dnn_close(struct cuda *c);
/* `done` says whether cuDNN has taken the call. Forward (not grad): g->f alone is read. */
enum err cuda_dnn_attn(struct cuda *c, const struct attn_grad *g, bool grad, bool *done);
/* cuda_attn_lse.cu: a->lse as (b, heads, tq) to `to`. */
enum err cuda_attn_lse(struct cuda *c, void *to, const struct attn *a);

/* cuda_attn_bwd.cu: the gradient on compute capability 9.0, heads of 64. `done`: it took it. */
enum err cuda_attn_bwd(struct cuda *c, const struct attn_grad *g, bool *done);

enum err cuda_attn_own(struct cuda *c, const struct attn *a);
enum err cuda_attn_own_grad(struct cuda *c, const struct attn_grad *a);

/* cuda_rows.cu: cuda_bias_grad; fresh: db is written. */
enum err cuda_bias_sums(struct cuda *c, void *db, const void *dy, int64_t n, int64_t cols,
                        bool fresh);
/* cuda_flat.cu. `done`: a kernel writes them, for they are few and go to memory of host_alloc. */
enum err cuda_few_out(struct cuda *c, void *host_to, const void *from, int64_t bytes, bool *done);

/* Operations that have a way here, X(kind, member of struct op, struct of its arguments, function);
 * zero and d2h stand in cuda.c beside them. */
#define CUDA_OPS(X)                                                       \
    X(OP_GEMM, gemm, gemm, cuda_gemm)                                     \
    X(OP_ATTN, attn, attn, cuda_attn)                                     \
    X(OP_ATTN_GRAD, attn_grad, attn_grad, cuda_attn_grad)                 \
    X(OP_NORM, norm, norm, cuda_norm)                                     \
    X(OP_NORM_GRAD, norm_grad, norm_grad, cuda_norm_grad)                 \
    X(OP_RESIDUAL_NORM, residual_norm, residual_norm, cuda_residual_norm) \
    X(OP_BIAS_GRAD, bias_grad, bias_grad, cuda_bias_grad)                 \
    X(OP_ROPE, rope, rope, cuda_rope)                                     \
    X(OP_SWIGLU, swiglu, swiglu, cuda_swiglu)                             \
    X(OP_SWIGLU_GRAD, swiglu_grad, swiglu_grad, cuda_swiglu_grad)         \
    X(OP_RESIDUAL, residual, residual, cuda_residual)                     \
    X(OP_DROPOUT, dropout, dropout, cuda_dropout)                         \
    X(OP_EMBED, embed, embed, cuda_embed)                                 \
    X(OP_EMBED_GRAD, embed_grad, embed_grad, cuda_embed_grad)             \
    X(OP_POS_ADD, pos_add, pos_add, cuda_pos_add)                         \
    X(OP_POS_GRAD, pos_grad, pos_grad, cuda_pos_grad)                     \
    X(OP_XENT, xent, xent, cuda_xent)                                     \
    X(OP_XENT_MAX, xent_max, xent, cuda_xent_max)                         \
    X(OP_XENT_SUM, xent_sum, xent, cuda_xent_sum)                         \
    X(OP_XENT_GRAD, xent_grad, xent, cuda_xent_grad)                      \
    X(OP_RELU, relu, relu, cuda_relu)                                     \
    X(OP_RELU_GRAD, relu_grad, relu_grad, cuda_relu_grad)                 \
    X(OP_ADAMW, adamw, adamw, cuda_adamw)                                 \
    X(OP_SCALE, scale, scale, cuda_scale)                                 \
    X(OP_SUM, sum, sum, cuda_sum)                                         \
    X(OP_SUMSQ, sumsq, sumsq, cuda_sumsq)                                 \
    X(OP_CAST, cast, flat, cuda_cast)                                     \
    X(OP_ADD, add, flat, cuda_add)                                        \
    X(OP_COPY, copy, flat, cuda_copy)                                     \
    X(OP_H2D, h2d, flat, cuda_h2d)                                        \
    X(OP_SNAPSHOT, snapshot, snapshot, cuda_snapshot)
#define CUDA_OP(kind, member, type, call) enum err call(struct dev *d, const struct type *a);
CUDA_OPS(CUDA_OP)
#undef CUDA_OP

#endif
