/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast links and memory are: what words mean, what links take by hand, and that a check says
 * the times of what a step starts.
 */
#include "config/options.h"
#include "plait.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static void check_axes(const struct caps *c, const double latency[AXIS_COUNT],
                       const double bandwidth[AXIS_COUNT])
{
    for (int i = 0; i < AXIS_COUNT; i++) {
        CHECK_NEAR(c->axis[i].latency, latency[i], 0);
        CHECK_NEAR(c->axis[i].bandwidth, bandwidth[i], 0);
    }
}

/* tp, cp, ep, dp, pp */
static void words(void)
{
    struct caps c;
    CHECK_OK(links_read("x", NULL, NULL, 0, &c));
    CHECK(!caps_any(&c) && !caps_any_link(&c));
    CHECK_OK(links_read("x", NULL, NULL, 7, &c));
    CHECK(caps_any(&c) && !caps_any_link(&c) && c.memory == 7);
    CHECK_OK(links_read("x", "0.5", "200", 0, &c));
    check_axes(&c, (double[]){.5, .5, .5, .5, .5}, (double[]){200, 200, 200, 200, 200});
    CHECK_OK(links_read("x", "dp=1e-5", "tp=900,dp=50,pp=25", 0, &c));
    check_axes(&c, (double[]){0, 0, 0, 1e-5, 0}, (double[]){900, 0, 0, 50, 25});
    CHECK(caps_any(&c) && caps_any_link(&c));
    CHECK_OK(links_read("x", "1,tp=0", "50,cp=4,ep=8", 0, &c));
    check_axes(&c, (double[]){0, 1, 1, 1, 1}, (double[]){50, 4, 8, 50, 50});
}

static void bad_words(void)
{
    struct caps c = {.memory = 3};
    static const struct { const char *list, *said; } bad[] = {
        {"", "\"\" is no rate; use 0 to 1e100"},
        {"fast", "x: bandwidth \"fast\": \"fast\" is no rate"},
        {"-1", "\"-1\" is no rate"},
        {"tp=", "\"\" is no rate"},
        {"tp=1,", "\"\" is no rate"},
        {"tp=1e101", "\"1e101\" is no rate"},
        {"tq=1", "\"tq\" is not an axis, the nearest is tp; use tp, cp, ep, dp or pp"},
        {"tp=1,tp=2", "has two rates of tp"},
        {"tp=1,2", "has two rates of all axes; give one, that of all others first"},
        {"tp=111111111111111111111111111111111111111111111111111111111111111",
         "a cell is longer"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_ERR(links_read("x", NULL, bad[i].list, 0, &c), ERR_CONFIG, bad[i].said);
    CHECK_ERR(links_read("x", "1 s", NULL, 0, &c), ERR_CONFIG, "x: latency \"1 s\"");
    CHECK_ERR(links_read("x", NULL, NULL, NAN, &c), ERR_CONFIG, "memory bandwidth");
    CHECK(c.memory == 3);
}

/* Between ranks that differ on several axes the slowest holds, of those that there are. */
static void across_axes(void)
{
    struct mesh m;
    struct caps c;
    CHECK_OK(mesh_make((int[]){8, 1, 1, 4, 2}, &m));
    CHECK_OK(links_read("x", "1,dp=3,ep=9", "tp=900,cp=1,dp=50", 0, &c));
    struct caps_link l = caps_across(&c, &m, 1u << AXIS_TP);
    CHECK(l.latency == 1 && l.bandwidth == 900);
    l = caps_across(&c, &m, (1u << AXIS_COUNT) - 1);
    CHECK(l.latency == 3 && l.bandwidth == 50);
    l = caps_across(&c, &m, 1u << AXIS_PP);
    CHECK(l.latency == 1 && l.bandwidth == 0);
}

/* Four ranks, 100 bytes, 10 of them in a unit of time, two messages of latency 1. */
static void rings(void)
{
    static const double moved[TRAFFIC_KINDS] = {
        [TRAFFIC_ALL_REDUCE] = 1.5,     [TRAFFIC_ALL_REDUCE_MAX] = 1.5,
        [TRAFFIC_REDUCE_SCATTER] = .75, [TRAFFIC_ALL_GATHER] = .75,
        [TRAFFIC_REDUCE] = 1,           [TRAFFIC_ALL_TO_ALL] = .75,
        [TRAFFIC_BROADCAST] = 1,        [TRAFFIC_SEND] = 1};
    struct caps_link l = {1, 10}, late = {1, 0};
    for (int k = 0; k < TRAFFIC_KINDS; k++) {
        CHECK_NEAR(caps_time(&l, (enum traffic_kind)k, 4, (struct traffic){2, 100}),
                   2 + 10 * moved[k], 1e-12);
        CHECK_NEAR(caps_time(&late, (enum traffic_kind)k, 4, (struct traffic){2, 100}), 2, 0);
    }
}

/* ---- a check ---- */

static char *page_of(struct plait_config *c, bool json)
{
    char *page;
    int code = json ? plait_config_plan(c, 0, &page) : plait_config_check(c, 0, &page);
    return CHECK(code == PLAIT_OK) ? page : NULL;
}

/* Milliseconds in the table are bytes over the axis's bandwidth, of a sum 2 (n - 1) / n of them;
 * without rates of links there is no such column. */
static void a_check_says_times(void)
{
    static const char *const set[] = {"parallel.tp=2", "parallel.dp=4", "train.batch=8",
                                      "parallel.pp=2", "model.vocab=257"};
    struct plait_config *c;
    CHECK_INT(plait_config_new(&c), PLAIT_OK);
    for (int i = 0; i < 5; i++)
        CHECK_INT(plait_config_set(c, set[i]), PLAIT_OK);
    struct plait_rates r = {.memory_bandwidth = 1e9};
    CHECK_INT(plait_config_rates(c, &r), PLAIT_OK);
    char *page = page_of(c, false);
    CHECK(page && strstr(page, "traffic a step") && !strstr(page, " ms"));
    plait_free(page);
    r = (struct plait_rates){.bandwidth = "1e6,dp=1e7"};
    CHECK_INT(plait_config_rates(c, &r), PLAIT_OK);
    page = page_of(c, false);
    long long messages, bytes;
    double ms;
    const struct { const char *row; double moved, rate; } row[] = {
        {"all-reduce     over tp", 1, 1e6}, {"all-reduce     over dp", 1.5, 1e7},
        {"send           over pp", 1, 1e6}, {"all-reduce     over world", 2 * 15.0 / 16, 1e6}};
    for (int i = 0; i < 4; i++) {
        const char *at = page ? strstr(page, row[i].row) : NULL;
        at = CHECK(at != NULL) ? at + strlen(row[i].row) : "";
        CHECK_INT(sscanf(at, "%lld %lld B %lf (", &messages, &bytes, &ms), 3);
        CHECK_NEAR(ms, 1e3 * row[i].moved * (double)bytes / row[i].rate, 5.1e-4);
    }
    plait_free(page);
    page = page_of(c, true);
    CHECK(page && strstr(page, "\"kind\": \"send\"") && strstr(page, "\"seconds\": "));
    plait_free(page);
    r.latency = "soon";
    CHECK_INT(plait_config_rates(c, &r), PLAIT_CONFIG);
    plait_config_free(c);
}

static const struct test_case cases[] = {
    {"words", words}, {"bad words", bad_words}, {"across axes", across_axes}, {"rings", rings},
    {"a check says times", a_check_says_times},
};
TEST_MAIN(cases)
