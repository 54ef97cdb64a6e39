/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a folder can be made, or written to, without making or writing anything: the nearest part
 * of its path that is there is asked. access(2) knows permissions and file systems that are
 * read-only, but not the kernel's own, in which root may do anything and nobody can make a file.
 */
#include "run/folder.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static bool is_kernels(const char *path)
{
    static const long type[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC, DEVPTS_SUPER_MAGIC, DEBUGFS_MAGIC,
                                TRACEFS_MAGIC, SECURITYFS_MAGIC};
    struct statfs s;
    if (statfs(path, &s) != 0)
        return false;
    for (size_t i = 0; i < sizeof type / sizeof *type; i++)
        if ((long)s.f_type == type[i])
            return true;
    return false;
}

static enum err refuse(const char *dir, const char *part, int code)
{
    char why[FS_REASON];
    if (strcmp(dir, part) == 0)
        FAIL(ERR_STORAGE, "run.dir %s cannot be written to: %s", dir, fs_reason(code, why));
    FAIL(ERR_STORAGE, "run.dir %s cannot be made in %s: %s", dir, part, fs_reason(code, why));
}

/* The part is there. */
static enum err check_part(const char *dir, const char *part, const struct stat *link)
{
    struct stat st;
    if (stat(part, &st) != 0 && S_ISLNK(link->st_mode))
        FAIL(ERR_STORAGE, "run.dir %s cannot be made: %s is a link that leads nowhere; remove it, "
                          "or make what it names", dir, part);
    if (stat(part, &st) != 0)
        return refuse(dir, part, errno);
    if (!S_ISDIR(st.st_mode))
        FAIL(ERR_STORAGE, "run.dir %s cannot be made: %s is no folder, a file has that name; use "
                          "another", dir, part);
    if (access(part, W_OK | X_OK) != 0)
        return refuse(dir, part, errno);
    return is_kernels(part) ? refuse(dir, part, EROFS) : ERR_OK;
}

enum err folder_check_dir(const char *dir)
{
    enum err err;
    struct stat st = {.st_mode = 0}; /* of a part of which it cannot be said */
    char *part;
    TRY(mem_string(dir, &part));
    while (lstat(part, &st) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        char *slash = strrchr(part, '/');
        while (slash > part && slash[-1] == '/')
            slash--;
        if (!slash)
            memcpy(part, ".", 2); /* a path without a slash has a byte and its end */
        else
            slash[slash == part] = '\0';
    }
    err = check_part(dir, part, &st);
    mem_free(part);
    return err;
}
