/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules between keys, and what would do where one refuses; of this folder alone.
 */
#ifndef PLAIT_CHECK_RULES_H
#define PLAIT_CHECK_RULES_H

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

/* The rule on the layout's number of ranks alone. */
enum err check_ranks(const struct options *o, int ranks);

/* All rules of a plan, in their order, up to the first that refuses. f->purpose is set before.
 * Errors: as check_run. */
enum err check_rules(const struct options *o, int ranks, struct check_facts *f);

/* What to do about a refused configuration: values that were tried, not guessed. A rule knows its
 * own condition; whether what satisfies it is refused by the next rule, only all rules know.
 *
 * The thread's error is that of check_rules(o, ranks, f), with code err. Its message gets, in place
 * of the values that the rule itself proposes, or behind a message without "; ", values of the keys
 * that it names with which all rules pass, or this key is refused no more; when one key alone is
 * not enough, two. Returns err. Local. (advice.c) */
enum err advice_give(const struct options *o, int ranks, const struct check_facts *f, enum err err);

#endif
