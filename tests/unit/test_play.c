/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator's costs, and what the chapter of simulation makes of its results: links, times of
 * single stages, memory over time, comparisons, tables, files.
 */
#include "base/fs.h"
#include "base/mem.h"
#include "plait.h"
#include "sim/sim.h"
#include "test.h"
#include "timed.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct sim_cost unit = {.tf = 1, .tb = 2, .ti = 1, .tw = 1};

static bool play(const char *name, struct sched_shape shape, const struct sim_cost *cost,
                 struct timed *x)
{
    struct sched made;
    *x = (struct timed){0};
    if (sched_make(name, &shape, NULL, &made) != ERR_OK)
        return false;
    return timed_play(&made, &(struct sched_lower_args){0}, cost, x);
}

/* ---- costs ---- */

/* Two ranks, three microbatches, a message occupies the link for two units: forwards of rank 0 end
 * at 1, 2, 3, their messages leave at 1, 3, 5 and are there at 3.5, 5.5, 7.5. */
static void messages_queue_on_links(void)
{
    struct sim_cost cost = unit;
    struct timed x;
    cost.bytes = 20;
    cost.bandwidth = 10;
    cost.latency = 0.5;
    if (play("gpipe", (struct sched_shape){.p = 2, .m = 3, .v = 1}, &cost, &x)) {
        /* rank 1: F 3.5 5.5 7.5, B 8.5 10.5 12.5 to 14.5; gradients leave at 10.5, 12.5, 14.5 and
         * are there at 13, 15, 17; B of rank 0 starts at 13 15 17 and ends at 19 */
        CHECK_NEAR(x.r.makespan, 19, 1e-12);
        CHECK_NEAR(x.r.first[1], 3.5, 1e-12);
        CHECK_NEAR(x.r.sending[0], 6, 1e-12);
        CHECK_NEAR(x.r.sending[1], 6, 1e-12);
        /* rank 1 waits for work until 1, then for the first message; later inputs are made already
         */
        CHECK_NEAR(x.r.waiting[1], 1, 1e-12);
        CHECK_NEAR(x.r.message[1], 2.5 + 1 + 1, 1e-12);
        /* rank 0: 3 to 10.5 for the first gradient to be made, 2.5 on its way */
        CHECK_NEAR(x.r.waiting[0], 7.5, 1e-12);
        CHECK_NEAR(x.r.message[0], 2.5, 1e-12);
    }
    timed_free(&x);
}

/* Whatever the costs: busy, the two kinds of waiting, and what follows the last action are all of
 * the time. Links that are fast enough change nothing. */
static void time_adds_up(void)
{
    for (int n = 0; n < 200; n++) {
        struct sim_cost cost = {.tf = test_real(0.5, 2),
                                .tb = test_real(1, 4),
                                .ti = test_real(0.5, 2),
                                .tw = test_real(0.2, 2),
                                .latency = test_real(0, 0.5),
                                .bytes = test_real(1, 10),
                                .bandwidth = test_real(1, 50)};
        int kind = (int)test_range(0, sched_kind_count() - 1);
        struct sched_shape shape = {
            .p = 2 * (int)test_range(1, 3), .m = 2 * (int)test_range(6, 10), .v = 1};
        struct timed x;
        if (!play(sched_kind_at(kind)->name, shape, &cost, &x)) {
            timed_free(&x);
            continue;
        }
        for (int rank = 0; rank < x.s.p; rank++)
            CHECK_NEAR(x.r.busy[rank] + x.r.waiting[rank] + x.r.message[rank], x.r.last[rank],
                       1e-9);
        CHECK_NEAR(x.r.bubble_rate, 1 - (1 - x.r.bubble_fraction) * x.r.makespan / x.r.cost, 1e-12);
        timed_free(&x);
    }
}

