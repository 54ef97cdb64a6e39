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

enum { BUFFER_BYTES = 1 << 20, CALL_MAX = 1 << 30, TEMP_TRIES = 100 };

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

/* ---- whole files ---- */

void fs_abandon(struct fs_file *f)
{
    bool own = f->temp && (f->fd < 0 || fs_is_named(f->fd, f->temp));
    if (f->fd >= 0)
        (void)fs_sys_close(f->fd, f->path);
    if (own)
        (void)fs_sys_unlink(f->temp);
    fs_temp_drop(f->noted - 1);
    mem_free(f->path);
    mem_free(f->temp);
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
    enum err err = err_set(ERR_STORAGE, __FILE__, __LINE__, "storage: cannot put %s in place: %s; "
                           "it is whole in %s, move it from there", f->path, why, f->temp);
    mem_free(f->temp);
    f->temp = NULL;
    fs_abandon(f);
    return err;
}

/* The first free temporary name beside the target; a crashed process may have left some. */
static enum err open_temp(struct fs_file *f)
{
    size_t room = strlen(f->path) + 48;
    char why[FS_REASON];
    TRY(mem_new((int64_t)room, 1, "a file name", &f->temp));
    for (int i = 0; i < TEMP_TRIES; i++) {
        snprintf(f->temp, room, "%s.tmp.%ld.%d", f->path, (long)getpid(), i);
        f->noted = 1 + fs_temp_note(f->temp); /* one of that name would be a dead process's */
        f->fd = fs_sys_open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
        if (f->fd >= 0)
            return ERR_OK;
        fs_temp_drop(f->noted - 1);
        f->noted = 0;
        if (errno != EEXIST)
            break;
    }
    fs_reason(errno, why);
    mem_free(f->temp); /* not ours: it must not be unlinked */
    f->temp = NULL;
    FAIL(ERR_STORAGE, "storage: cannot create a file beside %s: %s", f->path, why);
}

enum err fs_create_new(struct fs_file *f, const char *path)
{
    enum err err;
    *f = (struct fs_file){.fd = -1, .fresh = true};
    TRY_OR(out_file, mem_string(path, &f->path));
    TRY_OR(out_file, mem_new(BUFFER_BYTES, 1, "a file buffer", &f->buffer));
    TRY_OR(out_file, open_temp(f));
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
    enum err err = err_set(ERR_STORAGE, __FILE__, __LINE__, "storage: cannot keep the %s that %s "
                           "takes: %s", text_bytes(n, room), f->path, why);
    fs_abandon(f);
    return err;
}

