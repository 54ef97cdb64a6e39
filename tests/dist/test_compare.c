/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparison of a run with the simulator. A run is traced, then its trace is replaced by what the
 * simulator says of known costs: the comparison must find those costs, and agree with itself.
 */
#include "folder.h"

#include "base/mem.h"
#include "config/options.h"
#include "study/compare.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 6 };
static const double EARLY = 0.002;

static bool again; /* with recomputes */
static double slow[STEPS] = {7, 7, 1, 1, 1, 1}; /* times of forged steps, of those given */
static const char *extra = "";                  /* words of a run's configuration */
static double fetch; /* seconds that a message takes that has come before */

static void set_words(struct plait_config *c, const char *words)
{
    char word[64];
    const char *one = word;
    int used;
    for (; sscanf(words, "%63s%n", word, &used) == 1; words += used)
        folder_set(c, &one, 1);
}

static void train(const char *name, const char *schedule, bool trace)
{
    char word[64];
    const char *const words[] = {
        "model.kind=gpt", "model.layers=4", "model.hidden=16", "model.heads=2", "model.seq=8",
        "model.vocab=257", "train.batch=5", "train.steps=6", "train.threads=1", "parallel.pp=2",
        "optim.warmup=1", word, trace ? "train.trace=true" : "train.trace=false",
        again ? "train.recompute=full" : "train.recompute=none"};
    struct folder_seen seen;
    folder_prepare(PLAIT_SOURCE_DIR "/README.md", "tokens");
    snprintf(word, sizeof word, "parallel.schedule=%s", schedule);
    struct plait_config *c = folder_config(name, "tokens");
    folder_set(c, words, sizeof words / sizeof *words);
    set_words(c, extra);
    test_check(folder_train(c, &seen) == 0, __FILE__, __LINE__, "%s: %s", name, plait_error());
}

/* The setup of a run's own configuration; `o` must outlive it. */
static void setup_of(const char *run, struct options *o, struct setup *s)
{
    char path[FOLDER_PATH];
    folder_path_in(run, "config.yaml", path);
    CHECK_OK(conf_defaults(&options_table, o));
    CHECK_OK(conf_read_file(&options_table, o, path));
    CHECK_OK(setup_make(o, o->model.vocab, true, s));
}

/* Instruction i of a rank as it would have been traced, at `clock` when the one before ended. */
static struct exec_event traced(const struct setup *s, const struct sim_result *r, int64_t i,
                                double clock)
{
    struct sim_event e = r->event[i];
    if (s->sched.instr[i].op >= SCHED_COMPUTE_OPS)
        return (struct exec_event){clock, clock, 0};
    return (struct exec_event){clock, e.end, e.start - clock};
}

/* Replaces the trace of a rank by STEPS records: those of `r`, slow, and the odd ones a second
 * late. */
static void forge(const char *run, const struct setup *s, const struct sim_result *r, int rank)
{
    char path[FOLDER_PATH], name[64];
    struct trace_head head;
    const struct sched *list = &s->sched;
    snprintf(name, sizeof name, "%s/trace/%d.trace", run, rank);
    folder_path(name, path);
    FILE *f = fopen(path, "rb");
    CHECK(f && fread(&head, sizeof head, 1, f) == 1 && fclose(f) == 0);
    f = fopen(path, "wb");
    CHECK(f && fwrite(&head, sizeof head, 1, f) == 1);
    for (int step = 0; step < STEPS; step++) {
        double number = step + 1, by = slow[step], late = 100 * step + step % 2;
        double clock = -EARLY * rank; /* it comes early, and waits */
        CHECK(fwrite(&number, 8, 1, f) == 1);
        for (int64_t i = list->begin[rank]; i < list->begin[rank + 1]; i++) {
            struct exec_event e = traced(s, r, i, clock);
            clock = e.end;
            e = (struct exec_event){by * e.start + late, by * e.end + late, by * e.waited};
            CHECK(fwrite(&e, sizeof e, 1, f) == 1);
        }
    }
    CHECK(fclose(f) == 0);
}

