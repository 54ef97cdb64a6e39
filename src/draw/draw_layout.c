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
