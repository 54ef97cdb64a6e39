/* SPDX-License-Identifier: Apache-2.0
 *
 * The mesh: which rank stands where. A rank has one coordinate on each axis; a group is the ranks
 * that share all coordinates but those of some axes. Pure integers.
 *
 * Order: tp is fastest, then cp, ep, dp, pp. Neighbouring ranks sit on one node, so the axis that
 * communicates most (tp, in every layer) stays inside it and the one that does least (pp) crosses.
 */
#ifndef PLAIT_MESH_MESH_H
#define PLAIT_MESH_MESH_H

#include "base/err.h"
#include <stdint.h>

enum axis { AXIS_TP, AXIS_CP, AXIS_EP, AXIS_DP, AXIS_PP, AXIS_COUNT };

struct mesh {
    int size[AXIS_COUNT];
    int world;
};

const char *mesh_axis_name(enum axis a);

/* Every size >= 1; world is the product, at most 2^20. Errors: ERR_CONFIG. */
enum err mesh_make(const int size[AXIS_COUNT], struct mesh *out);
void mesh_coord(const struct mesh *m, int rank, int coord[AXIS_COUNT]);
int mesh_rank(const struct mesh *m, const int coord[AXIS_COUNT]);

/* Ranks that differ from `rank` only on the axes of `mask` (bit 1 << axis), in rank order of those
 * axes (fastest first), `rank` included. `out` holds at least the product of those sizes; returns
 * how many. */
int mesh_group(const struct mesh *m, int rank, unsigned mask, int *out);

/* What ranks start with one another, as it is planned and counted. Bytes of a message are those
 * that are sent; of a collective, whatever way it goes, those of its longer side on one rank: of a
 * sum or a maximum the vector, of a reduce-scatter what a rank gives, of the rest what it gets. */
enum traffic_kind {
    TRAFFIC_ALL_REDUCE, TRAFFIC_ALL_REDUCE_MAX, TRAFFIC_REDUCE_SCATTER, TRAFFIC_ALL_GATHER,
    TRAFFIC_REDUCE, TRAFFIC_ALL_TO_ALL, TRAFFIC_BROADCAST, TRAFFIC_SEND, TRAFFIC_KINDS
};
struct traffic { int64_t messages, bytes; }; /* a collective is a message */
const char *mesh_traffic_name(enum traffic_kind k); /* "all-reduce" */

#endif
