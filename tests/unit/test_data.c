/* SPDX-License-Identifier: Apache-2.0
 *
 * Token files from text, their exact bytes, reading by sample, and the shuffle. Files that are
 * damaged or made to deceive are the matter of test_data_hostile.c.
 */
#include "data/data.h"
#include "data/data_file.h"
#include "data_sample.h"
#include "test.h"

#include "base/mem.h"
#include "plait.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIR "data"

static void put_file(const char *path, const void *p, size_t n)
{
    CHECK_OK(fs_make_dirs(DIR));
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(p, 1, n, f) == n && fclose(f) == 0);
}

static enum err prepare(const char *const *text, int texts, const char *out, int64_t *tokens)
{
    return data_prepare(
        &(struct data_prepare){.text = text, .texts = texts, .out = out, .tokenizer = "bytes"},
        tokens);
}

/* A token file of `count` ids id(i). */
static void put_tokens(const char *path, int64_t vocab, int64_t count, uint32_t (*id)(int64_t))
{
    struct data_set h = {.token_bytes = data_token_bytes(vocab),
                            .vocab = vocab,
                            .count = count,
                            .tokenizer = "test"};
    uint8_t *p;
    CHECK_OK(mem_new(DATA_HEADER + count * h.token_bytes, 1, "a token file", &p));
    for (int64_t i = 0; i < count; i++)
        for (int b = 0; b < h.token_bytes; b++)
            p[DATA_HEADER + i * h.token_bytes + b] = (uint8_t)(id(i) >> (8 * b));
    h.hash = data_hash(p + DATA_HEADER, count * h.token_bytes);
    data_header_put(&h, p);
    put_file(path, p, (size_t)(DATA_HEADER + count * h.token_bytes));
    mem_free(p);
}

static void test_prepare_bytes(void)
{
    const char *text[] = {DIR "/a.txt", DIR "/b.txt"}, *out = DIR "/ab.tok";
    static const uint8_t a[] = {'h', 'i', 0, 0xff}, b[] = {'\n'};
    static const uint8_t head[] = {
        'P', 'L', 'A', 'I', 'T', 'T', 'O', 'K', 1, 0, 0, 0, 2, 0, 0, 0, /* version, bytes */
        1,   1,   0,   0,   0,   0,   0,   0,   7, 0, 0, 0, 0, 0, 0, 0, /* vocab 257, count 7 */
    };
    static const uint8_t body[] = {'h', 0, 'i', 0, 0, 0, 0xff, 0, 0, 1, '\n', 0, 0, 1};
    struct fs_map m;
    int64_t tokens = -1;
    put_file(text[0], a, sizeof a);
    put_file(text[1], b, sizeof b);
    CHECK_OK(prepare(text, 2, out, &tokens));
    CHECK_INT(tokens, 7);
    CHECK_OK(fs_map_open(&m, out, ERR_DATA));
    CHECK_INT(m.size, DATA_HEADER + (int64_t)sizeof body);
    CHECK(memcmp(m.data, head, sizeof head) == 0);
    /* The two hashes were made by another program (Python's xxhash). */
    const uint64_t hash = 0xb7f72ad123dc1968, sum = 0xfe09ab1d373e2883;
    for (int i = 0; i < 8; i++) {
        CHECK_INT(m.data[32 + i], (uint8_t)(hash >> (8 * i)));
        CHECK_INT(m.data[120 + i], (uint8_t)(sum >> (8 * i)));
    }
    CHECK(memcmp(m.data + 40, "bytes", 6) == 0);
    for (int i = 45; i < 120; i++)
        CHECK_INT(m.data[i], 0);
    CHECK(memcmp(m.data + 128, body, sizeof body) == 0);
    fs_map_close(&m);
}

/* Sizes around the block of the writer and the buffer of the file. */
static void test_prepare_sizes(void)
{
    static const int64_t size[] = {1, 16383, 16384, 16385, 65536, 524287, 524288, 1048577};
    const char *text = DIR "/sizes.txt", *out = DIR "/sizes.tok";
    for (size_t k = 0; k < sizeof size / sizeof *size; k++) {
        uint8_t *p;
        int64_t tokens;
        struct data_set d;
        int32_t last[2];
        CHECK_OK(mem_new(size[k], 1, "a text", &p));
        for (int64_t i = 0; i < size[k]; i++)
            p[i] = (uint8_t)test_random();
        put_file(text, p, (size_t)size[k]);
        CHECK_OK(prepare(&text, 1, out, &tokens));
        CHECK_INT(tokens, size[k] + 1);
        CHECK_OK(open_tokens(out, 1, 257, true, &d));
        CHECK_INT(d.samples, size[k]);
        for (int64_t i = 0; i < size[k]; i++) {
            CHECK_OK(sample_plain(&d, i, last));
            if (last[0] != p[i] || last[1] != (i + 1 < size[k] ? p[i + 1] : 256))
                CHECK_INT(i, -1);
        }
        data_close(&d);
        mem_free(p);
    }
}

