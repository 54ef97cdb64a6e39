/* SPDX-License-Identifier: Apache-2.0
 *
 * Whoever watches a thread's file calls is told of each: every call of the table underneath is made
 * between a begin and an end, with the name of a file, whatever was asked for; and errno behind an
 * end is the call's.
 */
#include "base/fs_sys.h"
#include "base/mem.h"
#include "test.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct fs_ops *real;
static int depth, begun, outside, calls;
static char last[300];

static void on_begin(void *arg, const char *path)
{
    CHECK(arg == &depth && path && path[0]);
    snprintf(last, sizeof last, "%s", path);
    depth++;
    begun++;
}

static void on_end(void *arg)
{
    CHECK(arg == &depth);
    depth--;
    errno = EXDEV; /* nobody may see it */
}

static void look(void)
{
    calls++;
    outside += depth != 1;
}

static int64_t watched_space(const char *dir)
{
    look();
    return real->space(dir);
}

static int watched_open(const char *path, int flags, unsigned mode)
{
    look();
    return real->open(path, flags, mode);
}

static int64_t watched_write(int fd, const void *p, int64_t n, int64_t at)
{
    look();
    return real->write(fd, p, n, at);
}

static int watched_fsync(int fd)
{
    look();
    return real->fsync(fd);
}

static int watched_close(int fd)
{
    look();
    return real->close(fd);
}

static int watched_rename(const char *from, const char *to)
{
    look();
    return real->rename(from, to);
}

static int no_rename_new(const char *from, const char *to)
{
    look();
    (void)from;
    (void)to;
    errno = EINVAL;
    return -1;
}

static int watched_link(const char *from, const char *to)
{
    look();
    return real->link(from, to);
}

static int watched_unlink(const char *path)
{
    look();
    return real->unlink(path);
}

static int watched_mkdir(const char *path, unsigned mode)
{
    look();
    return real->mkdir(path, mode);
}

static int64_t watched_pread(int fd, void *p, int64_t n, int64_t at)
{
    look();
    return real->pread(fd, p, n, at);
}

static int watched_keep(int fd, int64_t n)
{
    look();
    return real->keep(fd, n);
}

static int watched_cut(int fd, int64_t n)
{
    look();
    return real->cut(fd, n);
}

/* All that this folder does with files, in `dir`. */
static void use(const char *dir)
{
    char path[200], big[1 << 10] = "x";
    struct fs_file f;
    struct fs_map m;
    struct fs_reader r;
    struct fs_lock lock;
    struct fs_lock_found found;
    int fd;
    snprintf(path, sizeof path, "%s/a/b", dir);
    CHECK_OK(fs_make_dirs(path));
    snprintf(path, sizeof path, "%s/a/b/file", dir);
    CHECK_OK(fs_create(&f, path));
    CHECK_OK(fs_keep_room(&f, 3000 * (int64_t)sizeof big));
    for (int i = 0; i < 3000; i++) /* more than the buffer */
        CHECK_OK(fs_write(&f, big, sizeof big));
    CHECK_OK(fs_write_at(&f, 3000 * (int64_t)sizeof big, big, sizeof big));
    CHECK_OK(fs_commit(&f));
    CHECK_OK(fs_put(path, "more", 4));
    CHECK_OK(fs_map_open(&m, path, ERR_DATA));
    fs_map_close(&m);
    CHECK_OK(fs_reader_open(&r, path, ERR_DATA));
    CHECK_OK(fs_reader_get(&r, 1, 3, big));
    CHECK(strcmp(last, path) == 0);
    fs_reader_close(&r);
    CHECK_OK(fs_log_open(path, &fd));
    CHECK_OK(fs_append(fd, path, "line\n", 5));
    CHECK_OK(fs_log_close(fd, path));
    CHECK_OK(fs_create(&f, path));
    fs_abandon(&f);
    CHECK(unlink(path) == 0);
    CHECK_OK(fs_create_new(&f, path));
    CHECK_OK(fs_commit(&f));
    CHECK(f.placed && unlink(path) == 0);
    CHECK_OK(fs_lock_take(&lock, path, "words", NULL, &found));
    CHECK(found.state == FS_LOCK_TAKEN);
    fs_lock_look(path, &found);
    fs_lock_leave_words(&lock, "others");
    CHECK(unlink(path) == 0 && fs_sys_space(dir) != 0);
    CHECK_ERR(fs_map_open(&m, path, ERR_DATA), ERR_DATA, "no such file");
}

