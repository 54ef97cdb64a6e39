/* SPDX-License-Identifier: Apache-2.0
 *
 * The law of the project: same seed, any layout, same numbers. One rank on the reference device is
 * the judge; each layout's loss, gradient norm and gradient of every parameter must agree with it,
 * with targets left out unevenly over samples, an odd vocabulary, tied weights and fewer kv heads
 * than heads. Gradients are compared, because Adam hides constant factors.
 */
#include "layout.h"
#include "test.h"

enum { BATCH = 6, SEQ = 8 };

static struct model model(enum model_kind kind, bool tied, double dropout)
{
    bool gpt = kind == MODEL_GPT;
    return (struct model){.kind = kind, .layers = 5, .hidden = 32, .heads = 4,
                          .kv_heads = gpt ? 4 : 2, .head_dim = 8, .ffn = 48, .vocab = 257,
                          .seq = SEQ, .tied = tied, .dropout = dropout, .norm_eps = 1e-5,
                          .rope_theta = 10000, .init_std = 0.2};
}

/* A row of the table: layout in a few numbers. */
struct row { int tp, pp, dp; bool sp; const char *schedule; int64_t microbatch; };

static const struct row rows[] = {
    {1, 1, 1, false, "gpipe", 2},  {1, 1, 1, false, "1f1b", 4},   {2, 1, 1, false, "1f1b", 3},
    {2, 1, 1, true, "1f1b", 2},    {4, 1, 1, false, "1f1b", 6},   {4, 1, 1, true, "1f1b", 2},
    {1, 2, 1, false, "naive", 2},  {1, 2, 1, false, "gpipe", 1},  {1, 2, 1, false, "1f1b", 1},
    {1, 3, 1, false, "1f1b", 4},   {1, 4, 1, false, "1f1b", 6},   {1, 5, 1, false, "gpipe", 4},
    {1, 1, 2, false, "1f1b", 1},   {1, 1, 3, false, "gpipe", 2},  {1, 1, 6, false, "1f1b", 1},
    {2, 2, 1, false, "1f1b", 1},   {2, 2, 1, true, "1f1b", 4},    {2, 1, 2, true, "1f1b", 2},
    {1, 2, 2, false, "1f1b", 2},   {2, 2, 2, false, "1f1b", 1},   {2, 2, 2, true, "gpipe", 2},
    {4, 2, 1, true, "naive", 5},   {1, 5, 2, false, "1f1b", 1},   {2, 3, 1, true, "1f1b", 1},
    {1, 2, 1, false, "dualpipe", 1}, {1, 2, 2, false, "dualpipe", 1},
    {1, 4, 1, false, "dualpipe", 1}, {1, 4, 1, false, "dualpipe", 6},
    {2, 2, 2, true, "dualpipe", 1},  {1, 2, 1, false, "chimera", 2},
    {1, 4, 1, false, "chimera", 1},  {1, 4, 2, false, "chimera", 2},
    {2, 4, 1, true, "chimera", 1},
};
enum { ROWS = sizeof rows / sizeof *rows };

static struct layout layout_of(const struct row *r, const struct model *a)
{
    return (struct layout){.model = *a, .tp = r->tp, .pp = r->pp, .dp = r->dp, .sp = r->sp,
                           .schedule = r->schedule, .batch = BATCH, .microbatch = r->microbatch,
                           .dev = DEV_REF, .ct = DT_F64, .steps = 2, .clip = 0.05};
}

static void name_row(const struct row *r, char buf[96])
{
    snprintf(buf, 96, "tp %d pp %d dp %d%s %s microbatch %lld", r->tp, r->pp, r->dp,
             r->sp ? " sp" : "", r->schedule, (long long)r->microbatch);
}

static void judge(const struct model *a, int steps, struct layout_result *out)
{
    struct row one = {1, 1, 1, false, "naive", BATCH};
    struct layout l = layout_of(&one, a);
    l.steps = steps;
    CHECK_OK(layout_run(&l, out));
    CHECK_INT(out->planned, out->taken);
}

static void compare(const struct row *r, const struct layout *l, const struct layout_result *want,
                    double bound)
{
    struct layout_result got;
    char name[96];
    const char *worst = "";
    name_row(r, name);
    enum err err = layout_run(l, &got);
    if (test_check(err == ERR_OK, __FILE__, __LINE__, "%s: %s (%s)", name, err_text(),
                   err_trace())) {
        double loss = fabs(got.loss - want->loss) / fabs(want->loss);
        double norm = fabs(got.norm - want->norm) / want->norm;
        double grad = layout_difference(want, &got, false, &worst);
        test_check(got.tokens == want->tokens, __FILE__, __LINE__, "%s: tokens", name);
        test_check(loss <= bound && norm <= bound, __FILE__, __LINE__,
                   "%s: loss differs by %g, norm by %g of 1", name, loss, norm);
        test_check(grad <= bound, __FILE__, __LINE__, "%s: gradient of %s differs by %g of 1", name,
                   worst, grad);
        test_check(got.replicas_differ == 0, __FILE__, __LINE__,
                   "%s: %d values of replicated parameters are not the same bits", name,
                   got.replicas_differ);
        test_check(got.planned == got.taken, __FILE__, __LINE__,
                   "%s: %lld bytes planned, %lld taken", name, (long long)got.planned,
                   (long long)got.taken);
    }
    layout_result_free(&got);
}

