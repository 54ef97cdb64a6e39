/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedules of two chunks a rank in a V: zb-v, v-half, v-min, 1f1b-v. Bubbles and peaks in
 * closed form, published ones where there is none, and the grid of shapes. Their reference lists
 * are in tests/golden/sched.
 */
#include "base/mem.h"
#include "base/num.h"
#include "sched/sched.h"
#include "sim/sim.h"
#include "test.h"
#include "timed.h"

static const struct sim_cost unit = {.tf = 1, .tb = 2, .ti = 1, .tw = 1};
static const char *const names[] = {"zb-v", "v-half", "v-min", "1f1b-v"};
enum { ZB_V, V_HALF, V_MIN, ONE_V, NAMES };

struct played {
    double makespan, cost;
    int most, least; /* peak activations over the ranks, of a chunk */
};

static void check_place(const struct sched *s)
{
    CHECK_INT(s->stages, 2 * s->p);
    for (int stage = 0; stage < s->stages; stage++)
        CHECK_INT(s->place[stage], stage < s->p ? stage : 2 * s->p - 1 - stage);
}

static void play(const char *name, int p, int m, const struct sim_cost *cost, struct played *out)
{
    struct sched made;
    struct timed x;
    *out = (struct played){-1, -1, 0, 0};
    if (!CHECK(sched_make(name, &(struct sched_shape){p, m, 2, 0}, NULL, &made) == ERR_OK))
        return;
    if (timed_play(&made, &(struct sched_lower_args){.reduce = true, .step = true}, cost, &x)) {
        *out = (struct played){x.r.makespan, x.r.cost, x.r.peak[0], x.r.peak[0]};
        for (int rank = 0; rank < p; rank++) {
            out->most = (int)num_max(out->most, x.r.peak[rank]);
            out->least = (int)num_min(out->least, x.r.peak[rank]);
        }
        check_place(&x.made);
    }
    timed_free(&x);
}

/* Idle slots of the makespan with unit costs, for m of 2 p and more. 1f1b-v has no closed form;
 * these are its numbers, -1 where none is published. */
static int idle(int kind, int p)
{
    static const int one_v[] = {0, -1, 4, 8, 15, 18, 22, -1, 33, -1, -1, -1, 52, -1, -1, -1, 75};
    if (kind == V_HALF)
        return p % 2 == 1 ? 3 * p - 4 : p == 2 ? 1 : 3 * p - 7;
    if (kind == V_MIN)
        return p % 3 == 0 ? 4 * p - 7 : 4 * p - 5;
    return kind == ZB_V ? p - 1 : one_v[p];
}

/* Peak activations of a chunk; 1F1B's two thirds have no closed form either. */
static int peak(int kind, int p)
{
    static const int one_v[] = {0, 2, 4, 6, 6, 8, 10, 10, 12, 14, 14, 16, 18, 18, 20, 22, 22};
    if (kind == V_HALF)
        return 2 * ((p + 2) / 2);
    if (kind == V_MIN)
        return 2 * ((p + 4) / 3);
    return kind == ZB_V ? 2 * p : one_v[p];
}

static void closed_forms(void)
{
    for (int kind = 0; kind < NAMES; kind++)
        for (int p = 2; p <= 16; p++)
            for (int m = 2 * p; m <= 3 * p; m += p) {
                struct played x;
                play(names[kind], p, m, &unit, &x);
                if (idle(kind, p) >= 0)
                    test_check(x.makespan == 6 * m + idle(kind, p), __FILE__, __LINE__,
                               "%s p %d m %d: %g idle, wanted %d", names[kind], p, m,
                               x.makespan - 6 * m, idle(kind, p));
                test_check(x.most == peak(kind, p), __FILE__, __LINE__,
                           "%s p %d m %d: peak %d, wanted %d", names[kind], p, m, x.most,
                           peak(kind, p));
                if (kind == ZB_V) /* no bubble at all, and all ranks alike */
                    CHECK(x.cost == 6 * m && x.least == 2 * p);
            }
}

