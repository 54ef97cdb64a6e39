/* SPDX-License-Identifier: Apache-2.0
 *
 * Training with measured costs: another order of the same work, so the numbers are those of one
 * rank; what a traced run took is what the next one is made for.
 */
#include "folder.h"

#include "base/mem.h"
#include "setup/setup.h"
#include "sim/sim.h"

#include <limits.h>
#include <stdlib.h>

static const char *const common[] = {
    "model.kind=gpt",      "model.layers=8", "model.hidden=16",  "model.heads=2", "model.seq=8",
    "model.vocab=257",     "train.batch=9",  "train.steps=3",    "train.threads=1",
    "train.device=ref",    "optim.warmup=1"};

static void write_file(const char *name, const char *text)
{
    char path[FOLDER_PATH];
    folder_path(name, path);
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* words: up to a NULL. */
static struct plait_config *config(const char *run, const char *const *words, const char *costs)
{
    folder_prepare(PLAIT_SOURCE_DIR "/README.md", "tokens");
    struct plait_config *c = folder_config(run, "tokens");
    folder_set(c, common, sizeof common / sizeof *common);
    folder_set(c, words, INT_MAX);
    if (costs)
        folder_set_file(c, "parallel.costs", costs);
    return c;
}

/* Four stages for which a list made for equal times is not the best: on four ranks, and in a V on
 * two. */
static const char four[] = "stage,F,B,I,W\n0,1.5,2,.5,1.5\n1,.5,2,1.5,.5\n2,1,3,1,2\n3,2,2,1,1\n";
static const char of_v[] = "stage,F,B,I,W\n0,1,4,3,1\n1,1,4,3,1\n2,1,4,3,1\n3,1.5,4,3,1\n";

/* The file for a schedule. */
static const char *costs_for(const char *schedule)
{
    return strcmp(schedule, "zb-v") == 0 ? "v.csv" : "four.csv";
}

static void numbers_of_one_rank(void)
{
    static const char *const one[] = {NULL};
    static const char *const split[][4] = {
        {"parallel.schedule=zb-v", "parallel.pp=2"},
        {"parallel.schedule=zb-v", "parallel.pp=2", "parallel.memory_limit=3"},
        {"parallel.schedule=zb-1p", "parallel.pp=4"},
        {"parallel.schedule=zb-1p", "parallel.pp=4", "parallel.memory_limit=2"},
        {"parallel.schedule=zb-2p", "parallel.pp=4"},
        {"parallel.schedule=1f1b", "parallel.pp=4"},
    };
    struct folder_seen want, got;
    write_file("four.csv", four);
    write_file("v.csv", of_v);
    CHECK_INT(folder_train(config("one", one, NULL), &want), 0);
    CHECK_INT(want.losses, 3);
    for (int i = 0; i < 6; i++) {
        char run[24];
        snprintf(run, sizeof run, "split%d", i);
        const char *costs = costs_for(strchr(split[i][0], '=') + 1);
        int code = folder_train(config(run, split[i], costs), &got);
        test_check(code == 0, __FILE__, __LINE__, "%s: %s", split[i][0], plait_error());
        CHECK_INT(got.losses, 3);
        for (int step = 0; step < 3 && code == 0; step++)
            CHECK_NEAR(got.loss[step], want.loss[step], 1e-10);
        CHECK(strstr(got.table, "stages at the costs of ") && strstr(got.table, ".csv\n"));
    }
}

struct asked { const char *schedule; int pp; double limit; bool costs; };

/* The setup of what is asked; `o` must outlive it. */
static void setup_of(struct asked a, struct options *o, struct setup *s)
{
    CHECK_OK(conf_defaults(&options_table, o));
    CHECK_OK(conf_set(&options_table, o, "model.layers=8"));
    CHECK_OK(conf_set(&options_table, o, "train.batch=9"));
    snprintf(o->parallel.schedule, sizeof o->parallel.schedule, "%s", a.schedule);
    o->parallel.pp = a.pp;
    o->parallel.memory_limit = a.limit;
    if (a.costs)
        folder_path(costs_for(a.schedule), o->parallel.costs);
    CHECK_OK(setup_make(o, 257, true, s));
}

/* Schedules that look at costs have another list, and a bubble no larger at those costs; the others
 * keep theirs, and the bubble is predicted with the costs. The limit is on whole activations. */
static void lists_and_bubbles(void)
{
    static const struct {
        const char *name;
        int pp;
        bool looks;
    } kind[] = {{"zb-v", 2, true}, {"zb-1p", 4, true}, {"zb-2p", 4, true}, {"1f1b", 4, false}};
    write_file("four.csv", four);
    write_file("v.csv", of_v);
    for (int i = 0; i < 4; i++) {
        struct options o, p;
        struct setup plain, made;
        struct sim_result r;
        setup_of((struct asked){kind[i].name, kind[i].pp, 0, false}, &o, &plain);
        setup_of((struct asked){kind[i].name, kind[i].pp, 0, true}, &p, &made);
        test_check((made.report.hash != plain.report.hash) == kind[i].looks, __FILE__, __LINE__,
                   "%s: %s list", kind[i].name, kind[i].looks ? "the same" : "another");
        struct sim_cost cost = {.stage_time = (const double(*)[SCHED_COMPUTE_OPS])made.time};
        CHECK_OK(sim_run(&plain.sched, &plain.report, &cost, false, &r));
        test_check(made.bubble <= r.bubble_fraction + 1e-12, __FILE__, __LINE__,
                   "%s: bubble %g, without costs %g", kind[i].name, made.bubble, r.bubble_fraction);
        CHECK(kind[i].looks || made.bubble == r.bubble_fraction);
        CHECK(made.bubble != plain.bubble);
        sim_result_free(&r);
        setup_free(&plain);
        setup_free(&made);
        for (int limit = 2; kind[i].looks && limit <= 4; limit++) {
            setup_of((struct asked){kind[i].name, kind[i].pp, limit, limit == 3}, &o, &made);
            for (int rank = 0; rank < kind[i].pp; rank++)
                test_check(made.report.peak[rank] <= limit, __FILE__, __LINE__,
                           "%s: rank %d keeps %d of %d", kind[i].name, rank,
                           made.report.peak[rank], limit);
            setup_free(&made);
        }
    }
}

/* From a trace to the list that it asks for. */
static void measured_then_trained(void)
{
    static const char *const traced[] = {"parallel.schedule=zb-v", "parallel.pp=2",
                                         "train.trace=true", NULL};
    static const char *const again[] = {"parallel.schedule=zb-v", "parallel.pp=2", NULL};
    char run[FOLDER_PATH], costs[FOLDER_PATH], *page = NULL;
    struct folder_seen first, second;
    CHECK_INT(folder_train(config("traced", traced, NULL), &first), 0);
    folder_path("traced", run);
    folder_path("traced.csv", costs);
    struct plait_compare a = {.size = sizeof a, .run = run, .skip = 0, .costs = costs};
    test_check(plait_compare(&a, &page) == 0, __FILE__, __LINE__, "%s", plait_error());
    plait_free(page);
    int code = folder_train(config("again", again, "traced.csv"), &second);
    test_check(code == 0, __FILE__, __LINE__, "%s", plait_error());
    CHECK(first.losses == 3 && second.losses == 3);
    CHECK_NEAR(second.loss[2], first.loss[2], 1e-10);
}

/* A verb that opens the file a second time has an error: the plan is made once. */
static void files_are_read_once(void)
{
    static const char *const costs[] = {"parallel.schedule=zb-1p", "parallel.pp=4", NULL};
    static const char list[] = "0F0,0F1,0F2,0F3,0B0,0F4,0B1,0F5,0B2,0F6,0B3,0F7,0B4,0F8,0B5,0B6,"
                               "0B7,0B8\n";
    char path[FOLDER_PATH], schedule[FOLDER_PATH + 32];
    struct folder_seen seen;
    int opened = 0; /* the fault counts on from verb to verb */
    write_file("once.csv", four);
    write_file("once.txt", list);
    folder_path("once.txt", path);
    snprintf(schedule, sizeof schedule, "parallel.schedule=file:%s", path);
    const char *const of_file[] = {schedule, NULL};
    for (int file = 0; file < 2; file++)
        for (int train = 0; train < 2; train++) {
            char fault[64], *report = NULL;
            struct plait_config *c =
                config(train ? "once" : "checked", file ? of_file : costs,
                       file ? NULL : "once.csv");
            snprintf(fault, sizeof fault, "open@once.%s:%d:EIO", file ? "txt" : "csv", opened + 2);
            setenv("PLAIT_FAIL_FS", fault, 1);
            int code = train ? folder_train(c, &seen) : plait_config_check(c, 0, &report);
            unsetenv("PLAIT_FAIL_FS");
            test_check(code == 0, __FILE__, __LINE__, "%s: %s", fault, plait_error());
            opened++;
            folder_remove("once");
            plait_free(report);
            if (!train)
                plait_config_free(c);
        }
    setenv("PLAIT_FAIL_FS", "open@once.txt:5:EIO", 1); /* it is this call that counts */
    struct plait_config *c = config("once2", of_file, NULL);
    CHECK_INT(plait_config_check(c, 0, NULL), PLAIT_CONFIG);
    unsetenv("PLAIT_FAIL_FS");
    plait_config_free(c);
}

static const struct test_case cases[] = {
    {"files_are_read_once", files_are_read_once},
    {"numbers_of_one_rank", numbers_of_one_rank},
    {"lists_and_bubbles", lists_and_bubbles},
    {"measured_then_trained", measured_then_trained},
};
TEST_MAIN(cases)
