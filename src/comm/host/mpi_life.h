/* SPDX-License-Identifier: Apache-2.0
 *
 * What processes of one machine share besides messages: the entries of core/board.h, who has
 * reported the job's error, and who has died.
 */
#ifndef PLAIT_COMM_MPI_LIFE_H
#define PLAIT_COMM_MPI_LIFE_H

#include "comm/core/board.h"
#include <mpi.h>
#include <pthread.h>

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

/* Collective over the world; *l is zeroed. */
enum err comm_mpi_life_open(struct comm_mpi_life *l, struct comm_world *w);
/* After a run without failure, behind the last message of all. Collective. */
void comm_mpi_life_close(struct comm_mpi_life *l);
/* True on the one process of the machine that calls it first: it reports what ends the job. */
bool comm_mpi_life_is_reporter(struct comm_mpi_life *l);

#endif
