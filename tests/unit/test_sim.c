/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator against closed forms, published figures and its own definition.
 */
#include "base/mem.h"
#include "plait.h"
#include "sim/sim.h"
#include "test.h"
#include "timed.h"

static const struct sim_cost unit = {.tf = 1, .tb = 2, .ti = 1, .tw = 1};

static const struct sched_lower_args ends = {.reduce = true, .step = true};

static bool play(const char *name, int p, int m, const struct sim_cost *cost, struct timed *x)
{
    struct sched made;
    *x = (struct timed){0};
    return CHECK(sched_make(name, &(struct sched_shape){p, m, 1, 0}, NULL, &made) == ERR_OK) &&
           timed_play(&made, &ends, cost, x);
}

static bool play_text(const char *text, const struct sim_cost *cost, struct timed *x)
{
    struct sched made;
    *x = (struct timed){0};
    return CHECK(sched_parse("text", text, (int64_t)strlen(text), &made) == ERR_OK) &&
           timed_play(&made, &ends, cost, x);
}

/* Equal costs and no latency: makespan (m + p - 1)(tf + tb), so a bubble of (p-1)/(m+p-1) exactly;
 * GPipe keeps m activations, 1F1B min(p - rank, m). */
static void check_closed_form(const char *name, int p, int m)
{
    struct timed x;
    bool all = strcmp(name, "gpipe") == 0;
    if (play(name, p, m, &unit, &x)) {
        CHECK(x.r.makespan == 3.0 * (m + p - 1));
        CHECK_NEAR(x.r.bubble_fraction, (p - 1) / (double)(m + p - 1), 1e-15);
        CHECK_NEAR(sim_over_ideal(x.r.bubble_fraction), (p - 1) / (double)m, 1e-12 * p);
        CHECK_INT(x.r.actions, 2 * p * m);
        for (int rank = 0; rank < p; rank++) {
            CHECK(x.r.busy[rank] == 3.0 * m);
            CHECK(x.r.first[rank] == rank);
            CHECK_INT(x.r.peak[rank], all || m < p - rank ? m : p - rank);
        }
    }
    timed_free(&x);
}

static void closed_forms(void)
{
    for (int p = 1; p <= 16; p++) {
        for (int m = 1; m <= 64; m++) {
            check_closed_form("gpipe", p, m);
            check_closed_form("1f1b", p, m);
        }
    }
}

static void naive_is_serial(void)
{
    for (int p = 1; p <= 8; p++) {
        for (int m = 1; m <= 9; m++) {
            struct timed x;
            if (play("naive", p, m, &unit, &x)) {
                CHECK(x.r.makespan == 3.0 * m * p);
                CHECK_NEAR(x.r.bubble_fraction, 1 - 1.0 / p, 1e-15);
            }
            timed_free(&x);
        }
    }
}

/* Latency costs GPipe 2(p-1)c. 1F1B pays it again each round trip: [2(p-1)m/p + 2(p-2)]c when p
 * divides m, and these coefficients when it does not. */
static void latency(void)
{
    static const struct {
        int p, m, coefficient;
    } odd[] = {
        {4, 5, 12}, {4, 6, 12},  {4, 7, 14},  {4, 8, 16},  {4, 9, 18},
        {8, 9, 28}, {8, 10, 28}, {8, 15, 38}, {8, 16, 40}, {8, 17, 42},
    };
    const double c = 0.0625; /* exact in binary, and small against a slot */
    struct sim_cost cost = unit;
    struct timed x;
    cost.latency = c;
    for (int p = 2; p <= 8; p++) {
        for (int n = 1; n <= 4; n++) {
            int m = n * p;
            if (play("gpipe", p, m, &cost, &x))
                CHECK(x.r.makespan == 3 * (m + p - 1) + 2 * (p - 1) * c);
            timed_free(&x);
            if (play("1f1b", p, m, &cost, &x))
                CHECK(x.r.makespan == 3 * (m + p - 1) + (2 * (p - 1) * n + 2 * (p - 2)) * c);
            timed_free(&x);
        }
    }
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        if (play("1f1b", odd[i].p, odd[i].m, &cost, &x))
            CHECK(x.r.makespan == 3 * (odd[i].m + odd[i].p - 1) + odd[i].coefficient * c);
        timed_free(&x);
    }
}

/* Bubble rates of 1F1B in table 5 of Qi et al., "Zero bubble pipeline parallelism", 2023, from the
 * measured times in its table 9 (milliseconds): (cost - m(tf + ti + tw)) / cost, four decimals. */
