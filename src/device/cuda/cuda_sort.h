/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting on the device by the toolkit's radix sort. It stands alone because the toolkit's C++
 * library has a namespace `cuda`, which a file that knows our struct of that name cannot see.
 */
#ifndef PLAIT_DEVICE_CUDA_SORT_H
#define PLAIT_DEVICE_CUDA_SORT_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

/* n pairs by the low `bits` bits of the key, rising; equal keys stay in their order. */
struct cuda_sort {
    const uint32_t *key_in, *value_in; /* (n) device */
    uint32_t *key, *value;             /* (n) device, written */
    int n, bits;
};

/* What cuda_sort_pairs wants at `work`. */
cudaError_t cuda_sort_bytes(int n, int bits, size_t *bytes);
cudaError_t cuda_sort_pairs(const struct cuda_sort *s, void *work, size_t bytes,
                            cudaStream_t stream);

#endif