static void law(enum model_kind kind, bool tied, double dropout)
{
    struct model a = model(kind, tied, dropout);
    struct layout_result want;
    judge(&a, 2, &want);
    for (int i = 0; i < ROWS; i++) {
        struct layout l = layout_of(&rows[i], &a);
        compare(&rows[i], &l, &want, 1e-10);
        l.zero = 1;
        if (l.dp > 1)
            compare(&rows[i], &l, &want, 1e-10);
    }
    layout_result_free(&want);
}

/* The cpu device against the judge: every layout within the bound of its number type. One step:
 * Adam turns the rounding of a gradient near zero into a whole step of the next weights. */
static void law_on_cpu(enum model_kind kind, enum dtype ct, double bound)
{
    struct model a = model(kind, true, 0.1);
    struct layout_result want;
    a.init_std = ct == DT_BF16 ? 0.08 : a.init_std; /* steep softmaxes magnify input rounding */
    if (!dev_built(DEV_CPU)) {
        test_skip("the device is not built in");
        return;
    }
    judge(&a, 1, &want);
    for (int i = 0; i < ROWS; i++) {
        struct layout l = layout_of(&rows[i], &a);
        l.steps = 1;
        l.dev = DEV_CPU;
        l.ct = ct;
        l.threads = 1 + i % 2;
        compare(&rows[i], &l, &want, bound);
        l.zero = 1;
        if (l.dp > 1)
            compare(&rows[i], &l, &want, bound);
    }
    layout_result_free(&want);
}

static void law_cpu_f32_gpt(void) { law_on_cpu(MODEL_GPT, DT_F32, 1e-5); }
static void law_cpu_f32_llama(void) { law_on_cpu(MODEL_LLAMA, DT_F32, 1e-5); }
static void law_cpu_bf16_gpt(void) { law_on_cpu(MODEL_GPT, DT_BF16, 0.05); }
static void law_cpu_bf16_llama(void) { law_on_cpu(MODEL_LLAMA, DT_BF16, 0.05); }

static void law_gpt_tied(void) { law(MODEL_GPT, true, 0); }
static void law_gpt_untied_dropout(void) { law(MODEL_GPT, false, 0.2); }
static void law_llama_tied_dropout(void) { law(MODEL_LLAMA, true, 0.2); }
static void law_llama_untied(void) { law(MODEL_LLAMA, false, 0); }

/* Weights are drawn the same, bit for bit, whatever the layout. */
static void same_init(void)
{
    struct model a = model(MODEL_LLAMA, true, 0);
    struct row one = {1, 1, 1, false, "naive", BATCH};
    struct layout l = layout_of(&one, &a);
    struct layout_result want, got;
    l.steps = 0;
    CHECK_OK(layout_run(&l, &want));
    CHECK(want.param[0].weight[0] != 0 && want.param[0].weight[0] != want.param[0].weight[1]);
    for (int i = 0; i < ROWS; i++) {
        char name[96];
        name_row(&rows[i], name);
        l = layout_of(&rows[i], &a);
        l.steps = 0;
        CHECK_OK(layout_run(&l, &got));
        test_check(layout_same_bits(&want, &got) && got.replicas_differ == 0, __FILE__, __LINE__,
                   "%s: drawn differently", name);
        layout_result_free(&got);
    }
    layout_result_free(&want);
}

/* Lists without a generator yet: interleaved chunks, split backward, both, a V placement. Weight
 * gradients of a stage are added in the same order as in 1f1b, so where the cut is the same the
 * bits are too. */
static const char *const lists[] = {
    /* p 2, m 3, two chunks a rank (stage s on rank s mod 2) */
    "0F0,0F1,2F0,2F1,0F2,2B0,2F2,2B1,0B0,0B1,2B2,0B2\n"
    "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,3F2,1B1,3B2,1B2\n",
    /* p 2, m 3, backward split, weight gradients late */
    "0F0,0F1,0I0,0F2,0I1,0W0,0I2,0W1,0W2\n"
    "1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2\n",
    /* p 2, m 3, V: rank 0 holds stages 0 and 3; B and I, W mixed */
    "0F0,0F1,3F0,3B0,0F2,3F1,3I1,0B0,3W1,3F2,3B2,0I1,0W1,0B2\n"
    "1F0,2F0,1F1,2F1,2I0,1I0,1F2,2F2,2B1,1B1,2W0,1W0,2B2,1B2\n",
};

