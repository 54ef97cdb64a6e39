/* SPDX-License-Identifier: Apache-2.0
 *
 * How a whole file gets its name. What may replace nothing gets it by the kernel's own rename that
 * refuses a name that is taken, so there is no moment in which somebody's file could come between a
 * look and the rename. File systems without that (NFS, 9p) have link(2), which refuses it too.
 * Where there are no links either (FAT, some of FUSE) a look stands before the rename, and what
 * comes between the two is replaced: nothing there could do better.
 */
#include "base/fs_sys.h"

#include <errno.h>

static bool has_name(const char *path)
{
    struct stat st;
    return fs_sys_lstat(path, &st) == 0;
}

/* Two names of one file? No link is followed. */
static bool is_linked(const char *a, const char *b)
{
    struct stat one, two;
    return fs_sys_lstat(a, &one) == 0 && fs_sys_lstat(b, &two) == 0 && one.st_dev == two.st_dev &&
           one.st_ino == two.st_ino;
}

static int look_and_rename(const char *temp, const char *path)
{
    if (!has_name(path))
        return fs_sys_rename(temp, path);
    errno = EEXIST;
    return -1;
}

/* The answer to a link may be lost on its way, and the repeated call find its own work (NFS). */
static int link_and_unlink(const char *temp, const char *path)
{
    int done = fs_sys_link(temp, path), code = done == 0 ? 0 : errno;
    if (code == EPERM || code == ENOSYS || code == EOPNOTSUPP || code == EMLINK)
        return look_and_rename(temp, path);
    if (code != 0 && !(code == EEXIST && is_linked(temp, path))) {
        errno = code;
        return -1;
    }
    (void)fs_sys_unlink(temp);
    return 0;
}

static int place_fresh(const char *temp, const char *path)
{
    int done = fs_sys_rename_new(temp, path);
    bool known = done == 0 || (errno != EINVAL && errno != ENOSYS);
    return known ? done : link_and_unlink(temp, path);
}

int fs_place(const char *temp, const char *path, bool fresh)
{
    return fresh ? place_fresh(temp, path) : fs_sys_rename(temp, path);
}
