/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of a training run on one rank: the state of a step is copied beside the steps that
 * follow it, a thread writes the copy as this rank's shard, and when the threads of all ranks are
 * done, which they learn with the sums of a step, the index is written, and the save is done.
 */
#ifndef PLAIT_TRAIN_CHECKPOINT_H
#define PLAIT_TRAIN_CHECKPOINT_H

#include "ckpt/state.h"
#include "folder/folder.h"
#include "param/param_state.h"
#include "train/rank.h"

#include <pthread.h>
#include <stdatomic.h>

/* How parameters stand in a checkpoint, for who writes and who reads: the type of their numbers
 * (`at` of the device), and a box of p's local part among all of p. Kinds have the same numbers. */
_Static_assert((int)PARAM_WEIGHT == (int)STATE_WEIGHT && (int)PARAM_M == (int)STATE_M &&
               (int)PARAM_V == (int)STATE_V, "one order");
enum safet_type checkpoint_type(enum dtype at);
struct state_box checkpoint_box(const struct param *p, const struct state_box *local);

/* What saves have cost this rank so far. */
struct checkpoint_spent {
    int64_t saves;            /* that became whole, on the writer */
    int64_t bytes;            /* of the shards that its thread has written */
    double copied, wrote;     /* s: until copies were there, also beside steps; of writing */
    double longest;           /* s from a save's first copy until its thread was done */
    double waited;            /* s in which the steps stood still */
};

/* The whole checkpoint of run.dir behind the validation with the lowest loss; step 0: none is. */
struct checkpoint_best { int64_t step; double loss; };

struct checkpoint {
    const struct rank *rank;  /* borrowed, as its stores are; who reports writes the index */
    const struct setup *s;    /* borrowed */
    struct checkpoint_spent spent;
    double began;             /* of the copy under way: when its step was done, log_now */
    struct param_duty duty;
    struct param_snapshot snapshot;
    struct state_chunk *chunk;   /* owned; [chunks] */
    struct state_source *source; /* owned; [chunks]: in the snapshot */
    int chunks, helpers;      /* threads beside the one that writes */
    const char *run;          /* borrowed; state_save.run */
    struct checkpoint_best best; /* train.save_best; the same on all ranks */
    int64_t step, ended;      /* of the save under way, 0: none is; of the last one, also one that
                                 failed: that is not tried again */
    int64_t copied;           /* the step that the copy is of, before its save is begun; 0: none */
    int64_t whole;            /* the last one on the disk; 0: none. The same on all ranks */
    int64_t refused;          /* whose state was not finite, so that there is none of it; 0: none.
                                 The same on all ranks, and none is begun behind it */
    struct state_head head;   /* of the save under way; texts are owned by the checkpoint */
    char *config;             /* owned */
    char dir[FS_PATH];        /* of the save under way */
    pthread_t thread;
    bool waited;              /* it was said that a save waits for the one before it */
    bool runs;                /* the thread has to be joined */
    struct folder_older older;  /* that go beside the steps: joined by the next save's thread */
    atomic_bool written;      /* the thread is done with it */
    atomic_bool given_up;     /* the run has failed: the shard can never become whole */
    const struct fs_lock *lock; /* borrowed; of run.dir, in the process that took it, else NULL */
    struct err_kept err;      /* its error */
    char *text;               /* owned; of its shard, for the index */
};

/* run: state_save.run, borrowed; lock: of run.dir, in the process that took it; NULL elsewhere.
 * Takes the host memory of a copy. Errors: ERR_MEMORY. Local; released by checkpoint_close, which
 * waits for a thread. */
enum err checkpoint_open(struct checkpoint *c, const struct rank *k, const char *run,
                         const struct fs_lock *lock);
void checkpoint_close(struct checkpoint *c);

/* Begins the copy of a step that is queued and not judged yet, where no save is under way: ahead of
 * checkpoint_begin, which begins it itself for any other step. Local. */
enum err checkpoint_copy(struct checkpoint *c, int64_t step);
/* Behind it older checkpoints than those that stay are gone, for all ranks: ahead of a save that
 * must not find the disk full. Collective over the world. */
enum err checkpoint_make_room(struct checkpoint *c);
/* Begins to save what the stores hold, which is the state of head->step. A save that is still under
 * way is waited for and ended, which is said. Collective over the world. Errors, on the writer:
 * ERR_STORAGE: an earlier save failed and no checkpoint is left; ERR_NONFINITE: c->refused, with
 * the number's name; those of the transport. */
enum err checkpoint_begin(struct checkpoint *c, const struct state_head *head);
/* Is this rank's part of the save under way written? */
bool checkpoint_written(const struct checkpoint *c);
/* Would a checkpoint behind a validation with this loss be the best, also once the save under way
 * has ended? The same on all ranks. */
bool checkpoint_would_be_best(const struct checkpoint *c, double loss);
/* The best of run.dir up to a step, from the indexes. Collective over the world. */
enum err checkpoint_find_best(struct checkpoint *c, int64_t last);
/* A validation was made behind a step that is saved already: its index gets the loss. What fails
 * there is a warning. Collective over the world. */
enum err checkpoint_validated(struct checkpoint *c, int64_t step, double loss);
/* All ranks have written, or wait: true. Ends the save under way: the index is put in place, and
 * older checkpoints than the train.save_keep newest go, beside what follows, until the next one
 * begins. Where a rank's part failed the writer says so and the save goes. Collective over the
 * world. Errors: as checkpoint_begin. */
enum err checkpoint_end(struct checkpoint *c);
/* A line on what they have cost, behind the last of them; nothing where there was none. */
void checkpoint_report(const struct checkpoint *c, struct text *out);

/* ---- what the ranks' devices have chosen by measuring (dev_choices), for them (choices.c) ---- */

struct choices {
    double *mark;  /* owned; [ranks]: of what each had, 0: nothing */
    char *text[2]; /* owned; the last one, and the one before, which a save under way may have */
    int now;
};
/* all: the world, host memory; NULL: one rank. Errors: ERR_MEMORY, the device's, the transport's.
 * Collective over all. Released by choices_close, also after an error. */
enum err choices_gather(struct choices *c, struct dev *dev, struct comm_group *all);
/* Have all ranks' devices taken what they were given (dev_choose)? *taken: of this rank, then of
 * all. Errors: the transport's. Collective over all. */
enum err choices_agree(struct comm_group *all, bool *taken);
/* "" where nothing is chosen so. Valid until the second gathering from now on. */
const char *choices_text(const struct choices *c);
void choices_close(struct choices *c);

#endif
