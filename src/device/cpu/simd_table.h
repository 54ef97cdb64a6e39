/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of a struct cpu_simd, as they are for the instruction set of the file that includes
 * this: cpu_simd_base.c, cpu_simd_v3.c and cpu_simd_v4.c are the same text under other compiler
 * flags (CMakeLists.txt), and the device takes the best table that the processor can run.
 */
#ifndef PLAIT_DEVICE_CPU_SIMD_TABLE_H
#define PLAIT_DEVICE_CPU_SIMD_TABLE_H

#include "device/cpu/simd_attn_grad.h"
#include "device/cpu/simd_flat.h"
#include "device/cpu/simd_gemm.h"
#include "device/cpu/simd_norm.h"
#include "device/cpu/simd_rows.h"
#include "device/cpu/simd_vocab.h"

#define SIMD_TASKS                                                                                 \
    .gemm = simd_gemm, .gemm_finish = gemm_finish, .norm = simd_norm, .norm_grad = simd_norm_grad, \
    .norm_sums = simd_norm_sums, .bias_grad = simd_bias_grad, .attn = simd_attn,                   \
    .attn_delta = simd_attn_delta, .attn_grad = simd_attn_grad,                                    \
    .attn_grad_keys = simd_attn_grad_keys, .attn_grad_queries = simd_attn_grad_queries,            \
    .rope = simd_rope, .swiglu = simd_swiglu, .swiglu_grad = simd_swiglu_grad, .relu = simd_relu,  \
    .residual = simd_residual, .embed = simd_embed, .pos_add = simd_pos_add,                       \
    .embed_grad = simd_scatter, .pos_grad = simd_scatter, .xent_max = simd_xent_max,               \
    .xent_sum = simd_xent_sum, .xent_grad = simd_xent_grad, .adamw = simd_adamw, .sum = simd_sum,  \
    .sumsq = simd_sumsq, .cast = simd_cast, .add = simd_add, .attn_queries = TQ, .attn_keys = TK,  \
    .gemm_rows = MR, .gemm_cols = NR

#endif
