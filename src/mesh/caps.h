/* SPDX-License-Identifier: Apache-2.0
 *
 * What links and memory of ranks can: the numbers by which a plan becomes time. They are handed in
 * by whoever knows them and made up by nobody: where one is 0, what it is for takes no time. Pure.
 */
#ifndef PLAIT_MESH_CAPS_H
#define PLAIT_MESH_CAPS_H

#include "mesh/mesh.h"

/* In any unit of time. */
struct caps_link {
    double latency;   /* of a message, or of a collective */
    double bandwidth; /* bytes that a rank sends in a unit of time; 0: they take none */
};
struct caps {
    struct caps_link axis[AXIS_COUNT]; /* between ranks that differ on it */
    double memory; /* bytes that a rank's memory reads and writes in a unit of time; 0: no time */
    bool overlaps; /* what is started goes on while its rank computes; else it is done by those who
                      wait for it, and nothing hides it */
};

/* Does anything take time? Anything between ranks? */
bool caps_any(const struct caps *c);
bool caps_any_link(const struct caps *c);
/* Between ranks that differ on several axes, bits of enum axis: the slowest of those that have
 * more than one rank. */
struct caps_link caps_across(const struct caps *c, const struct mesh *m, unsigned axes);
/* What collectives of so many ranks, or messages, take, one after the other. A ring moves of an
 * all-reduce 2 (n - 1) / n of its bytes, of a reduce-scatter, an all-gather or an all-to-all half
 * of that; a reduce, a broadcast and a message are moved whole. */
double caps_time(const struct caps_link *l, enum traffic_kind k, int ranks, struct traffic t);

#endif
