/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules: generators, text, lowering, and every rule of the check by a schedule that breaks it.
 */
#include "base/mem.h"
#include "sched/sched.h"
#include "test.h"

static const struct sched_lower_args no_ends = {0};
static const struct sched_lower_args all_ends = {.reduce = true, .tied = true, .step = true};

static enum err parse(const char *text, struct sched *out)
{
    return sched_parse("test", text, (int64_t)strlen(text), out);
}

static void check_text(const struct sched *s, const char *want)
{
    struct text t = {0};
    char *got;
    sched_print(s, &t);
    CHECK_OK(text_done(&t, &got));
    CHECK_STR(got, want);
    mem_free(got);
}

/* Makes, lowers and checks; both are the caller's. */
static bool prepare(const char *name, struct sched_shape shape, struct sched *s,
                    struct sched_report *r)
{
    struct sched made;
    if (!CHECK(sched_make(name, &shape, &made) == ERR_OK))
        return false;
    enum err err = sched_lower(&made, &all_ends, s);
    sched_free(&made);
    if (!test_check(err == ERR_OK, __FILE__, __LINE__, "%s p %d m %d: %s", name, shape.p, shape.m,
                    err_text()))
        return false;
    err = sched_check(s, r);
    return test_check(err == ERR_OK, __FILE__, __LINE__, "%s p %d m %d: %s", name, shape.p, shape.m,
                      err_text());
}

