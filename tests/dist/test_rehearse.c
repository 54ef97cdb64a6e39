/* SPDX-License-Identifier: Apache-2.0
 *
 * A rehearsal leaves no trace: steps behind one have the same bits as steps without, for every way
 * a stage is run. (It runs on devices that queue; that these then load nothing amid a step can be
 * seen on a GPU only.)
 */
#include "layout.h"

#include "test.h"

static const struct row {
    const char *schedule;
    int tp, pp, dp, v;
    bool sp, recompute;
    int64_t microbatch;
} rows[] = {
    {"naive", 1, 1, 1, 1, false, false, 6},      {"1f1b", 1, 1, 1, 1, false, false, 4},
    {"1f1b", 1, 2, 1, 1, false, false, 4},       {"gpipe", 1, 2, 1, 1, false, true, 1},
    {"interleaved", 1, 2, 1, 2, false, false, 1}, {"zb-h1", 1, 2, 1, 1, false, false, 4},
    {"zb-v", 1, 2, 1, 2, false, false, 1},       {"dualpipev", 1, 2, 1, 2, false, false, 1},
    {"chimera", 1, 2, 1, 1, false, false, 1},    {"1f1b", 2, 1, 1, 1, true, true, 4},
    {"1f1b", 2, 2, 1, 1, false, false, 2},       {"zb-h1", 1, 1, 2, 1, false, false, 2},
};

static void same_bits(enum arch_kind kind, enum dev_kind dev, enum dtype ct)
{
    struct arch a = {.kind = kind, .layers = 4, .hidden = 24, .heads = 4,
                     .kv_heads = kind == ARCH_LLAMA ? 2 : 4, .head_dim = 6, .ffn = 40, .vocab = 37,
                     .seq = 8, .tied = kind == ARCH_GPT, .dropout = 0.1, .norm_eps = 1e-5,
                     .rope_theta = 10000, .init_std = 0.08};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        struct layout_result plain, rehearsed;
        struct layout l = {.arch = a, .tp = r->tp, .pp = r->pp, .dp = r->dp, .v = r->v, .sp = r->sp,
                           .recompute = r->recompute, .schedule = r->schedule, .batch = 6,
                           .microbatch = r->microbatch, .dev = dev, .ct = ct, .threads = 1,
                           .steps = 2, .clip = 0.05};
        CHECK_OK(layout_run(&l, &plain));
        l.rehearsed = true;
        CHECK_OK(layout_run(&l, &rehearsed));
        test_check(layout_same_bits(&plain, &rehearsed), __FILE__, __LINE__,
                   "%s tp %d pp %d dp %d: other bits behind a rehearsal", r->schedule, r->tp, r->pp,
                   r->dp);
        layout_result_free(&plain);
        layout_result_free(&rehearsed);
    }
}

static void gpt_ref(void) { same_bits(ARCH_GPT, DEV_REF, DT_F64); }
static void llama_ref(void) { same_bits(ARCH_LLAMA, DEV_REF, DT_F64); }
static void gpt_bf16(void) { same_bits(ARCH_GPT, DEV_CPU, DT_BF16); }

static const struct test_case cases[] = {
    {"gpt, ref", gpt_ref}, {"llama, ref", llama_ref}, {"gpt, cpu bf16", gpt_bf16}};
TEST_MAIN(cases)
