/* SPDX-License-Identifier: Apache-2.0
 *
 * The law for a model of other layers: a perceptron 12-20-9-7-5 with ReLU and softmax cross
 * entropy, whose boundaries differ in width. Its judge is from outside: two steps of backward
 * and AdamW as they stand in a book, in double, from the weights that were drawn.
 */
#include "layout.h"
#include "test.h"

enum { BATCH = 12, LAYERS = 4, WIDEST = 20, STEPS = 2 };
static const int64_t width[LAYERS + 1] = {12, 20, 9, 7, 5};

static struct layout layout_of(void)
{
    struct layout l = {.model = {.kind = MODEL_MLP, .layers = LAYERS, .hidden = WIDEST, .heads = 1,
                                 .kv_heads = 1, .head_dim = 1, .ffn = WIDEST, .vocab = 5, .seq = 1},
                       .tp = 1, .pp = 1, .dp = 1, .schedule = "naive", .batch = BATCH,
                       .microbatch = BATCH, .dev = DEV_REF, .ct = DT_F64, .steps = STEPS,
                       .clip = 0.05, .eps = 1e-3};
    memcpy(l.model.width, width, sizeof width);
    return l;
}

/* ---- by hand ---- */

struct hand {
    double w[LAYERS][WIDEST][WIDEST], b[LAYERS][WIDEST]; /* [layer][out][in] */
    double dw[LAYERS][WIDEST][WIDEST], db[LAYERS][WIDEST];
    double loss;
    int64_t count;
};

static const struct layout_param *find(const struct layout_result *r, int layer, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "fc%d.%s", layer + 1, what);
    for (int i = 0; i < r->params; i++)
        if (strcmp(r->param[i].spec.name, name) == 0)
            return &r->param[i];
    return NULL;
}

static void take_weights(const struct layout_result *r, struct hand *h)
{
    for (int k = 0; k < LAYERS; k++) {
        const struct layout_param *w = find(r, k, "weight"), *b = find(r, k, "bias");
        CHECK(w && b && w->count == width[k] * width[k + 1] && b->count == width[k + 1]);
        for (int64_t i = 0; i < width[k + 1]; i++) {
            h->b[k][i] = b->weight[i];
            for (int64_t j = 0; j < width[k]; j++)
                h->w[k][i][j] = w->weight[i * width[k] + j];
        }
    }
}

/* Loss and gradients of one sample, added. */
static void add_sample(struct hand *h, const struct layout *l, int64_t sample)
{
    double a[LAYERS + 1][WIDEST], z[LAYERS][WIDEST], d[WIDEST], sum = 0;
    int32_t class = layout_class(l, sample);
    if (class < 0)
        return;
    for (int64_t j = 0; j < width[0]; j++)
        a[0][j] = (double)layout_row(sample, j);
    for (int k = 0; k < LAYERS; k++)
        for (int64_t i = 0; i < width[k + 1]; i++) {
            z[k][i] = h->b[k][i];
            for (int64_t j = 0; j < width[k]; j++)
                z[k][i] += h->w[k][i][j] * a[k][j];
            a[k + 1][i] = z[k][i] > 0 ? z[k][i] : 0;
        }
    for (int64_t i = 0; i < width[LAYERS]; i++)
        sum += exp(z[LAYERS - 1][i]);
    h->loss += log(sum) - z[LAYERS - 1][class];
    h->count++;
    for (int64_t i = 0; i < width[LAYERS]; i++)
        d[i] = exp(z[LAYERS - 1][i]) / sum - (i == class);
    for (int k = LAYERS - 1; k >= 0; k--) {
        double before[WIDEST] = {0};
        for (int64_t i = 0; i < width[k + 1]; i++) {
            h->db[k][i] += d[i];
            for (int64_t j = 0; j < width[k]; j++) {
                h->dw[k][i][j] += d[i] * a[k][j];
                before[j] += d[i] * h->w[k][i][j];
            }
        }
        for (int64_t j = 0; j < width[k] && k > 0; j++)
            d[j] = z[k - 1][j] > 0 ? before[j] : 0;
    }
}