struct seen {
    int64_t calls, done, all;
};

static void on_progress(void *arg, int64_t done, int64_t all)
{
    struct seen *s = arg;
    CHECK(done > s->done && done <= all);
    *s = (struct seen){s->calls + 1, done, all};
}

static void test_prepare_progress(void)
{
    const char *text[] = {DIR "/p.txt", DIR "/p.txt"}; /* a text may come twice */
    static const char words[40000] = {'x'};
    struct seen seen = {0};
    int64_t tokens;
    put_file(text[0], words, sizeof words);
    CHECK_OK(data_prepare(&(struct data_prepare){.text = text,
                                                 .texts = 2,
                                                 .out = DIR "/p.tok",
                                                 .tokenizer = "bytes",
                                                 .progress = on_progress,
                                                 .arg = &seen},
                          &tokens));
    CHECK_INT(seen.done, 4 * 40000); /* two texts, read twice */
    CHECK_INT(seen.all, 4 * 40000);
    CHECK(seen.calls >= 4);
}

/* The same through the public interface, and what it asks of its caller. */
static void test_public(void)
{
    const char *text[] = {DIR "/public.txt", NULL};
    struct plait_prepare call = {
        .size = sizeof call, .text = text, .texts = 1, .out = DIR "/public.tok"};
    int64_t tokens = 0;
    struct data_set d;
    put_file(text[0], "words", 5);
    CHECK_INT(plait_data_prepare(&call, &tokens), PLAIT_OK);
    CHECK_INT(tokens, 6);
    CHECK_OK(open_tokens(call.out, 5, 257, true, &d));
    CHECK_STR(d.tokenizer, "bytes");
    data_close(&d);
    CHECK_INT(plait_data_prepare(&call, NULL), PLAIT_OK);
    call.tokenizer = "gpt2";
    CHECK_INT(plait_data_prepare(&call, &tokens), PLAIT_TOKEN);
    call.tokenizer = NULL;
    call.texts = 2;
    CHECK_INT(plait_data_prepare(&call, &tokens), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "text 2 of 2 has no name") != NULL);
    call.text = NULL;
    CHECK_INT(plait_data_prepare(&call, &tokens), PLAIT_CONFIG);
    call.out = "";
    CHECK_INT(plait_data_prepare(&call, &tokens), PLAIT_CONFIG);
    call.size += 8;
    CHECK_INT(plait_data_prepare(&call, &tokens), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "set size to sizeof") != NULL);
    CHECK_INT(tokens, 6);
}

static uint32_t ramp(int64_t i)
{
    return (uint32_t)i;
}

/* Sample s is tokens [s T, s T + T], and an epoch visits each sample once. */
static void test_samples(void)
{
    const int64_t T = 7;
    struct data_set d;
    int32_t x[8], y[8];
    put_tokens(DIR "/ramp.tok", 1000, 1000, ramp);
    CHECK_OK(open_tokens(DIR "/ramp.tok", T, 1000, true, &d));
    CHECK_INT(d.samples, 142); /* 999 / 7 */
    CHECK_STR(d.tokenizer, "test");
    for (int64_t s = 0; s < d.samples; s++) {
        CHECK_OK(sample_plain(&d, s, x));
        for (int64_t i = 0; i <= T; i++)
            CHECK_INT(x[i], s * T + i);
    }
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        bool seen[142] = {false};
        for (int64_t i = 0; i < d.samples; i++) {
            int64_t index = epoch * d.samples + i;
            int64_t s = data_permute(5, epoch, d.samples, i);
            CHECK_OK(sample_of(&d, &(uint64_t){5}, index, x));
            CHECK_OK(sample_plain(&d, s, y));
            CHECK(memcmp(x, y, sizeof x) == 0 && !seen[s]);
            seen[s] = true;
        }
    }
    data_close(&d);
    data_close(&d); /* idempotent */
}

/* Another program cuts the file, or writes to it, while it is open: an error, and whole again when
 * the file is. */
