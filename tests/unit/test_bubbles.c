/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaved, looped and zero-bubble schedules on the clock: closed forms, published figures, what
 * latency costs. The simulator has no formulas in it.
 */
#include "base/num.h"
#include "sim/sim.h"
#include "test.h"
#include "timed.h"

static bool play(const char *name, struct sched_shape shape, const struct sim_cost *cost,
                 struct timed *x)
{
    struct sched made;
    *x = (struct timed){0};
    if (!CHECK(sched_make(name, &shape, NULL, &made) == ERR_OK))
        return false;
    return timed_play(&made, &(struct sched_lower_args){.step = true}, cost, x);
}

static const struct sim_cost unit = {.tf = 1, .tb = 2, .ti = 1, .tw = 1};
/* Halves of unequal times, as they are measured; exact in binary. */
static const struct sim_cost uneven = {.tf = 1.25, .tb = 2.125, .ti = 1.375, .tw = 0.75};

/* ---- closed forms ---- */

/* Is the last group of an interleaved schedule one that costs nothing? */
static bool whole_groups(int p, int m, int group)
{
    int rest = m % group;
    return m >= p && (rest == 0 || rest >= p);
}

/* A rank idles (p - 1)(tf + tb) in times of a chunk, which are a v-th of its whole times. */
static void check_looped(const char *name, struct sched_shape shape, const struct sim_cost *cost)
{
    struct timed x;
    double both = cost->tf + cost->tb, work = both * shape.m * shape.v;
    if (play(name, shape, cost, &x)) {
        test_check(x.r.makespan == work + (shape.p - 1) * both, __FILE__, __LINE__,
                   "%s p %d m %d v %d group %d: makespan %g", name, shape.p, shape.m, shape.v,
                   shape.group, x.r.makespan);
        for (int rank = 0; rank < shape.p; rank++)
            CHECK(x.r.busy[rank] == work);
    }
    timed_free(&x);
}

static void looped_bubbles(void)
{
    for (int p = 1; p <= 8; p++)
        for (int m = p; m <= 3 * p; m++)
            for (int v = 1; v <= 4; v++) {
                check_looped("looped-bfs", (struct sched_shape){p, m, v, 0}, &unit);
                check_looped("looped-bfs", (struct sched_shape){p, m, v, 0}, &uneven);
                for (int group = p; group <= m; group++)
                    if (whole_groups(p, m, group))
                        check_looped("interleaved", (struct sched_shape){p, m, v, group}, &unit);
            }
}

/* A group that leaves fewer than p microbatches costs gaps, and another group mends it. */
static void short_groups(void)
{
    struct timed x;
    if (play("interleaved", (struct sched_shape){4, 9, 2, 0}, &unit, &x))
        CHECK(x.r.makespan == 69);
    timed_free(&x);
    if (play("interleaved", (struct sched_shape){4, 9, 2, 5}, &unit, &x))
        CHECK(x.r.makespan == 63);
    timed_free(&x);
}

/* Table 2 of Qi et al., 2023: bubbles (p - 1)(tf + ti - tw) of ZB-H1 and (p - 1)(tf + ti - 2 tw) of
 * ZB-H2, the latter counted from a rank's first action to its last; activations p and 2p - 1. */
static void zero_bubbles(void)
{
    static const struct sim_cost *const costs[] = {&unit, &uneven};
    for (int k = 0; k < 2; k++)
        for (int p = 1; p <= 16; p++)
            for (int m = p; m <= 4 * p; m++) {
                const struct sim_cost *c = costs[k];
                double work = m * (c->tf + c->ti + c->tw);
                struct timed x;
                if (play("zb-h1", (struct sched_shape){p, m, 1, 0}, c, &x)) {
                    CHECK_NEAR(x.r.makespan - work, (p - 1) * (c->tf + c->ti - c->tw), 1e-9);
                    CHECK_INT(x.r.peak[0], p);
                    CHECK_INT(x.r.peak[p - 1], p);
                }
                timed_free(&x);
                bool deep = m >= 2 * p - 1;
                if (deep && play("zb-h2", (struct sched_shape){p, m, 1, 0}, c, &x)) {
                    CHECK_NEAR(x.r.cost - work, (p - 1) * (c->tf + c->ti - 2 * c->tw), 1e-9);
                    CHECK_INT(x.r.peak[0], 2 * p - 1);
                    CHECK_INT(x.r.peak[p - 1], 2 * p - 1);
                }
                timed_free(&x);
            }
}

