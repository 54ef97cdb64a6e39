/* SPDX-License-Identifier: Apache-2.0
 *
 * What a start has made before its first step, known by its content, so that what somebody has put
 * in its place since is not taken for it; and what a start that died left.
 */
#ifndef PLAIT_FOLDER_START_H
#define PLAIT_FOLDER_START_H

#include "base/text.h"
#include "folder/names.h"

struct folder_start {
    long pid;                      /* its owner's; 0: of no run */
    bool made;                     /* the files; else there are traces at most */
    unsigned long long hash[FOLDER_LOG]; /* of the descriptions, YAML to RECORD; 0: not made */
};
/* How the first line of a start's log begins, behind its date. */
#define FOLDER_LOG_BEGINS "run of pid %ld "

/* Into a lock that is held, before the files are made: what a start is going to write, the texts of
 * its descriptions. kept: config.yaml stays as it is. Errors: ERR_STORAGE. */
enum err start_write(const struct fs_lock *l, const struct text words[FOLDER_LOG], bool kept,
                     struct folder_start *out);
/* By the lock that was found; of no run, where it is held, or not a run's. */
struct folder_start start_read(const struct fs_lock_found *found);
/* What such a text is known by. */
unsigned long long start_hash(const void *p, int64_t n);
/* Is what has this name as that start made it? Local. */
bool start_made(const struct folder_start *s, enum folder_file i, const char *path);
/* Has a trace there a step? Heads alone are removed by their ranks. Local. */
bool start_traced(const char *dir);
/* What is there of a dead start and goes: nothing where it is of no run, or where any name of a
 * run's is otherwise than it made it. Local. */
void start_left(const struct folder_start *s, const char *dir, bool left[FOLDER_FILES]);
/* Remove half-written files of the dead run, and what it left if it made no step, saying so; those
 * that look so and are of no dead run are named and stay. Errors: ERR_STORAGE. Local. */
enum err start_sweep(const struct folder_start *s, const struct options *o);

#endif