static void slower_links_make_no_step_shorter(void)
{
    double last = 0;
    for (int wire = 0; wire < 8; wire++) {
        struct sim_cost cost = unit;
        struct timed x;
        cost.bytes = wire;
        cost.bandwidth = 4;
        if (play("1f1b", (struct sched_shape){.p = 4, .m = 8, .v = 1}, &cost, &x)) {
            CHECK(x.r.makespan >= last + (wire ? 0.25 : 0));
            last = x.r.makespan;
        }
        timed_free(&x);
    }
}

static void times_of_single_stages(void)
{
    static const double time[2][SCHED_COMPUTE_OPS] = {{1, 2, 1, 1}, {3, 5, 1, 1}};
    static const double bad[2][SCHED_COMPUTE_OPS] = {{1}, {1, -5}};
    struct sim_cost cost = {.latency = 0.5, .stage_time = time};
    struct timed x;
    if (play("gpipe", (struct sched_shape){.p = 2, .m = 2, .v = 1}, &cost, &x)) {
        CHECK_NEAR(x.r.busy[0], 6, 1e-12);
        CHECK_NEAR(x.r.busy[1], 16, 1e-12);
        CHECK_NEAR(x.r.makespan, 1 + 0.5 + 16 + 0.5 + 2, 1e-12);
        cost.stage_time = bad;
        struct sim_result r;
        CHECK_ERR(sim_run(&x.s, &x.report, &cost, false, &r), ERR_CONFIG,
                  "-5 is not a time of B on stage 1");
    }
    timed_free(&x);
}

/* ---- memory over time ---- */

/* The curve reaches the peak that the check proved, on every rank, and ends at nothing. */
static void check_curves(const struct timed *x)
{
    struct sim_picture p;
    CHECK_OK(sim_picture_make(&x->s, &x->r, &unit, NULL, &p));
    for (int rank = 0; rank < x->s.p; rank++) {
        const struct draw_curve *m = &p.chart.memory[rank];
        double most = 0;
        for (int64_t i = 0; i < m->n; i++) {
            most = fmax(most, m->point[i].value);
            CHECK(i == 0 || m->point[i].time > m->point[i - 1].time);
            CHECK(m->point[i].value >= 0);
        }
        CHECK(m->n > 0 && m->point[m->n - 1].value == 0);
        test_check(most == x->report.peak[rank], __FILE__, __LINE__, "%s, rank %d: %g, proved %d",
                   x->s.name, rank, most, x->report.peak[rank]);
    }
    sim_picture_free(&p);
}

static void curves_reach_the_peaks(void)
{
    for (int kind = 0; kind < sched_kind_count(); kind++) {
        for (int v = 1; v <= 2; v++) {
            struct timed x;
            struct sched_shape shape = {.p = 4, .m = 8, .v = v};
            if (play(sched_kind_at(kind)->name, shape, &unit, &x))
                check_curves(&x);
            timed_free(&x);
        }
    }
}

static void picture_of_messages(void)
{
    struct sim_cost cost = unit;
    struct sim_picture p;
    struct timed x;
    cost.latency = 0.5;
    cost.bytes = cost.bandwidth = 1;
    if (play("gpipe", (struct sched_shape){.p = 2, .m = 1, .v = 1}, &cost, &x)) {
        CHECK_OK(sim_picture_make(&x.s, &x.r, &cost, NULL, &p));
        CHECK_INT(p.chart.messages, 2);
        CHECK(p.message[0].start == 1 && p.message[0].end == 2 && !p.message[0].back);
        CHECK(p.span[p.message[0].cause].rank == 0 && p.span[p.message[0].use].rank == 1);
        CHECK(p.span[p.message[1].cause].kind == DRAW_B && p.message[1].back);
        /* F, the wait, B; the wait, F, B */
        CHECK_INT(p.chart.spans, 6);
        CHECK(p.span[1].kind == DRAW_MESSAGE && p.span[1].start == 5.5 && p.span[1].end == 7);
        sim_picture_free(&p);
    }
    timed_free(&x);
}

