/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs in order of their keys: the toolkit's least-significant-digit radix sort, which is stable
 * and gives the same result in every run.
 */
#define CCCL_DISABLE_NVTX /* its ranges are for tracing, and bring symbols of their own */
#include <cub/device/device_radix_sort.cuh>

extern "C" {
#include "device/cuda/cuda_sort.h"
}

extern "C" cudaError_t cuda_sort_bytes(int n, int bits, size_t *bytes)
{
    uint32_t *none = NULL;
    *bytes = 0;
    return cub::DeviceRadixSort::SortPairs(NULL, *bytes, none, none, none, none, n, 0, bits);
}

extern "C" cudaError_t cuda_sort_pairs(const struct cuda_sort *s, void *work, size_t bytes,
                                       cudaStream_t stream)
{
    return cub::DeviceRadixSort::SortPairs(work, bytes, s->key_in, s->key, s->value_in, s->value,
                                           s->n, 0, s->bits, stream);
}
