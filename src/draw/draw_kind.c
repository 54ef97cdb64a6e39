/* SPDX-License-Identifier: Apache-2.0
 *
 * What kinds of boxes are called, and their colours. The hue says what a box does: blue forward,
 * green backward, orange and yellow its input and weight halves, purple recomputing (near the
 * palette of Okabe and Ito, which people with colour-blindness can tell apart). Brightness says
 * whose: chunks of a rank from light to full, all with dark letters; the second replica of a
 * bidirectional schedule dark, with white ones. The letters have a contrast of at least 5 to 1 on
 * every shade.
 */
#include "draw/draw_layout.h"

#include <stdio.h>

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
