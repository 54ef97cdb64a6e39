/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between GPUs of one process by their copy engines (gpu/p2p.c).
 */
#ifndef PLAIT_COMM_NCCL_POST_H
#define PLAIT_COMM_NCCL_POST_H

#include "comm/gpu/gpu.h"

/* This rank's end of channel c, if both ends can; NULL if not, on both. Collective over the two. */
enum err comm_post_open(struct comm_world *w, const struct comm_channel *c, struct comm_post **out);
/* peers: some may still write. */
void comm_post_close(struct comm_post *p, bool peers);
/* What the hosts tell each other. A send says where it reads; a receive waits until that was said
 * of its message, and has it in *from. */
enum err comm_post_meet(struct comm_world *w, struct comm_post *p, const struct comm_msg *m,
                        const void **from);
/* m on stream s. from: of a receive, what it reads. */
enum err comm_post_move(const struct comm_post *p, const struct comm_msg *m, const void *from,
                        cudaStream_t s);
/* Whom it waits for has told; what comes is garbage from here on. A store, from any thread. */
void comm_post_let_go(const struct comm_post *p);

#endif
