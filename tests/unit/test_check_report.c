/* SPDX-License-Identifier: Apache-2.0
 *
 * What check reports: the table of what will run, and warnings of what is legal but hardly meant.
 */
#include "illegal.h"

#include "base/thread.h"
#include "base/fs.h"
#include "base/mem.h"
#include "comm/comm.h"
#include "device/device.h"
#include <sched.h>
#include <stdlib.h>

/* A course of the learning rate that does not fit the run is shortened and said, and one that fits
 * is not spoken of. */
static void courses_are_shortened_and_said(void)
{
    static const char *const rises[] = {"constant", "linear", "cosine", "wsd"};
    for (int i = 0; i < 4 * 5 * 4; i++) {
        int64_t steps = 10, warmup = 8 + i / 4 % 5, decay = i % 4; /* 8 to 12, 0 to 3 */
        bool wsd = i / 20 == 3;
        char course[48], rise[48], fall[48], said[128];
        if (wsd && decay == 0)
            continue;
        snprintf(course, sizeof course, "optim.schedule=%s", rises[i / 20]);
        snprintf(rise, sizeof rise, "optim.warmup=%d", (int)warmup);
        snprintf(fall, sizeof fall, "optim.decay_steps=%d", wsd ? (int)decay : 0);
        struct options o = WITH("train.steps=10", course, rise, fall, "data.train=");
        char *s = report_of(&o, CHECK_PLAN);
        snprintf(said, sizeof said, "warning optim.warmup %d is longer than train.steps 10: the "
                                    "learning rate rises over 10 steps\n", (int)warmup);
        CHECK_INT(strstr(s, said) != NULL, warmup > steps);
        CHECK_INT(strstr(s, "optim.warmup") != NULL,
                  warmup > steps || (wsd && decay > steps - warmup));
        int64_t left = warmup < steps ? steps - warmup : 0;
        snprintf(said, sizeof said, "over the last %d\n", (int)left);
        CHECK_INT(strstr(s, said) != NULL, wsd && left > 0 && decay > left);
        CHECK_INT(strstr(s, "does not decay") != NULL, wsd && left == 0);
        mem_free(s);
    }
}

static void report_says_what_will_run(void)
{
    illegal_files();
    struct options o = WITH("parallel.pp=2", "parallel.microbatch=3", "data.train=bytes.tok",
                            "data.valid=bytes.tok", "model.seq=16");
    char *s = report_of(&o, CHECK_PLAN);
    CHECK(strstr(s, "2 ranks: tp 1, pp 2, dp 1") != NULL);
    CHECK(strstr(s, "schedule 1f1b, predicted bubble") != NULL);
    CHECK(strstr(s, "machine 2 ranks of") != NULL);
    CHECK(strstr(s, "memory a rank") != NULL);
    CHECK(strstr(s, "data    bytes.tok: 1201 tokens, 75 samples") != NULL);
    CHECK(strstr(s, "valid   bytes.tok") != NULL);
    CHECK(strstr(s, "3 microbatches of at most 3 a data rank") != NULL); /* 3, 3 and 2 */
    CHECK(cores_usable() < 2 || strstr(s, "warning") == NULL);
    mem_free(s);
    o = WITH("parallel.microbatch=4", "data.train=bytes.tok", "model.seq=16");
    s = report_of(&o, CHECK_PLAN);
    CHECK(strstr(s, "2 microbatches of 4 a data rank") != NULL);
    mem_free(s);
}

/* ---- cores ---- */

struct cores_case {
    const char *transport;
    int pp, threads, launched, here; /* here: processes of the launch on this machine */
    const char *says;                /* NULL: nothing */
};

static void cores_are(const struct cores_case *c, enum check_for purpose)
{
    char pp[32], threads[32], transport[32], size[16], here[16];
    snprintf(pp, sizeof pp, "parallel.pp=%d", c->pp);
    snprintf(threads, sizeof threads, "train.threads=%d", c->threads);
    snprintf(transport, sizeof transport, "train.transport=%s", c->transport);
    snprintf(size, sizeof size, "%d", c->launched);
    snprintf(here, sizeof here, "%d", c->here);
    if (c->launched > 0) {
        setenv("OMPI_COMM_WORLD_SIZE", size, 1);
        setenv("OMPI_COMM_WORLD_LOCAL_SIZE", here, 1);
    }
    struct options o = WITH("data.train=bytes.tok", "train.device=cpu", pp, threads, transport);
    char *s = report_of(&o, purpose);
    const char *core = strstr(s, " core");
    test_check(c->says ? strstr(s, c->says) != NULL : !core, __FILE__, __LINE__,
               "%s, pp %d, %d threads, %d of %d processes here, purpose %d: %s", c->transport,
               c->pp, c->threads, c->here, c->launched, purpose, s);
    mem_free(s);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
}