static void test_file_changes_while_open(void)
{
    enum { T = 7, COUNT = 20000 };
    const char *path = DIR "/cut.tok";
    struct data_set d;
    int32_t x[T + 1];
    int64_t n = 0;
    put_tokens(path, 20000, COUNT, ramp);
    CHECK_OK(open_tokens(path, T, 20000, true, &d));
    CHECK_OK(data_count(&d, COUNT - 1, &n));
    CHECK_INT(n, 1);
    CHECK(truncate(path, DATA_HEADER + 2 * (T * 10 + 3)) == 0);
    CHECK_OK(sample_plain(&d, 8, x));
    CHECK_INT(x[T], 9 * T);
    CHECK_ERR(sample_plain(&d, 9 + 1, x), ERR_DATA, "cut.tok: it had 40128 bytes");
    CHECK_ERR(sample_plain(&d, d.samples - 1, x), ERR_DATA, "ends before that now");
    CHECK_ERR(data_count(&d, 5, &n), ERR_DATA, "ends before that now");
    FILE *f = fopen(path, "r+b");
    CHECK(f && fseek(f, DATA_HEADER + 2 * 12, SEEK_SET) == 0 && fwrite("\xff\xff", 1, 2, f) == 2 &&
          fclose(f) == 0);
    CHECK_OK(sample_plain(&d, 0, x));
    CHECK_ERR(sample_plain(&d, 1, x), ERR_TOKEN, "token 12 of " DIR "/cut.tok has id 65535");
    put_tokens(path, 20000, COUNT, ramp);
    CHECK_OK(sample_plain(&d, d.samples - 1, x));
    data_close(&d);
}

/* The longest and the shortest sample that a file has. */
static void test_sequence_bounds(void)
{
    struct data_set d;
    put_tokens(DIR "/ten.tok", 100, 10, ramp);
    CHECK_OK(open_tokens(DIR "/ten.tok", 9, 100, true, &d));
    CHECK_INT(d.samples, 1);
    data_close(&d);
    CHECK_ERR(open_tokens(DIR "/ten.tok", 10, 100, true, &d), ERR_DATA, "set model.seq to 9 or");
    CHECK_ERR(open_tokens(DIR "/ten.tok", INT64_MAX, 100, true, &d), ERR_DATA, "10 tokens");
    CHECK_ERR(open_tokens(DIR "/ten.tok", 5, 99, true, &d), ERR_TOKEN, "model.vocab to 100 or");
}

static uint32_t wide(int64_t i)
{
    static const uint32_t id[] = {0, 65535, 65536, 65537, 0x7ffffffe, 1};
    return id[i];
}

/* Ids around 2^16 keep their upper bits; the type follows the vocabulary. */
static void test_wide_ids(void)
{
    struct data_set d;
    int32_t x[6];
    put_tokens(DIR "/wide.tok", INT32_MAX, 6, wide);
    CHECK_OK(open_tokens(DIR "/wide.tok", 5, INT32_MAX, true, &d));
    CHECK_INT(d.token_bytes, 4);
    CHECK_OK(sample_plain(&d, 0, x));
    for (int i = 0; i < 6; i++)
        CHECK_INT(x[i], wide(i));
    data_close(&d);
    put_tokens(DIR "/wide.tok", 65536, 2, wide);
    CHECK_OK(open_tokens(DIR "/wide.tok", 1, 65536, true, &d));
    CHECK_INT(d.token_bytes, 2);
    CHECK_OK(sample_plain(&d, 0, x));
    CHECK_INT(x[1], 65535);
    data_close(&d);
    put_tokens(DIR "/wide.tok", 65537, 3, wide); /* one id more than two bytes hold */
    CHECK_OK(open_tokens(DIR "/wide.tok", 2, 65537, true, &d));
    CHECK_INT(d.token_bytes, 4);
    CHECK_OK(sample_plain(&d, 0, x));
    CHECK_INT(x[2], 65536);
    data_close(&d);
}

