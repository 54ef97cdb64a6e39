/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums that are started, and waited for; backwards that are cut in segments: which, what the pass
 * writes, that nothing which the check plans is another for it, and what the rules refuse.
 */
#include "plan/segments.h"
#include "sched/sched.h"

#include "broken.h"
#include "order.h"

#include <stdio.h>
#include <string.h>

/* The last backward of each stage alone is cut, or its last W. */
static void segments_in_text(void)
{
    static const uint8_t n[] = {1, 3};
    struct sched s, low, cut;
    struct sched_report r;
    CHECK_OK(parse("0F0,0F1,0B0,0I1,0W1\n1F0,1B0,1F1,1I1,1W1\n", &s));
    CHECK_OK(sched_lower(&s, &(struct sched_lower_args){.reduce = true, .step = true}, &low));
    CHECK_OK(sched_segment(&low, n, false, &cut));
    const char *want =
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0I1,0W1,0REDUCE,WAIT,NORM,STEP\n"
        "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1I1,1SEND_B1,1.3W1,1.3REDUCE,1.2W1,1.2REDUCE,1.1W1,"
        "1.1REDUCE,WAIT,NORM,STEP\n";
    check_reads_back(&cut, want);
    CHECK(cut.segments[0] == 1 && cut.segments[1] == 3);
    CHECK_OK(sched_check(&cut, &r));
    sched_report_free(&r);
    CHECK_ERR(sched_segment(&cut, n, false, &s), ERR_INTERNAL, "cut already");
    sched_free(&cut);
    sched_free(&low);
    sched_free(&s);
}

/* All that is planned by the check is the same for a list whose sums are cut. */
static void same_report(const struct sched *low, const struct sched_report *was)
{
    struct sched cut;
    struct sched_report r = {0};
    uint8_t n[64];
    int stage_replicas = low->replicas * low->stages;
    CHECK(low->stages <= (int)sizeof n);
    for (int stage = 0; stage < low->stages; stage++)
        n[stage] = (uint8_t)(1 + (stage * 7 + 2) % 5);
    CHECK_OK(sched_segment(low, n, false, &cut));
    if (CHECK(sched_check(&cut, &r) == ERR_OK)) {
        CHECK(memcmp(r.peak, was->peak, (size_t)low->p * sizeof *r.peak) == 0);
        CHECK(memcmp(r.full_peak, was->full_peak, (size_t)low->p * sizeof *r.peak) == 0);
        CHECK(memcmp(r.stage_peak, was->stage_peak, (size_t)stage_replicas * sizeof *r.peak) == 0);
        CHECK(memcmp(r.save_peak, was->save_peak, (size_t)stage_replicas * sizeof *r.peak) == 0);
        CHECK(memcmp(r.grad_peak, was->grad_peak, (size_t)stage_replicas * sizeof *r.peak) == 0);
        CHECK_INT(r.ring, was->ring);
        CHECK(order_hash(&cut) == order_hash(low));
        CHECK((r.hash == was->hash) == (low->replicas > 1));
    }
    sched_report_free(&r);
    sched_free(&cut);
}

/* Each segment is done again right before its backward, in the place of the whole stage; what is
 * kept in full is no more for it. A stage of one segment stays as it was. */
static void segments_done_again(void)
{
    static const uint8_t n[] = {2, 1};
    struct sched s, again, low, cut;
    struct sched_report whole, r;
    CHECK_OK(sched_make("1f1b", &(struct sched_shape){2, 2, 1, 0}, NULL, &s));
    CHECK_OK(sched_recompute(&s, &again));
    CHECK_OK(sched_lower(&again, &(struct sched_lower_args){.reduce = true, .step = true}, &low));
    CHECK_OK(sched_segment(&low, n, true, &cut));
    struct text t = {0};
    sched_print(&cut, &t);
    CHECK_STR(t.s, "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0.2R0,0.2B0,0.1R0,0.1B0,0RECV_B1,0.2R1,"
                   "0.2B1,0.2REDUCE,0.1R1,0.1B1,0.1REDUCE,WAIT,NORM,STEP\n"
                   "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE,WAIT,NORM,STEP\n");
    text_free(&t);
    CHECK_OK(sched_check(&low, &whole));
    CHECK_OK(sched_check(&cut, &r));
    for (int i = 0; i < 2; i++)
        CHECK(r.save_peak[i] == whole.save_peak[i] && r.stage_peak[i] == whole.stage_peak[i]);
    sched_report_free(&r);
    sched_report_free(&whole);
    sched_free(&cut);
    sched_free(&low);
    sched_free(&again);
    sched_free(&s);
}