static void published_bubbles(void)
{
    static const struct {
        int p, m;
        double tf, ti, tw, tc, rate;
    } row[] = {
        {8, 24, 18.522, 18.086, 9.337, .601, .2431},
        {8, 32, 18.513, 18.086, 9.331, .626, .1985},
        {8, 64, 18.546, 18.097, 9.321, .762, .1240},
        {8, 24, 29.718, 29.444, 19.927, .527, .2347},
        {8, 32, 29.802, 29.428, 19.530, .577, .1898},
        {8, 64, 29.935, 29.621, 19.388, .535, .1091},
        {16, 48, 11.347, 11.248, 8.132, .377, .2552},
        {16, 64, 11.307, 11.254, 8.101, .379, .2082},
        {16, 128, 11.325, 11.308, 8.109, .378, .1251},
        {32, 96, 10.419, 10.207, 7.715, .408, .2646},
        {32, 128, 10.408, 10.204, 7.703, .408, .2168},
        {32, 256, 10.402, 10.248, 7.698, .460, .1352},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct timed x;
        struct sim_cost cost = {.tf = row[i].tf, .tb = row[i].ti + row[i].tw, .ti = row[i].ti,
                                .tw = row[i].tw, .latency = row[i].tc};
        if (play("1f1b", row[i].p, row[i].m, &cost, &x)) {
            double work = row[i].m * (row[i].tf + row[i].ti + row[i].tw);
            CHECK_NEAR((x.r.cost - work) / x.r.cost, row[i].rate, 0.00005001);
        }
        timed_free(&x);
    }
}

static void slow_stage(void)
{
    double scale[4] = {1, 1, 3, 1};
    struct sim_cost cost = unit;
    struct timed x;
    cost.stage_scale = scale;
    if (play("gpipe", 4, 8, &cost, &x)) {
        CHECK(x.r.busy[2] == 72 && x.r.busy[1] == 24);
        /* the slow stage works without a gap between first and last forward, and so backwards */
        CHECK(x.r.makespan == 2 + 8 * 3 + 1 + 2 + 8 * 6 + 4);
    }
    timed_free(&x);
}

/* Every instruction starts when its rank and its input are there, neither later nor sooner. The
 * inputs are found here by searching, not by the simulator's tables. */
static double end_of(const struct timed *x, int op, int stage, int mb)
{
    for (int64_t i = 0; i < x->s.begin[x->s.p]; i++)
        if (x->s.instr[i].op == op && x->s.instr[i].stage == stage && x->s.instr[i].mb == mb)
            return x->r.event[i].end;
    return -1;
}

static double input_ready(const struct timed *x, struct sched_instr in, double latency)
{
    const struct sched *s = &x->s;
    int from = in.op == SCHED_F ? in.stage - 1 : in.stage + 1 < s->stages ? in.stage + 1 : -1;
    if (from < 0 || in.op == SCHED_W)
        return 0;
    double end = end_of(x, in.op == SCHED_F ? SCHED_F : SCHED_B, from, in.mb);
    if (end < 0)
        end = end_of(x, SCHED_I, from, in.mb);
    return end + (s->place[from] != s->place[in.stage] ? latency : 0);
}

static void check_events(const struct timed *x, double latency)
{
    for (int rank = 0; rank < x->s.p; rank++) {
        double clock = 0;
        for (int64_t i = x->s.begin[rank]; i < x->s.begin[rank + 1]; i++) {
            struct sched_instr in = x->s.instr[i];
            if (in.op > SCHED_W)
                continue;
            CHECK_NEAR(x->r.event[i].start, fmax(clock, input_ready(x, in, latency)), 1e-12);
            clock = x->r.event[i].end;
        }
        CHECK_NEAR(x->r.last[rank], clock, 1e-12);
    }
}

static void events_by_definition(void)
{
    struct sim_cost cost = {.tf = 1.25, .tb = 2.5, .ti = 1.375, .tw = 0.75, .latency = 0.3125};
    struct timed x;
    if (play("1f1b", 4, 6, &cost, &x))
        check_events(&x, cost.latency);
    timed_free(&x);
    if (play_text("0F0,3F0,3I0,0F1,3W0,3F1,3B1,0I0,0W0,0B1\n1F0,2F0,1F1,2F1,2B0,1I0,1W0,2B1,1B1\n",
                  &cost, &x))
        check_events(&x, cost.latency);
    timed_free(&x);
}

/* Two activations that are used in another order than sent: an early receive costs no time. */
static void early_receive(void)
{
    struct timed x;
    if (play_text("0F0,0F1,0B1,0B0\n1F1,1B1,1F0,1B0\n", &unit, &x))
        CHECK(x.r.makespan == 2 + 1 + 2 + 1 + 2 + 2);
    timed_free(&x);
}