static void every_call_is_told(void)
{
    static const char dir[] = "watched";
    char path[200];
    struct fs_watch w = {on_begin, on_end, &depth};
    real = fs_ops;
    struct fs_ops ops = {watched_open,   watched_write,  watched_fsync, watched_close,
                         watched_rename, no_rename_new,  watched_link,
                         watched_unlink, watched_mkdir,  watched_pread,
                         watched_space,  watched_keep,   watched_cut};
    CHECK(mkdir(dir, 0777) == 0);
    fs_ops = &ops;
    fs_watch_set(&w);
    use(dir);
    int told = begun;
    fs_watch_set(NULL);
    use(dir);
    fs_ops = real;
    CHECK(calls > 60 && told > 20);
    CHECK_INT(begun, told);
    CHECK_INT(outside, calls / 2); /* the second time nobody watches */
    CHECK_INT(depth, 0);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", dir, i == 0 ? "/a/b" : i == 1 ? "/a" : "");
        CHECK(rmdir(path) == 0);
    }
}

/* Calls that only look, and those on folders: all of fs_sys.h that no table of a test reaches. */
static void every_look_is_told(void)
{
    static const char dir[] = "looked-at", file[] = "looked-at/file", none[] = "looked-at/none";
    struct fs_watch w = {on_begin, on_end, &depth};
    struct stat st;
    struct flock ask = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    struct fs_folder d;
    CHECK(mkdir(dir, 0777) == 0);
    CHECK_OK(fs_put(file, "bytes", 5));
    int fd = fs_sys_open(file, O_RDWR);
    fs_watch_set(&w);
#define TOLD_OF(path, call)                              \
    do {                                                 \
        begun = 0;                                       \
        CHECK(call);                                     \
        CHECK(begun > 0 && depth == 0 && strcmp(last, path) == 0); \
    } while (0)
    TOLD_OF(file, fs_sys_stat(file, &st) == 0 && st.st_size == 5);
    TOLD_OF(file, fs_sys_lstat(file, &st) == 0 && st.st_size == 5);
    TOLD_OF(none, fs_sys_stat(none, &st) != 0 && errno == ENOENT);
    TOLD_OF(none, fs_sys_lstat(none, &st) != 0 && errno == ENOENT);
    TOLD_OF(file, fs_sys_fstat(fd, file, &st) == 0 && st.st_size == 5);
    TOLD_OF(file, fs_sys_access(file, R_OK) == 0);
    TOLD_OF(none, fs_sys_access(none, R_OK) != 0 && errno == ENOENT);
    TOLD_OF(file, fs_sys_end(fd, file) == 5);
    TOLD_OF(file, fs_sys_cut(fd, file, 3) == 0 && fs_sys_end(fd, file) == 3);
    TOLD_OF(file, fs_sys_lock(fd, file, F_OFD_GETLK, &ask) == 0);
    TOLD_OF(dir, fs_sys_space(dir) != 0);
    TOLD_OF(dir, fs_sys_magic(dir) != 0);
    TOLD_OF(none, fs_sys_magic(none) == -1 && errno == ENOENT);
    TOLD_OF(none, fs_sys_rmdir(none) != 0 && errno == ENOENT);
    TOLD_OF(dir, fs_folder_open(&d, dir));
    TOLD_OF(dir, strcmp(fs_folder_next(&d), "file") == 0 && !fs_folder_next(&d));
    TOLD_OF(dir, (fs_folder_close(&d), d.open == NULL));
    TOLD_OF(none, !fs_folder_open(&d, none) && errno == ENOENT);
    TOLD_OF(file, fs_exists(file));
    TOLD_OF(file, fs_same(dir, file) == false);
    TOLD_OF(file, fs_sys_close(fd, file) == 0);
    fs_watch_set(NULL);
    CHECK(unlink(file) == 0 && rmdir(dir) == 0);
}

static const struct test_case cases[] = {{"every_call_is_told", every_call_is_told},
                                         {"every_look_is_told", every_look_is_told}};
TEST_MAIN(cases)
