/* SPDX-License-Identifier: Apache-2.0
 *
 * The law of test_law.c at the edges of what is legal: shards of the vocabulary that are short or
 * empty, one kv head, rows of one token, a model of one layer and one of many, microbatches, data
 * ranks and whole steps in which no token counts, and runs of many steps, where the weights are
 * compared too.
 */
#include "layout.h"
#include "test.h"

#include "exec/exec.h"

enum { TOKENS_MAX = 4096 };

/* A model's departures from the usual, the layout, and the data. Zeros: as usual. */
struct edge {
    const char *name;
    enum model_kind kind;
    int64_t layers, heads, kv_heads, vocab, seq;
    bool tied;
    int tp, pp, dp;
    bool sp;
    const char *schedule;
    int64_t batch, microbatch;
    int steps;
    bool (*counts)(int64_t sample, int64_t t); /* NULL: the harness's uneven choice */
};

static int64_t or(int64_t x, int64_t usual)
{
    return x ? x : usual;
}

static struct layout layout_of(const struct edge *e)
{
    int64_t heads = or(e->heads, 4);
    struct model a = {.kind = e->kind, .layers = or(e->layers, 2), .hidden = 8 * heads,
                      .heads = heads, .kv_heads = e->kind == MODEL_GPT ? heads : or(e->kv_heads, 2),
                      .head_dim = 8, .ffn = 48, .vocab = or(e->vocab, 257), .seq = or(e->seq, 8),
                      .tied = e->tied, .dropout = 0.1, .norm_eps = 1e-5, .rope_theta = 10000,
                      .init_std = 0.2};
    return (struct layout){.model = a, .tp = e->tp, .pp = e->pp, .dp = e->dp, .sp = e->sp,
                           .schedule = e->schedule ? e->schedule : "1f1b",
                           .batch = or(e->batch, 6), .microbatch = or(e->microbatch, 2),
                           .dev = DEV_REF, .ct = DT_F64, .steps = (int)or(e->steps, 2),
                           .clip = 0.05, .eps = 1e-3};
}

static bool first_sample(int64_t sample, int64_t t)
{
    (void)t;
    return sample == 0;
}

static bool one_token(int64_t sample, int64_t t)
{
    return sample == 3 && t == 5;
}

static bool not_first_half(int64_t sample, int64_t t)
{
    (void)t;
    return sample >= 3;
}

static bool no_token(int64_t sample, int64_t t)
{
    (void)sample;
    (void)t;
    return false;
}

static const struct edge edges[] = {
    {"three rows over four ranks", MODEL_GPT, .vocab = 5, .tied = true, .tp = 4, .pp = 2, .dp = 1},
    {"three rows over four ranks", MODEL_LLAMA, .vocab = 5, .tp = 4, .pp = 1, .dp = 2, .sp = true},
    {"an empty shard", MODEL_LLAMA, .heads = 8, .kv_heads = 8, .vocab = 9, .tied = true, .tp = 8,
     .pp = 1, .dp = 1, .sp = true},
    {"one row a rank", MODEL_GPT, .vocab = 4, .tied = true, .tp = 4, .pp = 1, .dp = 1},
    {"one kv head", MODEL_LLAMA, .kv_heads = 1, .tp = 2, .pp = 1, .dp = 2, .sp = true},
    {"one kv head", MODEL_LLAMA, .kv_heads = 1, .tp = 4, .pp = 2, .dp = 2, .tied = true},
    {"two kv heads over eight ranks", MODEL_LLAMA, .heads = 8, .kv_heads = 2, .tp = 8, .pp = 1,
     .dp = 2, .sp = true},
    {"tied over all axes", MODEL_GPT, .layers = 4, .tied = true, .tp = 2, .pp = 4, .dp = 2,
     .sp = true, .batch = 8, .microbatch = 1},
    {"rows of one token", MODEL_GPT, .seq = 1, .tied = true, .tp = 2, .pp = 2, .dp = 2},
    {"rows of one token", MODEL_LLAMA, .seq = 1, .tp = 4, .pp = 1, .dp = 3},
    {"a batch of one", MODEL_LLAMA, .batch = 1, .microbatch = 1, .tp = 2, .pp = 2, .dp = 1,
     .sp = true},
    {"one layer", MODEL_GPT, .layers = 1, .tied = true, .tp = 2, .pp = 1, .dp = 3, .sp = true},
    {"many layers", MODEL_LLAMA, .layers = 40, .tied = true, .tp = 1, .pp = 1, .dp = 2},
    {"a ragged end over all axes", MODEL_GPT, .batch = 10, .microbatch = 2, .tp = 2, .pp = 2,
     .dp = 2, .sp = true, .tied = true},
    {"microbatches without a counted token", MODEL_GPT, .tp = 2, .pp = 2, .dp = 1, .microbatch = 1,
     .steps = 1, .counts = first_sample},
    {"data ranks without a counted token", MODEL_LLAMA, .tp = 1, .pp = 2, .dp = 3, .steps = 1,
     .counts = first_sample, .tied = true},
    {"one counted token", MODEL_LLAMA, .tp = 2, .pp = 1, .dp = 2, .sp = true, .steps = 1,
     .counts = one_token},
    {"the first data rank without a counted token", MODEL_GPT, .tp = 1, .pp = 1, .dp = 2,
     .steps = 1, .counts = not_first_half},
    {"twenty steps", MODEL_GPT, .tp = 2, .pp = 2, .dp = 2, .sp = true, .tied = true, .steps = 20},
};