static void refused(void)
{
    struct sched s;
    struct sched_report report;
    struct sim_result r;
    CHECK_OK(sched_make("gpipe", &(struct sched_shape){2, 2, 1, 0}, NULL, &s));
    CHECK_OK(sched_check(&s, &report));
    CHECK_ERR(sim_run(&s, &report, &unit, false, &r), ERR_INTERNAL, "not lowered");
    s.lowered = true;
    s.checked = false;
    CHECK_ERR(sim_run(&s, &report, &unit, false, &r), ERR_INTERNAL, "not checked");
    s.checked = true;
    struct sim_cost bad = unit;
    bad.tw = -1;
    CHECK_ERR(sim_run(&s, &report, &bad, false, &r), ERR_CONFIG, "tw -1");
    bad = unit;
    bad.latency = (double)NAN;
    CHECK_ERR(sim_run(&s, &report, &bad, false, &r), ERR_CONFIG, "latency nan");
    bad = unit;
    bad.stage_scale = (double[]){1, -2};
    CHECK_ERR(sim_run(&s, &report, &bad, false, &r), ERR_CONFIG, "scale -2 of stage 1");
    sched_report_free(&report);
    sched_free(&s);
}

/* Whatever stands in the name, the page stays JSON: whole page of the smallest schedule. */
static void json(void)
{
    struct timed x;
    struct sim_cost cost = {.tf = 0.1, .tb = 0.2, .ti = 0.1, .tw = 0.1};
    if (play("1f1b", 1, 1, &cost, &x)) {
        struct text t = {0};
        snprintf(x.s.name, sizeof x.s.name, "a\"b\\c\n\x01");
        sim_json(&x.s, &x.r, &t);
        CHECK_STR(t.s, "{\n"
                       "  \"schedule\": \"a\\\"b\\\\c\\n\\u0001\",\n"
                       "  \"p\": 1,\n"
                       "  \"m\": 1,\n"
                       "  \"v\": 1,\n"
                       "  \"makespan\": 0.30000000000000004,\n" /* 0.1 + 0.2 in binary */
                       "  \"cost\": 0.30000000000000004,\n"
                       "  \"bubble_fraction\": 0,\n"
                       "  \"bubble_rate\": 0,\n"
                       "  \"bubble_over_ideal\": 0,\n"
                       "  \"rate_over_ideal\": 0,\n"
                       "  \"busy\": [0.30000000000000004],\n"
                       "  \"waiting\": [0],\n"
                       "  \"message\": [0],\n"
                       "  \"sending\": [0],\n"
                       "  \"peak_activations\": [1],\n"
                       "  \"peak_full\": [1],\n"
                       "  \"actions\": 2,\n"
                       "  \"timeline\": [\n"
                       "    {\"rank\": 0, \"action\": \"0F0\", \"start\": 0, \"end\": 0.1},\n"
                       "    {\"rank\": 0, \"action\": \"0B0\", \"start\": 0.1, "
                       "\"end\": 0.30000000000000004}\n"
                       "  ]\n"
                       "}\n");
        text_free(&t);
    }
    timed_free(&x);
}

static void check_gantt(const char *name, int p, int m, int width, const char *want)
{
    struct timed x;
    struct text t = {0};
    if (play(name, p, m, &unit, &x)) {
        timed_gantt(&x.s, &x.r, width, false, &t);
        CHECK_STR(t.s, want);
    }
    text_free(&t);
    timed_free(&x);
}

static void gantt_widths(void)
{
#define FACTS                                                                                      \
    "makespan 9, bubble 33.33 % of the step (50.00 % over ideal time), at most 2 activations on "  \
    "a rank\n"
    check_gantt("gpipe", 2, 2, 0,
                "rank 0 |01...B0B1|\n"
                "rank 1 |.01B0B1..|\n"
                "time 0 to 9, 1 a column; F (or a number alone) forward, B backward, . idle\n"
                FACTS);
    check_gantt("gpipe", 2, 2, 30,
                "rank 0 |F0F1......B0  B1  |\n"
                "rank 1 |..F0F1B0  B1  ....|\n"
                "time 0 to 9, 0.5 a column; F forward, B backward, . idle\n" FACTS);
    check_gantt("gpipe", 2, 2, 500,
                "rank 0 |F0 F1 .........B0    B1    |\n"
                "rank 1 |...F0 F1 B0    B1    ......|\n"
                "time 0 to 9, 0.3333 a column; F forward, B backward, . idle\n" FACTS);
    check_gantt("gpipe", 2, 8, 20,
                "rank 0 |FFF.BBBBBBB|\n"
                "rank 1 |FFFFBBBBBB.|\n"
                "time 0 to 27, 2.455 a column; F forward, B backward, . idle\n"
                "too narrow for numbers, which need 36 columns: --width 36, or use --html\n"
                "makespan 27, bubble 11.11 % of the step (12.50 % over ideal time), at most 8 "
                "activations on a rank\n");
#undef FACTS
}

