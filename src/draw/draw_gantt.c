/* SPDX-License-Identifier: Apache-2.0
 *
 * The chart for terminals: the textbooks' one, a row a rank, a box an action with its microbatch in
 * it.
 *
 *     rank 0 |F0F1F2F3..........B0  B1  B2  B3  |
 *     rank 1 |..F0F1F2F3......B0  B1  B2  B3  ..|
 *
 * Every box covers the columns between its rounded start and end, so boxes that meet in time meet
 * in the picture. What does not fit in a box is left out from the left: with one column a forward
 * is the last digit of its microbatch and a backward its letter; below one column for the shortest
 * action every column is the letter of what runs there, or a dot. Two actions that overlap are one
 * box, F3&B5; stages that do not fit in it are left out first, then its right end, and its letter
 * is &.
 */
#include "draw/draw_layout.h"

#include "base/mem.h"
#include "base/num.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GANTT_MIN_COLUMNS = 10, GANTT_MAX_COLUMNS = 1 << 16 };

struct gantt {
    const struct draw_layout *l; /* borrowed; the chart being drawn */
    double scale;                /* columns a time unit */
    int columns;                 /* of the chart, without the ranks' names */
    bool letters;                /* the shortest action is below one column */
    bool color;
    int64_t *owner; /* owned; [columns] span shown there, -1: idle */
};

/* Longest name of a box, pairs aside. */
static int longest_label(const struct draw_layout *l)
{
    char text[DRAW_LABEL_MAX];
    int64_t most = 0;
    for (int64_t i = 0; i < l->c->spans; i++)
        if (l->c->span[i].kind < DRAW_MESSAGE && l->lane[i] == DRAW_WHOLE)
            most = num_max(most, (int64_t)strlen(draw_label(l->c, &l->c->span[i], text)));
    return (int)most;
}

/* Columns a time unit, the same for all charts: as wide as labels need, at most the width; where a
 * box has a column at all, a whole number of columns for the shortest action, so that equal times
 * look equal. */
static void choose_scale(struct gantt *g, const struct draw_layout *l, int charts, int room)
{
    double shortest = 0, end = 0, most;
    int label = 0;
    for (int i = 0; i < charts; i++) {
        if (l[i].shortest > 0 && (shortest == 0 || l[i].shortest < shortest))
            shortest = l[i].shortest;
        end = fmax(end, l[i].c->end);
        label = (int)num_max(label, longest_label(&l[i]));
    }
    double units = shortest > 0 ? end / shortest : 0;
    if (room == 0)
        most = fmin(1, GANTT_MAX_COLUMNS / fmax(units, 1));
    else
        most = fmin(label + 1, room / fmax(units, 1));
    g->letters = most < 1;
    if (most >= 1)
        most = floor(most);
    g->scale = shortest > 0 ? most / shortest : 0;
    g->columns = (int)ceil(units * most - 1e-6);
}

static bool is_pair(const struct draw_layout *l, int64_t i)
{
    return i + 1 < l->c->spans && l->lane[i] == DRAW_UPPER && l->lane[i + 1] == DRAW_LOWER;
}

/* Which box each column of a rank shows: the one that runs at the column's middle. A pair is known
 * by the first of its two. */
static void fill_row(struct gantt *g, int rank)
{
    for (int c = 0; c < g->columns; c++)
        g->owner[c] = -1;
    for (int64_t i = g->l->begin[rank]; i < g->l->begin[rank + 1]; i++) {
        const struct draw_span *s = &g->l->c->span[i];
        int from = (int)floor(s->start * g->scale + 0.5 - 1e-9);
        int to = (int)floor(s->end * g->scale + 0.5 - 1e-9);
        for (int c = from; c < to && c < g->columns; c++)
            g->owner[c] = g->l->lane[i] == DRAW_LOWER ? i - 1 : i;
    }
}

/* Stages that do not fit are left out first, then the right end. */
static void draw_pair(const struct gantt *g, const struct draw_span *s, int w, struct text *out)
{
    char first[DRAW_LABEL_MAX], second[DRAW_LABEL_MAX], both[2 * DRAW_LABEL_MAX];
    int n = snprintf(both, sizeof both, "%s&%s", draw_label(g->l->c, s, first),
                     draw_label(g->l->c, s + 1, second));
    if (n > w && !s[0].label && !s[1].label)
        snprintf(both, sizeof both, "%c%d&%c%d", draw_letter(s[0].kind), s[0].mb,
                 draw_letter(s[1].kind), s[1].mb);
    if (g->letters)
        text_add_char(out, '&', w);
    else
        text_add(out, "%-*.*s", w, w, both);
}

/* The end of the label that fits, but not a number without its letter where that could be taken for
 * another action: only forwards may be bare numbers. */
