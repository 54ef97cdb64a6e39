/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool of threads that runs one task at a time, fork and join. See cpu_pool.c.
 */
#ifndef PLAIT_DEVICE_CPU_CPU_POOL_H
#define PLAIT_DEVICE_CPU_CPU_POOL_H

#include "base/err.h"
#include <stdint.h>

struct cpu_pool; /* opaque */

/* Do items [first, last) of a task. `scratch` is this thread's own block for the time of the call;
 * what it holds on entry is undefined. Called many times with different ranges. */
typedef void cpu_task_fn(const void *arg, int64_t first, int64_t last, float *scratch);

/* Start threads - 1 threads, each (and the caller) with a scratch block of `scratch` bytes.
 * Errors: ERR_MEMORY (also when a thread cannot be made). Local. */
enum err cpu_pool_open(int threads, int64_t scratch, struct cpu_pool **out);
/* Ends and joins the threads; NULL is fine. Local. */
void cpu_pool_close(struct cpu_pool *p);

/* Run items 0..n-1 of `fn`, at most `grain` items a call, and return when all are done. Which
 * thread does which item is left to chance; a task must not depend on it. From one thread only. */
void cpu_pool_run(struct cpu_pool *p, cpu_task_fn *fn, const void *arg, int64_t n, int64_t grain);

#endif
