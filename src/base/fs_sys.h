/* SPDX-License-Identifier: Apache-2.0
 *
 * The system's calls on files, one by one: each as its POSIX namesake, -1 and errno on failure, and
 * again while a signal interrupts it (but close, whose descriptor is gone). Nobody makes such a
 * call by another way (tools/layers), for each may wait for a disk, and here whoever watches the
 * thread is told (fs_watch_set). With a descriptor goes the path that it is told.
 */
#ifndef PLAIT_BASE_FS_SYS_H
#define PLAIT_BASE_FS_SYS_H

#include "base/fs.h"
#include <fcntl.h>
#include <sys/stat.h>

int fs_sys_open(const char *path, int flags); /* mode 0666; O_CLOEXEC is added */
int fs_sys_close(int fd, const char *path);
int64_t fs_sys_write(int fd, const char *path, const void *p, int64_t n, int64_t at); /* fs_ops */
int64_t fs_sys_pread(int fd, const char *path, void *p, int64_t n, int64_t at);
int fs_sys_fsync(int fd, const char *path);
int fs_sys_keep(int fd, const char *path, int64_t n); /* blocks for the first n bytes */
int fs_sys_cut(int fd, const char *path, int64_t n);  /* ftruncate */
int64_t fs_sys_end(int fd, const char *path);         /* lseek to the end */
void *fs_sys_map(int fd, const char *path, int64_t n); /* to read; MAP_FAILED */
int fs_sys_lock(int fd, const char *path, int command, struct flock *l); /* fcntl */

int fs_sys_rename(const char *from, const char *to);
int fs_sys_rename_new(const char *from, const char *to); /* EEXIST where anything has that name */
int fs_sys_link(const char *from, const char *to);
int fs_sys_unlink(const char *path);
int fs_sys_mkdir(const char *path); /* mode 0777 */
int fs_sys_rmdir(const char *path);

int fs_sys_stat(const char *path, struct stat *out);
int fs_sys_lstat(const char *path, struct stat *out);
int fs_sys_fstat(int fd, const char *path, struct stat *out);
int fs_sys_access(const char *path, int mode);
int64_t fs_sys_space(const char *dir);  /* bytes that are free there; -1: not known */
int64_t fs_sys_magic(const char *path); /* the type of its file system (statfs); -1: not known */

/* What stands in a folder, but . and .. */
struct fs_folder {
    void *open;       /* NULL: it cannot be read */
    const char *path; /* borrowed */
};
bool fs_folder_open(struct fs_folder *f, const char *path); /* false: errno says why */
const char *fs_folder_next(struct fs_folder *f); /* good until the next call; NULL: no more */
void fs_folder_close(struct fs_folder *f);       /* idempotent */

#endif
