/* SPDX-License-Identifier: Apache-2.0
 *
 * The chart as a picture: a row a rank with its boxes, beneath each row the rank's memory as a
 * curve with the peak at its right, an axis, a legend. Several charts stand below one another on
 * one scale of time and one of memory, so that lengths and heights can be compared by eye.
 *
 *     title
 *     facts
 *     rank 0 [F0][F1]......[B0]
 *            ___/---\_______          peak 4
 *     ...
 *             0    10    20
 *     legend
 *
 * The boxes of a chart are named in one form, as fully as the narrowest allows (draw_layout.c), and
 * the picture is made wider for numbers' sake up to a limit. Plain SVG 1.1 with one style sheet:
 * readers that know no media queries show the light colours. Boxes that take no time are left out.
 */
#include "draw/draw_layout.h"

#include "base/mem.h"
#include "base/num.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    PAD = 16, TITLE = 22, FACTS = 18, AXIS = 24, LEGEND = 12, GAP = 24,
    BOX_WANTED = 30,
    WIDTH_LEAST = 640,
    WIDTH_MOST = 1560,   /* pixels of time */
    WIDTH_NAMED = 4000,  /* the same, where fewer have no room for numbers */
    NAME_LARGE = 10,     /* pixels of a font's em */
    NAME_SMALL = 8,
    NAME_PAD = 2,        /* pixels beside a name */
    HEIGHT_LEAST = 10,   /* of a box with a name */
    TOOLTIP_MAX = 20000, /* spans beyond which boxes have no tooltips, for the file's size */
};

/* How the boxes of a chart are named. */
struct naming {
    enum draw_form form;
    int size;          /* of the font */
    int64_t unnamed;   /* boxes that are narrower than the longest name of their kind */
    const char *why;   /* no names; NULL: there are some */
};

struct svg {
    const struct draw_page *p; /* borrowed */
    struct draw_layouts all;
    struct naming *naming;     /* owned; [charts] */
    double scale;              /* pixels a time unit */
    double left, width;        /* where time begins; how wide it is */
    double right;              /* of all that is drawn */
    double row, lane, spark;   /* height of a rank's boxes, of the lane below, of its memory */
    bool tooltips;
    bool used[DRAW_KINDS][DRAW_LEVELS];
    double y; /* where the next thing goes */
    struct text *out;
};

/* Pixels that a box of this kind must have to be named. */
static double need(const struct draw_layout *l, int kind, enum draw_form form, int size)
{
    return draw_name_width(l, kind, form) * size + NAME_PAD;
}

/* Pixels a time unit at which every name of this form has room in its box. */
static double scale_for(const struct draw_layout *l, enum draw_form form, int size)
{
    double scale = 0;
    for (int k = 0; k < DRAW_MESSAGE; k++)
        if (l->names.least[k] > 0)
            scale = fmax(scale, need(l, k, form, size) / l->names.least[k]);
    return scale * (1 + 1e-9);
}

/* Of the boxes with names: two that overlap share a row. */
static double name_height(const struct svg *v, int i)
{
    return v->all.of[i].pairs ? v->row / 2 : v->row;
}

/* The fullest form, in large letters if there is one for them. */
static void choose_naming(struct svg *v, int i)
{
    const struct draw_layout *l = &v->all.of[i];
    double height = name_height(v, i);
    struct naming *n = &v->naming[i];
    *n = (struct naming){.form = DRAW_NO_NAMES, .size = NAME_SMALL};
    if (height < HEIGHT_LEAST) {
        n->why = "no names: the rows are too low for them";
        return;
    }
    for (int size = height < 14 ? NAME_SMALL : NAME_LARGE; size >= NAME_SMALL;
         size -= NAME_LARGE - NAME_SMALL)
        for (int form = DRAW_FULL; form < DRAW_NO_NAMES && n->form == DRAW_NO_NAMES; form++)
            if (scale_for(l, (enum draw_form)form, size) <= v->scale)
                *n = (struct naming){.form = (enum draw_form)form, .size = size};
    if (n->form == DRAW_NO_NAMES)
        n->why = "no names: the boxes are too narrow for their numbers; a page (--html) zooms";
    for (int64_t s = 0; s < l->c->spans; s++) {
        const struct draw_span *x = &l->c->span[s];
        n->unnamed += x->kind < DRAW_MESSAGE && x->end > x->start &&
                      (x->end - x->start) * v->scale < need(l, x->kind, n->form, n->size);
    }
}

