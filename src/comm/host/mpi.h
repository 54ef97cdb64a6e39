/* SPDX-License-Identifier: Apache-2.0
 *
 * The MPI transport's own objects. host/mpi.c has the world, waiting, failing and messages,
 * host/mpi_coll.c the groups, host/mpi_life.c what processes of a machine share.
 */
#ifndef PLAIT_COMM_MPI_H
#define PLAIT_COMM_MPI_H

#include "comm/host/mpi_life.h"
#include "comm/core/core.h"
#include <mpi.h>
#include <stdatomic.h>

struct comm_mpi_group;

struct comm_mpi_seat {
    struct comm_world world; /* what the body holds; world.impl points back here */
    MPI_Comm msg, coll, ctl; /* messages; collectives, tag = group id; failing and ending */
    MPI_Datatype block;      /* COMM_MPI_BLOCK bytes, for messages beyond an int's bytes */
    int tag_max;
    int word_in[2], word_out[2]; /* on ctl: an enum word, a code */
    MPI_Request in;              /* the posted receive on ctl */
    MPI_Request *out;            /* (size) owned; sends on ctl */
    double *ended;               /* (size) owned; when the rank was seen to have ended, 0: not */
    int words;                   /* come in from ctl; one is the last of its rank */
    int ends;                    /* of these, `ended` */
    atomic_int failed;           /* 1 + the rank whose failure counts, maybe this one; 0: none */
    enum err failed_code;
    struct comm_mpi_life life;
    struct comm_mpi_group *active; /* groups with operations under way */
};

enum { COMM_MPI_BLOCK = 1 << 20 };

static inline struct comm_mpi_seat *comm_mpi_seat(const struct comm_world *w)
{
    return w->impl;
}

/* FAIL with ERR_INTERNAL and MPI's own words. */
enum err comm_mpi_error(int rc, const char *call, const char *file, int line);
#define TRY_MPI(call)                                                                              \
    do {                                                                                           \
        int try_rc_ = (call);                                                                      \
        if (try_rc_ != MPI_SUCCESS)                                                                \
            return comm_mpi_error(try_rc_, #call, __FILE__, __LINE__);                             \
    } while (0)

/* Look once: for a peer's word, and at all groups' operations. */
enum err comm_mpi_progress(struct comm_mpi_seat *s);

/* Look until `step` says done. Errors: as comm_thread_wait, and ERR_PEER when a process has died;
 * then the world has failed. */
enum err comm_mpi_wait(struct comm_mpi_seat *s, const struct comm_want *x,
                       enum err (*step)(const struct comm_want *x, bool *done));

/* A call cannot do what it should: tell the peers, and agree with those that found the same at the
 * same time on who reports it. Returns `err`, or ERR_PEER when another rank reports. From here on
 * nothing moves. */
enum err comm_mpi_give_up(struct comm_mpi_seat *s, enum err err);

/* FAIL with ERR_PEER when the world has failed, naming what this rank was about. */
enum err comm_mpi_check(const struct comm_mpi_seat *s, const char *what);

/* Move the operations of a group on as far as they go without waiting. */
enum err comm_mpi_advance(struct comm_mpi_group *m);

/* Slots of comm_ops. */
enum err comm_mpi_coll_start(struct comm_group *g, const struct comm_coll *c);
enum err comm_mpi_coll_finish(struct comm_group *g);
enum err comm_mpi_group_open(struct comm_group *g, int64_t scratch);
void comm_mpi_group_close(struct comm_group *g);

/* The group after `m` in seat->active. */
struct comm_mpi_group *comm_mpi_next(const struct comm_mpi_group *m);

#endif
