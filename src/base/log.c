/* SPDX-License-Identifier: Apache-2.0
 *
 * A line is composed in memory and leaves with one write(2): lines of ranks that share a terminal
 * or a pipe do not mix (writes up to PIPE_BUF are whole). The level is read from the environment
 * at each call; logging is not on any hot path, and so there is no state to initialise.
 */
#include "base/log.h"

#include "base/fs.h"
#include "base/text.h"
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
static _Thread_local struct log_keep *keeps;

void log_set_rank(int rank)
{
    shown_rank = rank + 1;
}

/* ---- the file ---- */

void log_time(char out[LOG_TIME])
{
    time_t now = (time_t)log_date();
    struct tm t;
    out[0] = '\0';
    if (gmtime_r(&now, &t))
        strftime(out, LOG_TIME, "%Y-%m-%dT%H:%M:%SZ", &t);
}

void log_keep_open(struct log_keep *k)
{
    *k = (struct log_keep){.lock = PTHREAD_MUTEX_INITIALIZER,
                           .written = PTHREAD_COND_INITIALIZER, .fd = -1};
}

void log_keep_set(struct log_keep *k)
{
    keeps = k;
}

static void add(struct log_keep *k, const char *line, int n)
{
    if (k->n + n <= LOG_WAITS)
        memcpy(k->text[k->side] + k->n, line, (size_t)n), k->n += n;
    else
        k->lost++;
}

/* All that waits, by this thread unless another one does; the lock is not held meanwhile. What the
 * file does not take it never does again; true: it is the first time. */
static bool write_out(struct log_keep *k)
{
    struct err_kept kept;
    char line[LOG_TIME + 96], date[LOG_TIME];
    bool broke = false;
    if (k->writes || k->fd < 0)
        return false;
    err_keep(&kept, ERR_OK);
    k->writes = true;
    while (k->n > 0 && !broke) {
        const char *text = k->text[k->side];
        int n = k->n;
        k->side = !k->side;
        k->n = 0;
        if (k->lost > 0) { /* they found no room, and are told of in the order of the others */
            log_time(date);
            int told = snprintf(line, sizeof line, "%s warn: %d line%s of before this are lacking, "
                                "which the disk was too slow for\n", date, k->lost,
                                text_plural(k->lost, "s"));
            add(k, line, told);
            k->lost = 0;
        }
        pthread_mutex_unlock(&k->lock);
        broke = fs_append(k->fd, k->path, text, n) != ERR_OK;
        pthread_mutex_lock(&k->lock);
    }
    k->broken = broke;
    k->writes = false;
    pthread_cond_broadcast(&k->written);
    (void)!err_again(&kept);
    return broke;
}

static void say_broken(const struct log_keep *k)
{
    log_line(LOG_WARN, "%s takes no more lines; the run goes on without", k->path);
}

void log_keep_to(struct log_keep *k, int fd, const char *path)
{
    pthread_mutex_lock(&k->lock);
    k->fd = fd;
    k->path = path;
    bool broke = write_out(k);
    pthread_mutex_unlock(&k->lock);
    if (broke)
        say_broken(k);
}

void log_keep_close(struct log_keep *k)
{
    pthread_mutex_lock(&k->lock);
    while (k->writes)
        pthread_cond_wait(&k->written, &k->lock);
    k->fd = -1;
    k->broken = true;
    pthread_mutex_unlock(&k->lock);
}

/* `said` is printable. */
static void keep(const char *said)
{
    struct log_keep *k = keeps;
    char line[LOG_TIME + LINE_MAX_BYTES + 2], date[LOG_TIME];
    if (!k)
        return;
    log_time(date);
    int n = snprintf(line, sizeof line, "%s %.*s\n", date, LINE_MAX_BYTES - 1, said);
    pthread_mutex_lock(&k->lock);
    bool broke = false;
    if (!k->broken && n > 0) {
        add(k, line, n);
        broke = write_out(k);
    }
    pthread_mutex_unlock(&k->lock);
    if (broke)
        say_broken(k);
}

void log_kept(const char *fmt, ...)
{
    char said[LINE_MAX_BYTES], line[LINE_MAX_BYTES];
    int kept = errno;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    if (n >= 0) {
        printable(said, line, sizeof line);
        keep(line);
    }
    errno = kept;
}

/* ---- standard error ---- */

void log_line(enum log_level level, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES], said[LINE_MAX_BYTES];
    const char *word = getenv("PLAIT_LOG");
    int kept = errno; /* logging changes no caller's errno */
    enum log_level wanted = LOG_WARN; /* also of unknown words: there is nobody to complain to */
    for (enum log_level i = LOG_ERROR; word && i <= LOG_DEBUG; i++)
        wanted = strcmp(word, level_name[i]) == 0 ? i : wanted;
    if (level > wanted)
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
    keep(line + sizeof "plait: " - 1);
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
