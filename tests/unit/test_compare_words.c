/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said of a comparison, by hand: a step of two ranks whose measured and simulated times are
 * given, as a page, as JSON and as a file of costs. That the times of a trace are found is shown by
 * tests/dist/test_compare.c.
 */
#include "study/compare.h"
#include "test.h"

#include "base/mem.h"
#include <cjson/cJSON.h>

/* Seconds. Rank 0 ran two F of 3 ms where 2 were simulated, and two B; it waited 5 ms for 4. */
struct given {
    struct options o;
    struct setup s;
    double cost[2][COMPARE_KINDS];
    struct compare_rank measured[2], simulated[2];
    struct compare c;
};

static void give(struct given *g)
{
    CHECK_OK(conf_defaults(&options_table, &g->o));
    g->o.model.layers = g->o.parallel.pp = g->o.train.batch = 2;
    g->o.model.vocab = 257;
    CHECK_OK(setup_make(&g->o, 257, true, &g->s));
    g->s.bubble = 0.2;
    memcpy(g->cost, (double[2][COMPARE_KINDS]){{0.003, 0.007}, {0.004, 0.008}}, sizeof g->cost);
    for (int r = 0; r < 2; r++) {
        g->measured[r] = (struct compare_rank){.busy = {0.006 + r * 1e-3, 0.014},
                                               .waiting = 0.005,
                                               .sending = 0.0011,
                                               .ending = 0.0012,
                                               .count = {2, 2},
                                               .end[SCHED_STEP] = 0.0012,
                                               .ends[SCHED_STEP] = 1};
        g->simulated[r] = (struct compare_rank){.busy = {0.004 + r * 1e-3, 0.016},
                                                .waiting = 0.004,
                                                .count = {2, 2},
                                                .end[SCHED_STEP] = 0.001};
    }
    g->c = (struct compare){.s = &g->s,
                            .steps = 8,
                            .first = 3,
                            .cost = g->cost,
                            .latency = 0.0015,
                            .fetch = 0.00025,
                            .makespan = 0.050,
                            .bubble = 0.5,
                            .measured = g->measured,
                            .simulated = g->simulated};
    g->c.sim.makespan = 0.040;
    g->c.sim.bubble_fraction = 0.25;
}

static void said(const struct text *page, const char *part)
{
    test_check(page->s && strstr(page->s, part), __FILE__, __LINE__, "no \"%s\" in: %s", part,
               page->s ? page->s : "nothing");
}

/* A bubble of a half of the step is as much as what is ideal, a quarter a third of it, a fifth a
 * quarter; 50 ms are a quarter more than 40. */
static void a_page(void)
{
    static struct given g;
    struct compare_words w;
    struct text page = {0};
    give(&g);
    CHECK_OK(compare_words_make(&g.c, "runs/a/", &w));
    compare_text(&g.c, &w, &page);
    said(&page, "runs/a: 1f1b on 2 pipeline ranks, 2 microbatches; 5 of 8 steps, the first 3 left "
                "out\n");
    said(&page, "step: measured 50.00 ms, simulated 40.00 ms, 25.0 % apart\n");
    said(&page, "bubble: measured 50.0 % of the step (100.0 % over ideal time), simulated 25.0 % "
                "of the step (33.3 % over ideal time), predicted before the run 20.0 % of the step "
                "(25.0 % over ideal time)\n");
    said(&page, "bubble, % of the step         50.00      25.00                     20.00\n");
    said(&page, "bubble, % over ideal time    100.00      33.33                     25.00\n");
    said(&page, "first to last action, ms      50.00      40.00                         -\n");
    said(&page, "\n0           F        2         3.000         6.00          4.00     50.0\n");
    said(&page, "\n0           B        2         7.000        14.00         16.00    -12.5\n");
    said(&page, "\n1           F        2         3.500         7.00          5.00     40.0\n");
    said(&page, "\n0     waiting        -             -         5.00          4.00        -\n");
    said(&page, "\n0     sending        -             -         1.10             -        -\n");
    said(&page, "\n0        STEP        1         1.200         1.20             -        -\n");
    CHECK(page.s && !strstr(page.s, "NORM ")); /* it has none of these */
    said(&page, "What ends the step (REDUCE to GATHER) is predicted from bytes with --bandwidth");
    said(&page, "a message 1.500 ms\non its way, one that lies ready fetched in 0.250 ms.\n");
    text_free(&page);
    compare_words_free(&w);
    g.c.rated = true;
    CHECK_OK(compare_words_make(&g.c, "runs/a/", &w));
    page = (struct text){0};
    compare_text(&g.c, &w, &page);
    said(&page, "\n0        STEP        1         1.200         1.20          1.00     20.0\n");
    said(&page, "What ends the step: of sums and gathers the time that links take");
    text_free(&page);
    compare_words_free(&w);
    setup_free(&g.s);
}

