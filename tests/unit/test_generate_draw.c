/* SPDX-License-Identifier: Apache-2.0
 *
 * How tokens are drawn, by hand: weights of 1 to 4 are drawn in those shares at temperature 1, in
 * their squares at a half and in their roots at 2, and the likeliest k of them among themselves.
 */
#include "generate/generate.h"
#include "test.h"

#include <math.h>

enum { V = 4, DRAWS = 20000 };

/* Share of each id among the draws with numbers 0, 1, ... of a seed. */
static void shares(const struct generate_how *how, double out[V])
{
    double logits[V];
    for (int i = 0; i < V; i++) {
        logits[i] = log(i + 1.0) - 3;
        out[i] = 0;
    }
    for (int64_t n = 0; n < DRAWS; n++) {
        int32_t id = -1;
        CHECK_OK(generate_pick(logits, V, how, n, &id));
        if (CHECK(id >= 0 && id < V))
            out[id] += 1.0 / DRAWS;
    }
}

static void drawn(double temperature, int64_t top_k, const double want[V])
{
    double got[V];
    shares(&(struct generate_how){temperature, top_k, 11, NULL}, got);
    for (int i = 0; i < V; i++) /* five standard deviations */
        test_check(fabs(got[i] - want[i]) <= 1e-9 + 5 * sqrt(want[i] * (1 - want[i]) / DRAWS),
                   __FILE__, __LINE__, "temperature %g, top %d: id %d has %.4f of the draws, "
                   "wanted %.4f",
                   temperature, (int)top_k, i, got[i], want[i]);
}

static void weights_are_shares(void)
{
    const double root = 1 + sqrt(2) + sqrt(3) + 2;
    drawn(1, 0, (double[V]){0.1, 0.2, 0.3, 0.4});
    drawn(0.5, 0, (double[V]){1 / 30.0, 4 / 30.0, 9 / 30.0, 16 / 30.0});
    drawn(2, 0, (double[V]){1 / root, sqrt(2) / root, sqrt(3) / root, 2 / root});
    drawn(1, 2, (double[V]){0, 0, 3 / 7.0, 4 / 7.0});
    drawn(0.5, 3, (double[V]){0, 4 / 29.0, 9 / 29.0, 16 / 29.0});
    drawn(1, 9, (double[V]){0.1, 0.2, 0.3, 0.4}); /* more than there are */
    drawn(1, 1, (double[V]){0, 0, 0, 1});
    drawn(0, 0, (double[V]){0, 0, 0, 1});
    drawn(0, 3, (double[V]){0, 0, 0, 1});
    drawn(1e-3, 0, (double[V]){0, 0, 0, 1});
}

/* Of equals the first id stands before the others. */
static void equals_go_by_id(void)
{
    const double logits[] = {1, 5, 5, 2, 5};
    int32_t id;
    for (int64_t n = 0; n < 50; n++) {
        CHECK_OK(generate_pick(logits, 5, &(struct generate_how){0, 0, 1, NULL}, n, &id));
        CHECK_INT(id, 1);
        CHECK_OK(generate_pick(logits, 5, &(struct generate_how){1, 2, 1, NULL}, n, &id));
        CHECK(id == 1 || id == 2);
    }
}

/* Two seeds, and two places of one text, agree by chance alone: 0.3 of the time. */
static void draws_differ(void)
{
    double logits[V], same[2] = {0, 0};
    for (int i = 0; i < V; i++)
        logits[i] = log(i + 1.0);
    for (int64_t n = 0; n < DRAWS; n++) {
        int32_t id[3];
        for (int k = 0; k < 3; k++)
            CHECK_OK(generate_pick(logits, V, &(struct generate_how){1, 0, k == 2 ? 8 : 7, NULL},
                                   k == 1 ? n + 1 : n, &id[k]));
        same[0] += (id[0] == id[1]) / (double)DRAWS;
        same[1] += (id[0] == id[2]) / (double)DRAWS;
    }
    CHECK_NEAR(same[0], 0.3, 0.02);
    CHECK_NEAR(same[1], 0.3, 0.02);
}

static const struct test_case cases[] = {{"weights are shares", weights_are_shares},
                                         {"equals go by id", equals_go_by_id},
                                         {"draws differ", draws_differ}};
TEST_MAIN(cases)
