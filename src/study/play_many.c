/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules beside one another: the same model, the same ranks and microbatches, one line each.
 * A schedule with v chunks a rank cuts the model finer, so its actions take 1/v of the times given
 * and its activations count 1/v; without that, more chunks would look like more work.
 */
#include "study/play.h"

#include "base/mem.h"
#include "base/num.h"
#include <stdio.h>
#include <string.h>

/* ---- the table ---- */

static int microbatches(const struct sched *s)
{
    return s->m / s->slices;
}

static void add_table(const struct played *x, int n, struct text *out)
{
    int width = 8, m = microbatches(x[0].s);
    bool ends = false, insides = false; /* said where some schedule has it */
    for (int i = 0; i < n; i++) {
        ends = ends || x[i].result.step > x[i].result.makespan;
        insides = insides || x[i].cost.inside;
        width = (int)num_max(width, (int64_t)strlen(x[i].s->name));
    }
    text_add(out, "%d rank%s, %d microbatch%s; times and activations of a rank's share of the "
                  "model;\nthe bubble as a share of the step, and over ideal time\n\n", x[0].s->p,
             text_plural(x[0].s->p, "s"), m, text_plural(m, "es"));
    text_add(out, "%-*s %3s %10s%s %10s %9s %12s %7s %9s %9s%s %12s %9s %9s\n", width, "schedule",
             "v", "makespan", ends ? "       step" : "", "cost", "bubble %", "over ideal %",
             "rate %", "waiting %", "message %", insides ? "  inside %" : "", "activations",
             "messages", "replicas");
    for (int i = 0; i < n; i++) {
        const struct sched *s = x[i].s;
        const struct sim_result *r = &x[i].result;
        double waiting = 0, message = 0, inside = 0, all = r->p * r->makespan;
        char step[32] = "", exposed[32] = "";
        int64_t messages = 0;
        for (int64_t k = 0; k < s->begin[s->p]; k++)
            messages += s->instr[k].op == SCHED_SEND_F || s->instr[k].op == SCHED_SEND_B;
        for (int rank = 0; rank < r->p; rank++) {
            waiting += r->waiting[rank];
            message += r->message[rank];
            inside += r->inside_exposed[rank];
        }
        if (ends)
            snprintf(step, sizeof step, " %10.6g", r->step);
        if (insides)
            snprintf(exposed, sizeof exposed, " %9.2f", all > 0 ? 100 * inside / all : 0);
        text_add(out, "%-*s %3d %10.6g%s %10.6g %9.2f %12.2f %7.2f %9.2f %9.2f%s %12.4g %9lld "
                      "%9d\n", width, s->name, s->v, r->makespan, step, r->cost,
                 100 * r->bubble_fraction, 100 * sim_over_ideal(r->bubble_fraction),
                 100 * r->bubble_rate, all > 0 ? 100 * waiting / all : 0,
                 all > 0 ? 100 * message / all : 0, exposed, play_kept(&x[i]), (long long)messages,
                 s->replicas);
    }
    for (int i = 0; i < n; i++)
        if (sched_lacks_chunks(x[i].s->name, x[i].s->p, x[i].s->v))
            text_add(out, "warning: %s gains by several chunks a rank, and has one; %s@2 makes "
                          "two\n", x[i].s->name, x[i].s->name);
    for (int i = 0; i < n; i++) {
        if (!sched_passed_any(x[i].s))
            continue;
        text_add(out, "%s: passed over ", x[i].s->name);
        sched_passed_add(x[i].s, out);
        text_add(out, "\n");
    }
}

/* ---- all ---- */

static enum err compare(const struct plait_sim *a, int format, struct played *x,
                        const struct play_list *l, struct text *out)
{
    bool events = format == PLAY_GANTT || format == PLAY_JSON || play_wants_files(a);
    int64_t units = 0; /* of the schedules before: all are kept until the end */
    for (int i = 0; i < l->n; i++) {
        struct play_args one = play_one_of(a, l->name[i]);
        one.p = a->p;
        one.m = a->m;
        one.v = l->v[i] ? l->v[i] : a->v;
        one.events = events;
        TRY(play_fits(&one, (int)num_max(one.v, 1), units));
        TRY(play_make(&one, &x[i]));
        units += (int64_t)x[i].s->stages * x[i].s->m;
        if (x[i].s->p != x[0].s->p || microbatches(x[i].s) != microbatches(x[0].s))
            return err_set(ERR_CONFIG, __FILE__, __LINE__, "simulation: %.64s has %d rank%s and %d "
                           "microbatch%s, and %.64s %d and %d; only the same numbers can be "
                           "compared", l->name[i], x[i].s->p, text_plural(x[i].s->p, "s"),
                           microbatches(x[i].s), text_plural(microbatches(x[i].s), "es"),
                           l->name[0], x[0].s->p, microbatches(x[0].s));
    }
    if (play_wants_files(a))
        TRY(play_files(a, x, l->n));
    if (format == PLAY_JSON) {
        for (int i = 0; i < l->n; i++) {
            text_add(out, i ? ",\n" : "[\n");
            sim_json(x[i].s, &x[i].result, out);
        }
        text_add(out, "]\n");
        return ERR_OK;
    }
    add_table(x, l->n, out);
    if (format != PLAY_GANTT)
        return ERR_OK;
    text_add(out, "\n");
    return play_gantt(a, x, l->n, out);
}

enum err play_compare(const struct plait_sim *a, int format, struct text *out)
{
    struct play_list l;
    struct played *x = NULL;
    if (format == PLAY_TEXT || format == PLAY_LOWERED)
        FAIL(ERR_CONFIG, "simulation: format %s prints one schedule; with compare use summary, "
                         "gantt or json", format == PLAY_TEXT ? "text" : "lowered");
    if (a->scale || a->costs)
        FAIL(ERR_CONFIG, "simulation: scale and costs belong to the stages of one schedule; with "
                         "compare use tf, tb, ti, tw or a model");
    enum err err = play_list_make("compare", a->compare, &l);
    if (err == ERR_OK)
        err = mem_new(l.n, sizeof *x, "schedules", &x);
    if (err == ERR_OK)
        err = compare(a, format, x, &l, out);
    for (int i = 0; x && i < l.n; i++)
        play_free(&x[i]);
    mem_free(x);
    play_list_free(&l);
    return err;
}