static void segments_change_no_plan(void)
{
    for (int i = 0; i < sched_kind_count(); i++) {
        const struct sched_kind *kind = sched_kind_at(i);
        struct sched s, low;
        struct sched_report r;
        struct sched_shape shape = {4, 12, kind->chunks ? kind->chunks : 1, 0};
        if (kind->make_sliced)
            continue; /* training does not slice */
        CHECK_OK(sched_make(kind->name, &shape, NULL, &s));
        CHECK_OK(sched_lower(&s, &(struct sched_lower_args){.reduce = true, .step = true}, &low));
        if (CHECK(sched_check(&low, &r) == ERR_OK))
            same_report(&low, &r);
        sched_report_free(&r);
        sched_free(&low);
        sched_free(&s);
    }
}

static void check_firsts(int every, int64_t bytes, const int *first, int n, int sums)
{
    static const struct model a = {.kind = MODEL_GPT, .layers = 7, .hidden = 8, .heads = 2,
                                   .kv_heads = 2, .head_dim = 4, .ffn = 16, .vocab = 17, .seq = 4};
    struct segments_args of = {.model = &a, .split = {.tp = 1}, .bytes = bytes, .element = 4,
                               .num_shards = 1, .every = every};
    struct model_stage whole = {.end = model_layers(&a)};
    struct segments *s;
    CHECK_OK(segments_make(&of, &whole, 1, &s));
    CHECK_INT(s->n, n);
    for (int i = 0; i < n && i < s->n; i++)
        CHECK_INT(s->first[i], first[i]);
    CHECK_INT(s->sums, sums);
    segments_free(s, 1);
}

