/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows and signals, on which all stands that GPUs of one process do without NCCL. A window is
 * device memory that the others may read. get: a copy out of one, by the receiver, which knows when
 * it has room; signal: a peer's stream sets a word of pinned host memory; wait: one's own stream
 * waits for that.
 */
#ifndef PLAIT_COMM_WINDOW_H
#define PLAIT_COMM_WINDOW_H

#include "comm/gpu/gpu.h"

/* Can this GPU read the other's memory? */
bool comm_gpu_reads(int gpu, int other);
/* comm_gpus_reach. */
bool comm_windows_reach(const int *gpu, int n);
/* comm_window_take; and its end. */
enum err comm_window_open(struct comm_world *w, int64_t bytes, const char *name, void **out);
void comm_windows_free(struct comm_gpu *q);
/* e, of an allocation: ERR_MEMORY with a message where there was no room. */
enum err comm_window_room(cudaError_t e, int64_t bytes, const char *name, int gpu);

/* Signal words, n of them, zero: pinned memory of the host. Free of NULL does nothing. */
enum err comm_signals_new(int n, uint32_t **out);
void comm_signals_free(uint32_t *words);
/* Whatever is waited for just now has come. Stores alone, from any thread; who has waited sets its
 * word back and waits for the next, so this is done again and again. */
void comm_signals_release(uint32_t *words, int n);

/* Sets q->signals, where they serve. */
void comm_signals_find(struct comm_gpu *q);
/* Do they? */
static inline bool comm_signals_serve(const struct comm_gpu *q)
{
    return q->signals.write && q->signals.wait;
}

/* On stream s: a peer's word is set; one's own is waited for, and set back; bytes come out of a
 * window, a peer's or one's own. Where no stream may wait, comm_wait returns when the peer's word
 * has come, or ends with ERR_PEER when a rank has failed. */
enum err comm_signal(const struct comm_signals *f, uint32_t *theirs, cudaStream_t s);
enum err comm_wait(const struct comm_signals *f, uint32_t *mine, cudaStream_t s);
enum err comm_get(void *to, const void *from, int64_t bytes, cudaStream_t s);

#endif
