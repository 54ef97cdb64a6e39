/* SPDX-License-Identifier: Apache-2.0
 *
 * For draw/ alone: what the pictures share. Which boxes lie in which row and which half of it, what
 * is written in a box of a given width, colours, round numbers for an axis, escaped names.
 */
#ifndef PLAIT_DRAW_DRAW_LAYOUT_H
#define PLAIT_DRAW_DRAW_LAYOUT_H

#include "draw/draw.h"

enum { DRAW_LABEL_MAX = 64, DRAW_LEVELS = 6 };

/* A span takes its row's whole height, or half of it beside one that overlaps it. */
enum draw_lane { DRAW_WHOLE, DRAW_UPPER, DRAW_LOWER };

/* How boxes of a chart are named, one form for all (draw_layout.c). */
enum draw_form {
    DRAW_FULL,    /* 3F12; with one stage a rank F12 */
    DRAW_SHORT,   /* F12 */
    DRAW_NUMBER,  /* 12: the colour says what it is */
    DRAW_NO_NAMES
};

/* By kind: time of the shortest box that a name is asked of (0: there is none), and how many digits
 * its stage and its microbatch have at most. */
struct draw_names {
    double least[DRAW_KINDS];
    int stage_digits[DRAW_KINDS], mb_digits[DRAW_KINDS];
};

struct draw_layout {
    const struct draw_chart *c; /* borrowed */
    struct draw_names names;
    int64_t *begin; /* owned; [ranks + 1] spans of a rank */
    uint8_t *lane;  /* owned; [spans] enum draw_lane */
    double shortest; /* of the compute spans that take time; 0: none does */
    double peak;     /* of the memory curves */
    bool has[DRAW_KINDS];
    bool replicas, pairs;
};
/* All charts of a page, which are drawn to one scale, and what they have together. */
struct draw_layouts {
    int charts;
    struct draw_layout *of; /* owned; [charts] */
    double end, shortest, peak;
    bool has[DRAW_KINDS], comm[DRAW_COMM_KINDS];
    bool replicas, pairs, chunks, memory;
};
/* most: boxes that the picture has room for, 0: any number; `why` then ends the sentence. Released
 * by draw_layouts_close, also after an error. Errors: ERR_CONFIG, ERR_MEMORY. ENSUREs the order. */
enum err draw_layouts_open(struct draw_layouts *a, const struct draw_page *p, int most,
                           const char *why);
void draw_layouts_close(struct draw_layouts *a);

/* 'F', and "forward" for legends. */
char draw_letter(int kind);
const char *draw_kind_name(int kind);
/* Full name of a box: "3F12", with one stage a rank "F12"; or its own label. */
const char *draw_label(const struct draw_chart *c, const struct draw_span *s,
                       char buf[DRAW_LABEL_MAX]);
/* Fills l->names; part of draw_layouts_open. */
void draw_names_find(struct draw_layout *l);
/* Of the longest name of a kind in this form: characters, and width in ems of any usual font. */
int draw_name_length(const struct draw_layout *l, int kind, enum draw_form form);
double draw_name_width(const struct draw_layout *l, int kind, enum draw_form form);
/* The box's name in this form; NULL: none. Its own label, where it has one, has no forms. */
const char *draw_name(const struct draw_chart *c, const struct draw_span *s, enum draw_form form,
                      char buf[DRAW_LABEL_MAX]);

/* Shade of a box: 0..3 for the chunks of the first replica, 4 and 5 for the second's. */
int draw_level(const struct draw_chart *c, const struct draw_span *s);
/* "#rrggbb" of kind and level, and of the letters upon it. */
const char *draw_fill(int kind, int level, char buf[8]);
const char *draw_ink(int level);

/* Of what is in the lanes: what it is called, its colour. */
const char *draw_comm_name(int kind);
const char *draw_comm_fill(int kind);

/* A step of 1, 2 or 5 times a power of ten that cuts `span` in at most `most` parts. */
double draw_tick(double span, int most);
/* A number in at most six digits; bytes with their unit. */
const char *draw_number(double x, const char *unit, char buf[32]);

/* Names from outside: as text or attribute of XML and HTML; as a JSON string with its quotes that
 * may also stand within <script>. What is no UTF-8, and control characters, become U+FFFD. */
void draw_add_xml(struct text *out, const char *s);
void draw_add_json(struct text *out, const char *s);

/* The page's own files, made part of the program by the build. */
extern const char draw_page_css[], draw_page_js[];

#endif
