/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan as JSON: a parser reads it, and it says what the plan is: every layer once, bytes that
 * add up, a program that is read again as the same one, whatever the layout; refusals are those of
 * a check.
 */
#include "plait.h"
#include "setup/setup.h"
#include "test.h"

#include <cJSON.h>
#include <stdlib.h>

static const char *const layouts[][8] = {
    {NULL},
    {"parallel.pp=2", "parallel.tp=2", "parallel.sp=true", NULL},
    {"parallel.pp=4", "parallel.schedule=dualpipe", "parallel.dp=2", "parallel.zero=1", NULL},
    {"parallel.pp=2", "parallel.schedule=zb-v", "train.recompute=full", "model.kind=llama", NULL},
    {"parallel.pp=3", "parallel.split=layers.1,layers.2.mlp", "model.tied=false", NULL},
    {"parallel.pp=2", "parallel.dp=2", "train.save_every=3", NULL},
};

static struct plait_config *config(const char *const *words)
{
    struct plait_config *c;
    CHECK_INT(plait_config_new(&c), PLAIT_OK);
    CHECK_INT(plait_config_set(c, "model.vocab=257"), PLAIT_OK);
    CHECK_INT(plait_config_set(c, "train.batch=16"), PLAIT_OK);
    for (; *words; words++)
        test_check(plait_config_set(c, *words) == 0, __FILE__, __LINE__, "%s", plait_error());
    return c;
}

static const cJSON *list(const cJSON *of, const char *name)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(of, name);
    test_check(cJSON_IsArray(x), __FILE__, __LINE__, "%s is no list", name);
    return x;
}

static double number(const cJSON *of, const char *name)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(of, name);
    test_check(cJSON_IsNumber(x), __FILE__, __LINE__, "%s is no number", name);
    return x ? x->valuedouble : -1;
}

/* Stages go on where the one before ended, from the embed to the head. */
static void check_layers(const cJSON *plan)
{
    const cJSON *stage, *layer;
    int n = 0;
    char last[64] = "";
    cJSON_ArrayForEach(stage, list(plan, "stages")) {
        cJSON_ArrayForEach(layer, list(stage, "layers")) {
            CHECK(n > 0 || strcmp(layer->valuestring, "embed") == 0);
            snprintf(last, sizeof last, "%s", layer->valuestring);
            n++;
        }
    }
    CHECK_STR(last, "head");
    CHECK_INT(n, 2 + 2 * number(cJSON_GetObjectItemCaseSensitive(plan, "model"), "layers"));
}

static void check_memory(const cJSON *plan)
{
    const cJSON *rank, *kind;
    cJSON_ArrayForEach(rank, list(plan, "memory")) {
        double sum = 0;
        cJSON_ArrayForEach(kind, cJSON_GetObjectItemCaseSensitive(rank, "kinds"))
            sum += kind->valuedouble;
        CHECK(sum == number(rank, "total") && sum > 0);
    }
}

/* Read by the reader of the text form, and printed again. */
static void check_program(const cJSON *plan)
{
    const cJSON *line;
    struct text all = {0}, again = {0};
    struct sched s;
    cJSON_ArrayForEach(line, list(plan, "program"))
        text_add(&all, "%s\n", line->valuestring);
    CHECK_OK(sched_parse("program", all.s, all.len, &s));
    sched_print(&s, &again);
    CHECK_STR(again.s, all.s);
    sched_free(&s);
    text_free(&all);
    text_free(&again);
}

/* Bytes of it together, of one pipeline rank; each axis has some where it has several ranks. */
static double check_traffic(const cJSON *plan, const cJSON *rank)
{
    static const char *const axes[] = {"tp", "dp", "pp"};
    const cJSON *t, *mesh = cJSON_GetObjectItemCaseSensitive(plan, "mesh");
    double bytes = 0;
    int seen[3] = {0, 0, 0};
    cJSON_ArrayForEach(t, list(rank, "traffic")) {
        bool sends = strcmp(cJSON_GetObjectItem(t, "kind")->valuestring, "send") == 0;
        const char *axis = cJSON_GetObjectItem(t, "axis")->valuestring;
        CHECK(number(t, "messages") > 0 && number(t, "bytes") >= number(t, "messages"));
        CHECK(!sends || strcmp(axis, "pp") == 0);
        for (int i = 0; i < 3; i++)
            seen[i] += strcmp(axis, axes[i]) == 0;
        bytes += number(t, "bytes");
    }
    for (int i = 0; i < 3; i++)
        CHECK((seen[i] > 0) == (number(mesh, axes[i]) > 1));
    return bytes;
}

/* Each has two or more members, and each channel another end. */
static void check_communication(const cJSON *plan)
{
    const cJSON *rank, *g, *c;
    int to = 0, from = 0, pps = 0;
    double ranks = number(cJSON_GetObjectItemCaseSensitive(plan, "mesh"), "ranks");
    cJSON_ArrayForEach(rank, list(plan, "communication")) {
        CHECK_INT(number(rank, "pp"), pps++);
        cJSON_ArrayForEach(g, list(rank, "groups"))
            CHECK(number(g, "members") > 1 && number(g, "members") <= ranks &&
                  number(g, "max_bytes") > 0 && cJSON_GetArraySize(list(g, "axes")) > 0);
        CHECK((ranks > 1) == (cJSON_GetArraySize(list(rank, "groups")) > 0));
        CHECK((ranks > 1) == (check_traffic(plan, rank) > 0));
        cJSON_ArrayForEach(c, list(rank, "channels")) {
            to += cJSON_HasObjectItem(c, "to");
            from += cJSON_HasObjectItem(c, "from");
        }
    }
    CHECK_INT(to, from);
}