/* ---- what is asked by name ---- */

static void check_answer(struct plait_sim a, int code, const char *part)
{
    char *page = NULL;
    a.size = sizeof a;
    int got = plait_simulate(&a, &page);
    test_check(got == code && strstr(got == 0 ? page : plait_error(), part), __FILE__, __LINE__,
               "wanted %d with \"%s\", got %d: %s", code, part, got,
               got == 0 ? page : plait_error());
    plait_free(page);
}

static void check_lacks(struct plait_sim a, const char *part)
{
    char *page = NULL;
    a.size = sizeof a;
    CHECK_OK((enum err)plait_simulate(&a, &page));
    test_check(page && !strstr(page, part), __FILE__, __LINE__, "\"%s\" in: %s", part, page);
    plait_free(page);
}

static const char *file_with(const char *text)
{
    CHECK_OK(fs_put("given", text, (int64_t)strlen(text)));
    return "given";
}

static void costs_as_factors(void)
{
    struct plait_sim a = {.schedule = "gpipe", .p = 4, .m = 8, .scale = "1,1,3,1"};
    check_answer(a, PLAIT_OK, "makespan  81\n"); /* 2 + 24 + 1, 2 + 48 + 4 */
    a.scale = "1,1,3";
    check_answer(a, PLAIT_CONFIG, "scale has 3 factors, and the schedule has 4 stages");
    check_answer((struct plait_sim){.schedule = "gpipe", .p = 1, .m = 8, .scale = "1,1"},
                 PLAIT_CONFIG, "scale has 2 factors, and the schedule has 1 stage;");
    a.scale = "1,1,x,1";
    check_answer(a, PLAIT_CONFIG, "factor 3 in scale \"1,1,x,1\"");
    a.scale = "1,1,,1";
    check_answer(a, PLAIT_CONFIG, "factor 3");
    a.scale = "1,1,1,-1";
    check_answer(a, PLAIT_CONFIG, "factor 4");
    a.scale = "1,1,1,1";
    a.costs = "/nonexistent";
    check_answer(a, PLAIT_CONFIG, "use one, or a model whose configuration has parallel.costs");
}

static void check_costs(const char *text, int code, const char *part)
{
    struct plait_sim a = {.schedule = "gpipe", .p = 2, .m = 2, .costs = file_with(text)};
    check_answer(a, code, part);
}

