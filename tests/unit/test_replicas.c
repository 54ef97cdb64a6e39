/* SPDX-License-Identifier: Apache-2.0
 *
 * Replicas of the parameters, and pairs of a forward and a backward: every rule by a schedule that
 * breaks it, what is read and what is refused, what the lowering makes of them.
 */
#include "sched/sched.h"

#include "base/mem.h"
#include "order.h"
#include "test.h"

static const struct sched_lower_args no_ends = {0};
static const struct sched_lower_args all_ends = {.reduce = true, .tied = true, .step = true};

static enum err parse(const char *text, struct sched *out)
{
    return sched_parse("test", text, (int64_t)strlen(text), out);
}

/* ---- rules ---- */

static const struct {
    enum sched_rule rule;
    const char *text, *part;
} broken[] = {
    /* pairs */
    {SCHED_RULE_ORDER, "0F0,(0F1;0B1)OV,0B0\n",
     "rank 0, place 1, (0F1;0B1)OVERLAP_F_B: the backward needs the forward of its own pair"},
    {SCHED_RULE_ORDER, "0F0,(0F1;0B2)OV,0B0,0F2,0B1\n", "0F2 comes later"},
    {SCHED_RULE_COVERAGE, "0F0,(0F1;0B0)OV,0B0,0B1\n", "0B0: it comes a second time"},
    {SCHED_RULE_CYCLE, /* each pair waits for the other's backward or forward */
     "0F0,(0F1;0B0)OV,0B1\n1F0,(1F1;1B0)OV,1B1\n",
     "(0F1;0B0)OVERLAP_F_B of rank 0 (place 1) waits for 1B0"},
    {SCHED_RULE_DEADLOCK,
     "0F0,0SEND_F0,0RECV_B0,(0F1;0B0)OV,0SEND_F1,0RECV_B1,0B1\n"
     "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n",
     "1RECV_F1 of rank 1 (place 2) waits for 0SEND_F1"},
    /* replicas */
    {SCHED_RULE_PLACEMENT, "0F0,1F0,1F1,1B0,1B1,0B0\n0F1,0B1\n",
     "both replicas of stage 1 stand on this rank"},
    {SCHED_RULE_PLACEMENT, "0F0,1F1,1B1,0B0\n1F0,1B0,2F1,2B1\n2F0,2B0,0F1,0B1\n",
     "the replicas of stage 1 stand on ranks 1 and 0, those of other stages there on other ranks"},
    {SCHED_RULE_PLACEMENT, "0F0,1F1,1B1,0B0,0B1\n0F1,1F0,1B0\n",
     "rank 0, place 4, 0B1: stage 0 stands on rank 1 for this microbatch"},
    {SCHED_RULE_COVERAGE, "0F0,0B0,0REPLICA_REDUCE\n", "the parameters have one replica"},
};

static void rules_broken(void)
{
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct sched s;
        struct sched_report r = {0};
        if (!CHECK(parse(broken[i].text, &s) == ERR_OK))
            continue;
        enum err err = sched_check(&s, &r);
        test_check(err == ERR_CONFIG && r.rule == broken[i].rule &&
                       strstr(err_text(), broken[i].part),
                   __FILE__, __LINE__, "%s: wanted V%d \"%s\", got V%d: %s", broken[i].text,
                   (int)broken[i].rule, broken[i].part, (int)r.rule, err_text());
        sched_report_free(&r);
        sched_free(&s);
    }
}

/* Two ranks, one microbatch each way, lowered, with ends to be put on. */
#define UP "0F0,0SEND_F0,1RECV_F1,1F1,1B1,1SEND_B1,0RECV_B0,0B0,"
#define DOWN "0F1,0SEND_F1,1RECV_F0,1F0,1B0,1SEND_B0,0RECV_B1,0B1,"