/* Sizes that depend on how much there is to show. */
static void choose_sizes(struct svg *v)
{
    double shortest = v->all.shortest, end = v->all.end > 0 ? v->all.end : 1;
    int64_t spans = 0;
    int ranks = 1;
    for (int i = 0; i < v->p->charts; i++) {
        const struct draw_chart *c = &v->p->chart[i];
        ranks = (int)num_max(ranks, c->ranks);
        spans += c->spans;
        for (int64_t s = 0; s < c->spans; s++)
            v->used[c->span[s].kind][draw_level(c, &c->span[s])] = true;
    }
    double wanted = shortest > 0 ? BOX_WANTED / shortest : 0;
    v->scale = fmax(fmin(wanted, WIDTH_MOST / end), WIDTH_LEAST / end);
    v->tooltips = spans <= TOOLTIP_MAX;
    v->row = ranks <= 32 || (v->all.pairs && ranks <= 128) ? 22 : ranks <= 128 ? 12 : 6;
    for (int i = 0; i < v->p->charts; i++) { /* where no form has room, wider, for all charts */
        double least = scale_for(&v->all.of[i], DRAW_NUMBER, NAME_SMALL);
        if (name_height(v, i) >= HEIGHT_LEAST && least * v->all.end <= WIDTH_NAMED)
            v->scale = fmax(v->scale, least);
    }
    for (int i = 0; i < v->p->charts; i++)
        choose_naming(v, i);
    v->width = v->scale * end;
    v->lane = v->all.comm[DRAW_SUM] || v->all.comm[DRAW_GATHER] ? fmax(3, floor(v->row * 0.3)) : 0;
    v->spark = v->all.memory ? floor(v->row * 0.75) : 0;
    v->left = PAD + 6.5 * (5 + snprintf(NULL, 0, "%d", ranks - 1)) + 6;
}

static void add_style(const struct svg *v, struct text *out)
{
    char fill[8];
    text_add(out, "<style>\n"
                  "text{font:10px system-ui,'DejaVu Sans',sans-serif;fill:#1b2430}\n"
                  ".t{font-size:15px;font-weight:600}.f,.l,.a{font-size:11px;fill:#4a5664}\n"
                  ".b{text-anchor:middle}.s{font-size:8px}.a{text-anchor:middle}\n"
                  ".e{text-anchor:end}.bg{fill:#ffffff}.idle{fill:#eef1f4}\n"
                  ".grid{stroke:#c9d1d9;stroke-width:.6}.mem{fill:#8a96a3;fill-opacity:.45}\n"
                  "rect.c{stroke:#ffffff;stroke-width:.8}\n");
    for (int k = 0; k < DRAW_KINDS; k++)
        for (int level = 0; level < DRAW_LEVELS; level++)
            if (v->used[k][level])
                text_add(out, ".k%d-%d{fill:%s}\n", k, level, draw_fill(k, level, fill));
    for (int k = 0; k < DRAW_COMM_KINDS; k++)
        if (v->all.comm[k])
            text_add(out, ".m%d{fill:%s}\n", k, draw_comm_fill(k));
    text_add(out,
             ".b.d{fill:%s}.b{fill:%s}\n"
             "@media (prefers-color-scheme:dark){\n"
             "text{fill:#e3e8ee}.f,.l,.a{fill:#a4b0bd}.bg{fill:#14181d}"
             ".idle{fill:#20272f}\n"
             ".grid{stroke:#3a444f}rect.c{stroke:#14181d}.b{fill:%s}.b.d{fill:%s}}\n"
             "</style>\n",
             draw_ink(4), draw_ink(0), draw_ink(0), draw_ink(4));
}

