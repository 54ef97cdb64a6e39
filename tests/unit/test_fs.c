/* SPDX-License-Identifier: Apache-2.0
 *
 * Files under failing system calls. Each call of a whole commit fails in turn, and the target must
 * hold the old bytes or the new ones, never a mixture, and no temporary may stay behind where one
 * can be removed. Then readers, strange targets, log files, folders.
 */
#include "base/fs.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/text.h"
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char folder[] = "files"; /* of the running case */

static void enter(void)
{
    CHECK(mkdir(folder, 0777) == 0);
}

/* Names in the folder but "." and ".."; `last` receives one of them. */
static int entries(char last[256])
{
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            snprintf(last, 256, "%s", e->d_name);
            n++;
        }
    if (d)
        closedir(d);
    return n;
}

static void leave(void)
{
    char name[256], path[400];
    while (entries(name) > 0) {
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (remove(path) != 0)
            break;
    }
    CHECK(rmdir(folder) == 0);
}

static const char *inside(const char *name)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A file of `n` bytes, each `c`, in pieces that straddle the buffer. */
static enum err save(const char *path, char c, int64_t n)
{
    struct fs_file f;
    char piece[4099];
    memset(piece, c, sizeof piece);
    TRY(fs_create(&f, path));
    TRY(fs_keep_room(&f, n));
    for (int64_t at = 0; at < n; at += (int64_t)sizeof piece)
        TRY(fs_write(&f, piece, num_min((int64_t)sizeof piece, n - at)));
    return fs_commit(&f);
}

/* 'a' or 'b' when the file is n bytes of that letter, 0 when it is anything else. */
static char content(const char *path, int64_t n)
{
    struct fs_map m;
    if (fs_map_open(&m, path, ERR_DATA) != ERR_OK)
        return 0;
    char c = m.size == n ? (char)m.data[0] : 0;
    for (int64_t i = 0; i < m.size && c; i++)
        if (m.data[i] != (uint8_t)c)
            c = 0;
    fs_map_close(&m);
    return c;
}

static void files_become_visible_whole(void)
{
    struct fs_file f;
    char name[256];
    enter();
    CHECK_OK(fs_create(&f, inside("x")));
    CHECK_OK(fs_write(&f, "hello", 5));
    CHECK(!fs_exists(inside("x")));
    CHECK_OK(fs_commit(&f));
    CHECK_INT(entries(name), 1);
    CHECK_STR(name, "x");
    fs_abandon(&f); /* after a commit it does nothing */
    CHECK(fs_exists(inside("x")));
    CHECK_OK(fs_create(&f, inside("y")));
    fs_abandon(&f);
    fs_abandon(&f);
    CHECK_INT(entries(name), 1);
    CHECK_OK(save(inside("x"), 'b', 3000000));
    CHECK_INT(content(inside("x"), 3000000), 'b');
    leave();
}

/* Calls that a commit of three megabytes makes: counted by the ops below. */
static const struct fs_ops *under;
static int64_t made_calls, fail_at, short_by;
static int fail_code;
static bool fail_onwards;

static bool fails(void)
{
    made_calls++;
    if (made_calls != fail_at && !(fail_onwards && fail_at > 0 && made_calls > fail_at))
        return false;
    errno = fail_code;
    return true;
}
static int try_open(const char *p, int flags, unsigned mode)
{
    return fails() ? -1 : under->open(p, flags, mode);
}
static int64_t try_write(int fd, const void *p, int64_t n, int64_t at)
{
    if (fails())
        return -1;
    return under->write(fd, p, short_by > 0 ? num_min(n, 1 + made_calls % short_by) : n, at);
}
static int try_fsync(int fd)
{
    return fails() ? -1 : under->fsync(fd);
}
static int try_close(int fd)
{
    int done = under->close(fd);
    return fails() ? -1 : done;
}
static int try_rename(const char *from, const char *to)
{
    return fails() ? -1 : under->rename(from, to);
}
static int try_rename_new(const char *from, const char *to)
{
    return fails() ? -1 : under->rename_new(from, to);
}
static int try_link(const char *from, const char *to)
{
    return fails() ? -1 : under->link(from, to);
}
static int try_unlink(const char *path)
{
    return fails() ? -1 : under->unlink(path);
}
static int try_mkdir(const char *path, unsigned mode)
{
    return fails() ? -1 : under->mkdir(path, mode);
}
static int64_t try_pread(int fd, void *p, int64_t n, int64_t at)
{
    if (fails())
        return -1;
    return under->pread(fd, p, short_by > 0 ? num_min(n, 1 + made_calls % short_by) : n, at);
}
static int64_t try_space(const char *dir)
{
    return fails() ? -1 : under->space(dir);
}
static int try_keep(int fd, int64_t n)
{
    return fails() ? -1 : under->keep(fd, n);
}
static int try_cut(int fd, int64_t n)
{
    return under->cut(fd, n);
}
static const struct fs_ops trying = {
    try_open, try_write,  try_fsync, try_close, try_rename, try_rename_new,
    try_link, try_unlink, try_mkdir, try_pread, try_space,  try_keep, try_cut};

