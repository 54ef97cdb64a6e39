/* SPDX-License-Identifier: Apache-2.0
 *
 * Single numbers in kernels that take f32 and bf16 alike: to f32 and back, the exponential that is
 * as exact as the type, several in one access; and the random words of dropout.
 */
#ifndef PLAIT_DEVICE_CUDA_SCALAR_CUH
#define PLAIT_DEVICE_CUDA_SCALAR_CUH

#include <cuda_bf16.h>
#include <stdint.h>

__device__ static inline float to_f32(float x) { return x; }
__device__ static inline float to_f32(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ static inline void from_f32(float *to, float x) { *to = x; }
__device__ static inline void from_f32(__nv_bfloat16 *to, float x) { *to = __float2bfloat16_rn(x); }

/* What follows is compared with f32 results to f32's precision, with bf16 ones to theirs. */
__device__ static inline float exp_of(float, float x) { return expf(x); }
__device__ static inline float exp_of(__nv_bfloat16, float x) { return __expf(x); }

/* W elements in one access: 16 bytes or less, at an address that is a multiple of their size. */
template <typename T, int W> struct __align__(sizeof(T) * W) pack {
    T v[W];
};

/* The step of a mask: see struct drop. */
__device__ static __forceinline__ uint32_t cuda_step(const uint32_t *step)
{
    return step ? __ldg(step) : 0;
}

/* Philox4x32-10 as num_drop_kept (base/num.h) has it: words of elements 4 quad .. 4 quad + 3. */
__device__ static __forceinline__ uint4 cuda_philox(uint64_t seed, uint32_t stream, uint32_t step,
                                                    uint64_t quad)
{
    uint32_t c0 = (uint32_t)quad, c1 = (uint32_t)(quad >> 32), c2 = stream, c3 = step;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

#endif
