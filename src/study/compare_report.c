/* SPDX-License-Identifier: Apache-2.0
 *
 * What a comparison comes to. In words: a summary of a few lines, the step, and a row a rank and
 * kind of action, what was measured beside what the simulator has. The rows are means over steps,
 * which add up; the step is medians, since one disturbed step may be many times as long as the
 * others. Text, page and picture show these same cells. Beside it as JSON, and as a file of costs.
 */
#include "study/compare.h"

#include "base/mem.h"
#include "base/num.h"
#include <stdio.h>
#include <string.h>

enum {
    STEP_COLUMNS = 4,
    STEP_ROWS = 4,
    RANK_COLUMNS = 7,
    RANK_ROWS = COMPARE_KINDS + 2 + SCHED_OP_COUNT
};
enum { TOLD = 3 }; /* differences in the summary */

/* In per cent; NAN: of nothing. */
static double apart(double measured, double simulated)
{
    return simulated > 0 ? 100 * (measured / simulated - 1) : measured > 0 ? NAN : 0;
}

/* ---- tables ---- */

/* What a rank does n times in a step. n NAN: that is not counted; simulated NAN: the simulator has
 * no such time; alike: what is measured and what is simulated can be held against each other. */
static void add_row(struct compare_words *w, int rank, const char *name, double n, double measured,
                    double simulated, bool alike)
{
    pictures_numbers(&w->cells, "%.0f", (double[]){rank});
    pictures_word(&w->cells, name);
    pictures_numbers(&w->cells, "%.0f %.3f %.2f %.2f %.1f",
                     (double[]){n, 1e3 * measured / n, 1e3 * measured, 1e3 * simulated,
                                alike ? apart(measured, simulated) : NAN});
    w->table[COMPARE_ACTIONS].rows++;
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
            keep(most, (struct difference){r, sched_op_name(k), m->busy[k], s->busy[k]});
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

static enum err make_summary(const struct compare *c, const char *run, struct compare_words *w)
{
    const struct sched *s = &c->s->sched;
    char bubble[3][SIM_BUBBLE_MAX];
    struct text t = {0}, title = {0};
    int n = (int)strlen(run);
    while (n > 1 && run[n - 1] == '/')
        n--;
    text_add(&title, "%.*s: %s, measured and simulated", n, run, s->name);
    TRY(text_done(&title, &w->title));
    text_add(&t, "%.*s: %s on %d pipeline rank%s, %d microbatch%s; %lld of %lld step%s, the first "
                 "%lld left out", n, run, s->name, s->p, text_plural(s->p, "s"), s->m,
             text_plural(s->m, "es"), (long long)(c->steps - c->first), (long long)c->steps,
             text_plural(c->steps, "s"), (long long)c->first);
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
    static const char *const step[STEP_COLUMNS] = {"step (medians)", "measured", "simulated",
                                                   "predicted before the run"};
    static const char *const action[RANK_COLUMNS] = {
        "rank", "action", "actions", "ms an action", "measured ms", "simulated ms", "apart %"};
    const double share[] = {c->bubble, c->sim.bubble_fraction, c->s->bubble};
    int64_t most = STEP_COLUMNS * STEP_ROWS +
                   (int64_t)RANK_COLUMNS * (1 + (int64_t)RANK_ROWS * c->s->sched.p);
    struct pictures_cells *cells = &out->cells;
    *out = (struct compare_words){0};
    TRY(make_summary(c, run, out));
    TRY(pictures_cells_new(most, cells));
    out->table[COMPARE_STEP] = pictures_table(cells, "Step", STEP_COLUMNS, step);
    out->table[COMPARE_STEP].rows += 3;
    pictures_word(cells, "bubble, % of the step");
    pictures_numbers(cells, "%.2f %.2f %.2f",
                     (double[]){100 * share[0], 100 * share[1], 100 * share[2]});
    pictures_word(cells, "bubble, % over ideal time");
    pictures_numbers(cells, "%.2f %.2f %.2f",
                     (double[]){100 * sim_over_ideal(share[0]), 100 * sim_over_ideal(share[1]),
                                100 * sim_over_ideal(share[2])});
    pictures_word(cells, "first to last action, ms"); /* not known before the run: a dash */
    pictures_numbers(cells, "%.2f %.2f %.2f",
                     (double[]){1e3 * c->makespan, 1e3 * c->sim.makespan, NAN});
    out->table[COMPARE_ACTIONS] =
        pictures_table(cells, "Ranks and actions, means of a step", RANK_COLUMNS, action);
    for (int r = 0; r < c->s->sched.p; r++) {
        const struct compare_rank *m = &c->measured[r], *s = &c->simulated[r];
        for (int k = 0; k < COMPARE_KINDS; k++)
            if (m->count[k] > 0)
                add_row(out, r, sched_op_name(k), (double)m->count[k], m->busy[k], s->busy[k],
                        true);
        add_row(out, r, "waiting", NAN, m->waiting, s->waiting, false);
        add_row(out, r, "sending", NAN, m->sending, NAN, false);
        for (int i = 0; i < COMPARE_ENDS; i++) { /* with what it was predicted to take */
            enum sched_op op = compare_end[i];
            double predicted = c->rated ? s->end[op] : NAN;
            bool starts = op == SCHED_REDUCE || op == SCHED_GATHER; /* and how long that took */
            if (m->ends[op] > 0)
                add_row(out, r, sched_op_name(op), (double)m->ends[op], m->end[op], predicted,
                        c->rated && !starts);
        }
    }
    ENSURE(cells->n <= most);
    return ERR_OK;
}

void compare_words_free(struct compare_words *w)
{
    for (int i = 0; i < w->lines; i++)
        mem_free(w->line[i]);
    mem_free(w->title);
    pictures_cells_free(&w->cells);
    *w = (struct compare_words){0};
}

/* ---- text ---- */

/* Columns as wide as their widest cell, names at the left and numbers at the right. */
static void add_table(const struct draw_table *t, struct text *out)
{
    for (int row = 0; row < t->rows; row++) {
        for (int col = 0; col < t->columns; col++) {
            int wide = 0;
            for (int i = 0; i < t->rows; i++)
                wide = (int)num_max(wide, (int64_t)strlen(t->cell[i * t->columns + col]));
            const char *cell = t->cell[row * t->columns + col];
            text_add(out, col == 0 ? "%s%-*s" : "%s%*s", col ? "  " : "", wide, cell);
        }
        text_add(out, "\n");
    }
}

void compare_text(const struct compare *c, const struct compare_words *w, struct text *out)
{
    for (int i = 0; i < w->lines; i++)
        text_add(out, "%s\n", w->line[i]);
    text_add(out, "\n");
    add_table(&w->table[COMPARE_STEP], out);
    text_add(out, "\n");
    add_table(&w->table[COMPARE_ACTIONS], out);
    text_add(out, "\nMeasured: of the step each figure's median over steps, which a disturbed step "
                  "does not\nmove; of ranks and actions the mean of a step, from which the medians "
                  "do not follow.\nSimulated: the same list on a clock, each action at its "
                  "median, a message %.3f ms\non its way, one that lies ready fetched in %.3f "
                  "ms.\n", 1e3 * c->latency, 1e3 * c->fetch);
    if (c->rated)
        text_add(out,
                 "What ends the step: of sums and gathers the time that links take; of WAIT what "
                 "of it no\naction hides; of the others with waiting for those they meet.\n");
    else
        text_add(out, "What ends the step (REDUCE to GATHER) is predicted from bytes with "
                      "--bandwidth and "
                      "--memory-bandwidth.\n");
}

/* ---- JSON ---- */

/* "name": {"F": ..., ...} of one rank; ends: with what ends the step. */
static void json_rank(const char *name, const struct compare_rank *m, bool ends, struct text *out)
{
    text_add(out, "\"%s\": {", name);
    for (int k = 0; k < COMPARE_KINDS; k++)
        text_add(out, "\"%s\": %.9g, ", sched_op_name(k), m->busy[k]);
    text_add(out, "\"waiting\": %.9g, \"sending\": %.9g, \"ending\": %.9g", m->waiting, m->sending,
             m->ending);
    for (int i = 0; ends && i < COMPARE_ENDS; i++)
        text_add(out, ", \"%s\": %.9g", sched_op_name(compare_end[i]), m->end[compare_end[i]]);
    text_add(out, "}");
}

void compare_json(const struct compare *c, struct text *out)
{
    const struct sched *s = &c->s->sched;
    text_add(out, "{\"schedule\": ");
    text_add_json(out, s->name);
    text_add(out, ", \"p\": %d, \"m\": %d, \"v\": %d, \"steps\": %lld, \"left_out\": %lld,\n", s->p,
             s->m, s->v, (long long)c->steps, (long long)c->first);
    const struct { const char *name; double share; } bubble[] = {
        {"measured", c->bubble}, {"simulated", c->sim.bubble_fraction},
        {"predicted", c->s->bubble}};
    for (int i = 0; i < 3; i++)
        text_add(out, " \"bubble_%s\": %.9g,", bubble[i].name, bubble[i].share);
    text_add(out, "\n");
    for (int i = 0; i < 3; i++) { /* over ideal time; null where a share has none */
        double over = sim_over_ideal(bubble[i].share);
        text_add(out, " \"over_ideal_%s\": ", bubble[i].name);
        if (isfinite(over))
            text_add(out, "%.9g,", over);
        else
            text_add(out, "null,");
    }
    text_add(out, "\n \"makespan_measured\": %.9g, \"makespan_simulated\": %.9g, "
                  "\"latency\": %.9g, \"fetch\": %.9g,\n \"ranks\": [", c->makespan,
             c->sim.makespan, c->latency, c->fetch);
    for (int r = 0; r < s->p; r++) {
        text_add(out, "%s\n  {\"rank\": %d, ", r ? "," : "", r);
        json_rank("measured", &c->measured[r], true, out);
        text_add(out, ", ");
        json_rank("simulated", &c->simulated[r], c->rated, out);
        text_add(out, "}");
    }
    text_add(out, "],\n \"costs\": [");
    for (int i = 0; i < s->stages; i++) {
        text_add(out, "%s\n  {\"stage\": %d", i ? "," : "", i);
        for (int k = 0; k < COMPARE_KINDS; k++)
            text_add(out, ", \"%s\": %.9g", sched_op_name(k), c->cost[i][k]);
        text_add(out, "}");
    }
    text_add(out, "]}\n");
}

/* ---- costs ---- */

static bool lacks_halves(const double t[COMPARE_KINDS])
{
    return t[SCHED_I] + t[SCHED_W] <= 0;
}

void compare_costs_note(const struct compare *c, struct text *out)
{
    const struct sched *s = &c->s->sched;
    bool again = sched_has(s, SCHED_R);
    enum { HALVES, WHOLES, FORWARDS, ASSUMED };
    static const char *const what[ASSUMED] = {
        "I and W are taken as half of B each, for the schedule runs B whole",
        "B is taken as I and W together, for the schedule runs them apart",
        "R is taken as F, for none ran"};
    int stages[ASSUMED] = {0};
    for (int i = 0; i < s->stages; i++) {
        stages[HALVES] += lacks_halves(c->cost[i]);
        stages[WHOLES] += c->cost[i][SCHED_B] <= 0;
        stages[FORWARDS] += again && c->cost[i][SCHED_R] <= 0;
    }
    for (int k = 0; k < ASSUMED; k++) {
        if (stages[k] == 0)
            continue;
        text_add(out, "%s%s", out->len ? "; " : "", what[k]);
        if (stages[k] < s->stages)
            text_add(out, " (%d of %d stages)", stages[k], s->stages);
        if (k == HALVES && s->v <= 2)
            text_add(out, "; trace %s to measure them", s->v == 1 ? "zb-h1" : "zb-v");
    }
}

/* Halves that were not measured are taken as half of the whole, a whole as both halves, and a
 * recompute as a forward. Where nothing is recomputed there is no column of it. */
void compare_costs(const struct compare *c, struct text *out)
{
    bool again = sched_has(&c->s->sched, SCHED_R);
    text_add(out, "stage,F,B,I,W%s\n", again ? ",R" : "");
    for (int i = 0; i < c->s->sched.stages; i++) {
        const double *t = c->cost[i];
        double input = t[SCHED_I], weight = t[SCHED_W], whole = t[SCHED_B];
        if (lacks_halves(t))
            input = weight = whole / 2;
        if (whole <= 0)
            whole = input + weight;
        text_add(out, "%d,%.6f,%.6f,%.6f,%.6f", i, 1e3 * t[SCHED_F], 1e3 * whole, 1e3 * input,
                 1e3 * weight);
        if (again)
            text_add(out, ",%.6f", 1e3 * (t[SCHED_R] > 0 ? t[SCHED_R] : t[SCHED_F]));
        text_add(out, "\n");
    }
}
