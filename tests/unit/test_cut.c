/* SPDX-License-Identifier: Apache-2.0
 *
 * The cut of layers into stages, against all cuts: the costliest stage is as cheap as can be, or
 * with ranks the costliest rank. The finer one, between attn and mlp, is a cut and no worse, and
 * near the best of its kind. Parameters and FLOPs, by which it is made, against figures by hand.
 */
#include "model/model.h"
#include "model/partition.h"
#include "base/num.h"
#include "test.h"

enum { STAGES_MAX = 6 };

static struct model model(int64_t layers, int64_t vocab)
{
    return (struct model){.kind = MODEL_GPT, .layers = layers, .hidden = 64, .heads = 4,
                          .kv_heads = 4, .head_dim = 16, .ffn = 256, .vocab = vocab, .seq = 32};
}

/* Of a layer, for one sample. */
static double flops(const struct model *a, int64_t at)
{
    return model_flops(a, &(struct model_stage){at, at + 1, false}, false);
}

/* Cost of the costliest rank (rank NULL: stage), in forward FLOPs. */
static double costliest(const struct model *a, int n, const int *blocks, const uint16_t *rank)
{
    double total[STAGES_MAX] = {0}, most = 0;
    double block = flops(a, 1) + flops(a, 2);
    for (int i = 0; i < n; i++)
        total[rank ? rank[i] : i] += blocks[i] * block;
    total[rank ? rank[n - 1] : n - 1] += flops(a, model_layers(a) - 1);
    for (int i = 0; i < n; i++)
        most = fmax(most, total[i]);
    return most;
}

/* The least of that over all ways to give `left` more blocks to stages from `at` on. */
static double best(const struct model *a, int n, int *blocks, const uint16_t *rank, int at,
                   int64_t left)
{
    double least = INFINITY;
    if (at == n - 1) {
        blocks[at] = (int)left + 1;
        return costliest(a, n, blocks, rank);
    }
    for (int64_t k = 0; k <= left; k++) {
        blocks[at] = (int)k + 1;
        least = fmin(least, best(a, n, blocks, rank, at + 1, left - k));
    }
    return least;
}

static void as_good_as_any(int n, const uint16_t *rank)
{
    for (int64_t layers = n; layers < n + 7; layers++) {
        for (int64_t vocab = 16; vocab <= 4096; vocab *= 4) {
            struct model a = model(layers, vocab);
            struct model_stage cut[STAGES_MAX];
            int blocks[STAGES_MAX];
            int64_t sum = 0;
            CHECK_OK(model_cut(&a, n, rank, cut));
            for (int i = 0; i < n; i++) {
                bool embed = i == 0, head = i == n - 1;
                CHECK(model_stage_embed(&cut[i]) == embed && model_stage_head(&a, &cut[i]) == head);
                blocks[i] = (model_stage_parts(&cut[i]) - embed - head) / 2;
                CHECK(blocks[i] >= 1 && cut[i].first == sum);
                CHECK_INT(model_stage_parts(&cut[i]), embed + 2 * blocks[i] + head);
                sum = cut[i].end;
            }
            CHECK_INT(sum, 2 * layers + 2);
            double got = costliest(&a, n, blocks, rank);
            CHECK_NEAR(got / best(&a, n, blocks, rank, 0, layers - n), 1.0, 1e-12);
        }
    }
}

static void stages(void)
{
    for (int n = 1; n <= STAGES_MAX; n++)
        as_good_as_any(n, NULL);
}

static void ranks(void)
{
    as_good_as_any(4, (const uint16_t[]){0, 1, 0, 1});
    as_good_as_any(4, (const uint16_t[]){0, 1, 1, 0});
    as_good_as_any(6, (const uint16_t[]){0, 1, 2, 2, 1, 0});
    as_good_as_any(6, (const uint16_t[]){0, 1, 0, 1, 0, 1});
    as_good_as_any(3, (const uint16_t[]){0, 0, 0});
}

/* Among the stages of a rank the blocks are spread. */
static void within_a_rank(void)
{
    struct model a = model(12, 16);
    struct model_stage cut[4];
    CHECK_OK(model_cut(&a, 4, (const uint16_t[]){0, 1, 0, 1}, cut));
    for (int i = 0; i < 4; i++)
        CHECK_INT(model_stage_parts(&cut[i]), 6 + (i == 0) + (i == 3));
}

/* ---- between attn and mlp ---- */

