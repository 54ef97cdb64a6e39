/* SPDX-License-Identifier: Apache-2.0
 *
 * A store that ranks share: its pieces cover it, each element has one owner, an owner's ranges fit
 * together, and master weights go to their owners and back.
 */
#include "store.h"
#include "param/param.h"
#include "test.h"

#include <string.h>

enum { SHARES_MOST = 5 };

/* An odd model, on rank `share` of so many. */
static void open_share(struct store_rig *r, enum model_kind kind, int shard_rank, int num_shards)
{
    bool gpt = kind == MODEL_GPT;
    *r = (struct store_rig){.split = {.tp = 1}, .shard_rank = shard_rank, .num_shards = num_shards};
    r->stage = (struct model_stage){.end = 2 * 3 + 2};
    r->model = (struct model){.kind = kind, .layers = 3, .hidden = 12, .heads = 4,
                              .kv_heads = gpt ? 4 : 2, .head_dim = 3, .ffn = 20, .vocab = 31,
                              .seq = 5, .tied = gpt, .init_std = 0.5};
    store_rig_open(r, DEV_CPU, DT_BF16);
}

/* In segments of `least` elements. */
static void cut(struct store_rig *r, int64_t least)
{
    struct segments *segments;
    store_rig_segments(r, least, &segments);
    CHECK_OK(param_share_cut(&r->store, segments->sum, segments->sums));
    segments_free(segments, 1);
}

/* Marks what this rank owns; returns how many of its own elements were not where they should be. */
static int64_t mark(const struct param_store *s, uint8_t *owned)
{
    int64_t next = 0, wrong = 0;
    for (int i = 0; i < param_share_pieces(s); i++) {
        struct param_range r = param_share_of(s, i);
        wrong += r.own != next || r.begin % MODEL_PARAM_ALIGN || r.begin < s->edge[i] ||
                 r.end > s->edge[i + 1] || r.begin >= r.end;
        for (int64_t e = r.begin; e < r.end; e++)
            owned[e]++;
        next = r.own + r.end - r.begin;
    }
    return wrong + (next != s->elements / s->num_shards);
}

static void covered(enum model_kind kind, int num_shards, int64_t least)
{
    struct store_rig r;
    static uint8_t owned[1 << 16];
    int64_t elements = 0, other = 0;
    memset(owned, 0, sizeof owned);
    for (int shard_rank = 0; shard_rank < num_shards; shard_rank++) {
        open_share(&r, kind, shard_rank, num_shards);
        cut(&r, least);
        CHECK(r.store.edge[0] == 0 && r.store.edge[r.store.pieces] == r.store.elements);
        CHECK(r.store.elements <= (int64_t)sizeof owned);
        for (int i = 1; i < r.store.pieces; i++) /* but for the lowest */
            CHECK(r.store.edge[i + 1] - r.store.edge[i] >= least);
        CHECK_INT(mark(&r.store, owned), 0);
        elements = r.store.elements;
        store_rig_close(&r);
    }
    for (int64_t e = 0; e < elements; e++)
        other += owned[e] != 1;
    test_check(other == 0, __FILE__, __LINE__, "%d ranks, least %lld: %lld elements have not one "
               "owner", num_shards, (long long)least, (long long)other);
}

static void each_element_has_one_owner(void)
{
    static const int64_t least[] = {0, 1, 500, 2000, 1 << 30};
    if (!dev_built(DEV_CPU)) {
        test_skip("the device is not built in");
        return;
    }
    for (int num_shards = 2; num_shards <= SHARES_MOST; num_shards++)
        for (size_t i = 0; i < sizeof least / sizeof *least; i++) {
            covered(MODEL_GPT, num_shards, least[i]);
            covered(MODEL_LLAMA, num_shards, least[i]);
        }
}

/* Each owner's part of what lies in its gradients' memory, added up over the ranks: all of it. */
static void masters_go_and_come(void)
{
    struct store_rig whole, r;
    static float sum[1 << 16];
    memset(sum, 0, sizeof sum);
    if (!dev_built(DEV_CPU)) {
        test_skip("the device is not built in");
        return;
    }
    open_share(&whole, MODEL_GPT, 0, 1);
    CHECK_OK(param_init(&whole.store, 3, 1));
    for (int shard_rank = 0; shard_rank < 3; shard_rank++) {
        open_share(&r, MODEL_GPT, shard_rank, 3);
        cut(&r, 700);
        CHECK_OK(param_init(&r.store, 3, 1));
        CHECK(memcmp(r.store.w, whole.store.w, (size_t)(whole.store.elements * r.store.ct)) == 0);
        CHECK_OK(param_shard_master(&r.store));
        memset(r.store.grad, 0, (size_t)(r.store.elements * r.store.at));
        CHECK_OK(param_unshard_master(&r.store));
        for (int i = 0; i < r.store.n; i++)
            for (int64_t e = 0; e < r.store.param[i].count; e++)
                sum[r.store.param[i].offset + e] +=
                    ((const float *)param_master(&r.store.param[i]))[e];
        store_rig_close(&r);
    }
    CHECK(memcmp(sum, whole.store.master, (size_t)whole.store.elements * sizeof *sum) == 0);
    store_rig_close(&whole);
}

static const struct test_case cases[] = {
    {"each_element_has_one_owner", each_element_has_one_owner},
    {"masters_go_and_come", masters_go_and_come},
};
TEST_MAIN(cases)
