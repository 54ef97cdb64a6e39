/* SPDX-License-Identifier: Apache-2.0
 *
 * run.json: what a run is (program, machine, layout, data) and each of its starts, from which step
 * it went to which and how it ended. Written whole, at the start and at the end; a start that was
 * killed has no end. What is read may be hostile.
 */
#ifndef PLAIT_RUN_RECORD_H
#define PLAIT_RUN_RECORD_H

#include "base/log.h"
#include "base/text.h"

struct record_start {
    char start[LOG_TIME], end[LOG_TIME]; /* end "": it has none */
    int64_t from, to;                    /* steps that were done; to -1: not known */
    int64_t code;                        /* of its end; -1: it has none */
    char *words;                         /* owned; of the error, as JSON; NULL: none */
};
struct record {
    char *facts;                /* owned; members of JSON: "version": ..., "commit": ... */
    struct record_start *start; /* owned; [n], the oldest first */
    int n;
};

/* The starts that run.json tells of; facts stays NULL. Errors: ERR_DATA: it is not there, or not
 * one of ours; ERR_MEMORY. Local; released by record_free. */
enum err record_read(const char *path, struct record *out);
/* One more, now, behind step `from`. Errors: ERR_MEMORY. */
enum err record_begin(struct record *r, int64_t from);
/* The last one ends, now, behind step `to`. Errors: ERR_MEMORY. */
enum err record_end(struct record *r, int64_t to, enum err code, const char *words);
void record_text(const struct record *r, struct text *out);
void record_free(struct record *r); /* idempotent, also of one that is all zero */

#endif