static void add_text(struct svg *v, const char *style, double x, double y, const char *words)
{
    text_add(v->out, "<text class=\"%s\" x=\"%.6g\" y=\"%.6g\">", style, x, y);
    draw_add_xml(v->out, words);
    text_add(v->out, "</text>\n");
}

/* Without its end. */
static void add_rect(struct svg *v, const char *style, const double at[4])
{
    text_add(v->out, "<rect class=\"%s\" x=\"%.6g\" y=\"%.6g\" width=\"%.6g\" height=\"%.6g\"",
             style, at[0], at[1], at[2], at[3]);
}

static void add_box(struct svg *v, int chart, int64_t i, double y)
{
    const struct draw_layout *l = &v->all.of[chart];
    const struct draw_span *s = &l->c->span[i];
    const struct naming *n = &v->naming[chart];
    char label[DRAW_LABEL_MAX], style[32];
    double x = v->left + s->start * v->scale, w = (s->end - s->start) * v->scale, h = v->row;
    if (s->kind == DRAW_MESSAGE) {
        h /= 5;
        y += 2 * h;
    } else if (l->lane[i] != DRAW_WHOLE) {
        h /= 2;
        y += l->lane[i] == DRAW_LOWER ? h : 0;
    }
    snprintf(style, sizeof style, "c k%d-%d", s->kind, draw_level(l->c, s));
    add_rect(v, style, (double[]){x, y, w, h});
    if (v->tooltips) {
        text_add(v->out, "><title>");
        draw_add_xml(v->out, draw_label(l->c, s, label));
        text_add(v->out, ": %.6g to %.6g</title></rect>", s->start, s->end);
    } else {
        text_add(v->out, "/>");
    }
    const char *name = draw_name(l->c, s, n->form, label);
    double wanted = s->label ? (double)strlen(s->label) * n->size
                             : need(l, s->kind, n->form, n->size);
    bool small = n->size == NAME_SMALL;
    if (name && w >= wanted)
        add_text(v, small ? s->replica ? "b s d" : "b s" : s->replica ? "b d" : "b", x + w / 2,
                 y + h / 2 + (small ? 3 : 3.6), name);
    else
        text_add(v->out, "\n");
}

/* The memory of a rank as an area of steps below its boxes. */
static void add_memory(struct svg *v, const struct draw_curve *m, double y)
{
    char peak[32];
    double most = 0, base = y + v->spark, high = (v->spark - 3) / fmax(v->all.peak, 1e-300);
    if (m->n == 0)
        return;
    text_add(v->out, "<path class=\"mem\" d=\"M%.6g %.6g", v->left, base);
    for (int64_t i = 0; i < m->n; i++) {
        most = fmax(most, m->point[i].value);
        text_add(v->out, "H%.6gV%.6g", v->left + m->point[i].time * v->scale,
                 base - m->point[i].value * high);
    }
    text_add(v->out, "H%.6gV%.6gZ\"/>", v->left + v->width, base);
    if (v->row < 12)
        return;
    draw_number(most, strcmp(v->p->memory_unit, "bytes") ? "" : "bytes", peak);
    add_text(v, "l", v->left + v->width + 6, base - 1, peak);
}

/* What a rank sums and gathers, right below its boxes. */
static void add_lane(struct svg *v, const struct draw_chart *c, int rank)
{
    double y = v->y + v->row + 1, h = v->lane - 1;
    char style[16];
    add_rect(v, "idle", (double[]){v->left, y, v->width, h});
    text_add(v->out, "/>\n");
    for (int64_t i = 0; i < c->comms; i++) {
        const struct draw_comm *m = &c->comm[i];
        if (m->rank != rank || m->end <= m->start)
            continue;
        snprintf(style, sizeof style, "c m%d", m->kind);
        add_rect(v, style, (double[]){v->left + m->start * v->scale, y,
                                      (m->end - m->start) * v->scale, h});
        text_add(v->out, "><title>%s of stage %d: %.6g to %.6g</title></rect>\n",
                 draw_comm_name(m->kind), m->stage, m->start, m->end);
    }
}

