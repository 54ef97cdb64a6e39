/* SPDX-License-Identifier: Apache-2.0
 *
 * Data ranks that shard the optimizer, in pieces of any length: of one part each, as where the
 * device does not queue, of several as on GPUs, and all in one, with more parameters that decay
 * than one call takes. Each rank's sums, and what it updates, are the bits of a rank that has all;
 * so are the gradients and the weights when they are gathered.
 */
#include "optim/optim.h"
#include "parallel/dp.h"

#include "store.h"
#include "test.h"

#include <string.h>

enum { RANKS = 3, BLOCKS = 130, STEPS = 2, TOKENS = 7 };

struct sort { enum dev_kind kind; enum dtype ct; int64_t blocks, least; };

static void open_rig(struct store_rig *r, const struct sort *m, int shard_rank, int num_shards)
{
    *r = (struct store_rig){.split = {.tp = 1}, .shard_rank = shard_rank, .num_shards = num_shards};
    r->stage = (struct model_stage){.end = 2 * m->blocks + 2};
    r->model = (struct model){.kind = MODEL_GPT, .layers = m->blocks, .hidden = 6, .heads = 2,
                              .kv_heads = 2, .head_dim = 3, .ffn = 10, .vocab = 31, .seq = 5,
                              .tied = true, .norm_eps = 1e-5, .init_std = 0.1};
    store_rig_open(r, m->kind, m->ct);
    CHECK_OK(param_init(&r->store, 5, 1));
}

/* The gradients of a part that data rank `rank` has, or what their sum is: whole numbers, exact in
 * any type. */
static void fill(const struct param_store *s, int part, int rank, int step)
{
    for (int i = s->part_first[part]; i < s->part_first[part + 1]; i++) {
        CHECK_OK(param_grad_settle(&s->param[i]));
        for (int64_t j = 0; j < s->param[i].count; j++) {
            double x = (double)((i + j) % 89 - 40), r = rank + 1.0;
            double of = rank < RANKS ? x * r + step : x * RANKS * (RANKS + 1) / 2 + RANKS * step;
            if (s->at == 8)
                ((double *)param_grad(&s->param[i]))[j] = of;
            else
                ((float *)param_grad(&s->param[i]))[j] = (float)of;
        }
    }
}

static bool same(const char *a, const char *b, int64_t bytes)
{
    return memcmp(a, b, (size_t)bytes) == 0;
}

/* What this rank owns, beside the same of one that has all, who has less padding at the end. */
static bool same_own(const struct param_store *s, const struct param_store *all)
{
    bool good = true;
    for (int i = 0; i < param_share_pieces(s); i++) {
        struct param_range r = param_share_of(s, i);
        int64_t end = num_min(r.end, all->elements), n = num_max(end - r.begin, 0) * s->at;
        int64_t at = r.begin * s->at, own = r.own * s->at;
        good = good && same(s->grad + at, all->grad + at, n) && same(s->m + own, all->m + at, n) &&
               same(s->v + own, all->v + at, n);
        if (s->master != s->w)
            good = good && same(s->master + own, all->master + at, n);
    }
    return good;
}

/* A step behind the sums of gradients; d: of the store whose updates are shared, or NULL. */
static enum err run_optim(const struct optim *o, struct dp *d, const struct optim_step *s,
                          struct optim_result *out)
{
    double landed[SUMS_COUNT];
    TRY(optim_ready(o, s));
    TRY(optim_norm(o, NULL));
    for (int piece = 0; piece < param_share_pieces(o->store[0]); piece++) {
        TRY(optim_update(o, o->store[0], piece));
        struct dp_range at = {o->store[0]->edge ? o->store[0]->edge[piece] : 0,
                              o->store[0]->edge ? o->store[0]->edge[piece + 1] : 0};
        if (d)
            dp_weights_give(d, at);
        if (d)
            TRY(dp_weights_start(d, at));
    }
    if (d)
        TRY(dp_finish(d));
    TRY(optim_land(o, landed));
    TRY(o->dev->ops->sync(o->dev));
    return optim_judge(s, landed, out);
}