/* With few microbatches there is nothing to fill gaps with: (m + p - 1)(tf + ti) + tw. */
static void few_microbatches(void)
{
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= p; m++) {
            struct timed x;
            if (play("zb-h1", (struct sched_shape){p, m, 1, 0}, &uneven, &x))
                CHECK(x.r.makespan == (m + p - 1) * (uneven.tf + uneven.ti) + uneven.tw);
            timed_free(&x);
        }
}

/* Makespan and longest rank with all times 1, (p, m) = (4, 8) and (8, 16). */
static void unit_figures(void)
{
    static const struct {
        const char *name;
        int v;
        double makespan[2], cost[2];
    } row[] = {
        {"1f1b", 1, {33, 69}, {33, 69}},
        {"zb-h1", 1, {27, 55}, {27, 55}},
        {"zb-h2", 1, {27, 55}, {24, 48}},
        {"interleaved", 2, {57, 117}, {57, 117}},
        {"interleaved", 3, {81, 165}, {81, 165}},
        {"looped-bfs", 2, {57, 117}, {57, 117}},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int big = 0; big < 2; big++) {
            struct timed x;
            if (play(row[i].name, (struct sched_shape){4 << big, 8 << big, row[i].v, 0}, &unit, &x))
                CHECK(x.r.makespan == row[i].makespan[big] && x.r.cost == row[i].cost[big]);
            timed_free(&x);
        }
}

/* ---- latency ---- */

/* What a hop of latency c adds, as a number of hops: to the makespan, of ZB-H2 to the longest
 * rank. The times are those at which the coefficients were found. */
static double hops(const char *name, struct sched_shape shape)
{
    struct sim_cost cost = {.tf = 1, .tb = 1.625, .ti = 1.03125, .tw = 0.59375};
    const double c = 0x1p-10;
    double time[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        struct timed x;
        cost.latency = k * c;
        if (play(name, shape, &cost, &x))
            time[k] = strcmp(name, "zb-h2") == 0 ? x.r.cost : x.r.makespan;
        timed_free(&x);
    }
    return (time[1] - time[0]) / c;
}

static void latency(void)
{
    static const int shape[][2] = {{4, 8}, {8, 24}, {8, 32}, {8, 64}, {16, 48}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        int p = shape[i][0], m = shape[i][1];
        for (int v = 2; v <= 3; v++)
            CHECK_NEAR(hops("interleaved", (struct sched_shape){p, m, v, 0}), 2 * (v * p - 1),
                       1e-6);
        CHECK_NEAR(hops("zb-h1", (struct sched_shape){p, m, 1, 0}), 4 * (p - 1), 1e-6);
        CHECK_NEAR(hops("zb-h2", (struct sched_shape){p, m, 1, 0}), 2 * (p - 1), 1e-6);
    }
    for (int p = 4; p <= 8; p += 4)
        for (int v = 2; v <= 3; v++)
            CHECK_NEAR(hops("looped-bfs", (struct sched_shape){p, 2 * p, v, 0}), 2 * (p - 1), 1e-6);
}

/* ---- published rates: (cost - m(tf + ti + tw)) / cost to four decimals ---- */

static double rate(const char *name, struct sched_shape shape, const struct sim_cost *cost)
{
    struct timed x;
    double got = NAN;
    if (play(name, shape, cost, &x)) {
        double work = shape.m * shape.v * (cost->tf + cost->ti + cost->tw);
        got = (x.r.cost - work) / x.r.cost;
    }
    timed_free(&x);
    return got;
}

static struct sim_cost times(double tf, double ti, double tw, double scale, double latency)
{
    return (struct sim_cost){.tf = tf * scale, .tb = (ti + tw) * scale, .ti = ti * scale,
                             .tw = tw * scale, .latency = latency};
}

/* The rate published for interleaved 1F1B in both tables is a formula, not the course of its order:
 * (p - 1) T / v for the bubble and one message a hop less than the order pays. */
static double formula(struct sched_shape x, double all, double tc)
{
    double cost = x.m * all + (x.p - 1) * all / x.v + ((2 * x.v - 1) * x.p - 2) * tc;
    return (cost - x.m * all) / cost;
}

/* Table 5 of Qi et al., 2023, from the measured times in its table 9, milliseconds of a whole rank;
 * what the order of interleaved 1F1B itself takes stands last. */
