/* SPDX-License-Identifier: Apache-2.0
 *
 * What to do about a refused configuration: values that were tried, not guessed. A rule knows its
 * own condition; whether what satisfies it is refused by the next rule, only all rules know.
 */
#ifndef PLAIT_CHECK_ADVICE_H
#define PLAIT_CHECK_ADVICE_H

#include "check/check_local.h"

/* The thread's error is that of check_rules(o, ranks, f), with code err. Its message gets, in place
 * of the values that the rule itself proposes, or behind a message without "; ", values of the keys
 * that it names with which all rules pass, or this key is refused no more; when one key alone is
 * not enough, two. Returns err. Local. */
enum err advice_give(const struct options *o, int ranks, const struct check_facts *f, enum err err);

#endif
