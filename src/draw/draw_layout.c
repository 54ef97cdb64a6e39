/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of a picture that does not depend on what it is drawn with.
 *
 * Lanes. A rank does one thing at a time, except where a schedule overlaps two; the two then share
 * the height of the row, the earlier one above. More than two at once would hide one another.
 */
#include "draw/draw_layout.h"

#include "base/mem.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- where boxes lie ---- */

static void look_at(struct draw_layout *l, const struct draw_span *s)
{
    double time = s->end - s->start;
    ENSURE(s->kind < DRAW_KINDS && s->rank >= 0 && s->rank < l->c->ranks && time >= 0);
    l->has[s->kind] = true;
    l->replicas |= s->replica != 0;
    if (s->kind < DRAW_MESSAGE && time > 0 && (l->shortest == 0 || time < l->shortest))
        l->shortest = time;
}

static void find_lanes(struct draw_layout *l)
{
    const struct draw_span *s = l->c->span;
    for (int64_t i = 0; i < l->c->spans; i++) {
        look_at(l, &s[i]);
        if (i == 0 || s[i].rank != s[i - 1].rank) {
            ENSURE(i == 0 || s[i].rank > s[i - 1].rank);
            continue;
        }
        ENSURE(s[i].start >= s[i - 1].start);
        double overlap = s[i - 1].end - s[i].start;
        if (overlap > 1e-9 * (s[i - 1].end - s[i - 1].start)) {
            if (l->lane[i - 1] == DRAW_WHOLE)
                l->lane[i - 1] = DRAW_UPPER;
            l->pairs = true;
            l->lane[i] = l->lane[i - 1] == DRAW_UPPER ? DRAW_LOWER : DRAW_UPPER;
        }
    }
}

static void find_rows(struct draw_layout *l)
{
    const struct draw_chart *c = l->c;
    int64_t i = 0;
    for (int rank = 0; rank < c->ranks; rank++) {
        l->begin[rank] = i;
        while (i < c->spans && c->span[i].rank == rank)
            i++;
    }
    l->begin[c->ranks] = i;
    for (int rank = 0; rank < c->ranks && c->memory; rank++)
        for (i = 0; i < c->memory[rank].n; i++)
            l->peak = fmax(l->peak, c->memory[rank].point[i].value);
}

static enum err lay_out(struct draw_layout *l, const struct draw_chart *c)
{
    *l = (struct draw_layout){.c = c};
    TRY(mem_new(c->ranks + 1, sizeof *l->begin, "a picture's rows", &l->begin));
    TRY(mem_new(c->spans, 1, "a picture's lanes", &l->lane));
    find_lanes(l);
    find_rows(l);
    draw_names_find(l);
    return ERR_OK;
}

static void add_up(struct draw_layouts *a, const struct draw_layout *l)
{
    if (l->shortest > 0 && (a->shortest == 0 || l->shortest < a->shortest))
        a->shortest = l->shortest;
    a->end = fmax(a->end, l->c->end);
    a->peak = fmax(a->peak, l->peak);
    a->replicas |= l->replicas;
    a->pairs |= l->pairs;
    a->chunks |= l->c->chunks > 1;
    a->memory |= l->c->memory != NULL;
    for (int k = 0; k < DRAW_KINDS; k++)
        a->has[k] |= l->has[k];
}

enum err draw_layouts_open(struct draw_layouts *a, const struct draw_page *p, int most,
                           const char *why)
{
    int64_t spans = 0;
    *a = (struct draw_layouts){0};
    for (int i = 0; i < p->charts; i++)
        spans += p->chart[i].spans;
    if (most > 0 && spans > most)
        FAIL(ERR_CONFIG, "picture: %lld boxes are more than the %d that %s", (long long)spans,
             most, why);
    TRY(mem_new(p->charts, sizeof *a->of, "a picture's charts", &a->of));
    for (a->charts = 0; a->charts < p->charts;) {
        struct draw_layout *l = &a->of[a->charts++];
        TRY(lay_out(l, &p->chart[a->charts - 1]));
        add_up(a, l);
    }
    return ERR_OK;
}

void draw_layouts_close(struct draw_layouts *a)
{
    for (int i = 0; i < a->charts; i++) {
        mem_free(a->of[i].begin);
        mem_free(a->of[i].lane);
    }
    mem_free(a->of);
    *a = (struct draw_layouts){0};
}

/* ---- what is written ---- */

double draw_tick(double span, int most)
{
    if (!(span > 0))
        return 1;
    double least = span / most, ten = pow(10, floor(log10(least)));
    for (int i = 0; i < 3; i++) {
        static const double step[] = {1, 2, 5};
        if (step[i] * ten >= least * (1 - 1e-9))
            return step[i] * ten;
    }
    return 10 * ten;
}

const char *draw_number(double x, const char *unit, char buf[32])
{
    if (strcmp(unit, "bytes") == 0)
        return text_bytes((int64_t)x, buf);
    snprintf(buf, 32, "%.6g%s%s", x, *unit ? " " : "", unit);
    return buf;
}

/* ---- escaping ---- */

/* Length of the well-formed UTF-8 sequence at s (no overlong ones, no surrogates), or 0. */
static int sequence(const unsigned char *s)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    int n = s[0] < 0x80 ? 1 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc0 ? 2 : 0;
    unsigned code = n < 2 ? s[0] : s[0] & (0xffu >> (n + 1));
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3fu);
    }
    bool bad = n == 0 || code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ||
               code == 0xfffe || code == 0xffff || (s[0] >= 0xf8);
    return bad ? 0 : n;
}

/* Appends the character at s, clean of what no reader may see; returns its bytes. `special` are
 * those that escape writes. */
static int add_char(struct text *out, const char *s, const char *special,
                    void (*escape)(struct text *out, char c))
{
    int n = sequence((const unsigned char *)s);
    bool control = (unsigned char)*s < 0x20 || *s == 0x7f;
    if (n == 0 || control)
        text_add(out, "\xef\xbf\xbd");
    else if (n == 1 && strchr(special, *s))
        escape(out, *s);
    else
        text_add(out, "%.*s", n, s);
    return n ? n : 1;
}

static void escape_xml(struct text *out, char c)
{
    text_add(out, "&#%d;", c);
}

static void escape_json(struct text *out, char c)
{
    text_add(out, "\\u%04x", (unsigned)c);
}

void draw_add_xml(struct text *out, const char *s)
{
    while (*s)
        s += add_char(out, s, "&<>\"'", escape_xml);
}

void draw_add_json(struct text *out, const char *s)
{
    text_add_char(out, '"', 1);
    while (*s)
        s += add_char(out, s, "\"\\<>&", escape_json);
    text_add_char(out, '"', 1);
}
