/* SPDX-License-Identifier: Apache-2.0
 *
 * The one kernel of sums and maxima by copies (gpu/sum.cu), which C and CUDA know alike.
 */
#ifndef PLAIT_COMM_SUM_H
#define PLAIT_COMM_SUM_H

#include "base/num.h"
#include <cuda_runtime_api.h>

enum { COMM_SUM_MOST = 8 };

/* out = the sum of in[0..n-1], count elements, in that order, or their maximum, of which a NaN is
 * the largest; out may be one of them. Queued on s. */
struct comm_sum_args {
    void *out;
    const void *in[COMM_SUM_MOST];
    int n;
    bool max;
    int64_t count;
    enum dtype dt;
};
#ifdef __cplusplus
extern "C"
#endif
cudaError_t comm_sum_kernel(const struct comm_sum_args *t, cudaStream_t s);

#endif