static enum err save_failing(int64_t at, int code, bool onwards)
{
    under = fs_ops;
    made_calls = 0;
    fail_at = at;
    fail_code = code;
    fail_onwards = onwards;
    fs_ops = &trying;
    enum err err = save(inside("x"), 'b', 3000000);
    fs_ops = under;
    return err;
}

static void every_failing_call_leaves_old_or_new(void)
{
    static const int code[] = {ENOSPC, EDQUOT, EIO, EACCES};
    char name[256];
    enter();
    CHECK_OK(save_failing(0, 0, false));
    int64_t calls = made_calls;
    CHECK(calls >= 8); /* open, 3 writes, fsync, close, rename, open, fsync, close of the folder */
    for (size_t c = 0; c < sizeof code / sizeof *code; c++)
        for (int64_t at = 1; at <= calls; at++) {
            CHECK_OK(save(inside("x"), 'a', 3000000));
            enum err err = save_failing(at, code[c], false);
            char now = content(inside("x"), 3000000);
            /* Only the last close, of a folder opened for reading, may fail unseen. */
            CHECK(err == ERR_STORAGE || (err == ERR_OK && at == calls));
            CHECK(now == 'b' || (now == 'a' && err != ERR_OK));
            CHECK_INT(entries(name), 1); /* the temporary is gone */
            CHECK(err == ERR_OK || strstr(err_text(), inside("x")) != NULL);
        }
    CHECK_ERR(save_failing(2, ENOSPC, true), ERR_STORAGE, "no space left on device; free some");
    leave();
}

/* A log whose disk is full after some bytes ends with whole lines. */
static void what_does_not_fit_is_cut_off(void)
{
    char name[256];
    struct fs_map m;
    int fd = -1;
    enter();
    for (int64_t part = 0; part < 8; part++) {
        CHECK_OK(fs_log_make(inside("log"), &fd));
        CHECK_OK(fs_append(fd, inside("log"), "a line\n", 7));
        under = fs_ops;
        fs_ops = &trying;
        made_calls = 0;
        fail_at = 1 + part; /* each write before takes a byte */
        short_by = 1;
        fail_code = ENOSPC;
        fail_onwards = true;
        CHECK_ERR(fs_append(fd, inside("log"), "an other line\n", 14), ERR_STORAGE,
                  "no space left on device");
        fs_ops = under;
        short_by = 0;
        CHECK_OK(fs_append(fd, inside("log"), "third\n", 6));
        CHECK_OK(fs_log_close(fd, inside("log")));
        CHECK_OK(fs_map_open(&m, inside("log"), ERR_DATA));
        CHECK(m.size == 13 && memcmp(m.data, "a line\nthird\n", 13) == 0);
        fs_map_close(&m);
        CHECK_ERR(fs_log_make(inside("log"), &fd), ERR_STORAGE, "file exists");
        CHECK(remove(inside("log")) == 0 && entries(name) == 0);
    }
    leave();
}

static void interrupted_calls_are_repeated(void)
{
    enter();
    CHECK_OK(save_failing(0, 0, false));
    int64_t calls = made_calls;
    for (int64_t at = 1; at <= calls; at++) {
        CHECK_OK(save(inside("x"), 'a', 3000000));
        CHECK_OK(save_failing(at, EINTR, false));
        CHECK_INT(content(inside("x"), 3000000), 'b');
    }
    leave();
}

