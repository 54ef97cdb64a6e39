/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates that data ranks share (ZeRO stage 1: Rajbhandari et al. 2020): each updates the ranges it
 * owns, and all gather the weights that are computed with. A piece is on its way while the next is
 * updated. Gradients are summed to their owners only and master weights do not travel in a step, so
 * of a bf16 model 6 bytes a weight pass between ranks instead of 8, and a rank reads and writes the
 * optimizer's state of its share alone.
 */
#include "optim/optim_local.h"

enum err optim_gather_start(const struct optim *o, const struct param_store *s, int piece,
                            struct optim_gather *g)
{
    struct param_range own = param_share_of(s, piece);
    if (g->started - g->finished == OPTIM_GATHERS)
        TRY(comm_finish(&g->req[g->finished++ % OPTIM_GATHERS]));
    struct comm_req *r = &g->req[g->started++ % OPTIM_GATHERS];
    *r = (struct comm_req){0};
    return comm_all_gather_start(o->data, s->w + s->edge[piece] * s->ct, s->w + own.begin * s->ct,
                                 own.end - own.begin, s->dev->ct, r);
}

enum err optim_gather_finish(struct optim_gather *g)
{
    while (g->finished < g->started)
        TRY(comm_finish(&g->req[g->finished++ % OPTIM_GATHERS]));
    return ERR_OK;
}