/* No line is longer than asked for, whatever the shape. */
static void gantt_fits(void)
{
    for (int n = 0; n < 60; n++) {
        struct timed x;
        struct text t = {0};
        int width = (int)test_range(40, 200), p = (int)test_range(1, 12);
        if (play("1f1b", p, (int)test_range(1, 40), &unit, &x)) {
            timed_gantt(&x.s, &x.r, width, false, &t);
            const char *line = t.s;
            for (int rank = 0; rank < p; rank++) {
                const char *end = strchr(line, '\n');
                CHECK(end - line <= width && end[-1] == '|');
                line = end + 1;
            }
        }
        text_free(&t);
        timed_free(&x);
    }
}

static void gantt_colors(void)
{
    struct timed x;
    struct text t = {0};
    if (play("naive", 1, 1, &unit, &x)) {
        timed_gantt(&x.s, &x.r, 0, true, &t);
        CHECK(strstr(t.s, "|\x1b[30;44m0\x1b[0m\x1b[30;42mB0\x1b[0m|\n") != NULL);
    }
    text_free(&t);
    timed_free(&x);
}

static void check_simulate(struct plait_sim a, int code, const char *part)
{
    char *page = NULL;
    a.size = sizeof a;
    int got = plait_simulate(&a, &page);
    test_check(got == code && strstr(got == 0 ? page : err_text(), part), __FILE__, __LINE__,
               "wanted %d with \"%s\", got %d: %s", code, part, got, got == 0 ? page : err_text());
    mem_free(page);
}

