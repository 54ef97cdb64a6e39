/* SPDX-License-Identifier: Apache-2.0
 *
 * The page: tables of figures and charts to explore, in one file that asks for nothing from
 * elsewhere (its own policy forbids it). The boxes are laid out here, with the rows, halves and
 * colours that the SVG has; page.js draws those in the window of time that the reader looks at, and
 * so carries no knowledge of schedules. Hundreds of thousands of boxes are drawn at once, which is
 * why they go to a canvas and not into the document; what a canvas does not tell, the tables and
 * the line of status above each chart do.
 *
 * Data are columns of numbers in a JSON element. JSON strings there escape "<", so that no name can
 * end the element.
 */
#include "draw/draw_layout.h"

struct html {
    const struct draw_page *p; /* borrowed */
    struct draw_layouts all;
    struct text *out;
};

/* ---- data ---- */

static void add_kinds(struct html *h)
{
    char fill[8];
    text_add(h->out, "\"kinds\":[");
    for (int k = 0; k < DRAW_KINDS; k++) {
        text_add(h->out, "%s{\"name\":\"%s\",\"letter\":\"", k ? "," : "", draw_kind_name(k));
        if (k < DRAW_MESSAGE)
            text_add_char(h->out, draw_letter(k), 1);
        text_add(h->out, "\",\"thin\":%s,\"fill\":[", k == DRAW_MESSAGE ? "true" : "false");
        for (int level = 0; level < DRAW_LEVELS; level++)
            text_add(h->out, "%s\"%s\"", level ? "," : "", draw_fill(k, level, fill));
        text_add(h->out, "]}");
    }
    text_add(h->out, "]");
}

/* A column of each box's numbers after another, as page.js reads them. */
static void add_columns(struct html *h, const struct draw_layout *l)
{
    static const char *const name[] = {"start", "stop", "stage", "mb", "kind", "level", "lane"};
    for (int k = 0; k < 7; k++) {
        text_add(h->out, ",\n\"%s\":[", name[k]);
        for (int64_t i = 0; i < l->c->spans; i++) {
            const struct draw_span *s = &l->c->span[i];
            const double value[] = {s->start, s->end, s->stage, s->mb, s->kind,
                                    draw_level(l->c, s), l->lane[i]};
            text_add(h->out, "%s%.10g", i ? "," : "", value[k]);
        }
        text_add(h->out, "]");
    }
}

static void add_chart_data(struct html *h, const struct draw_layout *l)
{
    const struct draw_chart *c = l->c;
    text_add(h->out, "{\"title\":");
    draw_add_json(h->out, c->title);
    text_add(h->out, ",\"ranks\":%d,\"stages\":%s,\"pairs\":%s,\"names\":[", c->ranks,
             c->stages ? "true" : "false", l->pairs ? "true" : "false");
    for (int k = 0; k < DRAW_KINDS; k++)
        text_add(h->out, "%s[%.10g,%d,%d]", k ? "," : "", l->names.least[k],
                 l->names.stage_digits[k], l->names.mb_digits[k]);
    text_add(h->out, "],\"begin\":[");
    for (int rank = 0; rank <= c->ranks; rank++)
        text_add(h->out, "%s%lld", rank ? "," : "", (long long)l->begin[rank]);
    text_add(h->out, "]");
    add_columns(h, l);
    const char *between = "";
    text_add(h->out, ",\n\"labels\":{");
    for (int64_t i = 0; i < c->spans; i++) {
        if (!c->span[i].label)
            continue;
        text_add(h->out, "%s\"%lld\":", between, (long long)i);
        draw_add_json(h->out, c->span[i].label);
        between = ",";
    }
    text_add(h->out, "}");
    for (int rank = 0; c->memory && rank < c->ranks; rank++) {
        text_add(h->out, rank ? ",\n[" : ",\n\"memory\":[[");
        for (int64_t i = 0; i < c->memory[rank].n; i++)
            text_add(h->out, "%s%.10g,%.15g", i ? "," : "", c->memory[rank].point[i].time,
                     c->memory[rank].point[i].value);
        text_add(h->out, rank + 1 < c->ranks ? "]" : "]]");
    }
    if (c->comms > 0) /* the kinds' colours; by rank, of each its start, end, kind and stage */
        text_add(h->out, ",\n\"lanes\":[\"%s\",\"%s\"],\n\"comm\":[", draw_comm_fill(DRAW_SUM),
                 draw_comm_fill(DRAW_GATHER));
    int64_t i = 0;
    for (int rank = 0; c->comms > 0 && rank < c->ranks; rank++) {
        text_add(h->out, rank ? ",\n[" : "[");
        for (bool first = true; i < c->comms && c->comm[i].rank == rank; i++, first = false)
            text_add(h->out, "%s%.10g,%.10g,%d,%d", first ? "" : ",", c->comm[i].start,
                     c->comm[i].end, c->comm[i].kind, c->comm[i].stage);
        text_add(h->out, "]");
    }
    text_add(h->out, c->comms > 0 ? "]}" : "}");
}

/* ---- document ---- */

static void add_text(struct html *h, const char *before, const char *words, const char *after)
{
    text_add(h->out, "%s", before);
    draw_add_xml(h->out, words);
    text_add(h->out, "%s", after);
}

