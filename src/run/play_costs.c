/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of single stages for the simulation, as the user gives them:
 *
 *     factors     1,1,1.5,1            one a stage, multiplying the times of F, B, I, W
 *     a file      stage,F,B,I,W        the first line, word for word
 *                 0,1.02,2.1,1.0,1.1   then a line a stage, in any order, each stage once
 *                 1,1.00,,1.0,0.9      no time of B: that of I and W together
 *
 * Both are held against the number of stages, and every number must be a time.
 */
#include "run/play.h"

#include "base/fs.h"
#include "base/mem.h"
#include <string.h>

enum { WORD_MAX = 64 };

/* The word up to the next of `ends` into buf; *at moves to that end. False: it is too long. */
static bool next_word(const char **at, const char *stop, const char *ends, char buf[WORD_MAX])
{
    size_t n = 0;
    while (*at + n < stop && !strchr(ends, (*at)[n]))
        n++;
    if (n >= WORD_MAX)
        return false;
    memcpy(buf, *at, n);
    buf[n] = '\0';
    *at += n;
    return true;
}

static bool read_time(const char *word, double *out)
{
    return text_to_double(word, out) && *out >= 0 && *out <= 1e100;
}

static enum err read_factors(const char *list, struct played *x)
{
    const char *at = list, *stop = list + strlen(list);
    char word[WORD_MAX];
    int n = 0;
    TRY(mem_new(x->s->stages, sizeof *x->scale, "factors of stages", &x->scale));
    for (;; n++) {
        double factor;
        if (!next_word(&at, stop, ",", word) || !read_time(word, &factor))
            FAIL(ERR_CONFIG,
                 "simulation: factor %d in scale \"%.80s\" is not a number from 0 to 1e100; write "
                 "one a stage, separated by commas",
                 n + 1, list);
        if (n < x->s->stages)
            x->scale[n] = factor;
        if (at == stop)
            break;
        at++;
    }
    if (n + 1 != x->s->stages)
        FAIL(ERR_CONFIG,
             "simulation: scale has %d factors, and the schedule has %d stages; write "
             "one a stage",
             n + 1, x->s->stages);
    return ERR_OK;
}

/* ---- the file ---- */

struct reader {
    const char *path, *at, *stop;
    int line;
    bool *seen; /* owned; [stages] */
};

static enum err bad_line(const struct reader *r, const char *what)
{
    FAIL(ERR_CONFIG, "simulation: costs file %.200s, line %d: %s", r->path, r->line, what);
}

/* The cells of a line, the last one may be ended by CR LF. */
static enum err read_cells(struct reader *r, char cell[5][WORD_MAX])
{
    for (int i = 0; i < 5; i++) {
        if (i > 0 && (r->at == r->stop || *r->at++ != ','))
            return bad_line(r, "fewer than five cells; write stage,F,B,I,W");
        if (!next_word(&r->at, r->stop, ",\r\n", cell[i]))
            return bad_line(r, "a cell is longer than a number is");
    }
    if (r->at < r->stop && *r->at == '\r')
        r->at++;
    if (r->at < r->stop && *r->at++ != '\n')
        return bad_line(r, "more than five cells; write stage,F,B,I,W");
    return ERR_OK;
}

static enum err read_stage(struct reader *r, char cell[5][WORD_MAX], struct played *x)
{
    int64_t stage;
    if (!text_to_int(cell[0], &stage) || stage < 0 || stage >= x->s->stages)
        FAIL(ERR_CONFIG,
             "simulation: costs file %.200s, line %d: \"%s\" is not a stage of this schedule; use "
             "0 to %d",
             r->path, r->line, cell[0], x->s->stages - 1);
    if (r->seen[stage])
        return bad_line(r, "this stage has its line already; give each stage one");
    r->seen[stage] = true;
    double *time = x->time[stage];
    for (int op = SCHED_F; op <= SCHED_W; op++) {
        bool apart = op == SCHED_B && cell[1 + op][0] == '\0';
        if (!apart && !read_time(cell[1 + op], &time[op]))
            FAIL(ERR_CONFIG,
                 "simulation: costs file %.200s, line %d: \"%s\" is not a time of %s; use 0 to "
                 "1e100",
                 r->path, r->line, cell[1 + op], sched_op_name((enum sched_op)op));
    }
    if (cell[1 + SCHED_B][0] == '\0')
        time[SCHED_B] = time[SCHED_I] + time[SCHED_W];
    return ERR_OK;
}

static enum err read_lines(struct reader *r, struct played *x)
{
    char cell[5][WORD_MAX];
    while (r->at < r->stop) {
        r->line++;
        TRY(read_cells(r, cell));
        if (r->line > 1) {
            TRY(read_stage(r, cell, x));
            continue;
        }
        static const char *const name[] = {"stage", "F", "B", "I", "W"};
        for (int i = 0; i < 5; i++)
            if (strcmp(cell[i], name[i]) != 0)
                return bad_line(r, "the first line is stage,F,B,I,W");
    }
    for (int i = 0; i < x->s->stages; i++)
        if (!r->seen[i])
            FAIL(ERR_CONFIG, "simulation: costs file %.200s has no line for stage %d of %d",
                 r->path, i, x->s->stages);
    return ERR_OK;
}

static enum err read_file(const char *path, struct played *x)
{
    struct fs_map map;
    struct reader r = {.path = path};
    enum err err = fs_map_open(&map, path, ERR_CONFIG);
    if (err != ERR_OK)
        return err_set(err, __FILE__, __LINE__, "simulation: %s", err_bare(err_text()));
    TRY_OR(out_close, mem_new(x->s->stages, sizeof *r.seen, "costs of stages", &r.seen));
    TRY_OR(out_close, mem_new(x->s->stages, sizeof *x->time, "costs of stages", &x->time));
    r.at = (const char *)map.data;
    r.stop = r.at + map.size;
    TRY_OR(out_close, read_lines(&r, x));
out_close:
    mem_free(r.seen);
    fs_map_close(&map);
    return err;
}

enum err play_costs(const struct play_args *a, struct played *x)
{
    const struct plait_sim *s = a->sim;
    if ((s->scale != NULL) + (s->costs != NULL) + (s->model != NULL) > 1)
        FAIL(ERR_CONFIG, "simulation: scale, costs and model each say what stages cost; use one");
    if (s->costs && (s->tf != 0 || s->tb != 0 || s->ti != 0 || s->tw != 0))
        FAIL(ERR_CONFIG, "simulation: a costs file has all times in it; leave tf, tb, ti, tw out");
    if (s->scale)
        return read_factors(s->scale, x);
    return s->costs ? read_file(s->costs, x) : ERR_OK;
}
