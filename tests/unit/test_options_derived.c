/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows from options: sizes for which 0 stands, microbatches, types, threads, overlap
 * with GEMMs, recorded steps; and what the machine says of itself.
 */
#include "config/options.h"

#include "base/thread.h"
#include "base/mem.h"
#include "config/machine.h"
#include "test.h"

#include <stdlib.h>

static struct options fresh(void)
{
    struct options o;
    CHECK_OK(conf_defaults(&options_table, &o));
    return o;
}

static void zeros_are_derived(void)
{
    struct options o = fresh();
    struct model a;
    options_arch(&o, &a);
    CHECK_INT(a.kv_heads, 4);
    CHECK_INT(a.head_dim, 32);
    CHECK_INT(a.ffn, 512);
    CHECK_OK(conf_set(&options_table, &o, "model.kind=llama"));
    CHECK_OK(conf_set(&options_table, &o, "model.hidden=4096"));
    options_arch(&o, &a);
    CHECK_INT(a.ffn, 10944); /* 8/3 x 4096 = 10922.7, up to a multiple of 32 */
    CHECK_OK(conf_set(&options_table, &o, "model.hidden=96"));
    options_arch(&o, &a);
    CHECK_INT(a.ffn, 256); /* 8/3 x 96 is whole and a multiple already */
    CHECK_OK(conf_set(&options_table, &o, "model.ffn=100"));
    CHECK_OK(conf_set(&options_table, &o, "model.kv_heads=2"));
    CHECK_OK(conf_set(&options_table, &o, "model.head_dim=8"));
    options_arch(&o, &a);
    CHECK_INT(a.ffn, 100);
    CHECK_INT(a.kv_heads, 2);
    CHECK_INT(a.head_dim, 8);
}

/* By itself communication overlaps GEMMs where GPUs copy, and only there; a word overrules that.
 * None with tp 1. */
static void overlap_follows_the_copies(void)
{
    static const struct { const char *set[3]; bool no_copies, no_p2p; int64_t rows; } c[] = {
        {{"parallel.tp=2"}, false, false, 0},
        {{"parallel.tp=2", "train.device=ref"}, false, false, 0},
        {{"train.device=cuda"}, false, false, 0},
        {{"train.device=cuda", "parallel.tp=2"}, false, false, 64},
        {{"train.device=cuda", "parallel.tp=8"}, false, false, 64},
        {{"train.device=cuda", "parallel.tp=16"}, false, false, 0},
        {{"train.device=cuda", "parallel.tp=2"}, true, false, 0},
        {{"train.device=cuda", "parallel.tp=2"}, false, true, 0},
        {{"train.device=cuda", "parallel.tp=2", "train.transport=mpi"}, false, false, 0},
        {{"train.device=cuda", "parallel.tp=2", "parallel.tp_overlap=off"}, false, false, 0},
        {{"parallel.tp=2", "parallel.tp_overlap=on"}, false, false, 64},
        {{"train.device=cuda", "parallel.tp=16", "parallel.tp_overlap=on"}, true, true, 64},
        {{"train.device=cuda", "parallel.tp_overlap=on"}, false, false, 0},
    };
    struct options o = fresh();
    CHECK_INT(o.parallel.tp_overlap, OPTIONS_TP_AUTO);
    CHECK_INT(o.parallel.tp_rows, 2048);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        o = fresh();
        o.parallel.tp_rows = 64;
        for (int k = 0; k < 3 && c[i].set[k]; k++)
            CHECK_OK(conf_set(&options_table, &o, c[i].set[k]));
        o.env.no_copies = c[i].no_copies;
        int64_t rows = options_tp_rows(&o, c[i].no_p2p);
        test_check(rows == c[i].rows, __FILE__, __LINE__, "row %d: %lld", (int)i, (long long)rows);
    }
}

/* tp_rows has an effect with overlap alone: the reason names what prevents that. */
static void rows_wait_for_overlap(void)
{
    struct options o = fresh();
    const char *key = "parallel.tp_rows";
    CHECK_OK(conf_set(&options_table, &o, "parallel.tp=2"));
    CHECK(strstr(options_idle(&o, key), "parallel.tp_overlap auto is on only where") != NULL);
    CHECK_OK(conf_set(&options_table, &o, "train.device=cuda"));
    CHECK(!options_idle(&o, key));
    CHECK_OK(conf_set(&options_table, &o, "parallel.tp_overlap=off"));
    CHECK(strstr(options_idle(&o, key), "parallel.tp_overlap is off") != NULL);
}

