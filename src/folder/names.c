/* SPDX-License-Identifier: Apache-2.0
 *
 * A lock is a file of words that the kernel's lock guards (fs_lock.c): whether its owner lives is
 * known on its own host alone, and on disks that have locks.
 */
#include "folder/folder.h"

#include <stdio.h>
#include <unistd.h>

const char *const folder_name[FOLDER_FILES] = {
    "plait.lock", "config.yaml", "config.json", "run.json", "log.txt", "metrics.jsonl", "trace",
    "model.safetensors", "checkpoints"};

const char *folder_file(char buf[FS_PATH], const char *dir, enum folder_file i)
{
    return fs_path(buf, dir, folder_name[i]);
}

void folder_above(char *path)
{
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0';
    char *slash = strrchr(path, '/');
    while (slash > path && slash[-1] == '/')
        slash--;
    if (slash)
        slash[slash == path] = '\0';
    else
        memcpy(path, ".", 2); /* a path without a slash has a byte and its end */
}

bool folder_writes(const struct options *o, enum folder_file i)
{
    return i == FOLDER_TRACE         ? o->train.trace
           : i == FOLDER_WEIGHTS     ? o->run.save
           : i == FOLDER_CHECKPOINTS ? options_checkpoints(o)
                                     : true;
}

void folder_host(char host[65])
{
    if (gethostname(host, 64) != 0 || !host[0])
        snprintf(host, 65, "unknown");
    host[64] = '\0';
}

enum folder_life folder_life(const struct fs_lock_found *found, struct folder_owner *out)
{
    char host[65];
    *out = (struct folder_owner){.pid = 0};
    bool known = sscanf(found->words, "plait run\nhost %64s\npid %ld\nsince %31s", out->host,
                        &out->pid, out->since) == 3;
    if (found->state == FS_LOCK_NONE)
        return FOLDER_FREE;
    if (found->state != FS_LOCK_LEFT)
        return FOLDER_LIVES;
    if (!known)
        return FOLDER_FOREIGN;
    folder_host(host);
    return strcmp(out->host, host) == 0 && !found->blind ? FOLDER_DIED : FOLDER_UNSEEN;
}

const char *folder_owner_words(const struct folder_owner *w, char buf[FOLDER_OWNER])
{
    snprintf(buf, FOLDER_OWNER, "the run of pid %ld on host %s, since %s", w->pid, w->host,
             w->since);
    return buf;
}
