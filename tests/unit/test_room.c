/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory plan held against a device of so many bytes, and against GPUs that do not reach each
 * other.
 */
#include "setup/setup.h"

#include "comm/comm.h"
#include "exec/exec.h"
#include "config/options.h"
#include "test.h"

/* A llama on two pipeline ranks; the first has the embedding, the second the head. */
static void make(struct options *o, struct setup *s)
{
    CHECK_OK(conf_defaults(&options_table, o));
    o->model.kind = MODEL_LLAMA;
    o->model.layers = 4;
    o->model.vocab = 257;
    o->model.tied = false;
    o->parallel.pp = 2;
    o->train.batch = 4;
    o->parallel.microbatch = 1;
    CHECK_OK(setup_make(o, 257, true, s));
    for (int pp = 0; pp < 2; pp++)
        s->memory[pp].bytes[MEMORY_LIBRARY] = 1000;
}

/* What a device is opened with, and planned for. */
static void device_as_configured(void)
{
    struct options o;
    struct setup s;
    struct dev_args a;
    make(&o, &s);
    setup_dev_args(&s, DEV_CUDA, &a);
    CHECK(a.kind == DEV_CUDA && a.ct == DT_F32 && a.largest == &s.attn && !a.deterministic);
    o.train.deterministic = true;
    setup_dev_args(&s, DEV_CUDA, &a);
    CHECK(a.deterministic);
    setup_free(&s);
}

/* Compute threads of a rank are planned for, as many as the device opens with. */
static void threads_are_planned(void)
{
    struct options o;
    struct setup s;
    struct dev *d;
    make(&o, &s);
    setup_free(&s);
    o.parallel.dp = 2;
    for (int threads = 0; threads <= 3; threads++) {
        o.train.threads = threads;
        CHECK_OK(setup_make(&o, 257, true, &s));
        struct dev_args a = {.kind = DEV_CPU, .ct = DT_F32, .threads = options_threads(&o, 4)};
        CHECK_OK(dev_open(&a, &d));
        CHECK_INT(s.memory[1].bytes[MEMORY_LIBRARY], d->workspace_bytes);
        CHECK_INT(d->workspace_bytes, (int64_t)a.threads << 22);
        dev_close(d);
        setup_free(&s);
    }
    o.train.device = OPTIONS_REF;
    CHECK_OK(setup_make(&o, 257, true, &s));
    CHECK_INT(s.memory[0].bytes[MEMORY_LIBRARY], 0);
    setup_free(&s);
}

/* The library's bytes are gone when the device is open; all others must be left. */
static void to_the_byte(void)
{
    struct options o;
    struct setup s;
    make(&o, &s);
    for (int r = 0; r < 2; r++) {
        int64_t rest = memory_total(&s.memory[r]) - 1000;
        CHECK_OK(room_check(&s, r, rest, 1 << 30));
        CHECK_INT(room_check(&s, r, rest - 1, 1 << 30), ERR_MEMORY);
        CHECK_OK(room_check(&s, r, 0, 0));
    }
    CHECK(memory_total(&s.memory[0]) != memory_total(&s.memory[1]));
    setup_free(&s);
}

/* Of a GPU that they share what both need must be left, and its sum stands in the table. */
static void both_on_one(void)
{
    struct options o;
    struct setup s;
    struct text table = {0};
    char want[64];
    make(&o, &s);
    CHECK(!strstr((setup_table(&s, NULL, &table), table.s), "all on one"));
    o.train.share_gpus = true;
    int64_t both = memory_total(&s.memory[0]) + memory_total(&s.memory[1]);
    CHECK_INT(setup_shared_bytes(&s), both);
    for (int r = 0; r < 2; r++) {
        CHECK_OK(room_check(&s, r, both - 2000, 1 << 30));
        CHECK_ERR(room_check(&s, r, both - 2001, 1 << 30), ERR_MEMORY, "2 ranks that share a GPU");
        CHECK_OK(room_check(&s, r, 0, 0));
    }
    setup_table(&s, NULL, &table);
    snprintf(want, sizeof want, "\n  all on one %14lld B  (", (long long)both);
    CHECK(strstr(table.s, want) != NULL);
    text_free(&table);
    setup_free(&s);
}

