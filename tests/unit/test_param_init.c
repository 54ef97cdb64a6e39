/* SPDX-License-Identifier: Apache-2.0
 *
 * First weights: what the formula says, one number at a time, whatever the number of threads, in
 * parameters of several pieces, of columns, with rows that only fill up.
 */
#include "param/param_state.h"
#include "store.h"
#include "test.h"

#include <string.h>

enum { HIDDEN = 4200, WORDS = 1001 }; /* the second half of the embedding is of two pieces */

/* The second tensor rank of two: embedding and a block of a gpt. */
static void open_store(struct store_rig *r, enum dev_kind kind, enum dtype ct)
{
    *r = (struct store_rig){.split = {.tp = 2}, .stage = {.end = 3}, .tp_rank = 1};
    r->model = (struct model){.kind = MODEL_GPT, .layers = 3, .hidden = HIDDEN, .heads = 4,
                              .kv_heads = 4, .head_dim = 3, .ffn = 8, .vocab = WORDS, .seq = 4,
                              .init_std = 0.02};
    store_rig_open(r, kind, ct);
}

/* Element i of the local box. */
static double formula(const struct param *p, uint64_t seed, int64_t i)
{
    int64_t row = i / p->box.local[1], col = i % p->box.local[1];
    if (row >= p->box.real[0] || p->spec.init == INIT_ZERO)
        return 0;
    if (p->spec.init == INIT_ONE)
        return 1;
    int64_t at = (p->box.at[0] + row) * p->spec.shape[1] + p->box.at[1] + col;
    return num_normal(seed, num_hash(p->spec.name), at) * p->spec.std;
}

static void weights_with(int threads)
{
    struct store_rig r;
    int64_t most = 0, filling = 0;
    open_store(&r, DEV_CPU, DT_BF16);
    CHECK_OK(param_init(&r.store, 3, threads));
    for (int i = 0; i < r.store.n; i++) {
        const struct param *p = &r.store.param[i];
        const float *master = param_master(p);
        const uint16_t *w = param_w(p);
        int64_t wrong = 0;
        for (int64_t j = 0; j < p->count; j++) {
            float want = (float)formula(p, 3, j);
            wrong += memcmp(&master[j], &want, sizeof want) != 0 || w[j] != bf16_from_f32(want);
        }
        CHECK_INT(wrong, 0);
        most = num_max(most, p->count);
        filling += p->box.local[0] - p->box.real[0];
    }
    CHECK(most > 2 << 20 && filling == 1); /* or this is no test of pieces, or of filling */
    store_rig_close(&r);
}

static void one_thread(void)
{
    weights_with(1);
}

static void several_threads(void)
{
    weights_with(2);
    weights_with(5);
}

/* More than any parameter has slices for. */
static void many_threads(void)
{
    weights_with(100);
}

static void doubles(void)
{
    struct store_rig r;
    open_store(&r, DEV_REF, DT_F64);
    CHECK_OK(param_init(&r.store, 4, 3));
    for (int i = 0; i < r.store.n; i++) {
        const struct param *p = &r.store.param[i];
        const double *w = param_w(p);
        int64_t wrong = 0;
        for (int64_t j = 0; j < p->count; j++)
            wrong += w[j] != formula(p, 4, j);
        CHECK_INT(wrong, 0);
    }
    store_rig_close(&r);
}

/* Floats that a device may flush to zero in its own arithmetic. */
static void read_as_written(void)
{
    struct store_rig r;
    static float values[HIDDEN * 4], x[HIDDEN * 4];
    open_store(&r, DEV_CPU, DT_BF16);
    const struct param *p = param_find(&r.store, 0, PARAM_POSITIONS);
    CHECK_INT(p->count, HIDDEN * 4);
    for (int64_t i = 0; i < p->count; i++)
        values[i] = (float)(num_normal(1, 2, i) * (i % 2 ? 1 : 1e-40));
    CHECK_OK(param_state_write(p, PARAM_WEIGHT, 0, values, p->count));
    CHECK_OK(param_read(p, DT_F32, x));
    int64_t wrong = 0;
    for (int64_t i = 0; i < p->count; i++)
        wrong += x[i] != values[i] ||
                 ((const uint16_t *)param_w(p))[i] != bf16_from_f32(values[i]);
    CHECK_INT(wrong, 0);
    store_rig_close(&r);
}

static const struct test_case cases[] = {{"the formula, by one thread", one_thread},
                                         {"the formula, by several threads", several_threads},
                                         {"the formula, by many threads", many_threads},
                                         {"the formula, in doubles", doubles},
                                         {"floats are read as written", read_as_written}};
TEST_MAIN(cases)
