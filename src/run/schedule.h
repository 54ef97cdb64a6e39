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
/* parallel.schedule in the shape given; a file must have that shape, and be neither lowered nor of
 * forward passes alone. Errors: ERR_CONFIG. Released by sched_free. */
enum err schedule_make(const struct options *o, const struct sched_shape *shape,
                       struct sched *out);

#endif