/* More threads than cores are said alike of threads and processes, by check and at the start. */
static void too_few_cores_are_said(void)
{
    int mine = cores_usable(), all = cores_of_machine();
    char alone[96], threads[96], plan[96], here[96];
    snprintf(alone, sizeof alone, "warning 1 rank of %d threads has %d core", mine + 1, mine);
    snprintf(threads, sizeof threads, "warning 4 ranks of %d thread%s share %d core", mine,
             text_plural(mine, "s"), mine);
    snprintf(plan, sizeof plan, "warning 4 ranks of %d thread%s on one machine like this share %d "
             "core", all, text_plural(all, "s"), all);
    snprintf(here, sizeof here, "warning 4 ranks of %d thread%s share %d core", all,
             text_plural(all, "s"), all);
    const struct cores_case by_thread[] = {
        {"thread", 1, mine, 0, 0, NULL}, {"thread", 1, mine + 1, 0, 0, alone},
        {"thread", 4, mine, 0, 0, threads}};
    const struct cores_case launched[] = {
        {"mpi", 4, all, 4, 4, here}, {"mpi", 4, all, 4, 1, NULL}};
    illegal_files();
    for (int i = 0; i < 6; i++)
        cores_are(&by_thread[i / 2], i % 2 ? CHECK_TRAIN : CHECK_PLAN);
    if (!comm_built(COMM_MPI)) {
        test_skip("this program has no MPI");
        return;
    }
    cores_are(&(struct cores_case){"mpi", 4, all, 0, 0, plan}, CHECK_PLAN);
    for (int i = 0; i < 4 && mine == all; i++)
        cores_are(&launched[i / 2], i % 2 ? CHECK_TRAIN : CHECK_PLAN);
}

