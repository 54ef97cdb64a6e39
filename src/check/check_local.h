/* SPDX-License-Identifier: Apache-2.0
 *
 * What check.c hands to check_report.c; nobody else includes it.
 */
#ifndef PLAIT_CHECK_CHECK_LOCAL_H
#define PLAIT_CHECK_CHECK_LOCAL_H

#include "base/text.h"
#include "check/check.h"

/* (stage, microbatch) pairs up to which the check generates a schedule, up to which one made for
 * costs, and up to which it plays one; planning memory reads them once for each pipeline rank,
 * which has its own bound. Each is about a quarter of a second, the search for costs up to one.
 * Training makes and proves every schedule at its start. */
enum { CHECK_MAKE_UNITS = 1 << 21, CHECK_SEARCH_UNITS = 1 << 17, CHECK_PLAY_UNITS = 1 << 16,
       CHECK_PLAN_READS = 1 << 24 };

/* What a file of tokens holds, as its header says; count 0 when no file is named. */
struct check_data { int64_t count, vocab, samples; uint64_t hash; };

struct check_facts {
    struct model model; /* vocabulary resolved */
    int ranks;
    int64_t microbatches;
    struct check_data train, valid;
    char tokenizer[32]; /* of the data; "": none are named */
    struct text resume; /* what run.resume would go on from; empty: it is not asked for */
    enum check_for purpose;
    bool cut;  /* the layers were cut into stages */
    bool made; /* the schedule was generated, so its shape is known to be legal */
    struct schedule schedule; /* owned; its list is empty where a smaller one was made, or none */
    int rule;  /* number of the rule that was looked at last, and of that on the number of ranks */
    int rule_of_ranks;
};
void check_free(struct check_facts *f);

/* All rules of a plan, in their order, up to the first that refuses. f->purpose is set before.
 * Errors: as check_run. */
enum err check_rules(const struct options *o, int ranks, struct check_facts *f);

/* Append the readable lines. plan NULL: it takes longer than an answer may. Errors: ERR_MEMORY. */
enum err check_report(const struct options *o, const struct check_facts *f,
                      const struct setup *plan, struct text *out);

#endif
