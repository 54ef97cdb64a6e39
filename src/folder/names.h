/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands in the folder of a run: the names that runs write, and who holds the folder, by the
 * words of plait.lock. docs/run-folder.md is the user's page.
 */
#ifndef PLAIT_FOLDER_NAMES_H
#define PLAIT_FOLDER_NAMES_H

#include "base/fs.h"
#include "config/options.h"

/* The names that runs write; those from YAML to METRICS each start makes, in this order. Beside
 * them stand, while a file is being written, temporary ones: NAME.tmp.PID.NUMBER. */
enum folder_file { FOLDER_LOCK, FOLDER_YAML, FOLDER_JSON, FOLDER_RECORD, FOLDER_LOG, FOLDER_METRICS,
                   FOLDER_TRACE, FOLDER_WEIGHTS, FOLDER_CHECKPOINTS, FOLDER_FILES };
extern const char *const folder_name[FOLDER_FILES];
/* The path of such a file into buf, which is returned, as fs_path. */
const char *folder_file(char buf[FS_PATH], const char *dir, enum folder_file i);
/* The path becomes that of the folder around it: "." for a name alone. */
void folder_above(char *path);
/* Does a run write it? By run.save, train.save_keep and train.trace. */
bool folder_writes(const struct options *o, enum folder_file i);

/* What a lock that was found says of its owner, whose words are told as far as they are known (pid
 * 0: not at all). */
struct folder_owner { char host[65], since[32]; long pid; };
enum folder_life {
    FOLDER_FREE,    /* nobody has the folder */
    FOLDER_LIVES,   /* the lock is held */
    FOLDER_DIED,    /* on this host */
    FOLDER_UNSEEN,  /* on another host, or on a disk without locks: it may live */
    FOLDER_FOREIGN, /* the words are no run's, or cannot be read */
};
enum folder_life folder_life(const struct fs_lock_found *found, struct folder_owner *out);
/* The name of this host. */
void folder_host(char host[65]);
/* "the run of pid 7 on host a, since 2026-01-02T03:04:05Z", into buf, which is returned. */
enum { FOLDER_OWNER = 160 };
const char *folder_owner_words(const struct folder_owner *w, char buf[FOLDER_OWNER]);

#endif
