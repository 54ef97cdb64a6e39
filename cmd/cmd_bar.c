/* SPDX-License-Identifier: Apache-2.0
 *
 * A bar for work that is counted: its part, its rate, and what is left at that rate.
 */
#include "cmd_bar.h"

#include "cmd_progress.h"

#include <stdio.h>
#include <time.h>

enum { BAR = 30 }; /* cells */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* `done` of `all` bytes: percent, rate, what is left. */
void cmd_bar_draw(void *arg, int64_t done, int64_t all)
{
    static const char full[BAR + 1] = "##############################";
    static const char rest[BAR + 1] = "..............................";
    struct cmd_bar *b = arg;
    double t = now(), part = (double)done / (double)all, seconds = t - b->start;
    if (!b->terminal || (done < all && t - b->shown < 0.1))
        return;
    int cells = (int)(part * BAR);
    b->shown = t;
    b->drawn = true;
    fprintf(stderr, "\r[%.*s%.*s] %3d %%  %.0f %s  %.0f s left\033[K", cells, full, BAR - cells,
            rest, (int)(100.0 * part), seconds > 0.0 ? b->scale * (double)done / seconds : 0.0,
            b->unit, part > 0.0 ? seconds * (1.0 - part) / part : 0.0);
}

void cmd_bar_open(struct cmd_bar *b, const char *unit, double scale)
{
    struct cmd_progress p;
    cmd_progress_open(&p, 0); /* knows whether it is a terminal */
    *b = (struct cmd_bar){.terminal = p.terminal, .start = now(), .unit = unit, .scale = scale};
}

void cmd_bar_clear(struct cmd_bar *b)
{
    if (b->drawn)
        fputs("\r\033[K", stderr);
    b->drawn = false;
}