/* Costs that differ by stage and kind, and a latency: all come back. */
static void costs_of(const char *schedule)
{
    static const double time[2][COMPARE_KINDS] = {{0.010, 0.024, 0.011, 0.009, 0.012},
                                                  {0.013, 0.021, 0.014, 0.008, 0.006}};
    char path[FOLDER_PATH], name[32];
    struct options o;
    struct setup s = {0};
    struct sim_result r;
    struct compare c;
    snprintf(name, sizeof name, "%s%s", schedule, fetch > 0 ? "-late" : "");
    train(name, schedule, true);
    setup_of(name, &o, &s);
    folder_path(name, path);
    struct sim_cost cost = {.stage_time = time, .latency = 0.003, .fetch = fetch};
    CHECK_OK(sim_run(&s.sched, &s.report, &cost, true, &r));
    for (int rank = 0; rank < 2; rank++)
        forge(name, &s, &r, rank);
    CHECK_OK(compare_open(&s, path, -1, &c));
    CHECK_INT(c.steps, STEPS);
    CHECK_INT(c.first, 2);
    for (int i = 0; i < 2 * COMPARE_KINDS; i++) {
        bool ran = c.measured[i / COMPARE_KINDS].count[i % COMPARE_KINDS] > 0;
        double want = ran ? time[i / COMPARE_KINDS][i % COMPARE_KINDS] : 0;
        CHECK_NEAR(c.cost[i / COMPARE_KINDS][i % COMPARE_KINDS], want, 1e-9);
    }
    CHECK_NEAR(c.latency, 0.003, 1e-9);
    CHECK_NEAR(c.fetch, fetch, 1e-9);
    CHECK_NEAR(c.makespan, r.makespan, 1e-9);
    CHECK_NEAR(c.sim.makespan, r.makespan, 1e-9);
    CHECK_NEAR(c.bubble, r.bubble_fraction, 1e-9);
    CHECK_NEAR(c.sim.bubble_fraction, c.bubble, 1e-9);
    CHECK_NEAR(c.seen.makespan, r.makespan, 1e-9);
    for (int rank = 0; rank < 2; rank++)
        for (int k = 0; k < COMPARE_KINDS; k++) {
            CHECK_NEAR(c.measured[rank].busy[k], c.simulated[rank].busy[k], 1e-9);
            CHECK_INT(c.measured[rank].count[k], c.simulated[rank].count[k]);
        }
    compare_close(&c);
    CHECK_OK(
        compare_open(&s, path, 0, &c)); /* with the slow steps the mean moves, medians not */
    CHECK_NEAR(c.cost[0][SCHED_F], 0.010, 1e-9);
    CHECK(c.measured[0].busy[SCHED_F] > 1.5 * c.simulated[0].busy[SCHED_F]);
    compare_close(&c);
    CHECK_ERR(compare_open(&s, path, STEPS, &c), ERR_DATA, "6 steps are there and 6");
    compare_close(&c);
    sim_result_free(&r);
    setup_free(&s);
}

static void costs_come_back(void)
{
    costs_of("1f1b");
    costs_of("gpipe");
    costs_of("zb-h1");
}

/* Of an even number of steps the median is between two; of ranks stands the mean of a step. */
static void medians_and_means(void)
{
    static const double time[2][COMPARE_KINDS] = {{0.010, 0.024}, {0.013, 0.021}};
    char path[FOLDER_PATH];
    struct options o;
    struct setup s = {0};
    struct sim_result r;
    struct compare c;
    train("even", "1f1b", true);
    setup_of("even", &o, &s);
    folder_path("even", path);
    CHECK_OK(sim_run(&s.sched, &s.report, &(struct sim_cost){.stage_time = time}, true, &r));
    memcpy(slow, (double[STEPS]){7, 7, 1, 2, 4, 9}, sizeof slow);
    for (int rank = 0; rank < 2; rank++)
        forge("even", &s, &r, rank);
    CHECK_OK(compare_open(&s, path, 2, &c));
    CHECK_NEAR(c.cost[0][SCHED_F], 3 * 0.010, 1e-9); /* between 2 and 4 */
    CHECK_NEAR(c.makespan, 3 * r.makespan, 1e-9);
    for (int rank = 0; rank < 2; rank++) { /* (1 + 2 + 4 + 9) / 4 */
        CHECK_NEAR(c.measured[rank].busy[SCHED_B], 4 * 5 * time[rank][SCHED_B], 1e-9);
        CHECK_NEAR(c.measured[rank].waiting, 4 * (r.waiting[rank] + r.message[rank] + EARLY * rank),
                   1e-9);
    }
    compare_close(&c);
    sim_result_free(&r);
    setup_free(&s);
    memcpy(slow, (double[STEPS]){7, 7, 1, 1, 1, 1}, sizeof slow);
}