static void costs_from_a_file(void)
{
    check_costs("stage,F,B,I,W\n0,1,2,1,1\n1,3,,2,3\n", PLAIT_OK, "makespan  19\n");
    check_costs("stage,F,B,I,W\r\n1,3,5,2,3\r\n0,1,2,1,1", PLAIT_OK, "makespan  19\n");
    check_costs("stage,F,B,I,W\n0,1,2,1,1\n1,3,,2,3\n\n", PLAIT_OK, "makespan  19\n");
    check_costs("stage,F,B,I,W\r\n \t\r\n1,3,5,2,3\r\n\r\n0,1,2,1,1\r\n \r\n ", PLAIT_OK,
                "makespan  19\n");
    check_costs("stage,F,B,I,W\n\n0,1,2,1\n", PLAIT_CONFIG, "line 3: fewer cells than in");
    check_costs("stage,F,B,I,W\n\n", PLAIT_CONFIG, "no line for stage 0 of 2");
    check_costs("", PLAIT_CONFIG, "no line for stage 0 of 2");
    check_costs("stage,F,B\n", PLAIT_CONFIG, "line 1: the first line is stage,F,B,I,W, or stage");
    check_costs("stage,F,B,W,I\n", PLAIT_CONFIG, "line 1: the first line is stage,F,B,I,W");
    check_costs("stage,F,B,I,W\n0,1,2,1,1\n", PLAIT_CONFIG, "no line for stage 1 of 2");
    check_costs("stage,F,B,I,W\n0,1,2,1,1\n1,1,2,1,1\n2,1,2,1,1\n", PLAIT_CONFIG,
                "this layout has 2 stages (ranks x chunks), from 0: use the file that "
                "`plait compare RUN --costs FILE` writes");
    check_costs("stage,F,B,I,W\n0,1,2,1,1\n0,1,2,1,1\n", PLAIT_CONFIG, "line 3: this stage has");
    check_costs("stage,F,B,I,W\n2,1,2,1,1\n", PLAIT_CONFIG, "line 2: \"2\" is not a stage here");
    check_costs("stage,F,B,I,W\n0,1,2,1,1,9\n", PLAIT_CONFIG, "line 2: more cells than in the");
    check_costs("stage,F,B,I,W\n0,1,2,1\n", PLAIT_CONFIG, "line 2: fewer cells than in");
    check_costs("stage,F,B,I,W,R\n0,1,2,1,1\n", PLAIT_CONFIG, "line 2: fewer cells than in");
    check_costs("stage,F,B,I,W,R\n0,1,2,1,1,x\n", PLAIT_CONFIG, "\"x\" is not a time of R");
    check_costs("stage,F,B,I,W,R,X\n", PLAIT_CONFIG, "line 1: the first line is");
    check_costs("stage,F,B,I,W\n0,-1,2,1,1\n", PLAIT_CONFIG, "\"-1\" is not a time of F");
    check_costs("stage,F,B,I,W\n0,1,2,nan,1\n", PLAIT_CONFIG, "\"nan\" is not a time of I");
    check_costs("stage,F,B,I,W\n0,1,,6e99,6e99\n", PLAIT_CONFIG,
                "line 2: I and W together are no time of B");
    struct plait_sim a = {.schedule = "gpipe", .p = 2, .m = 2, .costs = "/nonexistent"};
    check_answer(a, PLAIT_CONFIG, "/nonexistent");
    a.tf = 2;
    check_answer(a, PLAIT_CONFIG, "leave tf, tb, ti, tw, tr out");
}

/* gpipe, 2 ranks, 2 microbatches: 3 (tf + tb) of equal stages and 2 recomputes of the last rank. */
static void recompute_costs_by_name(void)
{
    struct plait_sim a = {.schedule = "gpipe", .p = 2, .m = 2, .recompute = 1};
    check_answer(a, PLAIT_OK, "makespan  11\n"); /* as long as a forward */
    check_answer(a, PLAIT_OK, "gpipe with recompute");
    a.tr = 0.5;
    check_answer(a, PLAIT_OK, "makespan  10\n");
    a.format = "text";
    check_answer(a, PLAIT_OK, "0F0,0F1,0R0,0B0,0R1,0B1\n1F0,1F1,1R0,1B0,1R1,1B1\n");
    a.format = NULL;
    a.tr = 0;
    a.costs = file_with("stage,F,B,I,W,R\n1,1,2,1,1,\n0,1,2,1,1,1\n");
    check_answer(a, PLAIT_OK, "makespan  11\n");
    a.costs = file_with("stage,F,B,I,W\n1,1,2,1,1\n0,1,2,1,1\n");
    check_answer(a, PLAIT_OK, "makespan  11\n");
    a.costs = file_with("stage,F,B,I,W,R\n1,1,2,1,1,4\n0,1,2,1,1,1\n");
    check_answer(a, PLAIT_OK, "makespan  17\n");
    a = (struct plait_sim){.schedule = "seq1f1b", .p = 2, .m = 2, .slices = 2, .recompute = 1};
    check_answer(a, PLAIT_CONFIG, "leave recompute out");
    a = (struct plait_sim){.compare = "gpipe,1f1b", .p = 2, .m = 4, .recompute = 1};
    check_answer(a, PLAIT_OK, "gpipe      1         19");
}

