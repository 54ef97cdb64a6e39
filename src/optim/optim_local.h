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
/* optim_share.c: gathers of updated weights that are under way; zero it first. */
enum { OPTIM_GATHERS = 32 };
struct optim_gather {
    struct comm_req req[OPTIM_GATHERS]; /* a ring */
    int64_t started, finished;
};
/* Every data rank gets what the owners have of a piece. Collective over o->data. */
enum err optim_gather_start(const struct optim *o, const struct param_store *s, int piece,
                            struct optim_gather *g);
enum err optim_gather_finish(struct optim_gather *g);
/* AdamW over all stores. */
enum err optim_update(const struct optim *o, const struct optim_step *s, double scale);

#endif
