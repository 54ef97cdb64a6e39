/* SPDX-License-Identifier: Apache-2.0
 *
 * The compute-only schedule of a configuration: by name, or from a file.
 */
#ifndef PLAIT_RUN_SCHEDULE_H
#define PLAIT_RUN_SCHEDULE_H

#include "run/options.h"
#include "sched/sched.h"

/* The path in "file:PATH", else NULL. */
const char *schedule_path(const char *name);
/* Read and parse a file; what it says is not proved. Errors: ERR_CONFIG. */
enum err schedule_read(const char *path, struct sched *out);
/* The times of parallel.costs, [stages], to be freed with mem_free; NULL: no file is named. Errors:
 * ERR_CONFIG. */
enum err schedule_costs(const struct options *o, double (**out)[SCHED_COMPUTE_OPS]);
/* parallel.schedule in the shape given, made for parallel.memory_limit and for `time` (of
 * schedule_costs; NULL: none) if it looks at them; a file must have that shape, and be neither
 * lowered nor of forward passes alone. Errors: ERR_CONFIG. Released by sched_free. */
enum err schedule_make(const struct options *o, const struct sched_shape *shape,
                       const double (*time)[SCHED_COMPUTE_OPS], struct sched *out);

/* What a generator says of a shape, in the words of those who asked: "v 2" becomes "parallel.chunks
 * 2" for a configuration, "-v 2" for a simulation. buf is returned. */
enum schedule_words { SCHEDULE_KEYS, SCHEDULE_OPTIONS };
enum { SCHEDULE_SAID = 1024 };
const char *schedule_say(const char *said, enum schedule_words words, char buf[SCHEDULE_SAID]);

#endif
