/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a GPU, its memory, its stream, and what it says of itself. One stream takes all work, so
 * order is the order of the calls; the host waits in sync, event_synchronize, alloc and free alone.
 *
 * Whatever may be wrong with the machine (no driver, an old one, too few GPUs, libraries of another
 * version) is found at opening and said in one line.
 */
#include "device/cuda/cuda.h"

#include "base/mem.h"
#include "device/cuda/cuda_local.h"
#include "device/plain.h"
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

enum { WORK_LEAST = 320 << 20, WORK_PIECE = 1 << 20, LOOKS = 2000, NAP_NS = 20000 };

/* ---- memory ---- */

static enum err cuda_alloc(struct dev *d, int64_t bytes, const char *name, void **out)
{
    struct cuda *c = cuda_of(d);
    size_t n = (size_t)num_max(bytes, 1), left = 0, all = 0;
    cudaError_t e = cudaMalloc(out, n);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        CUDA_TRY(cudaMemGetInfo(&left, &all));
        FAIL(ERR_MEMORY, "memory: %lld bytes for %s do not fit GPU %d, which has %lld bytes free "
                         "of %lld; use more ranks, smaller microbatches or train.recompute "
                         "(every:1, full)",
             (long long)bytes, name, c->index, (long long)left, (long long)all);
    }
    CUDA_TRY(e);
    CUDA_TRY(cudaMemsetAsync(*out, 0, n, c->stream));
    return ERR_OK;
}

static void cuda_free(struct dev *d, void *p)
{
    if (!p)
        return;
    (void)cudaStreamSynchronize(cuda_of(d)->stream);
    (void)cudaFree(p);
}

static enum err cuda_host_alloc(struct dev *d, int64_t bytes, const char *name, void **out)
{
    (void)d;
    (void)name;
    CUDA_TRY(cudaMallocHost(out, (size_t)num_max(bytes, 1)));
    memset(*out, 0, (size_t)num_max(bytes, 1));
    return ERR_OK;
}

static void cuda_host_free(struct dev *d, void *p)
{
    (void)d;
    if (p)
        (void)cudaFreeHost(p);
}

static enum err cuda_d2h(struct dev *d, const struct flat *a)
{
    bool done = a->n <= 0;
    if (!done)
        TRY(cuda_few_out(cuda_of(d), a->to, a->from, a->n, &done));
    if (!done)
        CUDA_TRY(cudaMemcpyAsync(a->to, a->from, (size_t)a->n, cudaMemcpyDeviceToHost,
                                 cuda_of(d)->stream));
    return ERR_OK;
}

static enum err cuda_mem_info(struct dev *d, int64_t *free_bytes, int64_t *total)
{
    size_t available, all;
    (void)d;
    CUDA_TRY(cudaMemGetInfo(&available, &all));
    *free_bytes = (int64_t)available;
    *total = (int64_t)all;
    return ERR_OK;
}

static int64_t work_bytes(const struct dev_args *a)
{
    int64_t attn = 0;
    if (a->largest && a->ct == DT_BF16 && a->largest->drop.p == 0)
        attn = cuda_attn_work_bytes(a->largest, a->deterministic);
    return num_max(WORK_LEAST, num_ceil_div(attn, WORK_PIECE) * WORK_PIECE);
}

int64_t cuda_workspace_bytes(const struct dev_args *a)
{
    return work_bytes(a) + (a->graph ? CUDA_GRAPH_BYTES : 0);
}

/* ---- the stream ---- */

/* Between two looks at a GPU that has not come there yet: who watches is asked, for what is waited
 * for may depend on a peer. Sleeping comes late, since most waits are short. */
static enum err look_again(struct dev *d, int64_t looks)
{
    const struct timespec t = {.tv_nsec = NAP_NS};
    TRY(dev_waited(d));
    (void)cudaGetLastError(); /* "not ready" would pass for the error of a later launch */
    if (looks < LOOKS)
        sched_yield();
    else
        nanosleep(&t, NULL);
    return ERR_OK;
}

