/* SPDX-License-Identifier: Apache-2.0
 *
 * The registry's marks of fresh gradients: zero at every reading, whatever the memory holds, and
 * written or added to as they say. That training steps go by them is tested by the layouts of
 * tests/dist, whose gradients hold NaN before every step.
 */
#include "param/param.h"
#include "store.h"
#include "param/param.h"
#include "test.h"

#include <string.h>

/* The block of a llama on one rank of two, with gradients of NaN. */
static void open_store(struct store_rig *r)
{
    *r = (struct store_rig){.split = {.tp = 2}, .stage = {.first = 1, .end = 3}};
    r->model = (struct model){.kind = MODEL_LLAMA, .layers = 1, .hidden = 12, .heads = 4,
                              .kv_heads = 2, .head_dim = 3, .ffn = 10, .vocab = 9, .seq = 4};
    store_rig_open(r, DEV_REF, DT_F64);
    memset(r->store.grad, 0xff, (size_t)(r->store.elements * r->store.at));
    param_grads_reset(&r->store);
}

static const struct param *find(const struct store_rig *r, const char *end)
{
    for (int i = 0; i < r->store.n; i++) {
        const char *name = r->store.param[i].spec.name;
        if (strlen(name) > strlen(end) && !strcmp(name + strlen(name) - strlen(end), end))
            return &r->store.param[i];
    }
    CHECK(false);
    return NULL;
}

static bool all(const struct param *p, double want)
{
    const double *x = param_grad(p);
    bool same = true;
    for (int64_t i = 0; i < p->count; i++)
        same = same && x[i] == want;
    return same;
}

static void first_writes(void)
{
    struct store_rig r;
    open_store(&r);
    const struct param *o = find(&r, "o.weight");
    CHECK(!param_grad_begin(o, o->count)); /* write */
    for (int64_t i = 0; i < o->count; i++)
        ((double *)param_grad(o))[i] = 3;
    CHECK(param_grad_begin(o, o->count)); /* add */
    CHECK_OK(param_grad_settle(o));
    CHECK(all(o, 3)); /* nothing to settle */
    param_grads_reset(&r.store);
    CHECK_OK(param_grad_settle(o));
    CHECK(all(o, 0));
    CHECK(param_grad_begin(o, o->count));
    store_rig_close(&r);
}

/* q, k and v are written by one GEMM. */
static void joined_are_one(void)
{
    struct store_rig r;
    open_store(&r);
    const struct param *q = find(&r, "q.weight"), *k = find(&r, "k.weight");
    const struct param *v = find(&r, "v.weight"), *gate = find(&r, "gate.weight");
    const struct param *up = find(&r, "up.weight");
    CHECK(!param_grad_begin(q, q->count + k->count + v->count));
    CHECK(param_grad_begin(q, q->count + k->count + v->count));
    for (int64_t i = 0; i < q->count + k->count + v->count; i++)
        ((double *)param_grad(q))[i] = 1;
    CHECK_OK(param_grad_settle(k));
    CHECK(all(q, 1) && all(k, 1) && all(v, 1));
    CHECK_OK(param_grad_settle(gate)); /* and up, which lies behind it */
    CHECK(all(gate, 0) && all(up, 0));
    const double *behind = (const double *)param_grad(up) + up->count;
    CHECK(up->offset + up->count == r.store.elements || isnan(*behind));
    store_rig_close(&r);
}

/* One call writes or adds to both, whatever has been done to one of them. */
static void two_of_a_call(void)
{
    struct store_rig r;
    bool add;
    open_store(&r);
    const struct param *o = find(&r, "o.weight"), *down = find(&r, "down.weight");
    int64_t both[] = {o->count, down->count};
    CHECK_OK(param_grads_begin(o, down, both, &add));
    CHECK(!add);
    CHECK_OK(param_grads_begin(o, down, both, &add));
    CHECK(add);
    for (int fresh = 0; fresh < 2; fresh++) {
        param_grads_reset(&r.store);
        CHECK_OK(param_grad_settle(fresh ? o : down));
        CHECK_OK(param_grads_begin(o, down, both, &add));
        CHECK(add && all(o, 0) && all(down, 0));
    }
    param_grads_reset(&r.store);
    CHECK_OK(param_grads_begin(o, NULL, both, &add));
    CHECK(!add);
    store_rig_close(&r);
}

static void read_as_zero(void)
{
    struct store_rig r;
    double x[512];
    open_store(&r);
    for (int i = 0; i < r.store.n; i++) {
        const struct param *p = &r.store.param[i];
        CHECK(p->count > 0 && p->count <= 512);
        CHECK_OK(store_read_grad(p, x));
        for (int64_t j = 0; j < p->count; j++)
            CHECK(x[j] == 0);
    }
    store_rig_close(&r);
}

/* Weights that are written as bf16 are the nearest ones, of two as near the even one. */
static void written_as_the_nearest(void)
{
    static const struct { double value; float held; } c[] = {
        {1, 1}, {1 + 0x1p-9, 1}, {1 + 0x1p-8, 1}, {1 + 0x1.1p-8, 1 + 0x1p-7f},
        {1 + 0x1.8p-7, 1 + 0x1p-6f}, {-3.001, -3}, {-3.0101, -3.015625f}, {0x1.fep8, 0x1.fep8f},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        uint16_t h;
        float f;
        dtype_put(&h, DT_BF16, 0, c[i].value);
        dtype_put(&f, DT_F32, 0, c[i].value);
        CHECK_NEAR(bf16_to_f32(h), c[i].held, 0);
        CHECK_NEAR(f, (float)c[i].value, 0);
    }
}

static const struct test_case cases[] = {{"written as the nearest", written_as_the_nearest},
                                         {"the first of a step writes", first_writes},
                                         {"joined parameters are one", joined_are_one},
                                         {"two of one call", two_of_a_call},
                                         {"a fresh gradient reads as zero", read_as_zero}};
TEST_MAIN(cases)
