/* SPDX-License-Identifier: Apache-2.0
 *
 * What a comparison comes to, in words: a summary of a few lines, the step, and a row a rank and
 * kind of action, what was measured beside what the simulator has. The rows are means over steps,
 * which add up; the step is medians, since one disturbed step may be many times as long as the
 * others. Text, page and picture show these same cells.
 */
#include "study/compare.h"

#include "base/mem.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    STEP_COLUMNS = 4,
    STEP_ROWS = 5,
    RANK_COLUMNS = 7,
    RANK_ROWS = COMPARE_KINDS + 2 + SCHED_OP_COUNT
};
enum { TOLD = 3 }; /* differences in the summary */

static const char *const kind_name[COMPARE_KINDS] = {"F", "B", "I", "W", "R"};

/* In per cent; NAN: of nothing. */
static double apart(double measured, double simulated)
{
    return simulated > 0 ? 100 * (measured / simulated - 1) : measured > 0 ? NAN : 0;
}

/* ---- cells ---- */

static void add_word(struct compare_words *w, const char *word)
{
    char *cell = w->cell[w->cells];
    snprintf(cell, COMPARE_CELL, "%s", word);
    w->at[w->cells++] = cell;
}

static void add_number(struct compare_words *w, const char *format, double value)
{
    char word[COMPARE_CELL] = "-";
    if (isfinite(value))
        snprintf(word, sizeof word, format, value);
    add_word(w, word);
}

static struct draw_table *begin(struct compare_words *w, int which, const char *title, int columns)
{
    w->table[which] = (struct draw_table){.title = title, .columns = columns,
                                          .cell = w->at + w->cells};
    return &w->table[which];
}

static void add_head(struct compare_words *w, const char *const *name, int n)
{
    for (int i = 0; i < n; i++)
        add_word(w, name[i]);
}

/* A row of the step; a figure that is NAN is a dash. */
static void add_figure(struct compare_words *w, const char *name, const double value[3])
{
    add_word(w, name);
    for (int i = 0; i < 3; i++)
        add_number(w, "%.2f", value[i]);
    w->table[COMPARE_STEP].rows++;
}

static void make_step(const struct compare *c, struct compare_words *w)
{
    static const char *const head[STEP_COLUMNS] = {"step (medians)", "measured", "simulated",
                                                   "predicted before the run"};
    const double share[] = {c->bubble, c->sim.bubble_fraction, c->s->bubble};
    begin(w, COMPARE_STEP, "Step", STEP_COLUMNS)->rows = 1;
    add_head(w, head, STEP_COLUMNS);
    add_figure(w, "bubble, % of the step",
               (double[]){100 * share[0], 100 * share[1], 100 * share[2]});
    add_figure(w, "bubble, % over ideal time",
               (double[]){100 * sim_over_ideal(share[0]), 100 * sim_over_ideal(share[1]),
                          100 * sim_over_ideal(share[2])});
    add_figure(w, "first to last action, ms",
               (double[]){1e3 * c->makespan, 1e3 * c->sim.makespan, NAN});
}

/* simulated NAN: the simulator has no such time. */
static void add_row(struct compare_words *w, int rank, const char *name, double measured,
                    double simulated)
{
    add_number(w, "%.0f", rank);
    add_word(w, name);
    add_word(w, "-");
    add_word(w, "-");
    add_number(w, "%.2f", 1e3 * measured);
    add_number(w, "%.2f", 1e3 * simulated);
    add_word(w, "-");
    w->table[COMPARE_ACTIONS].rows++;
}

/* What ends the step, with what it was predicted to take. */
static void add_end(struct compare_words *w, const struct compare *c, int rank, enum sched_op op)
{
    double measured = c->measured[rank].end[op], n = (double)c->measured[rank].ends[op];
    double predicted = c->rated ? c->simulated[rank].end[op] : NAN;
    bool starts = op == SCHED_REDUCE || op == SCHED_GATHER; /* measured is how long that took */
    if (n == 0)
        return;
    add_number(w, "%.0f", rank);
    add_word(w, sched_op_name(op));
    add_number(w, "%.0f", n);
    add_number(w, "%.3f", 1e3 * measured / n);
    add_number(w, "%.2f", 1e3 * measured);
    add_number(w, "%.2f", 1e3 * predicted);
    add_number(w, "%.1f", c->rated && !starts ? apart(measured, predicted) : NAN);
    w->table[COMPARE_ACTIONS].rows++;
}

static void make_actions(const struct compare *c, struct compare_words *w)
{
    static const char *const head[RANK_COLUMNS] = {
        "rank", "action", "actions", "ms an action", "measured ms", "simulated ms", "apart %"};
    struct draw_table *t = begin(w, COMPARE_ACTIONS, "Ranks and actions, means of a step",
                                 RANK_COLUMNS);
    t->rows = 1;
    add_head(w, head, RANK_COLUMNS);
    for (int r = 0; r < c->s->sched.p; r++) {
        const struct compare_rank *m = &c->measured[r], *s = &c->simulated[r];
        for (int k = 0; k < COMPARE_KINDS; k++) {
            if (m->count[k] == 0)
                continue;
            add_number(w, "%.0f", r);
            add_word(w, kind_name[k]);
            add_number(w, "%.0f", (double)m->count[k]);
            add_number(w, "%.3f", 1e3 * m->busy[k] / (double)m->count[k]);
            add_number(w, "%.2f", 1e3 * m->busy[k]);
            add_number(w, "%.2f", 1e3 * s->busy[k]);
            add_number(w, "%.1f", apart(m->busy[k], s->busy[k]));
            t->rows++;
        }
        add_row(w, r, "waiting", m->waiting, s->waiting);
        add_row(w, r, "sending", m->sending, NAN);
        for (int i = 0; compare_end(i) >= 0; i++)
            add_end(w, c, r, (enum sched_op)compare_end(i));
    }
}