static void simulate(void)
{
    struct plait_sim a = {.schedule = "1f1b", .p = 4, .m = 8};
    check_simulate(a, PLAIT_OK, "makespan  33\n");
    a.tf = 2; /* and so is each half of the backward */
    check_simulate(a, PLAIT_OK, "makespan  66\n");
    a.tb = 1;
    check_simulate(a, PLAIT_OK, "makespan  33\n");
    a = (struct plait_sim){.schedule = "1f1b", .p = 2, .m = 2, .format = "text"};
    check_simulate(a, PLAIT_OK, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    a.format = "json";
    check_simulate(a, PLAIT_OK, "\"makespan\": 9,");
    a.format = "gantt";
    check_simulate(a, PLAIT_OK, "rank 1 |.0B01B1..|");
    a.format = "jsn";
    check_simulate(a, PLAIT_CONFIG, "the nearest is json");
    a = (struct plait_sim){.schedule = "1f1b", .p = 2, .m = 2, .width = -1};
    check_simulate(a, PLAIT_CONFIG, "width -1");
    a = (struct plait_sim){.schedule = "2f2b", .p = 2, .m = 2};
    check_simulate(a, PLAIT_CONFIG, "use one of naive, gpipe, 1f1b");
    a = (struct plait_sim){.schedule = "1f1b", .p = 2, .m = 2, .v = 3};
    check_simulate(a, PLAIT_CONFIG, "use -v 1");
    a = (struct plait_sim){.schedule = "1f1b", .p = 2, .m = 4, .group = 2};
    check_simulate(a, PLAIT_CONFIG, "use group 0");
    a = (struct plait_sim){.schedule = "interleaved", .p = 4, .m = 9, .v = 2};
    check_simulate(a, PLAIT_OK, "makespan  69\n");
    a.group = 5;
    check_simulate(a, PLAIT_OK, "makespan  63\n");
    a = (struct plait_sim){.schedule = "1f1b", .p = 4096, .m = 65535};
    check_simulate(a, PLAIT_CONFIG, "2097152 microbatches of stages; use m 512 or less");
    a = (struct plait_sim){.p = 4, .m = 8};
    check_simulate(a, PLAIT_CONFIG, "no schedule");
    a = (struct plait_sim){.schedule = "1f1b", .p = 2, .m = 2, .tf = -1};
    check_simulate(a, PLAIT_CONFIG, "tf -1");
    a = (struct plait_sim){.size = 3};
    CHECK_INT(plait_simulate(&a, NULL), PLAIT_CONFIG);
    for (int i = 0; i < plait_schedule_count(); i++)
        CHECK(plait_schedule_name(i)[0] && plait_schedule_doc(i)[0]);
    CHECK(!plait_schedule_name(-1) && !plait_schedule_doc(plait_schedule_count()));
}

static void simulate_file(void)
{
    struct plait_sim a = {.schedule =
                              "file:" PLAIT_SOURCE_DIR "/tests/golden/sched/zb-v-p4-m8-v2.csv"};
    check_simulate(a, PLAIT_OK, "makespan  51\ncost      48 ");
    a.p = 4;
    check_simulate(a, PLAIT_OK, "4 ranks, 8 microbatches, 2 chunks");
    a.m = 9;
    check_simulate(a, PLAIT_CONFIG, "m 9 was asked for and the file has m 8");
    a.m = 8;
    a.group = 4;
    check_simulate(a, PLAIT_CONFIG, "leave group out");
    a = (struct plait_sim){.schedule = "file:/nonexistent/x.csv"};
    check_simulate(a, PLAIT_CONFIG, "/nonexistent/x.csv");
    a = (struct plait_sim){.schedule = "file:" PLAIT_SOURCE_DIR "/tests/golden/sched/index.csv"};
    check_simulate(a, PLAIT_CONFIG, "index.csv, line 1 (rank 0), cell 1, \"file\"");
}

/* Two ranks by hand. A message of 3 units on the wire, and half a unit behind that: rank 1 waits a
 * unit for work, then for the message; the second message follows the first on the link. */
static void idle_and_links_by_hand(void)
{
    struct sim_cost cost = unit;
    struct timed x;
    cost.bytes = 6;
    cost.bandwidth = 2;
    cost.latency = 0.5;
    if (play_text("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", &cost, &x)) {
        CHECK_NEAR(x.r.waiting[1], 1, 1e-15);
        CHECK_NEAR(x.r.first[1], 4.5, 1e-15);
        CHECK_NEAR(x.r.message[1], 3.5 + 2, 1e-15); /* until 4.5, and from 5.5 until 7.5 */
        CHECK_NEAR(x.r.busy[1], 6, 1e-15);
        CHECK_NEAR(x.r.last[1], 12.5, 1e-15);
        CHECK_NEAR(x.r.makespan, 19, 1e-15); /* gradients leave at 10.5 and, behind that, 13.5 */
        CHECK_NEAR(x.r.bubble_fraction, 1 - 12.0 / (2 * 19), 1e-15);
    }
    timed_free(&x);
}

/* A step that ends later than the longest rank is long: shares of the one and of the other. */
static void shares_of_step_and_cost(void)
{
    struct timed x;
    if (play_text("0F0,0I0,0W0\n1F0,1I0,1W0\n2F0,2I0,2W0\n", &unit, &x)) {
        double busy = 0, longest = 0, end = 0;
        for (int rank = 0; rank < 3; rank++) {
            busy += x.r.busy[rank];
            longest = fmax(longest, x.r.last[rank] - x.r.first[rank]);
            end = fmax(end, x.r.last[rank]);
        }
        CHECK_NEAR(x.r.makespan, 7, 1e-15);
        CHECK_NEAR(end, 7, 1e-15);
        CHECK_NEAR(busy, 9, 1e-15);
        CHECK_NEAR(x.r.bubble_fraction, 1 - 9.0 / (3 * 7), 1e-15);
        CHECK_NEAR(x.r.bubble_rate, 1 - 9 / (3 * longest), 1e-15);
    }
    timed_free(&x);
    if (play("zb-h2", 4, 8, &unit, &x)) {
        CHECK(x.r.makespan > x.r.cost);
        CHECK_NEAR(x.r.bubble_fraction, 1 - 4 * 24 / (4 * x.r.makespan), 1e-15);
        CHECK_NEAR(x.r.bubble_rate, 1 - 4 * 24 / (4 * x.r.cost), 1e-15);
    }
    timed_free(&x);
}

static const struct test_case cases[] = {
    {"idle_and_links_by_hand", idle_and_links_by_hand},
    {"shares_of_step_and_cost", shares_of_step_and_cost},
    {"closed_forms", closed_forms},
    {"naive_is_serial", naive_is_serial},
    {"latency", latency},
    {"published_bubbles", published_bubbles},
    {"slow_stage", slow_stage},
    {"events_by_definition", events_by_definition},
    {"early_receive", early_receive},
    {"refused", refused},
    {"json", json},
    {"gantt_widths", gantt_widths},
    {"gantt_fits", gantt_fits},
    {"gantt_colors", gantt_colors},
    {"simulate", simulate},
    {"simulate_file", simulate_file},
};
TEST_MAIN(cases)