static double far(const struct layout_result *r, const struct hand *h)
{
    double most = 0;
    for (int k = 0; k < LAYERS; k++)
        for (int64_t i = 0; i < width[k + 1]; i++) {
            most = fmax(most, fabs(find(r, k, "bias")->grad[i] - h->db[k][i]));
            for (int64_t j = 0; j < width[k]; j++)
                most = fmax(most, fabs(find(r, k, "weight")->grad[i * width[k] + j] -
                                       h->dw[k][i][j]));
        }
    return most;
}

/* The gradients of each step are those of the weights that the step before left. */
static void by_hand(void)
{
    struct layout l = layout_of();
    struct layout_result before, after;
    for (int step = 1; step <= STEPS; step++) {
        static struct hand h;
        h = (struct hand){.loss = 0};
        l.steps = step - 1;
        CHECK_OK(layout_run(&l, &before));
        l.steps = step;
        CHECK_OK(layout_run(&l, &after));
        take_weights(&before, &h);
        for (int64_t s = 0; s < BATCH; s++)
            add_sample(&h, &l, (step - 1) * BATCH + s);
        CHECK_INT(after.tokens, h.count);
        CHECK_NEAR(after.loss, h.loss / (double)h.count, 1e-13);
        CHECK(far(&after, &h) < 1e-12);
        layout_result_free(&before);
        layout_result_free(&after);
    }
}

/* He's deviations (He et al. 2015), and the head's for no ReLU behind it. */
static void drawn_weights(void)
{
    struct layout l = layout_of();
    struct layout_result r;
    l.steps = 0;
    CHECK_OK(layout_run(&l, &r));
    for (int k = 0; k < LAYERS; k++) {
        const struct layout_param *w = find(&r, k, "weight"), *b = find(&r, k, "bias");
        double squares = 0, want = (k == LAYERS - 1 ? 1.0 : 2.0) / (double)width[k];
        for (int64_t i = 0; i < w->count; i++)
            squares += w->weight[i] * w->weight[i];
        CHECK_NEAR(squares / (double)w->count / want, 1.0, 0.5);
        for (int64_t i = 0; i < b->count; i++)
            CHECK(b->weight[i] == 0);
    }
    layout_result_free(&r);
}

/* ---- the law ---- */

