/* SPDX-License-Identifier: Apache-2.0
 *
 * How many processors there are to use. Asked wherever threads are counted out: how many a rank
 * starts, and whether those that wait may spin.
 */
#ifndef PLAIT_BASE_CORES_H
#define PLAIT_BASE_CORES_H

/* Processors that this process may run on (its affinity mask), at least 1. Local. */
int cores_usable(void);
/* Processors of the machine or container: those of its first process, which no launcher binds to
 * some of them; at least cores_usable. Local. */
int cores_of_machine(void);

#endif
