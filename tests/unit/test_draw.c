/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures from spans made by hand: what is drawn where, what is written in it, that names from
 * outside cannot leave their place, and that the JSON is JSON. No simulator takes part.
 */
#include "draw/draw.h"

#include "base/mem.h"
#include "test.h"
#include <cjson/cJSON.h>

static const struct draw_span spans[] = {
    {.start = 0, .end = 1, .rank = 0, .stage = 0, .mb = 0, .kind = DRAW_F},
    {.start = 1, .end = 2, .rank = 0, .stage = 0, .mb = 1, .kind = DRAW_F},
    {.start = 4, .end = 6, .rank = 0, .stage = 0, .mb = 0, .kind = DRAW_B},
    {.start = 1.5, .end = 2, .rank = 1, .stage = 1, .mb = 0, .kind = DRAW_MESSAGE},
    {.start = 2, .end = 3, .rank = 1, .stage = 1, .mb = 0, .kind = DRAW_F},
    {.start = 3, .end = 6, .rank = 1, .stage = 1, .mb = 1, .kind = DRAW_F, .replica = 1},
    {.start = 3, .end = 6, .rank = 1, .stage = 1, .mb = 0, .kind = DRAW_B},
};
static const struct draw_point points[] = {{0, 0}, {0, 1}, {1, 2}, {6, 0}, {0, 0}, {2, 1}, {6, 0}};
static const struct draw_curve curves[] = {{points, 4}, {points + 4, 3}};
static const struct draw_message messages[] = {
    {.start = 1, .end = 1.5, .from = 0, .to = 1, .stage = 0, .mb = 0, .cause = 0, .use = 4},
    {.start = 2, .end = 2.5, .from = 0, .to = 1, .stage = 0, .mb = 1, .cause = 1, .use = 5},
    /* at once, to the second of the pair */
    {.start = 2, .end = 2, .from = 0, .to = 1, .stage = 0, .mb = 0, .cause = 1, .use = 6,
     .back = true},
};
static const char *const cells[] = {"rank", "busy", "0", "<4>"};
static const struct draw_table table = {"By rank & more", 2, 2, cells};

static struct draw_chart chart(const char *title)
{
    return (struct draw_chart){.title = title,
                               .facts = "so & so",
                               .ranks = 2,
                               .chunks = 1,
                               .end = 6,
                               .span = spans,
                               .spans = 7,
                               .memory = curves,
                               .message = messages,
                               .messages = 3};
}

static struct draw_page page(const struct draw_chart *c)
{
    return (struct draw_page){.title = "a page",
                              .time_unit = "",
                              .memory_unit = "activations",
                              .seconds = 1e-3,
                              .chart = c,
                              .charts = 1,
                              .table = &table,
                              .tables = 1};
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        n++;
    return n;
}

static void svg_has_every_box(void)
{
    struct draw_chart c = chart("1f1b");
    struct draw_page p = page(&c);
    struct text t = {0};
    CHECK_OK(draw_svg(&p, &t));
    CHECK_INT(count(t.s, "<g class=\"row\" "), 2);
    CHECK_INT(count(t.s, "<rect class=\"c k"), 7 + 3 + 1); /* boxes, kinds, the second replica */
    CHECK_INT(count(t.s, "<path class=\"mem\""), 2);
    CHECK_INT(count(t.s, "<title>F1: 3 to 6</title>"), 1);
    CHECK_INT(count(t.s, "class=\"b s d\""), 1); /* white letters on the dark box */
    CHECK_INT(count(t.s, "so &#38; so"), 1);
    CHECK(strncmp(t.s, "<svg xmlns=", 11) == 0 && strstr(t.s, "</svg>\n"));
    text_free(&t);
}

