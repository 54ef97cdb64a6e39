/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a GPU that the others may read, and the driver's operations by which streams write and
 * wait for signal words in the host's memory. Both are tried out here, for a machine may lack them.
 */
#include "comm/gpu/gpu.h"

#include "base/log.h"
#include <time.h>

/* ---- signals ---- */

static comm_signal_fn *driver_fn(const char *name)
{
    enum cudaDriverEntryPointQueryResult found;
    void *at = NULL;
    comm_signal_fn *fn;
    if (cudaGetDriverEntryPointByVersion(name, &at, 12000, cudaEnableDefault, &found) !=
            cudaSuccess || found != cudaDriverEntryPointSuccess)
        at = NULL;
    (void)cudaGetLastError();
    memcpy(&fn, &at, sizeof fn); /* C has no cast from one kind of pointer to the other */
    return fn;
}

enum err comm_signals_new(int n, uint32_t **out)
{
    cudaError_t e = cudaHostAlloc((void **)out, (size_t)n * sizeof **out, cudaHostAllocPortable);
    if (e != cudaSuccess) {
        (void)cudaGetLastError(); /* or a later launch would find it */
        *out = NULL;
        FAIL(ERR_MEMORY, "comm: no pinned memory for %d signal words: %s", n,
             cudaGetErrorString(e));
    }
    memset(*out, 0, (size_t)n * sizeof **out);
    return ERR_OK;
}

void comm_signals_free(uint32_t *words)
{
    if (words)
        (void)cudaFreeHost(words);
}

/* A driver may lack the operations, or have and refuse them (virtual GPUs): a word is written and
 * waited for, on a stream of its own. */
void comm_signals_find(struct comm_gpu *q)
{
    struct comm_signals f = {driver_fn("cuStreamWriteValue32"), driver_fn("cuStreamWaitValue32"),
                             q->shared ? q : NULL};
    uint32_t *word;
    cudaStream_t s;
    if (!f.write || !f.wait || comm_signals_new(1, &word) != ERR_OK)
        return;
    if (cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess) {
        CUdeviceptr at = (CUdeviceptr)(uintptr_t)word;
        if (f.write(s, at, 1, 0) == CUDA_SUCCESS &&
            f.wait(s, at, 1, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS &&
            cudaStreamSynchronize(s) == cudaSuccess && *word == 1)
            q->signals = f;
        (void)cudaStreamDestroy(s);
    }
    comm_signals_free(word);
    (void)cudaGetLastError();
}

static enum err call(comm_signal_fn *fn, cudaStream_t s, uint32_t *word, cuuint32_t value,
                     unsigned flags)
{
    CUresult e = fn(s, (CUdeviceptr)(uintptr_t)word, value, flags);
    if (e != CUDA_SUCCESS)
        FAIL(ERR_INTERNAL, "comm: CUDA refuses to write or wait for a word: error %d of the driver",
             (int)e);
    return ERR_OK;
}

enum err comm_signal(const struct comm_signals *f, uint32_t *theirs, cudaStream_t s)
{
    return call(f->write, s, theirs, 1, 0);
}

enum err comm_wait(const struct comm_signals *f, uint32_t *mine, cudaStream_t s)
{
    const struct timespec nap = {.tv_nsec = 20000};
    if (!f->host) {
        TRY(call(f->wait, s, mine, 1, CU_STREAM_WAIT_VALUE_GEQ));
        return call(f->write, s, mine, 0, 0);
    }
    /* A word that has come at a failure (comm_copies_release) comes behind `aborted`. */
    for (bool come = false; !come;) {
        come = __atomic_load_n(mine, __ATOMIC_ACQUIRE) != 0;
        if (comm_gpu_is_over(f->host))
            FAIL(ERR_PEER, "comm: rank %d waits no more for its peers",
                 f->host->device.world->rank);
        if (!come)
            nanosleep(&nap, NULL);
    }
    __atomic_store_n(mine, 0, __ATOMIC_RELEASE);
    return ERR_OK;
}

enum err comm_get(void *to, const void *from, int64_t bytes, cudaStream_t s)
{
    if (bytes > 0)
        TRY_CUDA(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, s));
    return ERR_OK;
}

