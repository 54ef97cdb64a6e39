/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists whose steps are post-validated: where norm and proof stand, that every schedule with one
 * replica gets a proved list, what rule V13 refuses, what the proof takes on the clock, and that a
 * step later begins as much later as the longest rank takes: what the stagger of zero-bubble
 * schedules is for.
 */
#include "sched/sched.h"
#include "sim/sim.h"
#include "test.h"
#include <string.h>

/* Generated, lowered with a step, post-validated; not checked. */
static bool make(const char *name, struct sched_shape shape, struct sched *out)
{
    struct sched made, lowered = {0};
    if (sched_make(name, &shape, &made) != ERR_OK)
        return false;
    bool serves = made.replicas == 1 && made.slices == 1;
    enum err err = sched_lower(&made, &(struct sched_lower_args){.step = true}, &lowered);
    sched_free(&made);
    if (err == ERR_OK && serves)
        err = sched_post_validate(&lowered, out);
    sched_free(&lowered);
    return serves && CHECK(err == ERR_OK);
}

static void where_they_stand(void)
{
    static const char *const want =
        "0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2,PV_RECV,PV_CHECK,0RECV_B0,0I0,0W0,0RECV_B1,0I1,0W1,"
        "0RECV_B2,0I2,0W2,NORM,NORM_SEND,STEP\n"
        "1RECV_F0,PV_SEND,PV_CHECK,1F0,1I0,1SEND_B0,1RECV_F1,1F1,1I1,1SEND_B1,1RECV_F2,1F2,1I2,"
        "1SEND_B2,1W0,1W1,1W2,NORM_RECV,NORM,STEP\n";
    struct sched s;
    struct text got = {0};
    struct sched_report r;
    if (!CHECK(make("zb-h2", (struct sched_shape){2, 3, 1, 0}, &s)))
        return;
    sched_print(&s, &got);
    CHECK_STR(got.s, want);
    CHECK_OK(sched_check(&s, &r));
    CHECK(r.ahead);
    text_free(&got);
    sched_report_free(&r);
    sched_free(&s);
}

static void play(struct sched *s, struct sim_result *out)
{
    static const struct sim_cost cost = {.tf = 1, .tb = 2, .ti = 1, .tw = 1, .latency = .25};
    struct sched_report r;
    CHECK_OK(sched_check(s, &r));
    CHECK_OK(sim_run(s, &r, &cost, false, out));
    sched_report_free(&r);
}

/* The proof comes with the data: no rank is later for it. */
static void check_times(struct sched *ahead, const char *name, struct sched_shape shape)
{
    struct sched made, lowered;
    struct sim_result with = {0}, without = {0};
    CHECK_OK(sched_make(name, &shape, &made));
    CHECK_OK(sched_lower(&made, &(struct sched_lower_args){.step = true}, &lowered));
    play(&lowered, &without);
    play(ahead, &with);
    test_check(with.makespan == without.makespan && with.cost == without.cost, __FILE__, __LINE__,
               "%s p %d m %d v %d: with proof %g, cost %g; without %g, cost %g", name, shape.p,
               shape.m, shape.v, with.makespan, with.cost, without.makespan, without.cost);
    sim_result_free(&with);
    sim_result_free(&without);
    sched_free(&made);
    sched_free(&lowered);
}

/* Text and back, proved, and played to the same times as without. */
static void check_one(const char *name, struct sched_shape shape, int *count)
{
    struct sched s = {0}, read = {0};
    struct sched_report r = {0}, again = {0};
    struct text t = {0};
    if (!make(name, shape, &s))
        return;
    enum err err = sched_check(&s, &r);
    if (!test_check(err == ERR_OK, __FILE__, __LINE__, "%s p %d m %d v %d: %s", name, shape.p,
                    shape.m, shape.v, err_text()))
        return;
    sched_print(&s, &t);
    CHECK_OK(sched_parse(s.name, t.s, t.len, &read));
    CHECK_OK(sched_check(&read, &again));
    CHECK(r.hash == again.hash && again.ahead);
    check_times(&s, name, shape);
    ++*count;
    sched_report_free(&r);
    sched_report_free(&again);
    sched_free(&s);
    sched_free(&read);
    text_free(&t);
}

