/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies to the host on a stream of their own, which a copy engine makes while kernels run. Two
 * events put them in order with the device's stream: the copies begin behind one on it, and it goes
 * on behind one of theirs.
 *
 * What the stream did last says where its next event goes: behind a copy to the host, to the copy
 * engine behind the copies aside, and all that follows waits for them (on an H200 a step began
 * 0.34 s late behind 18.7 GB). So a few bytes of the workspace are set before the first event.
 *
 * In a recording that second wait is for an event from outside: each replay waits for the event as
 * it was recorded last when the replay was queued, so one recorded step serves those with a copy
 * beside them and those without.
 */
#include "device/cuda/cuda_local.h"

enum err cuda_aside_open(struct cuda *c)
{
    CUDA_TRY(cudaStreamCreateWithFlags(&c->aside, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreateWithFlags(&c->asked, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&c->gone, cudaEventDisableTiming | cudaEventBlockingSync));
    CUDA_TRY(cudaEventRecord(c->gone, c->aside)); /* so that there is always one to wait for */
    return ERR_OK;
}

void cuda_aside_close(struct cuda *c)
{
    if (c->aside)
        (void)cudaStreamSynchronize(c->aside);
    if (c->asked)
        (void)cudaEventDestroy(c->asked);
    if (c->gone)
        (void)cudaEventDestroy(c->gone);
    if (c->aside)
        (void)cudaStreamDestroy(c->aside);
}

enum err cuda_aside(struct dev *d, void *host_to, const void *from, int64_t bytes)
{
    struct cuda *c = cuda_of(d);
    ENSURE(!c->recording);
    if (bytes <= 0)
        return ERR_OK;
    CUDA_TRY(cudaMemsetAsync(c->work, 0, sizeof(int64_t), c->stream));
    CUDA_TRY(cudaEventRecord(c->asked, c->stream));
    CUDA_TRY(cudaStreamWaitEvent(c->aside, c->asked, 0));
    CUDA_TRY(cudaMemcpyAsync(host_to, from, (size_t)bytes, cudaMemcpyDeviceToHost, c->aside));
    CUDA_TRY(cudaEventRecord(c->gone, c->aside));
    return ERR_OK;
}

enum err cuda_aside_join(struct dev *d)
{
    struct cuda *c = cuda_of(d);
    CUDA_TRY(cudaStreamWaitEvent(c->stream, c->gone, c->recording ? cudaEventWaitExternal : 0));
    return ERR_OK;
}

/* A thread's first call would open the first GPU, whichever is the rank's. */
enum err cuda_aside_reach(struct dev *d, bool *there)
{
    struct cuda *c = cuda_of(d);
    CUDA_TRY(cudaSetDevice(c->index));
    cudaError_t e = there ? cudaEventQuery(c->gone) : cudaEventSynchronize(c->gone);
    if (there)
        *there = e == cudaSuccess;
    if (there && e == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* it would pass for the error of a later launch */
        return ERR_OK;
    }
    CUDA_TRY(e);
    return ERR_OK;
}