/* Every id of the vocabulary comes, none beyond it, about equally often; a seed fixes the file. */
static void test_random_tokens(void)
{
    enum { VOCAB = 7, TOKENS = 40000 }; /* more than two blocks */
    int32_t x[TOKENS];
    int64_t seen[VOCAB] = {0};
    struct data_set d;
    uint64_t hash;
    CHECK_OK(fs_make_dirs(DIR));
    CHECK_INT(plait_data_random(DIR "/random.tok", VOCAB, TOKENS, 5), PLAIT_OK);
    CHECK_OK(open_tokens(DIR "/random.tok", TOKENS - 1, VOCAB, true, &d));
    CHECK_STR(d.tokenizer, "random");
    CHECK_OK(sample_plain(&d, 0, x));
    for (int i = 0; i < TOKENS; i++)
        seen[x[i]]++;
    for (int i = 0; i < VOCAB; i++) /* five standard deviations */
        CHECK_NEAR((double)seen[i], TOKENS / 7.0, 5 * 70.0);
    hash = d.hash;
    data_close(&d);
    CHECK_INT(plait_data_random(DIR "/random.tok", VOCAB, TOKENS, 6), PLAIT_OK);
    CHECK_OK(open_tokens(DIR "/random.tok", 1, VOCAB, true, &d));
    CHECK(d.hash != hash);
    data_close(&d);
    CHECK_INT(plait_data_random("", VOCAB, TOKENS, 6), PLAIT_CONFIG);
    CHECK_INT(plait_data_random(DIR "/none.tok", 0, TOKENS, 6), PLAIT_CONFIG);
    CHECK_INT(plait_data_random(DIR "/none.tok", 70000, INT64_MAX / 2, 6), PLAIT_CONFIG);
    CHECK(!fs_exists(DIR "/none.tok"));
}

/* A file beyond 2^31 tokens and 2^32 bytes, sparse: the last sample lies where it should. */
static void test_beyond_32_bits(void)
{
    const int64_t count = ((int64_t)1 << 31) + 1001;
    const char *path = DIR "/sparse.tok";
    struct data_set h = {.token_bytes = 2, .vocab = 257, .count = count, .tokenizer = "bytes"};
    uint8_t head[DATA_HEADER], tail[2000];
    struct data_set d;
    int32_t x[1001];
    CHECK_OK(fs_make_dirs(DIR));
    data_header_put(&h, head);
    for (int i = 0; i < 2000; i++)
        tail[i] = (uint8_t)(i % 2 ? 0 : i / 2 % 251);
    FILE *f = fopen(path, "wb");
    CHECK(f != NULL);
    bool made = f && fwrite(head, sizeof head, 1, f) == 1 &&
                fseeko(f, DATA_HEADER + 2 * (count - 1000), SEEK_SET) == 0 &&
                fwrite(tail, sizeof tail, 1, f) == 1;
    if (f && fclose(f) != 0)
        made = false;
    if (!made) {
        unlink(path);
        test_skip("the file system makes no sparse file of 4 GiB");
        return;
    }
    CHECK_OK(open_tokens(path, 1000, 257, false, &d));
    CHECK_INT(d.samples, (count - 1) / 1000);
    CHECK_OK(sample_plain(&d, d.samples - 1, x));
    int64_t first = (d.samples - 1) * 1000 - (count - 1000); /* place in the tail; may be below 0 */
    for (int64_t i = 0; i <= 1000; i++)
        CHECK_INT(x[i], first + i < 0 ? 0 : (first + i) % 251);
    data_close(&d);
    unlink(path);
}

/* ---- the shuffle ---- */

static void test_permutation(void)
{
    for (int64_t n = 1; n <= 2000; n++) {
        bool seen[2000] = {false};
        int64_t bad = 0, epoch = n % 3;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = data_permute(11 * (uint64_t)n, epoch, n, i);
            if (at < 0 || at >= n || seen[at])
                bad++;
            else
                seen[at] = true;
        }
        CHECK_INT(bad, 0);
    }
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Domains that cannot be gone through: in range, and no two places with one sample. */
static void test_permutation_large(void)
{
    static const int64_t size[] = {((int64_t)1 << 31) + 1, 1000000000000, (int64_t)1 << 62,
                                   ((int64_t)1 << 62) + 1, INT64_MAX};
    enum { N = 4000 };
    for (size_t k = 0; k < sizeof size / sizeof *size; k++) {
        int64_t at[N];
        for (int64_t i = 0; i < N; i++) {
            at[i] = data_permute(3, (int64_t)k << 40, size[k], i < N / 2 ? i : size[k] - i);
            CHECK(at[i] >= 0 && at[i] < size[k]);
        }
        qsort(at, N, sizeof *at, compare);
        for (int i = 1; i < N; i++)
            CHECK(at[i - 1] != at[i]);
    }
}

/* Over many epochs each of the 24 orders of four samples comes about as often, and so for six of
 * three, 120 of five. Chi-square with 23, 5, 119 degrees of freedom: the bounds are its 1 - 1e-6
 * points. */