bool fs_is_there(const struct fs_file *f)
{
    return f->temp && fs_is_named(f->fd, f->temp);
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

/* Flush a folder, so that its entries survive a power cut. File systems that cannot say EINVAL;
 * there is nothing more to be done on them. */
static int flush_dir(const char *dir)
{
    int fd = fs_sys_open(dir, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return -1;
    int done = fs_sys_fsync(fd, dir), code = errno;
    (void)fs_sys_close(fd, dir);
    errno = code;
    return done != 0 && code != EINVAL ? -1 : 0;
}

/* The folder that holds `path`. */
static int flush_folder(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(folder, path, n);
    folder[n] = '\0';
    return flush_dir(!slash ? "." : n == 0 ? "/" : folder);
}

enum err fs_sync_dir(const char *dir)
{
    char why[FS_REASON];
    if (flush_dir(dir) != 0)
        FAIL(ERR_STORAGE, "storage: cannot flush the folder %s: %s", dir, fs_reason(errno, why));
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
    char why[FS_REASON];
    TRY(finish(f));
    if (fs_place(f->temp, f->path, f->fresh) != 0)
        return f->dear ? left(f, fs_reason(errno, why)) : lost(f, "put in place");
    f->placed = true;
    mem_free(f->temp);
    f->temp = NULL;
    enum err err = ERR_OK;
    if (flush_folder(f->path) != 0)
        err = err_set(ERR_STORAGE, __FILE__, __LINE__, "storage: %s is whole and in place, but its "
                      "folder cannot be flushed, so a power cut may still lose it: %s", f->path,
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

/* Has the file an unfinished last line, as far as it can be read? */
static bool is_unfinished(const char *path)
{
    char last = '\n';
    int fd = fs_sys_open(path, O_RDONLY | O_NONBLOCK);
    int64_t n = fd >= 0 ? fs_sys_end(fd, path) : 0;
    if (n > 0 && fs_sys_pread(fd, path, &last, 1, n - 1) != 1)
        last = '\n';
    if (fd >= 0)
        (void)fs_sys_close(fd, path);
    return last != '\n';
}

enum err fs_log_open(const char *path, int *fd)
{
    TRY(open_log(path, 0, fd));
    if (is_unfinished(path) && fs_append(*fd, path, "\n", 1) != ERR_OK) {
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

/* ---- reading ---- */

/* Who speaks when a file cannot be read: whatever it was to be read for. */
static const char *reader(enum err code)
{
    return code == ERR_CONFIG ? "config" : code == ERR_CHECKPOINT ? "ckpt" : "data";
}

/* A link, and what it names is not there. */
static bool leads_nowhere(const char *path)
{
    struct stat st;
    return fs_sys_lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && fs_sys_stat(path, &st) != 0;
}

/* Opens a regular file of *size bytes. */
static enum err open_regular(const char *path, int flags, enum err code, int *fd, int64_t *size)
{
    char why[FS_REASON];
    struct stat st;
    int opened = fs_sys_open(path, O_RDONLY | O_NONBLOCK | flags);
    if (opened < 0 && errno == ELOOP && flags)
        FAIL(code, "%s: cannot read %s: it is a symbolic link, which a name out of a file may not "
                   "be; put the file itself there", reader(code), path);
    int missing = errno;
    if (opened < 0 && leads_nowhere(path))
        FAIL(code, "%s: cannot read %s: it is a link that leads nowhere; remove it, or make what "
                   "it names", reader(code), path);
    if (opened < 0)
        FAIL(code, "%s: cannot read %s: %s", reader(code), path, fs_reason(missing, why));
    bool known = fs_sys_fstat(opened, path, &st) == 0;
    int failed = errno;
    if (known && S_ISREG(st.st_mode)) {
        *fd = opened;
        *size = (int64_t)st.st_size;
        return ERR_OK;
    }
    (void)fs_sys_close(opened, path);
    if (!known)
        FAIL(code, "%s: cannot read %s: %s", reader(code), path, fs_reason(failed, why));
    FAIL(code, "%s: cannot read %s: it is %s, not a regular file", reader(code), path,
         S_ISDIR(st.st_mode) ? "a folder" : "a device, pipe or socket");
}

static enum err map_open(struct fs_map *m, const char *path, int flags, enum err code)
{
    char why[FS_REASON];
    void *p = NULL;
    int fd;
    int64_t size;
    TRY(open_regular(path, flags, code, &fd, &size));
    if (size > 0)
        p = fs_sys_map(fd, path, size);
    int failed = errno;
    (void)fs_sys_close(fd, path);
    if (p == MAP_FAILED)
        FAIL(code, "%s: cannot read %s: %s", reader(code), path, fs_reason(failed, why));
    *m = (struct fs_map){.data = p, .size = size};
    return ERR_OK;
}

enum err fs_map_open(struct fs_map *m, const char *path, enum err code)
{
    return map_open(m, path, 0, code);
}

enum err fs_map_open_in(struct fs_map *m, const char *dir, const char *name, enum err code)
{
    static const char legal[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    char *path;
    size_t n = strspn(name, legal);
    if (n == 0 || name[n] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        FAIL(code, "%s: a file named in %s has a name that is empty, . or .., or not of a-z A-Z "
                   "0-9 . _ - alone; only files of the folder itself are read", reader(code), dir);
    TRY(fs_join(dir, name, &path));
    enum err err = map_open(m, path, O_NOFOLLOW, code);
    mem_free(path);
    return err;
}

void fs_map_close(struct fs_map *m)
{
    if (m->data)
        munmap((void *)(uintptr_t)m->data, (size_t)m->size);
    *m = (struct fs_map){0};
}

enum err fs_reader_open(struct fs_reader *r, const char *path, enum err code)
{
    struct fs_reader made = {.open = true, .code = code};
    TRY(mem_string(path, &made.path));
    enum err err = open_regular(path, 0, code, &made.fd, &made.size);
    if (err == ERR_OK)
        *r = made;
    else
        mem_free(made.path);
    return err;
}

enum err fs_reader_get(const struct fs_reader *r, int64_t at, int64_t n, void *p)
{
    char why[FS_REASON], *to = p;
    ENSURE(r->open && at >= 0 && n >= 0);
    while (n > 0) {
        int64_t got = fs_sys_pread(r->fd, r->path, to, num_min(n, CALL_MAX), at);
        if (got < 0)
            FAIL(r->code, "%s: cannot read %s: %s", reader(r->code), r->path,
                 fs_reason(errno, why));
        if (got == 0)
            FAIL(r->code,
                 "%s: cannot read byte %lld of %s: it had %lld byte%s when it was opened and ends "
                 "before that now; put it back whole and start again", reader(r->code),
                 (long long)at, r->path, (long long)r->size, text_plural(r->size, "s"));
        to += got;
        at += got;
        n -= got;
    }
    return ERR_OK;
}

void fs_reader_close(struct fs_reader *r)
{
    if (r->open)
        (void)fs_sys_close(r->fd, r->path);
    mem_free(r->path);
    *r = (struct fs_reader){0};
}

/* ---- folders ---- */

enum err fs_parent(const char *path, char **out)
{
    struct text around = {0};
    const char *slash = strrchr(path, '/');
    text_add(&around, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1,
             slash ? path : ".");
    return text_done(&around, out);
}

enum err fs_check_place(const char *path)
{
    struct stat st;
    char *dir, why[FS_REASON];
    TRY(check_kind(path));
    TRY(fs_parent(path, &dir));
    enum err err = ERR_OK;
    int code = fs_sys_stat(dir, &st) == 0 ? 0 : errno;
    if (code == ENOENT)
        err = err_set(ERR_STORAGE, __FILE__, __LINE__, "storage: cannot write %s: there is no "
                      "folder %s; make it first", path, dir);
    else if (code == ENOTDIR || (code == 0 && !S_ISDIR(st.st_mode)))
        err = err_set(ERR_STORAGE, __FILE__, __LINE__, "storage: cannot write %s: %s is no folder; "
                      "name another output", path, dir);
    else if (code || fs_sys_access(dir, W_OK | X_OK) != 0)
        err = err_set(ERR_STORAGE, __FILE__, __LINE__, "storage: cannot write %s: %s", path,
                      fs_reason(code ? code : errno, why));
    mem_free(dir);
    return err;
}

static enum err make_dir(const char *path)
{
    char why[FS_REASON];
    struct stat st;
    int code = fs_sys_mkdir(path) == 0 ? 0 : errno;
    if (code == 0 || (fs_sys_stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
        return ERR_OK; /* another process may have made it, or it is not ours to make, as "/" */
    if (code == EEXIST && leads_nowhere(path))
        FAIL(ERR_STORAGE, "storage: cannot make the folder %s: it is a link that leads nowhere; "
                          "remove it, or make what it names", path);
    if (code == EEXIST)
        FAIL(ERR_STORAGE, "storage: cannot make the folder %s: a file has that name; use another",
             path);
    FAIL(ERR_STORAGE, "storage: cannot make the folder %s: %s", path, fs_reason(code, why));
}

enum err fs_make_dirs(const char *path)
{
    enum err err = ERR_OK;
    char *s;
    if (!*path)
        FAIL(ERR_STORAGE, "storage: cannot make a folder without a name");
    TRY(mem_string(path, &s));
    for (char *p = s + 1; *p; p++) {
        if (*p != '/' || p[-1] == '/')
            continue;
        *p = '\0';
        TRY_OR(out_string, make_dir(s));
        *p = '/';
    }
    TRY_OR(out_string, make_dir(s));
out_string:
    mem_free(s);
    return err;
}

bool fs_exists(const char *path)
{
    return fs_sys_access(path, F_OK) == 0;
}

bool fs_named(const char *path)
{
    struct stat st;
    return fs_sys_lstat(path, &st) == 0;
}

enum err fs_join(const char *dir, const char *name, char **out)
{
    struct text t = {0};
    int n = (int)strlen(dir);
    while (n > 1 && dir[n - 1] == '/' && dir[n - 2] == '/')
        n--;
    text_add(&t, "%.*s%s%s", n, dir, n > 0 && dir[n - 1] != '/' ? "/" : "", name);
    return text_done(&t, out);
}
