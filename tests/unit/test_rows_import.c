/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of numbers that are imported as row files, pictures resized. The digits of scikit-learn,
 * where that is installed; made-up ones always.
 */
#include "base/mem.h"
#include "base/text.h"
#include "data/data.h"
#include "plait.h"
#include "test.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static int import(const char *text, const struct plait_import *how, int64_t *rows)
{
    struct plait_import a = *how;
    CHECK_OK(fs_put("table.csv", text, (int64_t)strlen(text)));
    a.size = sizeof a;
    a.table = "table.csv";
    a.out = "table.rows";
    return plait_data_import(&a, rows);
}

/* Rows of the file as "1 2.5 : 3\n". */
static void rows_are(const char *want)
{
    struct data_set d;
    struct text t = {0};
    float x[64];
    int32_t label;
    CHECK_OK(data_open("table.rows", NULL, true, &d));
    CHECK(d.inputs <= 64);
    for (int64_t r = 0; r < d.samples; r++) {
        CHECK_OK(data_sample_plain(&d, r, x, &label));
        for (int64_t i = 0; i < d.inputs; i++)
            text_add(&t, "%g ", (double)x[i]);
        text_add(&t, ": %d of %lld\n", (int)label, (long long)d.classes);
    }
    CHECK_STR(t.s, want);
    text_free(&t);
    data_close(&d);
}

static void tables_are_read(void)
{
    static const struct { const char *text; struct plait_import how; const char *want; } c[] = {
        {"1,2,0\n3,4,2\n", {0}, "1 2 : 0 of 3\n3 4 : 2 of 3\n"},
        {"1,2,0\n3,4,2", {0}, "1 2 : 0 of 3\n3 4 : 2 of 3\n"},
        {"\xef\xbb\xbf" "1,2\r\n3,1\r\n\r\n", {0}, "1 : 2 of 3\n3 : 1 of 3\n"},
        {" 1 ,\t-2.5e-1 , 1.0\n\n \n+4,.5,0e0\n", {0}, "1 -0.25 : 1 of 2\n4 0.5 : 0 of 2\n"},
        {"2,1.5,7\n0,3,4\n", {.label_first = 1}, "1.5 7 : 2 of 3\n3 4 : 0 of 3\n"},
        {"a,\"b\",label\n1,2,0\n", {.header = 1}, "1 2 : 0 of 1\n"},
        {"1,2,0\n5,6,1\n", {.header = 1}, "5 6 : 1 of 2\n"},
        {"1,2,0\n", {.classes = 10}, "1 2 : 0 of 10\n"},
        {"8,-16,1\n", {.scale = 0.0625}, "0.5 -1 : 1 of 2\n"},
        {"0,4,1\n", {.height = 1, .width = 2, .to_height = 1, .to_width = 4, .scale = 0.5},
         "0 0.5 1.5 2 : 1 of 2\n"},
        {"0,8,1\n", {.height = 2, .width = 1, .to_height = 4, .to_width = 1}, "0 2 6 8 : 1 of 2\n"},
        {"1,2,3,4,0\n", {.height = 2, .width = 2, .to_height = 4, .to_width = 4},
         "1 1.25 1.75 2 1.5 1.75 2.25 2.5 2.5 2.75 3.25 3.5 3 3.25 3.75 4 : 0 of 1\n"},
        {"1,3,5,7,0\n", {.height = 1, .width = 4, .to_height = 1, .to_width = 2}, "2 6 : 0 of 1\n"},
        {"1,3,5,7,9,0\n", {.height = 1, .width = 5, .to_height = 1, .to_width = 1}, "5 : 0 of 1\n"},
        {"7,0\n", {.height = 1, .width = 1, .to_height = 2, .to_width = 2}, "7 7 7 7 : 0 of 1\n"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        int64_t rows = -1;
        int code = import(c[i].text, &c[i].how, &rows);
        test_check(code == 0 && rows > 0, __FILE__, __LINE__, "%s: %s", c[i].text, plait_error());
        rows_are(c[i].want);
    }
}

/* The share of neighbour k of m in place i of n, written down another way. */
static double share(int i, int n, int k, int m)
{
    double x = (2.0 * i + 1) * m / (2.0 * n) - 0.5;
    x = x < 0 ? 0 : x > m - 1 ? m - 1 : x;
    return fmax(0, 1 - fabs(x - k));
}

static void pictures_are_resized(void)
{
    enum { MOST = 9 };
    for (int round = 0; round < 200; round++) {
        struct plait_import a = {.height = (int)test_range(1, MOST),
                                 .width = (int)test_range(1, MOST),
                                 .to_height = (int)test_range(1, MOST),
                                 .to_width = (int)test_range(1, 7)};
        double p[MOST * MOST];
        struct text t = {0};
        struct data_set d;
        float x[MOST * MOST];
        int32_t label;
        for (int i = 0; i < a.height * a.width; i++)
            text_add(&t, "%.17g,", p[i] = test_real(-1, 1));
        text_add(&t, "5\n");
        CHECK_INT(import(t.s, &a, NULL), 0);
        text_free(&t);
        CHECK_OK(data_open("table.rows", NULL, true, &d));
        CHECK(d.height == a.to_height && d.width == a.to_width);
        CHECK_OK(data_sample_plain(&d, 0, x, &label));
        for (int i = 0; i < a.to_height * a.to_width; i++) {
            double want = 0;
            for (int k = 0; k < a.height * a.width; k++)
                want += share(i / a.to_width, a.to_height, k / a.width, a.height) *
                        share(i % a.to_width, a.to_width, k % a.width, a.width) * p[k];
            CHECK_NEAR((double)x[i], want, 1e-6);
        }
        data_close(&d);
    }
}

/* A row of more values than a block of the reader, and of its first room. */
static void long_lines(void)
{
    enum { N = 40000 };
    struct text t = {0};
    struct data_set d;
    static float x[N];
    int32_t label;
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < N; i++)
            text_add(&t, "%d,", i + r);
        text_add(&t, "%d\n", r);
    }
    CHECK_INT(import(t.s, &(struct plait_import){.scale = 1}, NULL), 0);
    text_free(&t);
    CHECK_OK(data_open("table.rows", NULL, true, &d));
    CHECK(d.features == N && d.samples == 2);
    for (int r = 0; r < 2; r++) {
        CHECK_OK(data_sample_plain(&d, r, x, &label));
        int wrong = label != r;
        for (int i = 0; i < N; i++)
            wrong += x[i] != (float)(i + r);
        CHECK_INT(wrong, 0);
    }
    data_close(&d);
}