static void every_schedule(void)
{
    int count = 0;
    for (int k = 0; k < sched_kind_count(); k++)
        for (int p = 1; p <= 6; p++)
            for (int m = 1; m <= 2 * p + 1; m++)
                for (int v = 1; v <= 3; v++)
                    check_one(sched_kind_at(k)->name, (struct sched_shape){p, m, v, 0}, &count);
    CHECK(count > 500);
}

/* The text with its first `from` replaced. */
static void replace(const struct text *t, const char *from, const char *to, struct text *out)
{
    const char *at = strstr(t->s, from);
    if (test_check(at, __FILE__, __LINE__, "there is no %s", from))
        text_add(out, "%.*s%s%s", (int)(at - t->s), t->s, to, at + strlen(from));
}

static void check_refused(const struct text *t, const char *words)
{
    struct sched bad;
    struct sched_report r;
    CHECK_OK(sched_parse("zb-h2", t->s, t->len, &bad));
    CHECK_ERR(sched_check(&bad, &r), ERR_CONFIG, words);
    test_check(r.rule == SCHED_RULE_VALIDATION && strstr(err_text(), "V13 (validation)"), __FILE__,
               __LINE__, "another rule than V13: %s", err_text());
    sched_report_free(&r);
    sched_free(&bad);
}

/* zb-h2 on two ranks with one place changed, or with two (second NULL: one). */
static void refused(const char *const first[2], const char *const second[2], const char *words)
{
    struct sched s;
    struct text t = {0}, once = {0}, twice = {0};
    if (!CHECK(make("zb-h2", (struct sched_shape){2, 3, 1, 0}, &s)))
        return;
    sched_print(&s, &t);
    replace(&t, first[0], first[1], &once);
    if (second)
        replace(&once, second[0], second[1], &twice);
    check_refused(second ? &twice : &once, words);
    text_free(&t);
    text_free(&once);
    text_free(&twice);
    sched_free(&s);
}

static void v13(void)
{
    static const struct { const char *from, *to, *words; } one[] = {
        {",NORM,NORM_SEND,STEP", ",STEP", "this rank has no NORM; add it"},
        {"PV_SEND,PV_CHECK,1F0", "PV_SEND,1F0", "this rank has no PV_CHECK; add it"},
        {"NORM,NORM_SEND", "NORM_SEND,NORM", "NORM comes later"},
        {"PV_RECV,PV_CHECK", "PV_CHECK,PV_RECV", "PV_RECV comes later"},
        {"PV_RECV,PV_CHECK,0RECV_B0,0I0", "0RECV_B0,0I0,PV_RECV,PV_CHECK",
         "may need its gradients; move PV_CHECK"},
        {"PV_SEND,PV_CHECK,1F0", "1F0,PV_SEND,PV_CHECK", "may need its gradients"},
        {"0W2,NORM,", "NORM,0W2,", "the norm is taken before"},
    };
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        refused((const char *[]){one[i].from, one[i].to}, NULL, one[i].words);
    refused((const char *[]){"NORM,NORM_SEND,STEP", "NORM,NORM_SEND"},
            (const char *[]){"NORM_RECV,NORM,STEP", "NORM_RECV,NORM"}, "end with STEP");
    /* what is taken before a check was sent after the sender's */
    refused((const char *[]){"0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2,PV_RECV,PV_CHECK",
                             "PV_RECV,PV_CHECK,0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2"},
            (const char *[]){"1RECV_F0,PV_SEND,PV_CHECK", "PV_SEND,1RECV_F0,PV_CHECK"},
            "rank 0 sends it after its PV_CHECK");
}

static void refusals(void)
{
    struct sched made, lowered, out;
    struct sched_shape shape = {2, 2, 1, 0};
    CHECK_OK(sched_make("chimera", &shape, &made));
    CHECK_OK(sched_lower(&made, &(struct sched_lower_args){.step = true}, &lowered));
    CHECK_ERR(sched_post_validate(&lowered, &out), ERR_CONFIG, "two replicas");
    CHECK_ERR(sched_post_validate(&made, &out), ERR_INTERNAL, "not lowered");
    sched_free(&made);
    sched_free(&lowered);
}

