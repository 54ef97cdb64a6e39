/* SPDX-License-Identifier: Apache-2.0
 *
 * The law of test_law.c for schedules with two replicas of the parameters and with pairs, over the
 * grid of microbatches from one to three times the ranks: loss, norm and every gradient are those
 * of one rank, and after two optimizer steps the weights and gradients of both replicas are the
 * same bits.
 */
#include "layout.h"
#include "test.h"

static struct layout layout_of(enum model_kind kind, int pp, int m, const char *schedule)
{
    bool gpt = kind == MODEL_GPT;
    int v = schedule && strcmp(schedule, "dualpipev") == 0 ? 2 : 1;
    struct model a = {.kind = kind, .layers = v * pp + 1, .hidden = 16, .heads = 2,
                      .kv_heads = gpt ? 2 : 1, .head_dim = 8, .ffn = 24, .vocab = 37, .seq = 8,
                      .tied = gpt, .dropout = 0.1, .norm_eps = 1e-5, .rope_theta = 10000,
                      .init_std = 0.2};
    return (struct layout){.model = a, .tp = 1, .pp = pp, .dp = 1, .v = v, .schedule = schedule,
                           .batch = m, .microbatch = 1, .dev = DEV_REF, .ct = DT_F64, .steps = 2,
                           .clip = 0.05};
}

static void compare(const struct layout *l, const struct layout_result *want)
{
    struct layout_result got;
    const char *worst = "", *name = l->schedule ? l->schedule : "list";
    int m = (int)(l->batch / l->microbatch / l->dp);
    enum err err = layout_run(l, &got);
    if (test_check(err == ERR_OK, __FILE__, __LINE__, "%s p %d m %d: %s", name, l->pp, m,
                   err_text())) {
        double far = fmax(fabs(got.loss - want->loss) / fabs(want->loss),
                          fabs(got.norm - want->norm) / want->norm);
        far = fmax(far, layout_difference(want, &got, false, &worst));
        test_check(far <= 1e-10, __FILE__, __LINE__, "%s p %d m %d: %g of 1 apart, worst %s", name,
                   l->pp, m, far, worst);
        test_check(got.replicas_differ == 0, __FILE__, __LINE__,
                   "%s p %d m %d: %d values of the replicas are not the same bits", name, l->pp, m,
                   got.replicas_differ);
        CHECK_INT(got.tokens, want->tokens);
        CHECK_INT(got.planned, got.taken);
    }
    layout_result_free(&got);
}

/* One rank on the same step is the judge. */
static void check(struct layout l)
{
    struct layout one = l;
    struct layout_result want;
    one.pp = one.dp = one.v = 1;
    one.text = NULL;
    one.schedule = "naive";
    CHECK_OK(layout_run(&one, &want));
    compare(&l, &want);
    layout_result_free(&want);
}

static void grid(const char *schedule, int step)
{
    for (int p = step; p <= 4; p += step)
        for (int m = 1; m <= 3 * p; m++)
            for (int kind = MODEL_GPT; kind <= MODEL_LLAMA; kind++)
                check(layout_of((enum model_kind)kind, p, m, schedule));
}

static void grid_dualpipe(void) { grid("dualpipe", 2); }
static void grid_dualpipev(void) { grid("dualpipev", 1); }
static void grid_chimera(void) { grid("chimera", 2); }

/* Data ranks, a ragged last microbatch, untied and tied: sums over data ranks and over replicas. */
static void beside_data_ranks(void)
{
    static const char *const names[] = {"dualpipe", "dualpipev", "chimera"};
    for (int n = 0; n < 3; n++)
        for (int m = 1; m <= 5; m++)
            for (int tied = 0; tied <= 1; tied++) {
                struct layout l = layout_of(MODEL_GPT, 4, m, names[n]);
                l.model.tied = tied;
                l.batch = m > 1 ? 4 * m - 2 : 2 * m;
                l.microbatch = m > 1 ? 2 : 1;
                l.dp = 2;
                check(l);
            }
}

/* Two replicas with several stages a rank, a V each, and pairs: no generator writes this. */
static void list_of_two_vs(void)
{
    struct layout l = layout_of(MODEL_GPT, 2, 4, NULL);
    l.v = 2;
    l.model.layers = 4;
    l.text = "0F0,0F1,1F2,3F0,2F2,1F3,(2F3;3B0)OV,2B2,1B2,(3F1;2B3)OV,0B0,1B3,3B1,0I1,0W1\n"
             "0F2,1F0,0F3,2F0,3F2,3B2,1F1,2F1,3F3,2B0,1B0,3I3,3W3,0B2,2B1,1B1,0B3\n";
    check(l);
}

static const struct test_case cases[] = {
    {"grid_dualpipe", grid_dualpipe},
    {"grid_dualpipev", grid_dualpipev},
    {"grid_chimera", grid_chimera},
    {"beside_data_ranks", beside_data_ranks},
    {"list_of_two_vs", list_of_two_vs},
};
TEST_MAIN(cases)
