/* SPDX-License-Identifier: Apache-2.0
 *
 * Commit or nothing: bytes go to a temporary name in the target's own folder (rename does not cross
 * file systems), and the target's name changes only after they are on the disk:
 *
 *     open temp -> write ... -> fsync temp -> close -> rename to target -> fsync folder
 *
 * A crash before the rename leaves the old file and a temporary that nobody reads; a crash after
 * it leaves the new one. The folder is flushed because the rename is an entry of the folder
 * (Pillai et al., "All file systems are not created equal", OSDI 2014).
 *
 * Short writes are continued; interrupted calls are repeated underneath (fs_sys.h).
 */
#include "base/fs_sys.h"

#include "base/mem.h"
#include "base/num.h"
#include "base/text.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20, CALL_MAX = 1 << 30 };

/* ---- calls ---- */

/* The bytes that were taken: n, or fewer and errno. A write that takes nothing and says nothing
 * counts as a full disk. at -1: behind what was written. */
static int64_t write_all(int fd, const char *path, const char *p, int64_t n, int64_t at)
{
    int64_t sum = 0;
    while (sum < n) {
        int64_t done = fs_sys_write(fd, path, p + sum, num_min(n - sum, CALL_MAX),
                                    at < 0 ? at : at + sum);
        if (done == 0)
            errno = ENOSPC;
        if (done <= 0)
            break;
        sum += done;
    }
    return sum;
}

/* ---- a name ----
 *
 * What may replace nothing gets its name by the kernel's own rename that refuses a name that is
 * taken, so there is no moment in which somebody's file could come between a look and the rename.
 * File systems without that (NFS, 9p) have link(2), which refuses it too. Where there are no links
 * either (FAT, some of FUSE) a look stands before the rename, and what comes between the two is
 * replaced: nothing there could do better. */

/* The answer to a link may be lost on its way, and the repeated call find its own work (NFS). */
static int link_and_unlink(const char *temp, const char *path)
{
    int done = fs_sys_link(temp, path), code = done == 0 ? 0 : errno;
    if (code == EPERM || code == ENOSYS || code == EOPNOTSUPP || code == EMLINK) {
        if (!fs_named(path))
            return fs_sys_rename(temp, path);
        code = EEXIST;
    } else if (code == 0 || (code == EEXIST && fs_same_link(temp, path))) {
        (void)fs_sys_unlink(temp);
        return 0;
    }
    errno = code;
    return -1;
}

int fs_place(const char *temp, const char *path, bool fresh)
{
    if (!fresh)
        return fs_sys_rename(temp, path);
    int done = fs_sys_rename_new(temp, path);
    bool known = done == 0 || (errno != EINVAL && errno != ENOSYS);
    return known ? done : link_and_unlink(temp, path);
}

/* ---- whole files ---- */

void fs_abandon(struct fs_file *f)
{
    bool own = f->temp.name && (f->fd < 0 || fs_is_named(f->fd, f->temp.name));
    if (f->fd >= 0)
        (void)fs_sys_close(f->fd, f->path);
    if (own)
        (void)fs_sys_unlink(f->temp.name);
    fs_temp_drop(&f->temp);
    mem_free(f->path);
    mem_free(f->buffer);
    *f = (struct fs_file){.fd = -1, .placed = f->placed};
}

/* Says why; errno holds the reason. */
static enum err failed(const struct fs_file *f, const char *what)
{
    char why[FS_REASON];
    fs_reason(errno, why);
    long long written = atomic_load(&f->written);
    FAIL(ERR_STORAGE, "storage: cannot %s %s after %lld byte%s: %s", what, f->path, written,
         text_plural(written, "s"), why);
}

/* The same, and gives the file up. */
static enum err lost(struct fs_file *f, const char *what)
{
    enum err err = failed(f, what);
    fs_abandon(f);
    return err;
}

/* As lost, of a whole file that cannot have its name. */
static enum err left(struct fs_file *f, const char *why)
{
    enum err err = ERR(ERR_STORAGE, "storage: cannot put %s in place: %s; it is whole in %s, move "
                                    "it from there", f->path, why, f->temp.name);
    fs_temp_drop(&f->temp);
    fs_abandon(f);
    return err;
}

static int open_temp(const char *name)
{
    return fs_sys_open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
}

enum err fs_create_new(struct fs_file *f, const char *path)
{
    enum err err;
    *f = (struct fs_file){.fd = -1, .fresh = true};
    TRY_OR(out_file, mem_string(path, &f->path));
    TRY_OR(out_file, mem_new(BUFFER_BYTES, 1, "a file buffer", &f->buffer));
    TRY_OR(out_file, fs_temp_make(&f->temp, path, "create a file", open_temp, &f->fd));
    return ERR_OK;
out_file:
    fs_abandon(f);
    return err;
}

