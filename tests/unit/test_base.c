/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts, numbers, memory, log lines, and errors.
 */
#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/text.h"
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
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

static const char *nearest(const char *word)
{
    static const char *const list[] = {"layers", "hidden", "heads", "kv_heads", "tp", "pp", "1f1b",
                                       "interleaved"};
    struct text_near near = {0};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        text_near(&near, word, list[i]);
    return near.found;
}

static void nearest_words(void)
{
    static const struct { const char *word, *want; } c[] = {
        {"layer", "layers"},   {"lyaers", "layers"}, {"head", "heads"}, {"kvheads", "kv_heads"},
        {"hiden", "hidden"},   {"1fb1", "1f1b"},     {"tq", "tp"},      {"pp", "pp"},
        {"qp", "tp"}, /* of equals the first */
        {"interleave", "interleaved"}, {"intrelaevde", "interleaved"},
        {"1F1B", "1f1b"},      {"LAYERS", "layers"}, {"KVHeads", "kv_heads"}, {"INTERLEAVE",
         "interleaved"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        const char *got = nearest(c[i].word);
        test_check(got && strcmp(got, c[i].want) == 0, __FILE__, __LINE__, "%s gave %s", c[i].word,
                   got ? got : "nothing");
    }
    CHECK(nearest("zebra") == NULL);
    CHECK(nearest("xy") == NULL); /* two replacements: nothing in common */
    CHECK(nearest("") == NULL);
    char longest[5000];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    CHECK(nearest(longest) == NULL);
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
    static const char *const bad_int[] = {"", " 1", "1 ", "+", "-", "1.5", "0x1", "1_0", "1k",
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
    CHECK(text_read_real("1e-400", &d) == TEXT_TOO_SMALL);
    CHECK(text_read_real("-0.000e99", &d) == TEXT_NUMBER && d == 0);
    CHECK(text_read_real("1e400", &d) == TEXT_TOO_LARGE);
}

/* Written with a point and an exponent, wherever the point stands, a whole number is read to its
 * last digit; a tenth of it is not whole unless it ends in 0. */
static void whole_numbers_are_whole(void)
{
    static const struct { const char *s; enum text_number n; int64_t v; } c[] = {
        {"1e3", TEXT_NUMBER, 1000}, {"1.0e3", TEXT_NUMBER, 1000}, {"5E+5", TEXT_NUMBER, 500000},
        {"2.50e2", TEXT_NUMBER, 250}, {"100e-2", TEXT_NUMBER, 1}, {"0e-5", TEXT_NUMBER, 0},
        {".5e1", TEXT_NUMBER, 5}, {"4.", TEXT_NUMBER, 4}, {"-0", TEXT_NUMBER, 0},
        {"0e999999999999999999999", TEXT_NUMBER, 0}, {"1.5", TEXT_NOT_WHOLE, 0},
        {"1e-1", TEXT_NOT_WHOLE, 0}, {"1e-99999999999999999999", TEXT_NOT_WHOLE, 0},
        {"1e19", TEXT_TOO_LARGE, 0}, {"9223372036854775808", TEXT_TOO_LARGE, 0},
        {"1e99999999999999999999", TEXT_TOO_LARGE, 0}, {"1e", TEXT_NO_NUMBER, 0},
        {"e3", TEXT_NO_NUMBER, 0}, {".", TEXT_NO_NUMBER, 0}, {"1.2.3", TEXT_NO_NUMBER, 0},
        {"9007199254740993", TEXT_NUMBER, 9007199254740993},
        {"9.007199254740993e15", TEXT_NUMBER, 9007199254740993},
    };
    int64_t v;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        v = 0;
        enum text_number n = text_read_int(c[i].s, &v);
        test_check(n == c[i].n && v == c[i].v, __FILE__, __LINE__, "%s: %d, %lld", c[i].s, (int)n,
                   (long long)v);
    }
    for (int i = 0; i < 2000; i++) {
        char digits[32], word[64];
        int64_t want = (int64_t)(test_random() >> test_range(1, 62)) * (test_range(0, 1) ? 1 : -1);
        snprintf(digits, sizeof digits, "%lld", (long long)(want < 0 ? -want : want));
        int len = (int)strlen(digits), at = (int)test_range(0, len);
        snprintf(word, sizeof word, "%s%.*s.%se%d", want < 0 ? "-" : "", at, digits, digits + at,
                 len - at);
        test_check(text_to_int(word, &v) && v == want, __FILE__, __LINE__, "%s is %lld, read %lld",
                   word, (long long)want, (long long)v);
        snprintf(word, sizeof word, "%s%.*s.%se%d", want < 0 ? "-" : "", at, digits, digits + at,
                 len - at - 1);
        test_check(text_to_int(word, &v) == (want % 10 == 0) && (want % 10 || v == want / 10),
                   __FILE__, __LINE__, "%s", word);
    }
}

/* ---- text from outside ---- */

/* Is s of printable points alone? */
static bool is_shown(const char *s)
{
    uint32_t c;
    for (int n; *s; s += n) {
        n = printable_utf8(s, &c);
        if (n == 0 || !printable_point(c))
            return false;
    }
    return true;
}

static void outside_text_is_made_printable(void)
{
    static const struct { const char *raw, *shown; } c[] = {
        {"plain \xc3\xa9 \xf0\x9f\xa7\xb6", "plain \xc3\xa9 \xf0\x9f\xa7\xb6"},
        {"a\x1b[2Jb\r\n", "a\\x1b[2Jb\\x0d\\x0a"},
        {"\xc2\x9b" "31m", "\\xc2\\x9b31m"},
        {"\xe2\x80\xaeright", "\\xe2\\x80\\xaeright"},
        {"\xff\xc3", "\\xff\\xc3"},
        {"\x7f\xef\xbb\xbf", "\\x7f\\xef\\xbb\\xbf"},
    };
    char buf[4096];
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct text t = {0};
        printable(c[i].raw, buf, sizeof buf);
        CHECK_STR(buf, c[i].shown);
        text_add_printable(&t, c[i].raw);
        CHECK_STR(t.s, c[i].shown);
        text_free(&t);
    }
    for (int i = 0; i < 2000; i++) {
        char raw[64];
        int n = (int)test_range(0, 63);
        for (int k = 0; k < n; k++)
            raw[k] = (char)test_range(1, 255);
        raw[n] = '\0';
        printable(raw, buf, (size_t)test_range(1, 80));
        CHECK(is_shown(buf));
        (void)err_set(ERR_CONFIG, __FILE__, __LINE__, "%s is said", raw);
        CHECK(is_shown(err_text()));
        (void)err_adopt(ERR_CONFIG, raw);
        CHECK(is_shown(err_text()));
    }
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
    char *block, *x, *y, *z;
    CHECK_OK(mem_new(192, 1, "a test", &block));
    arena_over(&a, block, 192, "a test");
    CHECK_OK(arena_take(&a, 1, "x", &x));
    CHECK_OK(arena_take(&a, 65, "y", &y));
    CHECK_INT(y - x, 64);
    CHECK_INT((uintptr_t)x % ARENA_ALIGN, 0);
    CHECK_ERR(arena_take(&a, 1, "z", &z), ERR_INTERNAL, "the plan gives a test 192 bytes");
    CHECK_INT(a.used, 192);
    mem_free(block);
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

/* Runs of all beginnings and lengths, also such that cross 2^32 draws. */
static void normals_in_a_row_are_the_same(void)
{
    static const int64_t base[] = {0, 777, ((int64_t)1 << 34) - 150};
    double x[300];
    for (int b = 0; b < 3; b++)
        for (int64_t first = base[b]; first < base[b] + 9; first++)
            for (int64_t n = 0; n < 300; n += n < 12 ? 1 : 41) {
                bool same = true;
                x[n] = -1;
                num_normals(11, num_hash("a row"), first, n, x);
                for (int64_t i = 0; i < n; i++)
                    same = same && x[i] == num_normal(11, num_hash("a row"), first + i);
                CHECK(same);
                CHECK(x[n] == -1);
            }
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

static void reals_have_all_their_digits(void)
{
    static const struct { double v; const char *s; } row[] = {
        {0.1, "0.1"}, {3, "3"}, {-0.0, "-0"}, {1e300, "1e+300"}, {1 / 3., "0.3333333333333333"},
        {5e-324, "4.94065645841247e-324"}, {INFINITY, "null"}, {-INFINITY, "null"},
        {NAN, "null"}, {-NAN, "null"}};
    char s[32];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        CHECK_STR(text_json_real(row[i].v, s), row[i].s);
    for (int i = 0; i < 20000; i++) {
        double v;
        uint64_t bits = test_random();
        memcpy(&v, &bits, sizeof v);
        text_json_real(v, s);
        if (isfinite(v))
            CHECK(strtod(s, NULL) == v && strlen(s) < 25);
    }
}

static const struct test_case cases[] = {
    {"text_keeps_its_error", text_keeps_its_error}, /* first: it counts allocations */
    {"texts_grow", texts_grow},
    {"json_strings_are_escaped", json_strings_are_escaped},
    {"reals_have_all_their_digits", reals_have_all_their_digits},
    {"nearest_words", nearest_words},
    {"numbers_as_people_read_them", numbers_as_people_read_them},
    {"strict_numbers", strict_numbers},
    {"whole_numbers_are_whole", whole_numbers_are_whole},
    {"outside_text_is_made_printable", outside_text_is_made_printable},
    {"sizes_are_checked", sizes_are_checked},
    {"arenas_hand_out_what_was_planned", arenas_hand_out_what_was_planned},
    {"philox_known_answers", philox_known_answers},
    {"normal_numbers_are_normal", normal_numbers_are_normal},
    {"normals_in_a_row_are_the_same", normals_in_a_row_are_the_same},
    {"bf16_rounds_to_nearest_even", bf16_rounds_to_nearest_even},
    {"log_lines_have_level_and_rank", log_lines_have_level_and_rank},
    {"errors_belong_to_threads", errors_belong_to_threads},
};
TEST_MAIN(cases)
