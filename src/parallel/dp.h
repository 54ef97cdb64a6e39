/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient sums of a stage over ranks. In the last microbatch's backward each part, when its weight
 * gradients are complete, has its summands over tensor ranks added (norms under sp, repeated kv
 * heads) and its data-parallel sum started; the sums run while earlier parts still compute, and are
 * finished at the schedule's REDUCE. Once a step, whatever the number of microbatches.
 *
 * Where the ranks share the store's updates (param.h), the sum of a piece goes to the owners of its
 * ranges alone: the rest of a rank's gradients stay its own summands.
 */
#ifndef PLAIT_PARALLEL_DP_H
#define PLAIT_PARALLEL_DP_H

#include "comm/comm.h"
#include "parallel/tp.h"
#include "param/param.h"

struct dp {
    struct comm_group *group; /* borrowed; NULL when there is one replica */
    const struct tp *tp;      /* borrowed */
    struct param_store *store; /* borrowed */
    struct comm_req *req;     /* owned; [parts] */
    int parts, started, finished;
    int64_t least;             /* elements of a bucket that does not wait for more parts */
    int first, end;            /* parameters of the bucket that waits */
    bool waiting;
    int above;                 /* of a shared store: pieces from here on are started */
};

enum { DP_IN_FLIGHT = 32, DP_BUCKET_COPIES = 64 << 20, DP_BUCKET_NCCL = 256 << 20 };

/* A shared store is cut here. */
enum err dp_open(struct dp *d, struct comm_group *group, const struct tp *tp,
                 struct param_store *store, int parts);
void dp_close(struct dp *d);

/* The weight gradients of a part are complete; those that nobody added to are settled as zeros.
 * Collective over tp; starts over dp. */
enum err dp_part_done(struct dp *d, int part);
/* All started sums are complete after this. Collective over dp. */
enum err dp_finish(struct dp *d);
/* Of a shared store: each rank gets what the owners have of the gradients first .. end - 1, in
 * whole pieces. Not shared: nothing is done. Collective over dp. */
enum err dp_gather(struct dp *d, int64_t first, int64_t end);

#endif
