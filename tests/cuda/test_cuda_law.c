/* SPDX-License-Identifier: Apache-2.0
 *
 * The law on GPUs: loss and gradient of every parameter against the judge, one rank of ref;
 * schedules give the same bits; a run done again gives the same bits. Where a layout has more ranks
 * than there are GPUs, all of them share the first. One model is small and odd, so that kernels
 * take their plain ways; one has rows, heads and lengths of whole blocks, so that they take the
 * fast ones.
 */
#include "gpus.h"
#include "layout.h"

#include "base/mem.h"
#include "test.h"

enum { BATCH = 4, GPUS_MAX = 4 };

/* GPUs that can be opened, at most GPUS_MAX; asked once. */
static int gpus(void)
{
    static int known = -1;
    if (known < 0)
        known = gpus_here(GPUS_MAX);
    return known;
}

static struct model model(enum model_kind kind, bool whole, double dropout)
{
    struct model a = {.kind = kind, .layers = 4, .hidden = 24, .heads = 4, .kv_heads = 4,
                      .head_dim = 6, .ffn = 40, .vocab = 37, .seq = 8, .tied = true,
                      .dropout = dropout, .norm_eps = 1e-5, .rope_theta = 10000, .init_std = 0.08};
    if (whole) {
        a.hidden = 256;
        a.head_dim = 64;
        a.ffn = 512;
        a.vocab = 515;
        a.seq = 128;
    }
    if (kind == MODEL_LLAMA)
        a.kv_heads = 2;
    return a;
}

struct row {
    int tp, pp, dp, v;
    bool sp;
    const char *schedule;
    int64_t microbatch, tp_rows;
};