static void a_parser_reads_what_is_planned(void)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct plait_config *c = config(layouts[i]);
        char *json = NULL;
        int code = plait_config_plan(c, 0, &json);
        test_check(code == 0, __FILE__, __LINE__, "layout %d: %s", (int)i, plait_error());
        cJSON *plan = cJSON_ParseWithOpts(json ? json : "", NULL, true);
        test_check(plan != NULL, __FILE__, __LINE__, "layout %d: %s", (int)i, json ? json : "");
        CHECK_INT(number(plan, "plait_plan"), 1);
        check_layers(plan);
        check_memory(plan);
        check_program(plan);
        check_communication(plan);
        CHECK_INT(cJSON_GetArraySize(list(plan, "decisions")), DECISIONS);
        cJSON_Delete(plan);
        plait_free(json);
        plait_config_free(c);
    }
}

/* Bytes of the table that a check prints, and the rank that it is of. */
static double read_table(const char *report, int *pp)
{
    double bytes = 0;
    const char *line = strstr(report, "\ntraffic a step");
    const char *of = line ? strstr(line, "(a rank of pp ") : NULL;
    *pp = of ? (int)strtol(of + strlen("(a rank of pp "), NULL, 10) : -1;
    for (line = line ? strchr(line + 1, '\n') : NULL; line && line[1] == ' ';
         line = strchr(line + 1, '\n')) {
        char axis[8];
        double messages, sum;
        CHECK_INT(sscanf(strstr(line, " over "), " over %7s %lf %lf B", axis, &messages, &sum), 3);
        bytes += sum;
    }
    return bytes;
}

static void a_check_prints_the_most_traffic(void)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct plait_config *c = config(layouts[i]);
        char *json = NULL, *report = NULL;
        double most = 0, of[8] = {0};
        int ranks = 0, pp;
        CHECK_INT(plait_config_plan(c, 0, &json), 0);
        CHECK_INT(plait_config_check(c, 0, &report), 0);
        cJSON *plan = cJSON_Parse(json);
        const cJSON *rank;
        cJSON_ArrayForEach(rank, list(plan, "communication")) {
            of[ranks] = check_traffic(plan, rank);
            most = fmax(most, of[ranks++]);
        }
        double printed = read_table(report, &pp);
        CHECK((pp >= 0) == (ranks > 1));
        test_check(printed == most && (pp < 0 || of[pp] == most), __FILE__, __LINE__,
                   "layout %d: %g bytes are printed, of pp %d, and the most are %g", (int)i,
                   printed, pp, most);
        cJSON_Delete(plan);
        plait_free(json);
        plait_free(report);
        plait_config_free(c);
    }
}

static void widths_are_said_of_an_mlp(void)
{
    static const char *const words[] = {"model.kind=mlp", "model.widths=12,20,5", NULL};
    struct plait_config *c = config(words);
    char *json = NULL;
    CHECK_INT(plait_config_plan(c, 0, &json), 0);
    cJSON *plan = cJSON_Parse(json);
    char *said = cJSON_PrintUnformatted(
        list(cJSON_GetObjectItemCaseSensitive(plan, "model"), "widths"));
    CHECK_STR(said, "[12,20,5]");
    cJSON_free(said);
    cJSON_Delete(plan);
    plait_free(json);
    plait_config_free(c);
}

static double bytes_of(const char *zero, const char *kind)
{
    const char *const words[] = {"parallel.dp=2", "train.dtype=bf16", zero, NULL};
    struct plait_config *c = config(words);
    char *json = NULL;
    CHECK_INT(plait_config_plan(c, 0, &json), 0);
    cJSON *plan = cJSON_Parse(json);
    const cJSON *rank = cJSON_GetArrayItem(list(plan, "memory"), 0);
    double bytes = number(cJSON_GetObjectItemCaseSensitive(rank, "kinds"), kind);
    cJSON_Delete(plan);
    plait_free(json);
    plait_config_free(c);
    return bytes;
}

/* Two data ranks that shard the optimizer have half of what is updated, but for padding. */
static void shares_are_parts(void)
{
    static const struct { const char *kind; double part; } of[] = {
        {"weights", 1}, {"gradients", 1}, {"master weights", 0.5}, {"optimizer", 0.5}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        double all = bytes_of("parallel.zero=0", of[i].kind);
        CHECK(all > 100000);
        CHECK_NEAR(bytes_of("parallel.zero=1", of[i].kind) / all, of[i].part, 0.01);
    }
}

static void refusals_are_those_of_a_check(void)
{
    static const char *const bad[] = {"parallel.pp=3", "parallel.schedule=zb-w", NULL};
    struct plait_config *c = config(bad);
    char said[512], *json = NULL;
    CHECK_INT(plait_config_check(c, 0, NULL), PLAIT_CONFIG);
    snprintf(said, sizeof said, "%s", plait_error());
    CHECK_INT(plait_config_plan(c, 0, &json), PLAIT_CONFIG);
    CHECK_STR(plait_error(), said);
    CHECK(json == NULL);
    CHECK_INT(plait_config_plan(c, -1, &json), PLAIT_CONFIG);
    plait_config_free(c);
}

static const struct test_case cases[] = {
    {"a_parser_reads_what_is_planned", a_parser_reads_what_is_planned},
    {"a_check_prints_the_most_traffic", a_check_prints_the_most_traffic},
    {"widths_are_said_of_an_mlp", widths_are_said_of_an_mlp},
    {"shares_are_parts", shares_are_parts},
    {"refusals_are_those_of_a_check", refusals_are_those_of_a_check},
};
TEST_MAIN(cases)
