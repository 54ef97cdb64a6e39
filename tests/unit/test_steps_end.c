/* SPDX-License-Identifier: Apache-2.0
 *
 * What ends a step: NORM and the updates of weights, as lists have them, as the pass for shared
 * updates writes them, and what the rules of steps and of weights refuse.
 */
#include "sched/sched.h"

#include "broken.h"
#include "order.h"

static void shared_in_text(void)
{
    static const uint8_t n[] = {1, 2};
    struct sched s, low, cut, zero;
    struct sched_report r;
    CHECK_OK(parse("0F0,0B0\n1F0,1B0\n", &s));
    CHECK_OK(sched_lower(&s, &(struct sched_lower_args){.reduce = true, .step = true}, &low));
    CHECK_OK(sched_segment(&low, n, false, &cut));
    CHECK_OK(sched_zero(&cut, &zero));
    const char *want =
        "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE,WAIT,NORM,0UPDATE,0GATHER,WAIT\n"
        "1RECV_F0,1F0,1.2B0,1.2REDUCE,1.1B0,1.1REDUCE,1SEND_B0,WAIT,NORM,1.1UPDATE,1.1GATHER,"
        "1.2UPDATE,1.2GATHER,WAIT\n";
    check_reads_back(&zero, want);
    CHECK_OK(sched_check(&zero, &r));
    sched_report_free(&r);
    CHECK_ERR(sched_zero(&s, &low), ERR_INTERNAL, "is not lowered");
    sched_free(&zero);
    sched_free(&cut);
    sched_free(&low);
    sched_free(&s);
}

/* The pass changes the end of each list alone, and what it writes is proved; of every schedule. */
static void every_schedule(void)
{
    static const struct sched_lower_args ends = {.reduce = true, .step = true};
    int made = 0;
    for (int kind = 0; kind < sched_kind_count(); kind++)
        for (int p = 1; p <= 4; p++) {
            const struct sched_kind *k = sched_kind_at(kind);
            struct sched_shape shape = {p, 8, k->chunks ? k->chunks : 1, 0};
            struct sched s, low, zero;
            struct sched_report r[2] = {{0}};
            if (sched_make(k->name, &shape, NULL, &s) != ERR_OK)
                continue;
            CHECK_OK(sched_lower(&s, &ends, &low));
            CHECK_OK(sched_zero(&low, &zero));
            CHECK_OK(sched_check(&low, &r[0]));
            CHECK_OK(sched_check(&zero, &r[1]));
            CHECK(r[0].hash != r[1].hash && order_hash(&low) == order_hash(&zero));
            for (int rank = 0; rank < p; rank++) {
                int64_t n = low.begin[rank + 1] - low.begin[rank] - 1;
                CHECK(memcmp(&low.instr[low.begin[rank]], &zero.instr[zero.begin[rank]],
                             (size_t)n * sizeof *low.instr) == 0);
                CHECK_INT(zero.begin[rank + 1] - zero.begin[rank],
                          n + 2 * sched_stage_replicas_on(&low, rank) + 1);
            }
            sched_report_free(&r[0]);
            sched_report_free(&r[1]);
            sched_free(&zero);
            sched_free(&low);
            sched_free(&s);
            made++;
        }
    CHECK(made > 30);
}

#define END "0F0,0B0,0REDUCE,WAIT,"
#define TWO "0F0,0.2B0,0.2REDUCE,0.1B0,0.1REDUCE,WAIT,NORM,"
#define PAIR "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE,WAIT,"
#define TAIL "\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE,WAIT,"

/* Lists that gather what they dropped, at any time before it is used. */
static void weights_come_back(void)
{
    static const char *const good[] = {
        END "NORM,0UPDATE,0GATHER,WAIT\n",
        TWO "0.1UPDATE,0.2UPDATE,0.2GATHER,0.1GATHER,WAIT\n",
        TWO "0UPDATE,0GATHER,WAIT\n",
        TWO "0UPDATE,0.1GATHER,0.2GATHER,WAIT\n",
        "0DROP,0GATHER," END "NORM,STEP\n",
        "0DROP,0GATHER,WAIT," END "NORM,STEP\n",
        "0F0,0.2DROP,0.3B0,0.2GATHER,0.2B0,0.2DROP,0.1B0,0.1DROP,0.1GATHER,0.2GATHER,WAIT,NORM,"
        "STEP\n",
        "0F0,0B0,0REDUCE,WAIT,NORM,0UPDATE,0GATHER,WAIT,0DROP,0GATHER,WAIT\n",
        PAIR "NORM,0UPDATE,0GATHER,WAIT" TAIL "NORM,1UPDATE,1GATHER,WAIT\n",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct sched s;
        struct sched_report r;
        CHECK_OK(parse(good[i], &s));
        test_check(sched_check(&s, &r) == ERR_OK, __FILE__, __LINE__, "%s: %s", good[i],
                   err_text());
        sched_report_free(&r);
        sched_free(&s);
    }
}

/* A list in memory may name a segment that its stage has not. */
static void segments_out_of_bounds(void)
{
    static const char *const text[] = {
        "0F0,0DROP,0GATHER,0.2B0,0.1B0,NORM,STEP\n",
        "0F0,0.1DROP,0.1GATHER,0.2B0,0.1B0,NORM,STEP\n"};
    for (int k = 0; k < 2; k++)
        for (int at = 1; at <= 2; at++) {
            struct sched s;
            struct sched_report r;
            CHECK_OK(parse(text[k], &s));
            s.instr[at].seg = 255;
            CHECK_ERR(sched_check(&s, &r), ERR_CONFIG, "stage 0 has segments up to 2; use one of");
            CHECK(r.rule == SCHED_RULE_WEIGHTS);
            sched_report_free(&r);
            sched_free(&s);
        }
}

