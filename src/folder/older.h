/* SPDX-License-Identifier: Apache-2.0
 *
 * Older checkpoints of a run go beside the steps, by a thread: gigabytes of files take seconds. On
 * the rank that writes indexes; what fails is a warning, for one more than wanted stays.
 */
#ifndef PLAIT_FOLDER_OLDER_H
#define PLAIT_FOLDER_OLDER_H

#include "base/fs.h"
#include "config/options.h"

#include <pthread.h>

/* All zeros: nothing is under way. */
struct older {
    const struct options *o;    /* borrowed */
    const struct fs_lock *lock; /* borrowed; of run.dir; NULL: of another process */
    int64_t newest, best;       /* steps; best 0: there is none, or it goes like the others */
    pthread_t thread;
    bool runs;                  /* it has to be joined */
    struct err_kept err;        /* its error */
};

/* The index of step `newest` is on the disk: those beyond the train.save_keep newest go, `best`
 * not counted and kept. Ends what is under way first. Local. */
void older_start(struct older *o, const struct options *opt, const struct fs_lock *lock,
                 int64_t newest, int64_t best);
/* They are gone. Any one thread: the one that writes the next checkpoint, so that there is room. */
void older_join(struct older *o);
/* The same by the rank's thread, which is not hung meanwhile; what failed is said. */
void older_end(struct older *o);

#endif
