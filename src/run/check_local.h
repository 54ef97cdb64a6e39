/* SPDX-License-Identifier: Apache-2.0
 *
 * What check.c hands to check_report.c; nobody else includes it.
 */
#ifndef PLAIT_RUN_CHECK_LOCAL_H
#define PLAIT_RUN_CHECK_LOCAL_H

#include "run/check.h"

/* (stage, microbatch) pairs up to which a schedule is generated and played by the check; a larger
 * one would take longer than an answer may, and training proves it at its start anyway. */
enum { CHECK_MAX_UNITS = 1 << 20 };

/* What a file of tokens holds, as its header says; count 0 when no file is named. */
struct check_data { int64_t count, vocab, samples; };

struct check_facts {
    struct arch arch; /* vocabulary resolved */
    int ranks;
    int64_t microbatches;
    struct check_data train, valid;
    enum check_for purpose;
};

/* Append the readable lines. Errors: ERR_MEMORY; ERR_CONFIG from the schedule. */
enum err check_report(const struct options *o, const struct check_facts *f, struct text *out);

#endif