static enum err step_of(struct dp *d, struct optim *shared, struct optim *alone, int step)
{
    struct param_store *s = shared->store[0], *all = alone->store[0];
    struct optim_result got, want;
    struct optim_step each = {.step = step, .lr = 0.1, .tokens = TOKENS}, one = each;
    one.tokens *= RANKS;
    param_grads_reset(s);
    for (int seg = d->a.sums - 1, end = d->a.parts; seg >= 0; end = d->a.first[seg--]) {
        for (int part = d->a.first[seg]; part < end; part++) { /* none is sent before it is there */
            fill(s, part, comm_group_rank(d->a.group), step);
            fill(all, part, RANKS, step);
        }
        TRY(dp_start(d, d->a.first[seg]));
    }
    TRY(dp_finish(d));
    TRY(run_optim(shared, d, &each, &got));
    TRY(run_optim(alone, NULL, &one, &want));
    CHECK_NEAR(got.grad_norm, want.grad_norm, 1e-12 * want.grad_norm);
    CHECK(same_own(s, all));
    CHECK(same(s->w, all->w, all->elements * s->ct)); /* gathered */
    TRY(dp_gather(d, 0, s->elements));
    CHECK(same(s->grad, all->grad, all->elements * s->at));
    return ERR_OK;
}

static enum err steps_of(struct dp *d, struct optim *shared, struct optim *alone)
{
    struct param_store *s = d->a.store;
    const struct param_store *all = alone->store[0];
    TRY(param_shard_master(s));
    for (int step = 1; step <= STEPS; step++)
        TRY(step_of(d, shared, alone, step));
    TRY(param_unshard_master(s));
    if (s->whole == s->grad)
        TRY(dp_gather(d, 0, s->elements));
    CHECK(same(param_master(&s->param[0]), all->master,
               all->elements * (s->master == s->w ? s->ct : s->at)));
    return ERR_OK;
}

static enum err rank_body(void *arg, struct comm_world *w)
{
    const struct sort *m = arg;
    struct store_rig r, whole;
    struct comm_group *g;
    struct dp d;
    struct tp tp = {.size = 1};
    double scalars[2][SUMS_COUNT + SCALAR_COUNT] = {{0}};
    open_rig(&r, m, comm_rank(w), RANKS);
    open_rig(&whole, m, 0, 1);
    struct param_store *store[2] = {&r.store, &whole.store};
    tp.dev = r.dev;
    struct comm_group_args all = {.ranks = (const int[]){0, 1, 2}, .n = RANKS};
    TRY(comm_group_open(w, &all, &g));
    struct segments *segments;
    struct dp_flight flight = {.n = 0};
    store_rig_segments(&r, m->least, &segments);
    struct dp_args a = {.group = g, .tp = &tp, .store = &r.store, .first = segments->sum,
                        .sums = segments->sums, .parts = model_stage_parts(&r.stage),
                        .flight = &flight};
    TRY(dp_open(&d, &a));
    struct optim alone = {.rule = {0.9, 0.95, 1e-8, 0.3, 0}, .dev = whole.dev,
                          .store = &store[1], .stores = 1, .sums = scalars[0],
                          .step_scalars = scalars[0] + SUMS_COUNT, .replicas = 1}, shared = alone;
    shared.dev = r.dev;
    shared.world = g;
    shared.store = store;
    shared.sums = scalars[1];
    shared.step_scalars = scalars[1] + SUMS_COUNT;
    shared.replica = comm_rank(w);
    shared.replicas = RANKS;
    enum err err = steps_of(&d, &shared, &alone);
    dp_close(&d);
    segments_free(segments, 1);
    comm_group_close(g);
    store_rig_close(&r);
    store_rig_close(&whole);
    return err;
}

static void pieces_of_any_length(void)
{
    static const int64_t least[] = {0, 700, 5000, 1 << 30};
    static const struct { enum dev_kind kind; enum dtype ct; } on[] = {
        {DEV_REF, DT_F64}, {DEV_CPU, DT_F32}, {DEV_CPU, DT_BF16}};
    for (size_t k = 0; k < sizeof on / sizeof *on; k++)
        for (size_t i = 0; i < sizeof least / sizeof *least && dev_built(on[k].kind); i++) {
            struct sort few = {on[k].kind, on[k].ct, 3, least[i]}, many = few;
            many.blocks = BLOCKS;
            CHECK_OK(comm_thread_run(RANKS, 20, rank_body, &few));
            CHECK_OK(comm_thread_run(RANKS, 20, rank_body, &many));
        }
}

static const struct test_case cases[] = {{"pieces_of_any_length", pieces_of_any_length}};
TEST_MAIN(cases)