/* Two that overlap have half the row each, at the same place in time. */
static void pairs_share_a_row(void)
{
    struct draw_chart c = chart("pair");
    struct draw_page p = page(&c);
    struct text t = {0};
    double x[2], y[2], w[2], h[2];
    CHECK_OK(draw_svg(&p, &t));
    const char *f = strstr(t.s, "<rect class=\"c k0-4\""), *b = strstr(f ? f : "", "\n<rect");
    CHECK(f && sscanf(f, "<rect class=\"c k0-4\" x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\"",
                      &x[0], &y[0], &w[0], &h[0]) == 4);
    CHECK(b &&
          sscanf(b + 1, "<rect class=\"c k1-2\" x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\"",
                 &x[1], &y[1], &w[1], &h[1]) == 4);
    CHECK(x[0] == x[1] && w[0] == w[1] && h[0] == 11 && h[1] == 11);
    CHECK_NEAR(y[1] - y[0], 11, 1e-3);
    text_free(&t);
}

/* Time is one scale over charts: the longer one fills the width. */
static void charts_share_a_scale(void)
{
    struct draw_chart c[2] = {chart("short"), chart("long")};
    struct draw_page p = page(c);
    struct text t = {0};
    c[1].end = 12;
    p.charts = 2;
    CHECK_OK(draw_svg(&p, &t));
    CHECK_INT(count(t.s, "<g class=\"chart\">"), 2);
    const char *first = strstr(t.s, ">F0: 0 to 1<"), *second = strstr(first + 1, ">F0: 0 to 1<");
    CHECK(first && second);
    CHECK_INT(count(t.s, "<rect class=\"idle\""), 4);
    text_free(&t);
    CHECK_OK(draw_gantt(&p, 60, false, &t));
    CHECK_STR(t.s,
              "short: so & so\n"
              "rank 0 |F0 F1 ......B0    ..................|\n"
              "rank 1 |....~~F0 F1&B0    ..................|\n\n"
              "long: so & so\n"
              "rank 0 |F0 F1 ......B0    ..................|\n"
              "rank 1 |....~~F0 F1&B0    ..................|\n\n"
              "time 0 to 12, 0.3333 a column; F forward, B backward, F&B both at once, . idle, "
              "~ a message on its way\n");
    text_free(&t);
}

/* ---- JSON ---- */

static cJSON *data_of(const char *html)
{
    const char *from = strstr(html, "<script type=\"application/json\" id=\"data\">");
    const char *to = from ? strstr(from, "</script>") : NULL;
    if (!CHECK(to != NULL))
        return NULL;
    from = strchr(from, '>') + 1;
    cJSON *json = cJSON_ParseWithLength(from, (size_t)(to - from));
    CHECK(json != NULL);
    return json;
}

static double item(const cJSON *o, const char *name, int i)
{
    const cJSON *x = cJSON_GetArrayItem(cJSON_GetObjectItem(o, name), i);
    return cJSON_IsNumber(x) ? x->valuedouble : (double)NAN;
}

static void html_carries_the_data(void)
{
    struct draw_chart c = chart("1f1b");
    struct draw_page p = page(&c);
    struct text t = {0};
    CHECK_OK(draw_html(&p, &t));
    cJSON *json = data_of(t.s), *first = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "charts"), 0);
    CHECK_INT(cJSON_GetArraySize(cJSON_GetObjectItem(json, "kinds")), DRAW_KINDS);
    CHECK_INT(cJSON_GetArraySize(cJSON_GetObjectItem(first, "start")), 7);
    CHECK(item(first, "begin", 1) == 3 && item(first, "begin", 2) == 7);
    CHECK(item(first, "stop", 3) == 2 && item(first, "lane", 5) == 1 &&
          item(first, "lane", 6) == 2);
    CHECK(item(first, "level", 5) == 4 && item(first, "mb", 5) == 1);
    const cJSON *memory = cJSON_GetArrayItem(cJSON_GetObjectItem(first, "memory"), 0);
    CHECK_INT(cJSON_GetArraySize(memory), 8);
    cJSON_Delete(json);
    CHECK_INT(count(t.s, "<canvas "), 1);
    CHECK_INT(count(t.s, "<td>&#60;4&#62;</td>"), 1);
    CHECK_INT(count(t.s, "By rank &#38; more"), 1);
    CHECK_INT(count(t.s, "default-src 'none'"), 1);
    CHECK_INT(count(t.s, "http://") + count(t.s, "https://"), 0); /* nothing from elsewhere */
    CHECK_INT(count(t.s, "\"Chart of 2 ranks over time"), 1);
    text_free(&t);
    c.ranks = 1;
    c.spans = 3;
    c.messages = 0;
    CHECK_OK(draw_html(&p, &t));
    CHECK_INT(count(t.s, "\"Chart of 1 rank over time"), 1);
    text_free(&t);
}

