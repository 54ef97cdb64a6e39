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

static void curves(void)
{
    struct lr l = {.peak = 3, .least = 1, .warmup = 4, .steps = 23, .decay = 7};
    for (int kind = LR_CONSTANT; kind <= LR_WSD; kind++) {
        l.kind = (enum lr_kind)kind;
        CHECK_NEAR(lr_at(&l, 1), 0.75, 1e-15);
        CHECK_NEAR(lr_at(&l, 4), 3, 1e-15);
    }
    l.kind = LR_CONSTANT;
    CHECK_NEAR(lr_at(&l, 14), 3, 1e-15);
    l.kind = LR_LINEAR;
    CHECK_NEAR(lr_at(&l, 9), 2.5, 1e-15);
    CHECK_NEAR(lr_at(&l, 14), 2, 1e-15);
    l.kind = LR_COSINE;
    CHECK_NEAR(lr_at(&l, 9), 2 + sqrt(0.5), 1e-15);
    CHECK_NEAR(lr_at(&l, 14), 2, 1e-15);
    l.kind = LR_WSD;
    CHECK_NEAR(lr_at(&l, 16), 3, 1e-15);
    CHECK_NEAR(lr_at(&l, 20), 2, 1e-15);
    CHECK_NEAR(lr_at(&l, 17), 2.75, 1e-15);
    CHECK_NEAR(lr_at(&l, 23), 1.25, 1e-15);
}

/* With the defaults, a least of 0 and no warm-up: every step moves, none at the peak of the one
 * before, and the steps go down evenly around the middle. */
static void no_step_is_wasted(void)
{
    for (int kind = LR_LINEAR; kind <= LR_WSD; kind++)
        for (int64_t n = 1; n <= 20; n++) {
            struct lr l = {.kind = (enum lr_kind)kind, .peak = 2, .steps = n, .decay = n};
            for (int64_t step = 1; step <= n; step++) {
                double lr = lr_at(&l, step), before = step > 1 ? lr_at(&l, step - 1) : l.peak;
                CHECK(lr > 0 && lr < before);
                CHECK_NEAR(lr + lr_at(&l, n + 1 - step), l.peak, 1e-14);
            }
        }
}

/* No warm-up, and a warm-up that is the whole run. */
static void ends(void)
{
    struct lr l = {.kind = LR_COSINE, .peak = 2, .steps = 1};
    CHECK_NEAR(lr_at(&l, 1), 1, 1e-15);
    l.kind = LR_CONSTANT;
    CHECK_NEAR(lr_at(&l, 1), 2, 1e-15);
    l = (struct lr){.kind = LR_LINEAR, .peak = 2, .warmup = 5, .steps = 5};
    CHECK_NEAR(lr_at(&l, 5), 2, 1e-15);
}

/* ---- calls ---- */

enum { REPLICAS = 3 };
static int updates, squares; /* calls */
static const struct dev_ops *real;

static enum err adamw(struct dev *d, const struct adamw *a)
{
    updates++;
    return real->adamw(d, a);
}

static enum err sumsq(struct dev *d, double *out, const void *x, const struct dev_parts *of)
{
    squares++;
    return real->sumsq(d, out, x, of);
}

/* Embedding and `blocks` blocks of a gpt on a tensor rank, q, k and v joined at odd addresses. */
static void open_store(struct store_rig *r, int64_t blocks, enum dev_kind kind, enum dtype ct)
{
    *r = (struct store_rig){.split = {.tp = 2}, .stage = {.embed = true, .blocks = blocks},
                            .tp_rank = 1};
    r->arch = (struct arch){.kind = ARCH_GPT, .layers = blocks, .hidden = 30, .heads = 2,
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
    return (struct optim){.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.3, .clip = 0.01,
                          .dev = r->dev, .store = store, .stores = 1, .sums = scalars,
                          .now = scalars + SUMS_COUNT, .replica = 1, .replicas = REPLICAS};
}

/* The same step with one call a parameter, on a store that was opened the same way. */
static double by_parameter(struct store_rig *r, const struct optim *o)
{
    struct dev *d = r->dev;
    double square = 0, tokens = 7;
    for (int i = 0; i < r->store.n; i++) {
        const struct param *p = &r->store.param[i];
        const struct dev_parts share = {1, {p->count / 256 * 1 / REPLICAS * 256,
                                            p->count / 256 * 2 / REPLICAS * 256}};
        if (p->counted)
            CHECK_OK(d->ops->sumsq(d, &square, param_grad(p), &share));
    }
    double norm = sqrt(square) / tokens;
    double now[NOW_COUNT] = {0.1, 1 - o->beta1, 1 - o->beta2, (o->clip / norm) / tokens};
    for (int i = 0; i < r->store.n; i++) {
        const struct param *p = &r->store.param[i];
        const struct dev_parts decays = {1, {0, p->spec.decay ? p->count : 0}};
        struct adamw a = {.w = param_w(p), .m = r->store.m + p->offset * r->store.at,
                          .v = r->store.v + p->offset * r->store.at, .grad = param_grad(p),
                          .n = p->count, .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps,
                          .decay = o->decay, .decays = &decays, .now = now};
        a.master = r->store.master == r->store.w ? NULL : param_master(p);
        CHECK_OK(d->ops->adamw(d, &a));
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
    double scalars[SUMS_COUNT + NOW_COUNT] = {0};
    struct optim_result got;
    open_store(&r, blocks, kind, ct);
    open_store(&alone, blocks, kind, ct);
    struct optim o = optim_of(&r, &store, scalars);
    real = r.dev->ops;
    struct dev_ops counting = *real;
    counting.adamw = adamw;
    counting.sumsq = sumsq;
    r.dev->ops = &counting;
    updates = squares = 0;
    CHECK_OK(optim_run(&o, &(struct optim_step){.step = 1, .lr = 0.1, .tokens = 7}, &got));
    r.dev->ops = real;
    CHECK_NEAR(got.grad_norm, by_parameter(&alone, &o), 0);
    CHECK(same(&r, &alone));
    int most = (int)num_ceil_div(r.store.n, DEV_PARTS);
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

static const struct test_case cases[] = {{"curves", curves}, {"ends", ends},
                                         {"no_step_is_wasted", no_step_is_wasted},
                                         {"few calls, the bits of one a parameter", few_calls}};
TEST_MAIN(cases)
