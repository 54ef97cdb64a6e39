/* SPDX-License-Identifier: Apache-2.0
 *
 * The compute-only schedule of a configuration: by name, or from a file.
 */
#ifndef PLAIT_CONFIG_SCHEDULE_H
#define PLAIT_CONFIG_SCHEDULE_H

#include "config/options.h"
#include "sched/sched.h"

/* The path in "file:PATH", else NULL. */
const char *schedule_path(const char *name);
/* Read and parse a file; what it says is not proved. Errors: ERR_CONFIG. */
enum err schedule_read(const char *path, struct sched *out);
/* What the files and the generator give; all zero: nothing yet. Released by schedule_free. */
struct schedule {
    double (*time)[SCHED_COMPUTE_OPS]; /* owned; [stages] of parallel.costs; NULL: none are named */
    struct sched list;                 /* owned; of parallel.schedule, the configured shape */
};
void schedule_free(struct schedule *s);
/* The shape that a configuration has. */
struct sched_shape schedule_shape(const struct options *o);
/* The times, into s->time. Errors: ERR_CONFIG. */
enum err schedule_costs(const struct options *o, struct schedule *s);
/* parallel.schedule in the shape given, made for parallel.memory_limit and for s->time if it looks
 * at them; a file must have that shape, and be neither lowered nor of forward passes alone. Into
 * s->list. Errors: ERR_CONFIG. */
enum err schedule_make(const struct options *o, const struct sched_shape *shape,
                       struct schedule *s);

/* What a generator says of a shape, in the words of those who asked: "v 2" becomes "parallel.chunks
 * 2" for a configuration, "-v 2" for a simulation. buf is returned. */
enum schedule_words { SCHEDULE_KEYS, SCHEDULE_OPTIONS };
enum { SCHEDULE_SAID = 1024 };
const char *schedule_say(const char *said, enum schedule_words words, char buf[SCHEDULE_SAID]);

#endif
