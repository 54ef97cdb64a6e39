/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulated step for the eye (Gantt chart), for programs (JSON) and for a table.
 *
 * The chart is the textbooks' one: a row a rank, a box an instruction with its microbatch in it.
 *
 *     rank 0 |F0F1F2F3..........B0  B1  B2  B3  |
 *     rank 1 |..F0F1F2F3......B0  B1  B2  B3  ..|
 *
 * Every instruction covers the columns between its rounded start and end, so boxes that meet in
 * time meet in the picture. What does not fit in a box is left out from the left: with one column a
 * forward is the last digit of its microbatch and a backward its letter; below one column for the
 * shortest instruction every column is the letter of what runs there, or a dot. A pair is one box,
 * F3&B5; stages that do not fit in it are left out first, then its right end, and its letter is &.
 */
#include "sim/sim.h"

#include "base/mem.h"
#include "base/num.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_MAX = 64, GANTT_MIN_COLUMNS = 10, GANTT_MAX_COLUMNS = 1 << 16 };

struct chart {
    const struct sched *s;
    const struct sim_result *r;
    double scale; /* columns a time unit */
    int columns;  /* of the picture, without the ranks' names */
    bool letters; /* the shortest instruction is below one column */
    bool color;
    int64_t *owner; /* owned; [columns] instruction shown there, -1: idle */
};

static const char op_letter[] = {'F', 'B', 'I', 'W'};

static bool is_pair(const struct sched *s, int64_t i)
{
    return s->instr[i].op == SCHED_OV;
}

static char letter(const struct sched *s, int64_t i)
{
    return is_pair(s, i) ? '&' : op_letter[s->instr[i].op];
}

/* The next instruction of a list that takes time, from i on; a pair is met at its OV. */
static int64_t next_box(const struct sched *s, int64_t i, int64_t end)
{
    while (i < end && s->instr[i].op > SCHED_W && !is_pair(s, i))
        i++;
    return i;
}

static int64_t behind_box(const struct sched *s, int64_t i)
{
    return i + (is_pair(s, i) ? 3 : 1);
}

/* Op and microbatch, on request the stage before them; of both halves of a pair. */
static int write_label(const struct sched *s, int64_t i, bool stage, char out[LABEL_MAX])
{
    const struct sched_instr *in = &s->instr[i];
    if (is_pair(s, i)) {
        int n = write_label(s, i + 1, stage, out);
        out[n++] = '&';
        return n + write_label(s, i + 2, stage, out + n);
    }
    if (stage)
        return snprintf(out, 24, "%d%c%d", in->stage, op_letter[in->op], in->mb);
    return snprintf(out, 24, "%c%d", op_letter[in->op], in->mb);
}

/* What a box says when there is room: with several chunks a rank the stage too. */
static int box_label(const struct sched *s, int64_t i, char out[LABEL_MAX])
{
    return write_label(s, i, s->v > 1, out);
}

/* Shortest compute instruction and longest label of the schedule, pairs aside: they are longer and
 * have room for two. */
static void measure(const struct sched *s, const struct sim_result *r, double *shortest, int *label)
{
    char text[LABEL_MAX];
    *shortest = 0;
    *label = 0;
    int64_t end = s->begin[s->p];
    for (int64_t i = next_box(s, 0, end); i < end; i = next_box(s, behind_box(s, i), end)) {
        double time = r->event[i].end - r->event[i].start;
        if (time > 0 && (*shortest == 0 || time < *shortest))
            *shortest = time;
        if (!is_pair(s, i))
            *label = (int)num_max(*label, box_label(s, i, text));
    }
}

/* Columns a time unit: as wide as labels need, at most the width; where a box has a column at all,
 * a whole number of columns for the shortest instruction, so that equal times look equal. */
static void choose_scale(struct chart *k, int width, int margin)
{
    double shortest, most;
    int label;
    measure(k->s, k->r, &shortest, &label);
    double units = shortest > 0 ? k->r->makespan / shortest : 0;
    int room = (int)num_max(width - margin, GANTT_MIN_COLUMNS);
    if (width == 0)
        most = fmin(1, GANTT_MAX_COLUMNS / fmax(units, 1));
    else
        most = fmin(label + 1, room / fmax(units, 1));
    k->letters = most < 1;
    if (most >= 1)
        most = floor(most);
    k->scale = shortest > 0 ? most / shortest : 0;
    k->columns = (int)ceil(units * most - 1e-6);
}

