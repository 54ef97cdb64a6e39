/* SPDX-License-Identifier: Apache-2.0
 *
 * Recompute in the thinking half: what the pass writes, where messages then stand, what the rules
 * refuse, what the ledger counts, and what the clock and the pictures make of it. The bits of
 * training are those of tests/dist/test_recompute_law.c.
 */
#include "sched/sched.h"
#include "sim/sim.h"

#include "base/mem.h"
#include "base/num.h"
#include "order.h"
#include "test.h"
#include "timed.h"

static char *text_of(const struct sched *s)
{
    struct text t = {0};
    char *out = NULL;
    sched_print(s, &t);
    CHECK_OK(text_done(&t, &out));
    return out;
}

static enum err parse(const char *text, struct sched *out)
{
    return sched_parse("test", text, (int64_t)strlen(text), out);
}

static void check_text(const struct sched *s, const char *want)
{
    char *got = text_of(s);
    CHECK_STR(got, want);
    mem_free(got);
}

/* What the pass makes of a list, and the lowering of that; lowered NULL: it is not looked at. */
static void becomes(const char *text, const char *want, const char *lowered)
{
    struct sched s = {0}, again = {0}, low = {0};
    CHECK_OK(parse(text, &s));
    if (CHECK(sched_recompute(&s, &again) == ERR_OK)) {
        check_text(&again, want);
        if (lowered && CHECK(sched_lower(&again, &(struct sched_lower_args){0}, &low) == ERR_OK))
            check_text(&low, lowered);
    }
    sched_free(&s);
    sched_free(&again);
    sched_free(&low);
}