static const struct row rows[] = {
    {1, 1, 1, 1, false, "naive", 4, 0},        {1, 1, 1, 1, false, "1f1b", 1, 0},
    {2, 1, 1, 1, false, "1f1b", 2, 0},         {2, 1, 1, 1, true, "1f1b", 2, 0},
    {1, 1, 2, 1, false, "1f1b", 1, 0},         {1, 2, 1, 1, false, "gpipe", 1, 0},
    {1, 2, 1, 1, false, "1f1b", 1, 0},         {1, 2, 1, 2, false, "interleaved", 1, 0},
    {1, 2, 1, 1, false, "zb-h1", 1, 0},        {1, 2, 1, 2, false, "zb-v", 1, 0},
    {1, 2, 1, 2, false, "dualpipev", 1, 0},    {2, 2, 1, 1, true, "1f1b", 1, 0},
    {1, 4, 1, 1, false, "zb-h1", 1, 0},        {1, 2, 2, 1, false, "1f1b", 1, 0},
    /* overlapped tensor-parallel communication, in pieces of a few rows and in one */
    {2, 1, 1, 1, false, "1f1b", 3, 5}, {2, 1, 1, 1, true, "1f1b", 2, 5},
    {4, 1, 1, 1, false, "1f1b", 2, 3}, {4, 1, 1, 1, true, "1f1b", 2, 3},
    {2, 2, 1, 1, true, "zb-h1", 1, 3}, {2, 1, 1, 1, true, "1f1b", 2, 1 << 30},
    {1, 1, 4, 1, false, "1f1b", 1, 0}, {2, 1, 2, 1, true, "1f1b", 1, 3},
    /* two replicas of a stage */
    {1, 2, 1, 1, false, "dualpipe", 1, 0},     {1, 4, 1, 1, false, "chimera", 1, 0},
    /* eight ranks */
    {2, 2, 2, 1, true, "zb-h1", 1, 3},         {4, 1, 2, 1, true, "1f1b", 1, 3},
    {4, 2, 1, 2, false, "zb-v", 1, 0},         {1, 4, 2, 1, false, "1f1b", 1, 0},
    {2, 4, 1, 1, true, "1f1b", 1, 3},          {1, 2, 4, 1, false, "gpipe", 1, 0},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Rehearsed, as training is: what loads kernels amid messages waits for all of the GPU, and peers
 * wait for it. */
static struct layout layout_of(const struct row *r, const struct model *a, enum dtype ct)
{
    return (struct layout){.model = *a, .tp = r->tp, .pp = r->pp, .dp = r->dp, .v = r->v,
                           .sp = r->sp, .schedule = r->schedule, .batch = BATCH,
                           .microbatch = r->microbatch, .dev = DEV_CUDA, .ct = ct, .threads = 1,
                           .tp_rows = r->tp_rows, .steps = 1, .clip = 0.05,
                           .shares_gpu = r->tp * r->pp * r->dp > gpus(), .rehearsed = true};
}

static void judge(const struct model *a, struct layout_result *out)
{
    struct row one = {1, 1, 1, 1, false, "naive", BATCH, 0};
    struct layout l = layout_of(&one, a, DT_F64);
    l.dev = DEV_REF;
    l.rehearsed = false;
    CHECK_OK(layout_run(&l, out));
}

/* Most that gradients may differ. In bf16 tensor ranks round what each sums, and then the sum: on
 * the CPU the model of whole blocks is 0.052 away with two of them and 0.055 with four. */
static double bound_of(const struct row *r, enum dtype ct)
{
    if (ct == DT_F32)
        return 2e-5;
    return r->tp > 1 ? 0.07 : 0.05;
}

static void compare(const struct row *r, int zero, const struct model *a, enum dtype ct,
                    const struct layout_result *want)
{
    const char *worst = "";
    struct layout_result got;
    struct layout l = layout_of(r, a, ct);
    l.zero = zero;
    CHECK_OK(layout_run(&l, &got));
    double d = layout_difference(want, &got, false, &worst);
    double loss = fabs(want->loss - got.loss) / want->loss, bound = bound_of(r, ct);
    printf("     tp %d pp %d dp %d%s %s %s%s%s: gradients within %.2g (%s), loss %.2g\n", r->tp,
           r->pp, r->dp, zero ? " zero 1" : "", r->schedule, r->tp_rows ? "beside " : "",
           dtype_name(ct), l.shares_gpu ? " on one GPU" : "", d, worst, loss);
    test_check(d <= bound && loss <= bound && got.planned == got.taken &&
                   got.replicas_differ == 0, __FILE__, __LINE__,
               "%s tp %d pp %d dp %d zero %d: gradient of %s differs by %g, loss by %g, bound %g",
               r->schedule, r->tp, r->pp, r->dp, zero, worst, d, loss, bound);
    layout_result_free(&got);
}

static void law(enum model_kind kind, bool whole, double dropout, enum dtype ct)
{
    struct model a = model(kind, whole, dropout);
    struct layout_result want;
    if (gpus() == 0) {
        test_skip("no GPU");
        return;
    }
    judge(&a, &want);
    for (int i = 0; i < ROWS; i++)
        for (int zero = 0; zero <= (rows[i].dp > 1); zero++)
            compare(&rows[i], zero, &a, ct, &want);
    layout_result_free(&want);
}

static void gpt_f32(void) { law(MODEL_GPT, false, 0.1, DT_F32); }
static void llama_f32(void) { law(MODEL_LLAMA, false, 0.1, DT_F32); }
static void gpt_whole_f32(void) { law(MODEL_GPT, true, 0, DT_F32); }
static void llama_whole_f32(void) { law(MODEL_LLAMA, true, 0.1, DT_F32); }
static void gpt_bf16(void) { law(MODEL_GPT, false, 0.1, DT_BF16); }
static void llama_bf16(void) { law(MODEL_LLAMA, false, 0.1, DT_BF16); }
static void gpt_whole_bf16(void) { law(MODEL_GPT, true, 0, DT_BF16); }
static void llama_whole_bf16(void) { law(MODEL_LLAMA, true, 0, DT_BF16); }

/* A deterministic device, again and with another schedule: the same bits. */
static void same_bits(void)
{
    static const char *const names[] = {"1f1b", "1f1b", "gpipe"};
    struct layout_result first = {0}, got;
    struct model a = model(MODEL_GPT, true, 0);
    a.tied = false; /* on one rank, head and embedding add to one gradient in the list's order */
    if (gpus() == 0) {
        test_skip("no GPU");
        return;
    }
    for (int i = 0; i < 3; i++) {
        struct row r = {1, 2, 1, 1, false, names[i], 1, 0};
        struct layout l = layout_of(&r, &a, DT_BF16);
        l.deterministic = true;
        CHECK_OK(layout_run(&l, i ? &got : &first));
        if (i)
            test_check(layout_same_bits(&first, &got), __FILE__, __LINE__,
                       "%s, time %d: other bits than 1f1b before", names[i], i);
        if (i)
            layout_result_free(&got);
    }
    layout_result_free(&first);
}

/* Five steps of which four are replays, against five queued call by call: the same bits. */
static void replay(const struct row *r, int zero, const struct model *a, enum dtype ct)
{
    struct layout_result want, got;
    struct layout l = layout_of(r, a, ct);
    l.steps = 5;
    l.zero = zero;
    l.deterministic = true;
    CHECK_OK(layout_run(&l, &want));
    l.recorded = 2;
    CHECK_OK(layout_run(&l, &got));
    test_check(layout_same_bits(&want, &got) && got.replayed == 4 && got.replicas_differ == 0,
               __FILE__, __LINE__,
               "%s tp %d pp %d dp %d zero %d %s: %lld replays, loss %.9g, without %.9g",
               r->schedule, r->tp, r->pp, r->dp, zero, dtype_name(ct), (long long)got.replayed,
               got.loss, want.loss);
    layout_result_free(&want);
    layout_result_free(&got);
}

/* On every layout that the GPUs here allow. */
static void recorded(enum model_kind kind, bool whole, double dropout, enum dtype ct)
{
    struct model a = model(kind, whole, dropout);
    int here = gpus(), ran = 0;
    if (here == 0) {
        test_skip("no GPU");
        return;
    }
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].tp * rows[i].pp * rows[i].dp > here)
            continue;
        for (int zero = 0; zero <= (rows[i].dp > 1); zero++)
            replay(&rows[i], zero, &a, ct);
        ran++;
    }
    printf("     %d of %d layouts\n", ran, ROWS);
}