/* What is put in place replaces what was there: a device's entry would be gone. */
static enum err check_kind(const char *path)
{
    struct stat st;
    bool there = fs_sys_stat(path, &st) == 0;
    if (there && S_ISDIR(st.st_mode))
        FAIL(ERR_STORAGE, "storage: cannot write %s: it is a folder; give the name of a file",
             path);
    if (there && !S_ISREG(st.st_mode))
        FAIL(ERR_STORAGE,
             "storage: cannot write %s: it is a device, pipe or socket; give the name of a regular "
             "file", path);
    return ERR_OK;
}

enum err fs_create(struct fs_file *f, const char *path)
{
    *f = (struct fs_file){.fd = -1};
    TRY(check_kind(path));
    TRY(fs_create_new(f, path));
    f->fresh = false;
    return ERR_OK;
}

enum err fs_check_place(const char *path)
{
    struct stat st;
    char dir[FS_PATH], why[FS_REASON];
    TRY(check_kind(path));
    int code = fs_sys_stat(fs_parent(dir, path), &st) == 0 ? 0 : errno;
    if (code == ENOENT)
        FAIL(ERR_STORAGE, "storage: cannot write %s: there is no folder %s; make it first", path,
             dir);
    if (code == ENOTDIR || (code == 0 && !S_ISDIR(st.st_mode)))
        FAIL(ERR_STORAGE, "storage: cannot write %s: %s is no folder; name another output", path,
             dir);
    if (code || fs_sys_access(dir, W_OK | X_OK) != 0)
        FAIL(ERR_STORAGE, "storage: cannot write %s: %s", path,
             fs_reason(code ? code : errno, why));
    return ERR_OK;
}

enum err fs_keep_room(struct fs_file *f, int64_t n)
{
    char why[FS_REASON], room[32];
    ENSURE(n > 0 && f->fd >= 0);
    if (fs_sys_keep(f->fd, f->path, n) == 0) {
        f->kept = n;
        return ERR_OK;
    }
    if (errno == EOPNOTSUPP || errno == ENOSYS)
        return ERR_OK;
    fs_reason(errno, why);
    enum err err = ERR(ERR_STORAGE, "storage: cannot keep the %s that %s takes: %s",
                       text_bytes(n, room), f->path, why);
    fs_abandon(f);
    return err;
}

bool fs_is_there(const struct fs_file *f)
{
    return f->temp.name && fs_is_named(f->fd, f->temp.name);
}

static enum err put_bytes(struct fs_file *f, const char *p, int64_t n)
{
    int64_t done = write_all(f->fd, f->path, p, n, -1);
    atomic_fetch_add(&f->written, done);
    return done < n ? lost(f, "write") : ERR_OK;
}

enum err fs_write_at(struct fs_file *f, int64_t at, const void *p, int64_t n)
{
    ENSURE(n >= 0 && at >= 0 && f->fd >= 0);
    int64_t done = write_all(f->fd, f->path, p, n, at);
    atomic_fetch_add(&f->written, done);
    return done < n ? failed(f, "write") : ERR_OK;
}

static enum err flush(struct fs_file *f)
{
    TRY(put_bytes(f, f->buffer, f->used));
    f->used = 0;
    return ERR_OK;
}

enum err fs_write(struct fs_file *f, const void *p, int64_t n)
{
    ENSURE(n >= 0 && f->fd >= 0);
    if (n > BUFFER_BYTES - f->used)
        TRY(flush(f));
    if (n >= BUFFER_BYTES) /* large pieces need no copy */
        return put_bytes(f, p, n);
    if (n > 0)
        memcpy(f->buffer + f->used, p, (size_t)n);
    f->used += n;
    return ERR_OK;
}

/* Flush a file, by whomever it was written, or a folder, so that its entries survive a power cut.
 * File systems that cannot flush a folder say EINVAL; there is nothing more to be done on them. */
static int flush_path(const char *path, int flags)
{
    int fd = fs_sys_open(path, O_RDONLY | flags);
    if (fd < 0)
        return -1;
    int done = fs_sys_fsync(fd, path), code = errno;
    (void)fs_sys_close(fd, path);
    errno = code;
    return done != 0 && code != EINVAL ? -1 : 0;
}

enum err fs_sync_dir(const char *dir)
{
    char why[FS_REASON];
    if (flush_path(dir, O_DIRECTORY) != 0)
        FAIL(ERR_STORAGE, "storage: cannot flush the folder %s: %s", dir, fs_reason(errno, why));
    return ERR_OK;
}