static void fill_targets(const struct edge *e, const struct layout *l, int32_t *tokens,
                         int32_t *targets)
{
    for (int64_t s = 0; s < l->batch; s++)
        for (int64_t t = 0; t < l->model.seq; t++) {
            int64_t i = s * l->model.seq + t;
            tokens[i] = (int32_t)((i * 31 + s) % l->model.vocab);
            targets[i] = e->counts(s, t) ? (int32_t)((i * 17 + 3) % l->model.vocab) : -1;
        }
}

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    return most;
}

/* Largest difference of gradients or weights, of 1, and whose. A parameter whose gradient is zero
 * in exact arithmetic (a key bias; q and k where a row sees one token) shows rounding alone, so
 * the scale is never less than a thousandth of the largest of all. */
static double difference(const struct layout_result *a, const struct layout_result *b, bool weights,
                         const char **worst)
{
    double most = 0, all = 0;
    for (int i = 0; i < a->params; i++) {
        const struct layout_param *p = &a->param[i];
        all = fmax(all, largest(weights ? p->weight : p->grad, p->count));
    }
    for (int i = 0; i < a->params; i++) {
        const double *x = weights ? a->param[i].weight : a->param[i].grad;
        const double *y = weights ? b->param[i].weight : b->param[i].grad;
        double scale = fmax(largest(x, a->param[i].count), 1e-3 * all);
        for (int64_t j = 0; j < a->param[i].count; j++)
            if (!(fabs(x[j] - y[j]) <= most * scale)) {
                most = isfinite(y[j]) ? fabs(x[j] - y[j]) / scale : INFINITY;
                *worst = a->param[i].spec.name;
            }
    }
    return most;
}

static void compare(const struct edge *e, const struct layout *l, const struct layout_result *want,
                    double bound)
{
    struct layout_result got;
    const char *grad = "", *weight = "";
    enum err err = layout_run(l, &got);
    if (test_check(err == ERR_OK, __FILE__, __LINE__, "%s: %s (%s)", e->name, err_text(),
                   err_trace())) {
        double loss = fabs(got.loss - want->loss), norm = fabs(got.norm - want->norm) / want->norm;
        double far = difference(want, &got, false, &grad);
        double moved = difference(want, &got, true, &weight);
        test_check(loss <= bound && norm <= bound && got.tokens == want->tokens, __FILE__, __LINE__,
                   "%s: loss differs by %g, norm by %g of 1, %lld tokens and not %lld", e->name,
                   loss, norm, (long long)got.tokens, (long long)want->tokens);
        test_check(far <= bound, __FILE__, __LINE__, "%s: gradient of %s differs by %g of 1",
                   e->name, grad, far);
        test_check(moved <= bound, __FILE__, __LINE__, "%s: weight of %s differs by %g of 1",
                   e->name, weight, moved);
        test_check(got.replicas_differ == 0 && got.planned == got.taken, __FILE__, __LINE__,
                   "%s: %d replicas differ; %lld bytes planned, %lld taken", e->name,
                   got.replicas_differ, (long long)got.planned, (long long)got.taken);
    }
    layout_result_free(&got);
}

/* Every edge on a device against one rank of the reference device. */
static void law(enum dev_kind dev, enum dtype ct, double bound)
{
    static int32_t tokens[TOKENS_MAX], targets[TOKENS_MAX];
    if (!dev_built(dev)) {
        test_skip("the device is not built in");
        return;
    }
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        const struct edge *e = &edges[i];
        struct layout l = layout_of(e), one;
        struct layout_result want;
        if (e->counts) {
            fill_targets(e, &l, tokens, targets);
            l.tokens = tokens;
            l.targets = targets;
        }
        one = l;
        one.tp = one.pp = one.dp = 1;
        one.sp = false;
        one.schedule = "naive";
        one.microbatch = one.batch;
        l.dev = dev;
        l.ct = ct;
        CHECK_OK(layout_run(&one, &want));
        for (l.zero = 0; l.zero <= (l.dp > 1); l.zero++)
            compare(e, &l, &want, bound);
        layout_result_free(&want);
    }
}

