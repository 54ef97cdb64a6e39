/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank's parameter store on a device of its own, as large as it must be.
 */
#ifndef PLAIT_TEST_STORE_H
#define PLAIT_TEST_STORE_H

#include "param/param.h"
#include "plan/segments.h"

struct store_rig {
    struct model model;         /* these six by the caller */
    struct model_split split;
    struct model_stage stage;
    int tp_rank;
    int shard_rank, num_shards;        /* param_place's */
    struct dev *dev;
    void *memory[5];          /* owned: weights, master, gradients, moments */
    struct param_store store;
};

/* With one thread; checks that it opens. Weights and gradients are zeros, which are not fresh. */
void store_rig_open(struct store_rig *r, enum dev_kind kind, enum dtype ct);
void store_rig_close(struct store_rig *r);
/* Its segments, of that many elements at least. Released by segments_free. */
void store_rig_segments(const struct store_rig *r, int64_t least, struct segments **out);

/* The gradient of a parameter, local extents, row-major; a fresh one is settled. */
enum err store_read_grad(const struct param *p, double *out);

#endif