/* ---- who reaches whom ---- */

bool comm_gpu_reads(int gpu, int other)
{
    int ok = gpu == other;
    bool can = ok || (cudaDeviceCanAccessPeer(&ok, gpu, other) == cudaSuccess && ok);
    (void)cudaGetLastError();
    return can;
}

bool comm_windows_reach(const int *gpu, int n)
{
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess)
        gpus = 0;
    (void)cudaGetLastError();
    for (int i = 0; i < n; i++)
        if (gpu[i] >= gpus)
            return true;
    for (int i = 0; i < n; i++) {
        int pools = 0; /* what open_pool asks for */
        if (cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, gpu[i]) != cudaSuccess)
            pools = 0;
        (void)cudaGetLastError();
        for (int j = 0; j < n; j++)
            if (i != j && (!pools || !comm_gpu_reads(gpu[i], gpu[j])))
                return false;
    }
    return true;
}

/* ---- windows ---- */

enum err comm_window_room(cudaError_t e, int64_t bytes, const char *name, int gpu)
{
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        FAIL(ERR_MEMORY, "memory: %lld bytes for %s do not fit GPU %d; use more ranks, smaller "
                         "microbatches or train.recompute (every:1, full)", (long long)bytes,
             name, gpu);
    }
    TRY_CUDA(e);
    return ERR_OK;
}

/* All GPUs that this process sees and that can, those of the other ranks among them, may read and
 * write what comes from the pool. Only that: were all memory of a GPU open to its peers
 * (cudaDeviceEnablePeerAccess), each later allocation and release would concern them all, and wait
 * for what waits for a peer. */
static cudaError_t open_pool(struct comm_gpu *q)
{
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {cudaMemLocationTypeDevice, q->gpu}};
    int gpus = 0;
    cudaError_t e = cudaGetDeviceCount(&gpus);
    if (e == cudaSuccess)
        e = cudaMemPoolCreate(&q->pool, &props);
    for (int i = 0; i < gpus && e == cudaSuccess; i++) {
        struct cudaMemAccessDesc peer = {{cudaMemLocationTypeDevice, i},
                                         cudaMemAccessFlagsProtReadWrite};
        if (i != q->gpu && comm_gpu_reads(i, q->gpu))
            e = cudaMemPoolSetAccess(q->pool, &peer, 1);
    }
    return e;
}

enum err comm_window_open(struct comm_world *w, int64_t bytes, const char *name, void **out)
{
    struct comm_gpu *q = comm_gpu_of(w);
    void *p = NULL;
    if (q->windows == COMM_WINDOWS)
        FAIL(ERR_INTERNAL, "comm: rank %d takes window %d, for %s; there are %d", w->rank,
             q->windows + 1, name, COMM_WINDOWS);
    if (comm_kind(w) != COMM_THREAD || !w->copies)
        return ERR_OK;
    cudaError_t e = q->pool ? cudaSuccess : open_pool(q);
    if (e != cudaSuccess) { /* no pool: no window, and NCCL sums */
        log_line(LOG_WARN, "comm: GPUs communicate by NCCL and not by copies: no memory of GPU %d "
                           "can be opened to the others (%s)", q->gpu, cudaGetErrorString(e));
        if (q->pool)
            (void)cudaMemPoolDestroy(q->pool);
        q->pool = NULL;
        (void)cudaGetLastError();
        return ERR_OK;
    }
    TRY(comm_window_room(cudaMallocFromPoolAsync(&p, (size_t)bytes, q->pool, q->stream), bytes,
                         name, q->gpu));
    if (!q->signals.wait)
        comm_signals_find(q);
    q->window_bytes[q->windows] = bytes;
    q->window[q->windows++] = *out = p;
    TRY_CUDA(cudaMemsetAsync(p, 0, (size_t)bytes, q->stream));
    TRY_CUDA(cudaStreamSynchronize(q->stream));
    return ERR_OK;
}

void comm_windows_free(struct comm_gpu *q)
{
    for (int i = 0; i < q->windows; i++)
        (void)cudaFreeAsync(q->window[i], q->stream);
    if (q->pool)
        (void)cudaMemPoolDestroy(q->pool);
}
