/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that a test may want to fail go through fs_ops; those that only look go to the system.
 *
 * A call may take minutes (a full network disk, a quota under repair), and nothing in here can end
 * it; but whoever has asked is told that this thread is in one, and with which file. And what the
 * system says of a call that failed, with what its user may do then.
 */
#include "base/fs_sys.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

static _Thread_local struct fs_watch watch; /* all zero: nobody asked */
static _Thread_local int depth;

struct fs_watch fs_watch_set(const struct fs_watch *w)
{
    struct fs_watch before = watch;
    watch = w ? *w : (struct fs_watch){0};
    return before;
}

struct fs_watch fs_watch_get(void)
{
    return watch;
}

void fs_call_begin(const char *path)
{
    if (depth++ == 0 && watch.begin)
        watch.begin(watch.arg, path);
}

/* The caller looks at errno behind it. */
void fs_call_end(void)
{
    int code = errno;
    if (--depth == 0 && watch.end)
        watch.end(watch.arg);
    errno = code;
}

/* fs_sys.h: a call, again while a signal interrupts it, of which whoever watches is told. */
#define CALL(type, name, params, path, call)    \
    type name params                            \
    {                                           \
        type done;                              \
        fs_call_begin(path);                    \
        do                                      \
            done = call;                        \
        while (done < 0 && errno == EINTR);     \
        fs_call_end();                          \
        return done;                            \
    }

CALL(int, fs_sys_open, (const char *path, int flags), path,
     fs_ops->open(path, flags | O_CLOEXEC, 0666))
CALL(int64_t, fs_sys_write, (int fd, const char *path, const void *p, int64_t n, int64_t at), path,
     fs_ops->write(fd, p, n, at))
CALL(int64_t, fs_sys_pread, (int fd, const char *path, void *p, int64_t n, int64_t at), path,
     fs_ops->pread(fd, p, n, at))
CALL(int, fs_sys_fsync, (int fd, const char *path), path, fs_ops->fsync(fd))
CALL(int, fs_sys_keep, (int fd, const char *path, int64_t n), path, fs_ops->keep(fd, n))
CALL(int, fs_sys_cut, (int fd, const char *path, int64_t n), path, fs_ops->cut(fd, n))
CALL(int64_t, fs_sys_end, (int fd, const char *path), path, (int64_t)lseek(fd, 0, SEEK_END))
CALL(int, fs_sys_lock, (int fd, const char *path, int command, struct flock *l), path,
     fcntl(fd, command, l))
CALL(int, fs_sys_rename, (const char *from, const char *to), to, fs_ops->rename(from, to))
CALL(int, fs_sys_rename_new, (const char *from, const char *to), to, fs_ops->rename_new(from, to))
CALL(int, fs_sys_link, (const char *from, const char *to), to, fs_ops->link(from, to))
CALL(int, fs_sys_unlink, (const char *path), path, fs_ops->unlink(path))
CALL(int, fs_sys_mkdir, (const char *path), path, fs_ops->mkdir(path, 0777))
CALL(int, fs_sys_rmdir, (const char *path), path, rmdir(path))
CALL(int, fs_sys_stat, (const char *path, struct stat *out), path, stat(path, out))
CALL(int, fs_sys_lstat, (const char *path, struct stat *out), path, lstat(path, out))
CALL(int, fs_sys_fstat, (int fd, const char *path, struct stat *out), path, fstat(fd, out))
CALL(int, fs_sys_access, (const char *path, int mode), path, access(path, mode))
static CALL(int, file_system, (const char *path, struct statfs *out), path, statfs(path, out))

int fs_sys_close(int fd, const char *path)
{
    fs_call_begin(path);
    int done = fs_ops->close(fd);
    fs_call_end();
    return done;
}

void *fs_sys_map(int fd, const char *path, int64_t n)
{
    fs_call_begin(path);
    void *p = mmap(NULL, (size_t)n, PROT_READ, MAP_PRIVATE, fd, 0);
    fs_call_end();
    return p;
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
    return file_system(path, &s) == 0 ? (int64_t)(unsigned long)s.f_type : -1;
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

const char *fs_reason(int code, char buf[FS_REASON])
{
    static const struct { int code; const char *way; } ways[] = {
        {ENOSPC, "free some space or use another folder"},
        {EDQUOT, "free some space or use another folder"},
        {EACCES, "check the permissions"}, {EPERM, "check the permissions"},
        {EROFS, "mount it for writing or use another folder"}, {ENOENT, "check the path"},
        {ENOTDIR, "a part of the path is a file; name another"},
        {EISDIR, "name a file"}, {EEXIST, "use another name"},
        {ELOOP, "a link in the path leads back to itself; remove it"},
        {ENAMETOOLONG, "use a shorter one"},
        {EFBIG, "raise the limit on files (ulimit -f) or use another file system"},
        {EMFILE, "raise the limit on open files (ulimit -n)"},
        {ENFILE, "the machine has its most open files; close some programs"},
        {EIO, "the disk or the way to it fails; use another folder"},
        {ESTALE, "the server no longer knows it; mount it again"},
        {ENOTCONN, "mount it again"}, {EHOSTDOWN, "wait for the server or use another folder"},
        {ETIMEDOUT, "wait for the server or use another folder"},
        {ENXIO, "name a regular file"}, {ENODEV, "name a regular file"},
        {EBUSY, "end what uses it or use another name"},
        {ETXTBSY, "end the program that runs from it"},
        {EINVAL, "this file system may not know the call; use another"},
        {EOPNOTSUPP, "this file system does not know the call; use another"},
        {ENOSYS, "this system does not know the call; use another file system"},
        {EXDEV, "use a folder on one file system"}, {EMLINK, "use another folder"},
        {ENOMEM, "end other programs or use a machine with more memory"}};
    char made[96];
    const char *s = code == 0 ? "the system gives no reason" : strerror_r(code, made, sizeof made);
    const char *way = NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && !way; i++)
        way = ways[i].code == code ? ways[i].way : NULL;
    snprintf(buf, FS_REASON, "%s%s%s", s, way ? "; " : "", way ? way : "");
    if (buf[0] >= 'A' && buf[0] <= 'Z')
        buf[0] = (char)(buf[0] - 'A' + 'a');
    return buf;
}
