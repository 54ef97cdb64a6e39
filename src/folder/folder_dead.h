/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run that died left in its folder, by the words of the lock that it left ("": no run died).
 */
#ifndef PLAIT_FOLDER_FOLDER_DEAD_H
#define PLAIT_FOLDER_FOLDER_DEAD_H

#include "folder/folder.h"

/* Into a lock that is held, before the files are made: what a start is going to write, the texts of
 * its descriptions. kept: config.yaml stays as it is. Errors: ERR_STORAGE. */
enum err folder_dead_record(const struct fs_lock *l, const struct text words[FOLDER_LOG], bool kept,
                            struct folder_start *out);
/* What such a text is known by. */
unsigned long long folder_dead_hash(const struct text *t);
/* Is what has this name as that start made it? Local. */
bool folder_dead_made(const struct folder_start *s, const char *name, const char *path);
/* Did the dead run make no step, and is all that it left as its start made it? Local. */
bool folder_dead_start(const struct options *o, const char *words);
/* Is that so, and is this name of a run's part of it? Local. */
bool folder_dead_name(const struct options *o, const char *words, const char *name);
/* Has a trace there a step? Heads alone are removed by their ranks. Local. */
bool folder_dead_traced(const char *dir);
/* Remove half-written files of the dead run, and what it left if it made no step, saying so; those
 * that look so and are of no dead run are named and stay. Errors: ERR_STORAGE. Local. */
enum err folder_dead_sweep(const struct options *o, const char *words);

#endif
