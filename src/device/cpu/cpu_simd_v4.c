/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of simd_*.h for AVX-512 F, BW, DQ and VL: 16 floats a vector.
 */
#if defined(__x86_64__)
#include "device/cpu/simd_table.h"

const struct cpu_simd cpu_simd_v4 = {.name = "avx512", SIMD_TASKS};
#endif
