/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning rates at the corners and in the middle of each curve. The optimizer's step itself is
 * held against one by hand in tests/dist/test_edges.c; here, that it makes few calls of the device,
 * to the bits of one call a parameter.
 */
#include "optim/optim.h"
#include "store.h"
#include "test.h"

#include <string.h>

/* By hand: peak 8, least 4. A decay over four steps goes 8, 7, 6, 5 and would reach 4 behind them;
 * cos of 0, 45, 90 and 135 degrees is 1, sqrt(1/2), 0, -sqrt(1/2). */
static void by_hand(void)
{
    const double h = sqrt(0.5);
    const struct {
        struct lr l;
        double rate[6];
    } row[] = {
        {{LR_CONSTANT, 8, 0, 0, 3, 0}, {8, 8, 8}},
        {{LR_CONSTANT, 8, 0, 2, 3, 0}, {4, 8, 8}},
        {{LR_LINEAR, 8, 4, 0, 4, 0}, {8, 7, 6, 5}},
        {{LR_LINEAR, 8, 4, 2, 6, 0}, {4, 8, 8, 7, 6, 5}},
        {{LR_COSINE, 8, 4, 0, 4, 0}, {8, 6 + 2 * h, 6, 6 - 2 * h}},
        {{LR_COSINE, 8, 4, 1, 5, 0}, {8, 8, 6 + 2 * h, 6, 6 - 2 * h}},
        {{LR_WSD, 8, 4, 1, 6, 4}, {8, 8, 8, 7, 6, 5}},
        {{LR_WSD, 8, 4, 1, 6, 2}, {8, 8, 8, 8, 8, 6}},
        {{LR_WSD, 8, 4, 2, 6, 9}, {4, 8, 8, 7, 6, 5}}, /* the decay is longer than what is left */
        {{LR_WSD, 8, 4, 0, 2, 0}, {8, 8}},
        {{LR_COSINE, 8, 4, 0, 1, 0}, {8}},
        {{LR_LINEAR, 8, 4, 4, 4, 0}, {2, 4, 6, 8}}, /* the warm-up is the run */
        {{LR_COSINE, 8, 4, 9, 4, 0}, {2, 4, 6, 8}}, /* and longer than it */
        {{LR_WSD, 8, 4, 9, 2, 5}, {4, 8}},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int64_t step = 1; step <= row[i].l.steps; step++) {
            double lr = lr_at(&row[i].l, step);
            test_check(fabs(lr - row[i].rate[step - 1]) < 1e-14, __FILE__, __LINE__,
                       "row %d, step %d: %.17g for %.17g", (int)i, (int)step, lr,
                       row[i].rate[step - 1]);
        }
}

/* The rates of a run, one from the one before: rise by peak / warm-up, fall by an equal share of
 * the way, or turn by an equal angle. */
static void course(const struct lr *l, double *rate)
{
    int64_t rise = l->warmup < l->steps ? l->warmup : l->steps, fall = l->steps - rise;
    if (l->kind == LR_CONSTANT)
        fall = 0;
    if (l->kind == LR_WSD && l->decay < fall)
        fall = l->decay;
    double turn = fall ? acos(-1.0) / (double)fall : 0, x = 1, y = 0, now = 0;
    for (int64_t s = 0; s < l->steps; s++) {
        int64_t into = s - (l->steps - fall); /* steps of the fall that lie behind */
        if (s < rise)
            now += l->peak / (double)rise;
        else if (into <= 0)
            now = l->peak;
        else
            now -= (l->peak - l->least) / (double)fall;
        if (into > 0) {
            double next = x * cos(turn) - y * sin(turn);
            y = x * sin(turn) + y * cos(turn);
            x = next;
        }
        rate[s] = l->kind == LR_COSINE && into > 0
                      ? (l->peak + l->least + (l->peak - l->least) * x) / 2 : now;
    }
}

