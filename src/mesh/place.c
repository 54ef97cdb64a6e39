/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks on nodes: launchers fill one node after the other, ranks_per_node (1 or more) on each, so
 * a rank's node is a division. An axis is inside when no group of it reaches over a node's edge;
 * its collectives then never use the network.
 */
#include "mesh/mesh.h"

int place_node(int rank, int ranks_per_node)
{
    ENSURE(ranks_per_node >= 1);
    return rank / ranks_per_node;
}

/* The members of a group are evenly spaced, so its first and last one tell where it reaches. */
bool place_axis_inside(const struct mesh *m, enum axis a, int ranks_per_node)
{
    int stride = 1;
    for (int i = 0; i < (int)a; i++)
        stride *= m->size[i];
    int reach = stride * (m->size[a] - 1);
    for (int rank = 0; rank < m->world; rank++) {
        bool first = rank / stride % m->size[a] == 0;
        if (first && place_node(rank, ranks_per_node) != place_node(rank + reach, ranks_per_node))
            return false;
    }
    return true;
}