static void law_at_edges(void) { law(DEV_REF, DT_F64, 1e-10); }
static void law_at_edges_cpu(void) { law(DEV_CPU, DT_F32, 2e-4); }

/* A step in which no token counts has loss and norm 0, and weights that only decay. */
static void nothing_counts(void)
{
    static int32_t tokens[TOKENS_MAX], targets[TOKENS_MAX];
    struct edge e = {"nothing counts", MODEL_GPT, .tp = 2, .pp = 2, .dp = 2, .sp = true,
                     .steps = 1, .tied = true, .counts = no_token};
    struct layout l = layout_of(&e);
    struct layout_result before, after;
    fill_targets(&e, &l, tokens, targets);
    l.tokens = tokens;
    l.targets = targets;
    CHECK_OK(layout_run(&l, &after));
    l.steps = 0;
    CHECK_OK(layout_run(&l, &before));
    CHECK(after.loss == 0 && after.norm == 0 && after.tokens == 0);
    for (int i = 0; i < after.params; i++) {
        const struct layout_param *b = &before.param[i], *a = &after.param[i];
        double factor = b->spec.decay ? 1 - 1e-3 * 0.1 : 1, most = 0;
        for (int64_t j = 0; j < b->count; j++)
            most = fmax(most, fabs(a->weight[j] - factor * b->weight[j]));
        test_check(most <= 1e-15, __FILE__, __LINE__, "%s moved by %g", b->spec.name, most);
    }
    layout_result_free(&before);
    layout_result_free(&after);
}

/* Two steps of AdamW on the host, from the gathered gradients of a run on all axes: the norm is
 * that of the whole gradient, clipping and the mean over tokens scale it once, matrices alone
 * decay. */
static void steps_by_hand(void)
{
    const double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, decay = 0.1;
    struct edge e = {"steps by hand", MODEL_GPT, .tp = 2, .pp = 2, .dp = 2, .sp = true,
                     .tied = true};
    struct layout_result r[3];
    double mean[3] = {0}; /* factor from a gathered gradient to what the moments take */
    struct layout l = layout_of(&e);
    for (l.steps = 0; l.steps < 3; l.steps++)
        CHECK_OK(layout_run(&l, &r[l.steps]));
    for (int s = 1; s < 3; s++) {
        double sum = 0, norm;
        for (int i = 0; i < r[s].params; i++)
            for (int64_t j = 0; j < r[s].param[i].count; j++)
                sum += r[s].param[i].grad[j] * r[s].param[i].grad[j];
        norm = sqrt(sum) / (double)r[s].tokens;
        CHECK_NEAR(r[s].norm, norm, 1e-12 * norm);
        CHECK(norm > l.clip);
        mean[s] = l.clip / norm / (double)r[s].tokens;
    }
    for (int i = 0; i < r[0].params; i++) {
        const struct layout_param *p0 = &r[0].param[i], *p1 = &r[1].param[i], *p2 = &r[2].param[i];
        double most = 0, shrink = p0->spec.decay ? lr * decay : 0;
        for (int64_t j = 0; j < p0->count; j++) {
            double g1 = mean[1] * p1->grad[j], g2 = mean[2] * p2->grad[j];
            double m1 = (1 - beta1) * g1, v1 = (1 - beta2) * g1 * g1;
            double m2 = beta1 * m1 + (1 - beta1) * g2, v2 = beta2 * v1 + (1 - beta2) * g2 * g2;
            double w1 = p0->weight[j] * (1 - shrink) -
                        lr * m1 / (1 - beta1) / (sqrt(v1 / (1 - beta2)) + l.eps);
            double w2 = w1 * (1 - shrink) - lr * m2 / (1 - beta1 * beta1) /
                                                (sqrt(v2 / (1 - beta2 * beta2)) + l.eps);
            most = fmax(most, fmax(fabs(w1 - p1->weight[j]), fabs(w2 - p2->weight[j])));
        }
        test_check(most <= 1e-13, __FILE__, __LINE__, "%s is off by %g", p0->spec.name, most);
    }
    for (int s = 0; s < 3; s++)
        layout_result_free(&r[s]);
}

/* No two places of a model draw one mask: the law cannot see that, for its judge would repeat
 * itself too. That no two steps do is in test_record.c. */
