/* SPDX-License-Identifier: Apache-2.0
 *
 * A comparison as text, as JSON, and as a file of costs. Text has the words of compare_tables.c.
 */
#include "study/compare.h"

#include "base/num.h"
#include <math.h>
#include <string.h>

static const char *const kind_name[COMPARE_KINDS] = {"F", "B", "I", "W", "R"};

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
                 "What ends the step: of sums and gathers the time that links take, beside the "
                 "actions; of WAIT\nwhat is left of it; of the others with waiting for those "
                 "they meet.\n");
    else
        text_add(out, "What ends the step (REDUCE to GATHER) is predicted from bytes with "
                      "--bandwidth and "
                      "--memory-bandwidth.\n");
}

/* "name": {"F": ..., ...} of one rank; ends: with what ends the step. */
static void json_rank(const char *name, const struct compare_rank *m, bool ends, struct text *out)
{
    text_add(out, "\"%s\": {", name);
    for (int k = 0; k < COMPARE_KINDS; k++)
        text_add(out, "\"%s\": %.9g, ", kind_name[k], m->busy[k]);
    text_add(out, "\"waiting\": %.9g, \"sending\": %.9g, \"ending\": %.9g", m->waiting, m->sending,
             m->ending);
    for (int i = 0; ends && compare_end(i) >= 0; i++)
        text_add(out, ", \"%s\": %.9g", sched_op_name((enum sched_op)compare_end(i)),
                 m->end[compare_end(i)]);
    text_add(out, "}");
}

static void json_stage(const struct compare *c, int stage, struct text *out)
{
    text_add(out, "%s\n  {\"stage\": %d", stage ? "," : "", stage);
    for (int k = 0; k < COMPARE_KINDS; k++)
        text_add(out, ", \"%s\": %.9g", kind_name[k], c->cost[stage][k]);
    text_add(out, "}");
}

/* The bubbles over ideal time; null where a share has none. */
static void json_over_ideal(const struct compare *c, struct text *out)
{
    static const char *const name[] = {"measured", "simulated", "predicted"};
    const double share[] = {c->bubble, c->sim.bubble_fraction, c->s->bubble};
    for (int i = 0; i < 3; i++) {
        double over = sim_over_ideal(share[i]);
        text_add(out, " \"over_ideal_%s\": ", name[i]);
        if (isfinite(over))
            text_add(out, "%.9g,%s", over, i == 2 ? "\n" : "");
        else
            text_add(out, "null,%s", i == 2 ? "\n" : "");
    }
}

void compare_json(const struct compare *c, struct text *out)
{
    const struct sched *s = &c->s->sched;
    text_add(out, "{\"schedule\": ");
    text_add_json(out, s->name);
    text_add(out, ", \"p\": %d, \"m\": %d, \"v\": %d, \"steps\": %lld, \"left_out\": %lld,\n", s->p,
             s->m, s->v, (long long)c->steps, (long long)c->first);
    text_add(out,
             " \"bubble_measured\": %.9g, \"bubble_simulated\": %.9g, "
             "\"bubble_predicted\": %.9g,\n",
             c->bubble, c->sim.bubble_fraction, c->s->bubble);
    json_over_ideal(c, out);
    text_add(out, " \"makespan_measured\": %.9g, \"makespan_simulated\": %.9g, "
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
    for (int i = 0; i < s->stages; i++)
        json_stage(c, i, out);
    text_add(out, "]}\n");
}

static bool lacks_halves(const double t[COMPARE_KINDS])
{
    return t[SCHED_I] + t[SCHED_W] <= 0;
}

static void add_assumed(int stages, int of, const char *what, struct text *out)
{
    if (stages == 0)
        return;
    text_add(out, "%s%s", out->len ? "; " : "", what);
    if (stages < of)
        text_add(out, " (%d of %d stages)", stages, of);
}

void compare_costs_note(const struct compare *c, struct text *out)
{
    const struct sched *s = &c->s->sched;
    bool again = sched_has(s, SCHED_R);
    int halves = 0, wholes = 0, forwards = 0;
    for (int i = 0; i < s->stages; i++) {
        halves += lacks_halves(c->cost[i]);
        wholes += c->cost[i][SCHED_B] <= 0;
        forwards += again && c->cost[i][SCHED_R] <= 0;
    }
    add_assumed(halves, s->stages, "I and W are taken as half of B each, for the schedule runs B "
                                   "whole", out);
    if (halves > 0 && s->v <= 2)
        text_add(out, "; trace %s to measure them", s->v == 1 ? "zb-h1" : "zb-v");
    add_assumed(wholes, s->stages, "B is taken as I and W together, for the schedule runs them "
                                   "apart", out);
    add_assumed(forwards, s->stages, "R is taken as F, for none ran", out);
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