/* Each attn and mlp is in one stage, in order, and none is empty; cost of the costliest rank. */
static double finer_costliest(const struct model *a, int n, const struct model_stage *cut,
                              const uint16_t *rank)
{
    double total[STAGES_MAX] = {0}, most = 0;
    int64_t sublayers = 0;
    for (int i = 0; i < n; i++) {
        int parts = model_stage_parts(&cut[i]), here = 0;
        for (int j = 0; j < parts; j++) {
            struct layer l = model_layer(a, cut[i].first + j);
            total[rank ? rank[i] : i] += flops(a, l.at);
            if (l.block < 0)
                continue;
            CHECK(l.type->part == (sublayers % 2 ? LAYER_MLP : LAYER_ATTN));
            CHECK_INT(l.block, sublayers / 2);
            for (int k = 0; k < n; k++)
                CHECK(model_stage_has(&cut[k], l.at) == (k == i));
            sublayers++;
            here++;
        }
        CHECK(here > 0);
    }
    CHECK_INT(sublayers, 2 * a->layers);
    for (int i = 0; i < n; i++)
        most = fmax(most, total[i]);
    return most;
}

/* The least of that over all bounds of stages from `at` on; bound: in sublayers. */
static double finer_best(const struct model *a, int n, int64_t *bound, const uint16_t *rank, int at)
{
    double least = INFINITY;
    struct model_stage cut[STAGES_MAX];
    if (at < n) {
        for (bound[at] = bound[at - 1] + 1; bound[at] <= 2 * a->layers - (n - at); bound[at]++)
            least = fmin(least, finer_best(a, n, bound, rank, at + 1));
        return least;
    }
    bound[n] = 2 * a->layers;
    for (int i = 0; i < n; i++)
        cut[i] = (struct model_stage){bound[i] + (i > 0), 1 + bound[i + 1] + (i == n - 1), false};
    return finer_costliest(a, n, cut, rank);
}

static void finer_than(int n, const uint16_t *rank, double slack)
{
    for (int64_t layers = n; layers < n + 6; layers++)
        for (int64_t vocab = 16; vocab <= 4096; vocab *= 4) {
            struct model a = model(layers, vocab);
            struct model_stage cut[STAGES_MAX];
            int64_t bound[STAGES_MAX + 1] = {0};
            bool is_finer;
            CHECK_OK(model_cut(&a, n, rank, cut));
            double before = finer_costliest(&a, n, cut, rank);
            CHECK_OK(model_cut_finer(&a, n, rank, 0, cut, &is_finer));
            double after = finer_costliest(&a, n, cut, rank);
            double least = finer_best(&a, n, bound, rank, 1);
            CHECK(after <= before * (1 + 1e-12));
            test_check(after <= least * (1 + slack), __FILE__, __LINE__,
                       "%d stages, %lld layers, vocabulary %lld: %g, the best is %g", n,
                       (long long)layers, (long long)vocab, after, least);
        }
}

static void finer(void)
{
    finer_than(1, NULL, 0);
    finer_than(2, NULL, 1e-12);
    finer_than(3, NULL, 1e-11);
    finer_than(4, NULL, 1e-11);
    finer_than(5, NULL, 1e-11);
    finer_than(4, (const uint16_t[]){0, 1, 1, 0}, 0.15);
    finer_than(4, (const uint16_t[]){0, 1, 0, 1}, 0.15);
}

/* The list of layers and their names. */
static void layers_in_order(void)
{
    static const enum layer_id want[] = {LAYER_EMBED, LAYER_ATTN, LAYER_MLP,
                                           LAYER_ATTN,  LAYER_MLP,  LAYER_HEAD};
    static const char *const name[] = {"embed", "layers.0.attn", "layers.0.mlp", "layers.1.attn",
                                       "layers.1.mlp", "head"};
    struct model a = model(2, 16);
    char buf[MODEL_NAME_MAX];
    CHECK_INT(model_layers(&a), 6);
    for (int64_t i = 0; i < 6; i++) {
        struct layer l = model_layer(&a, i);
        CHECK(l.type->part == want[i] && l.at == i);
        CHECK_INT(l.block, i == 0 || i == 5 ? -1 : (i - 1) / 2);
        CHECK_STR(model_layer_name(&l, buf), name[i]);
    }
}

/* ---- items of any cost ---- */

enum { ITEMS_MAX = 10 };

static double costliest_of(const struct partition *p, const int64_t *at)
{
    double total[STAGES_MAX] = {0}, most = 0;
    for (int i = 0; i < p->stages; i++)
        for (int64_t k = at[i]; k < at[i + 1]; k++)
            total[p->rank ? p->rank[i] : i] += p->cost[k];
    for (int i = 0; i < p->stages; i++)
        most = fmax(most, total[i]);
    return most;
}

