/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks, coordinates, groups and nodes.
 */
#include "mesh/mesh.h"
#include "test.h"

static struct mesh random_mesh(void)
{
    struct mesh m;
    int size[AXIS_COUNT];
    for (int a = 0; a < AXIS_COUNT; a++)
        size[a] = (int)test_range(1, 4);
    CHECK_OK(mesh_make(size, &m));
    return m;
}

static void coordinates_and_back(void)
{
    for (int n = 0; n < 50; n++) {
        struct mesh m = random_mesh();
        int product = 1;
        for (int a = 0; a < AXIS_COUNT; a++)
            product *= m.size[a];
        CHECK_INT(m.world, product);
        for (int rank = 0; rank < m.world; rank++) {
            int coord[AXIS_COUNT];
            mesh_coord(&m, rank, coord);
            for (int a = 0; a < AXIS_COUNT; a++)
                CHECK(coord[a] >= 0 && coord[a] < m.size[a]);
            CHECK_INT(mesh_rank(&m, coord), rank);
        }
    }
}

static void order_of_axes(void)
{
    struct mesh m;
    int coord[AXIS_COUNT];
    CHECK_OK(mesh_make((int[AXIS_COUNT]){2, 3, 1, 5, 7}, &m));
    mesh_coord(&m, 1, coord);
    CHECK_INT(coord[AXIS_TP], 1);
    mesh_coord(&m, 2, coord);
    CHECK_INT(coord[AXIS_CP], 1);
    mesh_coord(&m, 6, coord);
    CHECK_INT(coord[AXIS_DP], 1);
    mesh_coord(&m, 30, coord);
    CHECK_INT(coord[AXIS_PP], 1);
    CHECK_STR(mesh_axis_name(AXIS_TP), "tp");
    CHECK_STR(mesh_axis_name(AXIS_PP), "pp");
}

/* Against the definition: the ranks that agree on every axis outside the mask, ascending. */
static void groups(void)
{
    for (int n = 0; n < 30; n++) {
        struct mesh m = random_mesh();
        int rank = (int)test_range(0, m.world - 1), got[1024], mine[AXIS_COUNT];
        unsigned mask = (unsigned)test_range(0, 31);
        int count = mesh_group(&m, rank, mask, got), at = 0;
        mesh_coord(&m, rank, mine);
        for (int other = 0; other < m.world; other++) {
            int coord[AXIS_COUNT];
            bool same = true;
            mesh_coord(&m, other, coord);
            for (int a = 0; a < AXIS_COUNT; a++)
                same &= (mask >> a & 1) || coord[a] == mine[a];
            if (same && CHECK(at < count))
                CHECK_INT(got[at++], other);
        }
        CHECK_INT(at, count);
    }
}

static void groups_partition_the_world(void)
{
    struct mesh m = random_mesh();
    int seen[1024] = {0};
    for (int rank = 0; rank < m.world; rank++) {
        int group[1024];
        int n = mesh_group(&m, rank, 1u << AXIS_TP | 1u << AXIS_DP, group);
        if (group[0] != rank)
            continue;
        for (int i = 0; i < n; i++)
            seen[group[i]]++;
    }
    for (int rank = 0; rank < m.world; rank++)
        CHECK_INT(seen[rank], 1);
}

static void bad_sizes(void)
{
    struct mesh m;
    CHECK_ERR(mesh_make((int[AXIS_COUNT]){1, 1, 1, 0, 1}, &m), ERR_CONFIG, "dp 0");
    CHECK_ERR(mesh_make((int[AXIS_COUNT]){1, -2, 1, 1, 1}, &m), ERR_CONFIG, "cp -2");
    CHECK_ERR(mesh_make((int[AXIS_COUNT]){1 << 20, 1, 1, 2, 1}, &m), ERR_CONFIG, "1048576");
    CHECK_ERR(mesh_make((int[AXIS_COUNT]){65536, 65536, 65536, 65536, 65536}, &m), ERR_CONFIG,
              "smaller");
    CHECK_OK(mesh_make((int[AXIS_COUNT]){1 << 20, 1, 1, 1, 1}, &m));
}

static const struct test_case cases[] = {
    {"coordinates_and_back", coordinates_and_back},
    {"order_of_axes", order_of_axes},
    {"groups", groups},
    {"groups_partition_the_world", groups_partition_the_world},
    {"bad_sizes", bad_sizes},
};
TEST_MAIN(cases)