static double number(const cJSON *in, const char *key)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(in, key);
    return CHECK(cJSON_IsNumber(x)) ? x->valuedouble : NAN;
}

/* Seconds and shares, as they are. */
static void json(void)
{
    static struct given g;
    struct text page = {0};
    give(&g);
    compare_json(&g.c, &page);
    cJSON *all = cJSON_Parse(page.s);
    CHECK_NEAR(number(all, "steps"), 8, 0);
    CHECK_NEAR(number(all, "left_out"), 3, 0);
    CHECK_NEAR(number(all, "bubble_measured"), 0.5, 1e-9);
    CHECK_NEAR(number(all, "bubble_simulated"), 0.25, 1e-9);
    CHECK_NEAR(number(all, "bubble_predicted"), 0.2, 1e-9);
    CHECK_NEAR(number(all, "over_ideal_measured"), 1, 1e-9);
    CHECK_NEAR(number(all, "over_ideal_simulated"), 1 / 3.0, 1e-9);
    CHECK_NEAR(number(all, "over_ideal_predicted"), 0.25, 1e-9);
    CHECK_NEAR(number(all, "makespan_measured"), 0.05, 1e-9);
    CHECK_NEAR(number(all, "makespan_simulated"), 0.04, 1e-9);
    CHECK_NEAR(number(all, "latency"), 0.0015, 1e-12);
    CHECK_NEAR(number(all, "fetch"), 0.00025, 1e-12);
    const cJSON *rank = cJSON_GetArrayItem(cJSON_GetObjectItem(all, "ranks"), 1);
    const cJSON *m = cJSON_GetObjectItem(rank, "measured");
    CHECK_NEAR(number(rank, "rank"), 1, 0);
    CHECK_NEAR(number(m, "F"), 0.007, 1e-12);
    CHECK_NEAR(number(m, "B"), 0.014, 1e-12);
    CHECK_NEAR(number(m, "waiting"), 0.005, 1e-12);
    CHECK_NEAR(number(m, "sending"), 0.0011, 1e-12);
    CHECK_NEAR(number(m, "ending"), 0.0012, 1e-12);
    CHECK_NEAR(number(cJSON_GetObjectItem(rank, "simulated"), "F"), 0.005, 1e-12);
    const cJSON *stage = cJSON_GetArrayItem(cJSON_GetObjectItem(all, "costs"), 1);
    CHECK_NEAR(number(stage, "F"), 0.004, 1e-12);
    CHECK_NEAR(number(stage, "B"), 0.008, 1e-12);
    cJSON_Delete(all);
    text_free(&page);
    setup_free(&g.s);
}

/* Milliseconds; halves that were not measured are half of the whole, a whole is its halves. */
static void costs(void)
{
    static struct given g;
    struct text page = {0};
    give(&g);
    compare_costs(&g.c, &page);
    CHECK_STR(page.s, "stage,F,B,I,W\n0,3.000000,7.000000,3.500000,3.500000\n"
                      "1,4.000000,8.000000,4.000000,4.000000\n");
    text_free(&page);
    memcpy(g.cost[1], (double[COMPARE_KINDS]){0.004, 0, 0.005, 0.0025}, sizeof g.cost[1]);
    compare_costs(&g.c, &page);
    said(&page, "\n1,4.000000,7.500000,5.000000,2.500000\n");
    text_free(&page);
    setup_free(&g.s);
}

static const struct test_case cases[] = {{"a page", a_page}, {"json", json}, {"costs", costs}};
TEST_MAIN(cases)
