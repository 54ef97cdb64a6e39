/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines to standard error, one write a line, so that ranks do not mix. Level by PLAIT_LOG
 * (error, warn, info, debug; default warn). Results go to standard output from cmd/ alone. A run
 * keeps its lines in a file as well, each behind its date.
 */
#ifndef PLAIT_BASE_LOG_H
#define PLAIT_BASE_LOG_H

#include <pthread.h>
#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Rank shown in front of this thread's lines; -1 for none. */
void log_set_rank(int rank);
/* Monotonic seconds, for durations and timeouts. */
double log_now(void);
/* Seconds since 1970 (UTC), for what people compare with other records. */
double log_date(void);
/* Now, as 2026-01-31T23:59:59Z. */
enum { LOG_TIME = 21 };
void log_time(char out[LOG_TIME]);

/* Where lines of some threads are kept. Until there is a file the first LOG_EARLY bytes of them
 * wait for it. A file that takes no more is said once, as a warning, and is no error. */
enum { LOG_EARLY = 1 << 14 };
struct log_keep {
    pthread_mutex_t lock;
    int fd;           /* borrowed; -1: there is none yet */
    const char *path; /* borrowed; for messages */
    bool broken;
    int early;
    char text[LOG_EARLY];
};
void log_keep_open(struct log_keep *k);
/* From here on in the file, which log_keep_close lets go of; what has waited first. */
void log_keep_to(struct log_keep *k, int fd, const char *path);
void log_keep_close(struct log_keep *k);
/* Lines of this thread are kept there; NULL: nowhere. */
void log_keep_set(struct log_keep *k);
/* A line for the file alone: standard error has the same in other words. */
void log_kept(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
