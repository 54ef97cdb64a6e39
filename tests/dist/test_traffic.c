/* SPDX-License-Identifier: Apache-2.0
 *
 * What a step starts between ranks, as the transport counts it by group and kind, is what the plan
 * says, for every layout: the harness holds each step of each test to it (exec_count_check). Here
 * every number of the plan is made wrong once, and the run has to refuse it, naming the group; and
 * plans of a few layouts are those that one writes down by hand.
 */
#include "layout.h"
#include "plan/traffic.h"
#include "test.h"

enum { BATCH = 6, SEQ = 8, LAYERS = 4, HIDDEN = 32, WORD = 8 };

static struct model model(enum model_kind kind, bool tied)
{
    bool gpt = kind == MODEL_GPT;
    return (struct model){.kind = kind, .layers = LAYERS, .hidden = HIDDEN, .heads = 4,
                          .kv_heads = gpt ? 4 : 2, .head_dim = 8, .ffn = 48, .vocab = 257,
                          .seq = SEQ, .tied = tied, .norm_eps = 1e-5, .rope_theta = 10000,
                          .init_std = 0.2};
}

/* What differs from one rank of a gpt. */
struct row {
    const char *name;
    struct layout l;
    enum { GPT, TIED, LLAMA, MLP } model;
};
static const struct row rows[] = {
    {"tp", {.tp = 2, .microbatch = 4}, GPT},
    {"tp sp", {.tp = 2, .sp = true, .microbatch = 4}, GPT},
    {"tp more than kv heads", {.tp = 4, .microbatch = 2}, LLAMA},
    {"tp sp more than kv heads", {.tp = 4, .sp = true, .microbatch = 4}, LLAMA},
    {"tp overlapped", {.tp = 2, .tp_rows = 3, .microbatch = 4}, GPT},
    {"tp overlapped, few rows", {.tp = 2, .tp_rows = 12, .microbatch = 4}, LLAMA},
    {"tp sp overlapped", {.tp = 2, .sp = true, .tp_rows = 5, .microbatch = 4}, GPT},
    {"tp sp overlapped in chunks", {.tp = 4, .sp = true, .tp_rows = 2, .tp_chunked = true,
                                      .microbatch = 4}, GPT},
    {"overlapped, backward in halves", {.tp = 2, .sp = true, .tp_rows = 4, .pp = 2, .v = 2,
                                          .schedule = "zb-v", .microbatch = 2}, LLAMA},
    {"pp", {.pp = 3, .microbatch = 4}, GPT},
    {"pp tied", {.pp = 2, .tp = 2, .sp = true, .microbatch = 4}, TIED},
    {"pp in chunks", {.pp = 2, .v = 2, .schedule = "interleaved", .microbatch = 1}, TIED},
    {"between attention and mlp", {.pp = 2, .halves = true, .tp = 2, .microbatch = 2}, GPT},
    {"zb-v", {.pp = 2, .v = 2, .tp = 2, .dp = 2, .schedule = "zb-v", .microbatch = 1}, TIED},
    {"zb-h1", {.pp = 2, .tp = 2, .sp = true, .schedule = "zb-h1", .microbatch = 2}, GPT},
    {"recompute", {.pp = 2, .tp = 2, .recompute = true, .microbatch = 1}, TIED},
    {"recompute of the loss's stage", {.pp = 2, .tp = 2, .recompute = true, .schedule = "gpipe",
                                       .microbatch = 2}, GPT},
    {"recompute sp", {.pp = 2, .v = 2, .tp = 2, .sp = true, .recompute = true,
                      .schedule = "interleaved", .microbatch = 1}, LLAMA},
    {"dp, short microbatch", {.dp = 2, .microbatch = 2}, GPT},
    {"dp zero", {.dp = 3, .zero = 1, .microbatch = 2}, TIED},
    {"dp zero pp tied", {.dp = 2, .zero = 1, .pp = 2, .tp = 2, .sp = true, .microbatch = 2}, TIED},
    {"two replicas", {.pp = 2, .dp = 2, .tp = 2, .sp = true, .schedule = "dualpipe",
                      .microbatch = 1}, LLAMA},
    {"two replicas tied zero", {.pp = 2, .dp = 2, .zero = 1, .schedule = "chimera",
                                .microbatch = 1}, TIED},
    {"mlp", {.pp = 2, .dp = 2, .microbatch = 1}, MLP},
    {"mlp zero", {.dp = 3, .zero = 1, .microbatch = 1}, MLP},
};
enum { ROWS = sizeof rows / sizeof *rows };

