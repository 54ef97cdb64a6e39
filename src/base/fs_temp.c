/* SPDX-License-Identifier: Apache-2.0
 *
 * The temporary files and folders of this process, for one that ends in a signal handler. Names
 * stand in memory that is never given back, so a handler may read one while another thread gives
 * its file up; a word beside each says whose it is. Of a folder all that is in it goes, by calls
 * that a handler may make (opendir takes memory). Files beyond the table, or with longer names, are
 * left behind.
 */
#include "base/fs.h"

#include "base/mem.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 16, NAME_BYTES = 4096, ROUNDS = 64, TRIES = 100 };
enum { FREE, TAKEN, NOTED, REMOVED };

static struct { atomic_int state; char name[NAME_BYTES]; } slot[SLOTS];

/* -1: there was no place. */
static int note(const char *name)
{
    size_t n = strlen(name) + 1;
    for (int i = 0; n <= NAME_BYTES && i < SLOTS; i++) {
        int was = FREE;
        if (!atomic_compare_exchange_strong(&slot[i].state, &was, TAKEN))
            continue;
        memcpy(slot[i].name, name, n);
        atomic_store(&slot[i].state, NOTED);
        return i;
    }
    return -1;
}

/* Unless it is being removed, when its slot is not used again. */
static void forget(struct fs_temp *t)
{
    int was = NOTED;
    if (t->noted > 0)
        (void)atomic_compare_exchange_strong(&slot[t->noted - 1].state, &was, FREE);
    t->noted = 0;
}

void fs_temp_drop(struct fs_temp *t)
{
    forget(t);
    mem_free(t->name);
    *t = (struct fs_temp){.name = NULL};
}

enum err fs_temp_make(struct fs_temp *t, const char *path, const char *what,
                      int (*make)(const char *name), int *made)
{
    size_t room = strlen(path) + 48;
    char why[FS_REASON];
    TRY(mem_new((int64_t)room, 1, "a file name", &t->name));
    for (int i = 0; i < TRIES; i++) {
        snprintf(t->name, room, "%s.tmp.%ld.%d", path, (long)getpid(), i);
        t->noted = 1 + note(t->name); /* one of that name would be a dead process's */
        *made = make(t->name);
        if (*made >= 0)
            return ERR_OK;
        forget(t);
        if (errno != EEXIST)
            break;
    }
    fs_reason(errno, why);
    fs_temp_drop(t); /* not ours: it must not be removed */
    FAIL(ERR_STORAGE, "storage: cannot %s beside %s: %s", what, path, why);
}

static void empty_folder(const char *name)
{
    _Alignas(struct dirent64) char entries[4096];
    int fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = getdents64(fd, entries, sizeof entries)) > 0;)
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *e = (const void *)(entries + at);
            (void)unlinkat(fd, e->d_name, 0); /* not . and .., which are folders */
            at += e->d_reclen;
        }
    if (fd >= 0)
        (void)close(fd);
}

void fs_abandon_all(void)
{
    for (int i = 0; i < SLOTS; i++) {
        const char *name = slot[i].name;
        int was = NOTED, rounds = 0;
        if (!atomic_compare_exchange_strong(&slot[i].state, &was, REMOVED) || unlink(name) == 0 ||
            !(errno == EISDIR || errno == EPERM))
            continue;
        /* Again while there is something: a file system may pass over names when others go
         * meanwhile, and another thread may still write there. */
        while (rounds++ < ROUNDS && rmdir(name) != 0 && (errno == ENOTEMPTY || errno == EEXIST))
            empty_folder(name);
    }
}
