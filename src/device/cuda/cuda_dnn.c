/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_dnn.h. Every descriptor is made, filled attribute by attribute, and finalised; a call that
 * fails leaves its status and name in the graph. Engines are taken in the order of the library's
 * own guesses: mode A (its model of speed); B (a slower, finer one, which for attention is A again)
 * only where A had nothing that fits; and the fallback list where neither had.
 */
#include "device/device.h"

#ifdef PLAIT_HAVE_CUDNN
#include "device/cuda/cuda_dnn.h"

#include <stddef.h>

enum { ENGINES = 16, NOTES = 16, FIRST_INNER = 100 };

static void note(struct dnn_graph *g, cudnnStatus_t s, const char *what)
{
    if (s != CUDNN_STATUS_SUCCESS && g->status == CUDNN_STATUS_SUCCESS) {
        g->status = s;
        g->failed = what;
    }
}

static cudnnBackendDescriptor_t begin(struct dnn_graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    ENSURE(g->count < DNN_DESCRIPTORS);
    note(g, cudnnBackendCreateDescriptor(type, &d), "create a descriptor");
    g->all[g->count++] = d;
    return d;
}

static void set(struct dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        note(g, cudnnBackendSetAttribute(d, name, type, n, value), "set an attribute");
}

/* The same where no graph is at hand: skipped behind what was refused. */
static void give(cudnnStatus_t *s, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                 cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    if (*s == CUDNN_STATUS_SUCCESS)
        *s = cudnnBackendSetAttribute(d, name, type, n, value);
}

static void set_desc(struct dnn_graph *g, cudnnBackendDescriptor_t d,
                     cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    if (value)
        set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finish(struct dnn_graph *g, cudnnBackendDescriptor_t d, const char *what)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        note(g, cudnnBackendFinalize(d), what);
}

static void finish_op(struct dnn_graph *g, cudnnBackendDescriptor_t d, const char *what)
{
    finish(g, d, what);
    ENSURE(g->ops < DNN_OPS);
    g->op[g->ops++] = d;
}

static cudnnBackendDescriptor_t begin_tensor(struct dnn_graph *g, int64_t id, cudnnDataType_t type,
                                             const struct dnn_shape *s)
{
    const int64_t align = 16;
    cudnnBackendDescriptor_t d = begin(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, s->dim);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, s->stride);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    return d;
}

cudnnBackendDescriptor_t dnn_tensor(struct dnn_graph *g, int64_t id, cudnnDataType_t type,
                                    const struct dnn_shape *s)
{
    cudnnBackendDescriptor_t d = begin_tensor(g, id, type, s);
    finish(g, d, "describe a tensor");
    return d;
}

cudnnBackendDescriptor_t dnn_number(struct dnn_graph *g, int64_t id, cudnnDataType_t type)
{
    const struct dnn_shape one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    const bool yes = true;
    cudnnBackendDescriptor_t d = begin_tensor(g, id, type, &one);
    set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    finish(g, d, "describe a number");
    return d;
}

cudnnBackendDescriptor_t dnn_inner(struct dnn_graph *g, cudnnDataType_t type,
                                   const struct dnn_shape *s)
{
    const bool yes = true;
    cudnnBackendDescriptor_t d = begin_tensor(g, FIRST_INNER + g->inner++, type, s);
    set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    finish(g, d, "describe an inner tensor");
    return d;
}

void dnn_pointwise(struct dnn_graph *g, const struct dnn_pointwise *p)
{
    cudnnBackendDescriptor_t how = begin(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p->mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &p->math);
    if (p->mode == CUDNN_POINTWISE_GEN_INDEX)
        set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p->axis);
    finish(g, how, "describe a pointwise mode");
    cudnnBackendDescriptor_t d = begin(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_desc(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p->x);
    set_desc(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p->b);
    set_desc(g, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p->mask);
    set_desc(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p->y);
    finish_op(g, d, "describe a pointwise operation");
}