/* Messages that lie ready for long and are then fetched: that they lay is no latency. */
static void fetched_late(void)
{
    fetch = 0.0004;
    costs_of("gpipe");
    costs_of("1f1b");
    costs_of("zb-h1");
    fetch = 0;
}

/* What ends the step: each kind is measured on each rank that has it, and predicted by rates. */
static void the_end_is_predicted(void)
{
    static const int ops[] = {SCHED_REDUCE, SCHED_WAIT,   SCHED_EMBED_REDUCE,
                              SCHED_NORM,   SCHED_UPDATE, SCHED_GATHER};
    char path[FOLDER_PATH], *page = NULL;
    struct options o;
    struct setup s = {0};
    struct compare c;
    double *each = NULL;
    extra = "train.batch=8 parallel.dp=2 parallel.zero=1";
    train("shared", "1f1b", true);
    extra = "";
    setup_of("shared", &o, &s);
    folder_path("shared", path);
    CHECK_OK(links_read("test", "1e-5", "1e9", 1e10, &o.caps));
    CHECK_OK(setup_ends(&s, &each));
    CHECK_OK(compare_open(&s, path, -1, &c));
    for (int pp = 0; pp < 2; pp++) {
        double sum[SCHED_OP_COUNT] = {0};
        int64_t n[SCHED_OP_COUNT] = {0};
        for (int64_t i = s.sched.begin[pp]; i < s.sched.begin[pp + 1]; i++) {
            bool sends = s.sched.instr[i].op == SCHED_SEND_F || s.sched.instr[i].op == SCHED_SEND_B;
            CHECK(!sends || (each[i] > 0 && c.each[i] == 0)); /* what it took was measured */
            sum[s.sched.instr[i].op] += each[i];
            n[s.sched.instr[i].op]++;
        }
        for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
            CHECK_INT(c.measured[pp].ends[ops[k]], n[ops[k]]);
            CHECK(n[ops[k]] > 0 && c.measured[pp].end[ops[k]] > 0);
        }
        CHECK_NEAR(c.simulated[pp].end[SCHED_UPDATE], sum[SCHED_UPDATE], 1e-12);
        CHECK_NEAR(c.simulated[pp].end[SCHED_REDUCE], sum[SCHED_REDUCE], 1e-12);
        CHECK(c.simulated[pp].end[SCHED_NORM] > 0.999 * sum[SCHED_NORM] && sum[SCHED_UPDATE] > 0);
        CHECK_INT(c.measured[pp].ends[SCHED_STEP], 0);
    }
    compare_close(&c);
    mem_free(each);
    setup_free(&s);
    struct plait_compare a = {.size = sizeof a, .run = path, .skip = -1, .rates.bandwidth = "1e9",
                              .rates.memory_bandwidth = 1e10, .format = "json"};
    CHECK_INT(plait_compare(&a, &page), 0);
    CHECK(page && strstr(page, "\"GATHER\"") != NULL);
    plait_free(page);
    a.rates.memory_bandwidth = -1;
    CHECK_INT(plait_compare(&a, &page), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "memory bandwidth -1 is no rate; use 0 to 1e100") != NULL);
}

/* The comparison as text. */
static void say(const struct compare *c, const char *run, struct text *out)
{
    struct compare_words w;
    CHECK_OK(compare_words_make(c, run, &w));
    compare_text(c, &w, out);
    compare_words_free(&w);
}

/* A written file, which ends as a string; mem_free. */
static char *read_whole(const char *path)
{
    struct fs_map m;
    char *copy = NULL;
    CHECK_OK(fs_map_open(&m, path, ERR_DATA));
    CHECK_OK(mem_new(m.size + 1, 1, "a page", &copy));
    memcpy(copy, m.data, (size_t)m.size);
    fs_map_close(&m);
    return copy;
}

static int count_of(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        n++;
    return n;
}

/* Page and picture have the run's name, the lines of the text and every cell of its tables; the
 * summary and the step stand above the charts; all times are milliseconds, those of the axis,
 * too. */