static const struct {
    const char *text;
    struct plait_import how;
    int code;
    const char *part;
} refused[] = {
    {"", {0}, PLAIT_DATA, "table.csv has no row"},
    {"\n \n", {0}, PLAIT_DATA, "table.csv has no row"},
    {"a,b\n", {.header = 1}, PLAIT_DATA, "table.csv has no row"},
    {"a,b\n1,2\n", {0}, PLAIT_DATA,
     "line 1, column 1 of table.csv is \"a\", which is no number; pass over a line of names with"},
    {"1,2\n1,x\n", {0}, PLAIT_DATA,
     "line 2, column 2 of table.csv is \"x\", which is no number; give each row numbers alone"},
    {"1,2\n1,\n", {0}, PLAIT_DATA, "line 2, column 2 of table.csv is \"\""},
    {"1,2\n,1\n", {0}, PLAIT_DATA, "line 2, column 1 of table.csv is \"\""},
    {"1,nan\n", {0}, PLAIT_DATA, "\"nan\", which is no number"},
    {"inf,0\n", {0}, PLAIT_DATA, "\"inf\", which is no number"},
    {"1e999,0\n", {0}, PLAIT_DATA, "\"1e999\", which is no number"},
    {"1 2,0\n", {0}, PLAIT_DATA, "\"1 2\", which is no number"},
    {"\"1\",0\n", {0}, PLAIT_DATA, "which is no number"},
    {"1;2;0\n", {0}, PLAIT_DATA, "\"1;2;0\", which is no number"},
    {"0123456789012345678901234567890123456789012345678901234567890123456789,0\n", {0},
     PLAIT_DATA, "line 1 of table.csv has \"01234567890123456789...\", which is no number"},
    {"5\n", {0}, PLAIT_DATA, "the first row of table.csv has 1 value, and a row has at least"},
    {"1,2,0\n1,0\n", {0}, PLAIT_DATA, "line 2 of table.csv has 2 values, the rows before it have "
                                      "3"},
    {"1,2,0\n1,2,3,0\n", {0}, PLAIT_DATA, "line 2 of table.csv has 4 values"},
    {"1,-1\n", {0}, PLAIT_DATA, "line 1 of table.csv has label -1 in its last column, the rule "
                                "is a whole number from 0 to 2147483646"},
    {"1,0.5\n", {0}, PLAIT_DATA, "has label 0.5 in its last column"},
    {"1.5,1\n", {.label_first = 1}, PLAIT_DATA, "has label 1.5 in its first column"},
    {"1,2147483647\n", {0}, PLAIT_DATA, "has label 2.14748e+09"},
    {"1,4\n", {.classes = 4}, PLAIT_DATA, "the rule is a whole number from 0 to 3"},
    {"1e39,0\n", {0}, PLAIT_DATA, "has 1e+39, which times scale 1 is more than 32 bits hold"},
    {"1e38,0\n", {.scale = 100}, PLAIT_DATA, "which times scale 100 is more"},
    {"1,2,0\n", {.height = 2, .width = 2}, PLAIT_CONFIG, "a picture of 2 x 2 has 4 values, and "
                                                         "rows of table.csv have 2 features"},
    {"1,2,0\n", {.height = 2}, PLAIT_CONFIG, "pictures of 2 x 0 are none"},
    {"1,2,0\n", {.height = -1, .width = -2}, PLAIT_CONFIG, "pictures of -1 x -2 are none"},
    {"1,2,0\n", {.height = 1 << 24, .width = 2}, PLAIT_CONFIG, "pictures of 16777216 x 2"},
    {"1,2,0\n", {.to_height = 2, .to_width = 2}, PLAIT_CONFIG, "nothing says what pictures"},
    {"1,2,0\n", {.height = 2, .width = 1, .to_width = 2}, PLAIT_CONFIG, "resized to 0 x 2"},
    {"1,2,0\n", {.scale = NAN}, PLAIT_CONFIG, "scale is nan"},
    {"1,2,0\n", {.classes = -1}, PLAIT_CONFIG, "-1 classes"},
    {"\xff\xfe" "1", {0}, PLAIT_DATA, "byte order mark of UTF-16"},
};

