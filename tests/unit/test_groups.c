/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of a rank's groups: each group has the same members, largest operation and flags on all
 * of its members, and every member names them in the same order; channels have two ends.
 */
#include "plan/groups.h"

#include "base/mem.h"
#include "setup/setup.h"
#include "test.h"

enum { RANKS = 64 };

/* Is this group the same one, seen from another of its members? */
static bool is_same(const struct setup *s, enum group_kind k, int rank, int other)
{
    int coord[AXIS_COUNT], a[RANKS], b[RANKS];
    mesh_coord(&s->mesh, rank, coord);
    const struct group *mine = &s->groups[coord[AXIS_PP]][k];
    mesh_coord(&s->mesh, other, coord);
    const struct group *its = &s->groups[coord[AXIS_PP]][k];
    int n = groups_ranks(&s->mesh, mine, rank, a), m = groups_ranks(&s->mesh, its, other, b);
    bool bytes = k == GROUP_DP || k == GROUP_KV || mine->max_bytes == its->max_bytes;
    return n == m && n == mine->members && memcmp(a, b, (size_t)n * sizeof *a) == 0 && bytes &&
           mine->host == its->host && mine->window == its->window &&
           mine->overlapped == its->overlapped && mine->also_nccl == its->also_nccl;
}

static void check_members(const struct setup *s, const char *what)
{
    for (int k = 0; k < GROUP_KINDS; k++)
        for (int rank = 0; rank < s->mesh.world; rank++) {
            int coord[AXIS_COUNT], ranks[RANKS], here = 0;
            mesh_coord(&s->mesh, rank, coord);
            int n = groups_ranks(&s->mesh, &s->groups[coord[AXIS_PP]][k], rank, ranks);
            for (int i = 0; i < n; i++) {
                here += ranks[i] == rank;
                test_check(is_same(s, (enum group_kind)k, rank, ranks[i]), __FILE__, __LINE__,
                           "%s: %s of rank %d is another on rank %d", what,
                           groups_name((enum group_kind)k), rank, ranks[i]);
            }
            test_check(n == 0 || here == 1, __FILE__, __LINE__, "%s: rank %d not in its %s", what,
                       rank, groups_name((enum group_kind)k));
        }
}

/* A channel that one rank sends on is one that its peer receives on. */
static void check_channels(const struct setup *s, const char *what)
{
    struct group_channel c[RANKS], d[RANKS];
    for (int pp = 0; pp < s->sched.p; pp++) {
        int n = groups_channels(&s->sched, pp, c), ends = 0;
        CHECK_INT(groups_channels(&s->sched, pp, NULL), n);
        for (int i = 0; i < n; i++) {
            int m = groups_channels(&s->sched, c[i].peer, d);
            for (int j = 0; j < m; j++)
                ends += d[j].peer == pp && d[j].lane == c[i].lane && d[j].sends != c[i].sends;
        }
        test_check(ends == n && (n > 0) == (s->sched.p > 1), __FILE__, __LINE__,
                   "%s: pp %d has %d channels and %d other ends", what, pp, n, ends);
    }
}

static void each_member_sees_one_group(void)
{
    static const char *const of[][6] = {
        {"parallel.dp=2"},
        {"parallel.tp=4", "model.heads=8", "model.kv_heads=2", "model.kind=llama"},
        {"parallel.pp=3", "parallel.dp=2", "model.tied=true"},
        {"parallel.pp=4", "parallel.schedule=dualpipe", "parallel.dp=2", "parallel.zero=1"},
        {"parallel.pp=2", "parallel.schedule=zb-v", "parallel.tp=2", "parallel.tp_overlap=on"},
        {"parallel.pp=2", "parallel.tp=2", "parallel.dp=2"},
        {"parallel.pp=2", "parallel.schedule=interleaved", "parallel.chunks=2"},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct options o;
        struct setup s;
        CHECK_OK(conf_defaults(&options_table, &o));
        CHECK_OK(conf_set(&options_table, &o, "train.batch=32"));
        CHECK_OK(conf_set(&options_table, &o, "model.layers=8"));
        for (int k = 0; k < 6 && of[i][k]; k++)
            CHECK_OK(conf_set(&options_table, &o, of[i][k]));
        CHECK_OK(setup_make(&o, 257, true, &s));
        check_members(&s, of[i][0]);
        check_channels(&s, of[i][0]);
        setup_free(&s);
    }
}

static struct group one_of(const char *const *words, enum group_kind k, int pp)
{
    struct options o;
    struct setup s;
    CHECK_OK(conf_defaults(&options_table, &o));
    CHECK_OK(conf_set(&options_table, &o, "train.batch=32"));
    for (int i = 0; words[i]; i++)
        CHECK_OK(conf_set(&options_table, &o, words[i]));
    CHECK_OK(setup_make(&o, 257, true, &s));
    struct group g = s.groups[pp][k];
    setup_free(&s);
    return g;
}

/* Who is in which, and what a group carries at most, by hand. */
static void by_hand(void)
{
    const char *const tied[] = {"parallel.pp=3", NULL}, *const loose[] = {"parallel.pp=3",
                                                                         "model.tied=false", NULL};
    const char *const pair[] = {"parallel.pp=2", "parallel.schedule=dualpipe", NULL};
    struct group g = one_of(tied, GROUP_EMBED, 0);
    CHECK(g.members == 2 && g.pair[0] == 0 && g.pair[1] == 2);
    CHECK_INT(g.max_bytes, 257 * 128 * 4); /* the embedding's gradient, f32 */
    CHECK_INT(one_of(tied, GROUP_EMBED, 1).members, 1);
    CHECK_INT(one_of(loose, GROUP_EMBED, 0).members, 1);
    g = one_of(pair, GROUP_REPLICA, 1);
    CHECK(g.members == 2 && g.pair[0] == 0 && g.pair[1] == 1);
}

static const struct test_case cases[] = {
    {"each_member_sees_one_group", each_member_sees_one_group}, {"by_hand", by_hand},
};
TEST_MAIN(cases)
