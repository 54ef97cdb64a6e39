/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of a job, opened and closed in one place by all who compute: training, generation, the
 * studies of a step and of the links between ranks.
 */
#ifndef PLAIT_TRAIN_RANK_H
#define PLAIT_TRAIN_RANK_H

#include "comm/comm.h"
#include "device/profile.h"
#include "exec/exec.h"
#include "setup/setup.h"
#include "train/handshake.h"

struct rank {
    const struct setup *s;       /* borrowed; NULL: nothing is planned, and there is no executor */
    struct comm_world *world;    /* borrowed */
    int coord[AXIS_COUNT];
    int logger;                  /* the rank of the world that reports and writes files */
    bool is_logger;              /* this one is */
    bool counts_tokens;          /* last stage (of two replicas, the first's), first tensor rank */
    int threads;                 /* of the host, for its device and its files */
    struct dev *dev;             /* owned */
    int64_t left, all;           /* bytes of the device that were free at its opening, and has; all
                                    0: it has no memory of its own */
    struct dev_profile *profile; /* owned; NULL: none */
    struct exec *x;              /* owned */
};

/* Where a rank of the world stands in the plan's layout; the rest is not open. Pure. */
struct rank rank_at(const struct setup *s, struct comm_world *world);

struct rank_args {
    struct handshake read; /* hashes of what this rank has read */
    bool trace;            /* exec_args.trace */
    bool profile;          /* of the reporting rank, around its device */
    bool null;             /* on a null device, which stands for the planned one */
};
/* Ranks prove that they are in one run; then the device, if what is planned fits it, the transport
 * of its memory, and the executor. Errors: those of handshake, dev_open, room_check, comm_attach
 * and exec_open. Collective over the world. Released by rank_close, also after an error. */
enum err rank_open(struct rank *k, const struct rank_args *a);
/* The device and its transport alone, by a->kind, ct and what setup_dev_args sets. Collective over
 * the world. */
enum err rank_open_device(struct rank *k, const struct options *o, struct dev_args *a);

/* Closes all that is open, where the rank ended with `err`, and returns that, or else the first
 * error of closing. A rank that fails says so first, for peers may still read what is freed.
 * release(arg): of the caller, what lies on the device or watches it, before executor and device
 * go. Collective over the world, but where a rank has failed local. */
enum err rank_close(struct rank *k, enum err err, void (*release)(void *arg), void *arg);

#endif