static void tables_that_are_refused(void)
{
    unlink("table.rows");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        int code = import(refused[i].text, &refused[i].how, NULL);
        test_check(code == refused[i].code && strstr(plait_error(), refused[i].part), __FILE__,
                   __LINE__,
                   "%s: %d: %s; wanted %s", refused[i].text, code, plait_error(), refused[i].part);
        CHECK(!fs_exists("table.rows"));
    }
    CHECK_OK(fs_put("nul.csv", "1\0,0\n", 5));
    struct plait_import a = {.size = sizeof a, .table = "nul.csv", .out = "table.rows"};
    CHECK_INT(plait_data_import(&a, NULL), PLAIT_DATA);
    a.out = "nul.csv";
    CHECK_INT(plait_data_import(&a, NULL), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "output nul.csv is the same file as table nul.csv") != NULL);
    a.out = "";
    CHECK_INT(plait_data_import(&a, NULL), PLAIT_CONFIG);
    a.out = "table.rows";
    a.table = NULL;
    CHECK_INT(plait_data_import(&a, NULL), PLAIT_CONFIG);
    a.table = "none.csv";
    CHECK_INT(plait_data_import(&a, NULL), PLAIT_DATA);
    a.table = ".";
    CHECK_INT(plait_data_import(&a, NULL), PLAIT_DATA);
    CHECK(!fs_exists("table.rows"));
}

static const char *next_text; /* what the table becomes between the two times that it is read */
static int64_t last_done, last_all;

static void on_progress(void *arg, int64_t done, int64_t all)
{
    (void)arg;
    last_done = done;
    last_all = all;
    if (next_text && done == all / 2)
        CHECK_OK(fs_put("table.csv", next_text, (int64_t)strlen(next_text)));
}

