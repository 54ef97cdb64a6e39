/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a run: threads of this process or processes under a launcher, as train.transport
 * says, with the limits of the configuration.
 */
#ifndef PLAIT_TRAIN_WORLD_H
#define PLAIT_TRAIN_WORLD_H

#include "comm/comm.h"
#include "config/options.h"

/* body(arg) before there are ranks, and behind them, with the limit for its file calls. Errors: its
 * own, ERR_MEMORY. */
enum err world_alone(const struct options *o, enum err (*body)(void *arg), void *arg);

/* body(arg, world) on each of `size` ranks, whose file calls are watched (run.io_timeout). what:
 * the verb, of which processes have the same. Errors: as comm_thread_run and comm_mpi_run. */
enum err world_run(const char *what, const struct options *o, int size,
                   enum err (*body)(void *arg, struct comm_world *world), void *arg);

#endif
