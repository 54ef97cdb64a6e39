/* SPDX-License-Identifier: Apache-2.0
 *
 * Who waits for a disk says so. A call of the file system may take minutes (a full network disk, a
 * quota under repair), and nothing in here can end it; but whoever has asked knows that this thread
 * is in one, and with which file.
 */
#include "base/fs.h"

#include <errno.h>
#include <stddef.h>

static _Thread_local struct fs_watch watch; /* all zero: nobody asked */
static _Thread_local int depth;

struct fs_watch fs_watch_set(const struct fs_watch *w)
{
    struct fs_watch before = watch;
    watch = w ? *w : (struct fs_watch){0};
    return before;
}

struct fs_watch fs_watch_get(void)
{
    return watch;
}

void fs_call_begin(const char *path)
{
    if (depth++ == 0 && watch.begin)
        watch.begin(watch.arg, path);
}

/* The caller looks at errno behind it. */
void fs_call_end(void)
{
    int code = errno;
    if (--depth == 0 && watch.end)
        watch.end(watch.arg);
    errno = code;
}
