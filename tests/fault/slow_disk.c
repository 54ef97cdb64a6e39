/* SPDX-License-Identifier: Apache-2.0
 *
 * A slow disk, in front of any program (LD_PRELOAD): the calls named by SLOW_CALL (those below) on
 * files whose path contains SLOW_FILE sleep SLOW_S seconds first; with SLOW_N only the n-th of
 * them. By tests/fault/slow_disk.sh.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* The build hides what is not marked. */
#pragma GCC visibility push(default)

static atomic_long calls;

static void slow(const char *call, const char *path)
{
    const char *on = getenv("SLOW_CALL"), *file = getenv("SLOW_FILE"), *s = getenv("SLOW_S");
    const char *n = getenv("SLOW_N");
    if (!on || !file || !s || strcmp(call, on) != 0 || !strstr(path, file))
        return;
    if (n && atomic_fetch_add(&calls, 1) + 1 != strtol(n, NULL, 10))
        return;
    double t = strtod(s, NULL);
    nanosleep(&(struct timespec){(time_t)t, (long)((t - (double)(time_t)t) * 1e9)}, NULL);
}

static void slow_fd(const char *call, int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    slow(call, path);
}

/* A call of that name and these arguments: what it does first, and what the next one is given. */
#define CALL(result, name, args, first, given)         \
    result name args                                   \
    {                                                  \
        static result(*next) args;                     \
        if (!next)                                     \
            *(void **)&next = dlsym(RTLD_NEXT, #name); \
        first;                                         \
        return next given;                             \
    }

CALL(ssize_t, write, (int fd, const void *p, size_t n), slow_fd("write", fd), (fd, p, n))
CALL(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at), slow_fd("pwrite", fd),
     (fd, p, n, at))
CALL(ssize_t, pread, (int fd, void *p, size_t n, off_t at), slow_fd("pread", fd), (fd, p, n, at))
CALL(int, fsync, (int fd), slow_fd("fsync", fd), (fd))
CALL(int, close, (int fd), slow_fd("close", fd), (fd))
CALL(int, fallocate, (int fd, int how, off_t at, off_t n), slow_fd("fallocate", fd),
     (fd, how, at, n))
CALL(int, ftruncate, (int fd, off_t n), slow_fd("ftruncate", fd), (fd, n))
CALL(off_t, lseek, (int fd, off_t n, int from), slow_fd("lseek", fd), (fd, n, from))
CALL(int, fstat, (int fd, struct stat *st), slow_fd("fstat", fd), (fd, st))
CALL(void *, mmap, (void *p, size_t n, int protect, int how, int fd, off_t at),
     if (fd >= 0) slow_fd("mmap", fd), (p, n, protect, how, fd, at))
CALL(int, stat, (const char *path, struct stat *st), slow("stat", path), (path, st))
CALL(int, lstat, (const char *path, struct stat *st), slow("lstat", path), (path, st))
CALL(int, statfs, (const char *path, struct statfs *st), slow("statfs", path), (path, st))
CALL(int, statvfs, (const char *path, struct statvfs *st), slow("statvfs", path), (path, st))
CALL(int, access, (const char *path, int mode), slow("access", path), (path, mode))
CALL(DIR *, opendir, (const char *path), slow("opendir", path), (path))
CALL(int, mkdir, (const char *path, mode_t mode), slow("mkdir", path), (path, mode))
CALL(int, rmdir, (const char *path), slow("rmdir", path), (path))
CALL(int, unlink, (const char *path), slow("unlink", path), (path))
CALL(int, rename, (const char *from, const char *to), slow("rename", to), (from, to))
CALL(int, renameat2, (int dir, const char *from, int other, const char *to, unsigned how),
     slow("rename", to), (dir, from, other, to, how))
CALL(int, link, (const char *from, const char *to), slow("link", to), (from, to))

struct dirent *readdir(DIR *d)
{
    static struct dirent *(*next)(DIR *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "readdir");
    slow_fd("readdir", dirfd(d));
    return next(d);
}

int fcntl(int fd, int command, ...)
{
    static int (*next)(int, int, ...);
    va_list ap;
    va_start(ap, command);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fcntl");
    if (command == F_OFD_SETLK || command == F_OFD_GETLK)
        slow_fd("fcntl", fd);
    return next(fd, command, arg);
}

int open(const char *path, int flags, ...)
{
    static int (*next)(const char *, int, ...);
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "open");
    slow("open", path);
    return next(path, flags, mode);
}
