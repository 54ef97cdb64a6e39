/* SPDX-License-Identifier: Apache-2.0
 *
 * The law of test_law.c for the orders made for costs and for chunks in a V, over the grid of
 * microbatches from one to three times the ranks: loss, norm and every gradient are those of one
 * rank. First and last stage of a V are on rank 0, so embedding and head share it, tied or not. And
 * for stages that end between the attention and the mlp of a layer.
 */
#include "layout.h"
#include "test.h"

static struct layout layout_of(enum model_kind kind, int pp, int m, const char *schedule)
{
    bool gpt = kind == MODEL_GPT;
    int v = strncmp(schedule, "zb-", 3) == 0 && schedule[3] != 'v' ? 1 : 2;
    struct model a = {.kind = kind, .layers = v * pp + 1, .hidden = 16, .heads = 2,
                      .kv_heads = gpt ? 2 : 1, .head_dim = 8, .ffn = 24, .vocab = 37, .seq = 8,
                      .tied = gpt, .dropout = 0.1, .norm_eps = 1e-5, .rope_theta = 10000,
                      .init_std = 0.2};
    return (struct layout){.model = a, .tp = 1, .pp = pp, .dp = 1, .v = v, .schedule = schedule,
                           .batch = m, .microbatch = 1, .dev = DEV_REF, .ct = DT_F64, .steps = 2,
                           .clip = 0.05};
}

/* One rank on the same step is the judge. */
static void check(struct layout l)
{
    struct layout one = l;
    struct layout_result want = {0}, got = {0};
    const char *worst = "";
    int m = (int)(l.batch / l.microbatch / l.dp);
    one.tp = one.pp = one.dp = one.v = 1;
    one.sp = false;
    one.schedule = "naive";
    CHECK_OK(layout_run(&one, &want));
    enum err err = layout_run(&l, &got);
    if (test_check(err == ERR_OK, __FILE__, __LINE__, "%s p %d m %d: %s", l.schedule, l.pp, m,
                   err_text())) {
        double far = fmax(fabs(got.loss - want.loss) / fabs(want.loss),
                          fabs(got.norm - want.norm) / want.norm);
        far = fmax(far, layout_difference(&want, &got, false, &worst));
        test_check(far <= 1e-10, __FILE__, __LINE__, "%s p %d m %d: %g of 1 apart, worst %s",
                   l.schedule, l.pp, m, far, worst);
        CHECK_INT(got.tokens, want.tokens);
        CHECK_INT(got.planned, got.taken);
    }
    layout_result_free(&want);
    layout_result_free(&got);
}

static void grid(const char *schedule)
{
    for (int p = 1; p <= 4; p++)
        for (int m = 1; m <= 3 * p; m++)
            check(layout_of(m % 2 ? MODEL_GPT : MODEL_LLAMA, p, m, schedule));
}

static void grid_zb_1p(void) { grid("zb-1p"); }
static void grid_zb_2p(void) { grid("zb-2p"); }
static void grid_zb_v(void) { grid("zb-v"); }
static void grid_v_half(void) { grid("v-half"); }
static void grid_v_min(void) { grid("v-min"); }
static void grid_1f1b_v(void) { grid("1f1b-v"); }

/* Tensor and data ranks, a ragged last microbatch, an untied head beside the embedding. */
static void beside_other_axes(void)
{
    static const char *const names[] = {"zb-1p", "zb-2p", "zb-v", "v-half", "v-min", "1f1b-v"};
    for (int i = 0; i < 6; i++)
        for (int tied = 0; tied <= 1; tied++) {
            struct layout l = layout_of(MODEL_GPT, 2, 14, names[i]);
            l.model.tied = tied != 0;
            l.tp = 1 + tied;
            l.sp = tied != 0;
            l.dp = 2;
            l.microbatch = 2;
            check(l);
        }
}

/* Stages from the mlp of one layer to the attention of another, of these two alone where a stage
 * would have one layer; on the first rank's side one attention. */
static void half_layers(void)
{
    static const char *const names[] = {"1f1b", "gpipe", "zb-1p", "interleaved", "zb-v", "1f1b-v"};
    for (int i = 0; i < 6; i++)
        for (int p = 2; p <= 3; p++)
            for (int k = 0; k < 4; k++) {
                struct layout l = layout_of(k % 2 ? MODEL_GPT : MODEL_LLAMA, p, 2 * p, names[i]);
                l.v = i < 3 ? 1 : 2;
                l.halves = true;
                l.recompute = k > 1 && !strstr(names[i], "zb-");
                l.tp = 1 + k / 2;
                l.sp = k == 2;
                l.tp_rows = 2 * (k == 2);
                l.model.kv_heads = 2;
                l.model.layers = l.v * p + k % 2;
                check(l);
            }
}

/* Weight gradients are added in the order of the microbatches: where stages and placement are the
 * same, so are the bits, but for a tied head beside the embedding, whose two sums are one. */
static void same_bits_as(const char *const names[], int n, bool tied)
{
    struct layout_result first = {0}, other = {0};
    for (int i = 0; i < n; i++) {
        struct layout l = layout_of(MODEL_GPT, 3, 7, names[i]);
        l.v = strstr(names[n - 1], "zb-") ? 1 : 2;
        l.model.layers = 7;
        l.model.tied = tied;
        CHECK_OK(layout_run(&l, i ? &other : &first));
        if (i) {
            test_check(layout_same_bits(&first, &other), __FILE__, __LINE__,
                       "%s does not give the bits of %s", names[i], names[0]);
            layout_result_free(&other);
        }
    }
    layout_result_free(&first);
}

static void same_bits(void)
{
    static const char *const costs[] = {"1f1b", "zb-1p", "zb-2p"};
    static const char *const vs[] = {"zb-v", "v-half", "v-min", "1f1b-v"};
    same_bits_as(costs, 3, true);
    same_bits_as(vs, 4, false);
}

static const struct test_case cases[] = {
    {"grid_zb_1p", grid_zb_1p},
    {"grid_zb_2p", grid_zb_2p},
    {"grid_zb_v", grid_zb_v},
    {"grid_v_half", grid_v_half},
    {"grid_v_min", grid_v_min},
    {"grid_1f1b_v", grid_1f1b_v},
    {"beside_other_axes", beside_other_axes},
    {"half_layers", half_layers},
    {"same_bits", same_bits},
};
TEST_MAIN(cases)
