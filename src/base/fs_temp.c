/* SPDX-License-Identifier: Apache-2.0
 *
 * The temporary files and folders of this process, for one that ends in a signal handler. Names
 * stand in memory that is never given back, so a handler may read one while another thread gives
 * its file up; a word beside each says whose it is. Files beyond the table, or with longer names,
 * are left behind.
 */
#include "base/fs.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 16, NAME_BYTES = 4096 };
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

void fs_abandon_all(void)
{
    for (int i = 0; i < SLOTS; i++) {
        int was = NOTED;
        if (atomic_compare_exchange_strong(&slot[i].state, &was, REMOVED))
            (void)unlink(slot[i].name);
    }
    for (int i = 0; i < SLOTS; i++) /* folders, whose files are gone */
        if (atomic_load(&slot[i].state) == REMOVED)
            (void)rmdir(slot[i].name);
}
