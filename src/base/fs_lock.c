/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that one process holds. The kernel's lock belongs to the open file (OFD), so that two runs
 * of one process exclude each other too, and ends with the process, however that dies. The file
 * appears with its words in it and locked, from a temporary name (fs_place); one that a dead owner
 * left is replaced by rename(2) while its own lock is held. So whoever reads it reads whole words,
 * and a name that was removed and made again lets nobody else in: a lock counts only while its
 * file still has the name.
 */
#include "base/fs_sys.h"

#include "base/log.h"
#include "base/mem.h"
#include <errno.h>
#include <string.h>

enum { TRIES = 100 };

static enum err fail(const char *what, const char *path)
{
    char why[FS_REASON];
    FAIL(ERR_STORAGE, "storage: cannot %s %s: %s", what, path, fs_reason(errno, why));
}

/* Takes the kernel's lock: true, or errno. */
static bool hold(int fd, const char *path)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fs_sys_lock(fd, path, F_OFD_SETLK, &l) == 0;
}

/* Of another process; systems without locks say other things. */
static bool held_elsewhere(int code)
{
    return code == EAGAIN || code == EACCES;
}

static void read_words(int fd, const char *path, char words[FS_LOCK_WORDS])
{
    int64_t n = fs_sys_pread(fd, path, words, FS_LOCK_WORDS - 1, 0);
    words[n > 0 ? n : 0] = '\0';
}

static int open_own(const char *name)
{
    return fs_sys_open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
}

/* A locked file of another name with the words in it. */
static enum err make_own(struct fs_lock *l, const char *words)
{
    TRY(fs_temp_make(&l->temp, l->path, "create a file", open_own, &l->fd));
    TRY(fs_append(l->fd, l->temp.name, words, (int64_t)strlen(words)));
    (void)hold(l->fd, l->temp.name); /* without locks the file alone says who is there */
    return ERR_OK;
}

/* The own file, and its name while it has none but the first. */
static void drop_own(struct fs_lock *l)
{
    if (l->fd >= 0)
        (void)fs_sys_close(l->fd, l->path);
    if (l->temp.name)
        (void)fs_sys_unlink(l->temp.name);
    fs_temp_drop(&l->temp);
    l->fd = -1;
}

/* What has the name: *gone when it has gone meanwhile. With `over` and no living owner the own file
 * takes its place. */
static enum err look_at(struct fs_lock *l, const struct fs_lock_over *over,
                        struct fs_lock_found *found, bool *gone)
{
    *found = (struct fs_lock_found){.state = FS_LOCK_LEFT};
    int fd = fs_sys_open(l->path, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    *gone = fd < 0 && errno == ENOENT;
    if (fd < 0 && (*gone || errno == ELOOP || errno == EISDIR || errno == ENXIO))
        return ERR_OK; /* a link, folder or pipe: left by somebody else */
    if (fd < 0)
        return fail("open", l->path);
    if (fs_sys_fstat(fd, l->path, &st) != 0 || !S_ISREG(st.st_mode)) {
        (void)fs_sys_close(fd, l->path);
        return ERR_OK;
    }
    bool mine = hold(fd, l->path);
    int code = errno;
    read_words(fd, l->path, found->words);
    *gone = !fs_is_named(fd, l->path);
    found->blind = !mine && !held_elsewhere(code);
    enum err err = ERR_OK;
    if (!mine && held_elsewhere(code))
        found->state = FS_LOCK_HELD;
    else if (!*gone && over && l->temp.name) {
        err = over->first(over->arg, found);
        if (err == ERR_OK && fs_sys_rename(l->temp.name, l->path) == 0)
            found->state = FS_LOCK_TAKEN;
    }
    (void)fs_sys_close(fd, l->path);
    return err;
}

enum err fs_lock_take(struct fs_lock *l, const char *path, const char *words,
                      const struct fs_lock_over *over, struct fs_lock_found *found)
{
    bool gone = true;
    *l = (struct fs_lock){.fd = -1};
    *found = (struct fs_lock_found){.state = FS_LOCK_NONE};
    enum err err = mem_string(path, &l->path);
    for (int i = 0; i < TRIES && err == ERR_OK && gone; i++) {
        if (!l->temp.name)
            err = make_own(l, words);
        if (err != ERR_OK)
            break;
        /* Where fs_place can but look and rename there is a moment in which two may believe that
         * nothing has the name, and the own file may have gone with it. */
        bool placed = fs_place(l->temp.name, l->path, true) == 0;
        if (placed && fs_is_named(l->fd, l->path)) {
            found->state = FS_LOCK_TAKEN;
            gone = false;
        } else if (placed || errno == ENOENT) { /* a run swept the folder meanwhile */
            drop_own(l);
        } else if (errno == EEXIST) {
            err = look_at(l, over, found, &gone);
        } else {
            err = fail("make", path);
        }
    }
    if (err == ERR_OK && gone)
        err = ERR(ERR_STORAGE, "storage: %s comes and goes; try again", path);
    if (found->state != FS_LOCK_TAKEN || err != ERR_OK)
        drop_own(l);
    fs_temp_drop(&l->temp);
    return err;
}

void fs_lock_leave(struct fs_lock *l)
{
    if (l->fd >= 0 && fs_is_named(l->fd, l->path) && fs_sys_unlink(l->path) != 0) {
        char why[FS_REASON];
        log_line(LOG_WARN, "%s cannot be removed, so the next run there will take this one for "
                           "dead: %s", l->path, fs_reason(errno, why));
    } /* held until it is gone */
    if (l->fd >= 0)
        (void)fs_sys_close(l->fd, l->path);
    mem_free(l->path);
    *l = (struct fs_lock){.fd = -1};
}

bool fs_lock_stands(const struct fs_lock *l)
{
    return l->fd >= 0 && fs_is_named(l->fd, l->path);
}

void fs_lock_leave_words(struct fs_lock *l, const char *words)
{
    struct fs_lock other = {.fd = -1, .path = l->path};
    if (l->fd >= 0 && fs_is_named(l->fd, l->path) && make_own(&other, words) == ERR_OK &&
        fs_sys_rename(other.temp.name, l->path) == 0)
        fs_temp_drop(&other.temp);
    drop_own(&other);
    fs_lock_leave(l); /* another file has the name by now */
}

void fs_lock_look(const char *path, struct fs_lock_found *found)
{
    struct stat st;
    struct flock ask = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    *found = (struct fs_lock_found){.state = FS_LOCK_NONE};
    if (fs_sys_lstat(path, &st) != 0)
        return;
    found->state = FS_LOCK_LEFT;
    int fd = S_ISREG(st.st_mode) ? fs_sys_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK) : -1;
    if (fd < 0)
        return; /* whoever wants to take it is told why not */
    if (fs_sys_lock(fd, path, F_OFD_GETLK, &ask) == 0 && ask.l_type != F_UNLCK)
        found->state = FS_LOCK_HELD;
    read_words(fd, path, found->words);
    if (!fs_is_named(fd, path))
        found->state = FS_LOCK_NONE;
    (void)fs_sys_close(fd, path);
}
