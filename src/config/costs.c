/* SPDX-License-Identifier: Apache-2.0
 *
 * Measured or wanted times of stages, as `plait compare --costs` writes them and `plait sim
 * --costs` and parallel.costs read them:
 *
 *     stage,F,B,I,W        the first line, word for word, or stage,F,B,I,W,R
 *     0,1.02,2.1,1.0,1.1   then a line a stage, in any order, each stage once
 *     1,1.00,,1.0,0.9      no time of B: that of I and W together; of R: that of F
 *
 * Blank lines say nothing; lines end in LF or CR LF, the last one may lack its end.
 *
 * A file is foreign until all of it has been understood: it is held against the number of stages,
 * and every number must be a time.
 */
#include "config/costs.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>

enum { CELLS = 1 + SCHED_COMPUTE_OPS };
#define TIME_MAX 1e100

bool costs_word(const char **at, const char *stop, const char *ends, char buf[COSTS_WORD])
{
    size_t n = 0;
    while (*at + n < stop && !strchr(ends, (*at)[n]))
        n++;
    if (n >= COSTS_WORD)
        return false;
    memcpy(buf, *at, n);
    buf[n] = '\0';
    *at += n;
    return true;
}

bool costs_time(const char *word, double *out)
{
    return text_to_double(word, out) && *out >= 0 && *out <= TIME_MAX;
}

struct reader {
    const char *path, *at, *stop;
    int line, cells; /* cells: of each line, with or without R */
    int stages;
    double (*time)[SCHED_COMPUTE_OPS]; /* borrowed; [stages] */
    bool *seen;        /* owned; [stages] */
};

static enum err bad_line(const struct reader *r, const char *what)
{
    FAIL(ERR_CONFIG, "costs: costs file %.200s, line %d: %s", r->path, r->line, what);
}

/* The file is one of another layout; where and how it shows is said in `what`. */
static enum err other_layout(const struct reader *r, const char *what)
{
    FAIL(ERR_CONFIG,
         "costs: costs file %.200s%s; this layout has %d stage%s (ranks x chunks), from 0: use the "
         "file that `plait compare RUN --costs FILE` writes of a traced run with these ranks and "
         "chunks", r->path, what, r->stages, text_plural(r->stages, "s"));
}

/* Passes a line of nothing but blanks. */
static bool skip_blank(struct reader *r)
{
    const char *at = r->at;
    while (at < r->stop && (*at == ' ' || *at == '\t' || *at == '\r'))
        at++;
    if (at < r->stop && *at != '\n')
        return false;
    r->at = at < r->stop ? at + 1 : at;
    return true;
}

/* The cells of a line, the last one may be ended by CR LF. */
static enum err read_cells(struct reader *r, char cell[CELLS][COSTS_WORD])
{
    for (int i = 0; i < r->cells; i++) {
        if (i > 0 && (r->at == r->stop || *r->at++ != ','))
            return bad_line(r, "fewer cells than in the first line; write stage,F,B,I,W");
        if (!costs_word(&r->at, r->stop, ",\r\n", cell[i]))
            return bad_line(r, "a cell is longer than a number is");
    }
    if (r->at < r->stop && *r->at == '\r')
        r->at++;
    if (r->at < r->stop && *r->at++ != '\n')
        return bad_line(r, "more cells than in the first line; write stage,F,B,I,W");
    return ERR_OK;
}

static enum err read_stage(struct reader *r, char cell[CELLS][COSTS_WORD])
{
    int64_t stage;
    if (!text_to_int(cell[0], &stage) || stage < 0 || stage >= r->stages) {
        char what[COSTS_WORD + 64];
        snprintf(what, sizeof what, ", line %d: \"%.63s\" is not a stage here", r->line, cell[0]);
        return other_layout(r, what);
    }
    if (r->seen[stage])
        return bad_line(r, "this stage has its line already; give each stage one");
    r->seen[stage] = true;
    double *time = r->time[stage];
    for (int op = 0; op < r->cells - 1; op++) {
        bool apart = (op == SCHED_B || op == SCHED_R) && cell[1 + op][0] == '\0';
        if (!apart && !costs_time(cell[1 + op], &time[op]))
            FAIL(ERR_CONFIG, "costs: costs file %.200s, line %d: \"%s\" is not a time of %s; use "
                             "0 to 1e100", r->path, r->line, cell[1 + op],
                 sched_op_name((enum sched_op)op));
    }
    if (cell[1 + SCHED_B][0] == '\0')
        time[SCHED_B] = time[SCHED_I] + time[SCHED_W];
    if (time[SCHED_B] > TIME_MAX)
        return bad_line(r, "I and W together are no time of B; use 0 to 1e100 for their sum");
    if (r->cells < CELLS || cell[1 + SCHED_R][0] == '\0')
        time[SCHED_R] = time[SCHED_F];
    return ERR_OK;
}

/* The first line, which says whether there is a column of R. */
static enum err read_names(struct reader *r)
{
    static const char *const names[] = {"stage,F,B,I,W,R", "stage,F,B,I,W"};
    for (int i = 0; i < 2; i++) {
        int64_t n = (int64_t)strlen(names[i]);
        if (r->stop - r->at < n || memcmp(r->at, names[i], (size_t)n) != 0)
            continue;
        r->cells = CELLS - i;
        r->at += n;
        if (r->at < r->stop && *r->at == '\r')
            r->at++;
        if (r->at == r->stop || *r->at++ == '\n')
            return ERR_OK;
        break;
    }
    return bad_line(r, "the first line is stage,F,B,I,W, or stage,F,B,I,W,R");
}

static enum err read_lines(struct reader *r)
{
    char cell[CELLS][COSTS_WORD];
    r->line = 1;
    if (r->at < r->stop)
        TRY(read_names(r));
    while (r->at < r->stop) {
        r->line++;
        if (skip_blank(r))
            continue;
        TRY(read_cells(r, cell));
        TRY(read_stage(r, cell));
    }
    for (int i = 0; i < r->stages; i++) {
        char what[64];
        snprintf(what, sizeof what, " has no line for stage %d of %d", i, r->stages);
        if (!r->seen[i])
            return other_layout(r, what);
    }
    return ERR_OK;
}

enum err costs_read(const char *path, int stages, double (**out)[SCHED_COMPUTE_OPS])
{
    enum err err;
    int64_t n;
    struct fs_map map;
    struct reader r = {.path = path, .stages = stages};
    TRY(fs_map_open(&map, path, ERR_CONFIG));
    r.at = (const char *)map.data;
    TRY_OR(out_map, mem_new(stages, sizeof *r.seen, "costs of stages", &r.seen));
    TRY_OR(out_map, mem_new(stages, sizeof *r.time, "costs of stages", &r.time));
    n = map.size;
    TRY_OR(out_map, text_begin(path, ERR_CONFIG, &r.at, &n));
    r.stop = r.at + n;
    TRY_OR(out_map, read_lines(&r));
    *out = r.time;
    r.time = NULL;
out_map:
    mem_free(r.seen);
    mem_free(r.time);
    fs_map_close(&map);
    return err;
}
