/* SPDX-License-Identifier: Apache-2.0
 *
 * The lines of metrics.jsonl, as far as a run's folder is asked for them: of which step and kind
 * each is. Whoever reads one does it here; metrics.c writes them. What is read may be torn, be
 * zeros behind a power cut, or be no metrics at all.
 */
#ifndef PLAIT_FOLDER_METRICS_READ_H
#define PLAIT_FOLDER_METRICS_READ_H

#include <stdbool.h>
#include <stdint.h>

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