static void check_page(const char *run, const char *html, const char *svg)
{
    struct options o;
    struct setup s = {0};
    struct compare c;
    struct compare_words w;
    char *page[] = {read_whole(html), read_whole(svg)}, title[600], cell[64];
    setup_of("page", &o, &s);
    CHECK_OK(compare_open(&s, run, -1, &c));
    CHECK_OK(compare_words_make(&c, run, &w));
    snprintf(title, sizeof title, "%s: zb-h1, measured and simulated", run);
    CHECK(w.lines == 4 && strstr(w.line[1], "step: measured ") && strstr(w.line[2], "over ideal") &&
          strstr(w.line[3], "largest differences: "));
    for (int i = 0; i < 2; i++) {
        const char *first = strstr(page[i], i == 0 ? "<canvas" : "<g class=\"chart\"");
        CHECK(first && strstr(page[i], title));
        for (int k = 0; k < w.lines; k++)
            CHECK(strstr(page[i], w.line[k]) && strstr(page[i], w.line[k]) < first);
        CHECK(strstr(page[i], ">bubble, % over ideal time<") < first);
        CHECK(strstr(page[i], ">NORM<") > first);
        for (int64_t k = 0; k < w.cells.n; k++) {
            snprintf(cell, sizeof cell, ">%s<", w.cells.at[k]);
            test_check(strstr(page[i], cell) != NULL, __FILE__, __LINE__, "no cell %s",
                       w.cells.at[k]);
        }
    }
    CHECK_INT(count_of(page[0], "<tr>"), w.table[0].rows + w.table[1].rows);
    const char *end = strstr(page[0], "\"end\":");
    CHECK(strstr(page[0], "{\"time\":\"ms\"") && end);
    snprintf(cell, sizeof cell, "%.2f ms, bubble", 1e3 * c.makespan);
    CHECK(strstr(page[0], cell) && strstr(page[1], cell));
    CHECK_NEAR(strtod(end + 6, NULL), 1e3 * fmax(c.seen.makespan, c.sim.makespan), 1e-6);
    int ticks = count_of(page[1], "<text class=\"a\"");
    CHECK(ticks > 4 && count_of(page[1], " ms</text>") >= ticks);
    compare_words_free(&w);
    compare_close(&c);
    setup_free(&s);
    mem_free(page[0]);
    mem_free(page[1]);
}

static void pages_and_pictures(void)
{
    char run[FOLDER_PATH], svg[FOLDER_PATH], html[FOLDER_PATH], perfetto[FOLDER_PATH];
    char costs[FOLDER_PATH], *text = NULL;
    train("page", "zb-h1", true);
    folder_path("page", run);
    folder_path("a.svg", svg);
    folder_path("a.html", html);
    folder_path("a.json", perfetto);
    folder_path("a.csv", costs);
    struct plait_compare how = {.size = sizeof how, .run = run, .skip = -1, .format = "json",
                                .svg = svg, .html = html, .perfetto = perfetto, .costs = costs};
    CHECK_INT(plait_compare(&how, &text), 0);
    cJSON *page = cJSON_Parse(text);
    CHECK(page && cJSON_GetArraySize(cJSON_GetObjectItem(page, "ranks")) == 2 &&
          cJSON_GetObjectItem(page, "bubble_measured")->valuedouble > 0);
    double share = cJSON_GetObjectItem(page, "bubble_measured")->valuedouble;
    CHECK_NEAR(cJSON_GetObjectItem(page, "over_ideal_measured")->valuedouble, share / (1 - share),
               1e-6);
    cJSON_Delete(page);
    plait_free(text);
    CHECK(fs_exists(svg) && fs_exists(html) && fs_exists(perfetto));
    check_page(run, html, svg);
    struct plait_sim sim = {.size = sizeof sim, .schedule = "1f1b", .p = 2, .m = 5, .costs = costs};
    CHECK_INT(plait_simulate(&sim, &text), 0); /* the file is one that sim reads */
    plait_free(text);
    how.format = "text";
    CHECK_INT(plait_compare(&how, &text), 0);
    CHECK(strstr(text, "bubble") && strstr(text, "predicted before the run"));
    plait_free(text);
    how.format = "xml";
    CHECK_INT(plait_compare(&how, &text), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "\"xml\" is not known; use text or json"));
    how.format = NULL;
    how.svg = html;
    CHECK_INT(plait_compare(&how, &text), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "the one file"));
    how.svg = "/nonexistent/a.svg";
    CHECK_INT(plait_compare(&how, &text), PLAIT_STORAGE);
}

