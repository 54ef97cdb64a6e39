/* SPDX-License-Identifier: Apache-2.0
 *
 * One file under several names: links, other spellings of a path. The kernel's numbers of a file
 * say so, and of one that is not there yet those of its folder.
 */
#include "base/fs_sys.h"

#include <string.h>

bool fs_same(const char *a, const char *b)
{
    struct stat x, y;
    return fs_sys_stat(a, &x) == 0 && fs_sys_stat(b, &y) == 0 &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool fs_is_named(int fd, const char *path)
{
    struct stat open_one, named;
    return fs_sys_fstat(fd, path, &open_one) == 0 && fs_sys_lstat(path, &named) == 0 &&
           open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

/* The folder of a path as the kernel knows it, and the name behind its last slash; NULL: there is
 * no such folder. */
static const char *place(const char *path, struct stat *folder)
{
    char dir[4096];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    if (n >= sizeof dir)
        return NULL;
    memcpy(dir, path, n);
    dir[n] = '\0';
    return fs_sys_stat(slash ? dir : ".", folder) == 0 ? path + n : NULL;
}

bool fs_same_place(const char *a, const char *b)
{
    struct stat x, y;
    if (strcmp(a, b) == 0 || fs_same(a, b))
        return true;
    const char *m = place(a, &x), *n = place(b, &y);
    return m && n && strcmp(m, n) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
