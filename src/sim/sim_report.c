/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulated step for programs (JSON) and as a table. Pictures are made by draw/, from what
 * sim_picture.c takes out of a result.
 */
#include "sim/sim.h"

#include <math.h>
#include <stdio.h>

static const char op_letter[] = {'F', 'B', 'I', 'W', 'R'};

double sim_over_ideal(double share)
{
    return share < 1 ? share / (1 - share) : INFINITY;
}

const char *sim_bubble_words(double share, int decimals, char buf[SIM_BUBBLE_MAX])
{
    share = fmax(share, 0); /* rounding may leave less */
    snprintf(buf, SIM_BUBBLE_MAX, "%.*f %% of the step (%.*f %% over ideal time)", decimals,
             100 * share, decimals, 100 * sim_over_ideal(share));
    return buf;
}

/* The shortest decimal form that reads back as the same double. */
static void add_number(struct text *out, double x)
{
    char s[32];
    text_add(out, "%s", isfinite(x) ? text_real(x, 6, s) : "null");
}

/* Actions that take time, as the text form writes them; a pair is met at its OVERLAP_F_B. */
static void json_timeline(const struct sched *s, const struct sim_result *r, struct text *out)
{
    const char *between = "";
    text_add(out, ",\n  \"timeline\": [");
    for (int rank = 0; rank < s->p; rank++) {
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            const struct sched_instr *in = &s->instr[i];
            const struct sim_event *e = &r->event[i];
            bool pair = in->op == SCHED_OVERLAP_F_B;
            if (!pair && in->op >= SCHED_COMPUTE_OPS)
                continue;
            text_add(out, "%s\n    {\"rank\": %d, \"action\": \"", between, rank);
            if (pair)
                text_add(out, "(%dF%d;%dB%d)OVERLAP_F_B", in[1].stage, in[1].mb, in[2].stage,
                         in[2].mb);
            else
                text_add(out, "%d%c%d", in->stage, op_letter[in->op], in->mb);
            text_add(out, "\", \"start\": ");
            add_number(out, e->start);
            text_add(out, ", \"end\": ");
            add_number(out, e->end);
            text_add(out, "}");
            between = ",";
            i += pair ? 2 : 0;
        }
    }
    text_add(out, "\n  ]");
}

static void json_counts(const char *key, const int *value, int n, struct text *out)
{
    text_add(out, ",\n  \"%s\": [", key);
    for (int i = 0; i < n; i++)
        text_add(out, "%s%d", i ? ", " : "", value[i]);
    text_add(out, "]");
}

/* Of all ranks together. */
static double total(const struct sim_result *r, const double *value)
{
    double sum = 0;
    for (int rank = 0; rank < r->p; rank++)
        sum += value[rank];
    return sum;
}

void sim_json(const struct sched *s, const struct sim_result *r, struct text *out)
{
    const struct { const char *key; double value; } number[] = {
        {"makespan", r->makespan}, {"cost", r->cost},
        {"bubble_fraction", r->bubble_fraction}, {"bubble_rate", r->bubble_rate},
        {"bubble_over_ideal", sim_over_ideal(r->bubble_fraction)},
        {"rate_over_ideal", sim_over_ideal(r->bubble_rate)}, {"step", r->step}};
    const struct { const char *key; const double *value; } ranks[] = {
        {"busy", r->busy}, {"waiting", r->waiting}, {"message", r->message},
        {"sending", r->sending}, {"sums", r->sums}, {"exposed", r->exposed},
        {"meeting", r->meeting}, {"updating", r->updating}, {"inside", r->inside},
        {"inside_exposed", r->inside_exposed}};
    bool ends = r->step > r->makespan, inside = total(r, r->inside) > 0;
    text_add(out, "{\n  \"schedule\": ");
    text_add_json(out, s->name);
    text_add(out, ",\n  \"p\": %d,\n  \"m\": %d,\n  \"v\": %d", s->p, s->m / s->slices, s->v);
    if (s->slices > 1)
        text_add(out, ",\n  \"slices\": %d", s->slices);
    for (int i = 0; i < (ends ? 7 : 6); i++) {
        text_add(out, ",\n  \"%s\": ", number[i].key);
        add_number(out, number[i].value);
    }
    for (int i = 0; i < (inside ? 10 : 8); i++) {
        if (!ends && i >= 4 && i < 8) /* costs of the end */
            continue;
        text_add(out, ",\n  \"%s\": [", ranks[i].key);
        for (int rank = 0; rank < s->p; rank++) {
            text_add(out, "%s", rank ? ", " : "");
            add_number(out, ranks[i].value[rank]);
        }
        text_add(out, "]");
    }
    json_counts("peak_activations", r->peak, s->p, out);
    json_counts("peak_full", r->full_peak, s->p, out);
    text_add(out, ",\n  \"actions\": %lld", (long long)r->actions);
    const char *between = ",\n  \"passed_over\": {";
    for (int i = 0; i < SCHED_PASSED_OPS; i++) {
        if (s->passed[i] == 0)
            continue;
        text_add(out, "%s\"%s\": %lld", between, sched_passed_name((enum sched_passed)i),
                 (long long)s->passed[i]);
        between = ", ";
    }
    if (sched_passed_any(s))
        text_add(out, "}");
    if (r->event)
        json_timeline(s, r, out);
    text_add(out, "\n}\n");
}

