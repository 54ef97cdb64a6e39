/* SPDX-License-Identifier: Apache-2.0
 *
 * The chart for terminals: the textbooks' one, a row a rank, a box an action with its microbatch in
 * it.
 *
 *     rank 0 |F0F1F2F3..........B0  B1  B2  B3  |
 *     rank 1 |..F0F1F2F3......B0  B1  B2  B3  ..|
 *
 * Every box covers the columns between its rounded start and end, so boxes that meet in time meet
 * in the picture. All names of a chart have one form (draw_layout.c), the fullest that has room:
 * 0F12; F12; F12 with forwards as numbers alone; else letters alone, and the line below says how
 * wide the terminal must be for numbers. So no name is ever cut. Two actions that overlap are one
 * box, F3&B5, its letter &. Below one column for the shortest action every column is the letter of
 * what runs there, or a dot.
 */
#include "draw/draw_layout.h"

#include "base/mem.h"
#include "base/num.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GANTT_MIN_COLUMNS = 10,
    GANTT_MAX_COLUMNS = 100000,
    GANTT_BESIDE = 8, /* columns beside the chart and the rank's digits */
};

struct gantt {
    struct draw_layouts all;
    enum draw_form *form;  /* owned; [charts] how their boxes are named */
    double scale;          /* columns a time unit */
    int columns;           /* of the chart, without the ranks' names */
    int wanted;            /* columns that numbers need; 0: no number of them does */
    int digits;            /* of the highest rank */
    bool letters;          /* the shortest action is below one column */
    bool unnamed, bare;    /* some chart has no names, or numbers alone */
    bool color;
    int64_t *owner; /* owned; [columns] span shown there, -1: idle */
};

/* Columns a time unit: `each` for the shortest action. */
static void set_scale(struct gantt *g, double each)
{
    g->scale = g->all.shortest > 0 ? each / g->all.shortest : 0;
    g->columns = g->all.shortest > 0 ? (int)ceil(g->all.end / g->all.shortest * each - 1e-6) : 0;
}

static bool is_pair(const struct draw_layout *l, int64_t i)
{
    return i + 1 < l->c->spans && l->lane[i] == DRAW_UPPER && l->lane[i + 1] == DRAW_LOWER;
}

static int column_of(const struct gantt *g, double time)
{
    return (int)floor(time * g->scale + 0.5 - 1e-9);
}

static int width_of(const struct gantt *g, const struct draw_span *s)
{
    return column_of(g, s->end) - column_of(g, s->start);
}

/* A forward may be a number alone; whatever else was one could be taken for another action. */
static enum draw_form form_of(enum draw_form form, int kind)
{
    return form == DRAW_NUMBER && kind != DRAW_F ? DRAW_SHORT : form;
}

/* Columns that the longest name of a box's kind takes; of a pair, the first of its two is asked. */
static int need(const struct draw_layout *l, int64_t i, enum draw_form form)
{
    enum draw_form pair = form == DRAW_NUMBER ? DRAW_SHORT : form;
    const struct draw_span *s = &l->c->span[i];
    if (is_pair(l, i))
        return draw_name_length(l, s[0].kind, pair) + 1 + draw_name_length(l, s[1].kind, pair);
    return draw_name_length(l, s->kind, form_of(form, s->kind));
}

/* Would the number of box i run into that of the next one, as in 3F1 and 4B0, "3F14B0"? Numbers of
 * one digit, a column each, cannot be misread. */
static bool runs_on(const struct gantt *g, const struct draw_layout *l, int64_t i,
                    enum draw_form form)
{
    char name[DRAW_LABEL_MAX];
    const struct draw_span *s = &l->c->span[i], *next = s + 1;
    if (i + 1 >= l->c->spans || next->rank != s->rank || is_pair(l, i))
        return false;
    bool number = form == DRAW_NUMBER && l->names.mb_digits[DRAW_F] > 1 && next->kind == DRAW_F &&
                  !is_pair(l, i + 1);
    if (!number && !(form == DRAW_FULL && l->c->stages))
        return false;
    return column_of(g, s->end) == column_of(g, next->start) &&
           (int)strlen(draw_name(l->c, s, form_of(form, s->kind), name)) >= width_of(g, s);
}

/* Does every box, slivers aside, have room for its name in this form, at the scale there is? */
static bool fits(const struct gantt *g, const struct draw_layout *l, enum draw_form form)
{
    for (int64_t i = 0; i < l->c->spans; i++) {
        const struct draw_span *s = &l->c->span[i];
        double time = s->end - s->start;
        if (s->kind >= DRAW_MESSAGE || time <= 0 || time < l->names.least[s->kind] ||
            l->lane[i] == DRAW_LOWER)
            continue;
        if (width_of(g, s) < need(l, i, form) || runs_on(g, l, i, form))
            return false;
    }
    return true;
}

