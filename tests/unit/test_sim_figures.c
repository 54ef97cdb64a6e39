/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said of simulated steps, by hand: every figure of the table and of the JSON of one, of
 * the line of a comparison, and what a configured model gives the clock.
 */
#include "study/play.h"
#include "timed.h"
#include "test.h"

#include "base/fs.h"
#include "base/mem.h"
#include <cjson/cJSON.h>
#include <unistd.h>

static const struct sched_lower_args none;

static double at(const cJSON *in, const char *key, int i)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(in, key);
    x = i < 0 ? x : cJSON_GetArrayItem(x, i);
    return test_check(cJSON_IsNumber(x), __FILE__, __LINE__, "no %s", key) ? x->valuedouble : NAN;
}

/* Gpipe of two ranks and two microbatches, F 1 and B 2, half a unit for a message, which takes the
 * link for one. Rank 0 has F until 2; rank 1 F 2.5 to 4.5, B to 8.5, whose gradients leave at 6.5
 * and 8.5, are there at 8 and 10, and are used until 10 and 12. */
static const char by_hand[] =
    "    0          6        4.5        1.5          2          0         12          6    50.00 "
    "           2\n"
    "    1          6          1        1.5          2        2.5        8.5          6    50.00 "
    "           2\n";

static void one_step(void)
{
    struct sim_cost cost = {.tf = 1, .tb = 2, .ti = 1, .tw = 1, .tr = 1, .latency = 0.5, .bytes = 6,
                            .bandwidth = 6};
    struct sched_shape shape = {.p = 2, .m = 2, .v = 1};
    struct sched made;
    struct timed x;
    struct text page = {0}, json = {0};
    CHECK_OK(sched_make("gpipe", &shape, NULL, &made));
    if (!timed_play(&made, &none, &cost, &x)) {
        timed_free(&x);
        return;
    }
    sim_summary(&x.s, &x.r, &page);
    test_check(strstr(page.s, by_hand) != NULL, __FILE__, __LINE__, "%s", page.s);
    test_check(strstr(page.s, "makespan  12\ncost      12 ") != NULL, __FILE__, __LINE__, "%s",
               page.s);
    test_check(strstr(page.s, "bubble    50.00 % of the step (100.00 % over ideal time)\n"
                              "rate      50.00 % of the cost (100.00 % over ideal time)\n") != NULL,
               __FILE__, __LINE__, "%s", page.s);
    sim_json(&x.s, &x.r, &json);
    cJSON *all = cJSON_Parse(json.s);
    const struct { const char *key; double want[2]; } row[] = {
        {"busy", {6, 6}}, {"waiting", {4.5, 1}}, {"message", {1.5, 1.5}}, {"sending", {2, 2}},
        {"peak_activations", {2, 2}}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int rank = 0; rank < 2; rank++)
            test_check(fabs(at(all, row[i].key, rank) - row[i].want[rank]) < 1e-12, __FILE__,
                       __LINE__, "%s of %d: %g", row[i].key, rank, at(all, row[i].key, rank));
    CHECK_NEAR(at(all, "makespan", -1), 12, 1e-12);
    CHECK_NEAR(at(all, "bubble_fraction", -1), 0.5, 1e-12);
    CHECK_NEAR(at(all, "bubble_over_ideal", -1), 1, 1e-12);
    CHECK_NEAR(at(all, "actions", -1), 8, 0);
    cJSON_Delete(all);
    text_free(&json);
    text_free(&page);
    timed_free(&x);
}

/* Ranks of zb-h2 begin one after the other and have no bubble between: the step has one. */
static void shares_of_two_lengths(void)
{
    struct sim_cost cost = {.tf = 1, .tb = 2, .ti = 1, .tw = 1, .tr = 1};
    struct sched_shape shape = {.p = 4, .m = 8, .v = 1};
    struct sched made;
    struct timed x;
    struct text json = {0};
    CHECK_OK(sched_make("zb-h2", &shape, NULL, &made));
    if (timed_play(&made, &none, &cost, &x)) {
        sim_json(&x.s, &x.r, &json);
        cJSON *all = cJSON_Parse(json.s);
        CHECK_NEAR(at(all, "cost", -1), 24, 1e-12);
        CHECK_NEAR(at(all, "bubble_rate", -1), 0, 1e-12);
        CHECK_NEAR(at(all, "rate_over_ideal", -1), 0, 1e-12);
        CHECK_NEAR(at(all, "makespan", -1), 27, 1e-12);
        CHECK_NEAR(at(all, "bubble_fraction", -1), 3 / 27.0, 1e-12);
        CHECK_NEAR(at(all, "bubble_over_ideal", -1), 3 / 24.0, 1e-12);
        cJSON_Delete(all);
        text_free(&json);
    }
    timed_free(&x);
}

