/* SPDX-License-Identifier: Apache-2.0
 *
 * The one partitioner: a row of items with costs into contiguous stages. It knows neither models
 * nor schedules; who calls it says what an item is (a block, a layer) and what it costs.
 */
#ifndef PLAIT_MODEL_PARTITION_H
#define PLAIT_MODEL_PARTITION_H

#include "base/err.h"
#include <stdint.h>

struct partition {
    const double *cost;   /* borrowed; [items], not negative */
    int64_t items;
    int stages;           /* 1 .. items */
    const uint16_t *rank; /* borrowed; [stages] < stages: rank of each; NULL: each is its own */
};

/* at[stages + 1]: stage i holds the items at[i] .. at[i + 1] - 1, one at least. The costliest rank
 * (rank NULL: stage) is as cheap as moves of items between stages make it, then the ranks as even,
 * then the stages; ties give the earlier stages more. Never worse than what stands in `at`, which
 * has to be such a cut; of items that all cost the same but the last, and with rank NULL of any, it
 * has the least costliest rank that there is. most: cost of the costliest rank before and behind.
 * Errors: ERR_MEMORY. */
enum err partition_improve(const struct partition *p, int64_t *at, double most[2]);

#endif
