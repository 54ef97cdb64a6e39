/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies to the host on a stream of their own, which a copy engine makes while kernels run. Two
 * events a slot put them in order with the device's stream: a slot's copies begin behind one on it,
 * and it goes on behind one of theirs.
 *
 * In a graph both are events from outside: each launch waits for the copies that were begun
 * when it was queued, and the copies begun behind it wait for its kernels; so one captured step
 * serves those with copies beside them and those without.
 *
 * No event is to follow a copy of the stream's own to the host: it would go to the copy engine,
 * behind these (on an H200 a step began 0.34 s late behind 18.7 GB). What the host waits for in
 * each step is a few bytes, and goes by a kernel (cuda_d2h).
 */
#include "device/cuda/cuda_local.h"

/* Those of copies are recorded, so that there is always one to wait for. */
enum err cuda_snapshot_open(struct cuda *c)
{
    CUDA_TRY(cudaStreamCreateWithFlags(&c->copy_stream, cudaStreamNonBlocking));
    TRY(cuda_event_new(&c->all_gone, cudaEventDisableTiming | cudaEventBlockingSync));
    CUDA_TRY(cudaEventRecord(c->all_gone, c->copy_stream));
    for (int i = 0; i < DEV_SNAPSHOT_SLOTS; i++) {
        TRY(cuda_event_new(&c->ready[i], cudaEventDisableTiming));
        TRY(cuda_event_new(&c->gone[i], cudaEventDisableTiming));
        CUDA_TRY(cudaEventRecord(c->gone[i], c->copy_stream));
    }
    return ERR_OK;
}

void cuda_snapshot_close(struct cuda *c)
{
    if (c->copy_stream)
        (void)cudaStreamSynchronize(c->copy_stream);
    for (int i = 0; i < DEV_SNAPSHOT_SLOTS; i++) {
        cuda_event_drop(c->ready[i]);
        cuda_event_drop(c->gone[i]);
    }
    cuda_event_drop(c->all_gone);
    if (c->copy_stream)
        (void)cudaStreamDestroy(c->copy_stream);
}

enum err cuda_snapshot_ready(struct dev *d, int slot)
{
    struct cuda *c = cuda_of(d);
    CUDA_TRY(cudaEventRecordWithFlags(c->ready[slot], c->stream,
                                      c->capturing ? cudaEventRecordExternal : 0));
    return ERR_OK;
}

enum err cuda_snapshot(struct dev *d, const struct snapshot *a)
{
    struct cuda *c = cuda_of(d);
    ENSURE(!c->capturing);
    if (a->n <= 0)
        return ERR_OK;
    CUDA_TRY(cudaStreamWaitEvent(c->copy_stream, c->ready[a->slot], 0));
    CUDA_TRY(cudaMemcpyAsync(a->to, a->from, (size_t)a->n, cudaMemcpyDeviceToHost, c->copy_stream));
    CUDA_TRY(cudaEventRecord(c->gone[a->slot], c->copy_stream));
    CUDA_TRY(cudaEventRecord(c->all_gone, c->copy_stream));
    return ERR_OK;
}

enum err cuda_snapshot_join(struct dev *d, int slot)
{
    struct cuda *c = cuda_of(d);
    CUDA_TRY(
        cudaStreamWaitEvent(c->stream, c->gone[slot], c->capturing ? cudaEventWaitExternal : 0));
    return ERR_OK;
}

/* A thread's first call would open the first GPU, whichever is the rank's. */
enum err cuda_snapshot_synchronize(struct dev *d, bool *there)
{
    struct cuda *c = cuda_of(d);
    CUDA_TRY(cudaSetDevice(c->index));
    cudaError_t e = there ? cudaEventQuery(c->all_gone) : cudaEventSynchronize(c->all_gone);
    if (there)
        *there = e == cudaSuccess;
    if (there && e == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* it would pass for the error of a later launch */
        return ERR_OK;
    }
    CUDA_TRY(e);
    return ERR_OK;
}
