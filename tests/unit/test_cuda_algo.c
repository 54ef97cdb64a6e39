/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of choices of algorithms: what is written is read again; damaged and hostile lines are
 * passed over and spoil no other; of two writers the first one's choice holds for both, and nothing
 * that a writer wrote is lost, be they tables of one process or processes that write at once.
 */
#include "device/cuda/cuda_algo.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/num.h"
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char folder[] = "choices";
static char path[128];

static void enter(void)
{
    setenv("PLAIT_LOG", "error", 0); /* broken lines are what these cases are about */
    CHECK(mkdir(folder, 0777) == 0);
    snprintf(path, sizeof path, "%s/gemm-A_GPU-7.txt", folder);
}

static void leave(void)
{
    (void)remove(path);
    CHECK(rmdir(folder) == 0);
}

static struct cuda_algos *opened(void)
{
    struct cuda_algos *a = NULL;
    CHECK_OK(cuda_algos_open(folder, "A GPU", 7, &a));
    return a;
}

static struct cuda_algo_key key_of(int64_t m)
{
    return (struct cuda_algo_key){m, 768, 50304, 768, 50304, 768, 37, 444440};
}

static struct cuda_algo_choice choice_of(int64_t way)
{
    return (struct cuda_algo_choice){way, {66, 20, 3, 2, 1, 0, 36, 0, 5}, 123.5};
}

static int64_t way_of(struct cuda_algos *a, int64_t m)
{
    struct cuda_algo_key k = key_of(m);
    const struct cuda_algo_choice *c = cuda_algos_find(a, &k);
    return c ? c->way : 0;
}

/* The way that holds for m after `way` was offered. */
static int64_t offered(struct cuda_algos *a, int64_t m, int64_t way)
{
    struct cuda_algo_key k = key_of(m);
    struct cuda_algo_choice c = choice_of(way), held;
    cuda_algos_offer(a, &k, &c, &held);
    return held.way;
}

static void add_bytes(const void *p, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    CHECK(fd >= 0 && write(fd, p, n) == (ssize_t)n);
    if (fd >= 0)
        close(fd);
}

/* A line with `body` before a right check. */
static void add_line(const char *body)
{
    char line[1024];
    int n = snprintf(line, sizeof line, "%s %016llx\n", body,
                     (unsigned long long)num_hash(body));
    add_bytes(line, (size_t)n);
}

static void test_again(void)
{
    enter();
    struct cuda_algos *a = opened();
    CHECK_INT(way_of(a, 1), 0);
    CHECK_INT(offered(a, 1, 2), 2);
    CHECK_INT(offered(a, INT64_MAX, 1), 1);
    cuda_algos_close(a);
    a = opened();
    CHECK_INT(way_of(a, 1), 2);
    CHECK_INT(way_of(a, INT64_MAX), 1);
    struct cuda_algo_key k = key_of(1);
    struct cuda_algo_choice want = choice_of(2);
    const struct cuda_algo_choice *got = cuda_algos_find(a, &k);
    CHECK(got && memcmp(got->settings, want.settings, sizeof want.settings) == 0);
    CHECK(got && got->us == 123.5);
    k.align++;
    CHECK(cuda_algos_find(a, &k) == NULL);
    cuda_algos_close(a);
    leave();
}

static void test_right_form(void)
{
    enter();
    add_line("algo1 9 768 50304 768 50304 768 37 444440 3 1 2 3 4 5 6 7 8 9 1.5");
    struct cuda_algos *a = opened();
    CHECK_INT(way_of(a, 9), 3);
    cuda_algos_close(a);
    leave();
}

