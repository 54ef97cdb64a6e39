/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a job: threads of this process, or processes under a launcher, as train.transport
 * says. Each is opened and closed here, by all who compute: training, generation, the studies of a
 * step and of the links between ranks.
 */
#ifndef PLAIT_TRAIN_RANK_H
#define PLAIT_TRAIN_RANK_H

#include "ckpt/weights.h"
#include "comm/comm.h"
#include "device/profile.h"
#include "exec/exec.h"
#include "setup/setup.h"

/* body(arg, world) on each of `size` ranks, whose file calls are watched (run.io_timeout). what:
 * the verb, of which processes have the same. Errors: as comm_thread_run and comm_mpi_run. */
enum err rank_run(const char *what, const struct options *o, int size,
                  enum err (*body)(void *arg, struct comm_world *world), void *arg);

struct rank {
    const struct setup *s;       /* borrowed; NULL: nothing is planned, and there is no executor */
    struct comm_world *world;    /* borrowed */
    int me, coord[AXIS_COUNT];   /* in the world, in the layout */
    int logger;                  /* the rank of the world that reports and writes files */
    bool is_logger;              /* this one is */
    bool counts_tokens;          /* last stage (of two replicas, the first's), first tensor rank */
    int threads;                 /* of the host, for its device and its files */
    struct dev *dev;             /* owned */
    int64_t free_bytes, total_bytes; /* of the device at its opening; total 0: it has no memory of
                                        its own */
    struct dev_profile *profile; /* owned; NULL: none */
    struct exec *x;              /* owned */
    struct comm_group *all;      /* the executor's: all ranks, host memory; NULL: one rank */
};

/* Where a rank of the world stands in the plan's layout; the rest is not open. Pure. */
struct rank rank_at(const struct setup *s, struct comm_world *world);

/* Hashes of what a rank has read, 0 where there is none: token files; the prompt with the options
 * of generation; weights. */
struct rank_read { uint64_t train, valid, prompt, weights; };
/* Are all in one run: same program, configuration, decisions, schedule, and what they have read?
 * Under mpirun each process reads its own files, and a stale copy on one host trains on wrong data
 * in silence. Comes before any other group is opened. Errors: ERR_MISMATCH naming what differs and
 * on which ranks, on every rank. Collective over the world. */
enum err rank_agree(const struct setup *s, const struct rank_read *read, struct comm_world *world);

struct rank_args {
    struct rank_read read;
    bool trace;            /* exec_args.trace */
    bool profile;          /* of the reporting rank, around its device */
    bool null;             /* on a null device, which stands for the planned one */
};
/* rank_agree, the device, if what is planned fits it, the transport of its memory, the executor.
 * Errors: those of these. Collective over the world. Released by rank_close, also after one. */
enum err rank_open(struct rank *k, const struct rank_args *a);
/* The device and its transport alone, by a->kind, ct and what setup_dev_args sets. Collective over
 * the world. */
enum err rank_open_device(struct rank *k, const struct options *o, struct dev_args *a);

/* All that this rank holds of weights out of files, before exec_weights_keep, and with `moments`
 * those too, which a checkpoint has. Errors: ERR_CHECKPOINT, also for a number that is not finite
 * in the type that it is held in; ERR_MEMORY; the device's. Local. (load.c) */
enum err load_stores(const struct rank *k, const struct weights *from, bool moments);

/* Closes all that is open, where the rank ended with `err`, and returns that, or else the first
 * error of closing. A rank that fails says so first, for peers may still read what is freed.
 * release(arg): of the caller, what lies on the device or watches it, before executor and device
 * go. Collective over the world, but where a rank has failed local. */
enum err rank_close(struct rank *k, enum err err, void (*release)(void *arg), void *arg);

#endif
