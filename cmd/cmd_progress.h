/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress on standard error: of a training run, and a bar of other work that is counted. On a
 * terminal a run has one line, redrawn in place, with a bar; with train.log_every also plain lines
 * that stay. Elsewhere: plain lines of the first and last step, and of every log_every-th, or, when
 * that is 0, at most one in two seconds. In a step that takes seconds, the microbatch it is at.
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
/* Callbacks of plait.h; arg: a cmd_progress. bits_per_byte is shown when it is positive. */
void cmd_progress_step(void *arg, const struct plait_step *s);
void cmd_progress_microbatch(void *arg, const struct plait_microbatch *m);
void cmd_progress_valid(void *arg, int64_t step, double loss, double bits_per_byte);
/* Take the bar away, so that other text can be written. Idempotent. */
void cmd_progress_clear(struct cmd_progress *p);

/* How much of something is done, its rate, and what is left at that rate: a bar, only on a
 * terminal, drawn at most ten times a second. */
struct cmd_bar {
    bool terminal, drawn;
    double start, shown; /* monotonic seconds */
    const char *unit;    /* of the rate, in millions of what is done; borrowed */
};
void cmd_bar_open(struct cmd_bar *b, const char *unit);
/* A callback of plait.h: so much is done; arg: a cmd_bar. */
void cmd_bar_draw(void *arg, int64_t done, int64_t all);
/* Take the bar away. Idempotent. */
void cmd_bar_clear(struct cmd_bar *b);

#endif
