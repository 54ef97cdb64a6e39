/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank holds of weights and moments, out of files: boxes, a strip at a time, so that beside
 * the device's copy there is never more of a matrix in memory than a strip.
 */
#ifndef PLAIT_TRAIN_LOAD_H
#define PLAIT_TRAIN_LOAD_H

#include "ckpt/weights.h"
#include "exec/exec.h"

/* Where parameters of a model come from (borrowed), and how many threads may read: 8 at most do. */
struct load { const struct model *model; const struct weights *from; int threads; };

/* All that this rank holds, before exec_weights_keep: the weights, and with `moments` those too,
 * which a checkpoint has. Errors: ERR_CHECKPOINT, also for a number that is not finite in the type
 * that it is held in; ERR_MEMORY; the device's. Local. */
enum err load_stores(const struct load *l, struct exec *x, bool moments);

#endif
