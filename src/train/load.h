/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank holds of weights and moments, out of files: boxes, a strip at a time, so that beside
 * the device's copy there is never more of a matrix in memory than a strip.
 */
#ifndef PLAIT_TRAIN_LOAD_H
#define PLAIT_TRAIN_LOAD_H

#include "ckpt/weights.h"
#include "exec/exec.h"
#include "setup/setup.h"
#include "param/param_state.h"

/* Where parameters of a model come from (borrowed), and how many threads may read: 8 at most do. */
struct load { const struct model *model; const struct weights *from; int threads; };

/* All that this rank holds of its stores, before exec_weights_keep: the weights, and with `moments`
 * those too, which a checkpoint has. Errors: ERR_CHECKPOINT, also for a number that is not finite
 * in the type that it is held in; ERR_MEMORY; the device's. Local. (load_team.c) */
enum err load_stores(const struct load *l, const struct param_store *const *store, int stores,
                     bool moments);
/* The weights of all stages of this rank. The same errors. Local. */
enum err load_weights(const struct load *l, struct exec *x);

/* For load_team.c: a range of one parameter and kind that the rank holds, and its elements from ..
 * to - 1 into `values` of type dev.at. Any thread, several at once. */
struct load_range { struct hf_place place; struct param_piece held; enum param_kind kind; };
enum err load_read(const struct load *l, const struct load_range *g, int64_t from, int64_t to,
                   void *values);

#endif
