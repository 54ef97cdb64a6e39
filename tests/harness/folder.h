/* SPDX-License-Identifier: Apache-2.0
 *
 * Files in the folder of a test program (test_folder), and what runs in it have in common: token
 * files, configurations with paths, what a run reported.
 */
#ifndef PLAIT_TEST_FOLDER_H
#define PLAIT_TEST_FOLDER_H

#include "plait.h"
#include "test.h"

enum { FOLDER_PATH = 512, FOLDER_LOSSES = 256 };

/* A file of the folder, or one whose name is absolute; and one below it, as in a run's. */
void folder_path(const char *name, char out[FOLDER_PATH]);
void folder_path_in(const char *run, const char *name, char out[FOLDER_PATH]);

/* Is that file of a run there? Names in a run's folder that have `part`. */
bool folder_has(const char *run, const char *file);
int folder_count(const char *run, const char *part);
/* The folder or file of that name goes, with all in it. */
void folder_remove(const char *name);
/* Have two files the same bytes, and any? And two runs the file of that name? */
bool folder_same(const char *a, const char *b);
bool folder_same_in(const char *run, const char *other, const char *name);
/* All of a run's file, as a string (mem_free). */
char *folder_text(const char *run, const char *file);
/* How often a file of a run has the word; 0: also where there is none. */
int folder_times(const char *run, const char *file, const char *word);
/* Is there mpirun, for processes on one machine, as root, too? Else the case is skipped. */
bool folder_mpirun(void);

/* Token file `name` by bytes, unless it is there: of the text at `path`; of a text written `times`
 * over. */
void folder_prepare(const char *path, const char *name);
void folder_tokens(const char *name, const char *text, int times);

/* A configuration of key=value words whose run.dir and data.train are `run` and `tokens` in the
 * folder (plait_config_free). */
struct plait_config *folder_config(const char *run, const char *tokens);
/* The first n words, or those before a NULL. */
void folder_set(struct plait_config *c, const char *const *words, int n);
/* key=name, name being in the folder. */
void folder_set_file(struct plait_config *c, const char *key, const char *name);

/* What a run reported: at most FOLDER_LOSSES losses, the last validation (NaN: none). */
struct folder_seen {
    double loss[FOLDER_LOSSES], valid;
    int losses;
    char table[8192];
};
void folder_on_step(void *seen, const struct plait_step *s);
void folder_on_valid(void *seen, int64_t step, double loss, double bits);
/* Trains, and gives the configuration back. Returns the run's code. */
int folder_train(struct plait_config *c, struct folder_seen *seen);
/* The same; is stopped behind a step (0: none), of which the next run knows nothing. */
int folder_train_until(struct plait_config *c, int64_t step, struct folder_seen *seen);

#endif