/* The rules of "Trace event format" (Google) for the kinds of events in use, held strictly: the
 * viewers leave out without a word what breaks them. */

enum { EVENTS_MAX = 64 };

struct event {
    const char *phase, *name, *cat;
    int pid, tid, id;
    double from, to;
};

static int whole(const cJSON *e, const char *key)
{
    const cJSON *x = cJSON_GetObjectItem(e, key);
    test_check(cJSON_IsNumber(x) && x->valuedouble == x->valueint && x->valueint >= 0, __FILE__,
               __LINE__, "%s is no whole number", key);
    return x ? x->valueint : -1;
}

static double instant(const cJSON *e, const char *key)
{
    const cJSON *x = cJSON_GetObjectItem(e, key);
    test_check(cJSON_IsNumber(x) && x->valuedouble >= 0 && x->valuedouble < 1e12, __FILE__,
               __LINE__, "%s is no time", key);
    return x ? x->valuedouble : 0;
}

static const char *words(const cJSON *e, const char *key)
{
    const char *x = cJSON_GetStringValue(cJSON_GetObjectItem(e, key));
    test_check(x && x[0], __FILE__, __LINE__, "%s is no text", key);
    return x ? x : "";
}

/* An event with all that its kind must have. */
static struct event read_event(const cJSON *e)
{
    const cJSON *args = cJSON_GetObjectItem(e, "args");
    struct event x = {.phase = words(e, "ph"), .name = words(e, "name"), .cat = "", .id = -1,
                      .pid = whole(e, "pid"), .tid = whole(e, "tid")};
    CHECK(strlen(x.phase) == 1 && strchr("MXCsf", x.phase[0]));
    if (x.phase[0] == 'M') {
        CHECK(cJSON_IsObject(args));
        if (strcmp(x.name, "process_sort_index") == 0)
            whole(args, "sort_index");
        else
            CHECK(words(args, "name") && strstr("process_name thread_name", x.name));
        return x;
    }
    x.from = x.to = instant(e, "ts");
    if (x.phase[0] == 'C')
        CHECK(cJSON_IsObject(args) && cJSON_IsNumber(args->child) && !args->child->next);
    else
        x.cat = words(e, "cat");
    if (x.phase[0] == 'X') {
        x.to += instant(e, "dur");
        CHECK(x.to > x.from);
    }
    if (strchr("sf", x.phase[0]))
        x.id = whole(e, "id");
    if (x.phase[0] == 'f') /* bound to the slice around it, not to the next one */
        CHECK_STR(words(e, "bp"), "e");
    return x;
}

/* How many events have this phase, name and process, and this track (-1: any). */
static int alike(const struct event *all, int n, const struct event *like)
{
    int found = 0;
    for (int i = 0; i < n; i++)
        found += all[i].phase[0] == like->phase[0] && all[i].pid == like->pid &&
                 (like->tid < 0 || all[i].tid == like->tid) && strcmp(all[i].name, like->name) == 0;
    return found;
}