static void refused(void)
{
    char run[FOLDER_PATH], path[FOLDER_PATH], *text = NULL;
    struct plait_compare how = {.size = sizeof how, .run = run, .skip = -1};
    train("untraced", "1f1b", false);
    folder_path("untraced", run);
    CHECK_INT(plait_compare(&how, &text), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "was not traced; train with train.trace=true (--trace)"));
    folder_path("nowhere", run);
    CHECK_INT(plait_compare(&how, &text), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "there is no folder"));
    train("other", "1f1b", true);
    folder_path("other", run);
    folder_path("other/trace/1.trace", path);
    FILE *f = fopen(path, "r+b"); /* the hash of the schedule */
    CHECK(f && fseek(f, 32, SEEK_SET) == 0 && fputc('x', f) == 'x' && fputc('y', f) == 'y' &&
          fclose(f) == 0);
    CHECK_INT(plait_compare(&how, &text), PLAIT_DATA);
    CHECK(strstr(plait_error(), "that of rank 1 is not of the schedule"));
    CHECK(unlink(path) == 0);
    CHECK_INT(plait_compare(&how, &text), PLAIT_DATA);
    CHECK(strstr(plait_error(), "other has no trace of rank 1, trace/1.trace "));
    CHECK(strstr(plait_error(), "with train.trace=true, which writes them"));
}

/* Recomputes have a kind of their own, and a column in the file of costs. */
static void recomputes(void)
{
    char path[FOLDER_PATH];
    struct options o;
    struct setup s = {0};
    struct compare c;
    struct text out = {0};
    again = true;
    costs_of("looped-bfs");
    costs_of("zb-1p");
    again = false;
    setup_of("looped-bfs", &o, &s);
    folder_path("looped-bfs", path);
    CHECK_OK(compare_open(&s, path, -1, &c));
    CHECK(c.measured[0].count[SCHED_R] == 4 && c.measured[1].count[SCHED_R] == 4);
    compare_costs(&c, &out);
    say(&c, path, &out);
    compare_json(&c, &out);
    CHECK(out.err == ERR_OK && strstr(out.s, "stage,F,B,I,W,R\n0,10.000000,24.000000,12.000000,"
                                             "12.000000,12.000000\n"));
    CHECK(strstr(out.s, "of the step each figure's median over steps"));
    CHECK(strstr(out.s, "1                R        4         6.000") != NULL);
    CHECK(strstr(out.s, "\"stage\": 1, \"F\": 0.013, \"B\": 0.021") != NULL);
    text_free(&out);
    compare_close(&c);
    setup_free(&s);
}

/* Leaves one record in a rank's trace, and `more` bytes. */
static void cut_trace(int rank, int more)
{
    char path[FOLDER_PATH], name[64];
    struct fs_map m;
    snprintf(name, sizeof name, "one/trace/%d.trace", rank);
    folder_path(name, path);
    CHECK_OK(fs_map_open(&m, path, ERR_DATA));
    int64_t head = sizeof(struct trace_head), record = (m.size - head) / STEPS;
    fs_map_close(&m);
    CHECK(truncate(path, head + record + more) == 0);
}

/* Counts of one thing: its name is no plural. */
static void one_is_no_plural(void)
{
    char path[FOLDER_PATH];
    struct options o;
    struct setup s = {0};
    struct compare c;
    struct text out = {0};
    train("one", "1f1b", true);
    setup_of("one", &o, &s);
    folder_path("one", path);
    cut_trace(0, 1);
    cut_trace(1, 0);
    CHECK_OK(compare_open(&s, path, -1, &c));
    say(&c, path, &out);
    CHECK(out.err == ERR_OK && strstr(out.s, "; 1 of 1 step, the first 0 left out\n") &&
          strstr(out.s, "1 byte of its records is left out\n"));
    text_free(&out);
    compare_close(&c);
    CHECK_ERR(compare_open(&s, path, 1, &c), ERR_DATA,
              "1 step is there and 1 to be left out");
    compare_close(&c);
    int world = s.mesh.world, m = s.sched.m;
    s.report.hash++; /* that of another schedule */
    s.mesh.world = s.sched.m = 1;
    CHECK_ERR(compare_open(&s, path, -1, &c), ERR_DATA,
              "(1f1b, 1 rank, 1 microbatch); trace");
    compare_close(&c);
    s.mesh.world = world;
    s.sched.m = m;
    setup_free(&s);
}

static const struct test_case cases[] = {
    {"the end is predicted", the_end_is_predicted},
    {"costs come back", costs_come_back}, {"medians and means", medians_and_means},
    {"messages fetched late", fetched_late},
    {"recomputes", recomputes},
    {"pages and pictures", pages_and_pictures},
    {"refused", refused},
    {"one is no plural", one_is_no_plural},
};
TEST_MAIN(cases)
