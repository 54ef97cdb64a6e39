/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that a test may want to fail go through fs_ops; those that only look go to the system.
 */
#include "base/fs_sys.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#define TOLD(path, call)                       \
    do {                                       \
        fs_call_begin(path);                   \
        do                                     \
            done = call;                       \
        while (done < 0 && errno == EINTR);    \
        fs_call_end();                         \
    } while (0)

int fs_sys_open(const char *path, int flags)
{
    int done;
    TOLD(path, fs_ops->open(path, flags | O_CLOEXEC, 0666));
    return done;
}

int fs_sys_close(int fd, const char *path)
{
    fs_call_begin(path);
    int done = fs_ops->close(fd);
    fs_call_end();
    return done;
}

int64_t fs_sys_write(int fd, const char *path, const void *p, int64_t n, int64_t at)
{
    int64_t done;
    TOLD(path, fs_ops->write(fd, p, n, at));
    return done;
}

int64_t fs_sys_pread(int fd, const char *path, void *p, int64_t n, int64_t at)
{
    int64_t done;
    TOLD(path, fs_ops->pread(fd, p, n, at));
    return done;
}

int fs_sys_fsync(int fd, const char *path)
{
    int done;
    TOLD(path, fs_ops->fsync(fd));
    return done;
}

int fs_sys_keep(int fd, const char *path, int64_t n)
{
    int done;
    TOLD(path, fs_ops->keep(fd, n));
    return done;
}

int fs_sys_cut(int fd, const char *path, int64_t n)
{
    int done;
    TOLD(path, fs_ops->cut(fd, n));
    return done;
}

int64_t fs_sys_end(int fd, const char *path)
{
    int64_t done;
    TOLD(path, (int64_t)lseek(fd, 0, SEEK_END));
    return done;
}

void *fs_sys_map(int fd, const char *path, int64_t n)
{
    fs_call_begin(path);
    void *p = mmap(NULL, (size_t)n, PROT_READ, MAP_PRIVATE, fd, 0);
    fs_call_end();
    return p;
}

int fs_sys_lock(int fd, const char *path, int command, struct flock *l)
{
    int done;
    TOLD(path, fcntl(fd, command, l));
    return done;
}

int fs_sys_rename(const char *from, const char *to)
{
    int done;
    TOLD(to, fs_ops->rename(from, to));
    return done;
}

int fs_sys_rename_new(const char *from, const char *to)
{
    int done;
    TOLD(to, fs_ops->rename_new(from, to));
    return done;
}

int fs_sys_link(const char *from, const char *to)
{
    int done;
    TOLD(to, fs_ops->link(from, to));
    return done;
}

int fs_sys_unlink(const char *path)
{
    int done;
    TOLD(path, fs_ops->unlink(path));
    return done;
}

int fs_sys_mkdir(const char *path)
{
    int done;
    TOLD(path, fs_ops->mkdir(path, 0777));
    return done;
}

int fs_sys_rmdir(const char *path)
{
    int done;
    TOLD(path, rmdir(path));
    return done;
}

int fs_sys_stat(const char *path, struct stat *out)
{
    int done;
    TOLD(path, stat(path, out));
    return done;
}

int fs_sys_lstat(const char *path, struct stat *out)
{
    int done;
    TOLD(path, lstat(path, out));
    return done;
}

int fs_sys_fstat(int fd, const char *path, struct stat *out)
{
    int done;
    TOLD(path, fstat(fd, out));
    return done;
}

int fs_sys_access(const char *path, int mode)
{
    int done;
    TOLD(path, access(path, mode));
    return done;
}

int64_t fs_sys_space(const char *dir)
{
    fs_call_begin(dir);
    int64_t bytes = fs_ops->space(dir);
    fs_call_end();
    return bytes;
}

int64_t fs_sys_magic(const char *path)
{
    struct statfs s;
    int done;
    TOLD(path, statfs(path, &s));
    return done == 0 ? (int64_t)(unsigned long)s.f_type : -1;
}

bool fs_folder_open(struct fs_folder *f, const char *path)
{
    fs_call_begin(path);
    *f = (struct fs_folder){.open = opendir(path), .path = path};
    fs_call_end();
    return f->open;
}

const char *fs_folder_next(struct fs_folder *f)
{
    const struct dirent *e;
    if (!f->open)
        return NULL;
    fs_call_begin(f->path);
    do
        e = readdir(f->open);
    while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
    fs_call_end();
    return e ? e->d_name : NULL;
}

void fs_folder_close(struct fs_folder *f)
{
    if (!f->open)
        return;
    fs_call_begin(f->path);
    closedir(f->open);
    fs_call_end();
    f->open = NULL;
}
