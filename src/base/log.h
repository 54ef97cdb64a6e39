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

/* Where lines of some threads are kept. Up to LOG_WAITS bytes of them wait until there is a file,
 * and while one thread writes, which then writes those of others, too: nobody waits for its disk.
 * How many found no room stands in the file. One that takes no more is said once, as a warning, and
 * is no error. */
enum { LOG_WAITS = 1 << 14 };
struct log_keep {
    pthread_mutex_t lock;
    pthread_cond_t written;
    int fd;           /* borrowed; -1: there is none yet */
    const char *path; /* borrowed; for messages */
    bool broken, writes; /* writes: a thread does */
    int n, lost, side; /* bytes that wait, in text[side]; lines without room */
    char text[2][LOG_WAITS];
};
void log_keep_open(struct log_keep *k);
/* From here on in the file, which log_keep_close lets go of; what has waited first. */
void log_keep_to(struct log_keep *k, int fd, const char *path);
/* Behind what is being written; lines of later are not kept. */
void log_keep_close(struct log_keep *k);
/* Lines of this thread are kept there; NULL: nowhere. */
void log_keep_set(struct log_keep *k);
/* A line for the file alone: standard error has the same in other words. */
void log_kept(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
