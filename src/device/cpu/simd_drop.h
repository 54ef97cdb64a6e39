/* SPDX-License-Identifier: Apache-2.0
 *
 * The mask of dropout for a run of neighbouring elements: the same bits as num_drop_kept
 * (base/num.h), many Philox counters at a time. DROP_LANES counters give 4 x DROP_LANES elements.
 */
#ifndef PLAIT_DEVICE_CPU_SIMD_DROP_H
#define PLAIT_DEVICE_CPU_SIMD_DROP_H

#include "device/cpu/simd_math.h"
#include "device/device.h"

enum { DROP_LANES = 16, DROP_RUN = 4 * DROP_LANES };

/* Philox4x32-10 of the counters (group + lane, stream, step): word w of lane l at word[4 l + w]. */
static inline void drop_words(const struct drop *d, uint64_t group, uint32_t word[DROP_RUN])
{
    uint32_t c0[DROP_LANES], c1[DROP_LANES], c2[DROP_LANES], c3[DROP_LANES];
    uint32_t k0 = (uint32_t)d->seed, k1 = (uint32_t)(d->seed >> 32);
    for (int l = 0; l < DROP_LANES; l++) {
        uint64_t g = group + (uint64_t)l;
        c0[l] = (uint32_t)g;
        c1[l] = (uint32_t)(g >> 32);
        c2[l] = d->stream;
        c3[l] = d->step;
    }
    for (int round = 0; round < 10; round++) {
        for (int l = 0; l < DROP_LANES; l++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[l], p1 = (uint64_t)0xCD9E8D57u * c2[l];
            c0[l] = (uint32_t)(p1 >> 32) ^ c1[l] ^ k0;
            c2[l] = (uint32_t)(p0 >> 32) ^ c3[l] ^ k1;
            c1[l] = (uint32_t)p1;
            c3[l] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int l = 0; l < DROP_LANES; l++) {
        word[4 * l] = c0[l];
        word[4 * l + 1] = c1[l];
        word[4 * l + 2] = c2[l];
        word[4 * l + 3] = c3[l];
    }
}

/* factor[i] for the element of global index `index` + i: 0, or 1 / (1 - p) where it is kept. */
static inline void drop_factors(const struct drop *d, int64_t index, float *factor, int64_t n)
{
    uint32_t threshold = num_drop_threshold(d->p), word[DROP_RUN];
    float scale = (float)(1.0 / (1.0 - d->p));
    for (int64_t i = 0; i < n;) {
        int64_t at = index + i, skip = at % 4, m = num_min(DROP_RUN - skip, n - i);
        drop_words(d, (uint64_t)at / 4, word);
        for (int64_t j = 0; j < m; j++)
            factor[i + j] = word[skip + j] >= threshold ? scale : 0.0f;
        i += m;
    }
}

#endif