static void masks_differ(void)
{
    struct model a = {.layers = 5, .dropout = 0.3};
    struct stage s = {.model = &a, .seed = 9};
    uint32_t number = 3;
    struct stage_mb mb = {.training = true, .row0 = 40, .step = &number};
    uint32_t stream[64];
    int n = 0;
    for (int64_t at = 0; at < model_layers(&a) - 1; at++) /* all but the head */
        for (int site = 0; site < SITE_COUNT; site++) {
            struct stage_part p = {.layer = model_layer(&a, at)};
            struct stage_call c = {.s = &s, .p = &p, .mb = &mb};
            struct drop first = stage_drop(&c, site);
            CHECK(first.step == &number); /* read when the mask is drawn */
            CHECK(first.p == 0.3 && first.seed == 9 && first.row0 == 40);
            for (int i = 0; i < n; i++)
                test_check(stream[i] != first.stream, __FILE__, __LINE__,
                           "layer %lld, site %d repeats a stream", (long long)at, site);
            stream[n++] = first.stream;
        }
    CHECK_INT(n, SITE_COUNT * (1 + 2 * a.layers));
}

static enum err open_alone(void *arg, struct comm_world *w)
{
    struct mesh one;
    struct exec *x;
    (void)arg;
    TRY(mesh_make((int[]){1, 1, 1, 1, 1}, &one));
    return exec_open(&(struct exec_args){.mesh = &one, .world = w}, &x);
}

/* A launcher that nobody asked: two ranks must not each train the whole model. */
static void ranks_fit_the_layout(void)
{
    CHECK_ERR(comm_thread_run(2, 60, open_alone, NULL), ERR_CONFIG,
              "ranks started: 2, but the layout has 1");
}

/* Three stages on a rank, whose sums are more than a group may have unfinished. */
static void many_sums(void)
{
    struct edge e = {.kind = MODEL_LLAMA, .layers = 36, .tp = 1, .pp = 1, .dp = 2, .batch = 4,
                     .microbatch = 1, .steps = 2};
    for (int zero = 0; zero <= 1; zero++) {
        struct layout l = layout_of(&e), one = l;
        struct layout_result got = {0}, want = {0};
        const char *worst = "";
        one.dp = 1;
        l.schedule = "interleaved";
        l.v = 3;
        l.zero = zero;
        CHECK_OK(layout_run(&one, &want));
        if (CHECK(layout_run(&l, &got) == ERR_OK)) {
            double d = layout_difference(&want, &got, false, &worst);
            test_check(d < 1e-9, __FILE__, __LINE__, "%s differs by %g", worst, d);
        } else {
            CHECK_STR(err_text(), "");
        }
        layout_result_free(&want);
        layout_result_free(&got);
    }
}

/* All ranks learn how many of them ask to stop, and how many have written their part. */
static void what_ranks_say(void)
{
    for (int i = 0; i < 4; i++) {
        struct edge e = {.kind = MODEL_GPT, .tp = 2, .pp = 1 + i / 2, .dp = 2, .batch = 6,
                         .microbatch = 1, .steps = 2};
        struct layout l = layout_of(&e);
        struct layout_result r = {0};
        l.zero = i % 2;
        l.stop = (unsigned[]){0, 2, 5, 0}[i];
        l.saved = (unsigned[]){0xf, 0xb, 0, 1}[i];
        CHECK_OK(layout_run(&l, &r));
        test_check(r.misheard == 0, __FILE__, __LINE__, "way %d: %d misheard", i, r.misheard);
        layout_result_free(&r);
    }
}

#ifdef TEST_CHUNK_ROWS
/* This program is the one whose head is cut: a build that no longer says so is a law less. */
static void the_head_is_cut(void)
{
    struct layout l = layout_of(&edges[0]);
    struct dtypes types = {.ct = l.ct, .at = DT_F64, .logits = DT_F64,
                           .chunk = INT64_C(1) << 28};
    struct layer head = model_layer(&l.model, model_layers(&l.model) - 1);
    struct model_dims d;
    model_dims(&head, &(struct model_split){.tp = 1}, l.microbatch, &types, &d);
    CHECK_INT(d.chunk, TEST_CHUNK_ROWS);
    CHECK(d.chunk < d.n);
}
#endif

static const struct test_case cases[] = {
#ifdef TEST_CHUNK_ROWS
    {"the_head_is_cut", the_head_is_cut},
#endif
    {"ranks_fit_the_layout", ranks_fit_the_layout},
    {"masks_differ", masks_differ},
    {"steps_by_hand", steps_by_hand},
    {"law_at_edges", law_at_edges},
    {"law_at_edges_cpu", law_at_edges_cpu},
    {"nothing_counts", nothing_counts},
    {"many_sums", many_sums},
    {"what_ranks_say", what_ranks_say},
};
TEST_MAIN(cases)
