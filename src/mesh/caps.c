/* SPDX-License-Identifier: Apache-2.0
 *
 * Rings, as in the textbooks: each rank sends to one neighbour all the time, so that no link is
 * used twice at once (Patarasuk, Yuan 2009, "Bandwidth optimal all-reduce algorithms").
 */
#include "mesh/caps.h"

#include <math.h>

bool caps_any_link(const struct caps *c)
{
    for (int i = 0; i < AXIS_COUNT; i++)
        if (c->axis[i].latency > 0 || c->axis[i].bandwidth > 0)
            return true;
    return false;
}

bool caps_any(const struct caps *c)
{
    return c->memory > 0 || caps_any_link(c);
}

struct caps_link caps_across(const struct caps *c, const struct mesh *m, unsigned axes)
{
    struct caps_link slowest = {0, 0};
    for (int i = 0; i < AXIS_COUNT; i++) {
        const struct caps_link *l = &c->axis[i];
        if (!(axes >> i & 1) || m->size[i] == 1)
            continue;
        slowest.latency = fmax(slowest.latency, l->latency);
        if (l->bandwidth > 0 && (slowest.bandwidth == 0 || l->bandwidth < slowest.bandwidth))
            slowest.bandwidth = l->bandwidth;
    }
    return slowest;
}

double caps_time(const struct caps_link *l, enum traffic_kind k, int ranks, struct traffic t)
{
    double moved = (ranks - 1.0) / ranks, time = l->latency * (double)t.messages;
    if (k == TRAFFIC_ALL_REDUCE || k == TRAFFIC_ALL_REDUCE_MAX)
        moved *= 2;
    if (k == TRAFFIC_REDUCE || k == TRAFFIC_BROADCAST || k == TRAFFIC_SEND)
        moved = 1;
    return l->bandwidth > 0 ? time + moved * (double)t.bytes / l->bandwidth : time;
}
