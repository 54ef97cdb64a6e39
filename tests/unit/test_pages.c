/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands at the top of the page and the picture of several schedules, above the charts. That
 * of a run beside the simulator: tests/dist/test_compare.c.
 */
#include "base/fs.h"
#include "base/mem.h"
#include "plait.h"
#include "test.h"

/* A written file as a string, which mem_free releases. */
static char *read_file(const char *path)
{
    struct fs_map map;
    char *copy = NULL;
    CHECK_OK(fs_map_open(&map, path, ERR_DATA));
    CHECK_OK(mem_new(map.size + 1, 1, "a page", &copy));
    memcpy(copy, map.data, (size_t)map.size);
    fs_map_close(&map);
    return copy;
}

/* Which step is the shortest, both bubbles, which keeps least, and a line for each schedule. */
static void comparisons_begin_with_a_summary(void)
{
    static const char *const said[] = {
        "3 schedules on 4 ranks with 8 microbatches",
        "shortest step: 1f1b, p 4, m 8; gpipe, p 4, m 8, makespan 33, bubble 27.27 % of the step",
        "(37.50 % over ideal time)",
        "fewest activations: naive, p 4, m 8, at most 1 on a rank",
        ">bubble over ideal %<", ">37.50<", ">300.00<"};
    struct plait_sim a = {.compare = "naive,1f1b,gpipe", .p = 4, .m = 8, .html = "a.html",
                          .svg = "a.svg"};
    char *answer = NULL;
    a.size = sizeof a;
    CHECK_INT(plait_simulate(&a, &answer), PLAIT_OK);
    plait_free(answer);
    char *page[] = {read_file(a.html), read_file(a.svg)};
    for (int i = 0; i < 2; i++) {
        const char *chart = strstr(page[i], i == 0 ? "<canvas" : "<g class=\"chart\"");
        for (size_t k = 0; k < sizeof said / sizeof *said; k++) {
            const char *at = strstr(page[i], said[k]);
            test_check(at && at < chart, __FILE__, __LINE__, "not above: %s", said[k]);
        }
        mem_free(page[i]);
    }
}

/* Of several that tie all are named, in the order in which they were given. */
static void ties_are_named(void)
{
    static const struct { const char *compare; int m; const char *said[2]; } c[] = {
        {"1f1b,zb-v,zb-h1", 8, {"fewest activations: 1f1b, p 4, m 8; zb-v, p 4, m 8, v 2; zb-h1, "
                                "p 4, m 8, at most 4 on a rank",
                                "shortest step: zb-v, p 4, m 8, v 2, makespan"}},
        {"gpipe,1f1b", 8, {"shortest step: gpipe, p 4, m 8; 1f1b, p 4, m 8, makespan 33",
                           "fewest activations: 1f1b, p 4, m 8, at most 4"}},
        {"naive,gpipe,1f1b", 1, {"shortest step: naive, p 4, m 1; gpipe, p 4, m 1; 1f1b, p 4, m 1,",
                                 "fewest activations: naive, p 4, m 1; gpipe, p 4, m 1; 1f1b,"}},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct plait_sim a = {.compare = c[i].compare, .p = 4, .m = c[i].m, .html = "ties.html",
                              .svg = "ties.svg"};
        char *answer = NULL;
        a.size = sizeof a;
        CHECK_INT(plait_simulate(&a, &answer), PLAIT_OK);
        plait_free(answer);
        char *page[] = {read_file(a.html), read_file(a.svg)};
        for (int k = 0; k < 4; k++)
            test_check(strstr(page[k / 2], c[i].said[k % 2]) != NULL, __FILE__, __LINE__,
                       "%s: not there: %s", c[i].compare, c[i].said[k % 2]);
        mem_free(page[0]);
        mem_free(page[1]);
    }
}

static const struct test_case cases[] = {
    {"ties_are_named", ties_are_named},
    {"comparisons_begin_with_a_summary", comparisons_begin_with_a_summary},
};
TEST_MAIN(cases)