/* Each process and each track of slices is named once; slices of a track do not overlap. */
static void check_tracks(const struct event *all, int n)
{
    for (int i = 0; i < n; i++) {
        const struct event *x = &all[i];
        CHECK_INT(alike(all, n, &(struct event){"M", "process_name", "", x->pid, -1, 0, 0, 0}), 1);
        CHECK_INT(
            alike(all, n, &(struct event){"M", "process_sort_index", "", x->pid, -1, 0, 0, 0}), 1);
        if (x->phase[0] != 'X')
            continue;
        CHECK_INT(alike(all, n, &(struct event){"M", "thread_name", "", x->pid, x->tid, 0, 0, 0}),
                  1);
        for (int k = 0; k < n; k++)
            CHECK(k == i || all[k].phase[0] != 'X' || all[k].pid != x->pid ||
                  all[k].tid != x->tid || all[k].to <= x->from || all[k].from >= x->to);
    }
}

/* Each flow has one start and one end, in this order, each in a slice of its own track. */
static void check_flows(const struct event *all, int n)
{
    for (int i = 0; i < n; i++) {
        const struct event *x = &all[i];
        int ends = 0, around = 0;
        for (int k = 0; x->id >= 0 && k < n; k++) {
            const struct event *y = &all[k];
            around += y->phase[0] == 'X' && y->pid == x->pid && y->tid == x->tid &&
                      y->from <= x->from && x->from < y->to;
            if (k == i || y->id != x->id)
                continue;
            ends++;
            CHECK(y->phase[0] != x->phase[0]);
            CHECK(x->phase[0] == 'f' ? y->from <= x->from : y->from >= x->from);
            CHECK_STR(y->cat, x->cat);
            CHECK_STR(y->name, x->name);
        }
        CHECK(x->id < 0 || (ends == 1 && around == 1));
    }
}

/* Two charts in one file: neither processes nor arrows of the one are those of the other. */
static void trace_keeps_the_formats_rules(void)
{
    struct draw_chart two[2] = {chart("1f1b"), chart("gpipe")};
    struct draw_page p = page(two);
    struct text t = {0};
    struct event all[EVENTS_MAX];
    int n = 0, flows = 0;
    p.charts = 2;
    CHECK_OK(draw_trace(&p, &t));
    cJSON *json = cJSON_Parse(t.s), *e;
    CHECK_STR(words(json, "displayTimeUnit"), "ms");
    CHECK_STR(words(cJSON_GetObjectItem(json, "otherData"), "facts 1"), "so & so");
    cJSON_ArrayForEach(e, cJSON_GetObjectItem(json, "traceEvents"))
    {
        if (!CHECK(n < EVENTS_MAX))
            break;
        all[n] = read_event(e);
        flows += all[n++].id >= 0;
    }
    CHECK_INT(flows, 2 * 2 * 3);
    check_tracks(all, n);
    check_flows(all, n);
    cJSON_Delete(json);
    text_free(&t);
}

static void trace_says_what_the_chart_does(void)
{
    struct draw_chart c = chart("1f1b");
    struct draw_page p = page(&c);
    struct text t = {0};
    CHECK_OK(draw_trace(&p, &t));
    CHECK_INT(count(t.s, "\"ph\":\"X\""), 7 + 2); /* and two messages on their link */
    CHECK(count(t.s, "\"ph\":\"s\"") == 3 && count(t.s, "\"ph\":\"f\"") == 3);
    CHECK_INT(count(t.s, "\"ph\":\"s\",\"pid\":1,\"tid\":1,\"name\":\"gradient\""), 1);
    CHECK_INT(count(t.s, "\"ph\":\"f\",\"pid\":2,\"tid\":2,\"name\":\"gradient\""), 1);
    CHECK_INT(count(t.s, "\"args\":{\"stage\":0,\"microbatch\":1}"), 1);
    CHECK_INT(count(t.s, "\"args\":{\"stage\":1,\"microbatch\":0}"), 2);
    /* 1.5 units are 1500 microseconds; the second of the pair has a track of its own */
    CHECK_INT(count(t.s, "\"ts\":1500,\"dur\":500"), 1);
    CHECK_INT(count(t.s, "work, second of a pair"), 1);
    CHECK_INT(count(t.s, "\"sending to rank 1\""), 1);
    CHECK_INT(count(t.s, "\"activations\":2}"), 1);
    text_free(&t);
}