static enum err cuda_sync(struct dev *d)
{
    cudaStream_t s = cuda_of(d)->stream;
    cudaError_t e = d->watch ? cudaStreamQuery(s) : cudaStreamSynchronize(s);
    for (int64_t looks = 0; e == cudaErrorNotReady; looks++) {
        TRY(look_again(d, looks));
        e = cudaStreamQuery(s);
    }
    CUDA_TRY(e);
    return dev_waited(d);
}

static enum err cuda_event_record(struct dev *d, int which)
{
    ENSURE(which >= 0 && which < DEV_EVENTS);
    CUDA_TRY(cudaEventRecord(cuda_of(d)->event[which], cuda_of(d)->stream));
    return ERR_OK;
}

static enum err cuda_event_synchronize(struct dev *d, int which)
{
    ENSURE(which >= 0 && which < DEV_EVENTS);
    cudaEvent_t at = cuda_of(d)->event[which];
    cudaError_t e = d->watch ? cudaEventQuery(at) : cudaEventSynchronize(at);
    for (int64_t looks = 0; e == cudaErrorNotReady; looks++) {
        TRY(look_again(d, looks));
        e = cudaEventQuery(at);
    }
    CUDA_TRY(e);
    return dev_waited(d);
}

/* ---- what it says ---- */

void cuda_describe_kind(char *buf, size_t n)
{
    struct cudaDeviceProp prop;
    char need[16];
    int count = 0, runtime = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    cuda_version_text(runtime, need);
    if (cuda_lt_fits() != ERR_OK || cuda_dnn_fits() != ERR_OK || cuda_count(&count) != ERR_OK)
        snprintf(buf, n, "cuda: toolkit %s; no GPU can be used here: %s", need,
                 strchr(err_text(), ':') + 2);
    else if (cudaGetDeviceProperties(&prop, 0) == cudaSuccess)
        snprintf(buf, n, "cuda: toolkit %s, %d GPU%s, the first %.64s; the same bits of every run "
                         "with train.deterministic", need, count, text_plural(count, "s"),
                 prop.name);
}

static void cuda_describe(const struct dev *d, char *buf, size_t n)
{
    char dnn[64] = "own attention kernels alone (built without cuDNN)";
    int64_t v = cuda_dnn_version();
    struct cudaDeviceProp prop = {0};
    const struct cuda *c = (const struct cuda *)d;
    (void)cudaGetDeviceProperties(&prop, c->index);
    if (v > 0)
        snprintf(dnn, sizeof dnn, "cuDNN %lld.%lld.%lld", (long long)v / 10000,
                 (long long)v / 100 % 100, (long long)v % 100);
    snprintf(buf, n, "cuda: GPU %d, %s, %d SMs, %.1f GiB, %s, %s%s", c->index,
             prop.name, c->sms, (double)prop.totalGlobalMem / (double)(1 << 30),
             dtype_name(d->ct), dnn, c->deterministic ? ", deterministic" : "");
}

/* ---- opening ---- */

/* One at a time: cublasLtDestroy waits for all of a GPU, and threads of ranks that share one and do
 * so at once were seen (CUDA 13.0, H200) to wait for each other in the driver for good. */
static void cuda_close(struct dev *d)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    struct cuda *c = cuda_of(d);
    pthread_mutex_lock(&turn);
    if (c->stream)
        (void)cudaStreamSynchronize(c->stream);
    cuda_lt_close(c);
    cuda_dnn_close(c);
    cuda_stage_close(c);
    cuda_clock_close(c);
    cuda_snapshot_close(c);
    for (int i = 0; i < DEV_EVENTS; i++)
        cuda_event_drop(c->event[i]);
    if (c->work)
        (void)cudaFree(c->work);
    if (c->stream)
        (void)cudaStreamDestroy(c->stream);
    pthread_mutex_unlock(&turn);
    mem_free(c);
}

