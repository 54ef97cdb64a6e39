/* SPDX-License-Identifier: Apache-2.0
 *
 * Recordings are CUDA graphs, captured from the device's stream. Streams of a transport come into
 * the capture with the first event of ours that they wait for, and leave it with the last of theirs
 * that this one waits for.
 *
 * The capture is the calling thread's alone, for ranks are threads of one process: what others do
 * meanwhile neither spoils it nor is taken up by it. A call that would wait for the device is
 * refused by the driver while it lasts. Choices of algorithms and plans must have been made before,
 * by doing the same calls once without recording.
 *
 * An instance takes memory of the GPU for the parameters of its kernels. It is taken here, not by
 * the first replay, and PLAIT_LOG=debug says how much; the plan of memory has CUDA_RECORD_BYTES.
 */
#include "device/cuda/cuda_local.h"

#include "base/log.h"
#include "base/mem.h"

struct dev_recording {
    cudaGraphExec_t exec; /* owned */
};

enum err cuda_record_begin(struct dev *d)
{
    struct cuda *c = cuda_of(d);
    ENSURE(!c->recording);
    CUDA_TRY(cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal));
    c->recording = true;
    return ERR_OK;
}

static void say_size(const struct cuda *c, cudaGraph_t graph, size_t before)
{
    size_t nodes = 0, left = 0, all = 0;
    if (cudaGraphGetNodes(graph, NULL, &nodes) != cudaSuccess ||
        cudaMemGetInfo(&left, &all) != cudaSuccess)
        return;
    log_line(LOG_DEBUG, "cuda: a recording of %zu operations takes %.1f MiB of GPU %d, %d are "
                        "planned", nodes, ((double)before - (double)left) / (1 << 20), c->index,
             CUDA_RECORD_BYTES >> 20);
}

static enum err instantiate(struct cuda *c, cudaGraph_t graph, struct dev_recording *r)
{
    size_t before = 0, all = 0;
    CUDA_TRY(cudaMemGetInfo(&before, &all));
    CUDA_TRY(cudaGraphInstantiateWithFlags(&r->exec, graph, 0));
    CUDA_TRY(cudaGraphUpload(r->exec, c->stream));
    CUDA_TRY(cudaStreamSynchronize(c->stream)); /* for the size; nothing recorded has run */
    say_size(c, graph, before);
    return ERR_OK;
}

enum err cuda_record_end(struct dev *d, struct dev_recording **out)
{
    struct cuda *c = cuda_of(d);
    struct dev_recording *r;
    cudaGraph_t graph = NULL;
    c->recording = false;
    cudaError_t e = cudaStreamEndCapture(c->stream, &graph);
    if (e != cudaSuccess)
        (void)cudaGetLastError(); /* it is no one's any more */
    CUDA_TRY(e);
    enum err err = mem_new(1, sizeof *r, "a recording", &r);
    if (err == ERR_OK) {
        err = instantiate(c, graph, r);
        if (err != ERR_OK) {
            (void)cudaGetLastError();
            cuda_forget(d, r);
        }
    }
    (void)cudaGraphDestroy(graph);
    if (err == ERR_OK)
        *out = r;
    return err;
}

enum err cuda_replay(struct dev *d, struct dev_recording *r)
{
    CUDA_TRY(cudaGraphLaunch(r->exec, cuda_of(d)->stream));
    return ERR_OK;
}

void cuda_forget(struct dev *d, struct dev_recording *r)
{
    (void)d;
    if (!r)
        return;
    if (r->exec)
        (void)cudaGraphExecDestroy(r->exec);
    mem_free(r);
}