static void short_writes_are_continued(void)
{
    enter();
    short_by = 50000;
    CHECK_OK(save_failing(0, 0, false));
    CHECK(made_calls > 60);
    short_by = 0;
    CHECK_INT(content(inside("x"), 3000000), 'b');
    leave();
}

/* A reader gets its bytes whatever the calls give at once, and says so where it cannot. */
static void readers_read_in_pieces(void)
{
    enum { SIZE = 100000 };
    static char want[SIZE], got[SIZE];
    struct fs_reader r = {0};
    enter();
    fs_reader_close(&r); /* all zero: nothing to close */
    for (int i = 0; i < SIZE; i++)
        want[i] = (char)(i % 251);
    CHECK_OK(fs_put(inside("x"), want, SIZE));
    CHECK_OK(fs_reader_open(&r, inside("x"), ERR_DATA));
    CHECK_INT(r.size, SIZE);
    under = fs_ops;
    fs_ops = &trying;
    made_calls = 0;
    short_by = 777;
    fail_at = 3;
    fail_code = EINTR;
    fail_onwards = false;
    CHECK_OK(fs_reader_get(&r, 10, SIZE - 10, got));
    CHECK(made_calls > 3 && memcmp(got, want + 10, SIZE - 10) == 0);
    short_by = 0;
    fail_at = made_calls + 1;
    fail_code = EIO;
    CHECK_ERR(fs_reader_get(&r, 0, 5, got), ERR_DATA, "data: cannot read ");
    CHECK(strstr(err_text(), "/x: input/output error") != NULL);
    fs_ops = under;
    CHECK_OK(fs_reader_get(&r, SIZE, 0, got));
    CHECK(truncate(inside("x"), 60) == 0);
    CHECK_OK(fs_reader_get(&r, 0, 60, got));
    CHECK_ERR(fs_reader_get(&r, 50, 20, got), ERR_DATA, "data: cannot read byte 60 of ");
    CHECK(strstr(err_text(), "it had 100000 bytes when it was opened and ends before") != NULL);
    fs_reader_close(&r);
    fs_reader_close(&r);
    leave();
}

static int64_t filled, fills_at;

/* A disk that has room for fills_at bytes. */
static int64_t filling_write(int fd, const void *p, int64_t n, int64_t at)
{
    int64_t fits = n < fills_at - filled ? n : fills_at - filled;
    if (fits == 0)
        errno = ENOSPC;
    int64_t done = fits ? under->write(fd, p, fits, at) : -1;
    filled += done > 0 ? done : 0;
    return done;
}

/* A failed write says how many bytes the disk has, not how many were given to a buffer: of every
 * length about the buffer's, cut at every kind of place. */
static void bytes_written_are_counted(void)
{
    static const int64_t piece[] = {10, 1000000, 1 << 20, 3000000}, cut[] = {1, 700, 1048577};
    static char data[3000000];
    char want[64];
    enter();
    under = fs_ops;
    for (size_t i = 0; i < sizeof piece / sizeof *piece; i++)
        for (size_t j = 0; j < sizeof cut / sizeof *cut; j++) {
            struct fs_file f;
            enum err err = ERR_OK;
            CHECK_OK(fs_create(&f, inside("x")));
            struct fs_ops filling = *under;
            filling.write = filling_write;
            fs_ops = &filling;
            filled = 0;
            fills_at = cut[j];
            for (int64_t n = 0; err == ERR_OK && n < 4000000; n += piece[i])
                err = fs_write(&f, data, piece[i]);
            if (err == ERR_OK)
                err = fs_commit(&f);
            fs_ops = under;
            snprintf(want, sizeof want, "/x after %lld byte%s: no space", (long long)cut[j],
                     cut[j] == 1 ? "" : "s");
            CHECK_ERR(err, ERR_STORAGE, want);
        }
    leave();
}

static void environment_makes_calls_fail(void)
{
    struct fs_file f;
    enter();
    setenv("PLAIT_FAIL_FS", "1+:ENOSPC", 1);
    CHECK_ERR(fs_create(&f, inside("x")), ERR_STORAGE, "no space left on device");
    setenv("PLAIT_FAIL_FS", "1:ENOSPC", 1); /* the first call is long past */
    CHECK_OK(fs_create(&f, inside("x")));
    setenv("PLAIT_FAIL_FS", "1+:EIO", 1);
    CHECK_ERR(fs_commit(&f), ERR_STORAGE, "input/output error");
    setenv("PLAIT_FAIL_FS", "first:EIO", 1); /* a slip in a test must not pass it */
    CHECK_ERR(fs_create(&f, inside("x")), ERR_STORAGE, "invalid argument");
    unsetenv("PLAIT_FAIL_FS");
    leave();
}