static void table5(void)
{
    static const struct {
        struct sched_shape x;
        double tf, ti, tw, tc, said, h1, h2, interleaved;
    } row[] = {
        {{8, 24, 3, 0}, 18.522, 18.086, 9.337, .601, .1055, .1585, .1083, .1090},
        {{8, 32, 3, 0}, 18.513, 18.086, 9.331, .626, .0818, .1242, .0837, .0847},
        {{8, 64, 3, 0}, 18.546, 18.097, 9.321, .762, .0443, .0674, .0444, .0461},
        {{8, 24, 4, 0}, 29.718, 29.444, 19.927, .527, .0808, .1323, .0698, .0827},
        {{8, 32, 4, 0}, 29.802, 29.428, 19.530, .577, .0628, .1045, .0559, .0644},
        {{8, 64, 4, 0}, 29.935, 29.621, 19.388, .535, .0320, .0554, .0294, .0328},
        {{16, 48, 3, 0}, 11.347, 11.248, 8.132, .377, .1104, .1397, .0672, .1136},
        {{16, 64, 3, 0}, 11.307, 11.254, 8.101, .379, .0852, .1088, .0516, .0878},
        {{16, 128, 3, 0}, 11.325, 11.308, 8.109, .378, .0445, .0576, .0266, .0459},
        {{32, 96, 2, 0}, 10.419, 10.207, 7.715, .408, .1493, .1421, .0641, .1528},
        {{32, 128, 2, 0}, 10.408, 10.204, 7.703, .408, .1164, .1106, .0490, .1192},
        {{32, 256, 2, 0}, 10.402, 10.248, 7.698, .460, .0624, .0594, .0257, .0641},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct sched_shape x = row[i].x, one = {x.p, x.m, 1, 0};
        struct sim_cost whole = times(row[i].tf, row[i].ti, row[i].tw, 1, row[i].tc);
        struct sim_cost chunk = times(row[i].tf, row[i].ti, row[i].tw, 1.0 / x.v, row[i].tc);
        CHECK_NEAR(rate("zb-h1", one, &whole), row[i].h1, 0.00005001);
        CHECK_NEAR(rate("zb-h2", one, &whole), row[i].h2, 0.00005001);
        CHECK_NEAR(rate("interleaved", x, &chunk), row[i].interleaved, 0.00005001);
        CHECK_NEAR(formula(x, row[i].tf + row[i].ti + row[i].tw, row[i].tc), row[i].said,
                   0.00005001);
    }
}

/* Table 8 of the same: microseconds of one chunk of two a rank. */
static void table8(void)
{
    static const struct {
        struct sched_shape x;
        double tf, ti, tw, tc, f1b1, said, h1, h2;
    } row[] = {
        {{16, 48, 2, 0}, 14407, 14380, 9676, 1610, .2668, .1499, .1536, .0823},
        {{16, 64, 2, 0}, 14412, 14393, 9688, 1621, .2206, .1169, .1198, .0630},
        {{16, 128, 2, 0}, 14316, 14306, 9639, 1619, .1390, .0621, .0637, .0325},
        {{24, 72, 2, 0}, 6763, 6969, 5251, 755, .2699, .1519, .1439, .0628},
        {{24, 96, 2, 0}, 6783, 6984, 5259, 758, .2229, .1184, .1121, .0480},
        {{24, 192, 2, 0}, 6785, 6990, 5260, 770, .1403, .0630, .0595, .0247},
        {{32, 96, 2, 0}, 9458, 9748, 7288, 879, .2676, .1509, .1429, .0629},
        {{32, 128, 2, 0}, 9469, 9744, 7306, 892, .2204, .1177, .1111, .0478},
        {{32, 256, 2, 0}, 9447, 9644, 7193, 887, .1362, .0626, .0593, .0251},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct sched_shape x = row[i].x, one = {x.p, x.m, 1, 0};
        struct sim_cost whole = times(row[i].tf, row[i].ti, row[i].tw, 2, row[i].tc);
        CHECK_NEAR(rate("1f1b", one, &whole), row[i].f1b1, 0.00005001);
        CHECK_NEAR(rate("zb-h1", one, &whole), row[i].h1, 0.00005001);
        CHECK_NEAR(rate("zb-h2", one, &whole), row[i].h2, 0.00005001);
        CHECK_NEAR(formula(x, whole.tf + whole.ti + whole.tw, row[i].tc), row[i].said, 0.00005001);
    }
}

