/* SPDX-License-Identifier: Apache-2.0
 *
 * The system's calls on files, and those that a test wants to fail: PLAIT_FAIL_FS, read at each
 * call, so that it works in whatever process a test starts.
 *
 *     N:ERRNO              the N-th call of the process; N+: that one and all later ones
 *     CALL@PART:N:ERRNO    the N-th CALL (open, write, ...) on a file whose path has PART in it
 *     N:KILL               the process dies there, as by kill -9
 *     N:TERM               the process is told to stop there, and the call is made
 *     half@PART:N:ERRNO    the N-th write there takes half of its bytes, all later ones fail: a
 *                          disk that is full
 *     full@PART:N:ERRNO    the same, and from then on no file of the process can be written
 */
#include "base/fs.h"

#include "base/num.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, KILL = -1, TERM = -2 };

struct wish {
    char call[16], part[PATH_BYTES]; /* call "": every one */
    long n;
    bool onwards;
    int code;
};

static bool read_wish(const char *word, struct wish *w)
{
    static const struct { const char *name; int code; } known[] = {
        {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EIO", EIO},       {"EINTR", EINTR},
        {"EACCES", EACCES}, {"EROFS", EROFS},   {"EMFILE", EMFILE}, {"EFBIG", EFBIG},
        {"EOPNOTSUPP", EOPNOTSUPP}, {"EINVAL", EINVAL}, {"ENOSYS", ENOSYS}, {"EPERM", EPERM},
        {"KILL", KILL},     {"TERM", TERM},
    };
    char *end;
    int at = 0;
    *w = (struct wish){.n = 0};
    if (sscanf(word, "%15[a-z_]@%4095[^:]:%n", w->call, w->part, &at) == 1)
        return false;
    w->n = strtol(word + at, &end, 10);
    w->onwards = *end == '+';
    end += w->onwards;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (*end == ':' && strcmp(end + 1, known[i].name) == 0)
            w->code = known[i].code;
    return w->n >= 1 && w->code != 0;
}

static bool is_call(const struct wish *w, const char *call)
{
    return strcmp(w->call, call) == 0;
}

static bool is_meant(const struct wish *w, const char *call, const char *path, int fd)
{
    char name[64], open_path[PATH_BYTES];
    if (is_call(w, ""))
        return true;
    bool halves = is_call(w, "half") || is_call(w, "full");
    if (!is_call(w, call) && !(halves && strcmp(call, "write") == 0))
        return false;
    if (!path) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(name, open_path, PATH_BYTES - 1);
        open_path[n > 0 ? n : 0] = '\0';
        path = open_path;
    }
    return strstr(path, w->part) != NULL;
}

/* Does a test want this call to fail? Then errno is set. A word that cannot be read fails every
 * call with EINVAL, so that a test with a slip in it does not pass by accident. *half: it is to
 * take half of what it is given; NULL: it cannot. */
static bool must_fail(const char *call, const char *path, int fd, bool *half)
{
    static atomic_long calls;
    static atomic_bool filled; /* the disk, for calls that take room */
    const char *word = getenv("PLAIT_FAIL_FS");
    struct wish w;
    if (!word)
        return false;
    if (!read_wish(word, &w)) {
        errno = EINVAL;
        return true;
    }
    errno = w.code;
    bool takes_room = strcmp(call, "write") == 0 || strcmp(call, "keep") == 0;
    if (atomic_load(&filled) && is_call(&w, "full") && takes_room)
        return true;
    if (!is_meant(&w, call, path, fd))
        return false;
    long here = atomic_fetch_add(&calls, 1) + 1;
    bool halves = is_call(&w, "half") || is_call(&w, "full");
    bool now = here == w.n || (here > w.n && w.onwards);
    if (halves && half)
        *half = here == w.n;
    if (here == w.n && is_call(&w, "full"))
        atomic_store(&filled, true);
    if (now && w.code < 0)
        (void)kill(getpid(), w.code == KILL ? SIGKILL : SIGTERM);
    errno = w.code;
    return w.code != TERM && (halves ? here > w.n : now);
}

/* A call on a file of that name, or of that descriptor, which a test may want to fail. */
#define CALL(type, name, params, called, path, fd, call)                    \
    static type name params                                                 \
    {                                                                       \
        return must_fail(called, path, fd, NULL) ? (type)-1 : (type)(call); \
    }

CALL(int, system_open, (const char *path, int flags, unsigned mode), "open", path, -1,
     open(path, flags, (mode_t)mode))
CALL(int, system_fsync, (int fd), "fsync", NULL, fd, fsync(fd))
CALL(int, system_rename, (const char *from, const char *to), "rename", to, -1, rename(from, to))
CALL(int, system_link, (const char *from, const char *to), "link", to, -1, link(from, to))
CALL(int, system_unlink, (const char *path), "unlink", path, -1, unlink(path))
CALL(int, system_mkdir, (const char *path, unsigned mode), "mkdir", path, -1,
     mkdir(path, (mode_t)mode))
CALL(int64_t, system_pread, (int fd, void *p, int64_t n, int64_t at), "pread", NULL, fd,
     pread(fd, p, (size_t)n, (off_t)at))
/* Not posix_fallocate, which writes into every block where the file system cannot. */
CALL(int, system_keep, (int fd, int64_t n), "keep", NULL, fd, fallocate(fd, 0, 0, (off_t)n))
CALL(int, system_cut, (int fd, int64_t n), "cut", NULL, fd, ftruncate(fd, (off_t)n))

static int system_rename_new(const char *from, const char *to)
{
    return must_fail("rename", to, -1, NULL)
               ? -1 : renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
}

static int64_t system_write(int fd, const void *p, int64_t n, int64_t at)
{
    bool half = false;
    if (must_fail("write", NULL, fd, &half))
        return -1;
    size_t bytes = (size_t)(half && n > 1 ? n / 2 : n);
    return at < 0 ? write(fd, p, bytes) : pwrite(fd, p, bytes, (off_t)at);
}

/* A failing close still closes, as the system's does. */
static int system_close(int fd)
{
    bool fail = must_fail("close", NULL, fd, NULL);
    int code = errno, done = close(fd);
    if (!fail)
        return done;
    errno = code;
    return -1;
}

/* What the folder's file system gives to everybody; of some it is not known. */
static int64_t system_space(const char *dir)
{
    struct statvfs s;
    if (statvfs(dir, &s) != 0 || s.f_blocks == 0)
        return -1;
    return num_min((int64_t)s.f_bavail, INT64_MAX / (int64_t)s.f_frsize) * (int64_t)s.f_frsize;
}

static const struct fs_ops system_ops = {
    system_open, system_write, system_fsync, system_close, system_rename, system_rename_new,
    system_link, system_unlink, system_mkdir, system_pread, system_space, system_keep,
    system_cut};
const struct fs_ops *fs_ops = &system_ops;
