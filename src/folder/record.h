/* SPDX-License-Identifier: Apache-2.0
 *
 * run.json: what a run is (program, machine, layout, data) and each of its starts, from which step
 * it went to which and how it ended. Written whole, at the start and at the end; a start that was
 * killed has no end. What is read may be hostile.
 */
#ifndef PLAIT_FOLDER_RECORD_H
#define PLAIT_FOLDER_RECORD_H

#include "base/log.h"
#include "base/text.h"

struct record_start {
    char start[LOG_TIME], end[LOG_TIME]; /* end "": it has none */
    int64_t from, to;                    /* steps that were done; to -1: not known */
    int64_t code;                        /* of its end; -1: it has none */
    char *words;                         /* owned; of the error, below RECORD_WORDS; NULL: none */
};
/* Bytes of run.json at most, and of the words of an end. */
enum { RECORD_MAX = 1 << 24, RECORD_WORDS = 1 << 12 };
struct record {
    char *facts;                /* owned; members of JSON: "version": ..., "commit": ... */
    struct record_start *start; /* owned; [n], the oldest first */
    int n;
    int64_t left_out; /* starts behind the first, for which there was no room */
};

/* The starts that run.json tells of; facts stays NULL. Longer words are cut, other members passed
 * over. Errors: ERR_DATA: it is not there, or not one of ours; ERR_MEMORY. Local; released by
 * record_free. */
enum err record_read(const char *path, struct record *out);
/* One more, now, behind step `from`; the oldest but the first go where they would not leave room in
 * the file. Errors: ERR_MEMORY. */
enum err record_begin(struct record *r, int64_t from);
/* The last one ends, now, behind step `to`; longer words are cut. Errors: ERR_MEMORY. */
enum err record_end(struct record *r, int64_t to, enum err code, const char *words);
void record_text(const struct record *r, struct text *out);
void record_free(struct record *r); /* idempotent, also of one that is all zero */

/* The lines of metrics.jsonl, as far as a run's folder is asked for them: of which step and kind
 * each is. Whoever reads one does it here; metrics.c writes them. What is read may be torn, be
 * zeros behind a power cut, or be no metrics at all. */
struct metrics_line {
    const char *at;   /* borrowed; its first byte */
    int64_t n;        /* bytes, without the line's end */
    int64_t step;     /* -1: it is no line of ours */
    bool valid;       /* of a validation, else of a step */
    double loss;      /* NaN: not finite */
};

/* The next whole line of *at .. end - 1, behind which *at then stands. false: there is none; what
 * is left there was not ended. */
bool metrics_next(const char **at, const char *end, struct metrics_line *out);

#endif
