/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of the program's own, and how many processors there are to use: asked wherever threads
 * are counted out, how many a rank starts, and whether those that wait may spin.
 */
#ifndef PLAIT_BASE_THREAD_H
#define PLAIT_BASE_THREAD_H

#include "base/err.h"
#include <pthread.h>

/* Starts one, to be joined by the caller, that gets no signal: those are for the threads that a
 * program begins with. what: "write a checkpoint". Errors: ERR_MEMORY: "no thread to ...". */
enum err thread_start(pthread_t *out, void *(*body)(void *arg), void *arg, const char *what);

/* Processors that this process may run on (its affinity mask), at least 1. Local. */
int cores_usable(void);
/* Processors of the machine or container: those of its first process, which no launcher binds to
 * some of them; at least cores_usable. Local. */
int cores_of_machine(void);

#endif
