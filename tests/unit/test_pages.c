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
        "shortest step: 1f1b, p 4, m 8, makespan 33, bubble 27.27 % of the step (37.50 % over",
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

static const struct test_case cases[] = {
    {"comparisons_begin_with_a_summary", comparisons_begin_with_a_summary},
};
TEST_MAIN(cases)