void sim_summary(const struct sched *s, const struct sim_result *r, struct text *out)
{
    char slices[32] = "", words[SIM_BUBBLE_MAX];
    int m = s->m / s->slices;
    if (s->slices > 1)
        snprintf(slices, sizeof slices, " of %d slices", s->slices);
    bool again = sched_has(s, SCHED_R);
    text_add(out, "schedule  %s%s: %d rank%s, %d microbatch%s%s, %d chunk%s a rank%s%s\n", s->name,
             again ? " with recompute" : "", s->p, text_plural(s->p, "s"), m,
             text_plural(m, "es"), slices, s->v, text_plural(s->v, "s"),
             s->replicas > 1 ? " of each of two replicas" : "",
             s->forward_only ? ", forward only" : "");
    if (sched_lacks_chunks(s->name, s->p, s->v))
        text_add(out, "warning   %s gains by several chunks a rank, and has one; -v 2 makes two\n",
                 s->name);
    text_add(out, "makespan  %.6g\n", r->makespan);
    text_add(out, "cost      %.6g (longest time of one rank from its first to its last action)\n",
             r->cost);
    if (r->step > r->makespan)
        text_add(out, "step      %.6g (to the end of its last update)\n", r->step);
    double inside = total(r, r->inside) / r->p, exposed = total(r, r->inside_exposed) / r->p;
    if (inside > 0)
        text_add(out, "inside    %.6g of %.6g exposed, %.2f %% of the step (collectives inside "
                      "actions, of tensor\n          ranks; mean of ranks)\n",
                 exposed, inside, 100 * exposed / fmax(r->step, r->makespan));
    text_add(out, "bubble    %s\n", sim_bubble_words(r->bubble_fraction, 2, words));
    text_add(out, "rate      %.2f %% of the cost (%.2f %% over ideal time)\n", 100 * r->bubble_rate,
             100 * sim_over_ideal(r->bubble_rate));
    text_add(out, "actions   %lld\n", (long long)r->actions);
    if (sched_passed_any(s)) {
        text_add(out, "passed over ");
        sched_passed_add(s, out);
        text_add(out, "\n");
    }
    text_add(out, "\n");
    text_add(out, "%5s %10s %10s %10s %10s %10s %10s %10s %8s %12s%s\n", "rank", "busy", "waiting",
             "message", "sending", "first", "last", "idle", "idle %", "activations",
             again ? "    in full" : "");
    for (int rank = 0; rank < s->p; rank++) {
        double idle = r->makespan - r->busy[rank];
        text_add(out, "%5d %10.6g %10.6g %10.6g %10.6g %10.6g %10.6g %10.6g %8.2f %12d", rank,
                 r->busy[rank], r->waiting[rank], r->message[rank], r->sending[rank],
                 r->first[rank], r->last[rank], idle,
                 r->makespan > 0 ? 100 * idle / r->makespan : 0, r->peak[rank]);
        if (again)
            text_add(out, " %10d", r->full_peak[rank]);
        text_add(out, "\n");
    }
    text_add(out, "\nidle is waiting for work + for messages on their way + after the last action; "
                  "sending is beside it\n");
    if (again)
        text_add(out, "in full: of the activations, those kept with all that their forward saves; "
                      "of the others\nonly what a recompute starts from is kept\n");
    if (r->step <= r->makespan)
        return;
    text_add(out, "\n%5s %10s %10s %10s %10s\n", "rank", "sums", "exposed", "meeting", "updating");
    for (int rank = 0; rank < r->p; rank++)
        text_add(out, "%5d %10.6g %10.6g %10.6g %10.6g\n", rank, r->sums[rank], r->exposed[rank],
                 r->meeting[rank], r->updating[rank]);
    text_add(out, "\nsums, and gathers, run beside the actions, but for what is exposed at WAIT; "
                  "meeting is in EMBED_REDUCE,\nREPLICA_REDUCE and NORM, and for the others there; "
                  "updating of weights\n");
}
