/* SPDX-License-Identifier: Apache-2.0
 *
 * What processes of one launch on one machine can tell each other before MPI is up, or when it
 * never comes up: that they have come so far, and who speaks for all. By names of the kernel's
 * abstract sockets, which end with the process that holds them and leave no file.
 */
#ifndef PLAIT_COMM_LAUNCH_H
#define PLAIT_COMM_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>

/* This process has come to the start of MPI; the descriptor is held until it has started, and is -1
 * where there is no launcher. */
int comm_launch_come(void);
/* The ranks of this machine that have not: "1", "1, 2 and 5 more"; "" when all have, or when the
 * launcher does not put all of its processes on this machine. Into buf, which is returned. */
const char *comm_launch_absent(char *buf, size_t size);

/* Run while this process is in a call of MPI that waits for all others and knows no limit: when
 * comm_launch_done is not called within `limit_s` (at least COMM_LAUNCH_S; 0: none), the process
 * says that `what` does not end and which ranks have not come, and ends with ERR_HANG. */
enum { COMM_LAUNCH_S = 15 };
void comm_launch_limit(double limit_s, const char *what);
void comm_launch_done(void);

#endif
