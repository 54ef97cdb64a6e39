/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank holds of weights and moments, out of files: boxes, a strip at a time, so that beside
 * the device's copy there is never more of a matrix in memory than a strip.
 */
#ifndef PLAIT_RUN_LOAD_H
#define PLAIT_RUN_LOAD_H

#include "ckpt/weights.h"
#include "run/setup.h"
#include "tensor/param_state.h"

/* Where parameters of a model come from. Both borrowed. */
struct load { const struct arch *arch; const struct weights *from; };

/* All that this rank holds of a store, before exec_weights_keep: the weights, and with `moments`
 * those too, which a checkpoint has. Errors: ERR_CHECKPOINT, also for a weight that is not finite
 * in the type that it is held in; ERR_MEMORY; the device's. Local. */
enum err load_store(const struct load *l, const struct param_store *store, bool moments);
/* The weights of all stages of this rank. The same errors. Local. */
enum err load_weights(const struct load *l, struct exec *x);

#endif
