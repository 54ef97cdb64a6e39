/* SPDX-License-Identifier: Apache-2.0
 *
 * What is written in boxes. In one chart all names have one form: stage, letter and microbatch; or
 * without the stage; or the microbatch alone; or there are none, and a word says why. So a number
 * that is missing never depends on how many digits it has: a form is taken when its longest name
 * fits in the shortest box of each kind. Boxes of less than a quarter of their kind's time
 * (geometric mean: one disturbed box must not decide) do not count; they stay without a name.
 *
 * Widths are those of the widest of the fonts that SVG readers put in for system-ui, so a name fits
 * whatever the font.
 */
#include "draw/draw_layout.h"

#include "base/num.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double SLIVER = 0.25;

static int digits_of(int x)
{
    return snprintf(NULL, 0, "%d", x);
}

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
        names->stage_digits[k] = digits_of(stage[k]);
        names->mb_digits[k] = digits_of(mb[k]);
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