static void law_of_lists(void)
{
    static const enum model_kind kinds[] = {MODEL_GPT, MODEL_LLAMA};
    static const int chunks[] = {2, 1, 2};
    for (int k = 0; k < 2; k++) {
        struct model a = model(kinds[k], true, 0.1);
        struct layout_result want;
        judge(&a, 2, &want);
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
            for (int tp = 1; tp <= 2; tp++) {
                struct row r = {tp, 2, 1, tp == 2, "list", 2};
                struct layout l = layout_of(&r, &a);
                l.text = lists[i];
                l.v = chunks[i];
                compare(&r, &l, &want, 1e-10);
            }
        layout_result_free(&want);
    }
}

/* Schedules only move work in time: with the same microbatches they give the same bits. */
static void same_bits(enum dev_kind dev, enum dtype ct)
{
    static const char *const names[] = {"naive", "gpipe", "1f1b", NULL};
    struct model a = model(MODEL_GPT, true, 0.1);
    struct layout_result first, other;
    if (!dev_built(dev)) {
        test_skip("the device is not built in");
        return;
    }
    for (int i = 0; i < 4; i++) {
        struct row r = {2, 2, 1, true, names[i], 2};
        struct layout l = layout_of(&r, &a);
        l.dev = dev;
        l.ct = ct;
        l.text = names[i] ? NULL : lists[1];
        CHECK_OK(layout_run(&l, i ? &other : &first));
        if (i) {
            test_check(layout_same_bits(&first, &other), __FILE__, __LINE__,
                       "%s does not give the bits of naive",
                       names[i] ? names[i] : "split backward");
            layout_result_free(&other);
        }
    }
    layout_result_free(&first);
}

/* Data ranks that shard the optimizer add and update element by element as those that do not, where
 * nothing is clipped: after three steps the same bits, in less memory. */
static void shared_updates(enum dev_kind dev, enum dtype ct)
{
    struct model a = model(MODEL_GPT, true, 0.1);
    if (!dev_built(dev)) {
        test_skip("the device is not built in");
        return;
    }
    for (int i = 0; i < ROWS; i++) {
        struct layout_result want, got;
        struct layout l = layout_of(&rows[i], &a);
        char name[96];
        if (l.dp == 1)
            continue;
        l.dev = dev;
        l.ct = ct;
        l.steps = 3;
        l.clip = 0;
        CHECK_OK(layout_run(&l, &want));
        l.zero = 1;
        CHECK_OK(layout_run(&l, &got));
        name_row(&rows[i], name);
        test_check(layout_same_bits(&want, &got) && got.replicas_differ == 0, __FILE__, __LINE__,
                   "%s: other bits with zero 1, loss %.12g and %.12g", name, want.loss, got.loss);
        test_check(got.planned == got.taken && got.taken < want.taken, __FILE__, __LINE__,
                   "%s: %lld bytes planned, %lld taken, %lld not shared", name,
                   (long long)got.planned, (long long)got.taken, (long long)want.taken);
        layout_result_free(&want);
        layout_result_free(&got);
    }
}

static void shared_ref(void) { shared_updates(DEV_REF, DT_F64); }
static void shared_cpu_f32(void) { shared_updates(DEV_CPU, DT_F32); }
static void shared_cpu_bf16(void) { shared_updates(DEV_CPU, DT_BF16); }
static void same_bits_ref(void) { same_bits(DEV_REF, DT_F64); }
static void same_bits_cpu_f32(void) { same_bits(DEV_CPU, DT_F32); }
static void same_bits_cpu_bf16(void) { same_bits(DEV_CPU, DT_BF16); }

static const struct test_case cases[] = {
    {"same_init", same_init},
    {"law_of_lists", law_of_lists},
    {"same_bits_ref", same_bits_ref},
    {"same_bits_cpu_f32", same_bits_cpu_f32},
    {"same_bits_cpu_bf16", same_bits_cpu_bf16},
    {"shared_ref", shared_ref},
    {"shared_cpu_f32", shared_cpu_f32},
    {"shared_cpu_bf16", shared_cpu_bf16},
    {"law_gpt_tied", law_gpt_tied},
    {"law_gpt_untied_dropout", law_gpt_untied_dropout},
    {"law_llama_tied_dropout", law_llama_tied_dropout},
    {"law_llama_untied", law_llama_untied},
    {"law_cpu_f32_gpt", law_cpu_f32_gpt},
    {"law_cpu_f32_llama", law_cpu_f32_llama},
    {"law_cpu_bf16_gpt", law_cpu_bf16_gpt},
    {"law_cpu_bf16_llama", law_cpu_bf16_llama},
};
TEST_MAIN(cases)