/* Calls of one kind on files of one name. */
static void environment_names_calls(void)
{
    struct fs_map m;
    int fd;
    enter();
    CHECK_OK(fs_log_make(inside("log"), &fd));
    setenv("PLAIT_FAIL_FS", "write@/log:2:EFBIG", 1);
    CHECK_OK(fs_put(inside("other"), "x", 1));
    CHECK_OK(fs_append(fd, inside("log"), "first\n", 6));
    CHECK_ERR(fs_append(fd, inside("log"), "second\n", 7), ERR_STORAGE, "file too large");
    CHECK_OK(fs_append(fd, inside("log"), "third\n", 6));
    setenv("PLAIT_FAIL_FS", "half@/log:4:ENOSPC", 1); /* three calls have been */
    CHECK_ERR(fs_append(fd, inside("log"), "half\n", 5), ERR_STORAGE, "no space left");
    CHECK_ERR(fs_append(fd, inside("log"), "more\n", 5), ERR_STORAGE, "no space left");
    CHECK_OK(fs_map_open(&m, inside("log"), ERR_DATA));
    CHECK(m.size == 12 && memcmp(m.data, "first\nthird\n", 12) == 0);
    fs_map_close(&m);
    setenv("PLAIT_FAIL_FS", "close@/log:1+:EDQUOT", 1);
    CHECK_ERR(fs_log_close(fd, inside("log")), ERR_STORAGE, "its last lines may be missing");
    setenv("PLAIT_FAIL_FS", "write@log", 1);
    CHECK_ERR(fs_put(inside("other"), "x", 1), ERR_STORAGE, "invalid argument");
    unsetenv("PLAIT_FAIL_FS");
    leave();
}

/* What a file has room for is its own: no byte of it can be refused later, none is left behind. */
static void room_is_kept(void)
{
    struct fs_file f;
    struct stat st;
    char page[4096] = "", name[256];
    enter();
    CHECK_OK(fs_create(&f, inside("x")));
    CHECK_OK(fs_write(&f, page, 100));
    CHECK_OK(fs_keep_room(&f, 1000000));
    if (f.kept == 0) {
        fs_abandon(&f);
        test_skip("the file system keeps no room");
        leave();
        return;
    }
    CHECK(stat(f.temp.name, &st) == 0 && st.st_blocks * 512 >= 1000000 && fs_is_there(&f));
    for (int64_t n = 100; n < 1000000; n += 4050)
        CHECK_OK(fs_write(&f, page, num_min(4050, 1000000 - n)));
    CHECK_OK(fs_commit(&f));
    CHECK(stat(inside("x"), &st) == 0 && st.st_size == 1000000);
    CHECK_OK(fs_create(&f, inside("y")));
    CHECK_ERR(fs_keep_room(&f, INT64_C(1) << 60), ERR_STORAGE, "cannot keep the 1.0 EiB that ");
    CHECK_INT(entries(name), 1);
    CHECK_OK(fs_create(&f, inside("y")));
    CHECK(unlink(f.temp.name) == 0 && !fs_is_there(&f));
    fs_abandon(&f);
    leave();
}

static void strange_targets_are_refused(void)
{
    struct fs_file f;
    struct fs_map m;
    struct fs_reader r;
    int fd;
    enter();
    CHECK_ERR(fs_create(&f, folder), ERR_STORAGE, "it is a folder");
    CHECK_ERR(fs_create(&f, inside("no/such/x")), ERR_STORAGE, "no such file or directory");
    CHECK(mkfifo(inside("pipe"), 0600) == 0);
    CHECK_ERR(fs_create(&f, inside("pipe")), ERR_STORAGE, "it is a device, pipe or socket");
    CHECK_ERR(fs_map_open(&m, inside("pipe"), ERR_DATA), ERR_DATA, "a device, pipe or socket");
    CHECK_ERR(fs_log_open(inside("pipe"), &fd), ERR_STORAGE, "cannot append");
    CHECK_ERR(fs_map_open(&m, folder, ERR_DATA), ERR_DATA, "it is a folder");
    CHECK_ERR(fs_map_open(&m, "/dev/zero", ERR_DATA), ERR_DATA, "a device");
    CHECK_ERR(fs_reader_open(&r, inside("pipe"), ERR_DATA), ERR_DATA, "a device, pipe or socket");
    CHECK_ERR(fs_reader_open(&r, inside("none"), ERR_DATA), ERR_DATA, "check the path");
    CHECK_ERR(fs_map_open(&m, inside("none"), ERR_CHECKPOINT), ERR_CHECKPOINT, "check the path");
    CHECK(close(open(inside("empty"), O_CREAT | O_WRONLY, 0600)) == 0);
    CHECK_OK(fs_map_open(&m, inside("empty"), ERR_DATA));
    CHECK(m.data == NULL && m.size == 0);
    fs_map_close(&m);
    leave();
}

