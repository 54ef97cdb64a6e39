/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of what ranks do over time. What goes in is plain: spans (rank, from, to, what), curves
 * of memory, tables of words. Whether a simulator or a clock made them is not known here, so
 * predicted and measured steps are drawn by the same hand, one above the other.
 *
 *     draw_gantt   text for terminals          draw_svg     a vector picture
 *     draw_html    a page to explore           draw_trace   trace-event JSON (Perfetto, Chrome)
 *
 * All of them take names from outside and escape them. Output is deterministic.
 */
#ifndef PLAIT_DRAW_DRAW_H
#define PLAIT_DRAW_DRAW_H

#include "base/err.h"
#include "base/text.h"
#include <stdint.h>

enum draw_kind {
    DRAW_F, DRAW_B, DRAW_I, DRAW_W, DRAW_R, /* forward, backward, its two halves, recompute */
    DRAW_MESSAGE, /* the rank stands still for a message that is on its way */
    DRAW_OTHER,   /* whatever else takes a rank's time */
    DRAW_KINDS
};

/* A box in the row of a rank. Two spans of a rank that overlap in time share the row's height. */
struct draw_span {
    double start, end;
    int32_t rank, stage, mb;
    uint8_t kind;    /* enum draw_kind */
    uint8_t chunk;   /* which of the rank's stages, 0 first: a shade of the kind's colour */
    uint8_t replica; /* of the parameters: 0, or 1, which is drawn dark */
    const char *label; /* borrowed; NULL: made of stage, kind and microbatch */
};

/* A message on the link between two ranks, which it occupies from start to end. */
struct draw_message {
    double start, end;
    int32_t from, to, stage, mb; /* stage that made it */
    bool back;                   /* a gradient */
    int64_t cause, use;          /* spans that made it and that need it; -1: none is known */
};

/* What a rank communicates beside its boxes, in a lane below them: sums of gradients, gathers of
 * weights. They do not overlap. */
enum draw_comm_kind { DRAW_SUM, DRAW_GATHER, DRAW_COMM_KINDS };
struct draw_comm {
    double start, end;
    int32_t rank, stage;
    uint8_t kind; /* enum draw_comm_kind */
};

/* Steps: the value holds from its time to the next one's. */
struct draw_point { double time, value; };
struct draw_curve { const struct draw_point *point; int64_t n; }; /* borrowed; [n] by time */

struct draw_chart {
    const char *title;
    const char *facts;  /* a line below the title; NULL: none */
    int ranks, chunks;  /* chunks: stages a rank */
    double end;         /* when the step ends */
    bool stages;        /* boxes are named with their stage: several a rank */
    const struct draw_span *span; /* borrowed; [spans] by rank, then by start */
    int64_t spans;
    const struct draw_curve *memory; /* borrowed; [ranks], or NULL */
    const struct draw_message *message; /* borrowed; [messages] by sender */
    int64_t messages;
    const struct draw_comm *comm; /* borrowed; [comms] by rank, then by start; lanes where there are
                                     any */
    int64_t comms;
};

/* rows * columns cells, borrowed, row by row; the first row names the columns. */
struct draw_table { const char *title; int rows, columns; const char *const *cell; };

struct draw_page {
    const char *title;
    const char *time_unit;   /* "" where times are bare numbers, else "s" or the like */
    const char *memory_unit; /* "activations", "bytes" */
    double seconds;          /* of one unit of time, for trace viewers */
    const struct draw_chart *chart; /* borrowed; [charts], drawn to one scale of time */
    int charts;
    const struct draw_table *table; /* borrowed; [tables] */
    int tables;
    /* What a comparison comes to: lines, and the first tables, which stand above the charts. The
     * SVG has them, too, and with such lines the title. */
    const char *const *summary; /* borrowed; [summaries] */
    int summaries, above;
    bool pictured; /* the SVG also has the tables that stand below the charts */
};

/* A row a rank, time from left to right, idle time as dots. width: columns of the terminal, the
 * picture is made to fit; 0: one column for the shortest box. color: ANSI colours. Charts have
 * their titles when there are several. Errors: ERR_MEMORY. */
enum err draw_gantt(const struct draw_page *p, int width, bool color, struct text *out);

/* Boxes that the picture has room for in a file of reasonable size: 30 MB, 120 MB, 180 MB. */
enum { DRAW_SVG_MAX = 200000, DRAW_HTML_MAX = 4000000, DRAW_TRACE_MAX = 500000 };

/* Charts below one another, each with its memory. Light, and dark where the reader prefers it.
 * Errors: ERR_CONFIG for more than DRAW_SVG_MAX spans; ERR_MEMORY. */
enum err draw_svg(const struct draw_page *p, struct text *out);
/* One page with everything in it: charts that zoom, tables. Errors: ERR_CONFIG for more than
 * DRAW_HTML_MAX spans; ERR_MEMORY. */
enum err draw_html(const struct draw_page *p, struct text *out);
/* Trace events: a process a rank with a track for its work and one for each link, memory as a
 * counter, arrows from sender to receiver. Errors: ERR_CONFIG for more than DRAW_TRACE_MAX spans;
 * ERR_MEMORY. */
enum err draw_trace(const struct draw_page *p, struct text *out);

#endif