static const struct broken broken[] = {
    {SCHED_RULE_COVERAGE, END "NORM,NORM,STEP\n", "it comes a second time"},
    {SCHED_RULE_COVERAGE, END "NORM,STEP,STEP\n", "it comes a second time"},
    {SCHED_RULE_PLACEMENT, PAIR "NORM,1UPDATE,0GATHER,WAIT" TAIL "NORM,1UPDATE,1GATHER,WAIT\n",
     "stage 1 stands on rank 1; move it there"},
    {SCHED_RULE_REDUCTION, "0F0,0B0,0REDUCE,NORM,WAIT,STEP\n", "before what reads the sums"},
    {SCHED_RULE_STEP, END "STEP\n", "rank 0, place 4, STEP: weights are updated with the norm"},
    {SCHED_RULE_STEP, END "STEP,NORM\n", "put NORM before it"},
    {SCHED_RULE_STEP, END "0UPDATE,NORM,0GATHER,WAIT\n", "put NORM before it"},
    {SCHED_RULE_STEP, "0F0,NORM,STEP,0B0\n", "0B0: behind NORM weights are updated"},
    {SCHED_RULE_STEP, END "NORM\n", "the list ends without STEP behind NORM; add it"},
    {SCHED_RULE_STEP, END "NORM,WAIT\n", "the list ends without STEP behind NORM; add it"},
    {SCHED_RULE_STEP, END "NORM,STEP,0UPDATE,0GATHER,WAIT\n", "STEP before it has updated all"},
    {SCHED_RULE_STEP, END "NORM,0UPDATE,STEP,0GATHER,WAIT\n", "weights are updated before it"},
    {SCHED_RULE_STEP, END "NORM,0UPDATE,0UPDATE,0GATHER,WAIT\n",
     "all of stage 0 is updated already"},
    {SCHED_RULE_STEP, TWO "0.1UPDATE,0.1GATHER,WAIT\n", "the list ends without 0.2UPDATE; add it"},
    {SCHED_RULE_STEP, TWO "0.2UPDATE,0.1UPDATE,0GATHER,WAIT\n", "the next to be updated is 1"},
    {SCHED_RULE_STEP, TWO "0.1UPDATE,0UPDATE,0GATHER,WAIT\n", "the next to be updated is 2"},
    {SCHED_RULE_STEP, PAIR "NORM,STEP" TAIL "\n", "rank 0 steps, this one does not"},
    {SCHED_RULE_STEP, PAIR TAIL "NORM,STEP\n", "rank 0 does not step, this one does"},
    {SCHED_RULE_STEP, PAIR "NORM,STEP" TAIL "NORM,1UPDATE,1GATHER,WAIT\n",
     "rank 0 steps by STEP, this one by UPDATE; let all do the same"},
    {SCHED_RULE_WEIGHTS, END "NORM,0UPDATE\n", "gather them, and end it with WAIT"},
    {SCHED_RULE_WEIGHTS, END "NORM,0UPDATE,0GATHER\n", "not whole here; end it with WAIT"},
    {SCHED_RULE_WEIGHTS, TWO "0UPDATE,0.2GATHER,WAIT\n", "gather them, and end it with WAIT"},
    {SCHED_RULE_WEIGHTS, "0GATHER," END "NORM,STEP\n", "the weights are whole here; remove it"},
    {SCHED_RULE_WEIGHTS, "0DROP,0GATHER,0GATHER," END "NORM,STEP\n", "gathered already; remove it"},
    {SCHED_RULE_WEIGHTS, "0DROP,0GATHER,0DROP,0GATHER," END "NORM,STEP\n", "put WAIT before it"},
    {SCHED_RULE_WEIGHTS, "0DROP,0DROP,0GATHER," END "NORM,STEP\n", "weights are not here; remove"},
    {SCHED_RULE_WEIGHTS, "0DROP," END "NORM,STEP\n",
     "0F0: it computes with weights of stage 0 that are not whole here; put 0GATHER before it"},
    {SCHED_RULE_WEIGHTS, "0F0,0.2DROP,0.3B0,0.2B0,0.1B0,0.2GATHER,WAIT,NORM,STEP\n",
     "0.2B0: it computes"},
    {SCHED_RULE_WEIGHTS, "0.2DROP,0F0,0.2GATHER,0.3B0,0.2B0,0.1B0,WAIT,NORM,STEP\n",
     "0F0: it computes"},
    {SCHED_RULE_WEIGHTS, "0F0,0.1DROP,0.3B0,0.2B0,0.1GATHER,0.1B0,WAIT,NORM,STEP\n",
     "0.3B0: it computes"},
    {SCHED_RULE_WEIGHTS, /* the head may have the embedding's matrix */
     "0F0,1F0,0DROP,1B0,0GATHER,0B0,WAIT,NORM,STEP\n", "1B0: it computes with weights of stage 0"},
};

static void rules_broken(void)
{
    check_broken(broken, sizeof broken / sizeof *broken);
}

static const struct test_case cases[] = {
    {"shared_in_text", shared_in_text},
    {"every_schedule", every_schedule},
    {"weights_come_back", weights_come_back},
    {"segments_out_of_bounds", segments_out_of_bounds},
    {"rules_broken", rules_broken},
};
TEST_MAIN(cases)
