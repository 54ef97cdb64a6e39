/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts, numbers, memory, log lines, and files under failing system calls. The file tests make each
 * call of a whole commit fail in turn and demand that the target holds the old bytes or the new
 * ones, never a mixture, and that no temporary stays behind where one can be removed.
 */
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/text.h"
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- text ---- */

static void texts_grow(void)
{
    struct text t = {0};
    char *s;
    for (int i = 0; i < 1000; i++)
        text_add(&t, "%d,", i);
    text_add_char(&t, 'x', 3);
    text_add_char(&t, 'y', 0);
    CHECK_INT(t.len, 10 + 2 * 90 + 3 * 900 + 1000 + 3);
    CHECK_OK(text_done(&t, &s));
    CHECK(strncmp(s, "0,1,2,", 6) == 0 && strcmp(s + strlen(s) - 7, "999,xxx") == 0);
    CHECK(t.s == NULL && t.len == 0);
    mem_free(s);
    CHECK_OK(text_done(&t, &s));
    CHECK_STR(s, "");
    mem_free(s);
}

static void json_strings_are_escaped(void)
{
    struct text t = {0};
    char *s;
    text_add_json(&t, "a\"b\\c\n\t\r\x01\x7f\xc3\xa9");
    CHECK_OK(text_done(&t, &s));
    CHECK_STR(s, "\"a\\\"b\\\\c\\n\\t\\r\\u0001\\u007f\xc3\xa9\"");
    mem_free(s);
}

/* Whichever allocation fails, text_done says so and nothing leaks (the sanitizer looks). The
 * counter of failing allocations runs on, so one setting serves the whole case. */
static void text_keeps_its_error(void)
{
    struct text t = {0};
    char *s = NULL;
    setenv("PLAIT_FAIL_ALLOC", "2", 1);
    text_add_char(&t, 'a', 200);
    CHECK_INT(t.err, ERR_OK);
    text_add_char(&t, 'b', 200);
    CHECK_INT(t.err, ERR_MEMORY);
    unsetenv("PLAIT_FAIL_ALLOC");
    text_add(&t, "more");
    CHECK_ERR(text_done(&t, &s), ERR_MEMORY, "a text");
    CHECK(s == NULL && t.s == NULL);
}

static const char *candidate(const void *arg, int i)
{
    const char *const *list = arg;
    return list[i];
}