static void links_need_both_numbers(void)
{
    struct plait_sim a = {.schedule = "gpipe", .p = 2, .m = 3, .rates.latency = "0.5", .bytes = 20};
    check_answer(a, PLAIT_CONFIG, "add bandwidth");
    a.rates.bandwidth = "10";
    check_answer(a, PLAIT_OK, "makespan  19\n");
    a.bytes = 0;
    check_answer(a, PLAIT_CONFIG, "needs the size of a message");
}

/* ---- a model ---- */

static const char *const model = "model: {kind: llama, layers: 6, hidden: 64, heads: 4, seq: 32, "
                                 "vocab: 257}\nparallel: {pp: 2, microbatch: 2}\n"
                                 "train: {batch: 8, steps: 1}\n";

static void model_gives_costs_and_bytes(void)
{
    struct plait_sim a = {.model = file_with(model)};
    struct stat st;
    check_answer(a, PLAIT_OK, "1f1b: 2 ranks, 4 microbatches"); /* all as configured */
    a.schedule = "gpipe";
    a.p = 3;
    a.m = 5;
    check_answer(a, PLAIT_OK, "gpipe: 3 ranks, 5 microbatches");
    a.p = 7;
    check_answer(a, PLAIT_CONFIG, "6");
    a.p = 2;
    a.rates.bandwidth = "1e6";
    a.html = "model.html";
    check_answer(a, PLAIT_OK, "makespan");
    CHECK(stat(a.html, &st) == 0 && st.st_size > 10000);
    struct fs_map map;
    CHECK_OK(fs_map_open(&map, a.html, ERR_DATA));
    CHECK(memmem(map.data, (size_t)map.size, "\"memory\":\"bytes\"", 16) != NULL);
    CHECK(memmem(map.data, (size_t)map.size, "memory at most", 14) != NULL);
    fs_map_close(&map);
    a.schedule = "file:x.csv";
    check_answer(a, PLAIT_CONFIG, "cannot read x.csv");
}

/* Said of tensor ranks alone, and with rates; measured times have them in them. */
static void collectives_inside_actions(void)
{
    struct plait_sim a = {.model = file_with(model), .set = (const char *const[]){"parallel.tp=2"},
                          .sets = 1};
    check_lacks(a, "inside");
    a.rates.bandwidth = "1e6";
    check_answer(a, PLAIT_OK, " exposed, ");
    check_answer(a, PLAIT_OK, " % of the step (collectives inside actions");
    a.format = "json";
    check_answer(a, PLAIT_OK, "\"inside_exposed\": [");
    a.sets = 0;
    check_lacks(a, "inside");
    a.format = NULL;
    a.compare = "1f1b,gpipe";
    check_lacks(a, "inside");
    a.sets = 1;
    check_answer(a, PLAIT_OK, " inside % ");
    a.compare = NULL;
    a.sets = 2;
    static const char costs[] = "stage,F,B,I,W\n0,1,2,1,1\n1,1,2,1,1\n";
    CHECK_OK(fs_put("costs.csv", costs, sizeof costs - 1));
    a.set = (const char *const[]){"parallel.tp=2", "parallel.costs=costs.csv"};
    check_lacks(a, "inside");
}

/* Words over the file, in their order; other arguments over both; no words without a model. */
static void model_takes_words(void)
{
    struct plait_sim a = {.model = file_with(model),
                          .set = (const char *const[]){"parallel.pp=3", "parallel.schedule=gpipe",
                                                       "parallel.pp=4"}, .sets = 3};
    check_answer(a, PLAIT_OK, "gpipe: 4 ranks, 4 microbatches");
    a.sets = 2;
    check_answer(a, PLAIT_OK, "gpipe: 3 ranks, 4 microbatches");
    a.p = 2;
    a.schedule = "zb-h1";
    check_answer(a, PLAIT_OK, "zb-h1: 2 ranks, 4 microbatches");
    a.set = (const char *const[]){"parallel.pp=3", "parallel.nonesuch=1"};
    check_answer(a, PLAIT_CONFIG, "parallel.nonesuch");
    a.sets = -1;
    check_answer(a, PLAIT_CONFIG, "key=value words change a model's configuration");
    a = (struct plait_sim){.schedule = "1f1b", .p = 2, .m = 2, .sets = 1,
                           .set = (const char *const[]){"parallel.pp=3"}};
    check_answer(a, PLAIT_CONFIG, "there is no model");
}

