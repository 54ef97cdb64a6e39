/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast schedules are made, lowered, proved and played, on one core.
 *
 *     bench_sim [P M]      default: 64 1024, then 512 4096
 */
#include "sim/sim.h"

#include "base/log.h"
#include <stdio.h>

enum { REPEATS = 5, SLICES = 4 };

struct times {
    double make, lower, check, play;
    int64_t actions;
};

static void keep_best(double *best, double start)
{
    double t = log_now() - start;
    if (*best == 0 || t < *best)
        *best = t;
}

/* Where microbatches are cut into slices there are fewer of them, so that the units are as many. */
static enum err make(const char *name, const struct sched_shape *shape, struct sched *out)
{
    struct sched_shape few = *shape;
    few.m = few.m / SLICES + 1;
    if (sched_kind_find(name)->make_sliced)
        return sched_make_sliced(name, &few, SLICES, out);
    return sched_make(name, shape, NULL, out);
}

static enum err once(const char *name, const struct sched_shape *shape, struct times *t)
{
    struct sched made = {0}, s = {0};
    struct sched_report report = {0};
    struct sim_result r = {0};
    struct sim_cost cost = {.tf = 1, .tb = 2, .ti = 1, .tw = 1, .latency = 0.01};
    enum err err = ERR_OK;
    double start = log_now();
    TRY_OR(out_free, make(name, shape, &made));
    keep_best(&t->make, start);
    start = log_now();
    TRY_OR(out_free, sched_lower(&made, &(struct sched_lower_args){.step = true}, &s));
    keep_best(&t->lower, start);
    start = log_now();
    TRY_OR(out_free, sched_check(&s, &report));
    keep_best(&t->check, start);
    start = log_now();
    TRY_OR(out_free, sim_run(&s, &report, &cost, false, &r));
    keep_best(&t->play, start);
    t->actions = r.actions;
out_free:
    sched_free(&made);
    sched_free(&s);
    sched_report_free(&report);
    sim_result_free(&r);
    return err;
}

static int measure(const struct sched_shape *shape)
{
    for (int i = 0; i < sched_kind_count(); i++) {
        const char *name = sched_kind_at(i)->name;
        struct sched_shape own = *shape;
        struct times t = {0};
        if (sched_kind_at(i)->chunks)
            own.v = sched_kind_at(i)->chunks;
        for (int n = 0; n < REPEATS; n++) {
            enum err err = once(name, &own, &t);
            if (err != ERR_OK) {
                fprintf(stderr, "bench_sim: %s\n", err_text());
                return (int)err;
            }
        }
        printf("%-10s p %4d m %5d: make %8.2f ms, lower %8.2f ms, check %8.2f ms, play %8.2f ms, "
               "%6.1f M actions/s\n",
               name, shape->p, shape->m, 1e3 * t.make, 1e3 * t.lower, 1e3 * t.check, 1e3 * t.play,
               1e-6 * (double)t.actions / t.play);
    }
    return 0;
}

int main(int argc, char **argv)
{
    int64_t p, m;
    if (argc == 3 && text_to_int(argv[1], &p) && text_to_int(argv[2], &m))
        return measure(&(struct sched_shape){(int)p, (int)m, 1, 0});
    int code = measure(&(struct sched_shape){64, 1024, 1, 0});
    return code ? code : measure(&(struct sched_shape){512, 4096, 1, 0});
}
