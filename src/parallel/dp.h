/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient sums of a stage over ranks, each of a run of its parts (plan/segments.h), from the last
 * to the first. When the weight gradients of one are complete, its summands over tensor ranks are
 * added (norms under sp, repeated kv heads) and its sum over data ranks is started, which runs
 * while the parts before it still compute. Once a step, whatever the number of microbatches.
 *
 * Where the ranks share the store's updates (param.h), the sum of a piece goes to the owners of its
 * ranges alone: the rest of a rank's gradients stay its own summands.
 */
#ifndef PLAIT_PARALLEL_DP_H
#define PLAIT_PARALLEL_DP_H

#include "comm/comm.h"
#include "parallel/tp.h"
#include "param/param.h"

enum { DP_IN_FLIGHT = 32 };
/* Sums of a group that are started and may not be finished, the last ones; the stages of a rank
 * share them. Zero it first, and again when all are finished. */
struct dp_flight {
    struct comm_req *of[DP_IN_FLIGHT];
    int64_t n;
};

struct dp_args {
    struct comm_group *group;  /* borrowed; NULL when there is one replica */
    const struct tp *tp;       /* borrowed */
    struct param_store *store; /* borrowed */
    const int *first;          /* borrowed; [sums] the first part of each, rising from 0 */
    int sums, parts;
    struct dp_flight *flight;  /* borrowed; of the group */
};
struct dp {
    struct dp_args a;
    struct comm_req *req;     /* owned; [sums] */
    struct comm_req *gather;  /* owned; [sums] of weights; none where updates are not shared */
    bool *given;              /* owned; [sums] what others own of a piece's weights is not here */
    int started;
    int left;                 /* sums that are not started */
};

/* A shared store is cut here. Errors: ERR_MEMORY. */
enum err dp_open(struct dp *d, const struct dp_args *a);
void dp_close(struct dp *d);

/* The weight gradients of parts `from` and later are complete: those sums are started that begin
 * there and are not. What nobody added to is settled as zeros. Collective over tp; starts over
 * dp. */
enum err dp_start(struct dp *d, int from);
/* Of a shared store, whose pieces are the sums' (param_share_cut), by elements begin .. end - 1 of
 * it: of the pieces that have some there, what others own is not here any more; it is gathered, if
 * it is not; it is whole, if it was being gathered. start and finish are collective over dp. */
struct dp_range { int64_t begin, end; };
void dp_weights_give(struct dp *d, struct dp_range at);
enum err dp_weights_start(struct dp *d, struct dp_range at);
enum err dp_weights_finish(struct dp *d, struct dp_range at);
/* All that was started is complete after this: sums, of which the next step's may then start, and
 * gathers. Of sums either all have been started before, or none. Collective over dp. */
enum err dp_finish(struct dp *d);
/* Of a shared store: each rank gets what the owners have of the gradients first .. end - 1, in
 * whole pieces. Not shared: nothing is done. Collective over dp. */
enum err dp_gather(struct dp *d, int64_t first, int64_t end);

#endif
