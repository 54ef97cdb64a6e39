/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of single stages for the simulation, as the user gives them: a file (costs.c), or factors,
 * one a stage, which multiply the times of F, B, I and W: 1,1,1.5,1. They are held against the
 * number of stages, and every number must be a time.
 */
#include "study/play.h"

#include "base/mem.h"
#include "config/costs.h"
#include <string.h>

static enum err read_factors(const char *list, struct played *x)
{
    const char *at = list, *stop = list + strlen(list);
    char word[COSTS_WORD];
    int n = 0;
    TRY(mem_new(x->s->stages, sizeof *x->scale, "factors of stages", &x->scale));
    for (;; n++) {
        double factor;
        if (!costs_word(&at, stop, ",", word) || !costs_time(word, &factor))
            FAIL(ERR_CONFIG,
                 "simulation: factor %d in scale \"%.80s\" is not a number from 0 to 1e100; write "
                 "one a stage, separated by commas",
                 n + 1, list);
        if (n < x->s->stages)
            x->scale[n] = factor;
        if (at == stop)
            break;
        at++;
    }
    if (n + 1 != x->s->stages)
        FAIL(ERR_CONFIG,
             "simulation: scale has %d factor%s, and the schedule has %d stage%s; write "
             "one a stage",
             n + 1, text_plural(n + 1, "s"), x->s->stages, text_plural(x->s->stages, "s"));
    return ERR_OK;
}

enum err play_read_costs(const struct play_args *a, int stages, struct played *x)
{
    const struct plait_sim *s = a->sim;
    if (s->tf != 0 || s->tb != 0 || s->ti != 0 || s->tw != 0 || s->tr != 0)
        FAIL(ERR_CONFIG,
             "simulation: a costs file has all times in it; leave tf, tb, ti, tw, tr out");
    enum err err = costs_read(s->costs, stages, &x->time);
    if (err != ERR_OK)
        return err_set(err, __FILE__, __LINE__, "simulation: %s", err_bare(err_text()));
    return ERR_OK;
}

enum err play_costs(const struct play_args *a, struct played *x)
{
    const struct plait_sim *s = a->sim;
    if (s->scale)
        return read_factors(s->scale, x);
    return s->costs && !x->time ? play_read_costs(a, x->s->stages, x) : ERR_OK;
}