static void every_course(void)
{
    enum { MOST = 40 };
    double rate[MOST];
    for (int64_t steps = 1; steps <= MOST; steps += steps < 6 ? 1 : 17) {
        const int64_t length[] = {0, 1, 2, steps / 2, steps - 1, steps, steps + 1, 3 * steps};
        for (int i = 0; i < 4 * 8 * 8; i++) {
            struct lr l = {.kind = (enum lr_kind)(i / 64), .peak = 3e-3, .least = 2e-4,
                           .warmup = length[i / 8 % 8], .steps = steps, .decay = length[i % 8]};
            course(&l, rate);
            for (int64_t step = 1; step <= steps; step++)
                test_check(fabs(lr_at(&l, step) - rate[step - 1]) < 1e-15, __FILE__, __LINE__,
                           "kind %d steps %d warmup %d decay %d, step %d: %.17g for %.17g",
                           (int)l.kind, (int)steps, (int)l.warmup, (int)l.decay, (int)step,
                           lr_at(&l, step), rate[step - 1]);
        }
    }
}

/* ---- calls ---- */

enum { REPLICAS = 3 };
static int updates, squares; /* calls */
static const struct dev_ops *real;

static enum err count(struct dev *d, const struct op *op)
{
    updates += op->kind == OP_ADAMW;
    squares += op->kind == OP_SUMSQ;
    return real->run(d, op);
}

/* Embedding and `blocks` blocks of a gpt on a tensor rank, q, k and v joined at odd addresses. */
static void open_store(struct store_rig *r, int64_t blocks, enum dev_kind kind, enum dtype ct)
{
    *r = (struct store_rig){.split = {.tp = 2}, .stage = {.end = 1 + 2 * blocks}, .tp_rank = 1};
    r->model = (struct model){.kind = MODEL_GPT, .layers = blocks, .hidden = 30, .heads = 2,
                              .kv_heads = 2, .head_dim = 15, .ffn = 62, .vocab = 31, .seq = 5,
                              .norm_eps = 1e-5, .init_std = 0.1};
    store_rig_open(r, kind, ct);
    CHECK_OK(param_init(&r->store, 5, 1));
    for (int i = 0; i < r->store.n; i++) {
        const struct param *p = &r->store.param[i];
        for (int64_t j = 0; j < p->count; j++) {
            double x = num_normal(6, (uint64_t)i, j);
            if (r->store.at == 8)
                ((double *)param_grad(p))[j] = x;
            else
                ((float *)param_grad(p))[j] = (float)x;
        }
    }
}

static struct optim optim_of(struct store_rig *r, struct param_store **store, double *scalars)
{
    return (struct optim){.rule = {0.9, 0.95, 1e-8, 0.3, 0.01},
                          .dev = r->dev,
                          .store = store,
                          .stores = 1,
                          .sums = scalars,
                          .step_scalars = scalars + SUMS_COUNT,
                          .replica = 1,
                          .replicas = REPLICAS};
}

/* The same step with one call a parameter, on a store that was opened the same way. */
static double by_parameter(struct store_rig *r, const struct optim *o)
{
    struct dev *d = r->dev;
    double square = 0, tokens = 7;
    for (int i = 0; i < r->store.n; i++) {
        const struct param *p = &r->store.param[i];
        const struct dev_ranges share = {1, {p->count / 256 * 1 / REPLICAS * 256,
                                            p->count / 256 * 2 / REPLICAS * 256}};
        if (p->counted)
            CHECK_OK(dev_sumsq(
                d, &(struct sumsq){&square, param_grad(p), &share, dev_ranges_count(&share)}));
    }
    double norm = sqrt(square) / tokens;
    double step_scalars[SCALAR_COUNT] = {0.1, 1 - o->rule.beta1, 1 - o->rule.beta2,
                                         (o->rule.clip / norm) / tokens};
    for (int i = 0; i < r->store.n; i++) {
        const struct param *p = &r->store.param[i];
        const struct dev_ranges decays = {1, {0, p->spec.decay ? p->count : 0}};
        struct adamw a = {.w = param_w(p), .m = r->store.m + p->offset * r->store.at,
                          .v = r->store.v + p->offset * r->store.at, .grad = param_grad(p),
                          .n = p->count, .beta1 = o->rule.beta1, .beta2 = o->rule.beta2,
                          .eps = o->rule.eps, .decay = o->rule.decay, .decays = &decays,
                          .step_scalars = step_scalars};
        a.master = r->store.master == r->store.w ? NULL : param_master(p);
        CHECK_OK(dev_adamw(d, &a));
    }
    return norm;
}

