/* SPDX-License-Identifier: Apache-2.0
 *
 * A line is composed in memory and leaves with one write(2): lines of ranks that share a terminal
 * or a pipe do not mix (writes up to PIPE_BUF are whole). The level is read from the environment
 * at each call; logging is not on any hot path, and so there is no state to initialise.
 */
#include "base/log.h"

#include "base/fs.h"
#include "base/printable.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 4000 }; /* below PIPE_BUF, 4096 */

static const char *const level_name[] = {"error", "warn", "info", "debug"};
static _Thread_local int shown_rank; /* rank + 1; 0: none */

/* Unknown words mean the default: a logger has nobody to complain to. */
static enum log_level wanted(void)
{
    const char *s = getenv("PLAIT_LOG");
    for (int i = 0; s && i < 4; i++)
        if (strcmp(s, level_name[i]) == 0)
            return (enum log_level)i;
    return LOG_WARN;
}

void log_set_rank(int rank)
{
    shown_rank = rank + 1;
}

void log_line(enum log_level level, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES], said[LINE_MAX_BYTES];
    int kept = errno; /* logging changes no caller's errno */
    if (level > wanted())
        return;
    int at = snprintf(line, sizeof line, "plait: %s: ", level_name[level]);
    if (shown_rank > 0)
        at += snprintf(line + at, sizeof line - (size_t)at, "rank %d: ", shown_rank - 1);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    printable(said, line + at, sizeof line - (size_t)at - 1);
    at += (int)strlen(line + at);
    line[at++] = '\n';
    ssize_t done;
    fs_call_begin("standard error");
    do
        done = write(STDERR_FILENO, line, (size_t)at);
    while (done < 0 && errno == EINTR);
    fs_call_end();
    errno = kept;
}

static double read_clock(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double log_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double log_date(void)
{
    return read_clock(CLOCK_REALTIME);
}