/* Processes that a launcher binds to a core each have one, and share nothing. */
static void bound_processes_share_no_core(void)
{
    cpu_set_t before, one;
    int first = 0;
    if (cores_of_machine() < 2 || !comm_built(COMM_MPI)) {
        test_skip("one core, or no MPI");
        return;
    }
    CPU_ZERO(&one);
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    while (!CPU_ISSET(first, &before))
        first++;
    CPU_SET(first, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    illegal_files();
    cores_are(&(struct cores_case){"mpi", 2, 1, 2, 2, NULL}, CHECK_TRAIN);
    cores_are(&(struct cores_case){"mpi", 2, 2, 2, 2, "warning 1 rank of 2 threads has 1 core,"},
              CHECK_TRAIN);
    CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
}

/* Bytes of pp 0 in the table. */
static double first_rank(const char *report)
{
    const char *said = strstr(report, "memory a rank");
    said = said ? strstr(said, "  pp 0 ") : NULL;
    return said ? strtod(said + strlen("  pp 0 "), NULL) : 0;
}

static double bubble_of(const char *report)
{
    const char *said = strstr(report, "predicted bubble ");
    return said ? strtod(said + strlen("predicted bubble "), NULL) : 0;
}

static void recompute_is_reported(void)
{
    struct options o = WITH("parallel.pp=2", "parallel.schedule=gpipe");
    char *plain = report_of(&o, CHECK_PLAN);
    o = WITH("parallel.pp=2", "parallel.schedule=gpipe", "train.recompute=full");
    char *full = report_of(&o, CHECK_PLAN);
    CHECK(strstr(plain, "recompute") == NULL);
    CHECK(strstr(full, "schedule gpipe, recompute full, predicted bubble") != NULL);
    CHECK(first_rank(full) > 0 && first_rank(full) < first_rank(plain));
    /* recomputes are work, and the last rank's are in the open: less of the step is idle */
    CHECK(bubble_of(full) > 0 && bubble_of(full) < bubble_of(plain) - 2);
    mem_free(plain);
    mem_free(full);
}

/* A list with recomputes of its own: two microbatches of four, one of which is recomputed. */
static void recompute_of_a_file_is_reported(void)
{
    static const char list[] = "0F0,0F1,0R0,0B0,0B1\n";
    illegal_files();
    CHECK_OK(fs_put("redo.csv", list, (int64_t)strlen(list)));
    struct options o = WITH("parallel.schedule=file:redo.csv", "parallel.microbatch=4");
    char *s = report_of(&o, CHECK_PLAN);
    CHECK(strstr(s, "schedule redo.csv, recompute as its file says, predicted bubble 0.0") != NULL);
    mem_free(s);
    o = WITH("parallel.schedule=file:redo.csv", "parallel.microbatch=4", "train.recompute=full");
    s = report_of(&o, CHECK_PLAN);
    CHECK(strstr(s, "schedule redo.csv, recompute full") != NULL);
    mem_free(s);
}

/* What a list of PyTorch says of sharded weights, and both bubbles: of the step, which with equal
 * stages would be (p - 1) / (m + p - 1), and over ideal time, share / (1 - share). */
static void file_of_another_system_is_reported(void)
{
    static const char list[] = "0UNSHARD,0F0,0F1,0B0,0B1,0REDUCE_GRAD,0RESHARD\r\n"
                               "1UNSHARD,1F0,1B0,1F1,1B1,1REDUCE_GRAD,1RESHARD\r\n";
    illegal_files();
    CHECK_OK(fs_put("torch.csv", list, (int64_t)strlen(list)));
    struct options o = WITH("parallel.schedule=file:torch.csv", "parallel.pp=2",
                            "parallel.microbatch=4");
    char *s = report_of(&o, CHECK_PLAN);
    CHECK(strstr(s, "\nfile    passed over: 2 UNSHARD, 2 RESHARD, 2 REDUCE_GRAD\n") != NULL);
    const char *over = strstr(s, " % of the step (");
    double share = bubble_of(s) / 100, ideal = over ? strtod(over + 16, NULL) / 100 : 0;
    CHECK(share > 0.2 && over && strstr(over, " % over ideal time), stages weighed by FLOPs"));
    CHECK_NEAR(ideal, share / (1 - share), 0.003);
    mem_free(s);
}

static void few_microbatches_are_warned_of(void)
{
    /* 1f1b, p 4, m 2, F 1 and B 2: the bubble is (p - 1) / (m + p - 1) = 60 % when stages cost the
     * same. The head makes the last stage dearer, which idles the others more. */
    struct options o = WITH("parallel.pp=4", "train.batch=2");
    char *s = report_of(&o, CHECK_PLAN);
    const char *said = strstr(s, "busy, predicted bubble ");
    double bubble = said ? strtod(said + strlen("busy, predicted bubble "), NULL) : 0;
    test_check(bubble > 60 && bubble < 75, __FILE__, __LINE__, "bubble in: %s", s);
    CHECK(strstr(s, "2 microbatches cannot keep parallel.pp 4 ranks busy") != NULL);
    CHECK(strstr(s, "train.batch 4 or more can make enough") != NULL);
    mem_free(s);
    o = WITH("parallel.pp=4", "parallel.microbatch=8");
    s = report_of(&o, CHECK_PLAN);
    CHECK(strstr(s, "parallel.microbatch 2 makes 4 of them") != NULL);
    mem_free(s);
}

/* Schedules made for several chunks say so where there is one, and what would make two; others,
 * and one rank, do not. */
static void one_chunk_of_several_is_warned_of(void)
{
    static const struct { const char *set[3], *says; } c[] = {
        {{"parallel.schedule=interleaved"}, "interleaved gains by several chunks a rank, and "
                                            "parallel.chunks 0 makes one; parallel.chunks=2 makes "
                                            "two\n"},
        {{"parallel.schedule=looped-bfs"}, "looped-bfs gains by several chunks a rank, and"},
        {{"parallel.schedule=interleaved", "parallel.chunks=1"}, "parallel.chunks 1 makes one; "},
        {{"parallel.schedule=interleaved", "model.layers=3"}, "needs model.layers 4 or more\n"},
        {{"parallel.schedule=interleaved", "parallel.chunks=2"}, NULL},
        {{"parallel.schedule=interleaved", "parallel.pp=1"}, NULL},
        {{"parallel.schedule=1f1b"}, NULL},
        {{"parallel.schedule=zb-v"}, NULL},
    };
    illegal_files();
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        for (int purpose = 0; purpose < 2; purpose++) {
            struct options o = WITH("data.train=bytes.tok", "parallel.pp=2");
            for (int k = 0; k < 3 && c[i].set[k]; k++)
                CHECK_OK(conf_set(&options_table, &o, c[i].set[k]));
            char *s = report_of(&o, purpose ? CHECK_TRAIN : CHECK_PLAN);
            const char *said = strstr(s, "warning parallel.schedule ");
            test_check(c[i].says ? said && strstr(said, c[i].says) : !said, __FILE__, __LINE__,
                       "row %d: %s", (int)i, s);
            mem_free(s);
        }
    }
}

