/* SPDX-License-Identifier: Apache-2.0
 *
 * Token files that are damaged or made to deceive, texts that cannot be prepared, disks that fill
 * up. Whatever comes, the answer is an error with a message, and no file that was not there before.
 */
#include "data/data.h"
#include "data/data_file.h"
#include "data_bytes.h"
#include "data_sample.h"
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIR_NAME "data_hostile"

enum { COUNT = 21, SIZE = DATA_HEADER + 2 * COUNT };

/* Values that break sizes: around 0, 2^31, 2^32, the signed and the unsigned end. */
static const uint64_t edges[] = {
    0,           1,           2,
    3,           4,           0x7fffffff,
    0x80000000,  0x80000001,  0xffffffff,
    0x100000000, 0x100000001, (1ull << 42) + 1,
    INT64_MAX,   1ull << 63,  UINT64_MAX - 63,
    UINT64_MAX,
};
enum { EDGES = sizeof edges / sizeof *edges };

/* A good file of COUNT tokens of the bytes tokenizer. */
static void make_good(uint8_t file[SIZE])
{
    struct data_set h = {.token_bytes = 2, .vocab = 257, .count = COUNT, .tokenizer = "bytes"};
    for (int i = 0; i < COUNT; i++)
        put_le(file + DATA_HEADER + 2 * i, (uint64_t)(i * 12), 2);
    h.hash = data_hash(file + DATA_HEADER, 2 * COUNT);
    data_header_put(&h, file);
}

/* Written over in place: cutting a file to nothing first costs a flush on some file systems. */
static void put_file(const char *path, const void *p, size_t n)
{
    CHECK_OK(fs_make_dirs(DIR_NAME));
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    CHECK(fd >= 0 && pwrite(fd, p, n, 0) == (ssize_t)n && ftruncate(fd, (off_t)n) == 0);
    if (fd >= 0)
        close(fd);
}

static enum err open_bytes(const uint8_t *p, int64_t n)
{
    static const char path[] = DIR_NAME "/mutant.tok";
    struct data_set d;
    put_file(path, p, (size_t)n);
    enum err err = open_tokens(path, 4, 257, true, &d);
    if (err == ERR_OK)
        data_close(&d);
    return err;
}

/* Every field at every edge, with a header hash that is right again. */
static void test_fields(void)
{
    static const struct {
        int at, bytes;
    } field[] = {{8, 4}, {12, 4}, {16, 8}, {24, 8}, {72, 8}, {112, 8}};
    uint8_t good[SIZE];
    make_good(good);
    CHECK_OK(open_bytes(good, SIZE));
    for (size_t k = 0; k < sizeof field / sizeof *field; k++) {
        for (int e = 0; e < EDGES; e++) {
            uint8_t bad[SIZE];
            memcpy(bad, good, SIZE);
            put_le(bad + field[k].at, edges[e], field[k].bytes);
            put_sum(bad);
            if (memcmp(bad, good, SIZE) != 0)
                CHECK_ERR(open_bytes(bad, SIZE), ERR_DATA, "mutant.tok");
        }
    }
}

/* Two fields that lie together: count and bytes a token whose product wraps to the right size. */
static void test_wrapping_sizes(void)
{
    uint8_t bad[SIZE];
    make_good(bad);
    put_le(bad + 24, (1ull << 63) + COUNT, 8); /* times 2 wraps to 2 COUNT */
    put_sum(bad);
    CHECK_ERR(open_bytes(bad, SIZE), ERR_DATA, "9223372036854775829 tokens of 2 bytes");
    make_good(bad);
    memset(bad + 40, 0, 32);
    memcpy(bad + 40, "other", 5);
    put_le(bad + 12, 4, 4);
    put_le(bad + 16, 65537, 8);
    put_le(bad + 24, (1ull << 62) + COUNT / 2, 8);
    put_sum(bad);
    CHECK_ERR(open_bytes(bad, SIZE), ERR_DATA, "tokens of 4 bytes");
}

static void test_names(void)
{
    static const char *const bad_name[] = {"", "a b", "x\x1b[31m", "../x", "bytes\xc3\xa4"};
    uint8_t file[SIZE];
    for (size_t i = 0; i < sizeof bad_name / sizeof *bad_name; i++) {
        make_good(file);
        memset(file + 40, 0, 32);
        memcpy(file + 40, bad_name[i], strlen(bad_name[i]));
        put_sum(file);
        CHECK_ERR(open_bytes(file, SIZE), ERR_DATA, "tokenizer's name");
    }
    make_good(file);
    memset(file + 40, 'a', 32); /* no end */
    put_sum(file);
    CHECK_ERR(open_bytes(file, SIZE), ERR_DATA, "tokenizer's name");
    make_good(file);
    file[60] = 'x'; /* behind the end */
    put_sum(file);
    CHECK_ERR(open_bytes(file, SIZE), ERR_DATA, "tokenizer's name");
    make_good(file);
    put_le(file + 16, 300, 8);
    put_sum(file);
    CHECK_ERR(open_bytes(file, SIZE), ERR_DATA, "tokenizer bytes has 257");
}

