/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA graphs, captured from the device's stream. Streams of a transport come into
 * the capture with the first event of ours that they wait for, and leave it with the last of theirs
 * that this one waits for.
 *
 * The capture is the calling thread's alone, for ranks are threads of one process: what others do
 * meanwhile neither spoils it nor is taken up by it. A call that would wait for the device is
 * refused by the driver while it lasts. Choices of algorithms and plans must have been made before,
 * by doing the same calls once without a capture.
 *
 * An instance takes memory of the GPU for the parameters of its kernels. It is taken here, not by
 * the first launch, and PLAIT_LOG=debug says how much; the plan of memory has CUDA_GRAPH_BYTES.
 */
#include "device/cuda/cuda_local.h"

#include "base/log.h"
#include "base/mem.h"

struct dev_graph {
    cudaGraphExec_t exec; /* owned */
};

enum err cuda_graph_begin(struct dev *d)
{
    struct cuda *c = cuda_of(d);
    ENSURE(!c->capturing);
    CUDA_TRY(cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal));
    c->capturing = true;
    return ERR_OK;
}

static enum err instantiate(struct cuda *c, cudaGraph_t graph, struct dev_graph *g)
{
    size_t before = 0, nodes = 0, left = 0, all = 0;
    CUDA_TRY(cudaMemGetInfo(&before, &all));
    CUDA_TRY(cudaGraphInstantiateWithFlags(&g->exec, graph, 0));
    CUDA_TRY(cudaGraphUpload(g->exec, c->stream));
    CUDA_TRY(cudaStreamSynchronize(c->stream)); /* for the size; nothing captured has run */
    if (cudaGraphGetNodes(graph, NULL, &nodes) == cudaSuccess &&
        cudaMemGetInfo(&left, &all) == cudaSuccess)
        log_line(LOG_DEBUG,
                 "cuda: a graph of %zu operations takes %.1f MiB of GPU %d, %d are planned", nodes,
                 ((double)before - (double)left) / (1 << 20), c->index, CUDA_GRAPH_BYTES >> 20);
    return ERR_OK;
}

enum err cuda_graph_end(struct dev *d, struct dev_graph **out)
{
    struct cuda *c = cuda_of(d);
    struct dev_graph *g;
    cudaGraph_t graph = NULL;
    c->capturing = false;
    cudaError_t e = cudaStreamEndCapture(c->stream, &graph);
    if (e != cudaSuccess)
        (void)cudaGetLastError(); /* it is no one's any more */
    CUDA_TRY(e);
    enum err err = mem_new(1, sizeof *g, "a graph", &g);
    if (err == ERR_OK) {
        err = instantiate(c, graph, g);
        if (err != ERR_OK) {
            (void)cudaGetLastError();
            cuda_graph_destroy(d, g);
        }
    }
    (void)cudaGraphDestroy(graph);
    if (err == ERR_OK)
        *out = g;
    return err;
}

enum err cuda_graph_launch(struct dev *d, struct dev_graph *g)
{
    CUDA_TRY(cudaGraphLaunch(g->exec, cuda_of(d)->stream));
    return ERR_OK;
}

void cuda_graph_destroy(struct dev *d, struct dev_graph *g)
{
    (void)d;
    if (!g)
        return;
    if (g->exec)
        (void)cudaGraphExecDestroy(g->exec);
    mem_free(g);
}
