/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums to owners and gathers, member by member, so that GEMMs can be made beside them: each member
 * makes another owner's part first, or takes the parts as they come. In step k each member gives to
 * one and takes from one, all of them different, so that every link is in use both ways (Wang et
 * al. 2023 cut GEMMs so). Only copies between GPUs gain by that; all else is done by one step.
 *
 *     step                 1          2          3
 *     summand goes to      me + 1     me + 2     me + 3     (and from there comes
 *     comes from           me - 1     me - 2     me - 3      what is gathered)
 */
#include "comm/core/core.h"

static bool goes(const struct comm_group *g, const struct comm_coll *c)
{
    return g->lane && g->world->queue->ops->coll_steps(g, c);
}

/* Behind the step before, of the same. */
static enum err check_step(const struct comm_group *g, const struct comm_coll *c, int steps)
{
    char buf[96];
    if (c->step < 1 || c->step > steps)
        FAIL(ERR_INTERNAL, "comm: %s in a group of %d; steps are 1 to %d", comm_coll_text(c, buf),
             g->n, steps);
    if (c->step != g->step + 1 || (g->step > 0 && c->kind != g->step_of))
        FAIL(ERR_INTERNAL, "comm: %s in group %d behind step %d of %s", comm_coll_text(c, buf),
             g->id, g->step, g->step > 0 ? comm_coll_name(g->step_of) : "none");
    return ERR_OK;
}

/* whole: the step that does all where none goes by itself. */
static enum err start_step(struct comm_group *g, struct comm_coll *c, int whole, struct comm_req *r)
{
    int steps = (int)num_max(1, g->n - (c->kind == COMM_ALL_GATHER)), step = c->step;
    int64_t bytes;
    TRY(comm_coll_check(g, c, r, &bytes)); /* here, as not every step starts something */
    TRY(check_step(g, c, steps));
    bool alone = goes(g, c);
    if (!alone)
        c->step = 0;
    g->step = 0; /* for what may be started now */
    if (alone || step == whole)
        TRY(comm_coll_start(g, c, r));
    g->step = step < steps ? step : 0;
    g->step_of = c->kind;
    return ERR_OK;
}

/* long: see comm.h */
enum err comm_scatter_step_start(struct comm_group *g, int step, void *out, const void *in,
                                 int64_t count, enum dtype dt, struct comm_req *r)
{
    struct comm_coll c = {.kind = COMM_REDUCE_SCATTER, .dt = dt, .step = step, .count = count,
                          .out = out, .in = in};
    return start_step(g, &c, g->n, r);
}

/* long: see comm.h */
enum err comm_gather_step_start(struct comm_group *g, int step, void *out, const void *in,
                                int64_t count, enum dtype dt, struct comm_req *r)
{
    struct comm_coll c = {.kind = COMM_ALL_GATHER, .dt = dt, .step = step, .count = count,
                          .out = out, .in = in};
    return start_step(g, &c, 1, r);
}

bool comm_group_steps(const struct comm_group *g, int64_t bytes)
{
    return !g->copies || bytes <= COMM_COPIES_BYTES / g->n;
}
