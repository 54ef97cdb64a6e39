/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run has left in its folder, one of the test program's (folder.h): the lines of its steps,
 * its weights, its checkpoints; and whether another run has left the same.
 */
#ifndef PLAIT_TEST_LEFT_H
#define PLAIT_TEST_LEFT_H

#include "ckpt/state.h"
#include "folder.h"

struct left_line { int64_t step; double loss, norm, lr; };
/* The lines of steps in metrics.jsonl, `most` at most; returns how many there are. */
int left_lines(const char *run, struct left_line *line, int most);
/* Do two runs have the same lines, but for times, at least `least` of them? Prints both if not. */
bool left_same_numbers(const char *run, const char *judge, int least);

/* Checks that all checkpoints there are whole and can be opened; returns how many there are. */
int left_checkpoints(const char *run, const char *what);
/* Does a file stay that is half written, or a lock? */
bool left_half_written(const char *run);
/* How far two runs' checkpoints of a step are apart, in numbers of the first `kinds` kinds (all:
 * STATE_KINDS), of the largest number of their tensor; *worst: where. Not comparable: INFINITY. */
struct left_worst { double far; char what[192]; };
void left_difference(const char *run, const char *judge, int64_t step, int kinds,
                     struct left_worst *out);

#endif