/* Seven blocks between embedding and head, each an attention and an mlp. */
static void blocks_of_segments(void)
{
    check_firsts(1, 0, (int[]){0, 3, 5, 7, 9, 11, 13}, 7, 16);
    check_firsts(2, 0, (int[]){0, 5, 9, 13}, 4, 16);
    check_firsts(3, INT64_MAX, (int[]){0, 7, 13}, 3, 1);
    check_firsts(SEGMENTS_SQRT, 0, (int[]){0, 7, 13}, 3, 16);
    check_firsts(7, 0, (int[]){0}, 1, 16);
    check_firsts(0, 0, (int[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 16, 16);
}

static const struct broken broken[] = {
    {SCHED_RULE_REDUCTION, "0F0,0B0,0REDUCE,NORM,STEP\n", "add WAIT behind the last REDUCE"},
    {SCHED_RULE_REDUCTION, "0F0,0B0,WAIT,0REDUCE,NORM,STEP\n",
     "0REDUCE: WAIT is at place 2; move it behind every REDUCE"},
    {SCHED_RULE_REDUCTION, "0F0,0B0,0REDUCE,NORM,STEP,WAIT\n",
     "NORM: WAIT is at place 5; move it before what reads the sums"},
    {SCHED_RULE_COVERAGE, "0F0,0.2B0,0.1B0\n", "compute only; leave the segment out"},
    {SCHED_RULE_COVERAGE, "0F0,0.2B0,NORM,STEP\n", "the list ends without 0B0"},
    {SCHED_RULE_COVERAGE, "0F0,0.2B0,0.1B0,0B0,NORM,STEP\n", "it comes a second time"},
    {SCHED_RULE_ORDER, "0F0,0.1B0,0.2B0,NORM,STEP\n",
     "rank 0, place 1, 0.1B0: of the 2 segments of stage 0 the next is 2"},
    {SCHED_RULE_ORDER, "0F0,0.2B0,0.2B0,0.1B0,NORM,STEP\n", "the next is 1"},
    {SCHED_RULE_ORDER, "0F0,0F1,0.2B0,0B1,0.1B0,NORM,STEP\n",
     "0B1: segment 1 of 0B0 before it is not done"},
    {SCHED_RULE_ORDER, "0F0,0F1,0.2B0,0.2B1,0.1B0,0.1B1,NORM,STEP\n",
     "0.2B1: segment 1 of 0B0 before it is not done"},
    {SCHED_RULE_ORDER, "0F0,0B0,0F1,0I1,0.2W1,0.1W1,0.3REDUCE,0.2REDUCE,0.1REDUCE,WAIT,NORM,STEP\n",
     "0.2W1: of the 3 segments of stage 0 the next is 3"},
    {SCHED_RULE_ORDER, "0.2F0,0.1F0,0B0,NORM,STEP\n",
     "only R, B, W, REDUCE, UPDATE, GATHER and DROP may be of a segment"},
    {SCHED_RULE_ORDER, "0F0,0.2R0,0.1R0,0.2B0,0.1B0,NORM,STEP\n",
     "0.2R0: what a segment does again is for its backward alone; put 0.2B0 right behind it"},
    {SCHED_RULE_ORDER, "0F0,0.2R0,0.2B0,0.1B0,0.1R0,NORM,STEP\n", "put 0.1B0 right behind it"},
    {SCHED_RULE_ORDER, "0F0,0.2B0,0.1R0,0.1B0,NORM,STEP\n",
     "1 of 2 segments of stage 0 are done again; do all, or none"},
    {SCHED_RULE_ORDER, "0F0,0F1,0.2R0,0.2B0,0.1R0,0.1B0,0B1,NORM,STEP\n",
     "2 of 4 segments of stage 0"},
    {SCHED_RULE_ORDER, "0F0,0F1,0B0,(0F2;0.2B1)OV,0.1B1,0B2,NORM,STEP\n",
     "a forward and a whole backward right behind"},
    {SCHED_RULE_REDUCTION, "0F0,0.2B0,0.1REDUCE,0.1B0,0.2REDUCE,WAIT,NORM,STEP\n",
     "0.1REDUCE: of the 2 segments of stage 0 the next to be summed is 2"},
    {SCHED_RULE_REDUCTION, "0F0,0F1,0B0,0.2REDUCE,0.2B1,0.1B1,0.1REDUCE,WAIT,NORM,STEP\n",
     "0.2REDUCE: only 1 of 2 weight gradients of stage 0"},
    {SCHED_RULE_REDUCTION, "0F0,0F1,0.2B0,0.2REDUCE,0.1B0,0B1,0.1REDUCE,WAIT,NORM,STEP\n",
     "0.2REDUCE: only 0 of 2 weight gradients of stage 0"},
    {SCHED_RULE_REDUCTION, "0F0,0.2B0,0.2REDUCE,0.1REDUCE,0.1B0,WAIT,NORM,STEP\n",
     "0.1REDUCE: only 0 of 1 weight gradients of stage 0"},
    {SCHED_RULE_REDUCTION, "0F0,0.3B0,0.3REDUCE,0.2B0,0.1B0,0.2REDUCE,WAIT,NORM,STEP\n",
     "WAIT: some sums of stage 0 are started, and not all; put 0.1REDUCE before it"},
    {SCHED_RULE_REDUCTION, "0F0,0.3B0,0.3REDUCE,0.2B0,0.1B0,0.2REDUCE,NORM,STEP\n",
     "segment 1 of stage 0 is not summed, those behind it are; add 0.1REDUCE"},
    {SCHED_RULE_REDUCTION, "0F0,0.2B0,0.1B0,0.2REDUCE,WAIT,0.1REDUCE,WAIT,NORM,STEP\n",
     "WAIT: some sums of stage 0 are started, and not all; put 0.1REDUCE before it"},
    {SCHED_RULE_REDUCTION, "0F0,1F0,1.2B0,1.1B0,0.2B0,0.1B0,1.2REDUCE,0.2REDUCE,0.1REDUCE,WAIT,"
     "1.1REDUCE,WAIT,NORM,STEP\n", "WAIT: some sums of stage 1 are started, and not all"},
    {SCHED_RULE_COVERAGE, "0F0,0.2B0,0.2REDUCE,0.1B0,0.1REDUCE,0.1REDUCE,WAIT,NORM,STEP\n",
     "it comes a second time"},
    {SCHED_RULE_REDUCTION, "0F0,0.2B0,0.1B0,0.2REDUCE,0.1REDUCE,0.2REDUCE,WAIT,NORM,STEP\n",
     "0.2REDUCE: all of stage 0 is summed already; remove it"},
};

static void rules_broken(void)
{
    check_broken(broken, sizeof broken / sizeof *broken);
}

static const struct test_case cases[] = {
    {"segments_in_text", segments_in_text},
    {"blocks_of_segments", blocks_of_segments},
    {"segments_done_again", segments_done_again},
    {"segments_change_no_plan", segments_change_no_plan},
    {"rules_broken", rules_broken},
};
TEST_MAIN(cases)