static void recorded_gpt_f32(void) { recorded(MODEL_GPT, false, 0.1, DT_F32); }
static void recorded_llama_bf16(void) { recorded(MODEL_LLAMA, false, 0.1, DT_BF16); }
static void recorded_gpt_bf16(void) { recorded(MODEL_GPT, true, 0, DT_BF16); }
static void recorded_llama_whole_bf16(void) { recorded(MODEL_LLAMA, true, 0, DT_BF16); }

static const struct test_case cases[] = {
    {"gpt, odd, dropout, f32", gpt_f32},       {"llama, odd, dropout, f32", llama_f32},
    {"gpt, whole blocks, f32", gpt_whole_f32}, {"llama, whole blocks, f32", llama_whole_f32},
    {"gpt, odd, dropout, bf16", gpt_bf16},     {"llama, odd, dropout, bf16", llama_bf16},
    {"gpt, whole blocks, bf16", gpt_whole_bf16},
    {"llama, whole blocks, bf16", llama_whole_bf16},
    {"same bits again and by another schedule", same_bits},
    {"replays: gpt odd f32", recorded_gpt_f32},
    {"replays: llama odd bf16", recorded_llama_bf16},
    {"replays: gpt whole bf16", recorded_gpt_bf16},
    {"replays: llama whole bf16", recorded_llama_whole_bf16},
};
TEST_MAIN(cases)
