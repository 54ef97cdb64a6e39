/* SPDX-License-Identifier: Apache-2.0
 *
 * Names: of folders, parts of paths, and of one file under several (links, other spellings). The
 * kernel's numbers of a file say so, and of one that is not there yet those of its folder.
 */
#include "base/fs_sys.h"

#include "base/mem.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

bool fs_leads_nowhere(const char *path)
{
    struct stat st;
    return fs_sys_lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && fs_sys_stat(path, &st) != 0;
}

const char *fs_parent(char buf[FS_PATH], const char *path)
{
    const char *slash = strrchr(path, '/');
    snprintf(buf, FS_PATH, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1,
             slash ? path : ".");
    return buf;
}

static enum err make_dir(const char *path)
{
    char why[FS_REASON];
    struct stat st;
    int code = fs_sys_mkdir(path) == 0 ? 0 : errno;
    if (code == 0 || (fs_sys_stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
        return ERR_OK; /* another process may have made it, or it is not ours to make, as "/" */
    if (code == EEXIST && fs_leads_nowhere(path))
        FAIL(ERR_STORAGE, "storage: cannot make the folder %s: it is a link that leads nowhere; "
                          "remove it, or make what it names", path);
    if (code == EEXIST)
        FAIL(ERR_STORAGE, "storage: cannot make the folder %s: a file has that name; use another",
             path);
    FAIL(ERR_STORAGE, "storage: cannot make the folder %s: %s", path, fs_reason(code, why));
}

enum err fs_make_dirs(const char *path)
{
    enum err err = ERR_OK;
    char *s;
    if (!*path)
        FAIL(ERR_STORAGE, "storage: cannot make a folder without a name");
    TRY(mem_string(path, &s));
    for (char *p = s + 1; *p; p++) {
        if (*p != '/' || p[-1] == '/')
            continue;
        *p = '\0';
        TRY_OR(out_string, make_dir(s));
        *p = '/';
    }
    TRY_OR(out_string, make_dir(s));
out_string:
    mem_free(s);
    return err;
}

bool fs_exists(const char *path)
{
    return fs_sys_access(path, F_OK) == 0;
}

bool fs_named(const char *path)
{
    struct stat st;
    return fs_sys_lstat(path, &st) == 0;
}

const char *fs_path(char buf[FS_PATH], const char *dir, const char *name)
{
    int n = (int)strlen(dir);
    while (n > 1 && dir[n - 1] == '/' && dir[n - 2] == '/')
        n--;
    snprintf(buf, FS_PATH, "%.*s%s%s", n, dir, n > 0 && dir[n - 1] != '/' ? "/" : "", name);
    return buf;
}

enum err fs_join(const char *dir, const char *name, char **out)
{
    char buf[FS_PATH];
    return mem_string(fs_path(buf, dir, name), out);
}

static bool is_one(const struct stat *x, const struct stat *y)
{
    return x->st_dev == y->st_dev && x->st_ino == y->st_ino;
}

bool fs_same(const char *a, const char *b)
{
    struct stat x, y;
    return fs_sys_stat(a, &x) == 0 && fs_sys_stat(b, &y) == 0 && is_one(&x, &y);
}

bool fs_same_link(const char *a, const char *b)
{
    struct stat x, y;
    return fs_sys_lstat(a, &x) == 0 && fs_sys_lstat(b, &y) == 0 && is_one(&x, &y);
}

bool fs_is_named(int fd, const char *path)
{
    struct stat x, y;
    return fs_sys_fstat(fd, path, &x) == 0 && fs_sys_lstat(path, &y) == 0 && is_one(&x, &y);
}

bool fs_same_place(const char *a, const char *b)
{
    char x[FS_PATH], y[FS_PATH];
    const char *m = strrchr(a, '/'), *n = strrchr(b, '/');
    if (strcmp(a, b) == 0 || fs_same(a, b))
        return true;
    return strcmp(m ? m + 1 : a, n ? n + 1 : b) == 0 &&
           fs_same(fs_parent(x, a), fs_parent(y, b));
}