static void what_needs_what(void)
{
    struct options o;
    struct setup s;
    char want[1024], need[32];
    struct text kinds = {0};
    make(&o, &s);
    CHECK_INT(room_check(&s, 1, 1 << 10, 1 << 20), ERR_MEMORY);
    setup_kinds(&s.memory[1], &kinds);
    snprintf(want, sizeof want, "memory: rank 1 needs %s, and its device has 2.0 KiB free of 1.0 "
             "MiB:%s; use more ranks (parallel.tp, parallel.pp), a smaller parallel.microbatch, or "
             "train.recompute (every:1, full)", text_bytes(memory_total(&s.memory[1]), need),
             kinds.s);
    CHECK_STR(err_text(), want);
    CHECK(strstr(kinds.s, ", library 1000 B") != NULL && kinds.s[0] == ' ');
    text_free(&kinds);
    setup_free(&s);
    CHECK_OK(setup_make(&o, 257, false, &s)); /* generation has one microbatch, and no backward */
    CHECK_ERR(room_check(&s, 1, 1 << 10, 1 << 20), ERR_MEMORY, "rank 1 needs");
    CHECK(strstr(err_text(), "use more ranks (parallel.tp, parallel.pp)") != NULL);
    CHECK(strstr(err_text(), "microbatch") == NULL && strstr(err_text(), "recompute") == NULL);
    setup_free(&s);
}

static void planned_beside_used(void)
{
    struct options o;
    struct setup s;
    struct text table = {0};
    char want[64];
    make(&o, &s);
    room_table(&s, (const double[]){5e9, 7}, &table);
    for (int r = 0; r < 2; r++) {
        snprintf(want, sizeof want, "  rank %-6d %18lld B %12lld B  (", r,
                 (long long)memory_total(&s.memory[r]), r ? 7LL : 5000000000LL);
        test_check(strstr(table.s, want) != NULL, __FILE__, __LINE__, "no \"%s\" in %s", want,
                   table.s);
    }
    text_free(&table);
    setup_free(&s);
}

static int asked, times; /* GPUs, one bit each; how often */

/* GPUs 0 to 3 and 4 to 7 read each other, but none of the others. */
static bool two_islands(const int *gpu, int n)
{
    CHECK_INT(n, 2);
    return gpu[0] / 4 == gpu[1] / 4;
}

static bool one_island(const int *gpu, int n)
{
    times++;
    for (int i = 0; i < n; i++)
        asked |= 1 << gpu[i];
    return true;
}

static bool no_island(const int *gpu, int n)
{
    asked |= 1 << gpu[n - 1];
    return false;
}

/* tp, dp and pp 2. */
static void eight_gpus(struct options *o)
{
    struct setup s;
    make(o, &s);
    setup_free(&s);
    o->parallel.tp = o->parallel.dp = 2;
    o->train.device = OPTIONS_CUDA;
}

/* The ranks of a stage are in one island, those of a pipeline in two. Asked are threads on GPUs
 * alone, where there are pairs. */
