/* SPDX-License-Identifier: Apache-2.0
 *
 * Names in the boxes of every schedule's chart and picture, from two ranks to sixteen and two
 * microbatches to 128. Terminal: a row, read back, is the rank's list, every number whole and none
 * running into the next; where names have no room there is no digit in it, and the width that is
 * then told is the least that does. SVG: in one chart all names have one form, each within its box
 * by a table of widths of its own, and where there are none a word says why.
 */
#include "base/mem.h"
#include "plait.h"
#include "sim/sim.h"
#include "test.h"
#include "timed.h"

#include <ctype.h>
#include <stdlib.h>

static const struct sched_lower_args no_ends = {0};

struct shape { const char *name; int p, m, v, slices; bool again; struct sim_cost cost; };

/* A schedule made and played; false: it has no such shape. */
static bool play(const struct shape *a, struct timed *x)
{
    struct sched made, again;
    struct sched_shape shape = {a->p, a->m, a->v, 0};
    *x = (struct timed){0};
    enum err err = a->slices ? sched_make_sliced(a->name, &shape, a->slices, &made)
                             : sched_make(a->name, &shape, NULL, &made);
    if (err != ERR_OK)
        return false;
    if (a->again) {
        CHECK_OK(sched_recompute(&made, &again));
        sched_free(&made);
        made = again;
    }
    return timed_play(&made, &no_ends, &a->cost, x);
}

/* Calls f for shapes of every schedule. */
static int each_shape(void (*f)(const struct shape *a, const struct timed *x))
{
    static const int ps[] = {2, 3, 8, 16}, ms[] = {2, 9, 11, 64, 128};
    int n = 0;
    for (int k = 0; k < sched_kind_count(); k++) {
        const struct sched_kind *kind = sched_kind_at(k);
        for (int i = 0; i < 40; i += 1 + (i % 3 == 2)) {
            struct timed x;
            struct shape a = {.name = kind->name, .p = ps[i % 4], .m = ms[i / 4 % 5],
                              .v = kind->chunks ? kind->chunks : 1 + i % 4,
                              .cost = {.tf = 1, .tb = 2, .ti = 1, .tw = 1, .tr = 1}};
            a.slices = kind->make_sliced && a.m < 64 ? 1 + i % 4 : 0;
            a.again = i % 7 == 0 && !a.slices;
            if (i >= 20) /* times that are no multiples of one another */
                a.cost = (struct sim_cost){.tf = 1, .tb = 1.7, .ti = 0.9, .tw = 0.7, .tr = 1.1,
                                           .latency = 0.2};
            if (kind->make_sliced && !a.slices)
                a.slices = 1;
            if (a.v > 1 && a.m * a.p > 512) /* enough of the large ones */
                continue;
            if (play(&a, &x)) {
                f(&a, &x);
                n++;
            }
            timed_free(&x);
        }
    }
    return n;
}

/* ---- the terminal ---- */

enum form { FULL, SHORT, NUMBER, FORMS };

/* The name of one action, as the three forms have it: only a forward may be a number alone. */
static void name_of(const struct sched *s, struct sched_instr in, enum form form, char out[32])
{
    static const char letter[] = "FBIWR";
    int n = form == FULL && s->v > 1 ? snprintf(out, 32, "%d", in.stage) : 0;
    if (form == NUMBER && in.op == SCHED_F)
        snprintf(out + n, 32 - (size_t)n, "%d", in.mb);
    else
        snprintf(out + n, 32 - (size_t)n, "%c%d", letter[in.op], in.mb);
}

/* Is the row the rank's list in this form? Between names stand blanks, idle time and messages. */
static bool row_is(const struct sched *s, int rank, enum form form, const char *row)
{
    for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
        char name[70];
        bool pair = s->instr[i].op == SCHED_OVERLAP_F_B;
        if (s->instr[i].op >= SCHED_COMPUTE_OPS && !pair)
            continue;
        if (pair) {
            char half[2][32];
            name_of(s, s->instr[i + 1], form == NUMBER ? SHORT : form, half[0]);
            name_of(s, s->instr[i + 2], form == NUMBER ? SHORT : form, half[1]);
            snprintf(name, sizeof name, "%s&%s", half[0], half[1]);
            i += 2;
        } else {
            name_of(s, s->instr[i], form, name);
        }
        row += strspn(row, " .~");
        if (strncmp(row, name, strlen(name)) != 0)
            return false;
        row += strlen(name);
        if (isdigit((unsigned char)*row) && (form == FULL || s->m > 10))
            return false; /* of which of the two is this digit? */
    }
    return row[strspn(row, " .~")] == '|';
}