static void check_ends(const char *up, const char *down, enum sched_rule rule, const char *part)
{
    struct sched s;
    struct sched_report r = {0};
    char text[512];
    snprintf(text, sizeof text, "%s\n%s\n", up, down);
    if (!CHECK(parse(text, &s) == ERR_OK))
        return;
    CHECK(s.replicas == 2);
    enum err err = sched_check(&s, &r);
    test_check((int)r.rule == (int)rule && (err == ERR_OK) == (rule == 0) &&
                   (!part || strstr(err_text(), part)),
               __FILE__, __LINE__, "%swanted V%d \"%s\", got V%d: %s", text, (int)rule, part,
               (int)r.rule, err_text());
    sched_report_free(&r);
    sched_free(&s);
}

static void sums_of_replicas(void)
{
    check_ends(UP "0REPLICA_REDUCE,1REPLICA_REDUCE,NORM,STEP",
               DOWN "0REPLICA_REDUCE,1REPLICA_REDUCE,NORM,STEP", (enum sched_rule)0,
               NULL);
    check_ends(UP "0REDUCE,1REDUCE,WAIT,0REPLICA_REDUCE,1REPLICA_REDUCE,NORM,STEP",
               DOWN "1REDUCE,0REDUCE,WAIT,0REPLICA_REDUCE,1REPLICA_REDUCE,NORM,STEP",
               (enum sched_rule)0, NULL);
    check_ends(UP "0REPLICA_REDUCE,1REPLICA_REDUCE,NORM,STEP",
               DOWN "1REPLICA_REDUCE,0REPLICA_REDUCE,NORM,STEP", SCHED_RULE_DEADLOCK,
               "0REPLICA_REDUCE of rank 0 (place 8) waits for 0REPLICA_REDUCE of rank 1, "
               "1REPLICA_REDUCE of rank 1 (place 8) waits for 1REPLICA_REDUCE of rank 0");
    check_ends(UP "NORM,STEP", DOWN "NORM,STEP", SCHED_RULE_REDUCTION,
               "there is no 0REPLICA_REDUCE; add it");
    check_ends(UP "0REPLICA_REDUCE,NORM,STEP", DOWN "0REPLICA_REDUCE,NORM,STEP",
               SCHED_RULE_REDUCTION, "no 1REPLICA_REDUCE");
    check_ends(UP "0REPLICA_REDUCE,1REPLICA_REDUCE,NORM,STEP", DOWN "0REPLICA_REDUCE,NORM,STEP",
               SCHED_RULE_REDUCTION,
               "rank 1, place 10, STEP: the replicas of stage 1 must be summed");
    check_ends(UP "0REPLICA_REDUCE,1REPLICA_REDUCE,0REDUCE,1REDUCE,WAIT,NORM,STEP",
               DOWN "0REDUCE,1REDUCE,WAIT,0REPLICA_REDUCE,1REPLICA_REDUCE,NORM,STEP",
               SCHED_RULE_REDUCTION,
               "0REPLICA_REDUCE: stage 0 is reduced later, at place 10; move it after");
    check_ends("0F0,0SEND_F0,1RECV_F1,1F1,1REPLICA_REDUCE,1B1,1SEND_B1,0RECV_B0,0B0,"
               "0REPLICA_REDUCE,NORM,STEP",
               "0F1,0SEND_F1,1RECV_F0,1F0,1B0,1SEND_B0,1REPLICA_REDUCE,0RECV_B1,0B1,"
               "0REPLICA_REDUCE,NORM,STEP",
               SCHED_RULE_REDUCTION, "only 0 of 1 weight gradients of stage 1");
    check_ends(UP "0.2REDUCE,0.1REDUCE,1REDUCE,WAIT,0REPLICA_REDUCE,1REPLICA_REDUCE,NORM,STEP",
               DOWN "0REDUCE,1REDUCE,WAIT,0REPLICA_REDUCE,1REPLICA_REDUCE,NORM,STEP",
               SCHED_RULE_ORDER,
               "with two replicas stages stay whole; leave the segment out");
    check_ends(UP "0EMBED_REDUCE,0REPLICA_REDUCE,1REPLICA_REDUCE,NORM,STEP",
               DOWN "1EMBED_REDUCE,0REPLICA_REDUCE,1REPLICA_REDUCE,NORM,STEP",
               SCHED_RULE_COVERAGE, "share one embedding");
    /* the embedding of rank 0 also gets what the head there, of the other way, owes it */
    check_ends("0F0,0SEND_F0,0RECV_B0,0B0,0REPLICA_REDUCE,1RECV_F1,1F1,1B1,1SEND_B1,"
               "1REPLICA_REDUCE,NORM,STEP",
               "1RECV_F0,1F0,1B0,1SEND_B0,0F1,0SEND_F1,0RECV_B1,0B1,0REPLICA_REDUCE,"
               "1REPLICA_REDUCE,NORM,STEP",
               SCHED_RULE_DEADLOCK, "0REPLICA_REDUCE");
    check_ends("0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE,WAIT,"
               "0REPLICA_REDUCE,1REPLICA_REDUCE,NORM,STEP",
               "1RECV_F0,1F0,1B0,1SEND_B0,0F1,0SEND_F1,0RECV_B1,0B1,0REDUCE,1REDUCE,WAIT,"
               "0REPLICA_REDUCE,1REPLICA_REDUCE,NORM,STEP",
               SCHED_RULE_REDUCTION,
               "rank 0, place 4, 0REDUCE: only 0 of 1 weight gradients of "
               "stage 1 are added before");
}

