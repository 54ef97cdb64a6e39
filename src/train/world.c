/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a body on all ranks. A rank that waits for a disk says so to its peers, from its first call
 * to its last.
 */
#include "train/world.h"

struct watched {
    const struct options *o;
    enum err (*body)(void *arg, struct comm_world *world);
    void *arg;
};

static enum err run_watched(void *arg, struct comm_world *world)
{
    const struct watched *w = arg;
    TRY(comm_files_open(world, w->o->run.io_timeout));
    enum err err = w->body(w->arg, world);
    comm_files_close(world);
    return err;
}

enum err world_alone(const struct options *o, enum err (*body)(void *arg), void *arg)
{
    return comm_files_alone(o->run.io_timeout, body, arg);
}

enum err world_run(const char *what, const struct options *o, int size,
                   enum err (*body)(void *arg, struct comm_world *world), void *arg)
{
    struct watched w = {o, body, arg};
    if (o->train.transport == COMM_MPI)
        return comm_mpi_run(what, o->train.hang_timeout, run_watched, &w);
    return comm_thread_run(size, o->train.hang_timeout, run_watched, &w);
}