/* Layers: 0 input, 1 fc1, 2 relu1, 3 fc2, 4 relu2, 5 fc3, 6 relu3, 7 fc4. */
struct row {
    int pp, dp, v;
    const char *schedule;
    int64_t microbatch, first[7];
    bool recompute;
    int every;
};
static const struct row rows[] = {
    {.pp = 1, .dp = 1, .schedule = "gpipe", .microbatch = 5},
    {.pp = 1, .dp = 2, .schedule = "1f1b", .microbatch = 4},
    {.pp = 1, .dp = 3, .schedule = "1f1b", .microbatch = 2},
    {.pp = 2, .dp = 1, .schedule = "1f1b", .microbatch = 3, .first = {3}},
    {.pp = 2, .dp = 2, .schedule = "1f1b", .microbatch = 1, .first = {4}},
    {.pp = 2, .dp = 1, .schedule = "gpipe", .microbatch = 5, .first = {1}},
    {.pp = 2, .dp = 1, .schedule = "zb-h1", .microbatch = 2, .first = {2}},
    {.pp = 2, .dp = 2, .schedule = "zb-h2", .microbatch = 1, .first = {7}},
    {.pp = 2, .dp = 1, .schedule = "1f1b", .microbatch = 2, .first = {5}, .recompute = true},
    {.pp = 1, .dp = 2, .schedule = "1f1b", .microbatch = 2, .every = 1},
    {.pp = 2, .dp = 1, .schedule = "gpipe", .microbatch = 2, .first = {5}, .every = 2},
    {.pp = 3, .dp = 1, .schedule = "1f1b", .microbatch = 4, .first = {2, 3}},
    {.pp = 4, .dp = 1, .schedule = "1f1b", .microbatch = 1, .first = {2, 4, 6}},
    {.pp = 8, .dp = 1, .schedule = "1f1b", .microbatch = 2, .first = {1, 2, 3, 4, 5, 6, 7}},
    {.pp = 8, .dp = 1, .schedule = "zb-h1", .microbatch = 1, .first = {1, 2, 3, 4, 5, 6, 7}},
    {.pp = 2, .dp = 1, .v = 2, .schedule = "interleaved", .microbatch = 2, .first = {1, 3, 5}},
    {.pp = 2, .dp = 1, .v = 2, .schedule = "zb-v", .microbatch = 2, .first = {2, 5, 7}},
    {.pp = 2, .dp = 1, .v = 2, .schedule = "zb-v", .microbatch = 2, .first = {1, 2, 5}},
    {.pp = 2, .dp = 2, .v = 2, .schedule = "v-half", .microbatch = 1, .first = {3, 4, 6}},
    {.pp = 2, .dp = 1, .v = 2, .schedule = "dualpipev", .microbatch = 3, .first = {1, 4, 7}},
    {.pp = 2, .dp = 1, .schedule = "dualpipe", .microbatch = 3, .first = {3}},
    {.pp = 2, .dp = 1, .schedule = "chimera", .microbatch = 3, .first = {4}},
};

static void law(enum dev_kind dev, enum dtype ct, int steps, double bound)
{
    struct layout one = layout_of();
    struct layout_result want, got;
    if (!dev_built(dev)) {
        test_skip("the device is not built in");
        return;
    }
    one.steps = steps;
    CHECK_OK(layout_run(&one, &want));
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i / 2];
        struct layout l = one;
        const char *worst = "";
        l.pp = r->pp;
        l.dp = r->dp;
        l.v = r->v;
        l.schedule = r->schedule;
        l.microbatch = r->microbatch;
        l.first = r->pp > 1 ? r->first : NULL;
        l.recompute = r->recompute;
        l.every = r->every;
        l.zero = i % 2;
        l.rehearsed = true; /* which leaves no trace */
        l.dev = dev;
        l.ct = ct;
        if (l.zero && l.dp == 1)
            continue;
        enum err err = layout_run(&l, &got);
        if (!test_check(err == ERR_OK, __FILE__, __LINE__, "row %d: %s (%s)", (int)i / 2,
                        err_text(), err_trace()))
            continue;
        double grad = layout_difference(&want, &got, false, &worst);
        test_check(fabs(got.loss - want.loss) <= bound * want.loss && got.tokens == want.tokens,
                   __FILE__, __LINE__, "row %d: loss %.17g, wanted %.17g", (int)i / 2, got.loss,
                   want.loss);
        test_check(grad <= bound, __FILE__, __LINE__, "row %d: gradient of %s differs by %g",
                   (int)i / 2, worst, grad);
        test_check(got.planned == got.taken, __FILE__, __LINE__, "row %d: %lld planned, %lld taken",
                   (int)i / 2, (long long)got.planned, (long long)got.taken);
        layout_result_free(&got);
    }
    layout_result_free(&want);
}

static void any_layout(void) { law(DEV_REF, DT_F64, 2, 1e-10); }
static void any_layout_on_cpu(void) { law(DEV_CPU, DT_F32, 1, 2e-5); }
static void any_layout_in_bf16(void) { law(DEV_CPU, DT_BF16, 1, 0.05); }

static const struct test_case cases[] = {
    {"by hand", by_hand},
    {"drawn weights", drawn_weights},
    {"any layout", any_layout},
    {"any layout, cpu", any_layout_on_cpu},
    {"any layout, bf16", any_layout_in_bf16},
};
TEST_MAIN(cases)