/* What only a program can write: a half of a pair that is missing, a wrong peer. */
static void fields_refused(void)
{
    struct sched s, low;
    struct sched_report r = {0};
    CHECK_OK(parse("0F0,(0F1;0B0)OV,0B1\n", &s));
    s.instr[2] = s.instr[3]; /* F1 becomes B0 */
    s.instr[3] = (struct sched_instr){.op = SCHED_F, .mb = 1};
    CHECK_ERR(sched_check(&s, &r), ERR_CONFIG, "a pair is a forward and a whole backward");
    sched_report_free(&r);
    sched_free(&s);
    CHECK_OK(parse("0F0,0B0,0F1,0B1\n", &s));
    s.instr[3].op = SCHED_OVERLAP_F_B;
    CHECK_ERR(sched_check(&s, &r), ERR_CONFIG, "without 0B1");
    sched_report_free(&r);
    sched_free(&s);
    CHECK_OK(sched_make("chimera", &(struct sched_shape){.p = 4, .m = 4, .v = 1}, NULL, &s));
    CHECK_OK(sched_lower(&s, &all_ends, &low));
    struct sched_instr *last = &low.instr[low.begin[1] - 3]; /* before NORM, STEP */
    CHECK(last->op == SCHED_REPLICA_REDUCE && last->peer == 3);
    last->peer = 2;
    CHECK_ERR(sched_check(&low, &r), ERR_CONFIG, "its peer is rank 2, the other replica is on rank "
                                                 "3");
    sched_report_free(&r);
    sched_free(&low);
    sched_free(&s);
}

/* ---- text and lowering ---- */

static void check_lowered(const char *from, const struct sched_lower_args *args, const char *want)
{
    struct sched s, low, again;
    struct sched_report r = {0};
    struct text t = {0};
    CHECK_OK(parse(from, &s));
    CHECK_OK(sched_lower(&s, args, &low));
    sched_print(&low, &t);
    CHECK_STR(t.s, want);
    CHECK_OK(sched_check(&low, &r));
    CHECK_OK(parse(t.s, &again)); /* and the text says everything */
    CHECK(again.replicas == low.replicas && again.lowered);
    CHECK(memcmp(again.place, low.place, (size_t)(low.replicas * low.stages) * 2) == 0);
    CHECK(memcmp(again.way, low.way, (size_t)low.m) == 0);
    CHECK_INT(again.begin[low.p], low.begin[low.p]);
    CHECK(memcmp(again.instr, low.instr, (size_t)low.begin[low.p] * sizeof *low.instr) == 0);
    text_free(&t);
    sched_report_free(&r);
    sched_free(&again);
    sched_free(&low);
    sched_free(&s);
}