/* A rank on a GPU has one for itself, and threads have them on one machine. */
static void gpus_are_counted(void)
{
    static const struct { const char *set[3], *says; } c[] = {
        {{"train.device=cuda"}, "transport thread; needs 1 GPU\n"},
        {{"train.device=cuda", "parallel.pp=2", "parallel.dp=2"},
         "transport thread; needs 4 GPUs of one machine\n"},
        {{"train.device=cuda", "parallel.pp=2", "train.transport=mpi"},
         "transport mpi; needs 2 GPUs\n"},
        {{"train.device=cpu", "parallel.pp=2"}, "transport thread\n"},
    };
    if (!dev_built(DEV_CUDA) || !comm_nccl_built() || !comm_built(COMM_MPI)) {
        test_skip("this program has no CUDA, no NCCL or no MPI");
        return;
    }
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct options o = WITH("model.vocab=257");
        for (int k = 0; k < 3 && c[i].set[k]; k++)
            CHECK_OK(conf_set(&options_table, &o, c[i].set[k]));
        char *s = report_of(&o, CHECK_PLAN);
        test_check(strstr(s, c[i].says) != NULL, __FILE__, __LINE__, "row %d: %s", (int)i, s);
        mem_free(s);
    }
}

/* A vocabulary much larger than the file's 257 is told before a run, one that is rounded up not. */
static void large_vocabularies_are_warned_of(void)
{
    static const struct { const char *set; bool warned; } c[] = {
        {"model.vocab=0", false}, {"model.vocab=257", false}, {"model.vocab=320", false},
        {"model.vocab=384", false}, {"model.vocab=512", true}, {"model.vocab=50257", true},
    };
    illegal_files();
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        for (int purpose = 0; purpose < 2; purpose++) {
            struct options o = WITH("data.train=bytes.tok", c[i].set);
            char *s = report_of(&o, purpose ? CHECK_TRAIN : CHECK_PLAN);
            const char *said = strstr(s, "data.train was made with 257 ids: the others are never");
            test_check((said != NULL) == c[i].warned, __FILE__, __LINE__, "%s: %s", c[i].set, s);
            mem_free(s);
        }
    }
}

/* Each key that was set and waits for another is said once, with its value; defaults are not. */
static void idle_keys_are_warned_of(void)
{
    static const char *const c[][2] = {
        {"parallel.tp_overlap=on", "warning parallel.tp_overlap on has no effect: parallel.tp"},
        {"parallel.tp_rows=64", "warning parallel.tp_rows 64 has no effect: parallel.tp"},
        {"parallel.sp=true", "warning parallel.sp true has no effect: parallel.tp is 1"},
        {"parallel.zero=1", "warning parallel.zero 1 has no effect: parallel.dp is 1"},
        {"train.deterministic=true", "warning train.deterministic true has no effect: only runs"},
        {"train.hang_timeout=5", "warning train.hang_timeout 5 has no effect: there is"},
        {"model.rope_theta=5e5", "warning model.rope_theta 500000 has no effect: model.kind gpt"},
    };
    illegal_files();
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct options o = WITH("data.train=bytes.tok", c[i][0]);
        for (int purpose = 0; purpose < 2; purpose++) {
            char *s = report_of(&o, purpose ? CHECK_TRAIN : CHECK_PLAN);
            const char *said = strstr(s, c[i][1]), *first = strstr(s, "has no effect");
            test_check(said && first && !strstr(first + 1, "has no effect"), __FILE__, __LINE__,
                       "%s: %s", c[i][0], s);
            mem_free(s);
        }
    }
    struct options o = WITH("parallel.tp=2", "parallel.tp_overlap=on", "parallel.tp_rows=64",
                            "train.hang_timeout=5");
    char *s = report_of(&o, CHECK_PLAN);
    CHECK(strstr(s, "no effect") == NULL);
    mem_free(s);
}

static const struct test_case cases[] = {
    {"courses of the learning rate are shortened and said", courses_are_shortened_and_said},
    {"report_says_what_will_run", report_says_what_will_run},
    {"too_few_cores_are_said", too_few_cores_are_said},
    {"bound_processes_share_no_core", bound_processes_share_no_core},
    {"recompute_is_reported", recompute_is_reported},
    {"recompute_of_a_file_is_reported", recompute_of_a_file_is_reported},
    {"file_of_another_system_is_reported", file_of_another_system_is_reported},
    {"few_microbatches_are_warned_of", few_microbatches_are_warned_of},
    {"one_chunk_of_several_is_warned_of", one_chunk_of_several_is_warned_of},
    {"gpus_are_counted", gpus_are_counted},
    {"large_vocabularies_are_warned_of", large_vocabularies_are_warned_of},
    {"idle_keys_are_warned_of", idle_keys_are_warned_of},
};
TEST_MAIN(cases)