/* The width that numbers need, told where they have no room; 0: they have. Checks the rows. */
static int check_chart(const struct shape *a, const struct timed *x, int width)
{
    struct text t = {0};
    timed_gantt(&x->s, &x->r, width, false, &t);
    const char *narrow = strstr(t.s, "too narrow for numbers"), *at = t.s;
    int form = 0;
    if (width > 0)
        CHECK((int)strcspn(t.s, "\n") <= (width > 19 ? width : 19));
    for (int rank = 0; rank < x->s.p; rank++, at = strchr(at, '\n') + 1) {
        const char *row = strchr(at, '|') + 1;
        if (narrow) {
            CHECK(strcspn(row, "0123456789") > strcspn(row, "|"));
            continue;
        }
        while (form < FORMS && !row_is(&x->s, rank, (enum form)form, row))
            form++; /* that of the first rank; the others must have it too */
        CHECK(form < FORMS);
    }
    for (int rank = 0; !narrow && form < FORMS && rank < x->s.p; rank++) {
        const char *row = t.s;
        for (int r = 0; r < rank; r++)
            row = strchr(row, '\n') + 1;
        if (!test_check(row_is(&x->s, rank, (enum form)form, strchr(row, '|') + 1), __FILE__,
                        __LINE__, "%s, p %d, m %d, width %d:\n%.400s", a->name, a->p, a->m, width,
                        row))
            break;
    }
    int wanted = 0;
    if (narrow)
        CHECK(sscanf(narrow, "too narrow for numbers, which need %d columns", &wanted) == 1);
    text_free(&t);
    return wanted;
}

static void check_widths(const struct shape *a, const struct timed *x)
{
    static const int width[] = {0, 40, 80, 120, 200};
    for (int i = 0; i < 5; i++) {
        int wanted = check_chart(a, x, width[i]);
        if (wanted == 0)
            continue;
        CHECK(wanted > width[i]);
        CHECK_INT(check_chart(a, x, wanted), 0);
        if (i == 1)
            CHECK_INT(check_chart(a, x, wanted - 1), wanted);
    }
}

static void numbers_of_a_terminal_are_whole(void)
{
    CHECK(each_shape(check_widths) > 150);
}

/* ---- SVG ---- */

/* Width of a name in a font of so many pixels: DejaVu Sans, which is a wide one. */
static double width_of(const char *name, double size)
{
    double em = 0;
    for (; *name; name++)
        em += isdigit((unsigned char)*name) ? 0.636
              : *name == 'F'                ? 0.575
              : *name == 'B'                ? 0.686
              : *name == 'I'                ? 0.295
              : *name == 'W'                ? 0.989
                                            : 0.695;
    return em * size;
}

struct seen {
    int boxes, names;
    char form[8]; /* of the names: a digit for each number, A for a letter */
};

/* One box with its name, if it has one, on a line of the picture. */
static void check_box(const char *line, const char *end, struct seen *seen)
{
    double x, y, w, h, at_x, at_y;
    char name[32] = "", form[8] = "";
    const char *text = strstr(line, "<text class=\"b");
    CHECK(sscanf(strstr(line, " x=\""), " x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\"", &x, &y,
                 &w, &h) == 4);
    seen->boxes++;
    if (!text || text > end)
        return;
    seen->names++;
    double size = strncmp(text + 14, " s", 2) == 0 ? 8 : 10;
    CHECK(sscanf(strstr(text, " x=\""), " x=\"%lf\" y=\"%lf\">%31[^<]", &at_x, &at_y, name) == 3);
    CHECK_NEAR(at_x, x + w / 2, 1e-2 * x / 100 + 1e-2); /* six digits */
    CHECK(width_of(name, size) <= w && at_y > y && at_y < y + h && size <= h);
    size_t n = 0;
    for (const char *c = name; *c && n + 1 < sizeof form; c++)
        if (!isdigit((unsigned char)*c) || c == name || !isdigit((unsigned char)c[-1]))
            form[n++] = isdigit((unsigned char)*c) ? '0' : 'A';
    if (seen->names == 1)
        snprintf(seen->form, sizeof seen->form, "%s", form);
    CHECK_STR(form, seen->form);
}