static void plan_follows_the_gpus(void)
{
    struct options o;
    struct setup s;
    eight_gpus(&o);
    CHECK_OK(setup_make(&o, 257, true, &s));
    int64_t first = memory_total(&s.memory[0]), last = memory_total(&s.memory[1]);
    CHECK_OK(setup_ask_gpus(&s, one_island));
    CHECK_INT(asked, 0xff);
    CHECK_INT(times, 12); /* each pair once */
    CHECK_INT(memory_total(&s.memory[0]), first);
    CHECK_INT(memory_total(&s.memory[1]), last);
    CHECK_OK(setup_ask_gpus(&s, two_islands));
    int64_t channels = s.memory[0].bytes[MEMORY_TRANSPORT];
    CHECK(memory_total(&s.memory[0]) > first && memory_total(&s.memory[1]) > last);
    CHECK_OK(setup_ask_gpus(&s, no_island));
    int64_t more = s.memory[0].bytes[MEMORY_TRANSPORT];
    CHECK(more > channels);
    setup_free(&s);

    o.train.transport = COMM_MPI; /* what processes take, who sum by NCCL */
    asked = 0;
    CHECK_OK(setup_make(&o, 257, true, &s));
    CHECK_INT(s.memory[0].bytes[MEMORY_TRANSPORT], more);
    CHECK_OK(setup_ask_gpus(&s, no_island));
    CHECK_INT(asked, 0);
    setup_free(&s);

    o.train.transport = COMM_THREAD;
    o.train.device = OPTIONS_CPU;
    CHECK_OK(setup_make(&o, 257, true, &s));
    CHECK_OK(setup_ask_gpus(&s, no_island));
    o.train.device = OPTIONS_CUDA;
    o.parallel.tp = o.parallel.dp = o.parallel.pp = 1;
    setup_free(&s);
    CHECK_OK(setup_make(&o, 257, true, &s));
    CHECK_OK(setup_ask_gpus(&s, no_island));
    CHECK_INT(asked, 0);
    setup_free(&s);
}

/* All pairs but that of GPU 5. */
static bool second_pair_apart(const int *gpu, int n)
{
    (void)n;
    return gpu[0] != 5;
}

static void stages_are_planned_apart(void)
{
    struct options o;
    struct setup s;
    eight_gpus(&o);
    CHECK_OK(setup_make(&o, 257, true, &s));
    int64_t first = memory_total(&s.memory[0]), last = memory_total(&s.memory[1]);
    CHECK_OK(setup_ask_gpus(&s, second_pair_apart)); /* of stage 1, the pair of tp 1 */
    CHECK_INT(memory_total(&s.memory[0]), first);
    CHECK(memory_total(&s.memory[1]) > last);
    setup_free(&s);
}

/* Pairs of data ranks cross the islands, pairs of tensor ranks do not. */
static bool tensor_pairs_alone(const int *gpu, int n)
{
    (void)n;
    return gpu[1] == gpu[0] + 1;
}

/* Does a rank of each stage overlap communication with GEMMs, and does the table say so? */
static void check_overlap(const struct setup *s, bool overlap)
{
    struct text table = {0};
    for (int pp = 0; pp < 2; pp++) {
        struct exec_args x;
        setup_exec_args(s, pp, &x);
        CHECK_INT(x.tp_rows, overlap ? 2048 : 0);
    }
    setup_table(s, NULL, &table);
    CHECK((strstr(table.s, "tp 2 overlapped, pp 2") != NULL) == overlap);
    text_free(&table);
}

/* tp_overlap auto is for copies: off where tensor ranks' GPUs, of whichever stage, do not reach
 * each other, whatever data ranks' do. on stays on. */
static void overlap_follows_the_gpus(void)
{
    struct options o;
    struct setup s;
    eight_gpus(&o);
    for (int word = 0; word < 3; word++) {
        bool on = word == OPTIONS_TP_ON, off = word == OPTIONS_TP_OFF;
        o.parallel.tp_overlap = word;
        CHECK_OK(setup_make(&o, 257, true, &s));
        check_overlap(&s, !off);
        CHECK_OK(setup_ask_gpus(&s, second_pair_apart));
        check_overlap(&s, !off); /* 5 and 7 are data ranks */
        CHECK_OK(setup_ask_gpus(&s, tensor_pairs_alone));
        check_overlap(&s, !off);
        CHECK_OK(setup_ask_gpus(&s, no_island));
        check_overlap(&s, on);
        setup_free(&s);
    }
}

static const struct test_case cases[] = {{"plan_follows_the_gpus", plan_follows_the_gpus},
                                         {"stages_are_planned_apart", stages_are_planned_apart},
                                         {"overlap_follows_the_gpus", overlap_follows_the_gpus},
                                         {"device_as_configured", device_as_configured},
                                         {"threads_are_planned", threads_are_planned},
                                         {"to_the_byte", to_the_byte},
                                         {"both_on_one", both_on_one},
                                         {"what_needs_what", what_needs_what},
                                         {"planned_beside_used", planned_beside_used}};
TEST_MAIN(cases)
