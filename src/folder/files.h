/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that a command reads, by what it calls them, so that it writes over none of them.
 */
#ifndef PLAIT_FOLDER_FILES_H
#define PLAIT_FOLDER_FILES_H

#include "config/options.h"

struct file_use { const char *what, *path; }; /* borrowed */

/* What a configuration names: its own file, tokens, schedule, costs; how many. Local. */
enum { FILES_OPTIONS = 5 };
int files_of_options(const struct options *o, struct file_use out[FILES_OPTIONS]);

/* What it reads at that path, or NULL. */
const char *files_read_as(const struct options *o, const char *path);

/* The output, if one is asked for, has a name, is none of these files, under whatever name, and can
 * be written (asked by the launch's first process). who: stands in front of the message. Errors:
 * ERR_CONFIG, ERR_STORAGE. Local. */
enum err files_apart(const char *who, const char *out, const struct file_use *in, int n);
/* The same of a run's or a model's folder: what a run writes and transformers saves there, shards
 * and traces that are there, and the files of its options. Errors: as files_apart. Local. */
enum err files_apart_folder(const char *who, const char *out, const char *dir,
                            const struct options *o);

#endif
