/* SPDX-License-Identifier: Apache-2.0
 *
 * What a launcher gives a process in its environment. Nothing else of this folder reads it.
 */
#ifndef PLAIT_COMM_LAUNCH_H
#define PLAIT_COMM_LAUNCH_H

struct comm_launch {
    int size;       /* processes of the launch; 0: there is no launcher of MPI */
    int rank;       /* -1: unknown */
    int local_rank; /* its index on its machine; -1: unknown */
    int local_size; /* processes on this machine; 0: unknown */
    char job[64];   /* names the launch on this machine; "": unknown */
};

/* Local; nothing is kept. */
void comm_launch_read(struct comm_launch *out);

#endif
