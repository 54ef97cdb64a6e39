/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a folder can be made, or written to, without making or writing anything: the nearest part
 * of its path that is there is asked. access(2) knows permissions and file systems that are
 * read-only, but not the kernel's own, in which root may do anything and nobody can make a file, or
 * a folder is no folder: one in cgroup is a group of processes.
 */
#include "folder/folder.h"

#include "base/fs_sys.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <unistd.h>

/* The file system of the kernel's own that the part is in, or NULL. That of devices looks like any
 * other in memory, but is not that of the root. */
static const char *kernels(const char *path, const struct stat *st)
{
    static const struct { unsigned long type; const char *name; } own[] = {
        {PROC_SUPER_MAGIC, "proc"}, {SYSFS_MAGIC, "sysfs"}, {CGROUP_SUPER_MAGIC, "cgroup"},
        {CGROUP2_SUPER_MAGIC, "cgroup2"}, {DEVPTS_SUPER_MAGIC, "devpts"},
        {DEBUGFS_MAGIC, "debugfs"}, {TRACEFS_MAGIC, "tracefs"}, {SECURITYFS_MAGIC, "securityfs"},
        {BPF_FS_MAGIC, "bpf"}, {PSTOREFS_MAGIC, "pstore"}, {EFIVARFS_MAGIC, "efivarfs"},
        {BINFMTFS_MAGIC, "binfmt_misc"}, {SELINUX_MAGIC, "selinuxfs"},
        {HUGETLBFS_MAGIC, "hugetlbfs"}, {RDTGROUP_SUPER_MAGIC, "resctrl"},
        {NSFS_MAGIC, "nsfs"}, {0x62656570, "configfs"}, {0x65735543, "fusectl"},
        {0x19800202, "mqueue"}};
    struct stat dev, root;
    int64_t magic = fs_sys_magic(path);
    if (magic < 0)
        return NULL;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if ((unsigned long)magic == own[i].type)
            return own[i].name;
    bool devices = fs_sys_stat("/dev", &dev) == 0 && fs_sys_stat("/", &root) == 0 &&
                   dev.st_dev != root.st_dev && st->st_dev == dev.st_dev;
    return devices ? "that of /dev" : NULL;
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
    char why[FS_REASON];
    if (fs_sys_stat(part, &st) != 0 && S_ISLNK(link->st_mode))
        FAIL(ERR_STORAGE, "run.dir %s cannot be made: %s is a link that leads nowhere; remove it, "
                          "or make what it names", dir, part);
    if (fs_sys_stat(part, &st) != 0)
        return refuse(dir, part, errno);
    if (!S_ISDIR(st.st_mode))
        FAIL(ERR_STORAGE, "run.dir %s cannot be made: %s is no folder, a file has that name; use "
                          "another", dir, part);
    const char *system = kernels(part, &st);
    if (system)
        FAIL(ERR_STORAGE, "run.dir %s cannot be: %s is in a file system of the kernel (%s), which "
                          "keeps no files; name a folder on a disk", dir, part, system);
    if (fs_sys_access(part, W_OK | X_OK) != 0)
        return refuse(dir, part, errno);
    /* What a dead run left is looked for. */
    if (strcmp(dir, part) == 0 && fs_sys_access(part, R_OK) != 0)
        FAIL(ERR_STORAGE, "run.dir %s cannot be read: %s", dir, fs_reason(errno, why));
    return ERR_OK;
}

enum err folder_check_dir(const char *dir)
{
    struct stat st = {.st_mode = 0}; /* of a part of which it cannot be said */
    char part[FS_PATH];
    snprintf(part, sizeof part, "%s", dir);
    while (fs_sys_lstat(part, &st) != 0 && (errno == ENOENT || errno == ENOTDIR))
        folder_above(part);
    return check_part(dir, part, &st);
}