/* ---- arrays of NumPy ---- */

/* An array of `bytes` bytes of elements; version 1, or 2 with the wider length. */
static void put_array(const char *dictionary, int version, const void *elements, int64_t bytes)
{
    uint8_t file[1024] = "\x93NUMPY";
    int wide = version > 1 ? 4 : 2;
    size_t n = strlen(dictionary);
    file[6] = (uint8_t)version;
    file[8] = (uint8_t)n;
    file[9] = (uint8_t)(n >> 8);
    memcpy(file + 8 + wide, dictionary, n);
    memcpy(file + 8 + wide + n, elements, (size_t)bytes);
    CHECK_OK(fs_put("table.npy", file, 8 + wide + (int64_t)n + bytes));
}

static int import_array(const struct plait_import *how)
{
    struct plait_import a = *how;
    a.size = sizeof a;
    a.table = "table.npy";
    a.out = "table.rows";
    unlink("table.rows");
    return plait_data_import(&a, NULL);
}

/* What numpy.save(column_stack([[[1, -2], [3, 4]], [0, 2]])) writes for each type. */
static void arrays_are_read(void)
{
    static const float f4[] = {1, -2, 0, 3, 4, 2};
    static const double f8[] = {1, -2, 0, 3, 4, 2};
    static const int8_t i1[] = {1, -2, 0, 3, 4, 2};
    static const int16_t i2[] = {1, -2, 0, 3, 4, 2};
    static const int32_t i4[] = {1, -2, 0, 3, 4, 2};
    static const int64_t i8[] = {1, -2, 0, 3, 4, 2};
    static const uint8_t u1[] = {1, 254, 0, 3, 4, 2};
    static const uint16_t u2[] = {1, 254, 0, 3, 4, 2};
    static const uint32_t u4[] = {1, 254, 0, 3, 4, 2};
    static const uint64_t u8[] = {1, 254, 0, 3, 4, 2};
    static const struct { const char *type; const void *p; int bytes; } c[] = {
        {"<f4", f4, 4}, {"<f8", f8, 8}, {"|i1", i1, 1}, {"<i2", i2, 2}, {"<i4", i4, 4},
        {"<i8", i8, 8}, {"|u1", u1, 1}, {"<u2", u2, 2}, {"<u4", u4, 4}, {"<u8", u8, 8}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        char dictionary[128];
        snprintf(dictionary, sizeof dictionary,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (2, 3), }            \n",
                 c[i].type);
        put_array(dictionary, 1 + (int)i % 3, c[i].p, 6 * c[i].bytes);
        test_check(import_array(&(struct plait_import){.scale = 1}) == 0, __FILE__, __LINE__, "%s",
                   plait_error());
        rows_are(c[i].type[1] == 'u' ? "1 254 : 0 of 3\n3 4 : 2 of 3\n"
                                     : "1 -2 : 0 of 3\n3 4 : 2 of 3\n");
    }
    put_array("{'descr': '|b1', 'fortran_order': False, 'shape': (1, 3), }", 1, "\1\0\1", 3);
    CHECK_INT(import_array(&(struct plait_import){.label_first = 1}), 0);
    rows_are("0 1 : 1 of 2\n");
    put_array("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 1, f4, sizeof f4);
    CHECK_INT(import_array(&(struct plait_import){.height = 1, .width = 2, .to_height = 1,
                                                  .to_width = 4, .progress = on_progress}), 0);
    rows_are("1 0.25 -1.25 -2 : 0 of 3\n3 3.25 3.75 4 : 2 of 3\n");
    CHECK(last_done <= last_all && last_done >= last_all - 4);
}

