/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of the times that stages take (costs.c).
 */
#ifndef PLAIT_CONFIG_COSTS_H
#define PLAIT_CONFIG_COSTS_H

#include "sched/sched.h"
#include <stdbool.h>

/* Times of F, B, I, W, R of each stage, indexed by enum sched_op: [stages], owned by the caller,
 * who frees them with mem_free; written on success only. Errors: ERR_CONFIG for a file that cannot
 * be read or is not one of so many stages; the message opens with an area ("costs: "), for the
 * caller to put the key or option in its place. */
enum err costs_read(const char *path, int stages, double (**out)[SCHED_COMPUTE_OPS]);

/* The word up to the next of `ends` into buf; *at moves to that end. False: it is too long. */
enum { COSTS_WORD = 64 };
bool costs_word(const char **at, const char *stop, const char *ends, char buf[COSTS_WORD]);
/* Is the word a time? */
bool costs_time(const char *word, double *out);

#endif