static enum draw_form choose_form(const struct gantt *g, const struct draw_layout *l)
{
    int form = g->letters ? DRAW_NO_NAMES : DRAW_FULL;
    while (form < DRAW_NO_NAMES && !fits(g, l, (enum draw_form)form))
        form++;
    return (enum draw_form)form;
}

/* Longest name of a chart, pairs aside. */
static int longest_name(const struct draw_layout *l)
{
    int most = 0;
    for (int k = 0; k < DRAW_MESSAGE; k++)
        if (l->names.least[k] > 0)
            most = (int)num_max(most, draw_name_length(l, k, DRAW_FULL));
    return most;
}

/* Columns of the chart at which numbers have room in every chart; 0: at none. */
static int columns_for_numbers(struct gantt g, int charts, int label)
{
    g.letters = false;
    for (int each = 1; each <= 2 * label + 2; each++) {
        bool all = true;
        set_scale(&g, each);
        for (int i = 0; i < charts && all; i++)
            all = choose_form(&g, &g.all.of[i]) != DRAW_NO_NAMES;
        if (all)
            return g.columns;
    }
    return 0;
}

/* Columns a time unit, the same for all charts: as wide as names need, at most the width; where a
 * box has a column at all, a whole number of columns for the shortest action, so that equal times
 * look equal. */
static void choose_scale(struct gantt *g, int charts, int room)
{
    int label = 0;
    for (int i = 0; i < charts; i++)
        label = (int)num_max(label, longest_name(&g->all.of[i]));
    double units = g->all.shortest > 0 ? g->all.end / g->all.shortest : 0, most;
    if (room == 0)
        most = fmin(1, GANTT_MAX_COLUMNS / fmax(units, 1));
    else
        most = fmin(label + 1, room / fmax(units, 1) * (1 + 1e-6)); /* rounded as columns are */
    g->letters = most < 1;
    set_scale(g, most < 1 ? most : floor(most));
    if (room > 0)
        g->columns = (int)num_min(g->columns, room);
    for (int i = 0; i < charts; i++) {
        g->form[i] = choose_form(g, &g->all.of[i]);
        g->unnamed |= g->form[i] == DRAW_NO_NAMES && longest_name(&g->all.of[i]) > 0;
        g->bare |= g->form[i] == DRAW_NUMBER;
    }
    if (g->unnamed && units * (2 * label + 2) <= INT_MAX / 2)
        g->wanted = columns_for_numbers(*g, charts, label);
}

/* The name of a box, or of the pair that begins with it, in w columns; its letter alone where names
 * have no room. */
static void draw_box(const struct gantt *g, const struct draw_layout *l, int64_t i, int w,
                     struct text *out)
{
    char first[DRAW_LABEL_MAX], second[DRAW_LABEL_MAX], name[2 * DRAW_LABEL_MAX];
    const struct draw_span *s = &l->c->span[i];
    enum draw_form form = g->form[l - g->all.of], pair = form == DRAW_NUMBER ? DRAW_SHORT : form;
    bool both = is_pair(l, i);
    char letter = both ? '&' : draw_letter(s->kind);
    const char *own = draw_name(l->c, s, both ? pair : form_of(form, s->kind), first);
    if (g->letters || s->kind == DRAW_MESSAGE) {
        text_add_char(out, letter, w);
        return;
    }
    if (both && own)
        snprintf(name, sizeof name, "%s&%s", own, draw_name(l->c, s + 1, pair, second));
    else
        snprintf(name, sizeof name, "%s", own ? own : "");
    bool whole = own && (int)strlen(name) <= w && need(l, i, form) <= w;
    text_add(out, "%-*.*s", w, w, whole ? name : (char[]){letter, '\0'});
}

static void draw_row(struct gantt *g, const struct draw_layout *l, int rank, struct text *out)
{
    /* Blue forward, green backward, cyan and yellow halves, magenta pairs, white the rest; odd
     * chunks of a rank and the second replica brighter. */
    static const int ground[DRAW_KINDS] = {44, 42, 46, 43, 47, 47, 47};
    /* Which box each column shows: the one that runs at the column's middle. A pair is known by the
     * first of its two. */
    for (int c = 0; c < g->columns; c++)
        g->owner[c] = -1;
    for (int64_t i = l->begin[rank]; i < l->begin[rank + 1]; i++) {
        int from = column_of(g, l->c->span[i].start), to = column_of(g, l->c->span[i].end);
        for (int c = from; c < to && c < g->columns; c++)
            g->owner[c] = l->lane[i] == DRAW_LOWER ? i - 1 : i;
    }
    for (int c = 0, next; c < g->columns; c = next) {
        for (next = c + 1; next < g->columns && g->owner[next] == g->owner[c];)
            next++;
        if (g->owner[c] < 0) {
            text_add_char(out, '.', next - c);
            continue;
        }
        const struct draw_span *s = &l->c->span[g->owner[c]];
        bool color = g->color && s->kind != DRAW_MESSAGE, bright = (s->chunk + s->replica) % 2 == 1;
        if (color)
            text_add(out, "\x1b[30;%dm", (is_pair(l, g->owner[c]) ? 45 : ground[s->kind]) +
                                             (bright ? 60 : 0));
        draw_box(g, l, g->owner[c], next - c, out);
        if (color)
            text_add(out, "\x1b[0m");
    }
}