enum err fs_flush(const char *path)
{
    char why[FS_REASON];
    if (flush_path(path, O_NONBLOCK) != 0)
        FAIL(ERR_STORAGE, "storage: cannot flush %s: %s", path, fs_reason(errno, why));
    return ERR_OK;
}

/* All of it on the disk, under its temporary name. */
static enum err finish(struct fs_file *f)
{
    ENSURE(f->fd >= 0 && f->kept <= atomic_load(&f->written) + f->used);
    TRY(flush(f));
    if (fs_sys_fsync(f->fd, f->path) != 0)
        return lost(f, "flush");
    int fd = f->fd;
    f->fd = -1;
    if (fs_sys_close(fd, f->path) != 0 && errno != EINTR)
        return lost(f, "close");
    return ERR_OK;
}

enum err fs_leave(struct fs_file *f, const char *why)
{
    TRY(finish(f));
    return left(f, why);
}

enum err fs_commit(struct fs_file *f)
{
    char why[FS_REASON], around[FS_PATH];
    TRY(finish(f));
    if (fs_place(f->temp.name, f->path, f->fresh) != 0)
        return f->dear ? left(f, fs_reason(errno, why)) : lost(f, "put in place");
    f->placed = true;
    fs_temp_drop(&f->temp);
    enum err err = ERR_OK;
    if (flush_path(fs_parent(around, f->path), O_DIRECTORY) != 0)
        err = ERR(ERR_STORAGE, "storage: %s is whole and in place, but its folder cannot be "
                               "flushed, so a power cut may still lose it: %s", f->path,
                  fs_reason(errno, why));
    fs_abandon(f);
    return err;
}

enum err fs_put(const char *path, const void *p, int64_t n)
{
    struct fs_file f;
    TRY(fs_create(&f, path));
    enum err err = fs_write(&f, p, n);
    if (err == ERR_OK)
        err = fs_commit(&f);
    fs_abandon(&f);
    return err;
}

/* ---- log files ---- */

static enum err open_log(const char *path, int more, int *fd)
{
    char why[FS_REASON];
    struct stat st;
    /* O_NONBLOCK: a FIFO without a reader fails instead of waiting; files do not care. */
    int opened = fs_sys_open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | more);
    if (opened < 0)
        FAIL(ERR_STORAGE, "storage: cannot %s %s: %s", more ? "create" : "append to", path,
             fs_reason(errno, why));
    if (fs_sys_fstat(opened, path, &st) != 0 || !S_ISREG(st.st_mode)) {
        (void)fs_sys_close(opened, path);
        FAIL(ERR_STORAGE, "storage: cannot append to %s: it is not a regular file", path);
    }
    *fd = opened;
    return ERR_OK;
}

enum err fs_log_open(const char *path, int *fd)
{
    char last = '\n';
    TRY(open_log(path, 0, fd));
    int read = fs_sys_open(path, O_RDONLY | O_NONBLOCK); /* is its last line unfinished? */
    int64_t n = read >= 0 ? fs_sys_end(read, path) : 0;
    bool unfinished = n > 0 && fs_sys_pread(read, path, &last, 1, n - 1) == 1 && last != '\n';
    if (read >= 0)
        (void)fs_sys_close(read, path);
    if (unfinished && fs_append(*fd, path, "\n", 1) != ERR_OK) {
        (void)fs_sys_close(*fd, path);
        *fd = -1;
        return ERR_STORAGE;
    }
    return ERR_OK;
}

enum err fs_log_make(const char *path, int *fd)
{
    return open_log(path, O_EXCL, fd);
}

enum err fs_append(int fd, const char *path, const char *p, int64_t n)
{
    char why[FS_REASON];
    ENSURE(n > 0);
    int64_t begin = fs_sys_end(fd, path);
    if (write_all(fd, path, p, n, -1) == n)
        return ERR_OK;
    int code = errno;
    int64_t end = fs_sys_end(fd, path);
    bool cut = begin >= 0 && end > begin && end - begin < n; /* more is of another writer */
    if (cut && fs_sys_cut(fd, path, begin) != 0)
        FAIL(ERR_STORAGE, "storage: cannot append to %s, and what it took from byte %lld on stays "
                          "there: %s", path, (long long)begin, fs_reason(code, why));
    FAIL(ERR_STORAGE, "storage: cannot append to %s: %s", path, fs_reason(code, why));
}

enum err fs_log_close(int fd, const char *path)
{
    char why[FS_REASON];
    if (fd >= 0 && fs_sys_close(fd, path) != 0 && errno != EINTR)
        FAIL(ERR_STORAGE, "storage: cannot close %s, and its last lines may be missing: %s", path,
             fs_reason(errno, why));
    return ERR_OK;
}