static void orders(void)
{
    static const struct {
        const char *name;
        struct sched_shape shape;
        const char *text;
    } want[] = {
        {"naive", {2, 2, 1}, "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n"},
        {"gpipe", {2, 2, 1}, "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"},
        {"1f1b", {1, 2, 1}, "0F0,0B0,0F1,0B1\n"},
        {"1f1b", {3, 1, 1}, "0F0,0B0\n1F0,1B0\n2F0,2B0\n"},
        {"1f1b", {3, 2, 1}, "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n"},
        {"1f1b", {2, 3, 1}, "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct sched s;
        CHECK_OK(sched_make(want[i].name, &want[i].shape, &s));
        CHECK_STR(s.name, want[i].name);
        check_text(&s, want[i].text);
        sched_free(&s);
    }
}

static void forward_order(void)
{
    struct sched s, low;
    struct sched_report r;
    CHECK_OK(sched_make_forward(&(struct sched_shape){2, 2, 2}, &s));
    CHECK(s.forward_only);
    check_text(&s, "0F0,0F1,2F0,2F1\n1F0,1F1,3F0,3F1\n");
    CHECK_ERR(sched_lower(&s, &all_ends, &low), ERR_INTERNAL, "no gradients");
    CHECK_OK(sched_lower(&s, &no_ends, &low));
    CHECK_OK(sched_check(&low, &r));
    for (int stage = 0; stage < 4; stage++)
        CHECK_INT(r.stage_peak[stage], 1); /* each activation leaves at once */
    sched_report_free(&r);
    sched_free(&low);
    sched_free(&s);
}

/* On one rank the activations of a chunk wait for the next chunk there. */
static void forward_on_one_rank(void)
{
    struct sched s, low;
    struct sched_report r;
    CHECK_OK(sched_make_forward(&(struct sched_shape){1, 3, 2}, &s));
    CHECK_OK(sched_lower(&s, &no_ends, &low));
    CHECK_OK(sched_check(&low, &r));
    CHECK_INT(r.stage_peak[0], 3);
    CHECK_INT(r.stage_peak[1], 1);
    sched_report_free(&r);
    sched_free(&low);
    sched_free(&s);
}

static void shapes_refused(void)
{
    struct sched s;
    for (int i = 0; i < sched_kind_count(); i++) {
        const char *name = sched_kind_at(i)->name;
        CHECK_ERR(sched_make(name, &(struct sched_shape){4, 8, 2}, &s), ERR_CONFIG, "use v 1");
        CHECK_ERR(sched_make(name, &(struct sched_shape){0, 8, 1}, &s), ERR_CONFIG, "p 0");
        CHECK_ERR(sched_make(name, &(struct sched_shape){4097, 8, 1}, &s), ERR_CONFIG, "1 to 4096");
        CHECK_ERR(sched_make(name, &(struct sched_shape){4, 0, 1}, &s), ERR_CONFIG, "m 0");
        CHECK_ERR(sched_make(name, &(struct sched_shape){4, 65536, 1}, &s), ERR_CONFIG, "65535");
        CHECK_ERR(sched_make(name, &(struct sched_shape){4, 4, 0}, &s), ERR_CONFIG, "1 to 4096");
        CHECK_ERR(sched_make(name, &(struct sched_shape){4, 4, -1}, &s), ERR_CONFIG, "v -1");
    }
    CHECK_ERR(sched_make("1f1", &(struct sched_shape){4, 8, 1}, &s), ERR_CONFIG, "nearest is 1f1b");
    CHECK_ERR(sched_make("zzzzzzzz", &(struct sched_shape){4, 8, 1}, &s), ERR_CONFIG,
              "naive, gpipe, 1f1b");
}

static void grid(void)
{
    for (int kind = 0; kind < sched_kind_count(); kind++) {
        const char *name = sched_kind_at(kind)->name;
        for (int p = 1; p <= 8; p++) {
            for (int m = 1; m <= 3 * p; m++) {
                struct sched s = {0};
                struct sched_report r = {0};
                if (prepare(name, (struct sched_shape){p, m, 1}, &s, &r)) {
                    for (int rank = 0; rank < p; rank++) {
                        int want = strcmp(name, "gpipe") == 0  ? m
                                   : strcmp(name, "1f1b") == 0 ? (p - rank < m ? p - rank : m)
                                                               : 1;
                        CHECK_INT(r.peak[rank], want);
                        CHECK_INT(r.stage_peak[rank], want);
                        CHECK_INT(r.grad_peak[rank], 0);
                    }
                    CHECK(s.checked);
                }
                sched_report_free(&r);
                sched_free(&s);
            }
        }
    }
}

static void lowered_text(void)
{
    struct sched s, low, again;
    CHECK_OK(sched_make("1f1b", &(struct sched_shape){2, 2, 1}, &s));
    CHECK_OK(sched_lower(&s, &all_ends, &low));
    const char *want = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE,0TIED,STEP\n"
                       "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE,1TIED,STEP\n";
    check_text(&low, want);
    CHECK_INT(low.instr[1].peer, 1);
    CHECK_OK(parse(want, &again));
    CHECK(again.lowered && !again.forward_only);
    CHECK_INT(again.begin[2], low.begin[2]);
    CHECK(memcmp(again.instr, low.instr, (size_t)low.begin[2] * sizeof *low.instr) == 0);
    CHECK_ERR(sched_lower(&low, &no_ends, &s), ERR_INTERNAL, "lowered already");
    sched_free(&again);
    sched_free(&low);
    sched_free(&s);
}

static void lower_text(const char *from, const struct sched_lower_args *args, const char *want)
{
    struct sched s, low;
    struct sched_report r = {0};
    CHECK_OK(parse(from, &s));
    CHECK_OK(sched_lower(&s, args, &low));
    check_text(&low, want);
    CHECK_OK(sched_check(&low, &r));
    sched_report_free(&r);
    sched_free(&low);
    sched_free(&s);
}

/* A receiver that uses messages in another order than they are sent in takes them in the sender's. */
static void receives_moved_forward(void)
{
    lower_text("0F0,0F1,0B1,0B0\n1F1,1F0,1B1,1B0\n", &no_ends,
               "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B1,0B1,0RECV_B0,0B0\n"
               "1RECV_F0,1RECV_F1,1F1,1F0,1B1,1SEND_B1,1B0,1SEND_B0\n");
}

/* A slot is needed from the receive on. */
static void slots_count_from_the_receive(void)
{
    struct sched s, low;
    struct sched_report r;
    CHECK_OK(parse("0F0,0F1,0B1,0B0\n1F1,1B1,1F0,1B0\n", &s));
    CHECK_OK(sched_lower(&s, &no_ends, &low));
    CHECK_OK(sched_check(&low, &r));
    CHECK_INT(r.peak[1], 1);
    CHECK_INT(r.stage_peak[1], 2);
    sched_report_free(&r);
    sched_free(&low);
    sched_free(&s);
}

/* Stages 1 and 2 stand on one rank: nothing is sent between them. Backward in halves: the gradient
 * leaves with I, the sum is complete with W. Stage 0 and 3 share a rank: no tied sum. */
static void local_stages_and_halves(void)
{
    lower_text("0F0,3F0,3I0,3W0,0I0,0W0\n1F0,2F0,2B0,1I0,1W0\n", &all_ends,
               "0F0,0SEND_F0,3RECV_F0,3F0,3I0,3SEND_B0,3W0,3REDUCE,0RECV_B0,0I0,0W0,0REDUCE,STEP\n"
               "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2B0,2REDUCE,1I0,1SEND_B0,1W0,1REDUCE,STEP\n");
}

static void rules_broken(void)
{
    static const struct {
        enum sched_rule rule;
        const char *text, *part;
    } bad[] = {
        {SCHED_RULE_COVERAGE, "0F0,0F0,0B0\n", "rank 0, place 1, 0F0: it comes a second time"},
        {SCHED_RULE_COVERAGE, "0F0,0B0,0F1\n", "rank 0, place 2, 0F1: the list ends without 0B1"},
        {SCHED_RULE_COVERAGE, "0F0,0B0,0B1\n", "without 0F1"},
        {SCHED_RULE_COVERAGE, "0F0,0B0,0I0\n", "rank 0, place 1, 0B0: there is 0I0 too"},
        {SCHED_RULE_COVERAGE, "0F0,0I0,0F1,0B1\n", "without 0W0, but has its other half"},
        {SCHED_RULE_COVERAGE, "16383F65534,16383B65534\n", "name every stage"},
        {SCHED_RULE_COVERAGE, "0F60000,0B60000\n", "need 60001 forwards"},
        {SCHED_RULE_COVERAGE, "0F0,0B0,STEP,STEP\n", "a second time"},
        {SCHED_RULE_PLACEMENT, "0F0,0F1,0B1\n1F0,1B0,1F1,1B1,0B0\n",
         "rank 1, place 4, 0B0: stage 0 stands on rank 0"},
        {SCHED_RULE_ORDER, "0B0,0F0\n", "rank 0, place 0, 0B0: its forward 0F0 comes later"},
        {SCHED_RULE_ORDER, "0F0,0W0,0I0\n", "rank 0, place 1, 0W0: 0I0, which it follows"},
        {SCHED_RULE_CYCLE, "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
         "0B0 of rank 0 (place 1) waits for 1B0 of rank 1, 1F1 of rank 1 (place 0) waits for 0F1 of "
         "rank 0"},
        {SCHED_RULE_CYCLE, "1F0,0F0,1B0,0B0\n", "over 1 rank: 1F0 of rank 0 (place 0) waits for 0F0"},
        {SCHED_RULE_PAIRING, "0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n",
         "rank 1, place 0, 1F0: its input comes from rank 0, but there is no 1RECV_F0"},
        {SCHED_RULE_PAIRING, "0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
         "rank 0, place 0, 0F0: rank 1 needs its result, but there is no 0SEND_F0"},
        {SCHED_RULE_PAIRING, "0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
         "rank 0, place 0, 0SEND_F0: what it sends is made later"},
        {SCHED_RULE_PAIRING, "0F0,0SEND_F0,0B0,0RECV_B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
         "rank 0, place 3, 0RECV_B0: it is used before"},
        {SCHED_RULE_PAIRING, "0F0,0SEND_F0,1F0,1B0,0B0\n", "is on no other rank; remove it"},
        {SCHED_RULE_PAIRING, "0F0,0SEND_B0,0B0\n", "is on no other rank; remove it"},
        {SCHED_RULE_CHANNEL,
         "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
         "1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n",
         "rank 1, place 0, 1RECV_F1: it is receive 0 of the channel from rank 0, which sends it as "
         "message 1"},
        {SCHED_RULE_DEADLOCK, "0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
         "over 2 ranks: 0RECV_B0 of rank 0 (place 1) waits for 1SEND_B0 of rank 1, 1RECV_F0 of rank 1 "
         "(place 0) waits for 0SEND_F0 of rank 0"},
        {SCHED_RULE_DEADLOCK, /* rank 1 owes rank 0 a gradient, and waits for it in the tied sum */
         "0F0,0SEND_F0,0RECV_B0,0B0,0TIED\n1RECV_F0,1F0,1B0,1TIED,1SEND_B0\n", "waits for 0TIED"},
        {SCHED_RULE_REDUCTION, "0F0,0B0,0REDUCE,0F1,0B1\n",
         "rank 0, place 2, 0REDUCE: only 1 of 2 weight gradients of stage 0"},
        {SCHED_RULE_REDUCTION, "0F0,0I0,0REDUCE,0W0\n", "only 0 of 1 weight gradients"},
        {SCHED_RULE_REDUCTION, "0F0,1F0,1B0,1REDUCE,0B0\n", "there is no 0REDUCE"},
        {SCHED_RULE_REDUCTION, "0F0,STEP,0B0\n", "rank 0, place 1, STEP: 1 instructions follow"},
        {SCHED_RULE_REDUCTION, "0F0,0SEND_F0,0RECV_B0,0B0,STEP\n1RECV_F0,1F0,1B0,1SEND_B0\n",
         "rank 1, place 3, 1SEND_B0: other ranks step"},
        {SCHED_RULE_REDUCTION, "0F0,0SEND_F0,0RECV_B0,0B0,0TIED\n1RECV_F0,1F0,1B0,1SEND_B0\n",
         "rank 1 has no 1TIED"},
        {SCHED_RULE_REDUCTION,
         "0F0,0SEND_F0,0RECV_B0,0B0,0TIED,0REDUCE\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE,1TIED\n",
         "stage 0 is reduced later, at place 5"},
        {SCHED_RULE_REDUCTION, "0F0,0SEND_F0,0RECV_B0,0TIED,0B0\n1RECV_F0,1F0,1B0,1SEND_B0,1TIED\n",
         "the weight gradient of microbatch 0 is added later, at place 4"},
        {SCHED_RULE_REDUCTION, "0F0,0B0,0TIED\n", "stand on one rank"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sched s;
        struct sched_report r = {0};
        enum err err = parse(bad[i].text, &s);
        if (err == ERR_OK) {
            err = sched_check(&s, &r);
            CHECK_INT(r.rule, bad[i].rule);
            CHECK(!s.checked);
            char name[64];
            snprintf(name, sizeof name, "V%d (%s)", (int)bad[i].rule, sched_rule_name(bad[i].rule));
            CHECK(strstr(err_text(), name) != NULL);
            sched_report_free(&r);
            sched_free(&s);
        }
        test_check(err == ERR_CONFIG && strstr(err_text(), bad[i].part), __FILE__, __LINE__,
                   "%s: wanted \"%s\", got %d: %s", bad[i].text, bad[i].part, (int)err, err_text());
    }
}

/* The lowering refuses what the check of computing refuses, with the same words. */
static void lowering_refuses(void)
{
    struct sched s, low;
    CHECK_OK(parse("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", &s));
    CHECK_ERR(sched_lower(&s, &no_ends, &low), ERR_CONFIG, "V4 (cycle)");
    sched_free(&s);
    CHECK_OK(parse("0F0,0F0,0B0\n", &s));
    CHECK_ERR(sched_lower(&s, &no_ends, &low), ERR_CONFIG, "V1 (coverage)");
    sched_free(&s);
}

/* What only a program can write, not the text. */
static void fields_refused(void)
{
    static const struct {
        struct sched_instr in;
        const char *part;
    } bad[] = {
        {{SCHED_OP_COUNT, 0, 0, 0}, "instruction code 11"},
        {{SCHED_F, 2, 0, 0}, "stage 2"},
        {{SCHED_F, 0, 9, 0}, "microbatch 9"},
        {{SCHED_F, 0, 0, 7}, "peer 7"},
        {{SCHED_SEND_F, 0, 0, 1}, "compute only"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sched s;
        struct sched_report r;
        CHECK_OK(sched_make("gpipe", &(struct sched_shape){2, 2, 1}, &s));
        s.instr[0] = bad[i].in;
        CHECK_ERR(sched_check(&s, &r), ERR_CONFIG, bad[i].part);
        sched_report_free(&r);
        sched_free(&s);
    }
    struct sched s = {0}, low;
    struct sched_report r = {0};
    if (!prepare("gpipe", (struct sched_shape){3, 1, 1}, &s, &r))
        return;
    sched_report_free(&r);
    low = s;
    low.instr[1].peer = 2; /* 0SEND_F0 */
    CHECK_ERR(sched_check(&low, &r), ERR_CONFIG, "its peer is rank 2");
    sched_report_free(&r);
    sched_free(&low);
}

/* Naive passes where a send waits for its receive, 1F1B famously does not. */
static void strictest_class(void)
{
    struct sched s = {0};
    struct sched_report r = {0};
    CHECK(prepare("naive", (struct sched_shape){4, 4, 1}, &s, &r) && r.rendezvous);
    sched_report_free(&r);
    sched_free(&s);
    CHECK(prepare("1f1b", (struct sched_shape){2, 4, 1}, &s, &r) && !r.rendezvous);
    sched_report_free(&r);
    sched_free(&s);
}

static uint64_t hash_of(const char *text, uint64_t *order)
{
    struct sched s;
    struct sched_report r;
    CHECK_OK(parse(text, &s));
    CHECK_OK(sched_check(&s, &r));
    uint64_t hash = r.hash;
    *order = r.order_hash;
    sched_report_free(&r);
    sched_free(&s);
    return hash;
}

static void hashes(void)
{
    uint64_t order[5];
    uint64_t a = hash_of("0F0,0F1,0B0,0B1\n", &order[0]);
    uint64_t b = hash_of("0F0,0F1,0B0,0B1", &order[1]);
    uint64_t c = hash_of("0F0,0B0,0F1,0B1\n", &order[2]);
    uint64_t d = hash_of("0F0,0F1,0B1,0B0\n", &order[3]);
    uint64_t e = hash_of("0F0,0F1,0I1,0I0,0W0,0W1\n", &order[4]);
    CHECK(a == b && a != c && a != d && c != d && a != e);
    CHECK(order[0] == order[1] && order[0] == order[2] && order[0] != order[3]);
    CHECK(order[0] == order[4]); /* the order of W counts, not that of I */
}

static void text_refused(void)
{
    static const struct { const char *text, *part; } bad[] = {
        {"", "line 1, column 1, \"\": the line is empty"},
        {"\n", "the line is empty"},
        {"0F0,0B0\n\n1F0,1B0\n", "line 2, column 1"},
        {",,,\n", "the line is empty"},
        {"0F0garbage,0B0\n", "line 1, column 4, \"garbage\": this follows a whole cell"},
        {"0F0 0B0\n", "column 4, \" 0B0\": this follows"},
        {"0F0,0BACKWARD0\n", "column 6, \"BACKWARD0\": this is no instruction"},
        {"0F0,0B\n", "column 7, \"\": the microbatch is not a number"},
        {"0F0,F1\n", "column 5, \"F1\": a stage must come first"},
        {"0F0,0B0,0STEP\n", "STEP names no stage"},
        {"0F00,0B0\n", "\"00\": the microbatch is not a number of 0 to 65534"},
        {"00F0,0B0\n", "the stage is not a number"},
        {"16384F0\n", "the stage is not a number of 0 to 16383"},
        {"0F65535\n", "the microbatch is not a number of 0 to 65534"},
        {"0F99999999999999999999\n", "the microbatch is not a number"},
        {"0F-1\n", "\"-1\": the microbatch"},
        {"-1F0\n", "\"-1F0\": this is no instruction"},
        {"0f0\n", "\"f0\": this is no instruction"},
        {"0F0\r0B0\n", "this follows a whole cell"},
        {"0F0,0B0\n2F0,2B0\n", "stage 1 is on no line"},
        {"0F0,0B0\n1F0,1B0,2F0,2B0\n", "3 stages do not spread over 2 lines"},
        {"STEP\n", "0 stages"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sched s;
        CHECK_ERR(parse(bad[i].text, &s), ERR_CONFIG, bad[i].part);
    }
    struct sched s;
    CHECK_ERR(sched_parse("nul", "0F0\0,0B0", 8, &s), ERR_CONFIG, "column 4, \"?\"");
}

static void text_accepted(void)
{
    static const struct { const char *text, *again; } good[] = {
        {"0F0,0B0", "0F0,0B0\n"},
        {"0F0,0B0\r\n1F0,1B0\r\n", "0F0,0B0\n1F0,1B0\n"},
        {",0F0,,0B0,\n1F0,1B0,,\n", "0F0,0B0\n1F0,1B0\n"},
        {" 0F0 ,\t0B0 \n", "0F0,0B0\n"},
        {"0F0,1F0,1I0,1W0,0B0\n", "0F0,1F0,1I0,1W0,0B0\n"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct sched s;
        CHECK_OK(parse(good[i].text, &s));
        check_text(&s, good[i].again);
        sched_free(&s);
    }
    struct sched s;
    CHECK_OK(parse("0F0,0F1\n1F0,1F1\n", &s));
    CHECK(s.forward_only && !s.lowered && s.m == 2 && s.v == 1);
    sched_free(&s);
    CHECK_OK(parse("1F0,2F0,2B0,1B0\n0F0,3F0,3B0,0B0\n", &s)); /* placement is what the text says */
    CHECK(s.place[0] == 1 && s.place[1] == 0 && s.place[2] == 0 && s.place[3] == 1 && s.v == 2);
    sched_free(&s);
}

/* Whatever text comes: an error or a schedule that survives the whole way and its own print. */
static void survive(const char *text, int64_t n)
{
    struct sched s, low, again;
    struct sched_report r;
    if (sched_parse("fuzz", text, n, &s) != ERR_OK)
        return;
    struct text print = {0};
    sched_print(&s, &print);
    CHECK_OK(sched_parse("fuzz", print.s, print.len, &again));
    CHECK(again.begin[again.p] == s.begin[s.p] && again.lowered == s.lowered);
    text_free(&print);
    sched_free(&again);
    enum err checked = sched_check(&s, &r);
    sched_report_free(&r);
    if (!s.lowered && sched_lower(&s, &no_ends, &low) == ERR_OK) {
        CHECK_OK(checked);
        CHECK_OK(sched_check(&low, &r));
        sched_report_free(&r);
        sched_free(&low);
    }
    sched_free(&s);
}

static void fuzz(void)
{
    static const char *const seed[] = {
        "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
        "0F0,3F0,3I0,3W0,0I0,0W0\n1F0,2F0,2B0,1I0,1W0\n",
        "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE,0TIED,STEP\n"
        "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE,1TIED,STEP\n",
    };
    static const char alphabet[] = "0123456789FBIW,\n\r SENDRCV_TIP\t-x\xff";
    for (int n = 0; n < 120000; n++) {
        char text[256];
        int64_t len = (int64_t)strlen(seed[n % 3]);
        memcpy(text, seed[n % 3], (size_t)len);
        for (int64_t k = test_range(1, 4); k > 0; k--) {
            int64_t at = test_range(0, len - 1), cut = test_range(1, 4);
            char c = alphabet[test_range(0, (int64_t)sizeof alphabet - 2)];
            switch (test_range(0, 3)) {
            case 0: /* replace */
                text[at] = c;
                break;
            case 1: /* insert */
                memmove(text + at + 1, text + at, (size_t)(len - at));
                text[at] = c;
                len++;
                break;
            case 2: /* remove a few */
                cut = cut < len - at ? cut : len - at;
                if (cut == len)
                    break;
                memmove(text + at, text + at + cut, (size_t)(len - at - cut));
                len -= cut;
                break;
            default: /* swap two bytes */
                c = text[at];
                text[at] = text[len - 1 - at];
                text[len - 1 - at] = c;
            }
        }
        survive(text, len);
    }
}

/* ---- random valid schedules: random placement, random topological order ---- */

enum { MAX_P = 5, MAX_STAGES = 12, MAX_M = 5 };

struct world {
    int p, stages, m;
    int place[MAX_STAGES];
    bool split[MAX_STAGES][MAX_M];
    bool done[3][MAX_STAGES][MAX_M]; /* F, B or I, W (with B set as well) */
};

static struct world random_world(void)
{
    struct world w = {.p = (int)test_range(1, MAX_P), .m = (int)test_range(1, MAX_M)};
    int v = (int)test_range(1, MAX_STAGES / w.p);
    w.stages = w.p * v;
    for (int s = 0; s < w.stages; s++)
        w.place[s] = s < w.p ? s : (int)test_range(0, w.p - 1); /* every rank holds one */
    for (int s = w.stages - 1; s > 0; s--) {
        int other = (int)test_range(0, s), keep = w.place[s];
        w.place[s] = w.place[other];
        w.place[other] = keep;
    }
    for (int s = 0; s < w.stages; s++)
        for (int mb = 0; mb < w.m; mb++)
            w.split[s][mb] = test_range(0, 1);
    return w;
}

static bool may_run(const struct world *w, int kind, int s, int mb)
{
    if (w->done[kind][s][mb])
        return false;
    if (kind == 0)
        return s == 0 || w->done[0][s - 1][mb];
    if (kind == 1)
        return w->done[0][s][mb] && (s == w->stages - 1 || w->done[1][s + 1][mb]);
    return w->done[1][s][mb];
}

/* Runs the whole world in a random order that obeys the data, writing each rank's list. */
static void random_text(struct world *w, struct text line[MAX_P])
{
    for (int left = 3 * w->stages * w->m; left > 0;) {
        int kind = (int)test_range(0, 2), s = (int)test_range(0, w->stages - 1);
        int mb = (int)test_range(0, w->m - 1);
        if (!may_run(w, kind, s, mb))
            continue;
        bool split = w->split[s][mb];
        w->done[kind][s][mb] = true;
        left--;
        if (kind == 1 && !split) {
            w->done[2][s][mb] = true;
            left--;
        }
        text_add(&line[w->place[s]], "%s%d%c%d", line[w->place[s]].len ? "," : "", s,
                 kind == 0 ? 'F' : kind == 2 ? 'W' : split ? 'I' : 'B', mb);
    }
}

/* An own, slow machine with real queues: receives must find their message at the head. */
static void run_with_queues(const struct sched *s)
{
    static uint16_t queue[MAX_P][MAX_P][2][MAX_STAGES * MAX_M][2];
    static int head[MAX_P][MAX_P][2], tail[MAX_P][MAX_P][2];
    int64_t at[MAX_P];
    memset(head, 0, sizeof head);
    memset(tail, 0, sizeof tail);
    for (int r = 0; r < s->p; r++)
        at[r] = s->begin[r];
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->p; r++) {
            while (at[r] < s->begin[r + 1]) {
                struct sched_instr in = s->instr[at[r]];
                int kind = in.op == SCHED_SEND_B || in.op == SCHED_RECV_B;
                if (in.op == SCHED_SEND_F || in.op == SCHED_SEND_B) {
                    uint16_t *q = queue[r][in.peer][kind][tail[r][in.peer][kind]++];
                    q[0] = (uint16_t)(kind ? in.stage - 1 : in.stage + 1);
                    q[1] = in.mb;
                } else if (in.op == SCHED_RECV_F || in.op == SCHED_RECV_B) {
                    if (head[in.peer][r][kind] == tail[in.peer][r][kind])
                        break;
                    uint16_t *q = queue[in.peer][r][kind][head[in.peer][r][kind]++];
                    CHECK(q[0] == in.stage && q[1] == in.mb);
                }
                at[r]++;
                moved = true;
            }
        }
    }
    for (int r = 0; r < s->p; r++)
        CHECK_INT(at[r], s->begin[r + 1]);
    CHECK(memcmp(head, tail, sizeof head) == 0);
}

static void random_schedules(void)
{
    for (int n = 0; n < 1500; n++) {
        struct world w = random_world();
        struct text line[MAX_P] = {{0}}, all = {0};
        random_text(&w, line);
        for (int r = 0; r < w.p; r++) {
            text_add(&all, "%s\n", line[r].s);
            text_free(&line[r]);
        }
        struct sched s, low;
        struct sched_report r = {0};
        CHECK_OK(parse(all.s, &s));
        for (int stage = 0; stage < w.stages; stage++)
            CHECK_INT(s.place[stage], w.place[stage]);
        CHECK_OK(sched_lower(&s, &all_ends, &low));
        if (!test_check(sched_check(&low, &r) == ERR_OK, __FILE__, __LINE__, "%s\n%s", all.s,
                        err_text())) {
            text_free(&all);
            return;
        }
        run_with_queues(&low);
        sched_report_free(&r);
        sched_free(&low);
        sched_free(&s);
        text_free(&all);
    }
}

static const struct test_case cases[] = {
    {"orders", orders},
    {"forward_order", forward_order},
    {"forward_on_one_rank", forward_on_one_rank},
    {"shapes_refused", shapes_refused},
    {"grid", grid},
    {"lowered_text", lowered_text},
    {"receives_moved_forward", receives_moved_forward},
    {"slots_count_from_the_receive", slots_count_from_the_receive},
    {"local_stages_and_halves", local_stages_and_halves},
    {"rules_broken", rules_broken},
    {"lowering_refuses", lowering_refuses},
    {"fields_refused", fields_refused},
    {"strictest_class", strictest_class},
    {"hashes", hashes},
    {"text_refused", text_refused},
    {"text_accepted", text_accepted},
    {"fuzz", fuzz},
    {"random_schedules", random_schedules},
};
TEST_MAIN(cases)