static enum err cuda_run(struct dev *d, const struct op *op)
{
    switch (op->kind) {
#define CUDA_CASE(kind, member, type, call) case kind: return call(d, &op->member);
        CUDA_OPS(CUDA_CASE)
#undef CUDA_CASE
    case OP_ZERO: return cuda_zeros(cuda_of(d), op->zero.to, op->zero.n);
    case OP_D2H: return cuda_d2h(d, &op->d2h);
    default:
        return dev_plain_run(d, op);
    }
}

static const struct dev_ops cuda_ops = {
    .name = "cuda", .close = cuda_close, .describe = cuda_describe, .alloc = cuda_alloc,
    .free = cuda_free, .host_alloc = cuda_host_alloc, .host_free = cuda_host_free,
    .sync = cuda_sync, .snapshot_ready = cuda_snapshot_ready, .snapshot_join = cuda_snapshot_join,
    .snapshot_synchronize = cuda_snapshot_synchronize, .event_record = cuda_event_record,
    .event_synchronize = cuda_event_synchronize, .timer_alloc = cuda_timer_alloc,
    .timer_record = cuda_timer_record, .timer_read = cuda_timer_read,
    .graph_begin = cuda_graph_begin, .graph_end = cuda_graph_end, .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy, .mem_info = cuda_mem_info, .choices = cuda_choices,
    .choose = cuda_choose, .run = cuda_run,
};

static enum err make_parts(struct cuda *c)
{
    struct cudaDeviceProp prop;
    CUDA_TRY(cudaSetDevice(c->index));
    CUDA_TRY(cudaGetDeviceProperties(&prop, c->index));
    c->sms = prop.multiProcessorCount;
    c->shared = (int)prop.sharedMemPerBlockOptin;
    c->sm90 = prop.major == 9 && prop.minor == 0;
    CUDA_TRY(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
    c->dev.stream = c->stream;
    for (int i = 0; i < DEV_EVENTS; i++)
        TRY(cuda_event_new(&c->event[i], cudaEventDisableTiming));
    CUDA_TRY(cudaMalloc(&c->work, (size_t)c->work_bytes));
    TRY(cuda_stage_open(c));
    TRY(cuda_snapshot_open(c));
    TRY(cuda_clock_open(c));
    return c->bf16 ? cuda_dnn_open(c) : ERR_OK;
}

enum err cuda_open(const struct dev_args *a, struct dev **out)
{
    struct cuda *c;
    int count;
    if (a->ct != DT_F32 && a->ct != DT_BF16)
        FAIL(ERR_CONFIG, "device: cuda was asked to compute in %s; use f32 or bf16",
             dtype_name(a->ct));
    TRY(cuda_lt_fits());
    if (a->ct == DT_BF16)
        TRY(cuda_dnn_fits());
    TRY(cuda_count(&count));
    if (a->index < 0 || a->index >= count)
        FAIL(ERR_CONFIG, "train.device cuda: GPU %d is asked for and this process sees %d; use "
                         "fewer ranks (parallel.tp, pp, dp), at most one for each GPU", a->index,
             count);
    TRY(mem_new(1, sizeof *c, "the cuda device", &c));
    c->dev = (struct dev){.ops = &cuda_ops, .kind = DEV_CUDA, .types = dev_types(DEV_CUDA, a->ct),
                          .async = true, .workspace_bytes = cuda_workspace_bytes(a),
                          .graph_bytes = cuda_workspace_bytes(a) - work_bytes(a), .threads = 1,
                          .impl = c};
    c->index = a->index;
    c->work_bytes = work_bytes(a);
    c->bf16 = a->ct == DT_BF16;
    c->deterministic = a->deterministic;
    c->attn_grad = a->attn_grad;
    c->cache = a->cache;
    enum err err = make_parts(c);
    if (err != ERR_OK) {
        cuda_close(&c->dev);
        return err;
    }
    *out = &c->dev;
    return ERR_OK;
}
