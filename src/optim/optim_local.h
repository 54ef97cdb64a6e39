/* SPDX-License-Identifier: Apache-2.0
 *
 * For src/optim alone: the gathers behind a step.
 */
#ifndef PLAIT_OPTIM_OPTIM_LOCAL_H
#define PLAIT_OPTIM_OPTIM_LOCAL_H

#include "optim/optim.h"

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

#endif
