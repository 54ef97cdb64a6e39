/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between GPUs of one process by their copy engines (gpu/p2p.c).
 */
#ifndef PLAIT_COMM_GPU_P2P_H
#define PLAIT_COMM_GPU_P2P_H

#include "comm/gpu/gpu.h"

/* This rank's end of channel c, if both ends can; NULL if not, on both. Collective over the two. */
enum err comm_p2p_open(struct comm_world *w, const struct comm_channel *c, struct comm_p2p **out);
/* peers: some may still write. */
void comm_p2p_close(struct comm_p2p *p, bool peers);
/* By the hosts. A send publishes where its message lies; a receive waits for that, and has it in
 * *from. */
enum err comm_p2p_rendezvous(struct comm_world *w, struct comm_p2p *p, const struct comm_msg *m,
                        const void **from);
/* m on stream s. from: of a receive, what it reads. */
enum err comm_p2p_move(const struct comm_p2p *p, const struct comm_msg *m, const void *from,
                        cudaStream_t s);
/* Nobody is waited for any more; what comes is garbage from here on. */
void comm_p2p_release(const struct comm_p2p *p);

#endif
