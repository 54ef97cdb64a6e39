/* SPDX-License-Identifier: Apache-2.0
 *
 * Rates of links from words. What a cell means is settled before any takes effect: that of all axes
 * stands first, and an axis has one.
 */
#include "config/options.h"

#include "base/text.h"
#include "config/costs.h"
#include <stdio.h>
#include <string.h>

#define RATE_MAX 1e100

/* What is read, and how messages name it. */
struct words {
    const char *area, *what, *list;
};

/* One cell: N, or AXIS=N. *axis -1: of all. */
static enum err read_cell(const struct words *w, char *cell, int *axis, double *rate)
{
    struct text_near near = {0};
    char *equals = strchr(cell, '='), *number = equals ? equals + 1 : cell;
    *axis = -1;
    if (equals)
        *equals = '\0';
    for (int i = 0; equals && i < AXIS_COUNT; i++) {
        *axis = strcmp(cell, mesh_axis_name((enum axis)i)) == 0 ? i : *axis;
        text_near(&near, cell, mesh_axis_name((enum axis)i));
    }
    if (equals && *axis < 0)
        FAIL(ERR_CONFIG, "%s: %s \"%.80s\": \"%.40s\" is not an axis%s%s; use tp, cp, ep, dp or "
                         "pp, as in tp=900e9,dp=50e9", w->area, w->what, w->list, cell,
             near.found ? ", the nearest is " : "", near.found ? near.found : "");
    if (!text_to_double(number, rate) || !(*rate >= 0 && *rate <= RATE_MAX))
        FAIL(ERR_CONFIG, "%s: %s \"%.80s\": \"%.40s\" is no rate; use 0 to 1e100 (0: no time), of "
                         "all axes or as in tp=900e9,dp=50e9", w->area, w->what, w->list, number);
    return ERR_OK;
}

static enum err read_rates(const struct words *w, double rate[AXIS_COUNT])
{
    const char *at = w->list, *stop = w->list ? w->list + strlen(w->list) : NULL;
    bool seen[AXIS_COUNT] = {false};
    char cell[COSTS_WORD];
    for (int i = 0; at; i++) {
        int axis;
        double value;
        if (!costs_word(&at, stop, ",", cell))
            FAIL(ERR_CONFIG, "%s: %s \"%.80s\": a cell is longer than a rate is; use N, or AXIS=N,"
                             "AXIS=N", w->area, w->what, w->list);
        TRY(read_cell(w, cell, &axis, &value));
        if (axis < 0 ? i > 0 : seen[axis])
            FAIL(ERR_CONFIG, "%s: %s \"%.80s\" has two rates of %s; give one, that of all others "
                             "first, as in 50e9,tp=900e9", w->area, w->what, w->list,
                 axis < 0 ? "all axes" : mesh_axis_name((enum axis)axis));
        for (int k = 0; k < AXIS_COUNT; k++)
            if (axis < 0 || k == axis)
                rate[k] = value;
        if (axis >= 0)
            seen[axis] = true;
        at = at == stop ? NULL : at + 1;
    }
    return ERR_OK;
}

enum err links_read(const char *area, const char *latency, const char *bandwidth, double memory,
                    struct caps *out)
{
    double late[AXIS_COUNT] = {0}, wide[AXIS_COUNT] = {0};
    TRY(read_rates(&(struct words){area, "latency", latency}, late));
    TRY(read_rates(&(struct words){area, "bandwidth", bandwidth}, wide));
    if (!(memory >= 0 && memory <= RATE_MAX))
        FAIL(ERR_CONFIG, "%s: memory bandwidth %g is no rate; use 0 to 1e100", area, memory);
    *out = (struct caps){.memory = memory};
    for (int i = 0; i < AXIS_COUNT; i++)
        out->axis[i] = (struct caps_link){late[i], wide[i]};
    return ERR_OK;
}
