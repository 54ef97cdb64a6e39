/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of something is done, on standard error: a bar, only on a terminal, drawn at most ten
 * times a second.
 */
#ifndef PLAIT_CMD_BAR_H
#define PLAIT_CMD_BAR_H

#include <stdbool.h>
#include <stdint.h>

struct cmd_bar {
    bool terminal, drawn;
    double start, shown; /* monotonic seconds */
    const char *unit;    /* of the rate; borrowed */
    double scale;        /* of one done to it */
};
void cmd_bar_open(struct cmd_bar *b, const char *unit, double scale);
/* arg: a cmd_bar. A callback of plait.h: so much is done. */
void cmd_bar_draw(void *arg, int64_t done, int64_t all);
/* Take the bar away. Idempotent. */
void cmd_bar_clear(struct cmd_bar *b);

#endif