/* ---- the summary ---- */

/* A time of a rank that was measured and simulated. */
struct difference { int rank; const char *what; double measured, simulated; };

static double size_of(const struct difference *d)
{
    return fabs(d->measured - d->simulated);
}

/* Keeps the TOLD largest, in their order. */
static void keep(struct difference most[TOLD], struct difference d)
{
    for (int i = 0; i < TOLD; i++) {
        if (size_of(&d) <= size_of(&most[i]))
            continue;
        struct difference less = most[i];
        most[i] = d;
        d = less;
    }
}

static void add_differences(const struct compare *c, struct text *out)
{
    struct difference most[TOLD] = {{0}};
    for (int r = 0; r < c->s->sched.p; r++) {
        const struct compare_rank *m = &c->measured[r], *s = &c->simulated[r];
        for (int k = 0; k < COMPARE_KINDS; k++)
            keep(most, (struct difference){r, kind_name[k], m->busy[k], s->busy[k]});
        keep(most, (struct difference){r, "waiting", m->waiting, s->waiting});
    }
    text_add(out, "largest differences:");
    for (int i = 0; i < TOLD && most[i].what; i++)
        text_add(out, "%s %s of rank %d %.2f ms for %.2f", i ? "," : "", most[i].what, most[i].rank,
                 1e3 * most[i].measured, 1e3 * most[i].simulated);
    text_add(out, "%s", most[0].what ? "" : " none");
}

static enum err end_line(struct compare_words *w, struct text *line)
{
    TRY(text_done(line, &w->line[w->lines]));
    w->lines++;
    *line = (struct text){0};
    return ERR_OK;
}

/* The run's name without slashes at its end. */
static void add_run(const char *run, struct text *out)
{
    size_t n = strlen(run);
    while (n > 1 && run[n - 1] == '/')
        n--;
    text_add(out, "%.*s", (int)n, run);
}

static enum err make_summary(const struct compare *c, const char *run, struct compare_words *w)
{
    const struct sched *s = &c->s->sched;
    char bubble[3][SIM_BUBBLE_MAX];
    struct text t = {0}, title = {0};
    add_run(run, &title);
    text_add(&title, ": %s, measured and simulated", s->name);
    TRY(text_done(&title, &w->title));
    add_run(run, &t);
    text_add(&t, ": %s on %d pipeline rank%s, %d microbatch%s; %lld of %lld step%s, the first %lld "
                 "left out", s->name, s->p, text_plural(s->p, "s"), s->m, text_plural(s->m, "es"),
             (long long)(c->steps - c->first), (long long)c->steps, text_plural(c->steps, "s"),
             (long long)c->first);
    TRY(end_line(w, &t));
    if (c->cut > 0) {
        text_add(&t, "the run ended amid a step: %lld byte%s of its records %s left out",
                 (long long)c->cut, text_plural(c->cut, "s"), c->cut == 1 ? "is" : "are");
        TRY(end_line(w, &t));
    }
    text_add(&t, "step: measured %.2f ms, simulated %.2f ms, %.1f %% apart", 1e3 * c->makespan,
             1e3 * c->sim.makespan, apart(c->makespan, c->sim.makespan));
    TRY(end_line(w, &t));
    text_add(&t, "bubble: measured %s, simulated %s, predicted before the run %s",
             sim_bubble_words(c->bubble, 1, bubble[0]),
             sim_bubble_words(c->sim.bubble_fraction, 1, bubble[1]),
             sim_bubble_words(c->s->bubble, 1, bubble[2]));
    TRY(end_line(w, &t));
    add_differences(c, &t);
    return end_line(w, &t);
}

enum err compare_words_make(const struct compare *c, const char *run, struct compare_words *out)
{
    int64_t cells = STEP_COLUMNS * STEP_ROWS +
                    (int64_t)RANK_COLUMNS * (1 + (int64_t)RANK_ROWS * c->s->sched.p);
    *out = (struct compare_words){0};
    TRY(make_summary(c, run, out));
    TRY(mem_new(cells, sizeof *out->cell, "a comparison's tables", &out->cell));
    TRY(mem_new(cells, sizeof *out->at, "a comparison's tables", &out->at));
    make_step(c, out);
    make_actions(c, out);
    ENSURE(out->cells <= cells);
    return ERR_OK;
}

void compare_words_free(struct compare_words *w)
{
    for (int i = 0; i < w->lines; i++)
        mem_free(w->line[i]);
    mem_free(w->title);
    mem_free(w->cell);
    mem_free(w->at);
    *w = (struct compare_words){0};
}