/* Which instruction each column of a rank shows: the one that runs at the column's middle. */
static void fill_row(struct chart *k, int rank)
{
    for (int c = 0; c < k->columns; c++)
        k->owner[c] = -1;
    int64_t end = k->s->begin[rank + 1], i = next_box(k->s, k->s->begin[rank], end);
    for (; i < end; i = next_box(k->s, behind_box(k->s, i), end)) {
        int from = (int)floor(k->r->event[i].start * k->scale + 0.5 - 1e-9);
        int to = (int)floor(k->r->event[i].end * k->scale + 0.5 - 1e-9);
        for (int c = from; c < to && c < k->columns; c++)
            k->owner[c] = i;
    }
}

/* The end of the label that fits, but not a number without its letter where that could be taken
 * for another instruction: only forwards may be bare numbers. */
static void draw_box(const struct chart *k, int64_t i, int w, struct text *out)
{
    char label[LABEL_MAX];
    const struct sched_instr *in = &k->s->instr[i];
    int n = box_label(k->s, i, label);
    const char *number = strchr(label, letter(k->s, i));
    if (k->letters) {
        text_add_char(out, letter(k->s, i), w);
    } else if (n <= w) {
        text_add(out, "%s", label);
        text_add_char(out, ' ', w - n);
    } else if (is_pair(k->s, i)) {
        n = write_label(k->s, i, false, label);
        text_add(out, "%.*s", w, label);
        text_add_char(out, ' ', w > n ? w - n : 0);
    } else if ((int)strlen(number) <= w) {
        text_add(out, "%s", number);
        text_add_char(out, ' ', w - (int)strlen(number));
    } else if (in->op == SCHED_F) {
        text_add(out, "%s", label + n - w);
    } else {
        text_add(out, "%c%s", op_letter[in->op], label + n - (w - 1));
    }
}

/* Blue forward, green backward, cyan and yellow halves, magenta pairs; odd chunks of a rank and the
 * second replica brighter. */
static void color_on(const struct chart *k, int64_t i, struct text *out)
{
    static const int ground[] = {44, 42, 46, 43};
    const struct sched_instr *in = &k->s->instr[i];
    bool bright = (in->stage / k->s->p + k->s->way[in->mb]) % 2 == 1;
    text_add(out, "\x1b[30;%dm", (is_pair(k->s, i) ? 45 : ground[in->op]) + (bright ? 60 : 0));
}

static void draw_row(struct chart *k, int rank, struct text *out)
{
    fill_row(k, rank);
    for (int c = 0, next; c < k->columns; c = next) {
        for (next = c + 1; next < k->columns && k->owner[next] == k->owner[c];)
            next++;
        if (k->owner[c] < 0) {
            text_add_char(out, '.', next - c);
            continue;
        }
        if (k->color)
            color_on(k, k->owner[c], out);
        draw_box(k, k->owner[c], next - c, out);
        if (k->color)
            text_add(out, "\x1b[0m");
    }
}

static void draw_legend(const struct chart *k, struct text *out)
{
    bool split = sched_has(k->s, SCHED_I), pairs = sched_has(k->s, SCHED_OV);
    text_add(out, "time 0 to %.6g, %.4g a column; F forward", k->r->makespan,
             k->scale > 0 ? 1 / k->scale : 0);
    if (!k->s->forward_only)
        text_add(out, ", B backward%s", split ? ", I and W its input and weight halves" : "");
    if (pairs)
        text_add(out, ", F&B both at once");
    text_add(out, ", . idle%s\n", k->letters ? "; too many for numbers" : "");
}

void sim_gantt(const struct sched *s, const struct sim_result *r, int width, bool color,
               struct text *out)
{
    struct chart k = {.s = s, .r = r, .color = color};
    int digits = snprintf(NULL, 0, "%d", s->p - 1);
    ENSURE(r->event != NULL);
    choose_scale(&k, width, digits + 8);
    enum err err = mem_new(k.columns, sizeof *k.owner, "gantt row", &k.owner);
    if (err != ERR_OK) {
        out->err = err;
        return;
    }
    for (int rank = 0; rank < s->p; rank++) {
        text_add(out, "rank %*d |", digits, rank);
        draw_row(&k, rank, out);
        text_add(out, "|\n");
    }
    draw_legend(&k, out);
    mem_free(k.owner);
}

