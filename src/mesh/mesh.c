/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks and coordinates: a rank is a number in a mixed base whose digits are the coordinates, the
 * tensor-parallel one the lowest. Everything here follows from that and is written with strides:
 * stride(a) is the product of the sizes of the axes faster than a.
 */
#include "mesh/mesh.h"

#include "base/num.h"

enum { MESH_MAX_WORLD = 1 << 20 };

const char *mesh_axis_name(enum axis a)
{
    static const char *const name[AXIS_COUNT] = {"tp", "cp", "ep", "dp", "pp"};
    return name[a];
}

const char *mesh_traffic_name(enum traffic_kind k)
{
    static const char *const name[TRAFFIC_KINDS] = {
        "all-reduce", "all-reduce max", "reduce-scatter", "all-gather", "reduce", "all-to-all",
        "broadcast", "send"};
    return name[k];
}

enum err mesh_make(const int size[AXIS_COUNT], struct mesh *out)
{
    struct mesh m = {.world = 1};
    int64_t world = 1;
    for (int a = 0; a < AXIS_COUNT; a++) {
        if (size[a] < 1)
            FAIL(ERR_CONFIG, "mesh: %s %d is not a number of ranks; use 1 or more",
                 mesh_axis_name((enum axis)a), size[a]);
        if (!num_mul(world, size[a], &world) || world > MESH_MAX_WORLD)
            FAIL(ERR_CONFIG,
                 "mesh: tp %d x cp %d x ep %d x dp %d x pp %d is more than %d ranks; use "
                 "smaller sizes",
                 size[AXIS_TP], size[AXIS_CP], size[AXIS_EP], size[AXIS_DP], size[AXIS_PP],
                 MESH_MAX_WORLD);
        m.size[a] = size[a];
    }
    m.world = (int)world;
    *out = m;
    return ERR_OK;
}

void mesh_coord(const struct mesh *m, int rank, int coord[AXIS_COUNT])
{
    for (int a = 0; a < AXIS_COUNT; a++) {
        coord[a] = rank % m->size[a];
        rank /= m->size[a];
    }
}

int mesh_rank(const struct mesh *m, const int coord[AXIS_COUNT])
{
    int rank = 0;
    for (int a = AXIS_COUNT - 1; a >= 0; a--)
        rank = rank * m->size[a] + coord[a];
    return rank;
}

/* The group grows axis by axis: each one of the mask repeats what is there at its next places.
 * Fastest axis first, so the order is that of the ranks. */
int mesh_group(const struct mesh *m, int rank, unsigned mask, int *out)
{
    int coord[AXIS_COUNT], n = 1, stride = 1;
    mesh_coord(m, rank, coord);
    for (int a = 0; a < AXIS_COUNT; a++)
        if (mask & (1u << a))
            coord[a] = 0;
    out[0] = mesh_rank(m, coord);
    for (int a = 0; a < AXIS_COUNT; stride *= m->size[a], a++) {
        if (!(mask & (1u << a)))
            continue;
        for (int i = n; i < n * m->size[a]; i++)
            out[i] = out[i - n] + stride;
        n *= m->size[a];
    }
    return n;
}