/* Each line is wrong in one thing and has a right check; the line of test_right_form is right. */
static void test_hostile(void)
{
    static const char *const bad[] = {
        "algo2 9 768 50304 768 50304 768 37 444440 3 1 2 3 4 5 6 7 8 9 1.5",
        "algo1 0 768 50304 768 50304 768 37 444440 3 1 2 3 4 5 6 7 8 9 1.5",
        "algo1 9 -768 50304 768 50304 768 37 444440 3 1 2 3 4 5 6 7 8 9 1.5",
        "algo1 9 768 50304 768 50304 0 37 444440 3 1 2 3 4 5 6 7 8 9 1.5",
        "algo1 9 768 50304 768 50304 768 -1 444440 3 1 2 3 4 5 6 7 8 9 1.5",
        "algo1 9 768 50304 768 50304 768 37 444440 0 1 2 3 4 5 6 7 8 9 1.5",
        "algo1 9 768 50304 768 50304 768 37 444440 3 -1 2 3 4 5 6 7 8 9 1.5",
        "algo1 9 768 50304 768 50304 768 37 444440 3 1 2 3 4 5 6 7 8 2147483648 1.5",
        "algo1 9 768 50304 768 50304 768 37 444440 3 1 2 3 4 5 6 7 8 9 nan",
        "algo1 9 768 50304 768 50304 768 37 444440 3 1 2 3 4 5 6 7 8 9 -1",
        "algo1 9 768 50304 768 50304 768 37 444440 3 1 2 3 4 5 6 7 8 1.5",
        "algo1 9 768 50304 768 50304 768 37 444440 3 1 2 3 4 5 6 7 8 9 1.5 1.5",
        "algo1  9 768 50304 768 50304 768 37 444440 3 1 2 3 4 5 6 7 8 9 1.5",
        "algo1 99999999999999999999 768 50304 768 50304 768 37 444440 3 1 2 3 4 5 6 7 8 9 1.5",
        "algo1 9e0 768 50304 768 50304 768 37 444440 3 1 2 3 4 5 6 7 8 9 1.5",
        "", " ", "algo1",
    };
    enter();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        add_line(bad[i]);
    char deep[700];
    memset(deep, '1', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    add_line(deep);
    add_bytes("\0\n\n 0123456789abcdef\n", 21);
    struct cuda_algos *a = opened();
    CHECK_INT(way_of(a, 9), 0);
    CHECK_INT(offered(a, 9, 1), 1);
    cuda_algos_close(a);
    a = opened();
    CHECK_INT(way_of(a, 9), 1);
    cuda_algos_close(a);
    leave();
}

/* A choice stays when any one byte of another line is changed, and a changed line is not read. */
static void test_damage(void)
{
    static char file[4096];
    enter();
    struct cuda_algos *a = opened();
    offered(a, 1, 1);
    offered(a, 2, 2);
    cuda_algos_close(a);
    int fd = open(path, O_RDONLY);
    ssize_t size = read(fd, file, sizeof file);
    close(fd);
    CHECK(size > 100 && size < 4096);
    char *second = strstr(file + 1, "\n\n");
    for (char *p = file + 1; second && p < second; p++) {
        char was = *p;
        *p = (char)(was ^ (1 << test_range(0, 6)));
        fd = open(path, O_WRONLY); /* of the same size: no need to cut it */
        CHECK(fd >= 0 && write(fd, file, (size_t)size) == size);
        close(fd);
        *p = was;
        a = opened();
        CHECK_INT(way_of(a, 1), 0);
        CHECK_INT(way_of(a, 2), 2);
        cuda_algos_close(a);
    }
    leave();
}

/* What a crash cut short does not spoil the line that is written behind it. */
static void test_cut(void)
{
    enter();
    add_bytes("algo1 9 768 50", 14);
    struct cuda_algos *a = opened();
    CHECK_INT(offered(a, 1, 2), 2);
    cuda_algos_close(a);
    a = opened();
    CHECK_INT(way_of(a, 1), 2);
    cuda_algos_close(a);
    leave();
}

/* Lines that `what` puts on standard error. */
static int words_of(void (*what)(struct cuda_algos *a), struct cuda_algos *a)
{
    char said[1024] = "";
    int lines = 0, fd = open("said", O_RDWR | O_CREAT | O_TRUNC, 0600), old = dup(STDERR_FILENO);
    CHECK(fd >= 0 && old >= 0);
    setenv("PLAIT_LOG", "warn", 1);
    dup2(fd, STDERR_FILENO);
    what(a);
    dup2(old, STDERR_FILENO);
    setenv("PLAIT_LOG", "error", 1);
    CHECK(pread(fd, said, sizeof said - 1, 0) >= 0);
    for (const char *p = said; (p = strchr(p, '\n')); p++)
        lines++;
    close(old);
    close(fd);
    CHECK(remove("said") == 0);
    return lines;
}

static void open_again(struct cuda_algos *none)
{
    (void)none;
    cuda_algos_close(opened());
}

/* A last line without an end is one that another rank is writing: no word about it. When it has got
 * its end like that, it is a broken one. */
static void test_half_written(void)
{
    enter();
    struct cuda_algos *a = opened();
    CHECK_INT(offered(a, 1, 2), 2);
    cuda_algos_close(a);
    add_bytes("\nalgo1 9 768 50", 15);
    CHECK_INT(words_of(open_again, NULL), 0);
    add_bytes("\n", 1);
    CHECK_INT(words_of(open_again, NULL), 1);
    leave();
}

static void test_first_holds(void)
{
    enter();
    struct cuda_algos *a = opened(), *b = opened();
    CHECK_INT(offered(a, 1, 1), 1);
    CHECK_INT(offered(b, 2, 3), 3);
    CHECK_INT(offered(b, 1, 2), 1);
    CHECK_INT(offered(a, 2, 4), 3);
    CHECK_INT(way_of(b, 1), 1);
    cuda_algos_close(a);
    cuda_algos_close(b);
    a = opened();
    CHECK_INT(way_of(a, 1), 1);
    CHECK_INT(way_of(a, 2), 3);
    cuda_algos_close(a);
    leave();
}

enum { WRITERS = 4, SHAPES = 40 };

/* Each writer's exit status is 0 when all choices held are those that stand in the file. */
static void write_all(int64_t writer)
{
    struct cuda_algos *a = opened();
    int64_t held[SHAPES];
    bool good = a != NULL;
    for (int64_t i = 0; good && i < SHAPES; i++) {
        int64_t m = 1 + (i + writer * 7) % SHAPES;
        held[m - 1] = offered(a, m, writer + 1);
    }
    struct cuda_algos *again = opened();
    for (int64_t m = 1; good && m <= SHAPES; m++)
        good = way_of(again, m) == held[m - 1];
    _exit(good ? 0 : 1);
}

static void test_writers(void)
{
    enter();
    for (int64_t i = 0; i < WRITERS; i++) {
        pid_t pid = fork();
        if (pid == 0)
            write_all(i);
        CHECK(pid > 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        int status = -1;
        CHECK(wait(&status) > 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    struct cuda_algos *a = opened();
    for (int64_t m = 1; m <= SHAPES; m++)
        CHECK(way_of(a, m) >= 1 && way_of(a, m) <= WRITERS);
    cuda_algos_close(a);
    leave();
}

/* Without a folder, with a file in its place, and with a file too large to be ours: choices hold
 * for the run all the same. */
static void test_no_file(void)
{
    struct cuda_algos *a;
    CHECK_OK(cuda_algos_open(NULL, "A GPU", 7, &a));
    CHECK_INT(offered(a, 1, 2), 2);
    CHECK_INT(way_of(a, 1), 2);
    cuda_algos_close(a);
    enter();
    CHECK_OK(fs_put(path, "x", 1));
    CHECK_OK(cuda_algos_open(path, "A GPU", 7, &a));
    CHECK_INT(offered(a, 1, 2), 2);
    CHECK_INT(way_of(a, 1), 2);
    cuda_algos_close(a);
    CHECK(truncate(path, CUDA_ALGO_BYTES + 1) == 0);
    a = opened();
    CHECK_INT(offered(a, 1, 2), 2);
    cuda_algos_close(a);
    struct stat st;
    CHECK(stat(path, &st) == 0 && st.st_size == CUDA_ALGO_BYTES + 1);
    leave();
}

/* ---- as text ---- */

static const int64_t versions[2] = {130100, 91900};

static void use(struct cuda_algos *a, int64_t m, int64_t way)
{
    struct cuda_algo_key k = key_of(m);
    struct cuda_algo_choice c = choice_of(way);
    cuda_algos_use(a, &k, &c);
}

static void offer_and_use(struct cuda_algos *a, int64_t m, int64_t way)
{
    use(a, m, offered(a, m, way));
}

/* A table without a file; its choices of m 1 to n have these ways. */
static struct cuda_algos *table_of(int n, int64_t way)
{
    struct cuda_algos *a = NULL;
    CHECK_OK(cuda_algos_open(NULL, "A GPU", 7, &a));
    for (int m = 1; m <= n; m++)
        offer_and_use(a, m, way);
    return a;
}

static char *print(const struct cuda_algos *a, const char *gpu)
{
    struct text t = {0};
    char *s = NULL;
    cuda_algos_print(a, gpu, versions, &t);
    CHECK_OK(text_done(&t, &s));
    return s;
}

/* What is printed holds over what was there before and what is offered later; of another GPU or
 * version nothing does; of several runs' text its own part. */
static void test_text(void)
{
    static const int64_t other[2] = {130100, 91901};
    struct cuda_algo_choice mine = choice_of(3), held;
    struct cuda_algo_key k = key_of(9);
    struct cuda_algos *from = table_of(20, 2), *to = table_of(5, 1);
    char *s = print(from, "A GPU"), *t = print(to, "B GPU"), both[16384];
    snprintf(both, sizeof both, "%s%s", t, s);
    CHECK(strncmp(s, "choices A GPU 130100 91900\nalgo1 1 768 ", 39) == 0);
    CHECK_INT(cuda_algos_take(to, "B GPU", versions, s), 0);
    CHECK_INT(cuda_algos_take(to, "A GPU", other, s), 0);
    CHECK_INT(way_of(to, 1), 1);
    CHECK_INT(cuda_algos_take(to, "A GPU", versions, both), 20);
    for (int m = 1; m <= 20; m++)
        CHECK_INT(way_of(to, m), 2);
    cuda_algos_offer(to, &k, &mine, &held);
    CHECK_INT(held.way, 2);
    mem_free(s);
    mem_free(t);
    cuda_algos_close(from);
    cuda_algos_close(to);
}

/* A choice that was read and not used is no run's. */
static void test_used(void)
{
    struct cuda_algos *a = table_of(4, 2), *b = NULL;
    char *s = print(a, "A GPU"), *t;
    CHECK_OK(cuda_algos_open(NULL, "A GPU", 7, &b));
    CHECK_INT(cuda_algos_take(b, "A GPU", versions, s), 4);
    t = print(b, "A GPU");
    CHECK_STR(t, "");
    mem_free(t);
    CHECK_INT(way_of(b, 3), 2); /* to ask is not to use */
    t = print(b, "A GPU");
    CHECK_STR(t, "");
    mem_free(t);
    use(b, 3, 2);
    t = print(b, "A GPU");
    CHECK(strstr(t, "algo1 3 768") && !strstr(t, "algo1 2 768"));
    mem_free(t);
    mem_free(s);
    cuda_algos_close(a);
    cuda_algos_close(b);
}

/* Runs that chose the same have the same text, however they measured and in what order. */
static void test_equal(void)
{
    struct cuda_algos *a = table_of(20, 2), *b = NULL;
    char *s = print(a, "A GPU"), *t;
    CHECK_OK(cuda_algos_open(NULL, "A GPU", 7, &b));
    for (int m = 20; m > 0; m--) {
        struct cuda_algo_key k = key_of(m);
        struct cuda_algo_choice mine = choice_of(2), held;
        mine.us += m;
        cuda_algos_offer(b, &k, &mine, &held);
        cuda_algos_use(b, &k, &held);
    }
    t = print(b, "A GPU");
    CHECK_STR(t, s);
    mem_free(s);
    mem_free(t);
    cuda_algos_close(a);
    cuda_algos_close(b);
}

static void use_others(struct cuda_algos *a)
{
    use(a, 1, 4);
    use(a, 2, 5);
}

/* What the library does not propose any more gives way to what is done instead, for this run and
 * its checkpoints; the file keeps it. Of a checkpoint's it is said, once. */
static void test_stale(void)
{
    enter();
    struct cuda_algos *a = opened();
    CHECK_INT(offered(a, 1, 2), 2);
    CHECK_INT(offered(a, 2, 2), 2);
    cuda_algos_close(a);
    a = opened();
    CHECK_INT(words_of(use_others, a), 0);
    CHECK_INT(way_of(a, 1), 4);
    CHECK_INT(offered(a, 3, 1), 1); /* reads the file once more */
    CHECK_INT(way_of(a, 1), 4);
    struct cuda_algos *want = table_of(1, 4);
    use(want, 2, 5);
    char *s = print(a, "A GPU"), *t = print(want, "A GPU");
    CHECK_STR(s, t);
    mem_free(t);
    cuda_algos_close(a);
    a = opened();
    CHECK_INT(way_of(a, 1), 2);
    CHECK_INT(cuda_algos_take(a, "A GPU", versions, s), 2);
    CHECK_INT(words_of(use_others, a), 0); /* these are the checkpoint's */
    cuda_algos_close(a);
    cuda_algos_close(want);
    want = table_of(2, 1);
    t = print(want, "A GPU");
    a = opened();
    CHECK_INT(cuda_algos_take(a, "A GPU", versions, t), 2);
    CHECK_INT(words_of(use_others, a), 1);
    mem_free(s);
    mem_free(t);
    s = print(a, "A GPU");
    CHECK(strstr(s, "algo1 1 768 50304 768 50304 768 37 444440 4 ") &&
          strstr(s, "algo1 2 768 50304 768 50304 768 37 444440 5 "));
    mem_free(s);
    cuda_algos_close(a);
    cuda_algos_close(want);
    leave();
}

static void use_two_more(struct cuda_algos *a)
{
    use(a, CUDA_ALGO_ROWS + 1, 3);
    use(a, CUDA_ALGO_ROWS + 2, 3);
}

/* Of more choices than the table holds those stay that the run uses, or its checkpoint has; where
 * all are such, further ones are of this run alone, and that is said once. */
static void test_full(void)
{
    struct cuda_algos *a, *b = table_of(CUDA_ALGO_ROWS, 2);
    CHECK_OK(cuda_algos_open(NULL, "A GPU", 7, &a));
    for (int64_t m = 1; m <= CUDA_ALGO_ROWS + 2; m++) /* as of a file */
        CHECK_INT(offered(a, m + 5000, 1 + m % 5), 1 + m % 5);
    CHECK_INT(way_of(a, 5000 + CUDA_ALGO_ROWS), 1 + CUDA_ALGO_ROWS % 5);
    CHECK_INT(way_of(a, 5001 + CUDA_ALGO_ROWS), 0);
    CHECK_INT(words_of(use_two_more, a), 0);
    CHECK_INT(way_of(a, CUDA_ALGO_ROWS + 1), 3);
    CHECK_INT(way_of(a, CUDA_ALGO_ROWS + 2), 3);
    cuda_algos_close(a);
    CHECK_INT(words_of(use_two_more, b), 1);
    CHECK_INT(way_of(b, CUDA_ALGO_ROWS), 2);
    CHECK_INT(way_of(b, CUDA_ALGO_ROWS + 1), 0);
    char *s = print(b, "A GPU"), *t;
    CHECK_OK(cuda_algos_open(NULL, "A GPU", 7, &a));
    for (int64_t m = 1; m <= CUDA_ALGO_ROWS; m++)
        offered(a, m + 5000, 1);
    CHECK_INT(cuda_algos_take(a, "A GPU", versions, s), CUDA_ALGO_ROWS);
    for (int64_t m = 1; m <= CUDA_ALGO_ROWS; m++) {
        CHECK_INT(way_of(a, m), 2);
        use(a, m, 2);
    }
    t = print(a, "A GPU");
    CHECK_STR(t, s);
    cuda_algos_close(b);
    b = table_of(1, 1);
    CHECK_INT(cuda_algos_take(b, "A GPU", versions, s), CUDA_ALGO_ROWS);
    use(b, CUDA_ALGO_ROWS + 1, 3);
    mem_free(t);
    t = print(b, "A GPU");
    CHECK_STR(t, ""); /* no room for the one that was used */
    mem_free(s);
    mem_free(t);
    cuda_algos_close(a);
    cuda_algos_close(b);
}

/* Damaged anywhere, it gives what it says or nothing. */
static void test_text_damage(void)
{
    struct cuda_algos *from = table_of(6, 2);
    char *s = print(from, "A GPU");
    int64_t n = (int64_t)strlen(s);
    for (int round = 0; round < 2000; round++) {
        struct cuda_algos *to = NULL;
        int64_t at = test_range(0, n - 1);
        char was = s[at];
        s[at] = (char)test_range(round % 2 ? 1 : 9, round % 2 ? 255 : 10);
        CHECK_OK(cuda_algos_open(NULL, "A GPU", 7, &to));
        int64_t taken = cuda_algos_take(to, "A GPU", versions, s);
        CHECK(taken == 0 || taken >= 4);
        for (int m = 1; m <= 6; m++)
            CHECK(way_of(to, m) == 0 || way_of(to, m) == 2);
        cuda_algos_close(to);
        s[at] = was;
    }
    mem_free(s);
    cuda_algos_close(from);
}

static const struct test_case cases[] = {
    {"choices as text hold", test_text},
    {"what was used is printed", test_used},
    {"equal choices are equal texts", test_equal},
    {"a stale choice gives way", test_stale},
    {"damaged text", test_text_damage},
    {"what is written is read again", test_again},
    {"a line of the right form is read", test_right_form},
    {"hostile lines are passed over", test_hostile},
    {"a damaged line spoils no other", test_damage},
    {"a line cut short spoils no other", test_cut},
    {"a line half written is no broken one", test_half_written},
    {"the first choice holds for all", test_first_holds},
    {"processes that write at once agree", test_writers},
    {"without a file choices hold for the run", test_no_file},
    {"a full table", test_full},
};
TEST_MAIN(cases)
