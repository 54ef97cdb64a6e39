/* SPDX-License-Identifier: Apache-2.0
 *
 * The temporary files and folders of this process, for one that ends in a signal handler. Names
 * stand in memory that is never given back, so a handler may read one while another thread gives
 * its file up; a word beside each says whose it is. Of a folder all that is in it goes, by calls
 * that a handler may make (opendir takes memory). Files beyond the table, or with longer names, are
 * left behind.
 */
#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 16, NAME_BYTES = 4096, ROUNDS = 64 };
enum { FREE, TAKEN, NOTED, REMOVED };

static struct { atomic_int state; char name[NAME_BYTES]; } slot[SLOTS];

int fs_temp_note(const char *name)
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

void fs_temp_drop(int i)
{
    int was = NOTED;
    if (i >= 0)
        (void)atomic_compare_exchange_strong(&slot[i].state, &was, FREE);
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

/* Again while there is something: a file system may pass over names when others go meanwhile, and
 * another thread may still write there. */
static void remove_folder(const char *name)
{
    for (int i = 0; i < ROUNDS && rmdir(name) != 0 && (errno == ENOTEMPTY || errno == EEXIST); i++)
        empty_folder(name);
}

void fs_abandon_all(void)
{
    for (int i = 0; i < SLOTS; i++) {
        int was = NOTED;
        if (atomic_compare_exchange_strong(&slot[i].state, &was, REMOVED) &&
            unlink(slot[i].name) != 0 && (errno == EISDIR || errno == EPERM))
            remove_folder(slot[i].name);
    }
}
