/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress of a training run on standard error. On a terminal: one line, redrawn in place, with
 * a bar. Elsewhere: plain lines, at most one in two seconds, and always the first and last step.
 */
#ifndef PLAIT_CMD_PROGRESS_H
#define PLAIT_CMD_PROGRESS_H

#include "plait.h"
#include <stdbool.h>

struct cmd_progress {
    bool terminal, color;
    bool drawn;   /* a bar stands on the current line */
    double shown; /* monotonic seconds of the last drawing; 0: none yet */
};

/* Looks at standard error, TERM and NO_COLOR. */
void cmd_progress_open(struct cmd_progress *p);
void cmd_progress_step(struct cmd_progress *p, const struct plait_step *s);
/* bits_per_byte is shown when it is a positive number. */
void cmd_progress_valid(struct cmd_progress *p, int64_t step, double loss, double bits_per_byte);
/* Take the bar away, so that other text can be written. Idempotent. */
void cmd_progress_clear(struct cmd_progress *p);

#endif