static int sends(const struct timed *x)
{
    int n = 0;
    for (int64_t i = 0; i < x->s.begin[x->s.p]; i++)
        n += x->s.instr[i].op == SCHED_SEND_F || x->s.instr[i].op == SCHED_SEND_B;
    return n;
}

/* Of the zero-bubble and the Megatron authors: with equal times the rate of 1F1B is B = (p - 1) /
 * (m + p - 1), that of ZB-H1 a third of its idle time and of ZB-H2 none; interleaving makes idle
 * time (p - 1) / (v m) of the work. As many messages as 1F1B, and v times as many and more. */
static void relations(void)
{
    for (int p = 2; p <= 8; p *= 2) {
        int m = 3 * p;
        struct timed x;
        if (play("1f1b", (struct sched_shape){p, m, 1, 0}, &unit, &x)) {
            CHECK_NEAR(x.r.bubble_fraction, (p - 1.0) / (m + p - 1), 1e-15);
            CHECK_INT(sends(&x), 2 * m * (p - 1));
        }
        timed_free(&x);
        if (play("zb-h1", (struct sched_shape){p, m, 1, 0}, &unit, &x)) {
            CHECK(3 * (x.r.makespan - 3 * m) == 3 * (p - 1)); /* 1F1B idles 3 (p - 1) */
            CHECK_INT(sends(&x), 2 * m * (p - 1));
        }
        timed_free(&x);
        if (play("zb-h2", (struct sched_shape){p, m, 1, 0}, &unit, &x)) {
            CHECK(x.r.cost == 3 * m);
            CHECK_INT(sends(&x), 2 * m * (p - 1));
        }
        timed_free(&x);
        for (int v = 1; v <= 4; v++) {
            if (play("interleaved", (struct sched_shape){p, m, v, 0}, &unit, &x)) {
                double work = 3.0 * m * v;
                CHECK_NEAR((x.r.makespan - work) / work, (p - 1.0) / (v * m), 1e-15);
                CHECK_INT(sends(&x), 2 * m * (p * v - 1));
            }
            timed_free(&x);
        }
    }
}

/* ---- any shape ---- */

/* A rank does all its work and no more, in its list's order, and never two things at once; a
 * microbatch is not back sooner than its way takes. */
static void check_invariants(const char *name, struct sched_shape shape)
{
    struct timed x;
    if (play(name, shape, &uneven, &x)) {
        double work = shape.m * shape.v * (uneven.tf + uneven.tb);
        double way = shape.p * shape.v * (uneven.tf + uneven.ti);
        CHECK(x.r.makespan >= work && x.r.makespan >= way && x.r.cost <= x.r.makespan);
        CHECK(x.r.bubble_fraction >= 0 && x.r.bubble_fraction < 1);
        for (int rank = 0; rank < shape.p; rank++) {
            double clock = 0;
            CHECK_NEAR(x.r.busy[rank], work, 1e-9);
            for (int64_t i = x.s.begin[rank]; i < x.s.begin[rank + 1]; i++)
                if (x.s.instr[i].op <= SCHED_W) {
                    CHECK(x.r.event[i].start >= clock);
                    clock = x.r.event[i].end;
                }
            CHECK(clock == x.r.last[rank]);
        }
    }
    timed_free(&x);
}

static void invariants(void)
{
    static const struct {
        const char *name;
        int v;
    } kind[] = {{"interleaved", 4}, {"looped-bfs", 4}, {"zb-h1", 1}, {"zb-h2", 1}};
    for (size_t k = 0; k < sizeof kind / sizeof *kind; k++)
        for (int p = 1; p <= 8; p++)
            for (int m = 1; m <= 3 * p; m++)
                for (int v = 1; v <= kind[k].v; v++)
                    check_invariants(kind[k].name, (struct sched_shape){p, m, v, 0});
}

static const struct test_case cases[] = {
    {"looped_bubbles", looped_bubbles},
    {"short_groups", short_groups},
    {"zero_bubbles", zero_bubbles},
    {"few_microbatches", few_microbatches},
    {"unit_figures", unit_figures},
    {"latency", latency},
    {"table5", table5},
    {"table8", table8},
    {"relations", relations},
    {"invariants", invariants},
};
TEST_MAIN(cases)
