/* SPDX-License-Identifier: Apache-2.0
 *
 * The mask of dropout for a run of neighbouring elements: the same bits as num_drop_kept
 * (base/num.h), VL Philox counters at a time, which give DROP_RUN elements.
 */
#ifndef PLAIT_DEVICE_CPU_SIMD_DROP_H
#define PLAIT_DEVICE_CPU_SIMD_DROP_H

#include "device/cpu/simd_math.h"
#include "device/device.h"

enum { DROP_RUN = 4 * VL };

/* Philox4x32-10 of the counters (group + lane, stream, step): four words for each lane. */
SIMD_INLINE void drop_words(const struct drop *d, uint64_t group, vu word[4])
{
    vu zero = {0}, lane, c0, c1, c2 = d->stream - zero, c3 = (d->step ? *d->step : 0) - zero;
    vu k0 = (uint32_t)d->seed - zero, k1 = (uint32_t)(d->seed >> 32) - zero;
    for (int l = 0; l < VL; l++)
        lane[l] = (uint32_t)l;
    c0 = lane + (uint32_t)group;
    c1 = (uint32_t)(group >> 32) - (vu)(c0 < lane); /* the carry of the sum is a mask of -1 */
    for (int round = 0; round < 10; round++) {
        vu high0, high1;
        vu low0 = vu_multiply(c0, 0xD2511F53u, &high0), low1 = vu_multiply(c2, 0xCD9E8D57u, &high1);
        c0 = high1 ^ c1 ^ k0;
        c2 = high0 ^ c3 ^ k1;
        c1 = low1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    word[0] = c0;
    word[1] = c1;
    word[2] = c2;
    word[3] = c3;
}

/* Factors of the 4 VL elements of VL groups, in the order of elements. */
SIMD_INLINE void drop_run(const struct drop *d, uint64_t group, vf factor[4])
{
    vf scale = vf_set((float)(1.0 / (1.0 - d->p))), f[4];
    vu word[4], threshold = num_drop_threshold(d->p) - (vu){0};
    drop_words(d, group, word);
    for (int w = 0; w < 4; w++)
        f[w] = (vf)((vu)(word[w] >= threshold) & (vu)scale);
    vf even_low = vf_zip_low(f[0], f[2]), odd_low = vf_zip_low(f[1], f[3]);
    vf even_high = vf_zip_high(f[0], f[2]), odd_high = vf_zip_high(f[1], f[3]);
    factor[0] = vf_zip_low(even_low, odd_low);
    factor[1] = vf_zip_high(even_low, odd_low);
    factor[2] = vf_zip_low(even_high, odd_high);
    factor[3] = vf_zip_high(even_high, odd_high);
}

/* factor[i] for the element of global index `index` + i: 0, or 1 / (1 - p) where it is kept. */
static inline void drop_factors(const struct drop *d, int64_t index, float *factor, int64_t n)
{
    for (int64_t i = 0; i < n;) {
        int64_t at = index + i, skip = at % 4, m = num_min(DROP_RUN - skip, n - i);
        vf run[4];
        drop_run(d, (uint64_t)at / 4, run);
        if (m == DROP_RUN)
            memcpy(factor + i, run, sizeof run);
        else
            memcpy(factor + i, (float *)run + skip, (size_t)m * sizeof *factor);
        i += m;
    }
}

#endif
