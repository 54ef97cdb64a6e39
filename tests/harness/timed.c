/* SPDX-License-Identifier: Apache-2.0
 *
 * The message of a failure has the schedule's name and shape, for callers walk over grids of them.
 */
#include "timed.h"

#include "test.h"

bool timed_play(struct sched *made, const struct sched_lower_args *ends,
                const struct sim_cost *cost, struct timed *out)
{
    *out = (struct timed){.made = *made};
    *made = (struct sched){0};
    enum err err = sched_lower(&out->made, ends, &out->s);
    if (err == ERR_OK)
        err = sched_check(&out->s, &out->report);
    if (err == ERR_OK)
        err = sim_run(&out->s, &out->report, cost, true, &out->r);
    return test_check(err == ERR_OK, __FILE__, __LINE__, "%s p %d m %d v %d: %s", out->made.name,
                      out->made.p, out->made.m, out->made.v, err_text());
}

void timed_free(struct timed *x)
{
    sim_result_free(&x->r);
    sched_report_free(&x->report);
    sched_free(&x->s);
    sched_free(&x->made);
}

void timed_gantt(const struct sched *s, const struct sim_result *r, int width, bool color,
                 struct text *out)
{
    struct sim_picture p;
    CHECK_OK(sim_picture_make(s, r, &(struct sim_cost){0}, NULL, &p));
    CHECK_OK(draw_gantt(&(struct draw_page){.time_unit = "", .chart = &p.chart, .charts = 1}, width,
                        color, out));
    sim_picture_free(&p);
}
