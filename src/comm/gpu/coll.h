/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums and gathers over GPUs of one process by their copy engines (gpu/coll.c).
 */
#ifndef PLAIT_COMM_GPU_COLL_H
#define PLAIT_COMM_GPU_COLL_H

#include "comm/gpu/gpu.h"

/* Can this group move by copies? All members answer the same; one may have no window, or none that
 * is the transport's, and then it is no, unless they share a GPU. Collective over the members. */
enum err comm_copies_agree(struct comm_group *g, bool *yes);
/* What a lane needs for it: staging, flags, the members' addresses; s is the lane's stream. Nothing
 * is left behind an error. Collective over the members. */
enum err comm_copies_open(struct comm_group *g, cudaStream_t s, struct comm_copies **out);
/* Is c done by copies? All members answer the same. Of a group without also_nccl everything must
 * be, and of ranks that share a GPU everything is. */
bool comm_copies_take(const struct comm_gpu_lane *l, const struct comm_coll *c);
/* Hosts wait for each other, and check that all start the same operation at the same offset of
 * the window. Collective over the members. */
enum err comm_copies_rendezvous(struct comm_group *g, const struct comm_coll *c);
/* The offsets of an all_to_all's parts in each member's window, for the next comm_copies_take and
 * comm_copies_do; hosts wait for it. Errors: ERR_MISMATCH. Collective over the members. */
enum err comm_copies_parts(struct comm_group *g, const struct comm_coll *c);
/* Device memory that it has taken. */
int64_t comm_copies_bytes(const struct comm_copies *x);
/* c on stream s: the lane's, or the device's. */
enum err comm_copies_do(const struct comm_gpu_lane *l, const struct comm_coll *c, cudaStream_t s);
/* Nobody is waited for any more (comm_signals_release); what is summed is garbage from here on. */
void comm_copies_release(const struct comm_copies *x);
/* peers: some may still write. NULL is none. */
void comm_copies_close(struct comm_copies *x, bool peers);
#endif
