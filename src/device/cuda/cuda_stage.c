/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory on its way to the device. A copy from ordinary memory makes the host wait for the
 * queue; from pinned memory it does not. So what is to be copied goes into a ring of pinned pieces
 * first, each with an event behind its copy; only when all pieces are on their way is one waited
 * for.
 */
#include "device/cuda/cuda_local.h"

#include "base/mem.h"

enum { STAGE_PIECES = 16, STAGE_BYTES = 512 << 10 };

struct cuda_stage {
    char *memory; /* pinned; STAGE_PIECES of STAGE_BYTES */
    cudaEvent_t gone[STAGE_PIECES];
    int next;
};

enum err cuda_stage_open(struct cuda *c)
{
    TRY(mem_new(1, sizeof *c->stage, "staging", &c->stage));
    CUDA_TRY(cudaMallocHost((void **)&c->stage->memory, (size_t)STAGE_PIECES * STAGE_BYTES));
    for (int i = 0; i < STAGE_PIECES; i++)
        TRY(cuda_event_new(&c->stage->gone[i], cudaEventDisableTiming));
    return ERR_OK;
}

void cuda_stage_close(struct cuda *c)
{
    struct cuda_stage *s = c->stage;
    if (!s)
        return;
    for (int i = 0; i < STAGE_PIECES; i++)
        cuda_event_drop(s->gone[i]);
    if (s->memory)
        (void)cudaFreeHost(s->memory);
    mem_free(s);
    c->stage = NULL;
}

enum err cuda_h2d(struct dev *d, const struct flat *a)
{
    struct cuda *c = cuda_of(d);
    struct cuda_stage *s = c->stage;
    ENSURE(!c->capturing); /* a launch of the graph would find another copy's bytes in the piece */
    for (int64_t done = 0; done < a->n; done += STAGE_BYTES) {
        size_t n = (size_t)num_min(a->n - done, STAGE_BYTES);
        char *piece = s->memory + (int64_t)s->next * STAGE_BYTES;
        CUDA_TRY(cudaEventSynchronize(s->gone[s->next]));
        memcpy(piece, (const char *)a->from + done, n);
        CUDA_TRY(
            cudaMemcpyAsync((char *)a->to + done, piece, n, cudaMemcpyHostToDevice, c->stream));
        CUDA_TRY(cudaEventRecord(s->gone[s->next], c->stream));
        s->next = (s->next + 1) % STAGE_PIECES;
    }
    return ERR_OK;
}
