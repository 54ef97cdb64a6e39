/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums and gathers over GPUs of one process by their copy engines (gpu/coll.c).
 */
#ifndef PLAIT_COMM_NCCL_COPIES_H
#define PLAIT_COMM_NCCL_COPIES_H

#include "base/num.h"
#include <cuda_runtime_api.h>
#include <stdbool.h>

enum { COMM_TOTAL_MOST = 8 };

/* out = the sum of in[0..n-1], count elements of f32 or bf16, in that order; out may be one of
 * them. Queued on s. */
struct comm_total {
    void *out;
    const void *in[COMM_TOTAL_MOST];
    int n;
    int64_t count;
    enum dtype dt;
};
#ifdef __cplusplus
extern "C"
#endif
cudaError_t comm_gpu_total(const struct comm_total *t, cudaStream_t s);

#ifndef __cplusplus
#include "comm/gpu/gpu.h"

/* ---- words that streams write and wait for ---- */

/* A peer's word is set. */
enum err comm_words_tell(const struct comm_words *f, uint32_t *theirs, cudaStream_t s);
/* One's own is waited for, and set back. */
enum err comm_words_hear(const struct comm_words *f, uint32_t *mine, cudaStream_t s);
/* Can this GPU read the other's memory? */
bool comm_copies_reads(int gpu, int other);
/* comm_gpus_reach. */
bool comm_copies_reach(const int *gpu, int n);

/* ---- windows and groups ---- */

/* e, of an allocation: ERR_MEMORY in words where there was no room. */
enum err comm_copies_room(cudaError_t e, int64_t bytes, const char *name, int gpu);

/* comm_window_take; and its end. */
enum err comm_copies_window(struct comm_world *w, int64_t bytes, const char *name, void **out);
void comm_copies_window_free(struct comm_gpu *q);
/* Can this group move by copies? All members answer the same; one may have no window, or none that
 * is the transport's, and then it is no. Collective over the members. */
enum err comm_copies_agree(struct comm_group *g, bool *yes);
/* What a lane needs for it: staging, flags, the members' addresses; s is the lane's stream. Nothing
 * is left behind an error. Collective over the members. */
enum err comm_copies_open(struct comm_group *g, cudaStream_t s, struct comm_copies **out);
/* Is c done by copies? All members answer the same. Of a group that is not mixed everything must
 * be. */
bool comm_copies_take(const struct comm_gpu_lane *l, const struct comm_coll *c);
/* Hosts meet, and what they are about to do lies at the same place. Collective over the members. */
enum err comm_copies_meet(struct comm_group *g, const struct comm_coll *c);
/* Where the parts of an all_to_all lie in each member's window, for the next comm_copies_take and
 * comm_copies_do; hosts meet for it. Errors: ERR_MISMATCH. Collective over the members. */
enum err comm_copies_parts(struct comm_group *g, const struct comm_coll *c);
/* c on stream s: the lane's, or the device's. */
enum err comm_copies_do(const struct comm_gpu_lane *l, const struct comm_coll *c, cudaStream_t s);
/* Whatever peer is waited for just now has told; what is summed is garbage from here on. Stores
 * alone, from any thread. */
void comm_copies_let_go(const struct comm_copies *x);
/* peers: some may still write. NULL is none. */
void comm_copies_close(struct comm_copies *x, bool peers);
#endif

#endif