static void nearest_words(void)
{
    static const char *const list[] = {"layers", "hidden", "heads", "kv_heads", "tp", "pp", "1f1b",
                                       "interleaved"};
    static const struct { const char *word, *want; } c[] = {
        {"layer", "layers"},   {"lyaers", "layers"}, {"head", "heads"}, {"kvheads", "kv_heads"},
        {"hiden", "hidden"},   {"1fb1", "1f1b"},     {"tq", "tp"},      {"pp", "pp"},
        {"interleave", "interleaved"}, {"intrelaevde", "interleaved"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        const char *got = text_nearest(c[i].word, 8, candidate, list);
        test_check(got && strcmp(got, c[i].want) == 0, __FILE__, __LINE__, "%s gave %s", c[i].word,
                   got ? got : "nothing");
    }
    CHECK(text_nearest("zebra", 8, candidate, list) == NULL);
    CHECK(text_nearest("xy", 8, candidate, list) == NULL); /* two replacements: nothing in common */
    CHECK(text_nearest("", 8, candidate, list) == NULL);
    char longest[5000];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    CHECK(text_nearest(longest, 8, candidate, list) == NULL);
}

static void numbers_as_people_read_them(void)
{
    char b[32];
    CHECK_STR(text_bytes(0, b), "0 B");
    CHECK_STR(text_bytes(1023, b), "1023 B");
    CHECK_STR(text_bytes(1536, b), "1.5 KiB");
    CHECK_STR(text_bytes(1048575, b), "1.0 MiB");
    CHECK_STR(text_bytes((int64_t)3 << 30, b), "3.0 GiB");
    CHECK_STR(text_bytes(INT64_MAX, b), "8.0 EiB");
    CHECK_STR(text_count(512, b), "512");
    CHECK_STR(text_count(9999, b), "9999");
    CHECK_STR(text_count(124439808, b), "124.4M");
    CHECK_STR(text_count(1500000000, b), "1.5B");
    CHECK_STR(text_count(999999, b), "1.0M");
    CHECK_STR(text_count(INT64_MIN, b), "-9223372.0T");
    CHECK_STR(text_seconds(0.25, b), "250 ms");
    CHECK_STR(text_seconds(3.2, b), "3.2 s");
    CHECK_STR(text_seconds(59.96, b), "1 m 00 s");
    CHECK_STR(text_seconds(125, b), "2 m 05 s");
    CHECK_STR(text_seconds(4320, b), "1 h 12 m");
    CHECK_STR(text_seconds(NAN, b), "?");
    CHECK_STR(text_seconds(-1, b), "?");
}

static void strict_numbers(void)
{
    static const char *const bad_int[] = {"", " 1", "1 ", "+", "-", "1.0", "0x1", "1_0", "1k",
                                          "9223372036854775808", "--1", "\t1"};
    static const char *const bad_real[] = {"", " 1", "1 ", ".", "e5", "1e", "1e+", "inf", "nan",
                                           "0x1", "1e999", "1..2", "-"};
    int64_t i = 0;
    double d = 0;
    for (size_t k = 0; k < sizeof bad_int / sizeof *bad_int; k++)
        test_check(!text_to_int(bad_int[k], &i), __FILE__, __LINE__, "took \"%s\"", bad_int[k]);
    for (size_t k = 0; k < sizeof bad_real / sizeof *bad_real; k++)
        test_check(!text_to_double(bad_real[k], &d), __FILE__, __LINE__, "took \"%s\"",
                   bad_real[k]);
    CHECK(text_to_int("-9223372036854775808", &i) && i == INT64_MIN);
    CHECK(text_to_int("+007", &i) && i == 7);
    CHECK(text_to_double("-1.5e-3", &d) && d == -1.5e-3);
    CHECK(text_to_double(".5", &d) && d == 0.5);
    CHECK(text_to_double("5.", &d) && d == 5);
    CHECK(text_to_double("1e-400", &d) && d == 0);
}

/* ---- numbers and memory ---- */

static void sizes_are_checked(void)
{
    static const int64_t edge[] = {0, 1, INT32_MAX, (int64_t)1 << 32, ((int64_t)1 << 42) + 1,
                                   INT64_MAX - 1, INT64_MAX, -1, INT64_MIN};
    enum { N = sizeof edge / sizeof *edge };
    for (int a = 0; a < N; a++)
        for (int b = 0; b < N; b++) {
            int64_t got = -7, x = edge[a], y = edge[b];
            bool legal = x >= 0 && y >= 0, fits = legal && (x == 0 || y <= INT64_MAX / x);
            CHECK(num_mul(x, y, &got) == fits);
            CHECK(got == (fits ? x * y : -7));
            CHECK(num_add(x, y, &got) == (legal && x <= INT64_MAX - y));
        }
    void *p = &p;
    CHECK_ERR(mem_new(INT64_MAX, 8, "a tensor", &p), ERR_MEMORY, "a tensor");
    CHECK_ERR(mem_new(-1, 1, "a tensor", &p), ERR_MEMORY, "beyond 64 bits");
    CHECK(p == &p);
}

static void arenas_hand_out_what_was_planned(void)
{
    struct arena a;
    char *x, *y, *z;
    CHECK_OK(arena_open(&a, 192, "a test"));
    CHECK_OK(arena_take(&a, 1, &x));
    CHECK_OK(arena_take(&a, 65, &y));
    CHECK_INT(y - x, 64);
    CHECK_INT((uintptr_t)x % ARENA_ALIGN, 0);
    CHECK_ERR(arena_take(&a, 1, &z), ERR_INTERNAL, "the plan gives a test 192 bytes");
    CHECK_INT(a.peak, 192);
    arena_close(&a);
}

/* The vectors that the paper's authors publish with their code (Random123, kat_vectors). */
static void philox_known_answers(void)
{
    static const struct { uint32_t c[4], k[2], want[4]; } v[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct philox got = philox4x32(v[i].c, v[i].k);
        CHECK(memcmp(got.v, v[i].want, sizeof got.v) == 0);
    }
}

static void normal_numbers_are_normal(void)
{
    enum { N = 200000 };
    double sum = 0, square = 0, fourth = 0;
    for (int64_t i = 0; i < N; i++) {
        double x = num_normal(7, 9, i);
        sum += x;
        square += x * x;
        fourth += x * x * x * x;
    }
    CHECK_NEAR(sum / N, 0, 0.01);
    CHECK_NEAR(square / N, 1, 0.02);
    CHECK_NEAR(fourth / N, 3, 0.12);
    CHECK(num_normal(7, 9, 5) == num_normal(7, 9, 5));
    CHECK(num_normal(7, 9, 5) != num_normal(8, 9, 5) && num_normal(7, 9, 5) != num_normal(7, 8, 5));
}

static void bf16_rounds_to_nearest_even(void)
{
    CHECK_INT(bf16_from_f32(1.0f), 0x3f80);
    CHECK_INT(bf16_from_f32(bf16_to_f32(0x3f80) + 0x1p-8f), 0x3f80); /* tie to even, down */
    CHECK_INT(bf16_from_f32(bf16_to_f32(0x3f81) + 0x1p-8f), 0x3f82); /* tie to even, up */
    CHECK_INT(bf16_from_f32(INFINITY), 0x7f80);
    CHECK_INT(bf16_from_f32(3.4e38f), 0x7f80);
    CHECK(isnan(bf16_to_f32(bf16_from_f32(NAN))));
    for (uint32_t b = 0; b < 65536; b++)
        if (!isnan(bf16_to_f32((uint16_t)b)))
            CHECK(bf16_from_f32(bf16_to_f32((uint16_t)b)) == b);
}

/* ---- files ---- */

static char folder[64]; /* of the running case */

static void enter(void)
{
    snprintf(folder, sizeof folder, "/tmp/plait-test-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
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
static int64_t try_write(int fd, const void *p, int64_t n)
{
    if (fails())
        return -1;
    return under->write(fd, p, short_by > 0 ? num_min(n, 1 + made_calls % short_by) : n);
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
static const struct fs_ops trying = {try_open,   try_write,  try_fsync, try_close,
                                     try_rename, try_unlink, try_mkdir, try_pread};

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
        fs_log_close(fd);
    }
    CHECK_OK(fs_map_open(&m, inside("log"), ERR_DATA));
    CHECK(m.size == 10 && memcmp(m.data, "line\nline\n", 10) == 0);
    fs_map_close(&m);
    leave();
}

static void folders_are_made_and_probed(void)
{
    char name[256], *joined;
    enter();
    CHECK_OK(fs_probe_writable(inside("a/b//c/")));
    CHECK(fs_exists(inside("a/b/c")));
    CHECK_OK(fs_make_dirs(inside("a/b")));
    CHECK_OK(save(inside("file"), 'a', 1));
    CHECK_ERR(fs_make_dirs(inside("file/d")), ERR_STORAGE, "cannot make the folder");
    CHECK_ERR(fs_probe_writable("/proc/plait"), ERR_STORAGE, "cannot make the folder /proc/plait");
    CHECK_ERR(fs_make_dirs(""), ERR_STORAGE, "without a name");
    CHECK(rmdir(inside("a/b/c")) == 0); /* so the probe left nothing in it */
    CHECK(rmdir(inside("a/b")) == 0);
    CHECK_INT(entries(name), 2);
    CHECK_OK(fs_join("a", "b", &joined));
    CHECK_STR(joined, "a/b");
    mem_free(joined);
    CHECK_OK(fs_join("a/", "b", &joined));
    CHECK_STR(joined, "a/b");
    mem_free(joined);
    CHECK_OK(fs_join("", "b", &joined));
    CHECK_STR(joined, "b");
    mem_free(joined);
    leave();
}

/* ---- log ---- */

/* What log_line writes to standard error, at a level. */
static void logged(const char *level, int rank, char *buf, size_t size)
{
    int ends[2], kept = dup(STDERR_FILENO);
    CHECK(kept >= 0 && pipe(ends) == 0);
    dup2(ends[1], STDERR_FILENO);
    setenv("PLAIT_LOG", level, 1);
    log_set_rank(rank);
    errno = 77;
    log_line(LOG_INFO, "step %d", 3);
    CHECK_INT(errno, 77);
    log_line(LOG_ERROR, "%s", "lost");
    log_set_rank(-1);
    unsetenv("PLAIT_LOG");
    dup2(kept, STDERR_FILENO);
    close(ends[1]);
    ssize_t n = read(ends[0], buf, size - 1);
    buf[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    close(kept);
}

static void log_lines_have_level_and_rank(void)
{
    char got[256];
    logged("info", 3, got, sizeof got);
    CHECK_STR(got, "plait: info: rank 3: step 3\nplait: error: rank 3: lost\n");
    logged("warn", -1, got, sizeof got);
    CHECK_STR(got, "plait: error: lost\n");
    double a = log_now(), b = log_now();
    CHECK(b >= a && b - a < 1);
}

/* ---- errors ---- */

static enum err innermost(void)
{
    FAIL(ERR_DATA, "data: %s", "gone");
}

static enum err outer(void)
{
    TRY(innermost());
    return ERR_OK;
}

static void *in_thread(void *arg)
{
    enum err err = outer();
    snprintf(arg, 64, "%d %s", (int)err, err_text());
    return NULL;
}

static void errors_belong_to_threads(void)
{
    pthread_t t;
    char other[64];
    CHECK_INT(err_adopt(ERR_PEER, "peer: mine"), ERR_PEER);
    CHECK(pthread_create(&t, NULL, in_thread, other) == 0);
    pthread_join(t, NULL);
    CHECK_STR(other, "12 data: gone");
    CHECK_STR(err_text(), "peer: mine");
    CHECK_ERR(outer(), ERR_DATA, "data: gone");
    CHECK(strstr(err_trace(), "test_base.c:") != NULL && strstr(err_trace(), " < ") != NULL);
}

static const struct test_case cases[] = {
    {"text_keeps_its_error", text_keeps_its_error}, /* first: it counts allocations */
    {"texts_grow", texts_grow},
    {"json_strings_are_escaped", json_strings_are_escaped},
    {"nearest_words", nearest_words},
    {"numbers_as_people_read_them", numbers_as_people_read_them},
    {"strict_numbers", strict_numbers},
    {"sizes_are_checked", sizes_are_checked},
    {"arenas_hand_out_what_was_planned", arenas_hand_out_what_was_planned},
    {"philox_known_answers", philox_known_answers},
    {"normal_numbers_are_normal", normal_numbers_are_normal},
    {"bf16_rounds_to_nearest_even", bf16_rounds_to_nearest_even},
    {"files_become_visible_whole", files_become_visible_whole},
    {"every_failing_call_leaves_old_or_new", every_failing_call_leaves_old_or_new},
    {"interrupted_calls_are_repeated", interrupted_calls_are_repeated},
    {"short_writes_are_continued", short_writes_are_continued},
    {"readers_read_in_pieces", readers_read_in_pieces},
    {"environment_makes_calls_fail", environment_makes_calls_fail},
    {"strange_targets_are_refused", strange_targets_are_refused},
    {"log_files_append", log_files_append},
    {"folders_are_made_and_probed", folders_are_made_and_probed},
    {"log_lines_have_level_and_rank", log_lines_have_level_and_rank},
    {"errors_belong_to_threads", errors_belong_to_threads},
};
TEST_MAIN(cases)
