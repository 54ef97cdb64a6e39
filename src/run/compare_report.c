/* SPDX-License-Identifier: Apache-2.0
 *
 * What a comparison says: a row a rank and kind of action, what was measured beside what the
 * simulator has, then the step as a whole. The rows are means over steps, which add up; the whole
 * is medians, since one disturbed step may be many times as long as the others.
 */
#include "run/compare.h"

#include <math.h>
#include <string.h>

static const char *const kind_name[COMPARE_KINDS] = {"F", "B", "I", "W", "R"};

static void add_kinds(const struct compare *c, int r, struct text *out)
{
    const struct compare_rank *m = &c->measured[r], *s = &c->simulated[r];
    for (int k = 0; k < COMPARE_KINDS; k++) {
        if (m->count[k] == 0)
            continue;
        double each = m->busy[k] / (double)m->count[k];
        text_add(out, "%4d  %-10s %7lld %12.3f %12.2f %12.2f %8.1f %%\n", r, kind_name[k],
                 (long long)m->count[k], 1e3 * each, 1e3 * m->busy[k], 1e3 * s->busy[k],
                 s->busy[k] > 0 ? 100 * (m->busy[k] / s->busy[k] - 1) : 0);
    }
    text_add(out, "%4d  %-10s %7s %12s %12.2f %12.2f\n", r, "waiting", "", "", 1e3 * m->waiting,
             1e3 * s->waiting);
    text_add(out, "%4d  %-10s %7s %12s %12.2f\n", r, "sending", "", "", 1e3 * m->sending);
    text_add(out, "%4d  %-10s %7s %12s %12.2f\n", r, "sums, step", "", "", 1e3 * m->ending);
}

void compare_text(const struct compare *c, struct text *out)
{
    const struct sched *s = &c->s->sched;
    text_add(out, "%s on %d pipeline rank%s, %d microbatch%s; %lld of %lld step%s, the first "
                  "%lld left out\n",
             s->name, s->p, text_plural(s->p, "s"), s->m,
             text_plural(s->m, "es"), (long long)(c->steps - c->first),
             (long long)c->steps, text_plural(c->steps, "s"), (long long)c->first);
    if (c->cut > 0)
        text_add(out, "the run ended amid a step: %lld byte%s of its records %s left out\n",
                 (long long)c->cut, text_plural(c->cut, "s"), c->cut == 1 ? "is" : "are");
    text_add(out, "\nrank  action     actions  ms an action  measured ms  simulated ms   apart\n");
    for (int r = 0; r < s->p; r++)
        add_kinds(c, r, out);
    text_add(out, "\nMeasured: above the mean of a step; below each figure's median over steps, "
                  "which a\ndisturbed step does not move, and which therefore does not follow "
                  "from the means.\nSimulated: the same list on a clock, each action at its "
                  "median, a message %.3f ms\non its way, one that lies ready fetched in %.3f "
                  "ms.\n\n", 1e3 * c->latency, 1e3 * c->fetch);
    text_add(out, "                    measured    simulated    predicted before the run\n");
    text_add(out, "bubble            %8.2f %%   %8.2f %%   %8.2f %% of the step\n", 100 * c->bubble,
             100 * compare_bubble(c), 100 * c->s->bubble);
    text_add(out, "over ideal time   %8.2f %%   %8.2f %%   %8.2f %%\n",
             100 * sim_over_ideal(c->bubble), 100 * sim_over_ideal(compare_bubble(c)),
             100 * sim_over_ideal(c->s->bubble));
    text_add(out, "first to last    %8.2f ms  %8.2f ms\n", 1e3 * c->makespan,
             1e3 * c->sim.makespan);
    if (c->s->report.ahead)
        text_add(out, "longest rank     %8.2f ms  %8.2f ms   (steps post-validated: the bubble is "
                      "of this)\n", 1e3 * c->longest, 1e3 * c->sim.cost);
}

/* "name": {"F": ..., ...} of one rank. */
static void json_rank(const char *name, const struct compare_rank *m, struct text *out)
{
    text_add(out, "\"%s\": {", name);
    for (int k = 0; k < COMPARE_KINDS; k++)
        text_add(out, "\"%s\": %.9g, ", kind_name[k], m->busy[k]);
    text_add(out, "\"waiting\": %.9g, \"sending\": %.9g, \"ending\": %.9g}", m->waiting, m->sending,
             m->ending);
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
    const double share[] = {c->bubble, compare_bubble(c), c->s->bubble};
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
    text_add(out, " \"bubble_measured\": %.9g, \"bubble_simulated\": %.9g, "
                  "\"bubble_predicted\": %.9g,\n", c->bubble, compare_bubble(c),
             c->s->bubble);
    json_over_ideal(c, out);
    text_add(out, " \"makespan_measured\": %.9g, \"makespan_simulated\": %.9g, "
                  "\"latency\": %.9g, \"fetch\": %.9g,\n \"ranks\": [", c->makespan,
             c->sim.makespan, c->latency, c->fetch);
    for (int r = 0; r < s->p; r++) {
        text_add(out, "%s\n  {\"rank\": %d, ", r ? "," : "", r);
        json_rank("measured", &c->measured[r], out);
        text_add(out, ", ");
        json_rank("simulated", &c->simulated[r], out);
        text_add(out, "}");
    }
    text_add(out, "],\n \"costs\": [");
    for (int i = 0; i < s->stages; i++)
        json_stage(c, i, out);
    text_add(out, "]}\n");
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
        if (input + weight <= 0)
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
