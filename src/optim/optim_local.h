/* SPDX-License-Identifier: Apache-2.0
 *
 * For src/optim alone: the halves of a step.
 */
#ifndef PLAIT_OPTIM_OPTIM_LOCAL_H
#define PLAIT_OPTIM_OPTIM_LOCAL_H

#include "optim/optim.h"

/* Is the norm above the limit, so that gradients are clipped? */
bool optim_clips(const struct optim *o, double grad_norm);
/* What gradients are multiplied by: clipping and the mean over tokens. */
double optim_scale(const struct optim *o, const struct optim_result *r);
/* AdamW over all stores. */
enum err optim_update(const struct optim *o, const struct optim_step *s, double scale);

#endif
