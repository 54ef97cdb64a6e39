/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient sums over data ranks: however long segments are, each gradient is summed once, and none
 * is left when the first segment is done.
 */
#include "parallel/dp.h"

#include "store.h"
#include "test.h"

enum { RANKS = 2, STEPS = 2 };

static double value_of(int64_t element, int rank, int step)
{
    return (double)(element % 97) + 1000.0 * rank + 10000.0 * step;
}

/* All of the store's gradients, between parameters, too. */
static double *grads(const struct store_rig *r)
{
    return (double *)r->store.grad; /* ref: f64, host memory */
}

/* One step: each segment done, the last first. */
static enum err step_of(struct dp *d, const struct store_rig *r, int rank, int step)
{
    for (int64_t i = 0; i < r->store.elements; i++)
        grads(r)[i] = value_of(i, rank, step);
    for (int sum = d->a.sums - 1; sum >= 0; sum--) {
        TRY(dp_start(d, d->a.first[sum]));
        CHECK_INT(d->left, sum);
    }
    TRY(dp_finish(d));
    for (int j = 0; j < r->store.n; j++) {
        const struct param *p = &r->store.param[j];
        for (int64_t i = p->offset; i < p->offset + p->count; i++)
            if (!test_check(grads(r)[i] == value_of(i, 0, step) + value_of(i, 1, step), __FILE__,
                            __LINE__, "%s: element %lld is %g", p->spec.name, (long long)i,
                            grads(r)[i]))
                return ERR_OK;
    }
    return ERR_OK;
}

/* With segments of `least` elements. */
static enum err steps_of(struct dp_args *a, const struct store_rig *r, int rank, int64_t least)
{
    struct segments *segments;
    struct dp d;
    struct dp_flight flight = {.n = 0};
    enum err err = ERR_OK;
    store_rig_segments(r, least, &segments);
    a->first = segments->sum;
    a->sums = segments->sums;
    a->flight = &flight;
    TRY(dp_open(&d, a));
    for (int step = 0; step < STEPS && err == ERR_OK; step++)
        err = step_of(&d, r, rank, step);
    dp_close(&d);
    segments_free(segments, 1);
    return err;
}

static enum err rank_body(void *arg, struct comm_world *w)
{
    const struct model_stage *stage = arg;
    struct store_rig r = {.split = {.tp = 1}, .stage = *stage};
    struct tp tp = {.size = 1};
    struct comm_group *g;
    r.model = (struct model){.kind = MODEL_GPT, .layers = 3, .hidden = 12, .heads = 2,
                             .kv_heads = 2,
                             .head_dim = 6, .ffn = 20, .vocab = 31, .seq = 5, .tied = true,
                             .norm_eps = 1e-5, .init_std = 0.1};
    store_rig_open(&r, DEV_REF, DT_F64);
    tp.dev = r.dev;
    struct comm_group_args both = {.ranks = (const int[]){0, 1}, .n = RANKS};
    TRY(comm_group_open(w, &both, &g));
    struct dp_args a = {.group = g, .tp = &tp, .store = &r.store,
                        .parts = model_stage_parts(stage)};
    const int64_t least[] = {0, 1, 700, 5000, r.store.elements, INT64_MAX};
    enum err err = ERR_OK;
    for (size_t k = 0; k < sizeof least / sizeof *least && err == ERR_OK; k++)
        err = steps_of(&a, &r, comm_rank(w), least[k]);
    comm_group_close(g);
    store_rig_close(&r);
    return err;
}

static void all_parts(void)
{
    struct model_stage whole = {.end = 2 * 3 + 2};
    CHECK_OK(comm_thread_run(RANKS, 20, rank_body, &whole));
}

static void blocks_alone(void)
{
    struct model_stage blocks = {.first = 1, .end = 1 + 2 * 2};
    CHECK_OK(comm_thread_run(RANKS, 20, rank_body, &blocks));
}

static const struct test_case cases[] = {{"all_parts", all_parts}, {"blocks_alone", blocks_alone}};
TEST_MAIN(cases)