/* A list from a file says its own shape, which the model is cut to. */
static void model_with_a_file(void)
{
    struct plait_sim a = {
        .model = file_with(model),
        .schedule = "file:" PLAIT_SOURCE_DIR "/tests/golden/sched/interleaved-p2-m4-v3.csv"};
    check_answer(a, PLAIT_OK, "2 ranks, 4 microbatches, 3 chunks a rank");
    a.p = 3;
    check_answer(a, PLAIT_CONFIG, "p 3 was asked for and the file has p 2");
    a.p = 2;
    a.limit = 2;
    check_answer(a, PLAIT_CONFIG, "parallel.memory_limit 2: a schedule from a file has its order");
    a.schedule = "zb-1p";
    check_answer(a, PLAIT_OK, "zb-1p: 2 ranks, 4 microbatches");
    a.keep = 0.5;
    check_answer(a, PLAIT_CONFIG, "leave --keep out");
}

/* A schedule that looks at costs is made for those of the file; without any, zb-v is closed. */
static void made_for_a_file_of_costs(void)
{
    struct plait_sim a = {.schedule = "zb-v", .p = 2, .m = 4, .format = "text"};
    check_answer(a, PLAIT_OK, "0W0,3F2,3I2,3W2,0I1,0W1,3F3,3I3,3W3");
    a.costs = file_with("stage,F,B,I,W\n0,1,4,3,1\n1,1,4,3,1\n2,1,,3,1\n3,1,4,3,1\n");
    check_answer(a, PLAIT_OK, "0W0,3F2,3I2,3W2,0I1,3F3,3I3,0W1,3W3");
    a.tf = 1;
    check_answer(a, PLAIT_CONFIG, "leave tf, tb, ti, tw, tr out");
}

/* ---- many schedules ---- */

static void compares_side_by_side(void)
{
    struct plait_sim a = {.compare = "gpipe,1f1b,naive", .p = 4, .m = 8};
    check_answer(a, PLAIT_OK,
                 "\n1f1b       1         33         33     27.27        37.50   27.27");
    a.format = "gantt";
    a.width = 80;
    check_answer(a, PLAIT_OK, "\nnaive, p 4, m 8: makespan 96");
    check_answer(a, PLAIT_OK, ", at most 1 activation on a rank\n");
    check_answer(a, PLAIT_OK, ", at most 8 activations on a rank\n");
    check_answer(a, PLAIT_OK, "4 ranks, 8 microbatches; times");
    a.format = "json";
    char *page = NULL;
    a.size = sizeof a;
    CHECK_INT(plait_simulate(&a, &page), PLAIT_OK);
    cJSON *json = cJSON_Parse(page);
    CHECK_INT(cJSON_GetArraySize(json), 3);
    cJSON_Delete(json);
    plait_free(page);
    a.format = "text";
    check_answer(a, PLAIT_CONFIG, "prints one schedule");
    a.format = NULL;
    a.compare = "gpipe,,1f1b";
    check_answer(a, PLAIT_CONFIG, "empty name");
    a.compare = "gpipe,1f1b@x";
    check_answer(a, PLAIT_CONFIG, "\"1f1b@x\" does not say how many chunks");
    a.compare = "gpipe,2f2b";
    check_answer(a, PLAIT_CONFIG, "2f2b");
    a.compare = "gpipe,file:" PLAIT_SOURCE_DIR "/tests/golden/sched/1f1b-p2-m4.csv";
    check_answer(a, PLAIT_CONFIG, "p 4 was asked for and the file has p 2");
    a.compare = "gpipe";
    a.schedule = "gpipe";
    check_answer(a, PLAIT_CONFIG, "ask one");
    a.schedule = NULL;
    a.scale = "1";
    check_answer(a, PLAIT_CONFIG, "belong to the stages of one schedule");
}