/* A message takes 5, F and I and W 1. The last rank sends the proof at 0. Rank 0 has done three F
 * at 3, and waits for the proof and then for the gradient of its first I.
 *
 * Two ranks: the proof is there at 5. The gradient is made at 8, behind F0 6-7 and I0 7-8 of rank
 * 1, and there at 13: 2 for the proof, 3 of waiting, 5 for the message.
 * Three ranks: rank 1 has the proof at 5 and sends it on behind its three F, at 9, so that it is
 * there at 14. The gradient is made at 20 (F0 6-7 and 12-13, I0 13-14 and 19-20), comes at 25. */
static void the_proof_by_hand(void)
{
    static const struct { double proof, made, message, end; } want[] = {{5, 8, 5, 19},
                                                                        {14, 20, 5, 31}};
    static const struct sim_cost cost = {.tf = 1, .tb = 2, .ti = 1, .tw = 1, .latency = 5};
    for (int i = 0; i < 2; i++) {
        struct sched s;
        struct sched_report r;
        struct sim_result x;
        if (!CHECK(make("zb-h2", (struct sched_shape){2 + i, 3, 1, 0}, &s)))
            return;
        CHECK_OK(sched_check(&s, &r));
        CHECK_OK(sim_run(&s, &r, &cost, false, &x));
        CHECK_NEAR(x.message[0], want[i].proof - 3 + want[i].message, 1e-12);
        CHECK_NEAR(x.waiting[0], want[i].made - want[i].proof, 1e-12);
        CHECK_NEAR(x.makespan, want[i].end, 1e-12);
        sim_result_free(&x);
        sched_report_free(&r);
        sched_free(&s);
    }
}

/* ---- several steps in a row ---- */

/* The computing of `steps` steps, one behind the other on every rank: what is left when no rank
 * waits for another at a step's end. Microbatches are numbered on. */
static void repeat(const struct sched *s, int steps, struct text *out)
{
    for (int rank = 0; rank < s->p; rank++)
        for (int step = 0; step < steps; step++)
            for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++)
                text_add(out, "%d%s%d%s", s->instr[i].stage,
                         sched_op_name((enum sched_op)s->instr[i].op),
                         s->instr[i].mb + step * s->m,
                         step + 1 < steps || i + 1 < s->begin[rank + 1] ? "," : "\n");
}

static double makespan(const char *name, struct sched_shape shape, int steps, double *cost)
{
    static const struct sim_cost unit = {.tf = 1, .tb = 2, .ti = 1, .tw = 1};
    struct sched made, all, lowered;
    struct sched_report report;
    struct sim_result r;
    struct text t = {0};
    CHECK_OK(sched_make(name, &shape, &made));
    repeat(&made, steps, &t);
    CHECK_OK(sched_parse(name, t.s, t.len, &all));
    CHECK_OK(sched_lower(&all, &(struct sched_lower_args){.step = true}, &lowered));
    CHECK_OK(sched_check(&lowered, &report));
    CHECK_OK(sim_run(&lowered, &report, &unit, false, &r));
    double end = r.makespan;
    *cost = r.cost;
    sim_result_free(&r);
    sched_report_free(&report);
    sched_free(&made);
    sched_free(&all);
    sched_free(&lowered);
    text_free(&t);
    return end;
}

/* A step later begins `cost` later, which for zb-h2 is 3 m: no rank ever idles. */
static void steps_in_a_row(void)
{
    static const struct { const char *name; int p, m, v; } of[] = {
        {"zb-h2", 4, 8, 1}, {"zb-h2", 8, 16, 1}, {"zb-v", 4, 8, 2}, {"1f1b", 4, 8, 1},
        {"zb-2p", 4, 12, 1},
    };
    for (int i = 0; i < 5; i++) {
        struct sched_shape shape = {of[i].p, of[i].m, of[i].v, 0};
        double cost, ignored, one = makespan(of[i].name, shape, 1, &cost);
        for (int steps = 2; steps <= 4; steps++)
            CHECK_NEAR(makespan(of[i].name, shape, steps, &ignored), one + (steps - 1) * cost,
                       1e-9);
        if (strncmp(of[i].name, "zb-", 3) == 0)
            CHECK_NEAR(cost, 3.0 * of[i].m * of[i].v, 1e-9);
        CHECK(one >= cost);
    }
}

static const struct test_case cases[] = {
    {"where_they_stand", where_they_stand}, {"every_schedule", every_schedule}, {"v13", v13},
    {"refusals", refusals}, {"the_proof_by_hand", the_proof_by_hand},
    {"steps_in_a_row", steps_in_a_row},
};
TEST_MAIN(cases)
