/* SPDX-License-Identifier: Apache-2.0
 *
 * What the library's GEMMs cannot do for some shape: bias and activation apart, and a GEMM
 * for operands that it has no algorithm for.
 */
#ifndef PLAIT_DEVICE_CUDA_EPILOGUE_H
#define PLAIT_DEVICE_CUDA_EPILOGUE_H

#include "device/cuda/cuda_local.h"

/* Bias and activation of `g` on a GEMM without them: rows row .. row + rows - 1 of C and pre are
 * written from src (rows, n) f32 of row stride ld; NULL: zeros. src may be those rows
 * of C where C is f32. g's strides are filled in. Local. */
struct cuda_epilogue {
    const struct gemm *g;
    const float *src;
    int64_t ld, row, rows;
};
enum err cuda_epilogue(struct cuda *c, const struct cuda_epilogue *e);

/* C (f32) = op(A) op(B) [+ C], nothing else of `g`; strides filled in; any alignment. Local. */
enum err cuda_gemm_own(struct cuda *c, const struct gemm *g);

#endif