static void microbatches_cover_the_batch(void)
{
    struct options o = fresh();
    for (int i = 0; i < 200; i++) {
        o.parallel.dp = test_range(1, 8);
        o.train.batch = o.parallel.dp * test_range(1, 40);
        o.parallel.microbatch = test_range(1, options_samples(&o));
        int64_t m = options_microbatches(&o), share = options_samples(&o);
        CHECK(m * o.parallel.microbatch >= share && (m - 1) * o.parallel.microbatch < share);
        CHECK_INT(share * o.parallel.dp, o.train.batch);
    }
}

static void types_and_threads_follow(void)
{
    struct options o = fresh();
    CHECK_INT(options_types(&o).ct, DT_F32);
    CHECK_INT(options_types(&o).at, DT_F32);
    o.train.dtype = OPTIONS_BF16;
    CHECK_INT(options_types(&o).ct, DT_BF16);
    CHECK_INT(options_types(&o).at, DT_F32);
    o.train.device = OPTIONS_REF;
    CHECK_INT(options_types(&o).ct, DT_F64);
    CHECK_INT(options_types(&o).at, DT_F64);
    CHECK_INT(options_threads(&o, 1), cores_usable());
    CHECK_INT(options_threads(&o, 100000), 1);
    o.train.threads = 3;
    CHECK_INT(options_threads(&o, 100000), 3);
    o.parallel.tp = 2;
    o.parallel.pp = 3;
    o.parallel.dp = 5;
    int size[AXIS_COUNT];
    options_axes(&o, size);
    CHECK(size[AXIS_TP] == 2 && size[AXIS_PP] == 3 && size[AXIS_DP] == 5);
    CHECK(size[AXIS_CP] == 1 && size[AXIS_EP] == 1);
    CHECK_INT(options_ranks(&o), 30);
}

static void machine_answers(void)
{
    struct text t = {0};
    char *s;
    machine_processor(&t);
    text_add(&t, "; ");
    machine_features(&t);
    CHECK_OK(text_done(&t, &s));
    CHECK(strlen(s) > 8);
    mem_free(s);
}

/* Each key that keeps a step from being recorded is named as the reason. */
static void reasons_not_to_record(void)
{
    static const char *const keys[][2] = {
        {"train.graph=off", "train.graph is off"}, {"train.device=cpu", "only train.device cuda"},
        {"train.trace=true", "train.trace"}, {"train.profile=true", "train.profile"},
        {"train.steps=2", "train.steps"}, {"train.share_gpus=true", "train.share_gpus"},
    };
    struct options o;
    CHECK_OK(conf_defaults(&options_table, &o));
    CHECK_OK(conf_set(&options_table, &o, "train.device=cuda"));
    CHECK(!options_unrecorded(&o));
    CHECK_OK(conf_set(&options_table, &o, "parallel.dp=2"));
    CHECK(!options_unrecorded(&o));
    CHECK_OK(conf_set(&options_table, &o, "parallel.pp=2"));
    CHECK_OK(conf_set(&options_table, &o, "train.transport=mpi"));
    CHECK(!options_unrecorded(&o));
    CHECK_OK(conf_set(&options_table, &o, "parallel.tp=2"));
    CHECK(strstr(options_unrecorded(&o), "tensor ranks") != NULL);
    CHECK_OK(conf_set(&options_table, &o, "parallel.pp=3"));
    CHECK(strstr(options_unrecorded(&o), "more than two pipeline ranks") != NULL);
    CHECK_OK(conf_set(&options_table, &o, "train.graph=on"));
    CHECK(!options_unrecorded(&o));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct options other = o;
        CHECK_OK(conf_set(&options_table, &other, keys[i][0]));
        const char *why = options_unrecorded(&other);
        test_check(why && strstr(why, keys[i][1]), __FILE__, __LINE__, "%s: %s", keys[i][0],
                   why ? why : "recorded");
    }
}

static const struct test_case cases[] = {
    {"zeros_are_derived", zeros_are_derived},
    {"overlap_follows_the_copies", overlap_follows_the_copies},
    {"rows_wait_for_overlap", rows_wait_for_overlap},
    {"microbatches_cover_the_batch", microbatches_cover_the_batch},
    {"types_and_threads_follow", types_and_threads_follow},
    {"machine_answers", machine_answers},
    {"reasons_not_to_record", reasons_not_to_record},
};
TEST_MAIN(cases)