/* The shortest decimal form that reads back as the same double. */
static void add_number(struct text *out, double x)
{
    char s[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, x);
        if (strtod(s, NULL) == x)
            break;
    }
    text_add(out, "%s", s);
}

/* As the text form writes it. */
static void add_action(const struct sched *s, int64_t i, struct text *out)
{
    const struct sched_instr *in = &s->instr[i];
    if (is_pair(s, i))
        text_add(out, "(%dF%d;%dB%d)OV", in[1].stage, in[1].mb, in[2].stage, in[2].mb);
    else
        text_add(out, "%d%c%d", in->stage, op_letter[in->op], in->mb);
}

static void json_timeline(const struct sched *s, const struct sim_result *r, struct text *out)
{
    bool first = true;
    text_add(out, ",\n  \"timeline\": [");
    for (int rank = 0; rank < s->p; rank++) {
        int64_t end = s->begin[rank + 1], i = next_box(s, s->begin[rank], end);
        for (; i < end; i = next_box(s, behind_box(s, i), end)) {
            text_add(out, "%s\n    {\"rank\": %d, \"action\": \"", first ? "" : ",", rank);
            add_action(s, i, out);
            text_add(out, "\", \"start\": ");
            add_number(out, r->event[i].start);
            text_add(out, ", \"end\": ");
            add_number(out, r->event[i].end);
            text_add_char(out, '}', 1);
            first = false;
        }
    }
    text_add(out, "\n  ]");
}

void sim_json(const struct sched *s, const struct sim_result *r, struct text *out)
{
    const struct {
        const char *key;
        double value;
    } number[] = {
        {"makespan", r->makespan},
        {"cost", r->cost},
        {"bubble_fraction", r->bubble_fraction},
    };
    text_add(out, "{\n  \"schedule\": ");
    text_add_json(out, s->name);
    text_add(out, ",\n  \"p\": %d,\n  \"m\": %d,\n  \"v\": %d", s->p, s->m, s->v);
    for (int i = 0; i < 3; i++) {
        text_add(out, ",\n  \"%s\": ", number[i].key);
        add_number(out, number[i].value);
    }
    text_add(out, ",\n  \"peak_activations\": [");
    for (int rank = 0; rank < s->p; rank++)
        text_add(out, "%s%d", rank ? ", " : "", r->peak[rank]);
    text_add(out, "],\n  \"actions\": %lld", (long long)r->actions);
    if (r->event)
        json_timeline(s, r, out);
    text_add(out, "\n}\n");
}

void sim_summary(const struct sched *s, const struct sim_result *r, struct text *out)
{
    text_add(out, "schedule  %s: %d rank%s, %d microbatch%s, %d chunk%s a rank%s%s\n", s->name,
             s->p, text_plural(s->p, "s"), s->m, text_plural(s->m, "es"), s->v,
             text_plural(s->v, "s"), s->replicas > 1 ? " of each of two replicas" : "",
             s->forward_only ? ", forward only" : "");
    text_add(out, "makespan  %.6g\n", r->makespan);
    text_add(out, "cost      %.6g (longest time of one rank from its first to its last action)\n",
             r->cost);
    text_add(out, "bubble    %.2f %% of all ranks' time\n", 100 * r->bubble_fraction);
    text_add(out, "actions   %lld\n\n", (long long)r->actions);
    text_add(out, "%6s %12s %12s %8s %12s %12s %12s\n", "rank", "busy", "idle", "idle %", "first",
             "last", "activations");
    for (int rank = 0; rank < s->p; rank++) {
        double idle = r->makespan - r->busy[rank];
        text_add(out, "%6d %12.6g %12.6g %8.2f %12.6g %12.6g %12d\n", rank, r->busy[rank], idle,
                 r->makespan > 0 ? 100 * idle / r->makespan : 0, r->first[rank], r->last[rank],
                 r->peak[rank]);
    }
}