static bool same(const struct store_rig *a, const struct store_rig *b)
{
    size_t ct = (size_t)(a->store.elements * a->store.ct);
    size_t at = (size_t)(a->store.elements * a->store.at);
    return !memcmp(a->store.w, b->store.w, ct) && !memcmp(a->store.m, b->store.m, at) &&
           !memcmp(a->store.v, b->store.v, at) &&
           (a->store.master == a->store.w || !memcmp(a->store.master, b->store.master, at));
}

static void calls_of(int64_t blocks, enum dev_kind kind, enum dtype ct)
{
    struct store_rig r, alone;
    struct param_store *store = &r.store;
    double scalars[SUMS_COUNT + SCALAR_COUNT] = {0};
    struct optim_result got;
    open_store(&r, blocks, kind, ct);
    open_store(&alone, blocks, kind, ct);
    struct optim o = optim_of(&r, &store, scalars);
    real = r.dev->ops;
    struct dev_ops counting = *real;
    counting.run = count;
    r.dev->ops = &counting;
    updates = squares = 0;
    struct optim_step step = {.step = 1, .lr = 0.1, .tokens = 7};
    double landed[SUMS_COUNT];
    CHECK_OK(optim_ready(&o, &step));
    CHECK_OK(optim_norm(&o, NULL));
    CHECK_OK(optim_update(&o, store, 0));
    CHECK_OK(optim_land(&o, landed));
    CHECK_OK(r.dev->ops->sync(r.dev));
    CHECK_OK(optim_judge(&step, landed, &got));
    r.dev->ops = real;
    CHECK_NEAR(got.grad_norm, by_parameter(&alone, &o), 0);
    CHECK(same(&r, &alone));
    int most = (int)num_ceil_div(r.store.n, DEV_RANGES);
    CHECK(updates >= 1 && updates <= most);
    CHECK(squares >= 1 && squares <= most);
    CHECK(blocks == 1 || (updates > 1 && squares > 1)); /* or this is no test of many */
    store_rig_close(&r);
    store_rig_close(&alone);
}

static void few_calls(void)
{
    calls_of(1, DEV_REF, DT_F64);
    calls_of(130, DEV_REF, DT_F64);
    calls_of(130, DEV_CPU, DT_F32);
    calls_of(130, DEV_CPU, DT_BF16);
}

/* However many replicas share the squares, together they square each counted element once. */
static void replicas_square_all(void)
{
    struct store_rig r;
    struct param_store *store = &r.store;
    double scalars[SUMS_COUNT + SCALAR_COUNT] = {0}, all = 0;
    open_store(&r, 2, DEV_REF, DT_F64);
    for (int i = 0; i < r.store.n; i++)
        for (int64_t j = 0; r.store.param[i].counted && j < r.store.param[i].count; j++)
            all += pow(((double *)param_grad(&r.store.param[i]))[j], 2);
    for (int n = 1; n <= 5; n++) {
        double sum = 0;
        for (int k = 0; k < n; k++) {
            double sums[SUMS_COUNT];
            struct optim o = optim_of(&r, &store, scalars);
            o.replica = k;
            o.replicas = n;
            CHECK_OK(optim_sums(&o, &(struct optim_step){.step = 1, .tokens = 1}, NULL, sums));
            sum += sums[SUMS_SQUARES];
        }
        CHECK_NEAR(sum, all, 1e-10 * all);
    }
    store_rig_close(&r);
}

static const struct test_case cases[] = {{"learning rates by hand", by_hand},
                                         {"learning rates of every course", every_course},
                                         {"few calls, the bits of one a parameter", few_calls},
                                         {"replicas square all", replicas_square_all}};
TEST_MAIN(cases)