static void add_legend(struct html *h)
{
    char fill[8];
    text_add(h->out, "<div class=\"legend\">\n");
    for (int k = 0; k < DRAW_KINDS; k++) {
        if (!h->all.has[k])
            continue;
        text_add(h->out, "<span><i style=\"background:%s\"></i>", draw_fill(k, 2, fill));
        if (k < DRAW_MESSAGE)
            text_add(h->out, "%c ", draw_letter(k));
        text_add(h->out, "%s</span>\n", draw_kind_name(k));
    }
    for (int k = 0; k < DRAW_COMM_KINDS; k++)
        if (h->all.comm[k])
            text_add(h->out, "<span><i style=\"background:%s\"></i>%s</span>\n",
                     draw_comm_fill(k), draw_comm_name(k));
    if (h->all.chunks)
        text_add(h->out, "<span>light to full: a rank's first to last stage</span>\n");
    if (h->all.replicas)
        text_add(h->out, "<span><i style=\"background:%s\"></i>dark: the second replica</span>\n",
                 draw_fill(DRAW_F, 4, fill));
    text_add(h->out, "</div>\n");
}

static void add_table(struct html *h, const struct draw_table *t)
{
    add_text(h, "<section><h2>", t->title, "</h2>\n<div class=\"scroll\"><table>\n");
    for (int row = 0; row < t->rows; row++) {
        text_add(h->out, "<tr>");
        for (int col = 0; col < t->columns; col++)
            add_text(h, row == 0 ? "<th>" : "<td>", t->cell[row * t->columns + col],
                     row == 0 ? "</th>" : "</td>");
        text_add(h->out, "</tr>\n");
    }
    text_add(h->out, "</table></div></section>\n");
}

static void add_page(struct html *h)
{
    const struct draw_page *p = h->p;
    text_add(h->out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                     "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n");
    add_text(h, "<title>", p->title, "</title>\n");
    text_add(h->out, "<style>\n%s</style>\n</head>\n<body>\n", draw_page_css);
    add_text(h, "<h1>", p->title, "</h1>\n<noscript><p>The chart needs JavaScript; the tables "
                                  "below do not.</p></noscript>\n");
    text_add(h->out, "%s", p->summaries > 0 ? "<ul class=\"summary\">\n" : "");
    for (int i = 0; i < p->summaries; i++)
        add_text(h, "<li>", p->summary[i], "</li>\n");
    text_add(h->out, "%s", p->summaries > 0 ? "</ul>\n" : "");
    for (int i = 0; i < p->above; i++)
        add_table(h, &p->table[i]);
    text_add(h->out, "<div class=\"bar\" role=\"toolbar\" aria-label=\"View\">\n"
                     "<button id=\"in\" aria-label=\"Zoom in\">+</button>\n"
                     "<button id=\"out\" aria-label=\"Zoom out\">&#8722;</button>\n"
                     "<button id=\"all\">Whole step</button>\n"
                     "<input id=\"pan\" type=\"range\" min=\"0\" max=\"1000\" step=\"1\" "
                     "value=\"0\" aria-label=\"Position in the step\" disabled>\n");
    if (h->all.memory)
        text_add(h->out, "<label><input id=\"memory\" type=\"checkbox\" checked>memory</label>\n");
    add_legend(h);
    text_add(h->out, "</div>\n");
    for (int i = 0; i < p->charts; i++) {
        const struct draw_chart *c = &p->chart[i];
        add_text(h, "<section><h2>", c->title, "</h2>\n");
        add_text(h, "<p class=\"facts\">", c->facts ? c->facts : "", "</p>\n");
        text_add(h->out, "<p class=\"status\" id=\"status%d\" role=\"status\"></p>\n"
                         "<canvas id=\"chart%d\" tabindex=\"0\" role=\"application\" "
                         "aria-describedby=\"status%d\" aria-label=\"Chart of %d rank%s over "
                         "time: ", i, i, i, c->ranks, text_plural(c->ranks, "s"));
        draw_add_xml(h->out, c->title);
        text_add(h->out, "\"></canvas>\n<p class=\"note\" id=\"note%d\"></p></section>\n", i);
    }
    text_add(h->out, "<div id=\"tip\" hidden></div>\n");
    for (int i = p->above; i < p->tables; i++)
        add_table(h, &p->table[i]);
    text_add(h->out,
             "<p class=\"keys\">Mouse: drag moves, <kbd>Ctrl</kbd> and wheel zooms, a double click "
             "zooms in. Touch: drag moves, two fingers zoom, a tap tells. Keys in the chart: "
             "<kbd>&#8592;</kbd> <kbd>&#8594;</kbd> <kbd>&#8593;</kbd> <kbd>&#8595;</kbd> from "
             "action to action, <kbd>+</kbd> <kbd>&#8722;</kbd> zoom, <kbd>a</kbd> <kbd>d</kbd> "
             "move, <kbd>0</kbd> the whole step, <kbd>Esc</kbd> lets go.</p>\n");
    text_add(h->out, "<script type=\"application/json\" id=\"data\">\n{\"time\":");
    draw_add_json(h->out, p->time_unit);
    text_add(h->out, ",\"memory\":");
    draw_add_json(h->out, p->memory_unit);
    text_add(h->out, ",\"end\":%.15g,\"shortest\":%.15g,\"peak\":%.15g,\n", h->all.end,
             h->all.shortest, h->all.peak);
    add_kinds(h);
    text_add(h->out, ",\n\"charts\":[");
    for (int i = 0; i < p->charts; i++) {
        text_add(h->out, "%s", i ? ",\n" : "");
        add_chart_data(h, &h->all.of[i]);
    }
    text_add(h->out, "]}\n</script>\n<script>\n%s</script>\n</body>\n</html>\n", draw_page_js);
}

enum err draw_html(const struct draw_page *p, struct text *out)
{
    struct html h = {.p = p, .out = out};
    enum err err = ERR_OK;
    TRY_OR(out_free, draw_layouts_open(&h.all, p, DRAW_HTML_MAX,
                                       "a page holds; use fewer ranks or microbatches"));
    add_page(&h);
out_free:
    draw_layouts_close(&h.all);
    return err;
}
