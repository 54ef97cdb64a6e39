/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of a picture that does not depend on what it is drawn with.
 *
 * Lanes. A rank does one thing at a time, except where a schedule overlaps two; the two then share
 * the height of the row, the earlier one above. More than two at once would hide one another.
 *
 * Looks. The hue says what a box does: blue forward, green backward, orange and yellow its input
 * and weight halves, purple recomputing (near the palette of Okabe and Ito, which people with
 * colour-blindness can tell apart). Brightness says whose: chunks of a rank from light to full, all
 * with dark letters; the second replica of a bidirectional schedule dark, with white ones. The
 * letters have a contrast of at least 5 to 1 on every shade.
 */
#include "draw/draw_layout.h"

#include "base/mem.h"
#include "base/num.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- where boxes lie ---- */

static void find_lanes(struct draw_layout *l)
{
    const struct draw_span *s = l->c->span;
    for (int64_t i = 0; i < l->c->spans; i++) {
        double time = s[i].end - s[i].start;
        ENSURE(s[i].kind < DRAW_KINDS && s[i].rank >= 0 && s[i].rank < l->c->ranks && time >= 0);
        l->has[s[i].kind] = true;
        l->replicas |= s[i].replica != 0;
        if (s[i].kind < DRAW_MESSAGE && time > 0 && (l->shortest == 0 || time < l->shortest))
            l->shortest = time;
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

static enum err lay_out(struct draw_layout *l, const struct draw_chart *c)
{
    int64_t i = 0;
    *l = (struct draw_layout){.c = c};
    TRY(mem_new(c->ranks + 1, sizeof *l->begin, "a picture's rows", &l->begin));
    TRY(mem_new(c->spans, 1, "a picture's lanes", &l->lane));
    find_lanes(l);
    for (int rank = 0; rank < c->ranks; rank++) {
        l->begin[rank] = i;
        while (i < c->spans && c->span[i].rank == rank)
            i++;
    }
    l->begin[c->ranks] = i;
    for (int rank = 0; rank < c->ranks && c->memory; rank++)
        for (i = 0; i < c->memory[rank].n; i++)
            l->peak = fmax(l->peak, c->memory[rank].point[i].value);
    draw_names_find(l);
    return ERR_OK;
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
        for (int64_t i = 0; i < l->c->comms; i++)
            a->comm[l->c->comm[i].kind] = true;
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

/* What no reader may see becomes U+FFFD: no UTF-8, controls, U+FFFE and U+FFFF. */
static void add_escaped(struct text *out, const char *s, bool json)
{
    const char *special = json ? "\"\\<>&" : "&<>\"'";
    for (int n; *s; s += n) {
        n = text_utf8((const uint8_t *)s, (int64_t)strnlen(s, 4));
        bool control = (unsigned char)*s < 0x20 || *s == 0x7f;
        bool no_character = n == 3 && memcmp(s, "\xef\xbf", 2) == 0 && (unsigned char)s[2] >= 0xbe;
        if (n <= 0 || control || no_character) {
            text_add(out, "\xef\xbf\xbd");
            n = 1;
        } else if (n == 1 && strchr(special, *s)) {
            text_add(out, json ? "\\u%04x" : "&#%u;", (unsigned)*s);
        } else {
            text_add(out, "%.*s", n, s);
        }
    }
}

void draw_add_xml(struct text *out, const char *s)
{
    add_escaped(out, s, false);
}

void draw_add_json(struct text *out, const char *s)
{
    text_add_char(out, '"', 1);
    add_escaped(out, s, true);
    text_add_char(out, '"', 1);
}

/* ---- what boxes look like ---- */

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

const char *draw_fill(int kind, int level, char buf[8])
{
    const struct kind *k = &kinds[kind];
    struct rgb from = level < 4 ? k->light : k->dark, to = level < 4 ? k->full : (struct rgb){0};
    int part = level < 4 ? level : level - 4;
    snprintf(buf, 8, "#%02x%02x%02x", (from.r + (to.r - from.r) * part / 3) & 255,
             (from.g + (to.g - from.g) * part / 3) & 255,
             (from.b + (to.b - from.b) * part / 3) & 255);
    return buf;
}

const char *draw_comm_name(int kind)
{
    return kind == DRAW_SUM ? "gradients are summed" : "weights are gathered";
}

const char *draw_comm_fill(int kind)
{
    return kind == DRAW_SUM ? "#0b8f8f" : "#c2477f";
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

/* ---- names ----
 * In one chart all names have one form: stage, letter and microbatch; or without the stage; or the
 * microbatch alone; or there are none, and a word says why. So a number that is missing never
 * depends on how many digits it has: a form is taken when its longest name fits in the shortest box
 * of each kind. Boxes of less than a quarter of their kind's time (geometric mean: one disturbed
 * box must not decide) do not count; they stay without a name.
 *
 * Widths are those of the widest of the fonts that SVG readers put in for system-ui, so a name fits
 * whatever the font. */

static const double SLIVER = 0.25;

static bool counts(const struct draw_span *s)
{
    return s->kind < DRAW_MESSAGE && s->end > s->start;
}

void draw_names_find(struct draw_layout *l)
{
    struct draw_names *names = &l->names;
    double sum[DRAW_KINDS] = {0};
    int64_t n[DRAW_KINDS] = {0};
    int stage[DRAW_KINDS] = {0}, mb[DRAW_KINDS] = {0};
    for (int64_t i = 0; i < l->c->spans; i++) {
        const struct draw_span *s = &l->c->span[i];
        if (!counts(s))
            continue;
        sum[s->kind] += log(s->end - s->start);
        n[s->kind]++;
        stage[s->kind] = (int)num_max(stage[s->kind], s->stage);
        mb[s->kind] = (int)num_max(mb[s->kind], s->mb);
    }
    for (int k = 0; k < DRAW_KINDS; k++) {
        names->stage_digits[k] = snprintf(NULL, 0, "%d", stage[k]);
        names->mb_digits[k] = snprintf(NULL, 0, "%d", mb[k]);
    }
    for (int64_t i = 0; i < l->c->spans; i++) {
        const struct draw_span *s = &l->c->span[i];
        double time = s->end - s->start;
        if (!counts(s) || time < SLIVER * exp(sum[s->kind] / (double)n[s->kind]))
            continue;
        if (names->least[s->kind] == 0 || time < names->least[s->kind])
            names->least[s->kind] = time;
    }
}

int draw_name_length(const struct draw_layout *l, int kind, enum draw_form form)
{
    int length = form == DRAW_NO_NAMES ? 0 : l->names.mb_digits[kind];
    length += form <= DRAW_SHORT;
    return length + (form == DRAW_FULL && l->c->stages ? l->names.stage_digits[kind] : 0);
}

double draw_name_width(const struct draw_layout *l, int kind, enum draw_form form)
{
    static const double digit = 0.66;
    static const double letter[DRAW_KINDS] = {0.62, 0.72, 0.42, 1.02, 0.74, 0, 0};
    bool lettered = form <= DRAW_SHORT;
    return digit * (draw_name_length(l, kind, form) - lettered) + (lettered ? letter[kind] : 0);
}

const char *draw_name(const struct draw_chart *c, const struct draw_span *s, enum draw_form form,
                      char buf[DRAW_LABEL_MAX])
{
    if (form == DRAW_NO_NAMES || (s->kind >= DRAW_MESSAGE && !s->label))
        return NULL;
    if (form == DRAW_FULL || s->label)
        return draw_label(c, s, buf);
    if (form == DRAW_SHORT)
        snprintf(buf, DRAW_LABEL_MAX, "%c%d", draw_letter(s->kind), s->mb);
    else
        snprintf(buf, DRAW_LABEL_MAX, "%d", s->mb);
    return buf;
}