static int or_one(int n)
{
    return n > 0 ? n : 1;
}

static struct layout layout_of(const struct row *r)
{
    static const int64_t widths[] = {12, 20, 17, 5};
    struct layout l = r->l;
    l.model = r->model == MLP ? model_of_widths(widths, 4)
                              : model(r->model == LLAMA ? MODEL_LLAMA : MODEL_GPT,
                                      r->model == TIED);
    l.tp = or_one(l.tp);
    l.pp = or_one(l.pp);
    l.dp = or_one(l.dp);
    l.steps = or_one(l.steps);
    l.schedule = l.schedule ? l.schedule : "1f1b";
    l.batch = BATCH;
    l.dev = DEV_REF;
    l.ct = DT_F64;
    return l;
}

/* ---- the plan of one rank, and one number of it made wrong ---- */

static struct step_traffic plan;
static int of_rank, wrong; /* whose; which number, -1: none */
static int numbers;        /* that it has */
static char where[96];     /* the wrong one, as it is to be named */

static void one_number(int64_t *number, const char *group, enum traffic_kind k)
{
    if (numbers++ != wrong)
        return;
    ++*number;
    snprintf(where, sizeof where, "in its %s group a step started %s", group,
             mesh_traffic_name(k));
}

static void one(struct traffic *t, const char *group, enum traffic_kind k)
{
    if (t->messages == 0)
        return;
    one_number(&t->messages, group, k);
    one_number(&t->bytes, group, k);
}

static void look(struct step_traffic *t, int rank)
{
    if (rank != of_rank)
        return;
    plan = *t;
    numbers = 0;
    for (int g = 0; g < GROUP_KINDS; g++)
        for (int k = 0; k < TRAFFIC_KINDS; k++)
            one(&t->group[g][k], groups_name((enum group_kind)g), (enum traffic_kind)k);
    one(&t->sent, "pipeline", TRAFFIC_SEND);
}

static enum err run(const struct layout *l, int rank, int which)
{
    struct layout_result r;
    struct layout looked = *l;
    of_rank = rank;
    wrong = which;
    looked.planned = look;
    enum err err = layout_run(&looked, &r);
    layout_result_free(&r);
    return err;
}

static void each_number_is_counted(void)
{
    for (int i = 0; i < ROWS; i++) {
        struct layout l = layout_of(&rows[i]);
        int last = l.tp * l.pp * l.dp - 1;
        for (int rank = 0; rank <= last; rank += last) {
            enum err err = run(&l, rank, -1);
            test_check(err == ERR_OK, __FILE__, __LINE__, "%s: %s", rows[i].name, err_text());
            int n = numbers;
            test_check(n >= 2, __FILE__, __LINE__, "%s: nothing is planned", rows[i].name);
            for (int which = 0; which < n; which++) {
                err = run(&l, rank, which);
                test_check(err == ERR_INTERNAL && strstr(err_text(), where), __FILE__, __LINE__,
                           "%s: number %d of rank %d is wrong by 1, and the run ends with %d: %s",
                           rows[i].name, which, rank, (int)err, err == ERR_OK ? "" : err_text());
            }
        }
    }
}

/* ---- by hand ---- */

static void is(const char *what, enum group_kind g, enum traffic_kind k, struct traffic want)
{
    const struct traffic *t = &plan.group[g][k];
    test_check(t->messages == want.messages && t->bytes == want.bytes, __FILE__, __LINE__,
               "%s: %s %s: %lld of %lld bytes, and not %lld of %lld", what, groups_name(g),
               mesh_traffic_name(k), (long long)t->messages, (long long)t->bytes,
               (long long)want.messages, (long long)want.bytes);
}

/* Shoeybi et al. 2019: two sums forward and two backward in a block; and those of the embedding,
 * of the head's input, and of cross entropy. */