static void test_permutation_uniform(void)
{
    static const int orders[] = {6, 24, 120};
    static const double bound[] = {35.9, 71.5, 208.5};
    for (int k = 0; k < 3; k++) {
        int64_t n = k + 3, epochs = 200 * orders[k];
        int count[3125] = {0};
        double chi = 0.0, want = 200.0;
        int kinds = 0;
        for (int64_t e = 0; e < epochs; e++) {
            int64_t code = 0;
            for (int64_t i = 0; i < n; i++)
                code = code * n + data_permute(1, e, n, i);
            count[code]++;
        }
        for (int i = 0; i < 3125; i++)
            if (count[i]) {
                kinds++;
                chi += (count[i] - want) * (count[i] - want) / want;
            }
        CHECK_INT(kinds, orders[k]);
        test_check(chi < bound[k], __FILE__, __LINE__, "n %lld: chi-square %g, bound %g",
                   (long long)n, chi, bound[k]);
    }
}

/* The order is part of what a checkpoint means: it must never change between versions. */
static void test_permutation_golden(void)
{
    static const int64_t want[2][8] = {
        {4, 1, 0, 6, 2, 7, 3, 5},
        {88105, 17795, 142657, 674277, 219806, 163717, 23919, 955504},
    };
    for (int64_t i = 0; i < 8; i++) {
        CHECK_INT(data_permute(42, 0, 8, i), want[0][i]);
        CHECK_INT(data_permute(42, 7, 1000003, i), want[1][i]);
    }
    int same = 0;
    for (int64_t i = 0; i < 1000; i++)
        same += data_permute(42, 0, 1000, i) == data_permute(42, 1, 1000, i);
    CHECK(same < 12); /* 1 expected */
    same = 0;
    for (int64_t i = 0; i < 1000; i++)
        same += data_permute(42, 0, 1000, i) == data_permute(43, 0, 1000, i);
    CHECK(same < 12);
    same = 0;
    for (int64_t i = 0; i < 1000; i++)
        same += data_permute(42, 5, 1000, i) == data_permute(42, ((int64_t)1 << 32) + 5, 1000, i);
    CHECK(same < 12);
}

/* ---- tokenizers ---- */

static void test_tokenizer(void)
{
    int32_t *id;
    int64_t n;
    char text[256], out[64];
    for (int i = 0; i < 256; i++)
        text[i] = (char)(uint8_t)i;
    CHECK_OK(tokenizer_encode("bytes", text, 256, &id, &n));
    CHECK_INT(n, 256);
    for (int i = 0; i < 256; i++) {
        CHECK_INT(id[i], i);
        CHECK_INT(tokenizer_decode("bytes", id[i], out), 1);
        CHECK(out[0] == text[i]);
    }
    mem_free(id);
    CHECK_OK(tokenizer_encode("bytes", "", 0, &id, &n));
    CHECK_INT(n, 0);
    mem_free(id);
    CHECK_INT(tokenizer_decode("bytes", 256, out), 0);
    CHECK_INT(tokenizer_decode("bytes", 257, out), 0);
    CHECK_INT(tokenizer_decode("bytes", -1, out), 0);
    CHECK_INT(tokenizer_vocab("bytes"), 257);
    CHECK_INT(tokenizer_end("bytes"), 256);
    CHECK_INT(tokenizer_vocab("bits"), 0);
    CHECK_INT(tokenizer_end("bits"), -1);
    CHECK(tokenizer_hash("bits") == 0);
    CHECK(tokenizer_hash("bytes") == 0xb6fe83eecbf9b5b0u); /* stands in the weights of runs */
    CHECK_OK(tokenizer_check("bytes", 257));
    CHECK_ERR(tokenizer_check("bytes", 256), ERR_TOKEN, "set model.vocab to 257 or more");
    CHECK_ERR(tokenizer_check("bits", 257), ERR_TOKEN, "use bytes");
    CHECK_ERR(tokenizer_encode("bits", "", 0, &id, &n), ERR_TOKEN, "bits");
}

static const struct test_case cases[] = {
    {"prepare writes these bytes", test_prepare_bytes},
    {"prepare around block sizes", test_prepare_sizes},
    {"prepare tells its progress", test_prepare_progress},
    {"prepare by plait.h", test_public},
    {"samples in order and shuffled", test_samples},
    {"file_changes_while_open", test_file_changes_while_open},
    {"sequence and vocabulary bounds", test_sequence_bounds},
    {"ids around 2^16", test_wide_ids},
    {"random tokens", test_random_tokens},
    {"a file beyond 32 bits", test_beyond_32_bits},
    {"permutation for 1..2000", test_permutation},
    {"permutation of large domains", test_permutation_large},
    {"permutation is uniform", test_permutation_uniform},
    {"permutation never changes", test_permutation_golden},
    {"tokenizer bytes", test_tokenizer},
};
TEST_MAIN(cases)