static void log_files_append(void)
{
    int fd = -1;
    struct fs_map m;
    enter();
    for (int i = 0; i < 2; i++) {
        CHECK_OK(fs_log_open(inside("log"), &fd));
        CHECK_OK(fs_append(fd, inside("log"), "line\n", 5));
        CHECK_OK(fs_log_close(fd, inside("log")));
    }
    CHECK_OK(fs_map_open(&m, inside("log"), ERR_DATA));
    CHECK(m.size == 10 && memcmp(m.data, "line\nline\n", 10) == 0);
    fs_map_close(&m);
    leave();
}

static void folders_are_made(void)
{
    char name[256], *joined;
    enter();
    CHECK_OK(fs_make_dirs(inside("a/b//c/")));
    CHECK(fs_exists(inside("a/b/c")));
    CHECK_OK(fs_make_dirs(inside("a/b")));
    CHECK_OK(save(inside("file"), 'a', 1));
    CHECK_ERR(fs_make_dirs(inside("file/d")), ERR_STORAGE, "cannot make the folder");
    CHECK_ERR(fs_make_dirs("/proc/plait"), ERR_STORAGE, "cannot make the folder /proc/plait");
    CHECK(symlink("nowhere", inside("link")) == 0);
    CHECK_ERR(fs_make_dirs(inside("link")), ERR_STORAGE, "it is a link that leads nowhere");
    struct fs_map m;
    CHECK_ERR(fs_map_open(&m, inside("link"), ERR_DATA), ERR_DATA, "a link that leads nowhere");
    CHECK(unlink(inside("link")) == 0);
    CHECK_ERR(fs_make_dirs(""), ERR_STORAGE, "without a name");
    CHECK(rmdir(inside("a/b/c")) == 0);
    CHECK(rmdir(inside("a/b")) == 0);
    CHECK_INT(entries(name), 2);
    CHECK_OK(fs_join("a", "b", &joined));
    CHECK_STR(joined, "a/b");
    mem_free(joined);
    CHECK_OK(fs_join("a/", "b", &joined));
    CHECK_STR(joined, "a/b");
    mem_free(joined);
    CHECK_OK(fs_join("a///", "b", &joined));
    CHECK_STR(joined, "a/b");
    mem_free(joined);
    CHECK_OK(fs_join("//", "b", &joined));
    CHECK_STR(joined, "/b");
    mem_free(joined);
    CHECK_OK(fs_join("", "b", &joined));
    CHECK_STR(joined, "b");
    mem_free(joined);
    leave();
}

static const struct test_case cases[] = {
    {"files_become_visible_whole", files_become_visible_whole},
    {"every_failing_call_leaves_old_or_new", every_failing_call_leaves_old_or_new},
    {"what_does_not_fit_is_cut_off", what_does_not_fit_is_cut_off},
    {"interrupted_calls_are_repeated", interrupted_calls_are_repeated},
    {"short_writes_are_continued", short_writes_are_continued},
    {"readers_read_in_pieces", readers_read_in_pieces},
    {"environment_names_calls", environment_names_calls}, /* before others have been counted */
    {"bytes_written_are_counted", bytes_written_are_counted},
    {"environment_makes_calls_fail", environment_makes_calls_fail},
    {"room_is_kept", room_is_kept},
    {"strange_targets_are_refused", strange_targets_are_refused},
    {"log_files_append", log_files_append},
    {"folders_are_made", folders_are_made},
};
TEST_MAIN(cases)
