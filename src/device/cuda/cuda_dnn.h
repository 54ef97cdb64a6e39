/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN's backend, by its C descriptors: what attention needs of it. A graph of operations over
 * tensors is described once, the library's heuristics name engines that can run it, and a plan is
 * one of these, compiled for one device.
 *
 * A graph remembers the first call that the library refused and ignores what follows, so that a
 * graph is written down without a test behind each line. All functions are local.
 */
#ifndef PLAIT_DEVICE_CUDA_DNN_H
#define PLAIT_DEVICE_CUDA_DNN_H

#include "device/device.h"
#include <cudnn.h>
#include <stdint.h>

enum { DNN_DESCRIPTORS = 128, DNN_OPS = 32, DNN_CANDIDATES = 4, DNN_OPERANDS = 16 };

/* Whom a plan is for: a handle; or, where there is none, what describes a device that need not be
 * here, which is enough to build plans and to ask what they take. */
struct dnn_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t device; /* read when handle is NULL */
};

/* Four extents, slowest first, and their strides in elements. */
struct dnn_shape { int64_t dim[4], stride[4]; };

struct dnn_graph {
    cudnnBackendDescriptor_t all[DNN_DESCRIPTORS]; /* owned */
    int count;
    cudnnBackendDescriptor_t op[DNN_OPS];          /* borrowed from all */
    int ops;
    int64_t inner;                                 /* the next id of a tensor without a name */
    cudnnStatus_t status;                          /* of the first call that failed */
    const char *failed;                            /* that call */
};

/* A tensor in memory, or a number on the host, known by `id` (1..99) when the plan is run; and one
 * that lives inside the graph. */
cudnnBackendDescriptor_t dnn_tensor(struct dnn_graph *g, int64_t id, cudnnDataType_t type,
                                    const struct dnn_shape *s);
cudnnBackendDescriptor_t dnn_number(struct dnn_graph *g, int64_t id, cudnnDataType_t type);
cudnnBackendDescriptor_t dnn_inner(struct dnn_graph *g, cudnnDataType_t type,
                                   const struct dnn_shape *s);

/* y = mode(x, b), computed in `math`; b NULL: of one operand. */
struct dnn_pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t math;
    cudnnBackendDescriptor_t x, b, mask, y; /* mask: where it holds x, else b (BINARY_SELECT) */
    int64_t axis;                           /* GEN_INDEX: whose index */
};
void dnn_pointwise(struct dnn_graph *g, const struct dnn_pointwise *p);
/* c = a b, sums in f32. */
void dnn_matmul(struct dnn_graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                cudnnBackendDescriptor_t c);
/* y = sum or maximum of x over the extents that are 1 in y. */
void dnn_reduce(struct dnn_graph *g, cudnnReduceTensorOp_t op, cudnnBackendDescriptor_t x,
                cudnnBackendDescriptor_t y);
/* y is x seen with other extents and strides. */
void dnn_reshape(struct dnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y);

/* Destroys what the graph holds; plans made from it live on. */
void dnn_graph_close(struct dnn_graph *g);

struct dnn_plan {
    cudnnBackendDescriptor_t plan; /* owned */
    int64_t work;                  /* bytes */
};
/* Plans for the graph whose workspace is at most `most` bytes, best guess first. `least` is the
 * smallest workspace that any engine asked for, `most` or not; -1 when none can run the graph. */
struct dnn_ask {
    int64_t most;
    bool deterministic; /* no engine that the library says is not */
    int wanted;         /* 1..DNN_CANDIDATES */
};
struct dnn_answer {
    struct dnn_plan plan[DNN_CANDIDATES];
    int count;
    int64_t least;
};
/* Errors: ERR_INTERNAL when the library refuses the graph itself, naming the call. */
enum err dnn_plans(struct dnn_graph *g, const struct dnn_target *t, const struct dnn_ask *ask,
                   struct dnn_answer *out);
void dnn_plan_close(struct dnn_plan *p);

/* Runs a plan on the handle's stream: n tensors and numbers by their ids. */
struct dnn_operands {
    int64_t id[DNN_OPERANDS];
    void *at[DNN_OPERANDS];
    int n;
    void *work;
};
cudnnStatus_t dnn_run(cudnnHandle_t handle, const struct dnn_plan *p, struct dnn_operands *o);

/* cuda_attn_graph.c: attention as a graph. Ids of its tensors, then of its numbers: the scale,
 * minus infinity, one (f32), and the counts of queries and keys (int32). */
enum dnn_attn_id {
    ATTN_Q = 1, ATTN_K, ATTN_V, ATTN_O, ATTN_LSE, ATTN_DO, ATTN_DQ, ATTN_DK, ATTN_DV, ATTN_DELTA,
    ATTN_SUM_DQ, /* (b, heads, tq, d) f32, packed: dq while it is added up; not if deterministic */
    ATTN_SCALE, ATTN_MASKED, ATTN_ONE, ATTN_TQ, ATTN_TK
};
/* bf16, causal, no dropout. Extents and strides of `a` are read, addresses are not. */
void dnn_attn(struct dnn_graph *g, const struct attn *a);
void dnn_attn_grad(struct dnn_graph *g, const struct attn *a, bool deterministic);

#endif
