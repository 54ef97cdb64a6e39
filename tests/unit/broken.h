/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules as text, each of which breaks a rule: the check names it, and what is wrong.
 */
#ifndef PLAIT_TEST_BROKEN_H
#define PLAIT_TEST_BROKEN_H

#include "sched/sched.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

struct broken {
    enum sched_rule rule;
    const char *text, *part; /* the part stands in the error */
};

static inline enum err parse(const char *text, struct sched *out)
{
    return sched_parse("test", text, (int64_t)strlen(text), out);
}

/* It is this text, which is read back to the same instructions. */
static inline void check_reads_back(const struct sched *s, const char *want)
{
    struct sched again;
    struct text t = {0};
    sched_print(s, &t);
    CHECK_STR(t.s, want);
    text_free(&t);
    CHECK_OK(parse(want, &again));
    CHECK_INT(again.begin[again.p], s->begin[s->p]);
    CHECK(memcmp(again.instr, s->instr, (size_t)s->begin[s->p] * sizeof *s->instr) == 0);
    for (int stage = 0; stage < s->stages; stage++)
        CHECK_INT(again.segments[stage], s->segments[stage]);
    sched_free(&again);
}

static inline void check_broken(const struct broken *broken, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct sched s;
        struct sched_report r = {0};
        enum err err = parse(broken[i].text, &s);
        if (err == ERR_OK) {
            err = sched_check(&s, &r);
            CHECK_INT(r.rule, broken[i].rule);
            CHECK(!s.checked);
            static const char *const rule[] = {
                [SCHED_RULE_COVERAGE] = "coverage", [SCHED_RULE_PLACEMENT] = "placement",
                [SCHED_RULE_ORDER] = "order", [SCHED_RULE_CYCLE] = "cycle",
                [SCHED_RULE_PAIRING] = "pairing", [SCHED_RULE_CHANNEL] = "channel",
                [SCHED_RULE_DEADLOCK] = "deadlock", [SCHED_RULE_LEDGER] = "ledger",
                [SCHED_RULE_REDUCTION] = "reduction", [SCHED_RULE_STEP] = "step",
                [SCHED_RULE_WEIGHTS] = "weights"};
            char name[64];
            snprintf(name, sizeof name, "V%d (%s)", (int)broken[i].rule, rule[broken[i].rule]);
            CHECK(strstr(err_text(), name) != NULL);
            sched_report_free(&r);
            sched_free(&s);
        }
        test_check(err == ERR_CONFIG && strstr(err_text(), broken[i].part), __FILE__, __LINE__,
                   "%s: wanted \"%s\", got %d: %s", broken[i].text, broken[i].part, (int)err,
                   err_text());
    }
}

#endif
