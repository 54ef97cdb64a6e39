/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels' files call of the device, whose table (cuda.c) stands above them.
 */
#include "device/cuda/cuda_local.h"

enum err cuda_failed(const char *file, int line, const char *what, cudaError_t e)
{
    return err_set(e == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_INTERNAL, file, line,
                   "cuda: %s: %s", what, cudaGetErrorString(e));
}

enum err cuda_work(struct cuda *c, int64_t bytes, const char *who, void **out)
{
    if (bytes > c->work_bytes)
        FAIL(ERR_INTERNAL, "cuda: %s needs %lld bytes of workspace and the device has %lld", who,
             (long long)bytes, (long long)c->work_bytes);
    *out = c->work;
    return ERR_OK;
}

enum err cuda_event_new(cudaEvent_t *out, unsigned flags)
{
    CUDA_TRY(cudaEventCreateWithFlags(out, flags));
    return ERR_OK;
}

void cuda_event_drop(cudaEvent_t e)
{
    if (e)
        (void)cudaEventDestroy(e);
}

enum err cuda_copy(struct dev *d, const struct flat *a)
{
    if (a->n > 0 && a->to != a->from)
        CUDA_TRY(cudaMemcpyAsync(a->to, a->from, (size_t)a->n, cudaMemcpyDeviceToDevice,
                                 cuda_of(d)->stream));
    return ERR_OK;
}

enum err cuda_zeros(struct cuda *c, void *p, int64_t bytes)
{
    if (bytes > 0)
        CUDA_TRY(cudaMemsetAsync(p, 0, (size_t)bytes, c->stream));
    return ERR_OK;
}
