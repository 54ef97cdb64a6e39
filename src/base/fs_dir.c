/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders that become visible whole or not at all. rename(2) puts a folder in the place of nothing
 * or of an empty folder, and of nothing else, so what comes there meanwhile is not written over.
 * The folder is noted for a signal's end (fs_temp.c), which takes its files with it. Who is killed
 * leaves it, and whether its owner lives is not known on a disk that hosts share: it is named.
 */
#include "base/fs_sys.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static enum err check_place(const char *path)
{
    struct stat st;
    struct fs_folder f = {.open = NULL};
    char why[FS_REASON];
    if (!*path)
        FAIL(ERR_STORAGE, "storage: cannot make a folder without a name");
    int code = fs_sys_lstat(path, &st) == 0 ? 0 : errno;
    if (code == ENOENT)
        return ERR_OK;
    if (code)
        FAIL(ERR_STORAGE, "storage: cannot make the folder %s: %s", path, fs_reason(code, why));
    if (!S_ISDIR(st.st_mode))
        FAIL(ERR_STORAGE, "storage: cannot make the folder %s: %s; use another name", path,
             S_ISLNK(st.st_mode) ? "a link has that name" : "a file has that name");
    if (!fs_folder_open(&f, path))
        FAIL(ERR_STORAGE, "storage: cannot read the folder %s: %s", path, fs_reason(errno, why));
    bool empty = !fs_folder_next(&f);
    fs_folder_close(&f);
    if (!empty)
        FAIL(ERR_STORAGE, "storage: the folder %s is not empty, and nothing in it is written over; "
                          "name another, or one that is not there", path);
    return ERR_OK;
}

long fs_temp_pid(const char *entry, const char *name)
{
    size_t n = strlen(name);
    long pid;
    int number, end = 0;
    if (strncmp(entry, name, n) != 0 || strncmp(entry + n, ".tmp.", 5) != 0)
        return 0;
    entry += n + 5;
    bool whole = sscanf(entry, "%18ld.%9d%n", &pid, &number, &end) == 2 && !entry[end];
    return whole && strspn(entry, "0123456789.") == (size_t)end ? pid : 0;
}

static void say_left(const struct fs_dir *d)
{
    struct fs_folder f;
    struct stat st;
    const char *slash = strrchr(d->path, '/'), *name = slash ? slash + 1 : d->path;
    char around[FS_PATH], path[FS_PATH];
    (void)fs_folder_open(&f, fs_parent(around, d->path)); /* who cannot read it cannot be told */
    for (const char *entry; (entry = fs_folder_next(&f));) {
        long pid = fs_temp_pid(entry, name);
        if (pid != 0 && fs_sys_lstat(fs_path(path, around, entry), &st) == 0 &&
            S_ISDIR(st.st_mode))
            log_line(LOG_WARN, "%s is a half-written %s, of process %ld; if that no longer runs, "
                               "remove it", path, d->path, pid);
    }
    fs_folder_close(&f);
}

enum err fs_dir_create(struct fs_dir *d, const char *path)
{
    int made;
    *d = (struct fs_dir){.path = NULL};
    TRY(mem_string(path, &d->path));
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) /* no slashes at its end */
        d->path[n - 1] = '\0';
    enum err err = check_place(d->path);
    if (err == ERR_OK) {
        say_left(d);
        err = fs_temp_make(&d->temp, d->path, "make a folder", fs_sys_mkdir, &made);
    }
    if (err != ERR_OK)
        fs_dir_abandon(d);
    return err;
}

enum err fs_dir_name(struct fs_dir *d, const char *name, char **out)
{
    return fs_join(d->temp.name, name, out);
}

enum err fs_dir_commit(struct fs_dir *d)
{
    char why[FS_REASON], around[FS_PATH];
    TRY(fs_sync_dir(d->temp.name));
    if (fs_sys_rename(d->temp.name, d->path) != 0)
        FAIL(ERR_STORAGE, "storage: cannot put the folder %s in place: %s", d->path,
             fs_reason(errno, why));
    fs_temp_drop(&d->temp);
    return fs_sync_dir(fs_parent(around, d->path));
}

void fs_dir_abandon(struct fs_dir *d)
{
    struct err_kept first;
    struct fs_folder f;
    char path[FS_PATH];
    err_keep(&first, ERR_OK);
    if (d->temp.name) {
        (void)fs_folder_open(&f, d->temp.name);
        for (const char *name; (name = fs_folder_next(&f));)
            (void)fs_sys_unlink(fs_path(path, d->temp.name, name));
        fs_folder_close(&f);
        (void)fs_sys_rmdir(d->temp.name);
    }
    fs_temp_drop(&d->temp);
    mem_free(d->path);
    *d = (struct fs_dir){.path = NULL};
    (void)!err_again(&first);
}