static void texts(void)
{
    /* not where the backward follows its forward; the message moves while R computes */
    becomes("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
            "0F0,0F1,0R0,0B0,0R1,0B1\n1F0,1B0,1F1,1B1\n",
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0R0,0B0,0RECV_B1,0R1,0B1\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
    /* halves: before I; a weight gradient in between is other computing */
    becomes("0F0,0I0,0F1,0W0,0I1,0W1\n", "0F0,0I0,0F1,0W0,0R1,0I1,0W1\n", NULL);
    /* another stage of the rank in between is, too */
    becomes("0F0,1F0,1B0,0B0\n", "0F0,1F0,1B0,0R0,0B0\n", "0F0,1F0,1B0,0R0,0B0\n");
    /* before a pair, whose receives both come before the R */
    becomes("0F0,0F1,(0F2;0B0)OV,0B1,0B2\n1F0,1F1,1B0,(1F2;1B1)OV,1B2\n",
            "0F0,0F1,0R0,(0F2;0B0)OVERLAP_F_B,0R1,0B1,0R2,0B2\n"
            "1F0,1F1,1R0,1B0,1R1,(1F2;1B1)OVERLAP_F_B,1R2,1B2\n",
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0R0,(0F2;0B0)OVERLAP_F_B,0SEND_F2,0RECV_B1,0R1,0B1,"
            "0RECV_B2,0R2,0B2\n"
            "1RECV_F0,1F0,1RECV_F1,1F1,1R0,1B0,1SEND_B0,1RECV_F2,1R1,(1F2;1B1)OVERLAP_F_B,1SEND_B1,"
            "1R2,1B2,1SEND_B2\n");
    /* what a list has already stays as it is */
    becomes("0F0,0F1,0F2,0R1,0R0,0B0,0B1,0B2\n1F0,1F1,1F2,1R0,1B0,1R1,1R2,1B1,1B2\n",
            "0F0,0F1,0F2,0R1,0R0,0B0,0B1,0R2,0B2\n1F0,1F1,1F2,1R0,1B0,1R1,1R2,1B1,1B2\n",
            "0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2,0RECV_B0,0R1,0R0,0B0,0RECV_B1,0B1,0RECV_B2,"
            "0R2,0B2\n"
            "1RECV_F0,1F0,1RECV_F1,1F1,1RECV_F2,1F2,1R0,1B0,1SEND_B0,1R1,1R2,1B1,1SEND_B1,1B2,"
            "1SEND_B2\n");
    /* the message of a forward moves meanwhile, too */
    becomes("0F0,0F1,0B0,0B1\n1F0,1R0,1F1,1B0,1B1\n", "0F0,0F1,0R0,0B0,0R1,0B1\n1F0,1R0,1F1,1B0,"
            "1R1,1B1\n",
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0R0,0B0,0RECV_B1,0R1,0B1\n"
            "1RECV_F0,1F0,1RECV_F1,1R0,1F1,1B0,1SEND_B0,1R1,1B1,1SEND_B1\n");
    becomes("0F0,0R0,0B0\n", "0F0,0R0,0B0\n", NULL);
}

/* An R far before its reader: the message is asked for where it was without it. Rank 0 would
 * otherwise wait in front of 0F1 for what rank 1 makes of it. */
static void early(void)
{
    struct sched s, low;
    struct sched_report r;
    CHECK_OK(parse("0F0,0R0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", &s));
    CHECK_OK(sched_lower(&s, &(struct sched_lower_args){0}, &low));
    CHECK_OK(sched_check(&low, &r));
    check_text(&low, "0F0,0SEND_F0,0R0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                     "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n");
    sched_report_free(&r);
    sched_free(&low);
    sched_free(&s);
}

static const struct {
    enum sched_rule rule;
    const char *text, *part;
} broken[] = {
    {SCHED_RULE_COVERAGE, "0F0,0R0,0R0,0B0\n", "rank 0, place 2, 0R0: it comes a second time"},
    {SCHED_RULE_COVERAGE, "0F0,0R0\n", "the list ends without 0B0"},
    {SCHED_RULE_PLACEMENT, "0F0,0B0\n1F0,0R0,1B0\n", "rank 1, place 1, 0R0: stage 0 stands on"},
    {SCHED_RULE_ORDER, "0R0,0F0,0B0\n",
     "rank 0, place 0, 0R0: the forward 0F0 that it does again comes later, at place 1"},
    {SCHED_RULE_ORDER, "0F0,0B0,0R0\n",
     "rank 0, place 2, 0R0: the backward that needs what it makes came before, at place 1"},
    {SCHED_RULE_ORDER, "0F0,0I0,0R0,0W0\n",
     "rank 0, place 2, 0R0: the backward that needs what it makes came before, at place 1"},
};

static void rules_broken(void)
{
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct sched s = {0}, low = {0};
        struct sched_report r = {0};
        CHECK_OK(parse(broken[i].text, &s));
        enum err err = sched_check(&s, &r);
        test_check(err == ERR_CONFIG && r.rule == broken[i].rule &&
                       strstr(err_text(), broken[i].part),
                   __FILE__, __LINE__, "%s: wanted V%d \"%s\", got %d, V%d: %s", broken[i].text,
                   (int)broken[i].rule, broken[i].part, (int)err, (int)r.rule, err_text());
        CHECK_ERR(sched_lower(&s, &(struct sched_lower_args){0}, &low), ERR_CONFIG,
                  broken[i].part);
        sched_report_free(&r);
        sched_free(&s);
    }
}

static void refused(void)
{
    struct sched s, out;
    CHECK_OK(parse("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", &s));
    CHECK_ERR(sched_recompute(&s, &out), ERR_CONFIG, "the list has messages; use a list of F");
    sched_free(&s);
    CHECK_OK(parse("0F0,0F1\n", &s));
    CHECK_ERR(sched_recompute(&s, &out), ERR_CONFIG, "has forward passes only");
    sched_free(&s);
    CHECK_OK(sched_make_sliced("seq1f1b", &(struct sched_shape){2, 2, 1, 0}, 2, &s));
    CHECK_ERR(sched_recompute(&s, &out), ERR_CONFIG, "use slices 1, or leave recompute out");
    sched_free(&s);
    CHECK_OK(parse("0F0,0F0,0B0\n", &s));
    CHECK_ERR(sched_recompute(&s, &out), ERR_CONFIG, "V1 (coverage)");
    sched_free(&s);
    CHECK_ERR(parse("0F0,(0F1;0R0)OV,0B0,0B1\n", &s), ERR_CONFIG, "a forward and a backward");
    CHECK_ERR(parse("0F0,0R0x,0B0\n", &s), ERR_CONFIG, "this follows a whole cell");
    CHECK_ERR(parse("0F0,0R,0B0\n", &s), ERR_CONFIG, "the microbatch is not a number");
}

/* ---- the ledger ---- */

static const struct sim_cost unit = {.tf = 1, .tb = 2, .ti = 1, .tw = 1, .tr = 1};

/* The schedule, with recomputes or without, played. */
static bool play(const char *name, struct sched_shape shape, bool again,
                 const struct sim_cost *cost, struct timed *out)
{
    struct sched made, plain;
    *out = (struct timed){0};
    if (sched_make(name, &shape, NULL, &made) != ERR_OK)
        return false;
    if (again) {
        plain = made;
        CHECK_OK(sched_recompute(&plain, &made));
        sched_free(&plain);
    }
    return timed_play(&made, &(struct sched_lower_args){.step = true}, cost, out);
}

static void peaks_of(const char *text, int full, int alive)
{
    struct sched s;
    struct sched_report r;
    CHECK_OK(parse(text, &s));
    CHECK_OK(sched_check(&s, &r));
    CHECK_INT(r.save_peak[0], full);
    CHECK_INT(r.full_peak[0], full);
    CHECK_INT(r.peak[0], alive);
    CHECK_INT(r.stage_peak[0], alive);
    sched_report_free(&r);
    sched_free(&s);
}

static void ledger(void)
{
    peaks_of("0F0,0F1,0F2,0B0,0B1,0B2\n", 3, 3);
    peaks_of("0F0,0F1,0F2,0R0,0B0,0R1,0B1,0R2,0B2\n", 1, 3);
    /* one that is kept while another's forward runs */
    peaks_of("0F0,0F1,0F2,0B0,0R1,0B1,0R2,0B2\n", 2, 3);
    peaks_of("0F0,0F1,0R0,0F2,0B0,0R1,0B1,0R2,0B2\n", 2, 3);
    peaks_of("0F0,0F1,0R0,(0F2;0B0)OV,0R1,0B1,0R2,0B2\n", 2, 3);
    /* made early, and kept to W */
    peaks_of("0F0,0F1,0F2,0R2,0R1,0R0,0B0,0B1,0B2\n", 3, 3);
    peaks_of("0F0,0F1,0R0,0I0,0R1,0I1,0W0,0W1\n", 2, 2);
    peaks_of("0F0,0F1,0R0,0I0,0W0,0R1,0I1,0W1\n", 1, 2);
}

/* Over all kinds: never more in full than without, what is alive and the order of gradients stay,
 * the program is another one. Kinds that run backward whole keep one in full a stage. */
static void against_none(void)
{
    int made = 0;
    for (int k = 0; k < sched_kind_count(); k++)
        for (int p = 1; p <= 5; p++)
            for (int m = 1; m <= 2 * p + 1; m++)
                for (int v = 1; v <= 3; v++) {
                    struct timed plain, again;
                    struct sched_shape shape = {p, m, v, 0};
                    if (!play(sched_kind_at(k)->name, shape, false, &unit, &plain))
                        continue;
                    if (!play(sched_kind_at(k)->name, shape, true, &unit, &again))
                        continue;
                    made++;
                    bool whole = !sched_has(&plain.s, SCHED_I) &&
                                 !sched_has(&plain.s, SCHED_OVERLAP_F_B);
                    for (int h = 0; h < plain.s.replicas * plain.s.stages; h++) {
                        CHECK(again.report.save_peak[h] <= plain.report.save_peak[h]);
                        CHECK_INT(again.report.stage_peak[h], plain.report.stage_peak[h]);
                        CHECK(!whole || again.report.save_peak[h] <= 1);
                    }
                    for (int rank = 0; rank < p; rank++) {
                        CHECK_INT(plain.report.full_peak[rank], plain.report.peak[rank]);
                        CHECK_INT(again.report.peak[rank], plain.report.peak[rank]);
                        CHECK(!whole || again.report.full_peak[rank] <= 2);
                    }
                    CHECK(order_hash(&again.s) == order_hash(&plain.s));
                    CHECK((again.report.hash != plain.report.hash) == sched_has(&again.s, SCHED_R));
                    timed_free(&plain);
                    timed_free(&again);
                }
    CHECK(made > 500);
}

/* ---- the clock ---- */

static double makespan(const char *name, struct sched_shape shape, bool again,
                       const struct sim_cost *c)
{
    struct timed x;
    double out = play(name, shape, again, c, &x) ? x.r.makespan : NAN;
    timed_free(&x);
    return out;
}

/* gpipe, m 2 or more: the last rank starts its backwards at once, so its m recomputes are in the
 * open, (m + p - 1) (tf + tb) + m tr. All others wait longer than a recompute for each gradient but
 * their own tb, so theirs are hidden. With m 1 the last rank needs none and hides the others'. */
static void gpipe_in_closed_form(void)
{
    static const struct sim_cost cost[] = {
        {.tf = 1, .tb = 2, .tr = 1}, {.tf = 1, .tb = 3, .tr = 0.5}, {.tf = 2, .tb = 1, .tr = 3},
    };
    for (int k = 0; k < 3; k++)
        for (int p = 1; p <= 6; p++)
            for (int m = 1; m <= 9; m++) {
                const struct sim_cost *c = &cost[k];
                double recompute = m > 1 ? m * c->tr : 0;
                CHECK_NEAR(makespan("gpipe", (struct sched_shape){p, m, 1, 0}, true, c),
                           (m + p - 1) * (c->tf + c->tb) + recompute, 1e-12);
            }
}

/* 1f1b on two ranks by hand, F 1, B 2, R 1. Rank 1 needs none. Rank 0: F0 0-1, F1 1-2, R0 2-3, B0
 * 4-6, F2 6-7, R1 7-8, B1 8-10, R2 10-11, B2 11-13; without, B2 10-12. */
static void one_f_one_b_by_hand(void)
{
    struct sim_cost c = {.tf = 1, .tb = 2, .tr = 1};
    CHECK_NEAR(makespan("1f1b", (struct sched_shape){2, 3, 1, 0}, true, &c), 13, 0);
    CHECK_NEAR(makespan("1f1b", (struct sched_shape){2, 3, 1, 0}, false, &c), 12, 0);
}

/* Recomputes that take no time change nothing, those that do shorten nothing. */
static void of_no_time(void)
{
    struct sim_cost c = {.tf = 1, .tb = 2.5, .ti = 1.25, .tw = 1, .latency = 0.25};
    for (int k = 0; k < sched_kind_count(); k++)
        for (int p = 1; p <= 4; p++)
            for (int v = 1; v <= 2; v++) {
                const char *name = sched_kind_at(k)->name;
                struct sched_shape shape = {p, 2 * p, v, 0};
                struct sched s;
                if (sched_make(name, &shape, NULL, &s) != ERR_OK)
                    continue;
                sched_free(&s);
                c.tr = 0;
                double plain = makespan(name, shape, false, &c);
                CHECK_NEAR(makespan(name, shape, true, &c), plain, 1e-12);
                c.tr = 1;
                CHECK(makespan(name, shape, true, &c) >= plain - 1e-12);
            }
}

/* Factors of R alone, times of single stages, and times that are none. */
static void costs(void)
{
    static const double recompute[2] = {0, 3}, bad[2] = {-1, 1};
    static const double time[2][SCHED_COMPUTE_OPS] = {{1, 2, 1, 1, 1}, {1, 2, 1, 1, 4}};
    struct sched_shape shape = {2, 3, 1, 0};
    struct sim_cost c = {.tf = 1, .tb = 2, .tr = 1, .recompute_scale = recompute};
    CHECK_NEAR(makespan("gpipe", shape, true, &c), 4 * 3 + 3 * 3, 1e-12);
    c = (struct sim_cost){.stage_time = time};
    CHECK_NEAR(makespan("gpipe", shape, true, &c), 4 * 3 + 3 * 4, 1e-12);
    struct timed x;
    struct sim_result r;
    if (play("gpipe", shape, true, &unit, &x)) {
        c = (struct sim_cost){.tf = 1, .tb = 2, .tr = -1};
        CHECK_ERR(sim_run(&x.s, &x.report, &c, false, &r), ERR_CONFIG, "tr -1 is not a time");
        c = (struct sim_cost){.tf = 1, .tb = 2, .tr = 1, .recompute_scale = bad};
        CHECK_ERR(sim_run(&x.s, &x.report, &c, false, &r), ERR_CONFIG, "scale -1 of stage 0");
    }
    timed_free(&x);
}

/* ---- pictures ---- */

/* Memory over time counts what is kept in full: up to the proved peak, and nothing at the end. In
 * bytes: 100 of a slot, 10 of a save set, 1 of a keep set, and 1000 that stay. */
static void curve(const struct timed *x, bool bytes)
{
    static const int64_t fixed[4] = {1000, 1000, 1000, 1000}, slot[8] = {100, 100, 100, 100, 100,
        100, 100, 100}, save[8] = {10, 10, 10, 10, 10, 10, 10, 10}, none[8];
    struct sim_bytes b = {.fixed = fixed, .slot = slot, .save = save, .keep = none};
    struct sim_picture p;
    int most_bytes = 0;
    CHECK_OK(sim_picture_make(&x->s, &x->r, &unit, bytes ? &b : NULL, &p));
    for (int rank = 0; rank < x->s.p; rank++) {
        const struct draw_curve *m = &p.chart.memory[rank];
        double most = 0;
        for (int64_t i = 0; i < m->n; i++)
            most = fmax(most, m->point[i].value);
        CHECK(m->n > 0 && m->point[m->n - 1].value == (bytes ? 1000 : 0));
        most_bytes = (int)fmax(most_bytes, most);
        if (!bytes)
            CHECK_INT((int64_t)most, x->report.full_peak[rank]);
    }
    if (bytes) /* all slots of a rank, and never more sets than there are */
        CHECK(most_bytes >= 1110 && most_bytes <= 1000 + 100 * 16 + 10 * 16);
    bool again = sched_has(&x->s, SCHED_R); /* naive needs none */
    CHECK((strstr(p.title, "with recompute") != NULL) == again);
    CHECK((strstr(p.facts, "in full") != NULL) == again);
    sim_picture_free(&p);
}

static void pictures(void)
{
    for (int k = 0; k < sched_kind_count(); k++)
        for (int v = 1; v <= 2; v++) {
            struct timed x;
            struct sched_shape shape = {4, 8, v, 0};
            if (play(sched_kind_at(k)->name, shape, true, &unit, &x)) {
                curve(&x, false);
                curve(&x, true);
            }
            timed_free(&x);
        }
}

/* gpipe, 2 microbatches on one rank: F0 F1 R0 B0 R1 B1. In bytes the slots stay and one save set
 * comes and goes. */
static void curve_by_hand(void)
{
    static const int64_t fixed = 1000, slot = 100, save = 10, none = 0;
    static const struct draw_point want[] = {{0, 1110}, {1, 1210}, {2, 1210}, {5, 1110}, {8, 1000}};
    struct sim_bytes b = {.fixed = &fixed, .slot = &slot, .save = &save, .keep = &none};
    struct timed x;
    struct sim_picture p = {0};
    if (play("gpipe", (struct sched_shape){1, 2, 1, 0}, true, &unit, &x)) {
        CHECK_OK(sim_picture_make(&x.s, &x.r, &unit, &b, &p));
        CHECK_INT(p.chart.spans, 6);
        CHECK(p.span[2].kind == DRAW_R && p.span[2].start == 2 && p.span[2].end == 3);
        const struct draw_curve *m = p.chart.memory;
        CHECK_INT(m->n, 5);
        for (int64_t i = 0; i < m->n && i < 5; i++)
            test_check(m->point[i].time == want[i].time && m->point[i].value == want[i].value,
                       __FILE__, __LINE__, "point %lld: %g at %g", (long long)i, m->point[i].value,
                       m->point[i].time);
    }
    sim_picture_free(&p);
    timed_free(&x);
}

static void gantt(void)
{
    struct timed x;
    struct text out = {0};
    if (play("gpipe", (struct sched_shape){2, 2, 1, 0}, true, &unit, &x)) {
        timed_gantt(&x.s, &x.r, 0, false, &out);
        CHECK(out.err == ERR_OK && strstr(out.s, "R recompute"));
        sim_json(&x.s, &x.r, &out);
        CHECK(out.err == ERR_OK && strstr(out.s, "\"action\": \"1R0\", \"start\": 3, \"end\": 4"));
        CHECK(strstr(out.s, "\"peak_activations\": [2, 2]"));
        CHECK(strstr(out.s, "\"peak_full\": [1, 1]"));
        sim_summary(&x.s, &x.r, &out);
        CHECK(strstr(out.s, "gpipe with recompute: 2 ranks"));
    }
    text_free(&out);
    timed_free(&x);
}

static const struct test_case cases[] = {
    {"texts", texts},
    {"early", early},
    {"rules_broken", rules_broken},
    {"refused", refused},
    {"ledger", ledger},
    {"against_none", against_none},
    {"gpipe_in_closed_form", gpipe_in_closed_form},
    {"one_f_one_b_by_hand", one_f_one_b_by_hand},
    {"of_no_time", of_no_time},
    {"costs", costs},
    {"pictures", pictures},
    {"curve_by_hand", curve_by_hand},
    {"gantt", gantt},
};
TEST_MAIN(cases)
