/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of whole models against finite differences of their loss, in f64 and with dropout: the
 * mask of a step is a function of seed, step and index, so the loss is a smooth function of the
 * weights, and a backward with another mask than the forward's is another function's gradient.
 *
 * The bound. With d(h) = (L(w + h) - L(w - h)) / 2h, the combination (4 d(h/2) - d(h)) / 3 leaves
 * an error of fourth order: next to nothing of the second-order one, of which d(h/2) - d(h) is
 * three quarters. What rounding makes of L, some tens of units in its last place, is divided by h.
 */
#include "layout.h"
#include "test.h"

#include <float.h>

enum { ELEMENTS = 3, SEQ = 5, BATCH = 3 };

static const double step_of_w = 4e-3, ulps = 64, left_over = 1e-2;

static struct { const char *name; int64_t at; double by; } moved; /* one element of the weights */

static void weights(const struct model_param *p, double *values)
{
    for (int64_t i = 0; i < p->shape[0] * p->shape[1]; i++) {
        double u = 2 * num_uniform(5, num_hash(p->name), i) - 1;
        values[i] = p->role == PARAM_NORM_W ? 1 + 0.2 * u : p->shape[1] > 1 ? 0.5 * u : 0.3 * u;
    }
    if (moved.name && strcmp(moved.name, p->name) == 0)
        values[moved.at] += moved.by;
}

static struct layout layout_of(const struct model *a)
{
    return (struct layout){.model = *a, .tp = 1, .pp = 1, .dp = 1, .schedule = "1f1b",
                           .batch = BATCH, .microbatch = 2, .dev = DEV_REF, .ct = DT_F64,
                           .steps = 1, .weights = weights};
}

static double loss_at(const struct model *a, const char *name, int64_t at, double by)
{
    struct layout l = layout_of(a);
    struct layout_result r;
    moved.name = name;
    moved.at = at;
    moved.by = by;
    CHECK_OK(layout_run(&l, &r));
    double loss = r.loss;
    layout_result_free(&r);
    moved.name = NULL;
    return loss;
}

static double slope(const struct model *a, const char *name, int64_t at, double h)
{
    return (loss_at(a, name, at, h) - loss_at(a, name, at, -h)) / (2 * h);
}

/* Its largest element, and drawn ones. */
static int64_t element(const struct layout_param *p, int i)
{
    int64_t most = 0;
    if (i > 0)
        return test_range(0, p->count - 1);
    for (int64_t j = 0; j < p->count; j++)
        most = fabs(p->grad[j]) > fabs(p->grad[most]) ? j : most;
    return most;
}

static void check_param(const struct model *a, const struct layout_result *r,
                        const struct layout_param *p)
{
    for (int i = 0; i < ELEMENTS; i++) {
        int64_t at = element(p, i);
        double h = step_of_w, wide = slope(a, p->spec.name, at, h);
        double half = slope(a, p->spec.name, at, h / 2), want = (4 * half - wide) / 3;
        double got = p->grad[at] / (double)r->tokens;
        double bound = ulps * DBL_EPSILON * r->loss / h + left_over * fabs(half - wide);
        test_check(fabs(got - want) <= bound, __FILE__, __LINE__,
                   "%s[%lld]: gradient %.12g, finite differences %.12g, more than %g apart",
                   p->spec.name, (long long)at, got, want, bound);
    }
}

static void check_model(const struct model *a)
{
    struct layout l = layout_of(a);
    struct layout_result r;
    CHECK_OK(layout_run(&l, &r));
    CHECK(r.params > 15 && r.tokens > 0);
    for (int i = 0; i < r.params; i++)
        check_param(a, &r, &r.param[i]);
    layout_result_free(&r);
}

static struct model gpt_of(double dropout, bool tied)
{
    return (struct model){.kind = MODEL_GPT, .layers = 2, .hidden = 6, .heads = 2, .kv_heads = 2,
                          .head_dim = 3, .ffn = 7, .vocab = 11, .seq = SEQ, .tied = tied,
                          .dropout = dropout, .norm_eps = 0.01, .init_std = 0.02};
}

static struct model llama_of(double dropout, bool tied)
{
    return (struct model){.kind = MODEL_LLAMA, .layers = 2, .hidden = 6, .heads = 4, .kv_heads = 2,
                          .head_dim = 4, .ffn = 7, .vocab = 11, .seq = SEQ, .tied = tied,
                          .dropout = dropout, .norm_eps = 0.01, .rope_theta = 20,
                          .init_std = 0.02};
}

static void gpt(void)
{
    struct model tied = gpt_of(0.3, true), dry = gpt_of(0, false);
    check_model(&tied);
    check_model(&dry);
}

static void llama(void)
{
    struct model untied = llama_of(0.3, false), dry = llama_of(0, true);
    check_model(&untied);
    check_model(&dry);
}

/* Or the cases above prove nothing of masks. */
static void dropout_is_on(void)
{
    struct model none = gpt_of(0, true), some = gpt_of(0.3, true);
    CHECK(fabs(loss_at(&none, NULL, 0, 0) - loss_at(&some, NULL, 0, 0)) > 1e-3);
}

static const struct test_case cases[] = {
    {"gpt", gpt}, {"llama", llama}, {"dropout_is_on", dropout_is_on}};
TEST_MAIN(cases)