/* ---- names ---- */

static void names_stay_in_their_place(void)
{
    static const char evil[] =
        "</script><b>\"x\" & \\ '\x01 \xff\xc3\x28 \xed\xa0\x80 \xe2\x82\xac";
    struct draw_span own[7];
    memcpy(own, spans, sizeof own);
    own[0].label = evil;
    struct draw_chart c = chart(evil);
    c.span = own;
    struct draw_page p = page(&c);
    struct text t = {0};
    p.title = evil;
    CHECK_OK(draw_html(&p, &t));
    CHECK_INT(count(t.s, "<b>"), 0);
    CHECK_INT(count(t.s, "</script>"), 2); /* the data's and the program's */
    CHECK(!strstr(t.s, "\x01") && !strstr(t.s, "\xff") && !strstr(t.s, "\xed\xa0"));
    CHECK(strstr(t.s, "\xe2\x82\xac") != NULL); /* what is well-formed stays */
    cJSON *json = data_of(t.s), *first = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "charts"), 0);
    const char *title = cJSON_GetStringValue(cJSON_GetObjectItem(first, "title"));
    CHECK(title && strncmp(title, "</script><b>\"x\" & \\ '\xef\xbf\xbd ", 24) == 0);
    cJSON_Delete(json);
    text_free(&t);
    CHECK_OK(draw_svg(&p, &t));
    CHECK_INT(count(t.s, "<b>"), 0);
    CHECK(!strstr(t.s, "\x01") && !strstr(t.s, "\xff"));
    text_free(&t);
    CHECK_OK(draw_trace(&p, &t));
    json = cJSON_Parse(t.s);
    CHECK(json != NULL && !strstr(t.s, "\xff"));
    cJSON_Delete(json);
    text_free(&t);
}

static void too_much_is_refused(void)
{
    struct draw_chart c = chart("large");
    struct draw_page p = page(&c);
    struct text t = {0};
    c.spans = DRAW_SVG_MAX + 1;
    CHECK_ERR(draw_svg(&p, &t), ERR_CONFIG, "200001 boxes");
    c.spans = DRAW_HTML_MAX + 1;
    CHECK_ERR(draw_html(&p, &t), ERR_CONFIG, "4000001 boxes");
    c.spans = DRAW_TRACE_MAX + 1;
    CHECK_ERR(draw_trace(&p, &t), ERR_CONFIG, "500001 boxes");
    text_free(&t);
}

/* A step in which nothing happens, or nothing takes time, still is a picture. */
static void empty_steps(void)
{
    static const struct draw_span instant[] = {{.kind = DRAW_F}};
    struct draw_chart c = {.title = "empty", .ranks = 1, .chunks = 1};
    struct draw_page p = page(&c);
    struct text t = {0};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(draw_svg(&p, &t));
        CHECK(!strstr(t.s, "nan") && !strstr(t.s, "inf"));
        text_free(&t);
        CHECK_OK(draw_html(&p, &t));
        cJSON_Delete(data_of(t.s));
        text_free(&t);
        CHECK_OK(draw_trace(&p, &t));
        text_free(&t);
        CHECK_OK(draw_gantt(&p, 40, true, &t));
        text_free(&t);
        c.span = instant;
        c.spans = 1;
    }
}

static const struct test_case cases[] = {
    {"svg_has_every_box", svg_has_every_box},
    {"pairs_share_a_row", pairs_share_a_row},
    {"charts_share_a_scale", charts_share_a_scale},
    {"html_carries_the_data", html_carries_the_data},
    {"trace_keeps_the_formats_rules", trace_keeps_the_formats_rules},
    {"trace_says_what_the_chart_does", trace_says_what_the_chart_does},
    {"names_stay_in_their_place", names_stay_in_their_place},
    {"too_much_is_refused", too_much_is_refused},
    {"empty_steps", empty_steps},
};
TEST_MAIN(cases)