/* The least of that over all bounds from `i` on. */
static double best_bounds(const struct partition *p, int64_t *at, int i)
{
    double least = INFINITY;
    at[p->stages] = p->items;
    if (i == p->stages)
        return costliest_of(p, at);
    for (at[i] = at[i - 1] + 1; at[i] <= p->items - (p->stages - i); at[i]++)
        least = fmin(least, best_bounds(p, at, i + 1));
    return least;
}

/* Costs that differ by far, zeros among them: never worse than what there was, and for stages by
 * themselves the best; for ranks with two stages each seldom more than a little worse. */
static void any_costs(void)
{
    static const uint16_t places[2][4] = {{0, 1, 1, 0}, {0, 1, 0, 1}};
    int best = 0, all = 0;
    for (int i = 0; i < 400; i++) {
        double cost[ITEMS_MAX], most[2];
        int64_t at[STAGES_MAX + 1] = {0}, other[STAGES_MAX + 1] = {0};
        struct partition p = {.cost = cost, .items = test_range(4, ITEMS_MAX), .stages = 4};
        p.rank = i % 3 ? NULL : places[i % 2];
        p.stages = p.rank ? 4 : (int)test_range(1, 4);
        for (int k = 0; k < p.items; k++)
            cost[k] = (double)(test_range(0, 3) * test_range(0, 50));
        for (int k = 1; k <= p.stages; k++)
            at[k] = k < p.stages ? k : p.items;
        double before = costliest_of(&p, at), least = best_bounds(&p, other, 1);
        CHECK_OK(partition_improve(&p, at, most));
        CHECK(at[0] == 0 && at[p.stages] == p.items);
        for (int k = 0; k < p.stages; k++)
            CHECK(at[k] < at[k + 1]);
        CHECK_NEAR(most[0], before, 1e-9 * before);
        CHECK_NEAR(most[1], costliest_of(&p, at), 1e-9 * before);
        CHECK(most[1] <= before * (1 + 1e-9));
        if (!p.rank)
            CHECK(most[1] <= least * (1 + 1e-9));
        best += p.rank && most[1] <= least * (1 + 1e-9);
        all += p.rank != NULL;
    }
    test_check(best * 10 >= all * 8, __FILE__, __LINE__, "%d of %d are the best", best, all);
}

static void refused(void)
{
    struct model a = model(3, 16);
    struct model_stage cut[4];
    CHECK_ERR(model_cut(&a, 4, NULL, cut), ERR_CONFIG, "at most 3 stages");
    CHECK_ERR(model_cut(&a, 0, NULL, cut), ERR_CONFIG, "at most 3 stages");
    a = model(1, 16);
    CHECK_ERR(model_cut(&a, 2, NULL, cut), ERR_CONFIG, "use at most 1 stage");
    CHECK(strstr(err_text(), "1 stages") == NULL);
}

/* Parameters as published (GPT-2's own count, Llama 2's), FLOPs multiplied out by hand: a query
 * sees half of the keys on average. */
static void figures_by_hand(void)
{
    const struct model gpt2 = {.kind = MODEL_GPT, .layers = 12, .hidden = 768, .heads = 12,
                               .kv_heads = 12, .head_dim = 64, .ffn = 3072, .vocab = 50257,
                               .seq = 1024, .tied = true};
    const struct model llama = {.kind = MODEL_LLAMA, .layers = 32, .hidden = 4096, .heads = 32,
                                .kv_heads = 32, .head_dim = 128, .ffn = 11008, .vocab = 32000,
                                .seq = 4096};
    CHECK_INT(model_params(&gpt2), 124439808);
    CHECK_INT(model_params(&llama), 6738415616);
    struct layer attn = model_layer(&gpt2, 1), mlp = model_layer(&gpt2, 2);
    struct layer head = model_layer(&gpt2, 25), gated = model_layer(&llama, 2);
    CHECK_NEAR(model_layer_flops(&attn, 1024, 1024), 6442450944.0, 0);
    CHECK_NEAR(model_layer_flops(&mlp, 1024, 1024), 9663676416.0, 0);
    CHECK_NEAR(model_layer_flops(&gated, 10, 10), 2.0 * 10 * 3 * 4096 * 11008, 0);
    CHECK_NEAR(model_layer_flops(&head, 3, 1024), 2.0 * 3 * 768 * 50257, 0);
}

static const struct test_case cases[] = {
    {"the costliest stage", stages},
    {"the costliest rank", ranks},
    {"within a rank", within_a_rank},
    {"finer than layers", finer},
    {"items of any cost", any_costs},
    {"layers in order", layers_in_order},
    {"refused", refused},
    {"figures by hand", figures_by_hand},
};
TEST_MAIN(cases)