static void tensor_parallelism(void)
{
    struct row r = {"tp", {.tp = 2, .microbatch = 2}, GPT};
    struct layout l = layout_of(&r);
    int64_t m = BATCH / 2, n = 2 * SEQ, stream = n * HIDDEN * WORD;
    CHECK_OK(run(&l, 0, -1));
    is("tp", GROUP_TP, TRAFFIC_ALL_REDUCE,
       (struct traffic){m * (4 * LAYERS + 3), m * ((4 * LAYERS + 2) * stream + 2 * n * WORD)});
    is("tp", GROUP_TP, TRAFFIC_ALL_REDUCE_MAX, (struct traffic){m, m * n * WORD});
    is("tp", GROUP_TP, TRAFFIC_ALL_GATHER, (struct traffic){0, 0});
    is("tp", GROUP_SUMS, TRAFFIC_ALL_REDUCE, (struct traffic){1, 5 * WORD});
}

/* Korthikanti et al. 2022: a sum is a reduce-scatter and an all-gather, and what a norm gave is
 * gathered once more for the weights; norms and positions are summed at the end. */
static void sequence_parallelism(void)
{
    struct row r = {"sp", {.tp = 4, .sp = true, .microbatch = 6}, GPT};
    struct layout l = layout_of(&r);
    int64_t n = BATCH * SEQ, stream = n * HIDDEN * WORD, norms = 2 * LAYERS + 1;
    CHECK_OK(run(&l, 0, -1));
    is("sp", GROUP_TP, TRAFFIC_ALL_GATHER,
       (struct traffic){6 * LAYERS + 2, (6 * LAYERS + 2) * stream});
    is("sp", GROUP_TP, TRAFFIC_REDUCE_SCATTER,
       (struct traffic){4 * LAYERS + 2, (4 * LAYERS + 2) * stream});
    is("sp", GROUP_TP, TRAFFIC_ALL_REDUCE,
       (struct traffic){1 + 2 * norms + 1,
                        2 * n * WORD + (2 * norms + SEQ) * HIDDEN * WORD});
}

/* Both kv heads are held by two ranks each: a k and a v a layer. */
static void repeated_kv_heads(void)
{
    struct row r = {"kv", {.tp = 4, .microbatch = 6}, LLAMA};
    struct layout l = layout_of(&r);
    CHECK_OK(run(&l, 0, -1));
    is("kv", GROUP_KV, TRAFFIC_ALL_REDUCE,
       (struct traffic){2 * LAYERS, 2 * LAYERS * 8 * HIDDEN * WORD});
}

/* A stage sends each microbatch's activation or gradient, the tied matrix is summed once; with zero
 * 1 as many bytes are scattered as gathered, all that a stage has. */
static void pipeline_and_zero(void)
{
    struct row r = {"pp", {.pp = 2, .dp = 2, .zero = 1, .microbatch = 2}, TIED};
    struct layout l = layout_of(&r);
    struct model_split split = {1, false};
    struct model_stage first = {0, 1 + LAYERS, false}; /* half of the blocks */
    l.first = &first.end;
    int64_t elements = model_sharded_elements(model_stage_elements(&l.model, &split, &first), 2);
    CHECK_OK(run(&l, 0, -1));
    CHECK_INT(plan.sent.messages, 2); /* of 2 samples, of 1 */
    CHECK_INT(plan.sent.bytes, 3 * SEQ * HIDDEN * WORD);
    is("pp", GROUP_EMBED, TRAFFIC_ALL_REDUCE, (struct traffic){1, 257 * HIDDEN * WORD});
    CHECK_INT(plan.group[GROUP_DP][TRAFFIC_REDUCE_SCATTER].bytes, elements * WORD);
    CHECK(plan.group[GROUP_DP][TRAFFIC_ALL_GATHER].bytes > elements * WORD); /* and the tied */
    is("pp", GROUP_DP, TRAFFIC_ALL_REDUCE, (struct traffic){0, 0});
    CHECK_OK(run(&l, 3, -1));
    CHECK_INT(plan.sent.bytes, 3 * SEQ * HIDDEN * WORD);
}

static const struct test_case cases[] = {
    {"tensor_parallelism", tensor_parallelism},
    {"sequence_parallelism", sequence_parallelism},
    {"repeated_kv_heads", repeated_kv_heads},
    {"pipeline_and_zero", pipeline_and_zero},
    {"each_number_is_counted", each_number_is_counted},
};
TEST_MAIN(cases)