static void draw_box(const struct gantt *g, const struct draw_span *s, int w, struct text *out)
{
    char label[DRAW_LABEL_MAX];
    int n = (int)strlen(draw_label(g->l->c, s, label));
    char letter = draw_letter(s->kind);
    const char *number = s->label ? label : strchr(label, letter);
    if (g->letters || s->kind == DRAW_MESSAGE) {
        text_add_char(out, letter, w);
    } else if (n <= w) {
        text_add(out, "%s", label);
        text_add_char(out, ' ', w - n);
    } else if (number && (int)strlen(number) <= w) {
        text_add(out, "%s", number);
        text_add_char(out, ' ', w - (int)strlen(number));
    } else if (s->kind == DRAW_F) {
        text_add(out, "%s", label + n - w);
    } else {
        text_add(out, "%c%s", letter, label + n - (w - 1));
    }
}

/* Blue forward, green backward, cyan and yellow halves, magenta pairs, white the rest; odd chunks
 * of a rank and the second replica brighter. */
static void color_on(const struct draw_span *s, bool pair, struct text *out)
{
    static const int ground[DRAW_KINDS] = {44, 42, 46, 43, 47, 47, 47};
    bool bright = (s->chunk + s->replica) % 2 == 1;
    text_add(out, "\x1b[30;%dm", (pair ? 45 : ground[s->kind]) + (bright ? 60 : 0));
}

static void draw_row(struct gantt *g, int rank, struct text *out)
{
    fill_row(g, rank);
    for (int c = 0, next; c < g->columns; c = next) {
        for (next = c + 1; next < g->columns && g->owner[next] == g->owner[c];)
            next++;
        if (g->owner[c] < 0) {
            text_add_char(out, '.', next - c);
            continue;
        }
        const struct draw_span *s = &g->l->c->span[g->owner[c]];
        bool color = g->color && s->kind != DRAW_MESSAGE;
        bool pair = is_pair(g->l, g->owner[c]);
        if (color)
            color_on(s, pair, out);
        if (pair)
            draw_pair(g, s, next - c, out);
        else
            draw_box(g, s, next - c, out);
        if (color)
            text_add(out, "\x1b[0m");
    }
}

static void draw_legend(const struct gantt *g, const struct draw_page *p,
                        const struct draw_layout *l, struct text *out)
{
    bool has[DRAW_KINDS] = {0}, pairs = false;
    double end = 0;
    for (int i = 0; i < p->charts; i++) {
        end = fmax(end, p->chart[i].end);
        pairs |= l[i].pairs;
        for (int k = 0; k < DRAW_KINDS; k++)
            has[k] |= l[i].has[k];
    }
    text_add(out, "time 0 to %.6g%s%s, %.4g a column; F forward", end, *p->time_unit ? " " : "",
             p->time_unit, g->scale > 0 ? 1 / g->scale : 0);
    if (has[DRAW_B] || has[DRAW_I])
        text_add(out, ", B backward");
    if (has[DRAW_I])
        text_add(out, ", I and W its input and weight halves");
    if (has[DRAW_R])
        text_add(out, ", R recompute");
    if (pairs)
        text_add(out, ", F&B both at once");
    text_add(out, ", . idle%s%s\n", has[DRAW_MESSAGE] ? ", ~ a message on its way" : "",
             g->letters ? "; too many for numbers" : "");
}

static void draw_charts(struct gantt *g, const struct draw_page *p, const struct draw_layout *l,
                        int digits, struct text *out)
{
    for (int i = 0; i < p->charts; i++) {
        g->l = &l[i];
        if (p->charts > 1)
            text_add(out, "%s%s%s\n", p->chart[i].title, p->chart[i].facts ? ": " : "",
                     p->chart[i].facts ? p->chart[i].facts : "");
        for (int rank = 0; rank < p->chart[i].ranks; rank++) {
            text_add(out, "rank %*d |", digits, rank);
            draw_row(g, rank, out);
            text_add(out, "|\n");
        }
        if (p->charts > 1)
            text_add(out, "\n");
    }
    draw_legend(g, p, l, out);
}

enum err draw_gantt(const struct draw_page *p, int width, bool color, struct text *out)
{
    struct gantt g = {.color = color};
    struct draw_layout *l = NULL;
    int digits = 1;
    enum err err = ERR_OK;
    TRY(mem_new(p->charts, sizeof *l, "gantt charts", &l));
    for (int i = 0; i < p->charts; i++) {
        digits = (int)num_max(digits, snprintf(NULL, 0, "%d", p->chart[i].ranks - 1));
        TRY_OR(out_free, draw_layout_open(&l[i], &p->chart[i]));
    }
    int room = width ? (int)num_max(width - digits - 8, GANTT_MIN_COLUMNS) : 0;
    choose_scale(&g, l, p->charts, room);
    TRY_OR(out_free, mem_new(g.columns, sizeof *g.owner, "gantt row", &g.owner));
    draw_charts(&g, p, l, digits, out);
out_free:
    for (int i = 0; i < p->charts; i++)
        draw_layout_close(&l[i]);
    mem_free(l);
    mem_free(g.owner);
    return err;
}