/* Any m: proved, never above the peak, never longer than a microbatch after the other. */
static void grid(void)
{
    for (int kind = 0; kind < NAMES; kind++)
        for (int p = 1; p <= 8; p++)
            for (int m = 1; m <= 3 * p; m++) {
                struct played x;
                int most = p == 1 ? 2 : peak(kind, p); /* a V on one rank keeps both chunks */
                play(names[kind], p, m, &unit, &x);
                CHECK(x.makespan >= 6 * m && x.makespan <= 6.0 * p * m);
                test_check(x.most <= most, __FILE__, __LINE__, "%s p %d m %d: peak %d of %d",
                           names[kind], p, m, x.most, most);
                if (m == 1) /* the V forward and back; v-min turns before its first W */
                    CHECK(x.makespan == (kind == ONE_V ? 6 * p
                                                       : 4 * p + 2 - (kind == V_MIN && p > 1)));
            }
}

/* zb-v's order when I takes longer than W: 2 (p - 1) (ti - tw) a rank, in times of a chunk; and the
 * latency it pays beside that. */
static void zb_v_costs(void)
{
    static const struct {
        int p, m, coefficient;
    } row[] = {{4, 8, 16}, {8, 16, 40}};
    for (int i = 0; i < 2; i++)
        for (int n = 0; n < 2; n++) {
            struct played x;
            struct sim_cost c = {.tf = 1, .tb = 1.62, .ti = 1.02, .tw = .6, .latency = n * .001};
            double work = 2 * row[i].m * 2.62, bubble = 2 * (row[i].p - 1) * .42;
            play("zb-v", row[i].p, row[i].m, &c, &x);
            CHECK_NEAR(x.cost, work + bubble + row[i].coefficient * c.latency, 1e-9);
        }
}

/* Unbalanced times, p 8, m 24: bubble over makespan, three decimals. */
static void unbalanced(void)
{
    static const struct {
        int kind;
        double rate;
    } row[] = {{V_HALF, .149}, {V_MIN, .308}};
    const struct sim_cost c = {.tf = 1, .tb = 2, .ti = 1.2, .tw = .8, .latency = .05};
    for (int i = 0; i < 2; i++) {
        struct played x;
        play(names[row[i].kind], 8, 24, &c, &x);
        CHECK_NEAR((x.makespan - 2 * 24 * 3) / x.makespan, row[i].rate, 0.0005001);
    }
}

/* The ZB-V column of table 8 of Qi et al., "Zero bubble pipeline parallelism", 2023, in times of a
 * chunk in microseconds. It was made for these costs, the order without costs is closed: they are
 * within .0016 of each other, on either side. test_auto.c has the order made for them. */
static void near_published(void)
{
    static const struct {
        int p, m;
        double tf, ti, tw, tc, rate;
    } row[] = {
        {16, 48, 14407, 14380, 9676, 1610, .0697}, {16, 64, 14412, 14393, 9688, 1621, .0533},
        {16, 128, 14316, 14306, 9639, 1619, .0274}, {24, 72, 6763, 6969, 5251, 755, .0638},
        {24, 96, 6783, 6984, 5259, 758, .0483}, {24, 192, 6785, 6990, 5260, 770, .0250},
        {32, 96, 9458, 9748, 7288, 879, .0593}, {32, 128, 9469, 9744, 7306, 892, .0451},
        {32, 256, 9447, 9644, 7193, 887, .0236},
    };
    int above = 0;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct played x;
        struct sim_cost c = {.tf = row[i].tf, .tb = row[i].ti + row[i].tw, .ti = row[i].ti,
                             .tw = row[i].tw, .latency = row[i].tc};
        play("zb-v", row[i].p, row[i].m, &c, &x);
        double rate = (x.cost - 2 * row[i].m * (c.tf + c.tb)) / x.cost;
        CHECK_NEAR(rate, row[i].rate, 0.0016);
        above += rate > row[i].rate;
    }
    CHECK_INT(above, 3);
}

static void refused(void)
{
    struct sched s;
    for (int kind = 0; kind < NAMES; kind++)
        for (int v = 1; v <= 3; v += 2) {
            char want[96];
            snprintf(want, sizeof want, "schedule %s: v %d, but it runs two chunks a rank; use v 2",
                     names[kind], v);
            CHECK_ERR(sched_make(names[kind], &(struct sched_shape){4, 8, v, 0}, NULL, &s),
                      ERR_CONFIG, want);
        }
}

static const struct test_case cases[] = {
    {"closed_forms", closed_forms},
    {"grid", grid},
    {"zb_v_costs", zb_v_costs},
    {"unbalanced", unbalanced},
    {"near_published", near_published},
    {"refused", refused},
};
TEST_MAIN(cases)