/* Files give shapes of their own where none is asked for. */
static void other_shapes_are_refused(void)
{
#define LIST(name) "file:" PLAIT_SOURCE_DIR "/tests/golden/sched/" name ".csv"
    char names[512];
    const char *small = file_with("0F0,0B0\n");
    snprintf(names, sizeof names, "file:%s", small);
    struct plait_sim a = {.compare = names};
    check_answer(a, PLAIT_OK, "1 rank, 1 microbatch; times");
    snprintf(names, sizeof names, LIST("1f1b-p2-m4") ",file:%s", small);
    check_answer(a, PLAIT_CONFIG, " has 1 rank and 1 microbatch, and file:");
    check_answer(a, PLAIT_CONFIG, " 2 and 4; only the same numbers can be compared");
    a.compare = LIST("1f1b-p2-m4") "," LIST("1f1b-p4-m4");
    check_answer(a, PLAIT_CONFIG, " has 4 ranks and 4 microbatches, and file:");
    a.compare = LIST("1f1b-p4-m8") "," LIST("1f1b-p4-m4");
    check_answer(a, PLAIT_CONFIG, " has 4 ranks and 4 microbatches, and file:");
#undef LIST
}

/* Two chunks of half a stage each are as much work as one whole. */
static void chunks_share_the_work(void)
{
    struct plait_sim a = {.p = 4, .m = 8};
    a.compare = "1f1b,file:" PLAIT_SOURCE_DIR "/tests/golden/sched/interleaved-p4-m8-v2.csv";
    check_answer(a, PLAIT_OK, "2       28.5       28.5     15.79        18.75   15.79");
    check_answer(a, PLAIT_OK, " 5.5 "); /* 11 activations of half a stage */
}

static void tables_of_bubbles(void)
{
    struct plait_sim a = {.table = "1f1b,naive", .p = 8, .m = 6};
    check_answer(a, PLAIT_OK,
                 "bubble of 1f1b, % of the step\n"
                 " p \\ m       1       2       4       6\n"
                 "     2   50.00   33.33   20.00   14.29\n"
                 "     4   75.00   60.00   42.86   33.33\n"
                 "     8   87.50   77.78   63.64   53.85\n\n"
                 "bubble of 1f1b, % over ideal time\n"
                 " p \\ m       1       2       4       6\n"
                 "     2  100.00   50.00   25.00   16.67\n"
                 "     4  300.00  150.00   75.00   50.00\n"
                 "     8  700.00  350.00  175.00  116.67\n\n"
                 "bubble of naive, % of the step\n"
                 " p \\ m       1       2       4       6\n"
                 "     2   50.00   50.00   50.00   50.00\n"
                 "     4   75.00   75.00   75.00   75.00\n"
                 "     8   87.50   87.50   87.50   87.50\n\n");
    a.table = "1f1b@2";
    check_answer(a, PLAIT_CONFIG, "use -v 1");
    a.table = "file:x.csv";
    check_answer(a, PLAIT_CONFIG, "a file of one shape");
    a.table = "1f1b";
    a.format = "gantt";
    check_answer(a, PLAIT_CONFIG, "a table has no other format");
    a.format = NULL;
    a.svg = "table.svg";
    check_answer(a, PLAIT_CONFIG, "leave scale, costs, model, svg");
}

/* ---- files ---- */

