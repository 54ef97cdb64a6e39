/* SPDX-License-Identifier: Apache-2.0
 *
 * The cut of layers into stages, against all cuts: the costliest stage is as cheap as can be, or
 * with ranks the costliest rank. The finer one, between attn and mlp, is a cut and no worse, and
 * near the best of its kind. Parameters and FLOPs, by which it is made, against figures by hand.
 */
#include "arch/arch.h"
#include "base/num.h"
#include "test.h"

enum { STAGES_MAX = 6 };

static struct arch model(int64_t layers, int64_t vocab)
{
    return (struct arch){.kind = ARCH_GPT, .layers = layers, .hidden = 64, .heads = 4,
                         .kv_heads = 4, .head_dim = 16, .ffn = 256, .vocab = vocab, .seq = 32};
}

/* Cost of the costliest rank (rank NULL: stage), in forward FLOPs. */
static double costliest(const struct arch *a, int n, const int *blocks, const uint16_t *rank)
{
    double total[STAGES_MAX] = {0}, most = 0;
    double block = arch_part_flops(a, PART_ATTN, a->seq, a->seq) +
                   arch_part_flops(a, PART_MLP, a->seq, a->seq);
    for (int i = 0; i < n; i++)
        total[rank ? rank[i] : i] += blocks[i] * block;
    total[rank ? rank[n - 1] : n - 1] += arch_part_flops(a, PART_HEAD, a->seq, a->seq);
    for (int i = 0; i < n; i++)
        most = fmax(most, total[i]);
    return most;
}

/* The least of that over all ways to give `left` more blocks to stages from `at` on. */
static double best(const struct arch *a, int n, int *blocks, const uint16_t *rank, int at,
                   int64_t left) /* long: a recursion over all cuts */
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
            struct arch a = model(layers, vocab);
            struct arch_stage cut[STAGES_MAX];
            int blocks[STAGES_MAX];
            int64_t sum = 0;
            CHECK_OK(arch_cut(&a, n, rank, cut));
            for (int i = 0; i < n; i++) {
                bool embed = i == 0, head = i == n - 1;
                CHECK(arch_stage_embed(&cut[i]) == embed && arch_stage_head(&a, &cut[i]) == head);
                blocks[i] = (arch_stage_parts(&cut[i]) - embed - head) / 2;
                CHECK(blocks[i] >= 1 && cut[i].first == sum);
                CHECK_INT(arch_stage_parts(&cut[i]), embed + 2 * blocks[i] + head);
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
    struct arch a = model(12, 16);
    struct arch_stage cut[4];
    CHECK_OK(arch_cut(&a, 4, (const uint16_t[]){0, 1, 0, 1}, cut));
    for (int i = 0; i < 4; i++)
        CHECK_INT(arch_stage_parts(&cut[i]), 6 + (i == 0) + (i == 3));
}

/* ---- between attn and mlp ---- */