/* What a rank sums (=) and gathers (#), one after the other, below its boxes. *i: the first of the
 * rank's; behind them when it is drawn. */
static void draw_lane(const struct gantt *g, const struct draw_chart *c, int rank, int64_t *i,
                      struct text *out)
{
    double column = g->columns > 0 ? g->all.end / g->columns : 0;
    for (int at = 0; at < g->columns; at++) {
        double middle = (at + 0.5) * column;
        while (*i < c->comms && c->comm[*i].rank == rank && c->comm[*i].end <= middle)
            (*i)++;
        bool is = *i < c->comms && c->comm[*i].rank == rank && c->comm[*i].start <= middle;
        text_add_char(out, !is ? ' ' : c->comm[*i].kind == DRAW_SUM ? '=' : '#', 1);
    }
    while (*i < c->comms && c->comm[*i].rank == rank)
        (*i)++;
}

static void draw_charts(struct gantt *g, const struct draw_page *p, struct text *out)
{
    const bool *has = g->all.has;
    for (int i = 0; i < p->charts; i++) {
        const char *facts = p->chart[i].facts;
        int64_t comm = 0;
        if (p->charts > 1)
            text_add(out, "%s%s%s\n", p->chart[i].title, facts ? ": " : "", facts ? facts : "");
        for (int rank = 0; rank < p->chart[i].ranks; rank++) {
            text_add(out, "rank %*d |", g->digits, rank);
            draw_row(g, &g->all.of[i], rank, out);
            text_add(out, "|\n");
            if (p->chart[i].comms == 0)
                continue;
            text_add(out, "%*s |", 5 + g->digits, "");
            draw_lane(g, &p->chart[i], rank, &comm, out);
            text_add(out, "|\n");
        }
        if (p->charts > 1)
            text_add(out, "\n");
    }
    text_add(out, "time 0 to %.6g%s%s, %.4g a column; F%s forward", g->all.end,
             *p->time_unit ? " " : "", p->time_unit, g->scale > 0 ? 1 / g->scale : 0,
             g->bare ? " (or a number alone)" : "");
    if (has[DRAW_B] || has[DRAW_I])
        text_add(out, ", B backward");
    if (has[DRAW_I])
        text_add(out, ", I and W its input and weight halves");
    text_add(out, "%s%s, . idle%s%s%s\n", has[DRAW_R] ? ", R recompute" : "",
             g->all.pairs ? ", F&B both at once" : "",
             has[DRAW_MESSAGE] ? ", ~ a message on its way" : "",
             g->all.comm[DRAW_SUM] ? ", = gradients are summed" : "",
             g->all.comm[DRAW_GATHER] ? ", # weights are gathered" : "");
    int width = g->wanted + g->digits + GANTT_BESIDE;
    if (g->unnamed && g->wanted > 0 && width <= GANTT_MAX_COLUMNS)
        text_add(out, "too narrow for numbers, which need %d columns: --width %d, or use --html\n",
                 width, width);
    else if (g->unnamed)
        text_add(out, "too narrow for numbers, which no terminal has room for: use --html\n");
    if (p->charts == 1 && p->chart[0].facts)
        text_add(out, "%s\n", p->chart[0].facts);
}

enum err draw_gantt(const struct draw_page *p, int width, bool color, struct text *out)
{
    struct gantt g = {.color = color, .digits = 1};
    enum err err = ERR_OK;
    TRY_OR(out_free, draw_layouts_open(&g.all, p, 0, NULL));
    TRY_OR(out_free, mem_new(p->charts, sizeof *g.form, "gantt charts", &g.form));
    for (int i = 0; i < p->charts; i++)
        g.digits = (int)num_max(g.digits, snprintf(NULL, 0, "%d", p->chart[i].ranks - 1));
    int least = GANTT_MIN_COLUMNS, beside = g.digits + GANTT_BESIDE;
    choose_scale(&g, p->charts, width ? (int)num_max(width - beside, least) : 0);
    TRY_OR(out_free, mem_new(g.columns, sizeof *g.owner, "gantt row", &g.owner));
    draw_charts(&g, p, out);
out_free:
    draw_layouts_close(&g.all);
    mem_free(g.form);
    mem_free(g.owner);
    return err;
}