void dnn_matmul(struct dnn_graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                cudnnBackendDescriptor_t c)
{
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = begin(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    finish(g, how, "describe the type of a matmul");
    cudnnBackendDescriptor_t d = begin(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(g, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    set_desc(g, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_desc(g, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_desc(g, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    finish_op(g, d, "describe a matmul");
}

void dnn_reduce(struct dnn_graph *g, cudnnReduceTensorOp_t op, cudnnBackendDescriptor_t x,
                cudnnBackendDescriptor_t y)
{
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = begin(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
    finish(g, how, "describe the kind of a reduction");
    cudnnBackendDescriptor_t d = begin(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(g, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set_desc(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_desc(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    finish_op(g, d, "describe a reduction");
}

void dnn_reshape(struct dnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y)
{
    cudnnBackendDescriptor_t d = begin(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_desc(g, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_desc(g, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    finish_op(g, d, "describe a reshape");
}

static void destroy(cudnnBackendDescriptor_t d)
{
    if (d)
        cudnnBackendDestroyDescriptor(d);
}

/* Backwards: operations before the tensors that they are made of. */
void dnn_graph_close(struct dnn_graph *g)
{
    while (g->count > 0)
        destroy(g->all[--g->count]);
    g->ops = 0;
}

void dnn_plan_close(struct dnn_plan *p)
{
    destroy(p->plan);
    *p = (struct dnn_plan){0};
}

static cudnnBackendDescriptor_t close_graph(struct dnn_graph *g, const struct dnn_target *t)
{
    cudnnBackendDescriptor_t d = begin(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (t->handle)
        set(g, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &t->handle);
    set(g, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->ops, g->op);
    finish(g, d, "close a graph");
    return d;
}

/* Does the library say that the engine of this configuration may differ from run to run? */
static bool wavers(cudnnBackendDescriptor_t config)
{
    cudnnBackendDescriptor_t engine = NULL;
    cudnnBackendNumericalNote_t notes[NOTES];
    int64_t n = 0;
    bool found = true; /* what cannot be asked is not trusted */
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
        CUDNN_STATUS_SUCCESS)
        return true;
    if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                 &engine) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, NOTES, &n,
                                 notes) == CUDNN_STATUS_SUCCESS) {
        found = false;
        for (int64_t i = 0; i < n && i < NOTES; i++)
            found |= notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    }
    destroy(engine);
    return found;
}

/* One configuration made into a plan; kept when its workspace fits. */
static void take(struct dnn_answer *out, const struct dnn_target *t, const struct dnn_ask *ask,
                 cudnnBackendDescriptor_t config)
{
    struct dnn_plan p = {0};
    int64_t n = 0;
    cudnnStatus_t s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                                                   &p.plan);
    if (t->handle)
        give(&s, p.plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &t->handle);
    else
        give(&s, p.plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
             &t->device);
    give(&s, p.plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
         &config);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendFinalize(p.plan);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendGetAttribute(p.plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, &n, &p.work);
    if (s == CUDNN_STATUS_SUCCESS && (out->least < 0 || p.work < out->least))
        out->least = p.work;
    if (s == CUDNN_STATUS_SUCCESS && p.work <= ask->most)
        out->plan[out->count++] = p;
    else
        destroy(p.plan);
}

/* What one mode of the heuristics names, taken in its order. */
struct search {
    const struct dnn_target *target;
    const struct dnn_ask *ask;
    struct dnn_answer *out;
    cudnnBackendDescriptor_t graph;
};
static void search(const struct search *w, cudnnBackendHeurMode_t mode)
{
    cudnnBackendDescriptor_t heur = NULL, config[ENGINES] = {0};
    int64_t n = 0;
    cudnnStatus_t s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heur);
    give(&s, heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
         &w->graph);
    give(&s, heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!w->target->handle)
        give(&s, heur, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
             &w->target->device);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendFinalize(heur);
    for (int i = 0; i < ENGINES && s == CUDNN_STATUS_SUCCESS; i++)
        s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[i]);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, ENGINES, &n, config);
    if (s != CUDNN_STATUS_SUCCESS)
        n = 0; /* this mode has nothing to say of this graph */
    for (int i = 0; i < n && i < ENGINES && w->out->count < w->ask->wanted; i++)
        if (!w->ask->deterministic || !wavers(config[i]))
            take(w->out, w->target, w->ask, config[i]);
    for (int i = 0; i < ENGINES; i++)
        destroy(config[i]);
    destroy(heur);
}

enum err dnn_plans(struct dnn_graph *g, const struct dnn_target *t, const struct dnn_ask *ask,
                   struct dnn_answer *out)
{
    ENSURE(ask->wanted >= 1 && ask->wanted <= DNN_CANDIDATES);
    *out = (struct dnn_answer){.least = -1};
    struct search w = {t, ask, out, close_graph(g, t)};
    if (g->status != CUDNN_STATUS_SUCCESS)
        FAIL(ERR_INTERNAL, "cuda: cuDNN %zu would not %s: %s", cudnnGetVersion(), g->failed,
             cudnnGetErrorString(g->status));
    search(&w, CUDNN_HEUR_MODE_A);
    if (out->count == 0)
        search(&w, CUDNN_HEUR_MODE_B);
    if (out->count == 0)
        search(&w, CUDNN_HEUR_MODE_FALLBACK);
    return ERR_OK;
}

cudnnStatus_t dnn_run(cudnnHandle_t handle, const struct dnn_plan *p, struct dnn_operands *o)
{
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    give(&s, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, o->n, o->id);
    give(&s, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, o->n, o->at);
    give(&s, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &o->work);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendFinalize(pack);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendExecute(handle, p->plan, pack);
    destroy(pack);
    return s;
}
#endif