static void check_svg(const char *svg)
{
    struct seen seen = {0};
    for (const char *line = svg, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        /* the boxes of rows, not the legend's; messages are of kind 5 and have no names */
        const char *box = strstr(line, "<rect class=\"c k");
        if (!box || box > end || box[16] >= '5' || !strstr(line, "<title>") ||
            strstr(line, "<title>") > end)
            continue;
        check_box(box, end, &seen);
    }
    CHECK(seen.boxes > 0 && (seen.names == 0 || seen.names == seen.boxes));
    if (seen.names == 0)
        CHECK(strstr(svg, ">no names: ") != NULL);
    else if (strcmp(seen.form, "0") == 0)
        CHECK(strstr(svg, ">in the boxes: microbatch<") != NULL);
    else
        CHECK(!strstr(svg, ">no names: "));
}

static void check_picture(const struct shape *a, const struct timed *x)
{
    struct sim_picture p;
    struct text t = {0};
    if (x->s.begin[x->s.p] > 6000) /* boxes beyond which there are no tooltips to know them by */
        return;
    CHECK_OK(sim_picture_make(&x->s, &x->r, &a->cost, NULL, &p));
    struct draw_page page = {.title = a->name, .time_unit = "", .memory_unit = "activations",
                             .chart = &p.chart, .charts = 1};
    CHECK_OK(draw_svg(&page, &t));
    check_svg(t.s);
    text_free(&t);
    sim_picture_free(&p);
}

static void names_of_a_picture_fit(void)
{
    CHECK(each_shape(check_picture) > 150);
}

/* A picture grows for its numbers: the shape of the textbook's large step has them all. */
static void a_large_step_has_numbers(void)
{
    struct timed x;
    struct sim_picture p;
    struct text t = {0};
    struct shape a = {.name = "1f1b", .p = 16, .m = 64, .v = 1, .cost = {.tf = 1, .tb = 2}};
    CHECK(play(&a, &x));
    CHECK_OK(sim_picture_make(&x.s, &x.r, &a.cost, NULL, &p));
    CHECK_OK(draw_svg(&(struct draw_page){.title = "large", .time_unit = "", .chart = &p.chart,
                                          .memory_unit = "activations", .charts = 1}, &t));
    CHECK(strstr(t.s, ">63</text>") && strstr(t.s, ">10</text>") && !strstr(t.s, "no names"));
    text_free(&t);
    sim_picture_free(&p);
    timed_free(&x);
}

/* A stage of a tenth of the others' time has no room; the others keep their names, and it is said
 * how many have none. */
static void slivers_are_counted(void)
{
    static const double scale[] = {10, 10, 1, 10};
    struct timed x;
    struct sim_picture p;
    struct text t = {0};
    struct shape a = {.name = "1f1b", .p = 4, .m = 12, .v = 1,
                      .cost = {.tf = 1, .tb = 2, .stage_scale = scale}};
    CHECK(play(&a, &x));
    CHECK_OK(sim_picture_make(&x.s, &x.r, &a.cost, NULL, &p));
    CHECK_OK(draw_svg(&(struct draw_page){.title = "slivers", .time_unit = "", .chart = &p.chart,
                                          .memory_unit = "activations", .charts = 1}, &t));
    CHECK(strstr(t.s, "12 boxes are too narrow for a name") != NULL ||
          strstr(t.s, "24 boxes are too narrow for a name") != NULL);
    CHECK(strstr(t.s, ">F11</text>") != NULL && strstr(t.s, ">B11</text>") != NULL);
    text_free(&t);
    sim_picture_free(&p);
    timed_free(&x);
}

static const struct test_case cases[] = {
    {"numbers_of_a_terminal_are_whole", numbers_of_a_terminal_are_whole},
    {"names_of_a_picture_fit", names_of_a_picture_fit},
    {"a_large_step_has_numbers", a_large_step_has_numbers},
    {"slivers_are_counted", slivers_are_counted},
};
TEST_MAIN(cases)
