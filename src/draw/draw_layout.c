/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of a picture that does not depend on what it is drawn with.
 *
 * Colours. The hue says what a box does: blue forward, green backward, orange and yellow its input
 * and weight halves, purple recomputing (near the palette of Okabe and Ito, which people with
 * colour-blindness can tell apart). Brightness says whose: chunks of a rank from light to full, all
 * with dark letters; the second replica of a bidirectional schedule dark, with white ones. The
 * letters have a contrast of at least 5 to 1 on every shade.
 *
 * Lanes. A rank does one thing at a time, except where a schedule overlaps two; the two then share
 * the height of the row, the earlier one above. More than two at once would hide one another.
 */
#include "draw/draw_layout.h"

#include "base/mem.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

struct rgb {
    int r, g, b;
};

static const struct kind {
    const char *name;
    char letter;
    struct rgb light, full, dark;
} kinds[DRAW_KINDS] = {
    {"forward", 'F', {188, 217, 248}, {104, 166, 236}, {27, 86, 156}},
    {"backward", 'B', {183, 229, 194}, {88, 184, 118}, {28, 104, 52}},
    {"backward, input half", 'I', {252, 214, 176}, {240, 155, 74}, {150, 70, 0}},
    {"backward, weight half", 'W', {250, 238, 170}, {230, 204, 70}, {110, 92, 0}},
    {"recompute", 'R', {234, 203, 240}, {200, 140, 214}, {118, 50, 132}},
    {"a message on its way", '~', {214, 214, 214}, {180, 180, 180}, {90, 90, 90}},
    {"other", '?', {214, 214, 214}, {180, 180, 180}, {90, 90, 90}},
};

char draw_letter(int kind)
{
    return kinds[kind].letter;
}

const char *draw_kind_name(int kind)
{
    return kinds[kind].name;
}

static int mix(int from, int to, int part, int parts)
{
    return from + (to - from) * part / parts;
}

const char *draw_fill(int kind, int level, char buf[8])
{
    const struct kind *k = &kinds[kind];
    struct rgb c;
    if (level < 4)
        c = (struct rgb){mix(k->light.r, k->full.r, level, 3), mix(k->light.g, k->full.g, level, 3),
                         mix(k->light.b, k->full.b, level, 3)};
    else
        c = (struct rgb){mix(k->dark.r, 0, level - 4, 3), mix(k->dark.g, 0, level - 4, 3),
                         mix(k->dark.b, 0, level - 4, 3)};
    snprintf(buf, 8, "#%02x%02x%02x", c.r & 255, c.g & 255, c.b & 255);
    return buf;
}

const char *draw_ink(int level)
{
    return level < 4 ? "#10161d" : "#ffffff";
}

int draw_level(const struct draw_chart *c, const struct draw_span *s)
{
    if (s->replica)
        return 4 + s->chunk % 2;
    return c->chunks > 1 ? 3 * s->chunk / (c->chunks - 1) : 2;
}

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

enum err draw_layout_open(struct draw_layout *l, const struct draw_chart *c)
{
    *l = (struct draw_layout){.c = c};
    TRY(mem_new(c->ranks + 1, sizeof *l->begin, "a picture's rows", &l->begin));
    TRY(mem_new(c->spans, 1, "a picture's lanes", &l->lane));
    find_lanes(l);
    find_rows(l);
    draw_names_find(l);
    return ERR_OK;
}

void draw_layout_close(struct draw_layout *l)
{
    mem_free(l->begin);
    mem_free(l->lane);
    *l = (struct draw_layout){0};
}

enum err draw_page_fits(const struct draw_page *p, int most, const char *what)
{
    int64_t spans = 0;
    for (int i = 0; i < p->charts; i++)
        spans += p->chart[i].spans;
    if (spans > most)
        FAIL(ERR_CONFIG,
             "picture: %lld boxes are more than the %d that %s; use fewer ranks or microbatches",
             (long long)spans, most, what);
    return ERR_OK;
}

/* ---- what is written ---- */

const char *draw_label(const struct draw_chart *c, const struct draw_span *s,
                       char buf[DRAW_LABEL_MAX])
{
    if (s->label)
        snprintf(buf, DRAW_LABEL_MAX, "%s", s->label);
    else if (s->kind >= DRAW_MESSAGE)
        snprintf(buf, DRAW_LABEL_MAX, "%s", draw_kind_name(s->kind));
    else if (c->stages)
        snprintf(buf, DRAW_LABEL_MAX, "%d%c%d", s->stage, draw_letter(s->kind), s->mb);
    else
        snprintf(buf, DRAW_LABEL_MAX, "%c%d", draw_letter(s->kind), s->mb);
    return buf;
}

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
