/* SPDX-License-Identifier: Apache-2.0
 *
 * What a training run keeps of its parameters: master weights and both moments, out of the stores
 * into memory of the host, and back.
 *
 * Each rank has a duty: ranges of its own stores that no other rank saves. Where data ranks share
 * the updates they are those that the rank owns; elsewhere the data ranks hold the
 * same bits and each takes an equal part. The duties of all ranks tile every parameter exactly
 * once; copies (param.counted false) and padding belong to none. So nobody waits for another, and
 * nothing travels between ranks.
 *
 * Ranges are flat: elements of the local box of a parameter, row-major.
 */
#ifndef PLAIT_PARAM_PARAM_STATE_H
#define PLAIT_PARAM_PARAM_STATE_H

#include "param/param.h"

/* Weights: the master weights, those that are computed with where there are no others. All three
 * are of the accumulation type, dev.at. */
enum param_kind { PARAM_WEIGHT, PARAM_M, PARAM_V, PARAM_KINDS };

/* Elements from .. to - 1 of a parameter's local box, never empty and none of its padding rows. The
 * rows have param->box.local[1] columns. */
struct param_piece {
    const struct param *param; /* borrowed */
    int64_t from, to;
    int64_t at;                /* where they begin in each kind of a snapshot, in elements */
};

struct param_run; /* elements that lie together in a store */
struct param_duty {
    struct dev *dev;           /* borrowed */
    struct param_piece *piece; /* owned; by store and place in it */
    int n;
    struct param_run *run;     /* owned */
    int runs;
    int64_t elements;          /* of a kind, in a snapshot */
};

/* The duty of data rank `rank` of `ranks`, over all stores of this rank (borrowed, of one device,
 * cut where they are shared); without pieces on a rank whose stores are copies. The same at each
 * call. Errors: ERR_MEMORY. Local. */
enum err param_duty_open(struct param_duty *d, struct param_store *const *store, int stores,
                         int rank, int ranks);
void param_duty_close(struct param_duty *d);

/* A place in memory of the host, of the device's kind (host_alloc), that is filled again and again.
 * Planned are PARAM_KINDS numbers for each of the model_saved_elements of the rank's stages. Where
 * none are, on a device whose memory the host can read, it is the stores themselves, and stays what
 * it was until the next update. */
struct param_snapshot {
    const struct param_duty *duty; /* borrowed */
    char *host;                    /* owned; [PARAM_KINDS][duty->elements]; NULL: the stores */
};
/* Takes `bytes`. Errors: ERR_INTERNAL: they are not enough, or 0 on a device with memory of its
 * own; ERR_MEMORY. Local; released before the stores, by param_snapshot_close. */
enum err param_snapshot_open(struct param_snapshot *s, const struct param_duty *d, int64_t bytes);
void param_snapshot_close(struct param_snapshot *s);
/* Begin to fill it with what the stores hold when all that is queued until now is done. The host
 * does not wait on an async device; the next update waits for the copies there, slot by slot,
 * forward and backward go on (dev_snapshot). Local. */
enum err param_snapshot_start(const struct param_snapshot *s);
/* Wait until it is there. Any one thread may, but no two at once; it needs nothing of the rank's
 * that others use. Until then, and while anybody reads it, it is not started again. */
enum err param_snapshot_wait(const struct param_snapshot *s);
/* A piece's numbers of a kind: piece.to - piece.from of type dev.at. */
const void *param_snapshot_of(const struct param_snapshot *s, enum param_kind kind,
                              const struct param_piece *piece);

/* ---- the way back ----------------------------------------------------------------------------
 * Every rank fills all that it holds, copies and replicas too, from host memory. Padding rows are
 * zeros from the opening on and nobody writes them. */

/* Which elements of p this rank holds of a kind: of the weights, before param_shard_master, all; of
 * moments those of `piece` of its store (0 .. param_share_pieces - 1) that it owns, padding left
 * out. False: none. `at` is not set. */
bool param_held(const struct param *p, enum param_kind kind, int piece, struct param_piece *out);
/* Where elements from .. to - 1, all of them held, lie as numbers of type dev.at, if the host can
 * write there; NULL: the device has memory of its own. param_state_write from there finishes what
 * was written. Any thread, to elements of which no other writes. */
void *param_state_at(const struct param *p, enum param_kind kind, int64_t from, int64_t to);
/* Write elements from .. from + n - 1, all of them held, from n numbers of type dev.at. Weights:
 * before param_shard_master (exec_weights_keep); those that are computed with become their rounded
 * values. Local. */
enum err param_state_write(const struct param *p, enum param_kind kind, int64_t from,
                           const void *values, int64_t n);

#endif