static void arrays_that_are_refused(void)
{
    static const float f4[] = {1, -2, 0, 3, 4, 2};
    static const struct { const char *dictionary; int code; const char *part; } c[] = {
        {"", PLAIT_DATA, "elements of another kind"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3)}", PLAIT_DATA, "save it as fl"},
        {"{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3)}", PLAIT_DATA, "another kind"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (2, 3)}", PLAIT_DATA, "another kind"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3)}", PLAIT_DATA,
         "another kind"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}", PLAIT_DATA, "two dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}", PLAIT_DATA, "two dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3)}", PLAIT_DATA, "two dim"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3)}", PLAIT_DATA, "two dim"},
        {"{'descr': '<f4', 'fortran_order': False}", PLAIT_DATA, "two dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", PLAIT_DATA,
         "says 2 x 2 elements of 4 bytes behind a header of 67, the file has 91 bytes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387905, 4)}", PLAIT_DATA,
         "it is cut or damaged"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999999, 4)}",
         PLAIT_DATA, "two dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (6, 1)}", PLAIT_DATA, "has 1 value"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        put_array(c[i].dictionary, 1, f4, sizeof f4);
        int code = import_array(&(struct plait_import){.scale = 1});
        test_check(code == c[i].code && strstr(plait_error(), c[i].part), __FILE__, __LINE__,
                   "%s: %d: %s", c[i].dictionary, code, plait_error());
        CHECK(!fs_exists("table.rows"));
    }
    static const char good[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
    put_array(good, 1, f4, sizeof f4);
    CHECK_INT(import_array(&(struct plait_import){.header = 1}), PLAIT_CONFIG);
    put_array(good, 4, f4, sizeof f4);
    CHECK_INT(import_array(&(struct plait_import){.scale = 1}), PLAIT_DATA);
    put_array(good, 1, (const float[]){1, -2, 0, NAN, 4, 2}, sizeof f4);
    CHECK_INT(import_array(&(struct plait_import){.scale = 1}), PLAIT_DATA);
    CHECK(strstr(plait_error(), "row 2, column 1 of table.npy is nan") != NULL);
    put_array(good, 1, (const float[]){1, -2, 0, 3, 4, 2.5F}, sizeof f4);
    CHECK_INT(import_array(&(struct plait_import){.scale = 1}), PLAIT_DATA);
    CHECK(strstr(plait_error(), "row 2 of table.npy has label 2.5") != NULL);
    CHECK_OK(fs_put("table.npy", "\x93NUMPY\1\0\xff\xff....", 14));
    CHECK_INT(import_array(&(struct plait_import){.scale = 1}), PLAIT_DATA);
    CHECK(strstr(plait_error(), "a header of 65535 bytes") != NULL);
}

/* Damaged bytes: refused, or an array that keeps the rules. */
static void damaged_arrays(void)
{
    static const char good[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
    static const float f4[] = {1, -2, 0, 3, 4, 2};
    for (int round = 0; round < 2000; round++) {
        uint8_t file[16 + sizeof good + sizeof f4] = "\x93NUMPY\1";
        size_t n = sizeof good - 1, all = 10 + n + sizeof f4;
        file[8] = (uint8_t)n;
        memcpy(file + 10, good, n);
        memcpy(file + 10 + n, f4, sizeof f4);
        for (int64_t k = test_range(1, 3); k > 0; k--)
            file[test_range(6, (int64_t)all - 1)] =
                (uint8_t)(test_random() % 3 ? '0' + test_random() % 10 : test_random());
        int fd = open("table.npy", O_WRONLY | O_CREAT, 0666);
        CHECK(fd >= 0 && pwrite(fd, file, all, 0) == (ssize_t)all);
        CHECK(ftruncate(fd, (off_t)all) == 0);
        close(fd);
        int code = import_array(&(struct plait_import){.scale = 1});
        test_check(code == 0 || code == PLAIT_DATA, __FILE__, __LINE__, "%d: %s", code,
                   plait_error());
    }
}


/* ---- while it is read ---- */

static void tables_that_change(void)
{
    static const char *const other[] = {"1,2,0\n1,2,2\n", "9,2,0\n1,2,1\n", "1,2,0\n1,2,1\n3,4,1\n",
                                        "1,2,0\n1,2,1"};
    const struct plait_import how = {.progress = on_progress};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        unlink("table.rows");
        next_text = other[i];
        int code = import("1,2,0\n1,2,1\n", &how, NULL);
        CHECK(i == 3 ? code == PLAIT_OK : code == PLAIT_DATA && !fs_exists("table.rows"));
        CHECK(i == 3 || strstr(plait_error(), "the table changed between"));
    }
    next_text = "1,2,3,0\n";
    CHECK_INT(import("1,2,0\n1,2,1\n", &how, NULL), PLAIT_DATA);
    CHECK(strstr(plait_error(), "has 4 values, the rows before it have 3") != NULL);
    next_text = NULL;
    CHECK_INT(import("1,2,0\n1,2,1\n", &how, NULL), PLAIT_OK);
    CHECK(last_done == 24 && last_all == 24);
}

