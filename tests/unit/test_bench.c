/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of a step's calls: its FLOPs are the model's, each call is run again as it was noted,
 * and what `plait bench` makes of it.
 */
#include "base/fs.h"
#include "base/mem.h"
#include "study/bench.h"
#include "test.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const models[] = {
    "model.kind=gpt model.vocab=257 model.dropout=0.1 train.batch=3 parallel.microbatch=2",
    ("model.kind=llama model.vocab=300 model.tied=false model.kv_heads=2 train.batch=2 "
     "parallel.microbatch=2"),
    "model.kind=gpt model.vocab=257 train.dtype=bf16 train.batch=2 train.recompute=full",
    "model.kind=mlp model.widths=90000,4,3,2,2 train.batch=30 train.device=ref",
};
enum { MODELS = sizeof models / sizeof *models };

static struct options options_of(const char *words)
{
    struct options o;
    char copy[512], *rest = copy;
    CHECK_OK(conf_defaults(&options_table, &o));
    snprintf(copy, sizeof copy, "model.seq=16 model.layers=3 model.hidden=32 %s", words);
    for (char *w = strsep(&rest, " "); w; w = strsep(&rest, " "))
        CHECK_OK(conf_set(&options_table, &o, w));
    return o;
}

static void note_step(const struct options *o, struct bench *b)
{
    *b = (struct bench){.o = o, .types = options_types(o)};
    CHECK_OK(bench_step(b));
    CHECK(b->calls > 20);
}

/* GEMMs are 2 FLOPs a weight and row, forward and twice backward. */
static void flops_are_the_models(void)
{
    for (int i = 0; i < 2; i++) { /* the third computes some of them twice */
        struct options o = options_of(models[i]);
        struct model a;
        struct bench b;
        double got = 0, want = 0;
        int64_t rows = o.train.batch * o.model.seq;
        options_arch(&o, &a);
        note_step(&o, &b);
        CHECK_INT(b.tokens, rows);
        for (int k = 0; k < b.calls; k++)
            if (b.call[k].call.op.kind == OP_GEMM)
                got += b.call[k].call.flops * (double)b.call[k].call.count;
        for (int64_t at = 0; at < model_layers(&a); at++) {
            struct layer l = model_layer(&a, at);
            want += 3 * model_layer_flops(&l, rows, 0);
        }
        CHECK_NEAR(got, want, 1e-9 * want);
        mem_free(b.call);
    }
}

/* A call that is run again on a device that notes is noted as it was. */
static void calls_are_run_as_noted(void)
{
    for (int i = 0; i < MODELS; i++) {
        struct options o = options_of(models[i]);
        struct model a;
        struct bench b;
        struct dev *d;
        struct calls_list got;
        options_arch(&o, &a);
        note_step(&o, &b);
        CHECK_OK(dev_open(&(struct dev_args){.kind = DEV_NULL, .ct = b.types.ct, .threads = 1},
                          &d));
        d->types = b.types;
        calls_record(&got, d, a.vocab);
        for (int k = 0; k < b.calls; k++) {
            const struct calls_call *want = &b.call[k].call;
            struct calls_work w;
            char name[2][128];
            CHECK_OK(calls_open(d, &want->op, &w));
            got.n = 0;
            CHECK_OK(dev_run(w.dev, &w.op));
            op_describe(&want->op, name[0], sizeof name[0]);
            op_describe(&got.call[0].op, name[1], sizeof name[1]);
            test_check(got.n == 1 && strcmp(name[0], name[1]) == 0 &&
                           got.call[0].flops == want->flops && got.call[0].bytes == want->bytes &&
                           got.call[0].class == want->class,
                       __FILE__, __LINE__, "%s is run as %s", name[0], name[1]);
            calls_close(&w);
        }
        calls_free(&got, d);
        dev_close(d);
        mem_free(b.call);
    }
}

/* Long vectors are run in part. */
static void long_vectors_are_cut(void)
{
    struct op of = {.kind = OP_SUMSQ, .sumsq.n = 4LL * CALLS_FLAT_MAX};
    struct op whole = {.kind = OP_GEMM, .gemm = {.m = 4LL * CALLS_FLAT_MAX, .n = 1, .k = 1}};
    CHECK_NEAR(calls_part(&of), 0.25, 0);
    CHECK_NEAR(calls_part(&whole), 1, 0);
}

static void keep_line(void *arg, const char *line)
{
    text_add(arg, "%s\n", line);
}

