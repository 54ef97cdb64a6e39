/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress of a training run on standard error. On a terminal: one line, redrawn in place, with
 * a bar; with train.log_every also plain lines that stay. Elsewhere: plain lines of the first and
 * last step, and of every log_every-th, or, when that is 0, at most one in two seconds. In a step
 * that takes seconds, the microbatch it is at.
 */
#ifndef PLAIT_CMD_PROGRESS_H
#define PLAIT_CMD_PROGRESS_H

#include "plait.h"
#include <stdbool.h>

/* Some steps in a row and what they took. */
struct cmd_pace { int64_t steps; double seconds; };
enum { CMD_PACES = 20 };

struct cmd_progress {
    int fd;                /* where it goes */
    double (*clock)(void); /* monotonic seconds */
    bool terminal, color;
    int64_t log_every;
    bool drawn;            /* a bar stands on the current line */
    double shown;          /* when it was last drawn; 0: not yet */
    struct plait_step last; /* the last step that was done; step 0: none */
    struct cmd_pace pace[CMD_PACES]; /* the newest last; `paces` of them */
    int paces;
    int64_t under_way;     /* the step whose microbatches come in, */
    double began;          /* and when its first one did */
};

/* Standard error, and what TERM and NO_COLOR say of it. */
void cmd_progress_open(struct cmd_progress *p, int64_t log_every);
void cmd_progress_step(struct cmd_progress *p, const struct plait_step *s);
void cmd_progress_microbatch(struct cmd_progress *p, const struct plait_microbatch *m);
/* bits_per_byte is shown when it is a positive number. */
void cmd_progress_valid(struct cmd_progress *p, int64_t step, double loss, double bits_per_byte);
/* Take the bar away, so that other text can be written. Idempotent. */
void cmd_progress_clear(struct cmd_progress *p);

#endif
