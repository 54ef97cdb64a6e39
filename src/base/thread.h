/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of the program's own.
 */
#ifndef PLAIT_BASE_THREAD_H
#define PLAIT_BASE_THREAD_H

#include "base/err.h"

#include <pthread.h>

/* Starts one, to be joined by the caller, that gets no signal: those are for the threads that a
 * program begins with. what: "write a checkpoint". Errors: ERR_MEMORY: "no thread to ...". */
enum err thread_start(pthread_t *out, void *(*body)(void *arg), void *arg, const char *what);

#endif