/* Each attn and mlp is in one stage, in order, and none is empty; cost of the costliest rank. */
static double finer_costliest(const struct arch *a, int n, const struct arch_stage *cut,
                              const uint16_t *rank)
{
    double total[STAGES_MAX] = {0}, most = 0;
    int64_t sublayers = 0, block;
    for (int i = 0; i < n; i++) {
        int parts = arch_stage_parts(&cut[i]), here = 0;
        for (int j = 0; j < parts; j++) {
            enum arch_part part = arch_stage_part(a, &cut[i], j, &block);
            total[rank ? rank[i] : i] += part == PART_EMBED
                                             ? 0 : arch_part_flops(a, part, a->seq, a->seq);
            if (block < 0)
                continue;
            CHECK(part == (sublayers % 2 ? PART_MLP : PART_ATTN) && block == sublayers / 2);
            for (int k = 0; k < n; k++)
                CHECK(arch_stage_has(&cut[k], arch_layer_of(a, part, block)) == (k == i));
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
static double finer_best(const struct arch *a, int n, int64_t *bound, const uint16_t *rank, int at)
{
    double least = INFINITY;
    struct arch_stage cut[STAGES_MAX];
    if (at < n) {
        for (bound[at] = bound[at - 1] + 1; bound[at] <= 2 * a->layers - (n - at); bound[at]++)
            least = fmin(least, finer_best(a, n, bound, rank, at + 1));
        return least;
    }
    bound[n] = 2 * a->layers;
    for (int i = 0; i < n; i++)
        cut[i] = (struct arch_stage){bound[i] + (i > 0), 1 + bound[i + 1] + (i == n - 1), false};
    return finer_costliest(a, n, cut, rank);
}

static void finer_than(int n, const uint16_t *rank, double slack)
{
    for (int64_t layers = n; layers < n + 6; layers++)
        for (int64_t vocab = 16; vocab <= 4096; vocab *= 4) {
            struct arch a = model(layers, vocab);
            struct arch_stage cut[STAGES_MAX];
            int64_t bound[STAGES_MAX + 1] = {0};
            bool is_finer;
            CHECK_OK(arch_cut(&a, n, rank, cut));
            double before = finer_costliest(&a, n, cut, rank);
            CHECK_OK(arch_cut_finer(&a, n, rank, 0, cut, &is_finer));
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

/* The row of layers, there and back. */
static void layers_in_order(void)
{
    static const enum arch_part want[] = {PART_EMBED, PART_ATTN, PART_MLP, PART_ATTN, PART_MLP,
                                          PART_HEAD};
    struct arch a = model(2, 16);
    int64_t block;
    CHECK_INT(arch_layers(&a), 6);
    for (int64_t i = 0; i < 6; i++) {
        CHECK(arch_layer(&a, i, &block) == want[i]);
        CHECK_INT(block, i == 0 || i == 5 ? -1 : (i - 1) / 2);
        CHECK_INT(arch_layer_of(&a, want[i], block), i);
    }
}

static void refused(void)
{
    struct arch a = model(3, 16);
    struct arch_stage cut[4];
    CHECK_ERR(arch_cut(&a, 4, NULL, cut), ERR_CONFIG, "at most 3 stages");
    CHECK_ERR(arch_cut(&a, 0, NULL, cut), ERR_CONFIG, "at most 3 stages");
    a = model(1, 16);
    CHECK_ERR(arch_cut(&a, 2, NULL, cut), ERR_CONFIG, "use at most 1 stage");
    CHECK(strstr(err_text(), "1 stages") == NULL);
}

/* Parameters as published (GPT-2's own count, Llama 2's), FLOPs multiplied out by hand: a query
 * sees half of the keys on average in a part's count, all of them in that of PaLM (Chowdhery and
 * others, 2022, appendix B), which utilisation is told by. */
static void figures_by_hand(void)
{
    const struct arch gpt2 = {.kind = ARCH_GPT, .layers = 12, .hidden = 768, .heads = 12,
                              .kv_heads = 12, .head_dim = 64, .ffn = 3072, .vocab = 50257,
                              .seq = 1024, .tied = true};
    const struct arch llama = {.kind = ARCH_LLAMA, .layers = 32, .hidden = 4096, .heads = 32,
                               .kv_heads = 32, .head_dim = 128, .ffn = 11008, .vocab = 32000,
                               .seq = 4096};
    CHECK_INT(arch_params(&gpt2), 124439808);
    CHECK_INT(arch_params(&llama), 6738415616);
    CHECK_NEAR(arch_part_flops(&gpt2, PART_ATTN, 1024, 1024), 6442450944.0, 0);
    CHECK_NEAR(arch_part_flops(&gpt2, PART_MLP, 1024, 1024), 9663676416.0, 0);
    CHECK_NEAR(arch_part_flops(&llama, PART_MLP, 10, 10), 2.0 * 10 * 3 * 4096 * 11008, 0);
    CHECK_NEAR(arch_part_flops(&gpt2, PART_HEAD, 3, 1024), 2.0 * 3 * 768 * 50257, 0);
    CHECK_NEAR(arch_train_flops_per_token(&gpt2), 854438400.0, 0);
}

static const struct test_case cases[] = {
    {"the costliest stage", stages},
    {"the costliest rank", ranks},
    {"within a rank", within_a_rank},
    {"finer than layers", finer},
    {"layers in order", layers_in_order},
    {"refused", refused},
    {"figures by hand", figures_by_hand},
};
TEST_MAIN(cases)
