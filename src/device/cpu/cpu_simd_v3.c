/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of simd_*.h for AVX2 and FMA: 8 floats a vector.
 */
#if defined(__x86_64__)
#include "device/cpu/simd_table.h"

const struct cpu_simd cpu_simd_v3 = {.name = "avx2", SIMD_TASKS};
#endif