static void lowered_text(void)
{
    check_lowered("0F0,1F1,1B1,0B0\n0F1,1F0,1B0,0B1\n", &all_ends,
                  UP "0REDUCE,1REDUCE,WAIT,0REPLICA_REDUCE,1REPLICA_REDUCE,NORM,STEP\n" DOWN
                     "0REDUCE,1REDUCE,WAIT,0REPLICA_REDUCE,1REPLICA_REDUCE,NORM,STEP\n");
    /* both receives before the pair, both sends behind it */
    check_lowered("0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,(1F2;1B0)OVERLAP_F_B,1B1,1B2\n2F0,2B0,2F1,2B1,"
                  "2F2,2B2\n",
                  &no_ends,
                  "0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2,0RECV_B0,0B0,0RECV_B1,0B1,0RECV_B2,0B2"
                  "\n1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,1RECV_F2,1RECV_B0,"
                  "(1F2;1B0)OVERLAP_F_B,1SEND_F2,1SEND_B0,1RECV_B1,1B1,1SEND_B1,1RECV_B2,1B2,"
                  "1SEND_B2\n"
                  "2RECV_F0,2F0,2B0,2SEND_B0,2RECV_F1,2F1,2B1,2SEND_B1,2RECV_F2,2F2,2B2,2SEND_B2"
                  "\n");
    struct sched s, low;
    /* rank 2 has the head of the way down and no embedding */
    CHECK_OK(parse("0F0,0B0\n1F0,3F1,3B1,1B0\n3F0,1F1,1B1,3B0,2F0,2B0\n0F1,2F1,2B1,0B1\n", &s));
    CHECK_ERR(sched_lower(&s, &all_ends, &low), ERR_CONFIG, "tied embedding");
    sched_free(&s);
}

static void text_refused(void)
{
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"0F0,(0F1;0B0)OV,0OV\n", "column 17, \"0OV\": OVERLAP_F_B ends a pair"},
        {"(0F1)OV\n", "column 1, \"(0F1)OV\": a pair is a forward and a backward"},
        {"(0F1;0B0)\n", "a pair is"},
        {"(0F1;0B0)OVER\n", "\"ER\""},
        {"(0F1;0B0)OV0\n", "column 12, \"0\": this follows a whole cell"},
        {"(0B1;0F0)OV\n", "a pair is"},
        {"(0F1;0I0)OV\n", "a pair is"},
        {"(0F1;0B0\n", "a pair is"},
        {"(0F1,0B0)OV\n", "a pair is"},
        {"(0F1 ;0B0)OV\n", "a pair is"},
        {"((0F1;0B0)OV;0B0)OV\n", "this is no instruction"},
        {"0F0,0B0,1F0,1B0\n0F1,0B1\n", "stage 1 computes on no line for the microbatches of the "
                                       "second replica"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sched s;
        enum err err = parse(bad[i].text, &s);
        test_check(err == ERR_CONFIG && strstr(err_text(), bad[i].part), __FILE__, __LINE__,
                   "%s: wanted \"%s\", got %d: %s", bad[i].text, bad[i].part, (int)err, err_text());
        if (err == ERR_OK)
            sched_free(&s);
    }
}

static void hashes(void)
{
    struct sched s[3];
    struct sched_report r[3] = {{0}};
    CHECK_OK(parse("0F0,1F1,1B1,0B0\n0F1,1F0,1B0,0B1\n", &s[0]));
    CHECK_OK(parse("0F0,1F1,1B1,0B0\n0F1,1F0,1B0,0B1\n", &s[1]));
    CHECK_OK(parse("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", &s[2]));
    for (int i = 0; i < 3; i++)
        CHECK_OK(sched_check(&s[i], &r[i]));
    CHECK(r[0].hash == r[1].hash && order_hash(&s[0]) == order_hash(&s[1]));
    /* each stage adds 0, then 1; but with two replicas the two sums are added last */
    CHECK(r[0].hash != r[2].hash && order_hash(&s[0]) != order_hash(&s[2]));
    for (int i = 0; i < 3; i++) {
        sched_report_free(&r[i]);
        sched_free(&s[i]);
    }
}

static const struct test_case cases[] = {
    {"rules_broken", rules_broken},
    {"sums_of_replicas", sums_of_replicas},
    {"fields_refused", fields_refused},
    {"lowered_text", lowered_text},
    {"text_refused", text_refused},
    {"hashes", hashes},
};
TEST_MAIN(cases)