static void files_whole_or_not_at_all(void)
{
    struct plait_sim a = {.schedule = "1f1b", .p = 2, .m = 2, .svg = "whole/a.svg",
                          .html = "whole/a.html"};
    CHECK(mkdir("whole", 0777) == 0);
    check_answer(a, PLAIT_OK, "makespan");
    CHECK(unlink(a.svg) == 0 && unlink(a.html) == 0);
    a.perfetto = "whole/no/a.json";
    check_answer(a, PLAIT_STORAGE, "no/a.json");
    unlink(a.svg);
    unlink(a.html);
    CHECK(rmdir("whole") == 0); /* no other file was left */
    a.perfetto = a.svg;
    check_answer(a, PLAIT_CONFIG, "two pictures would be the one file");
}

/* A picture too large is refused before any file is written. */
static void too_large_for_a_picture(void)
{
    struct plait_sim a = {.schedule = "gpipe",
                          .p = 64,
                          .m = 2048,
                          .svg = "big.svg",
                          .perfetto = "big.json"};
    check_answer(a, PLAIT_CONFIG, "than the 200000 that a readable SVG has");
    CHECK(!fs_exists(a.svg) && !fs_exists(a.perfetto));
}

/* What would take minutes or the memory is refused at once, however it is asked. */
static void too_much_to_play(void)
{
    struct plait_sim a = {.schedule = "interleaved", .p = 1024, .m = 1025, .v = 2};
    check_answer(a, PLAIT_CONFIG, "use m 1024 or less");
    a = (struct plait_sim){.schedule = "v-min", .p = 1024, .m = 1025};
    check_answer(a, PLAIT_CONFIG, "v 2 x slices 1 is more than 2097152");
    a = (struct plait_sim){.compare = "1f1b,nosuch", .p = 4096, .m = 1025};
    check_answer(a, PLAIT_CONFIG, "use m 512 or less");
    a = (struct plait_sim){.compare = "gpipe,gpipe@512,gpipe", .p = 4, .m = 1024};
    check_answer(a, PLAIT_CONFIG, "and the schedules before it is more than 2097152");
    a = (struct plait_sim){.table = "1f1b", .p = 4096, .m = 65535};
    check_answer(a, PLAIT_CONFIG, "plays 7514243100 microbatches of stages");
    a = (struct plait_sim){.model = file_with("model: {layers: 40, hidden: 64, heads: 4, seq: 32, "
                                              "vocab: 257}\nparallel: {pp: 40, microbatch: 1}\n"
                                              "train: {batch: 65535, steps: 1}\n")};
    check_answer(a, PLAIT_CONFIG, "p 40 x m 65535 x v 1 x slices 1 is more than 2097152");
}

static const struct test_case cases[] = {
    {"messages_queue_on_links", messages_queue_on_links},
    {"time_adds_up", time_adds_up},
    {"slower_links_make_no_step_shorter", slower_links_make_no_step_shorter},
    {"times_of_single_stages", times_of_single_stages},
    {"curves_reach_the_peaks", curves_reach_the_peaks},
    {"picture_of_messages", picture_of_messages},
    {"costs_as_factors", costs_as_factors},
    {"costs_from_a_file", costs_from_a_file},
    {"recompute_costs_by_name", recompute_costs_by_name},
    {"links_need_both_numbers", links_need_both_numbers},
    {"model_gives_costs_and_bytes", model_gives_costs_and_bytes},
    {"collectives_inside_actions", collectives_inside_actions},
    {"model_takes_words", model_takes_words},
    {"model_with_a_file", model_with_a_file},
    {"made_for_a_file_of_costs", made_for_a_file_of_costs},
    {"compares_side_by_side", compares_side_by_side},
    {"other_shapes_are_refused", other_shapes_are_refused},
    {"chunks_share_the_work", chunks_share_the_work},
    {"tables_of_bubbles", tables_of_bubbles},
    {"files_whole_or_not_at_all", files_whole_or_not_at_all},
    {"too_much_to_play", too_much_to_play},
    {"too_large_for_a_picture", too_large_for_a_picture},
};
TEST_MAIN(cases)
