/* SPDX-License-Identifier: Apache-2.0
 *
 * A slow disk, in front of any program (LD_PRELOAD): the calls named by SLOW_CALL (write, fsync,
 * rename, open, pread) on files whose path contains SLOW_FILE sleep SLOW_S seconds first; with
 * SLOW_N only the n-th of them. By tests/fault/slow_disk.sh.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
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

ssize_t write(int fd, const void *p, size_t n)
{
    static ssize_t (*next)(int, const void *, size_t);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "write");
    slow_fd("write", fd);
    return next(fd, p, n);
}

ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    static ssize_t (*next)(int, void *, size_t, off_t);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pread");
    slow_fd("pread", fd);
    return next(fd, p, n, at);
}

int fsync(int fd)
{
    static int (*next)(int);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fsync");
    slow_fd("fsync", fd);
    return next(fd);
}

int rename(const char *from, const char *to)
{
    static int (*next)(const char *, const char *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "rename");
    slow("rename", to);
    return next(from, to);
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
