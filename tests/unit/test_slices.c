/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequences cut into slices: seq1f1b's shapes, bubble and peaks, and the rule that orders slices.
 */
#include "sched/sched.h"

#include "base/mem.h"
#include "base/num.h"
#include "plait.h"
#include "sim/sim.h"
#include "test.h"
#include "timed.h"

static bool make(int p, int m, int k, struct timed *out)
{
    static const struct sim_cost unit = {.tf = 1, .tb = 2, .ti = 1, .tw = 1};
    struct sched from;
    *out = (struct timed){0};
    if (!CHECK(sched_make_sliced("seq1f1b", &(struct sched_shape){.p = p, .m = m, .v = 1}, k,
                                 &from) == ERR_OK))
        return false;
    return timed_play(&from, &(struct sched_lower_args){.step = true}, &unit, out);
}

/* p - r + k - 1 slices are kept, and the bubble is 1F1B's in times of a slice, where there are
 * units enough to fill the pipeline. */
static void check_shape(int p, int m, int k)
{
    struct timed x;
    if (make(p, m, k, &x)) {
        CHECK(x.s.slices == k && x.s.m == m * k);
        for (int rank = 0; rank < p; rank++)
            CHECK_INT(x.report.peak[rank], num_min(p - rank + k - 1, m * k));
        if (m >= p)
            CHECK(x.r.makespan == 3 * m * k + 3 * (p - 1));
    }
    timed_free(&x);
}

static void grid(void)
{
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 3 * p; m++)
            for (int k = 1; k <= 4; k++)
                check_shape(p, m, k);
}

/* Whole sequences: the very list of 1f1b. */
static void one_slice(void)
{
    for (int p = 1; p <= 5; p++)
        for (int m = 1; m <= 7; m++) {
            struct sched_shape shape = {.p = p, .m = m, .v = 1};
            struct sched a, b;
            struct text ta = {0}, tb = {0};
            CHECK_OK(sched_make_sliced("seq1f1b", &shape, 1, &a));
            CHECK_OK(sched_make("1f1b", &shape, NULL, &b));
            sched_print(&a, &ta);
            sched_print(&b, &tb);
            CHECK_STR(ta.s, tb.s);
            text_free(&ta);
            text_free(&tb);
            sched_free(&a);
            sched_free(&b);
        }
}

static void check_order(const char *text, const char *part)
{
    struct sched s;
    struct sched_report r = {0};
    CHECK_OK(sched_parse("test", text, (int64_t)strlen(text), &s));
    CHECK_OK(sched_check(&s, &r)); /* as two microbatches all is well */
    sched_report_free(&r);
    s.slices = 2;
    if (part) {
        CHECK_ERR(sched_check(&s, &r), ERR_CONFIG, part);
        CHECK_INT(r.rule, SCHED_RULE_ORDER);
    } else {
        CHECK_OK(sched_check(&s, &r));
    }
    sched_report_free(&r);
    sched_free(&s);
}

static void order(void)
{
    check_order("0F0,0F1,0B1,0B0\n", NULL);
    check_order("0F0,0F1,0B1,0B0,0F2,0F3,0B3,0B2\n", NULL);
    check_order("0F0,0F1,0F2,0F3,0I1,0I0,0W0,0I3,0I2,0W1,0W2,0W3\n", NULL);
    check_order("0F1,0F0,0B1,0B0\n", "place 0, 0F1: it needs the keys and values of the slice "
                                     "before it, 0F0");
    check_order("0F0,0F1,0B0,0B1\n", "place 2, 0B0: it needs the gradients of its keys and values "
                                     "from the slice behind it, 0B1");
    check_order("0F0,0F1,0I0,0I1,0W0,0W1\n", "place 2, 0I0: it needs the gradients");
    check_order("0F0,0F1,0B1,0B0,0F3,0F2,0B3,0B2\n", "place 4, 0F3");
}

static void refused(void)
{
    struct sched_shape shape = {.p = 4, .m = 8, .v = 1};
    struct sched s;
    CHECK_ERR(sched_make("seq1f1b", &shape, NULL, &s), ERR_CONFIG,
              "use `plait sim --slices`, or 1f1b");
    CHECK_ERR(sched_make_sliced("1f1b", &shape, 2, &s), ERR_CONFIG, "leave slices out");
    CHECK_ERR(sched_make_sliced("seq1f1b", &shape, 0, &s), ERR_CONFIG, "use 1 to 8191 slices");
    CHECK_ERR(sched_make_sliced("seq1f1b", &shape, 8192, &s), ERR_CONFIG, "use 1 to 8191 slices");
    shape.v = 2;
    CHECK_ERR(sched_make_sliced("seq1f1b", &shape, 2, &s), ERR_CONFIG, "use v 1");
    shape = (struct sched_shape){.p = 1, .m = 1, .v = 1};
    CHECK_ERR(sched_make_sliced("seq1f1b", &shape, 65536, &s), ERR_CONFIG,
              "1 microbatch of 65536 slices, and units are counted from 1 to 65535; use 1 to");
    shape.m = 40000;
    CHECK_ERR(sched_make_sliced("seq1f1b", &shape, 2, &s), ERR_CONFIG,
              "40000 microbatches of 2 slices, and units are counted from 1 to 65535; use 1 to 1 "
              "slice");
    CHECK(strstr(err_text(), "1 slices") == NULL);
}

static void simulate(void)
{
    struct plait_sim a = {.size = sizeof a, .schedule = "seq1f1b", .p = 4, .m = 4, .slices = 2};
    char *page = NULL;
    CHECK_INT(plait_simulate(&a, &page), PLAIT_OK);
    CHECK(strstr(page, "4 microbatches of 2 slices") && strstr(page, "makespan  33\n"));
    plait_free(page);
    a.format = "json";
    CHECK_INT(plait_simulate(&a, &page), PLAIT_OK);
    CHECK(strstr(page, "\"m\": 4,") && strstr(page, "\"slices\": 2,"));
    plait_free(page);
    a.p = 4096;
    a.m = 4096;
    a.slices = 15;
    CHECK_INT(plait_simulate(&a, &page), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "x slices 15"));
    a.schedule = "file:" PLAIT_SOURCE_DIR "/tests/golden/sched/seq1f1b-p4-m4-k2.csv";
    a.p = a.m = 0;
    CHECK_INT(plait_simulate(&a, &page), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "leave slices out"));
}

static const struct test_case cases[] = {
    {"grid", grid},
    {"one_slice", one_slice},
    {"order", order},
    {"refused", refused},
    {"simulate", simulate},
};
TEST_MAIN(cases)