static int import_call(void *arg)
{
    struct plait_import a = {.size = sizeof a, .table = "table.csv", .out = "table.rows",
                             .height = 1, .width = 2, .to_height = 2, .to_width = 2};
    (void)arg;
    return plait_data_import(&a, NULL);
}

static void no_memory(void)
{
    int code = PLAIT_MEMORY, k;
    CHECK_OK(fs_put("table.csv", "1,2,0\n", 6));
    unlink("table.rows");
    for (k = 1; k < 50 && code == PLAIT_MEMORY; k++) {
        code = test_without_memory(k, import_call, NULL);
        CHECK(code == PLAIT_OK || !fs_exists("table.rows"));
    }
    CHECK_INT(code, PLAIT_OK);
    CHECK(k > 5);
}

/* ---- real digits ---- */

static void digits_of_scikit_learn(void)
{
    static const char *const at[] = {
        "/usr/lib/python3/dist-packages", "/usr/local/lib/python3.11/dist-packages",
        "/usr/local/lib/python3.11/site-packages"};
    const char *wish = getenv("PLAIT_TEST_SKLEARN"); /* a folder that has sklearn/ in it */
    char command[512] = "";
    struct data_set d;
    int64_t rows, n[10] = {0};
    for (size_t i = 0; i < sizeof at / sizeof *at + 1; i++) {
        char gz[256];
        const char *dir = i == 0 ? wish : at[i - 1];
        snprintf(gz, sizeof gz, "%.150s/sklearn/datasets/data/digits.csv.gz", dir ? dir : "");
        if (dir && !command[0] && access(gz, R_OK) == 0)
            snprintf(command, sizeof command, "zcat '%s' > digits.csv", gz);
    }
    if (!command[0]) {
        test_skip("scikit-learn is not installed (Debian: python3-sklearn; or PLAIT_TEST_SKLEARN "
                  "names the folder of a wheel)");
        return;
    }
    CHECK_INT(system(command), 0);
    const struct plait_import a = {.size = sizeof a, .table = "digits.csv", .out = "digits.rows",
                                   .height = 8, .width = 8, .to_height = 16, .to_width = 32,
                                   .scale = 0.0625};
    CHECK_INT(plait_data_import(&a, &rows), 0);
    CHECK_INT(rows, 1797);
    CHECK_OK(data_open("digits.rows", &(struct data_want){.kind = DATA_ROWS, .features = 512,
                                                          .classes = 10}, true, &d));
    for (int64_t r = 0; r < rows; r++) {
        float x[512];
        int32_t label;
        CHECK_OK(data_sample_plain(&d, r, x, &label));
        n[label]++;
        for (int i = 0; i < 512; i++)
            CHECK(x[i] >= 0 && x[i] <= 1);
        if (r == 0) /* as Pillow's BILINEAR has it */
            CHECK(x[3 * 32 + 2] == 0.005859375F && x[3 * 32 + 7] == 0.345703125F);
    }
    CHECK(d.hash == 0x77550248acd72796);
    CHECK(n[0] == 178 && n[5] == 182 && n[8] == 174 && n[9] == 180);
    data_close(&d);
}

static const struct test_case cases[] = {
    {"tables_are_read", tables_are_read},
    {"pictures_are_resized", pictures_are_resized},
    {"long_lines", long_lines},
    {"tables_that_are_refused", tables_that_are_refused},
    {"arrays_are_read", arrays_are_read},
    {"arrays_that_are_refused", arrays_that_are_refused},
    {"damaged_arrays", damaged_arrays},
    {"tables_that_change", tables_that_change},
    {"no_memory", no_memory},
    {"digits_of_scikit_learn", digits_of_scikit_learn},
};
TEST_MAIN(cases)