/* A line of text across the picture, `high` with what lies below it. */
static void add_line(struct svg *v, const char *style, const char *words, int high)
{
    add_text(v, style, PAD, v->y + high - 8, words);
    v->right = fmax(v->right, PAD + (high == TITLE ? 9.5 : 6.8) * (double)strlen(words));
    v->y += high;
}

/* A line that says how boxes are named, where that is not in full. */
static void add_note(struct svg *v, int i)
{
    const struct naming *n = &v->naming[i];
    bool cut = n->form == DRAW_SHORT ? v->p->chart[i].stages : n->form != DRAW_FULL;
    if (!cut && n->unnamed == 0)
        return;
    char words[128];
    int at = 0;
    if (n->why)
        at = snprintf(words, sizeof words, "%s", n->why);
    else if (cut)
        at = snprintf(words, sizeof words, "in the boxes: %smicrobatch",
                      n->form == DRAW_SHORT ? "action and " : "");
    if (!n->why && n->unnamed > 0)
        snprintf(words + at, sizeof words - (size_t)at, "%s%lld box%s too narrow for a name",
                 cut ? "; " : "", (long long)n->unnamed, n->unnamed == 1 ? " is" : "es are");
    add_line(v, "f", words, FACTS);
}

static void add_chart(struct svg *v, int i)
{
    const struct draw_layout *l = &v->all.of[i];
    const struct draw_chart *c = l->c;
    double tick = draw_tick(v->all.end, (int)(v->width / 70));
    char number[32];
    text_add(v->out, "<g class=\"chart\">");
    add_line(v, "t", c->title, TITLE);
    if (c->facts)
        add_line(v, "f", c->facts, FACTS);
    add_note(v, i);
    text_add(v->out, "<g class=\"axis\">"); /* lines behind the rows, and their times below */
    double bottom = v->y + c->ranks * (v->row + v->lane + v->spark + 3);
    for (int64_t k = 0; (double)k * tick <= v->all.end * (1 + 1e-9); k++) {
        double x = v->left + (double)k * tick * v->scale;
        text_add(v->out, "<line class=\"grid\" x1=\"%.6g\" x2=\"%.6g\" y1=\"%.6g\" y2=\"%.6g\"/>",
                 x, x, v->y, bottom + 3);
        add_text(v, "a", x, bottom + 16, draw_number((double)k * tick, v->p->time_unit, number));
    }
    text_add(v->out, "</g>\n");
    for (int rank = 0; rank < c->ranks; rank++) {
        text_add(v->out, "<g class=\"row\" data-rank=\"%d\">", rank);
        if (v->row >= 12 || rank % 8 == 0)
            text_add(v->out, "<text class=\"l e\" x=\"%.6g\" y=\"%.6g\">rank %d</text>",
                     v->left - 6, v->y + v->row / 2 + 4, rank);
        add_rect(v, "idle", (double[]){v->left, v->y, v->width, v->row});
        text_add(v->out, "/>\n");
        for (int64_t k = l->begin[rank]; k < l->begin[rank + 1]; k++)
            if (c->span[k].end > c->span[k].start)
                add_box(v, i, k, v->y);
        if (c->comms > 0)
            add_lane(v, c, rank);
        if (c->memory)
            add_memory(v, &c->memory[rank], v->y + v->row + v->lane);
        text_add(v->out, "</g>\n");
        v->y += v->row + v->lane + v->spark + 3;
    }
    v->y += AXIS;
    text_add(v->out, "</g>\n");
    v->y += GAP;
}

/* A square of a colour and its meaning; wraps at the right. */
static void add_key(struct svg *v, double *x, const char *style, const char *name)
{
    double w = 30 + 5.9 * (double)strlen(name);
    if (*x + w > v->left + v->width && *x > PAD) {
        *x = PAD;
        v->y += 18;
    }
    add_rect(v, style, (double[]){*x, v->y, 12, 12});
    text_add(v->out, "/>");
    add_text(v, "l", *x + 17, v->y + 10, name);
    *x += w;
}