/* Cut at every byte, and grown. */
static void test_truncation(void)
{
    uint8_t good[SIZE + 64] = {0};
    make_good(good);
    for (int n = 0; n < SIZE + 64; n++)
        if (n != SIZE)
            CHECK_ERR(open_bytes(good, n), ERR_DATA, "mutant.tok");
    CHECK_ERR(open_bytes(good, SIZE - 1), ERR_DATA,
              "says 21 tokens of 2 bytes behind a header of 128, the file has 169 bytes");
    CHECK_ERR(open_bytes((const uint8_t *)"Once upon a time", 16), ERR_DATA, "plait data prepare");
}

/* Each bit of the whole file: the hashes leave none uncovered. */
static void test_bit_flips(void)
{
    uint8_t file[SIZE];
    make_good(file);
    for (int bit = 0; bit < 8 * SIZE; bit++) {
        file[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        enum err err = open_bytes(file, SIZE);
        test_check(err == ERR_DATA || err == ERR_TOKEN, __FILE__, __LINE__, "bit %d: %d", bit,
                   (int)err);
        file[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    CHECK_OK(open_bytes(file, SIZE));
}

/* An id at the end of the vocabulary, in a file whose hashes are right. */
static void test_bad_id(void)
{
    static const char path[] = DIR_NAME "/mutant.tok";
    uint8_t file[SIZE];
    struct data_set d;
    make_good(file);
    put_le(file + DATA_HEADER + 2 * 17, 257, 2);
    put_le(file + 32, data_hash(file + DATA_HEADER, 2 * COUNT), 8);
    put_sum(file);
    CHECK_ERR(open_bytes(file, SIZE), ERR_TOKEN, "token 17 of " DIR_NAME "/mutant.tok has id 257");
    CHECK_ERR(open_tokens(path, 4, 100000, true, &d), ERR_TOKEN, "token 17");
    CHECK_OK(open_tokens(path, 4, 257, false, &d));
    int32_t x[5];
    CHECK_OK(sample_plain(&d, 3, x));
    CHECK_ERR(sample_plain(&d, 4, x), ERR_TOKEN, "token 17"); /* tokens 16 to 20 */
    data_close(&d);
}

/* Random headers: whatever is accepted keeps every rule. */
static void test_fuzz(void)
{
    uint8_t good[SIZE], bad[SIZE];
    int accepted = 0;
    make_good(good);
    for (int round = 0; round < 150000; round++) {
        struct data_set h;
        int64_t size = SIZE;
        memcpy(bad, good, SIZE);
        for (int64_t n = test_range(1, 4); n-- > 0;) {
            int at = (int)test_range(8, 119);
            if (test_random() % 2)
                bad[at] = (uint8_t)test_random();
            else
                put_le(bad + at / 8 * 8, edges[test_range(0, EDGES - 1)], 8);
        }
        if (test_random() % 8)
            put_sum(bad);
        if (test_random() % 4 == 0)
            size = test_range(0, SIZE);
        if (data_header_get("fuzz", size ? bad : NULL, size, &h) != ERR_OK)
            continue;
        accepted++;
        CHECK(h.vocab >= 1 && h.vocab <= INT32_MAX);
        CHECK(h.token_bytes == (h.vocab <= 65536 ? 2 : 4));
        CHECK(h.count >= 1 && DATA_HEADER + h.count * h.token_bytes == size);
        CHECK(strlen(h.tokenizer) >= 1 && strlen(h.tokenizer) < DATA_NAME);
    }
    CHECK(accepted > 100); /* the fuzz reaches behind the checks */
}

static void test_no_files(void)
{
    struct data_set d;
    char path[1200];
    CHECK_OK(fs_make_dirs(DIR_NAME));
    unlink(DIR_NAME "/fifo");
    CHECK(mkfifo(DIR_NAME "/fifo", 0600) == 0);
    CHECK_ERR(open_tokens(DIR_NAME "/missing", 4, 257, true, &d), ERR_DATA, "missing");
    CHECK_ERR(open_tokens(DIR_NAME, 4, 257, true, &d), ERR_DATA, "folder");
    CHECK_ERR(open_tokens(DIR_NAME "/fifo", 4, 257, true, &d), ERR_DATA, "fifo");
    CHECK_ERR(open_tokens("/dev/zero", 4, 257, true, &d), ERR_DATA, "/dev/zero");
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = '\0';
    CHECK_ERR(open_tokens(path, 4, 257, true, &d), ERR_DATA, "1199 bytes, at most 1023");
}

/* ---- preparing ---- */

static enum err prepare_with(const char *const *text, int texts, const char *out,
                             void (*progress)(void *, int64_t, int64_t))
{
    int64_t tokens;
    return data_prepare(
        &(struct data_prepare){
            .text = text, .texts = texts, .out = out, .tokenizer = "bytes", .progress = progress},
        &tokens);
}

/* How many entries the folder has (temporary files count). */
static int entries(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static void test_prepare_refusals(void)
{
    const char *text[] = {DIR_NAME "/t.txt", DIR_NAME "/empty.txt"};
    const char *out = DIR_NAME "/t.tok", *link_name = DIR_NAME "/link.txt";
    const char *none = DIR_NAME "/none.txt", *folder = DIR_NAME;
    int64_t tokens;
    put_file(text[0], "abc", 3);
    put_file(text[1], "", 0);
    unlink(out);
    unlink(link_name);
    CHECK(symlink("t.txt", link_name) == 0);
    int before = entries(DIR_NAME);
    CHECK_ERR(prepare_with(text, 0, out, NULL), ERR_CONFIG, "0 texts");
    CHECK_ERR(prepare_with(text, 2, out, NULL), ERR_DATA, "empty.txt is empty (0 bytes)");
    CHECK_ERR(prepare_with(&none, 1, out, NULL), ERR_DATA, "none.txt");
    CHECK_ERR(prepare_with(&folder, 1, out, NULL), ERR_DATA, "folder");
    CHECK_ERR(prepare_with(text, 1, text[0], NULL), ERR_CONFIG, "same file as text");
    CHECK_ERR(prepare_with(text, 1, DIR_NAME "/../data_hostile/t.txt", NULL), ERR_CONFIG, "same");
    CHECK_ERR(prepare_with(text, 1, link_name, NULL), ERR_CONFIG, "same file as text");
    CHECK_ERR(prepare_with(text, 1, DIR_NAME, NULL), ERR_STORAGE, "folder");
    CHECK_ERR(prepare_with(text, 1, DIR_NAME "/no/such/t.tok", NULL), ERR_STORAGE, "no/such");
    CHECK_ERR(data_prepare(
                  &(struct data_prepare){.text = text, .texts = 1, .out = out, .tokenizer = "gpt2"},
                  &tokens),
              ERR_TOKEN, "use bytes");
    CHECK_INT(entries(DIR_NAME), before);
    CHECK(!fs_exists(out));
    struct stat st;
    CHECK(stat(text[0], &st) == 0 && st.st_size == 3);
}

static bool file_bytes(int64_t tokens, int token_bytes, int64_t *out)
{
    return data_file_bytes(&(struct data_set){.count = tokens, .token_bytes = token_bytes}, out);
}

/* Texts that long cannot be made here; the arithmetic that stops them can be asked. */
static void test_prepare_overflow(void)
{
    int64_t bytes = -1;
    CHECK(file_bytes((INT64_MAX - DATA_HEADER) / 2, 2, &bytes));
    CHECK_INT(bytes, INT64_MAX - 1);
    CHECK(!file_bytes((INT64_MAX - DATA_HEADER) / 2 + 1, 2, &bytes));
    CHECK(!file_bytes((int64_t)1 << 62, 2, &bytes));
    CHECK(!file_bytes(((int64_t)1 << 62) + 1, 4, &bytes));
    CHECK(!file_bytes(INT64_MAX, 4, &bytes));
    CHECK(!file_bytes(-1, 2, &bytes));
    CHECK_INT(bytes, INT64_MAX - 1);
}

static void grow_text(void *arg, int64_t done, int64_t all)
{
    (void)arg;
    if (done == all / 2)
        put_file(DIR_NAME "/moving.txt", "four", 4);
}

static void change_text(void *arg, int64_t done, int64_t all)
{
    (void)arg;
    if (done == all / 2)
        put_file(DIR_NAME "/moving.txt", "abd", 3);
}

static void cut_text(void *arg, int64_t done, int64_t all)
{
    (void)arg;
    if (done < all / 2)
        CHECK(truncate(DIR_NAME "/moving.txt", 100) == 0);
}

/* A text that is cut while it is read, or changes between the passes, leaves no file with a wrong
 * hash. */
static void test_prepare_moving_text(void)
{
    const char *text = DIR_NAME "/moving.txt", *out = DIR_NAME "/moving.tok";
    unlink(out);
    put_file(text, "abc", 3);
    int before = entries(DIR_NAME);
    CHECK_ERR(prepare_with(&text, 1, out, grow_text), ERR_DATA, "had 3 bytes and has 4 now");
    put_file(text, "abc", 3);
    CHECK_ERR(prepare_with(&text, 1, out, change_text), ERR_DATA, "changed between");
    static char words[100000];
    memset(words, 'w', sizeof words);
    put_file(text, words, sizeof words);
    CHECK_ERR(prepare_with(&text, 1, out, cut_text), ERR_DATA, "it had 100000 bytes");
    CHECK_INT(entries(DIR_NAME), before);
}

/* ---- a disk that fails at the n-th call that changes it ---- */

static const struct fs_ops *real_ops;
static int calls, fail_at;

static bool fails(void)
{
    errno = ENOSPC;
    return ++calls == fail_at;
}

static int bad_open(const char *path, int flags, unsigned mode)
{
    if ((flags & O_CREAT) && fails())
        return -1;
    return real_ops->open(path, flags, mode);
}

static int64_t bad_write(int fd, const void *p, int64_t n, int64_t at)
{
    return fails() ? -1 : real_ops->write(fd, p, n, at);
}

static int bad_fsync(int fd)
{
    return fails() ? -1 : real_ops->fsync(fd);
}

static int bad_rename(const char *from, const char *to)
{
    return fails() ? -1 : real_ops->rename(from, to);
}

/* 3 MiB of tokens, so that the buffer is written out several times. */
static void test_full_disk(void)
{
    enum { TEXT = 3 << 19 };
    const char *text = DIR_NAME "/full.txt", *out = DIR_NAME "/full.tok";
    static char words[TEXT];
    int failures = 0;
    struct data_set d;
    memset(words, 'w', sizeof words);
    put_file(text, words, sizeof words);
    put_file(out, "old", 3);
    int before = entries(DIR_NAME);
    real_ops = fs_ops;
    struct fs_ops ops = *fs_ops;
    ops.open = bad_open;
    ops.write = bad_write;
    ops.fsync = bad_fsync;
    ops.rename = bad_rename;
    fs_ops = &ops;
    enum err err = ERR_STORAGE;
    for (fail_at = 1; err != ERR_OK && fail_at < 100; fail_at++) {
        struct stat st;
        calls = 0;
        err = prepare_with(&text, 1, out, NULL);
        if (err == ERR_OK)
            break;
        failures++;
        CHECK_INT(err, ERR_STORAGE);
        CHECK(strstr(err_text(), "full.tok") != NULL);
        CHECK_INT(entries(DIR_NAME), before);
        /* The old file stands; only the flush of the folder comes after the rename. */
        CHECK(stat(out, &st) == 0 && (st.st_size == 3 || strstr(err_text(), "folder")));
    }
    fs_ops = real_ops;
    CHECK_OK(err);
    CHECK(failures >= 7); /* open, writes, two flushes, rename */
    CHECK_OK(open_tokens(out, 1, 257, true, &d));
    CHECK_INT(d.count, TEXT + 1);
    data_close(&d);
}

static int prepare_call(void *arg)
{
    const char *text = DIR_NAME "/memory.txt";
    return (int)prepare_with(&text, 1, arg, NULL);
}

static void test_no_memory(void)
{
    char out[] = DIR_NAME "/memory.tok";
    int code = ERR_MEMORY, k = 0;
    put_file(DIR_NAME "/memory.txt", "abc", 3);
    unlink(out);
    for (k = 1; k < 50 && code == ERR_MEMORY; k++) {
        code = test_without_memory(k, prepare_call, out);
        CHECK(code == ERR_OK || !fs_exists(out));
    }
    CHECK_INT(code, ERR_OK);
    CHECK(k > 3);
    CHECK(fs_exists(out));
}

static const struct test_case cases[] = {
    {"fields at the edges of their types", test_fields},
    {"sizes that wrap", test_wrapping_sizes},
    {"tokenizer names", test_names},
    {"cut at every byte", test_truncation},
    {"every flipped bit is seen", test_bit_flips},
    {"an id beyond the vocabulary", test_bad_id},
    {"random headers", test_fuzz},
    {"no file, no regular file", test_no_files},
    {"prepare refuses", test_prepare_refusals},
    {"prepare counts beyond 64 bits", test_prepare_overflow},
    {"a text that changes", test_prepare_moving_text},
    {"a full disk at every call", test_full_disk},
    {"no memory at every allocation", test_no_memory},
};
TEST_MAIN(cases)
