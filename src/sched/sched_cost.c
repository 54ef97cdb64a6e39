/* SPDX-License-Identifier: Apache-2.0
 *
 * What a schedule is made for: the one check of costs for all generators that look at them.
 */
#include "sched/sched_build.h"

static enum err check_time(const char *name, const char *what, double time)
{
    if (!(time >= 0 && time <= 1e100))
        FAIL(ERR_CONFIG, "schedule %s: %s %g is not a time; use 0 to 1e100", name, what, time);
    return ERR_OK;
}

enum err sched_cost_check(const char *name, const struct sched_cost *c, int stages, double least)
{
    TRY(check_time(name, "tf", c->tf));
    TRY(check_time(name, "ti", c->ti));
    TRY(check_time(name, "tw", c->tw));
    TRY(check_time(name, "tc", c->tc));
    for (int i = 0; c->stage && i < stages; i++)
        for (int op = SCHED_F; op <= SCHED_W; op++)
            if (op != SCHED_B)
                TRY(check_time(name, "time of a stage", c->stage[i][op]));
    if (!(c->keep >= 0 && c->keep <= 1))
        FAIL(ERR_CONFIG, "schedule %s: keep %g is not a part of an activation; use 0 to 1", name,
             c->keep);
    if (!(c->limit >= least))
        FAIL(ERR_CONFIG, "schedule %s: limit %g leaves no room for %s; use %g or more", name,
             c->limit, least > 1 ? "a microbatch in both chunks" : "an activation", least);
    return ERR_OK;
}