static void add_legend(struct svg *v)
{
    double x = PAD;
    char style[32], name[64];
    for (int k = 0; k < DRAW_KINDS; k++) {
        int level = 0;
        while (level < DRAW_LEVELS && !v->used[k][level])
            level++;
        if (level == DRAW_LEVELS)
            continue;
        snprintf(style, sizeof style, "c k%d-%d", k, v->used[k][2] ? 2 : level);
        if (k < DRAW_MESSAGE)
            snprintf(name, sizeof name, "%c %s", draw_letter(k), draw_kind_name(k));
        else
            snprintf(name, sizeof name, "%s", draw_kind_name(k));
        add_key(v, &x, style, name);
    }
    if (v->all.replicas)
        add_key(v, &x, "c k0-4", "dark: the second replica");
    if (v->all.chunks)
        add_key(v, &x, "c k0-0", "light to full: a rank's first to last stage");
    for (int k = 0; k < DRAW_COMM_KINDS; k++) {
        snprintf(style, sizeof style, "m%d", k);
        if (v->all.comm[k])
            add_key(v, &x, style, draw_comm_name(k));
    }
    snprintf(name, sizeof name, "memory, peak in %s", v->p->memory_unit);
    if (v->all.memory)
        add_key(v, &x, "mem", name);
}

/* Rows of text, numbers at the right of their columns. */
static void add_table(struct svg *v, const struct draw_table *t)
{
    double x = PAD;
    v->y += GAP;
    add_line(v, "t", t->title, TITLE);
    for (int col = 0; col < t->columns; col++) {
        double wide = 0;
        for (int row = 0; row < t->rows; row++)
            wide = fmax(wide, 6.8 * (double)strlen(t->cell[row * t->columns + col]));
        for (int row = 0; row < t->rows; row++)
            add_text(v, col ? "l e" : "l", col ? x + wide : x, v->y + 10 + row * FACTS,
                     t->cell[row * t->columns + col]);
        x += wide + PAD;
    }
    v->right = fmax(v->right, x);
    v->y += t->rows * FACTS;
}

/* The body comes first: how high it becomes is known when the legend is laid out. */
static void add_picture(struct svg *v, struct text *out)
{
    v->right = v->left + v->width + PAD + (v->all.memory ? 56 : 0);
    v->y = PAD;
    if (v->p->summaries > 0) { /* what a comparison comes to */
        add_line(v, "t", v->p->title, TITLE);
        for (int i = 0; i < v->p->summaries; i++)
            add_line(v, "f", v->p->summary[i], FACTS);
        v->y += GAP / 2;
    }
    for (int i = 0; i < v->p->above; i++)
        add_table(v, &v->p->table[i]);
    v->y += v->p->summaries > 0 && v->p->above > 0 ? GAP : 0;
    for (int i = 0; i < v->p->charts; i++)
        add_chart(v, i);
    v->y -= GAP / 2;
    add_legend(v);
    v->y += LEGEND;
    for (int i = v->p->above; v->p->pictured && i < v->p->tables; i++)
        add_table(v, &v->p->table[i]);
    double width = v->right, height = v->y + PAD;
    text_add(out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.6g %.6g\" "
             "width=\"%.6g\" height=\"%.6g\" role=\"img\">\n<title>",
             width, height, width, height);
    draw_add_xml(out, v->p->title);
    text_add(out, "</title>\n");
    add_style(v, out);
    text_add(out, "<rect class=\"bg\" width=\"100%%\" height=\"100%%\"/>\n%s</svg>\n",
             v->out->s ? v->out->s : "");
}

enum err draw_svg(const struct draw_page *p, struct text *out)
{
    struct text body = {0};
    struct svg v = {.p = p, .out = &body};
    enum err err = ERR_OK;
    TRY_OR(out_free, draw_layouts_open(&v.all, p, DRAW_SVG_MAX,
                                       "a readable SVG has; use fewer ranks or microbatches, or a "
                                       "page (--html)"));
    TRY_OR(out_free, mem_new(p->charts, sizeof *v.naming, "a picture's charts", &v.naming));
    choose_sizes(&v);
    add_picture(&v, out);
    err = body.err;
out_free:
    text_free(&body);
    draw_layouts_close(&v.all);
    mem_free(v.naming);
    return err;
}