static void measures_and_writes_a_profile(void)
{
    const char *path = "profile.json";
    struct text page = {0};
    struct options o = options_of("model.kind=llama model.vocab=257 train.threads=1");
    struct plait_bench a = {.size = sizeof a, .ranks = 2, .seconds = 1e-4, .largest = 4096,
                            .out = path, .on_line = keep_line, .arg = &page};
    struct fs_map m;
    CHECK_OK(bench_run(&o, &a));
    CHECK(strstr(page.s, "\nlinks of 2 ranks") && strstr(page.s, "\nhead and loss"));
    CHECK_OK(fs_map_open(&m, path, ERR_DATA));
    cJSON *root = cJSON_ParseWithLength((const char *)m.data, (size_t)m.size);
    CHECK(root != NULL);
    CHECK_INT(cJSON_GetNumberValue(cJSON_GetObjectItem(root, "plait_profile")), 2);
    const cJSON *call, *links = cJSON_GetObjectItem(root, "links");
    cJSON_ArrayForEach(call, cJSON_GetObjectItem(root, "calls"))
        CHECK(cJSON_GetNumberValue(cJSON_GetObjectItem(call, "seconds")) > 0);
    call = cJSON_GetObjectItem(root, "calls")->child;
    while (call && strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(call, "op")), "embed") != 0)
        call = call->next;
    const cJSON *sizes = cJSON_GetObjectItem(call, "sizes");
    CHECK_INT(cJSON_GetArraySize(sizes), 3); /* not v0, which is a place */
    CHECK_INT(cJSON_GetNumberValue(cJSON_GetObjectItem(sizes, "rows")), 257);
    int flags = 0;
    cJSON_ArrayForEach(call, cJSON_GetObjectItem(root, "calls")) {
        const cJSON *flag;
        cJSON_ArrayForEach(flag, cJSON_GetObjectItem(call, "flags"))
            flags += strcmp(cJSON_GetStringValue(flag), "trans_b") == 0;
    }
    CHECK(flags > 0);
    CHECK_INT(cJSON_GetArraySize(links), BENCH_LINKS);
    for (int l = 0; l < BENCH_LINKS; l++) {
        const cJSON *link = cJSON_GetArrayItem(links, l);
        CHECK(strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(link, "op")), bench_link_name(l)) ==
              0);
        CHECK_INT(cJSON_GetArraySize(cJSON_GetObjectItem(link, "points")), 2);
    }
    cJSON_Delete(root);
    fs_map_close(&m);
    unlink(path);
    text_free(&page);
}

static void counts_against_given_ceilings(void)
{
    struct text page = {0};
    struct options o = options_of("model.vocab=257");
    struct plait_bench a = {.size = sizeof a, .product = 1e12, .copy = 1e9, .on_line = keep_line,
                            .arg = &page};
    CHECK_OK(bench_run(&o, &a));
    CHECK(strstr(page.s, "ceilings 1.00 TFLOP/s, 1.0 GB/s") != NULL);
    CHECK(strstr(page.s, "nothing was measured") != NULL);
    CHECK(strstr(page.s, "parallel.pp") == NULL);
    text_free(&page);
    o = options_of("model.vocab=257 parallel.pp=3");
    CHECK_OK(bench_run(&o, &a));
    CHECK(strstr(page.s, "\nparallel.pp 3 is passed over: this rank has all 3 layers\n") != NULL);
    text_free(&page);
    o = options_of("model.vocab=257 parallel.dp=2 train.batch=6"); /* 3 samples of 16 on each */
    CHECK_OK(bench_run(&o, &a));
    CHECK(strstr(page.s, "\nstep of 48 tokens on one rank; ceilings 1.00 TFLOP/s") != NULL);
    text_free(&page);
    a.out = "/nonexistent/a";
    CHECK_ERR(bench_run(&o, &a), ERR_CONFIG, "nothing is measured that could go into");
    a.copy = 0;
    CHECK_ERR(bench_run(&o, &a), ERR_CONFIG, "one ceiling was given");
    a = (struct plait_bench){.size = sizeof a};
    o = options_of("model.vocab=257 train.device=null");
    CHECK_ERR(bench_run(&o, &a), ERR_CONFIG, "train.device null computes nothing");
}

/* The page of a configuration against given ceilings without its lines of what is passed over,
 * which are counted. */
static struct text page_of(const char *words, int *passed)
{
    struct text page = {0}, rest = {0};
    struct options o = options_of(words);
    struct plait_bench a = {.size = sizeof a, .product = 1e12, .copy = 1e9, .on_line = keep_line,
                            .arg = &page};
    enum err err = bench_run(&o, &a);
    test_check(err == ERR_OK, __FILE__, __LINE__, "%s: %s", words, err_text());
    *passed = 0;
    for (char *at = page.s, *line; at && (line = strsep(&at, "\n"));) {
        bool is = strstr(line, " is passed over: ") != NULL;
        *passed += is;
        if (!is)
            text_add(&rest, "%s\n", line);
    }
    text_free(&page);
    return rest;
}

/* Every layout of the same batch a data rank is counted as one rank, and each key that cuts the
 * model is said. */
static void layouts_are_passed_over(void)
{
    static const struct { const char *words; int passed; } c[] = {
        {"parallel.tp=2", 1}, {"parallel.tp=4 parallel.sp=true", 1},
        {"parallel.tp=2 parallel.tp_overlap=on parallel.tp_rows=4", 1},
        {"parallel.tp=2 parallel.pp=3 parallel.schedule=zb-h1", 2},
        {"parallel.tp=4 parallel.pp=3 parallel.sp=true parallel.schedule=gpipe", 2},
        {"parallel.tp=2 parallel.dp=2 train.batch=8 parallel.zero=1", 2},
        {"parallel.pp=3 parallel.schedule=zb-1p parallel.memory_limit=4", 1},
    };
    char words[256];
    int passed;
    struct text one = page_of("model.vocab=257 train.batch=4", &passed);
    CHECK_INT(passed, 0);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        snprintf(words, sizeof words, "model.vocab=257 train.batch=4 %s", c[i].words);
        struct text page = page_of(words, &passed);
        test_check(strcmp(page.s, one.s) == 0 && passed == c[i].passed, __FILE__, __LINE__,
                   "%s, %d passed over: %s", c[i].words, passed, page.s);
        text_free(&page);
    }
    text_free(&one);
}

static const struct test_case cases[] = {
    {"flops_are_the_models", flops_are_the_models},
    {"calls_are_run_as_noted", calls_are_run_as_noted},
    {"long_vectors_are_cut", long_vectors_are_cut},
    {"measures_and_writes_a_profile", measures_and_writes_a_profile},
    {"counts_against_given_ceilings", counts_against_given_ceilings},
    {"layouts_are_passed_over", layouts_are_passed_over},
};
TEST_MAIN(cases)
