/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's communicators (gpu/nccl.c): the one file that knows its header.
 */
#ifndef PLAIT_COMM_NCCL_H
#define PLAIT_COMM_NCCL_H

#include "comm/gpu/gpu.h"

/* NCCL's unique id: one member makes it and sends it to the others. */
struct comm_nccl_id { char of[128]; };
struct comm_nccl_args {
    struct comm_nccl_id id;
    int n, me;
    int ctas; /* SMs that its kernels may take at most; 0: NCCL's own choice */
};

/* comm_nccl_fits. */
enum err comm_nccl_version_fits(void);
enum err comm_nccl_name(struct comm_nccl_id *out);
/* Sets l->comm; waits for the others. */
enum err comm_nccl_init(struct comm_gpu_lane *l, const struct comm_nccl_args *a);
/* The first operation, which connects; the host waits for it. */
enum err comm_nccl_connect(const struct comm_gpu *q, struct comm_gpu_lane *l, int me);

/* c or m on stream s. Under the lock, so that the watchdog takes no communicator away amid it. */
enum err comm_nccl_coll(const struct comm_gpu_lane *l, const struct comm_coll *c, cudaStream_t s);
enum err comm_nccl_msg(const struct comm_gpu_lane *l, const struct comm_msg *m, cudaStream_t s);

/* What NCCL reports of a communicator, and the code that goes with it; NULL: nothing. */
const char *comm_nccl_reports(const struct comm_gpu_lane *l, enum err *fault);
/* Kernels of one, or of those of all lanes from the first on, end. As one group, for giving one
 * back waits for the device, which another may hold. */
void comm_nccl_abort(struct comm_gpu_lane *l);
void comm_nccl_abort_all(struct comm_gpu_lane *first);
void comm_nccl_end(struct comm_gpu_lane *l);

#endif
