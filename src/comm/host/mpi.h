/* SPDX-License-Identifier: Apache-2.0
 *
 * The MPI transport's own objects. host/mpi.c has ranks, host/mpi_wait.c waiting and failing,
 * host/mpi_msg.c the messages, host/mpi_coll.c the groups, host/mpi_life.c what processes of a
 * machine share, host/mpi_start.c the start of all.
 */
#ifndef PLAIT_COMM_MPI_H
#define PLAIT_COMM_MPI_H

#include "comm/core/board.h"
#include <mpi.h>
#include <pthread.h>

/* What processes of one machine share besides messages: the entries of core/board.h, who has
 * reported the job's error, and who has died. */
struct comm_mpi_shared; /* what lies in the shared memory */

struct comm_mpi_life {
    struct comm_world *world; /* borrowed */
    struct comm_board board;
    MPI_Comm host;            /* the ranks of this machine */
    MPI_Win memory;
    struct comm_mpi_shared *shared; /* the window's */
    int hosts;                /* ranks here */
    int *rank;                /* (hosts) owned: their ranks in the world */
    struct pollfd *poll;      /* (hosts + 1) owned: a descriptor of each process, -1: none; the last
                                 ends the watch */
    int stop;                 /* the other end of that; -1: there is no watch */
    pthread_t watch;
    atomic_int died;          /* 1 + the rank whose process has ended before its work; 0: none */
    atomic_bool reported;     /* by this process */
};

/* An operation of a group, which a rank moves on whenever it looks. */
struct comm_mpi_active {
    struct comm_mpi_active *next;
    enum err (*advance)(struct comm_mpi_active *a); /* as far as it goes without waiting */
};

struct comm_mpi_endpoint {
    struct comm_world world; /* what the body holds; world.impl points back here */
    MPI_Comm msg, coll, ctl; /* messages; collectives, tag = group id; failing and ending */
    MPI_Datatype block;      /* COMM_MPI_BLOCK bytes, for messages beyond an int's bytes */
    int tag_max;
    int control_in[2], control_out[2]; /* messages on ctl: an enum control, a code */
    MPI_Request in;              /* the posted receive on ctl */
    MPI_Request *out;            /* (size) owned; sends on ctl */
    double *ended;               /* (size) owned; when the rank was seen to have ended, 0: not */
    int controls;                /* received on ctl; a rank sends one at most */
    int ends;                    /* of these, `ended` */
    atomic_int failed;           /* 1 + the rank whose failure counts, maybe this one; 0: none */
    enum err failed_code;
    struct comm_mpi_life life;
    struct comm_mpi_active *active; /* groups with operations under way */
};

enum { COMM_MPI_BLOCK = 1 << 20 };

static inline struct comm_mpi_endpoint *comm_mpi_endpoint(const struct comm_world *w)
{
    return w->impl;
}

/* FAIL with ERR_INTERNAL and MPI's own message. */
enum err comm_mpi_error(int rc, const char *call, const char *file, int line);
#define TRY_MPI(call)                                                                              \
    do {                                                                                           \
        int try_rc_ = (call);                                                                      \
        if (try_rc_ != MPI_SUCCESS)                                                                \
            return comm_mpi_error(try_rc_, #call, __FILE__, __LINE__);                             \
    } while (0)

void comm_mpi_nap(long ns);

/* Receive control messages, unless a failure is known: whatever looks for a message moves all. */
enum err comm_mpi_poll_control(struct comm_mpi_endpoint *e);
/* This rank fails first, as far as it knows: send that to all. */
void comm_mpi_send_failed(struct comm_mpi_endpoint *e, enum err code);
/* Receive for a moment who else has failed. The buffers of unfinished operations are there yet. */
void comm_mpi_agree(struct comm_mpi_endpoint *e);
/* Send to all that this rank has ended well. */
enum err comm_mpi_send_ended(struct comm_mpi_endpoint *e);

/* Look once: for a control message, and at all groups' operations. */
enum err comm_mpi_progress(struct comm_mpi_endpoint *e);

/* Look until `step` sets done. Errors: as comm_thread_wait, and ERR_PEER when a process has died;
 * then the world has failed. */
enum err comm_mpi_wait(struct comm_mpi_endpoint *e, const struct comm_pending_op *x,
                       enum err (*step)(const struct comm_pending_op *x, bool *done));

/* A call cannot do what it should: fail, and agree with those that found the same at the
 * same time on who reports it. Returns `err`, or ERR_PEER when another rank reports. From here on
 * nothing moves. */
enum err comm_mpi_give_up(struct comm_mpi_endpoint *e, enum err err);

/* FAIL with ERR_PEER when the world has failed, naming what this rank was about. */
enum err comm_mpi_check(const struct comm_mpi_endpoint *e, const char *what);

/* ---- host/mpi_life.c ---- */

/* Collective over the world; *l is zeroed. */
enum err comm_mpi_life_open(struct comm_mpi_life *l, struct comm_world *w);
/* After a run without failure, behind the last message of all. Collective. */
void comm_mpi_life_close(struct comm_mpi_life *l);
/* True on the one process of the machine that calls it first: it reports what ends the job. */
bool comm_mpi_life_is_reporter(struct comm_mpi_life *l);

/* ---- host/mpi_start.c ---- */

/* Start MPI, if nobody has, and learn whether each process of the launch could and is about to run
 * `what`. When comm_mpi_limit_end is not called within limit_s (0: none), the process ends with
 * ERR_HANG. Collective over the launch, in which processes that have an error, or run nothing, take
 * part by comm_mpi_report_error. Errors: the code of a process that has one; ERR_MISMATCH, with who
 * runs something else. */
enum err comm_mpi_start(const char *what, double limit_s);
void comm_mpi_limit_end(void);
/* comm_report_error. */
enum err comm_mpi_report_error(enum err code, const char *text, void (*print)(const char *text));

/* Slots of comm_ops. */
void comm_mpi_abort(struct comm_world *w, enum err code);
enum err comm_mpi_msg_start(struct comm_world *w, const struct comm_msg *m, struct comm_req *r);
enum err comm_mpi_msg_finish(struct comm_world *w, struct comm_req *r);
enum err comm_mpi_coll_start(struct comm_group *g, const struct comm_coll *c, bool now);
enum err comm_mpi_coll_finish(struct comm_group *g);
enum err comm_mpi_group_open(struct comm_group *g, int64_t scratch);
void comm_mpi_group_close(struct comm_group *g);

#endif
