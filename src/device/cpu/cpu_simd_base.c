/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of simd_*.h for whatever the compiler's own target has (SSE2 on x86-64): the
 * slow table, 4 floats a vector.
 */
#include "device/cpu/simd_table.h"

const struct cpu_simd cpu_simd_base = {.name = "baseline", SIMD_TASKS};
