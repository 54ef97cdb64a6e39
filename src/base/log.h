/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines to standard error, one write a line, so that ranks do not mix. Level by PLAIT_LOG
 * (error, warn, info, debug; default warn). Results go to standard output from cmd/ alone.
 */
#ifndef PLAIT_BASE_LOG_H
#define PLAIT_BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Rank shown in front of this thread's lines; -1 for none. */
void log_set_rank(int rank);
/* Monotonic seconds, for durations and timeouts. */
double log_now(void);
/* Seconds since 1970 (UTC), for what people compare with other records. */
double log_date(void);

#endif