/* The same step in a line of a comparison: of 24 units 12 are work, 5.5 waits for work, 3 for
 * messages, of which there are two each way. */
static void a_line_of_a_comparison(void)
{
    char *page = NULL;
    struct plait_sim a = {.size = sizeof a, .compare = "gpipe", .p = 2, .m = 2, .tb = 2,
                          .bytes = 6, .rates = {"0.5", "6", 0}};
    CHECK_INT(plait_simulate(&a, &page), PLAIT_OK);
    const char *line = page ? strstr(page, "\ngpipe ") : NULL;
    double got[11] = {0};
    static const double want[11] = {1, 12, 12, 50, 100, 50, 22.92, 12.5, 2, 4, 1};
    CHECK(line && sscanf(line, " gpipe %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf", &got[0],
                         &got[1], &got[2], &got[3], &got[4], &got[5], &got[6], &got[7], &got[8],
                         &got[9], &got[10]) == 11);
    for (int i = 0; i < 11; i++)
        test_check(fabs(got[i] - want[i]) < 0.006, __FILE__, __LINE__, "column %d is %g, wanted %g",
                   i + 2, got[i], want[i]);
    plait_free(page);
}

/* ---- of a model ---- */

static void play(struct plait_sim *sim, const char *schedule, int m, struct played *x)
{
    static const char yaml[] = "model: {kind: llama, layers: 6, hidden: 64, heads: 4, seq: 32, "
                               "vocab: 257}\nparallel: {pp: 2, microbatch: 2}\n"
                               "train: {batch: 8, steps: 1}\n";
    CHECK_OK(fs_put("model.yaml", yaml, sizeof yaml - 1));
    sim->model = "model.yaml";
    struct play_args a = {.sim = sim, .schedule = schedule, .m = m};
    CHECK_OK(play_make(&a, x));
    sim->model = NULL;
}

/* Times are of an average stage. A message is 2 samples of 32 rows of 64 channels of 4 bytes. What
 * does not move is the same for any number of microbatches, but for the tokens and targets of 4
 * more of 2 samples. */
static void a_model(void)
{
    struct plait_sim sim = {.rates.bandwidth = "1e6"};
    struct played four, eight;
    double sum = 0;
    play(&sim, "gpipe", 4, &four);
    play(&sim, "gpipe", 8, &eight);
    for (int i = 0; four.scale && i < four.s->stages; i++)
        sum += four.scale[i];
    CHECK_NEAR(sum, four.s->stages, 1e-12);
    for (int64_t i = 0; i < four.s->begin[2]; i++)
        if (four.s->instr[i].op == SCHED_SEND_F || four.s->instr[i].op == SCHED_SEND_B)
            CHECK_NEAR(sim_wire(&four.cost, i), 2 * 32 * 64 * 4 / 1e6, 1e-15);
    CHECK_NEAR(four.result.sending[0], 4 * 2 * 32 * 64 * 4 / 1e6, 1e-12);
    for (int rank = 0; four.memory.fixed && eight.memory.fixed && rank < 2; rank++)
        CHECK_INT(eight.memory.fixed[rank] - four.memory.fixed[rank], 2 * 4 * 2 * 32 * 4);
    play_free(&four);
    play_free(&eight);
}

/* A chunk has half of a rank's parameters, and keeps half of its activation. */
static void a_chunk(void)
{
    struct plait_sim sim = {.tf = 1};
    struct played x;
    struct play_args a = play_one_of(&sim, "interleaved");
    a.p = 2;
    a.m = 4;
    a.v = 2;
    CHECK_OK(play_make(&a, &x));
    CHECK_NEAR(x.memory.activation, 0.5, 0);
    for (int i = 0; x.scale && i < 4; i++)
        CHECK_NEAR(x.scale[i], 0.5, 0);
    CHECK(x.scale != NULL);
    play_free(&x);
}

static const struct test_case cases[] = {
    {"one_step", one_step}, {"shares_of_two_lengths", shares_of_two_lengths},
    {"a_line_of_a_comparison", a_line_of_a_comparison}, {"a_model", a_model},
    {"a_chunk", a_chunk}};
TEST_MAIN(cases)
