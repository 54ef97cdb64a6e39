/* SPDX-License-Identifier: Apache-2.0
 *
 * Row files: their bytes, what is refused, the order of their samples, and rows drawn by a seed.
 */
#include "data/data.h"
#include "data/data_file.h"
#include "data_bytes.h"
#include "plait.h"
#include "test.h"

#include "base/num.h"
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

enum { ROWS = 3, FEATURES = 2, CLASSES = 4, ROW = 4 * (FEATURES + 1),
       SIZE = DATA_HEADER + ROWS * ROW };

/* Rows {1, -0.5} label 3; {0, 2^-126} label 0; {1e30, 0.1} label 1; byte by byte as data.h says. */
static void make_good(uint8_t file[SIZE])
{
    static const uint32_t bits[ROWS][FEATURES + 1] = {
        {0x3f800000, 0xbf000000, 3}, {0, 0x00800000, 0}, {0x7149f2ca, 0x3dcccccd, 1}};
    memset(file, 0, SIZE);
    memcpy(file, "PLAITROW", 8);
    put_le(file + 8, 1, 4);
    put_le(file + 12, 4, 4);
    put_le(file + 16, FEATURES, 8);
    put_le(file + 24, ROWS, 8);
    put_le(file + 40, CLASSES, 8);
    put_le(file + 48, 2, 4);
    put_le(file + 52, 1, 4);
    for (int i = 0; i < ROWS * (FEATURES + 1); i++)
        put_le(file + DATA_HEADER + 4 * i, bits[i / (FEATURES + 1)][i % (FEATURES + 1)], 4);
    put_le(file + 32, data_hash(file + DATA_HEADER, SIZE - DATA_HEADER), 8);
    put_sum(file);
}

static const struct data_want fits = {.kind = DATA_ROWS, .features = FEATURES,
                                      .classes = CLASSES};

/* Written over in place: a flush for each would take seconds. */
static enum err open_bytes(const uint8_t *p, int64_t n)
{
    struct data_set d;
    int fd = open("mutant.rows", O_WRONLY | O_CREAT, 0666);
    CHECK(fd >= 0 && pwrite(fd, p, (size_t)n, 0) == n && ftruncate(fd, n) == 0);
    close(fd);
    enum err err = data_open("mutant.rows", &fits, true, &d);
    if (err == ERR_OK)
        data_close(&d);
    return err;
}

/* ---- the file ---- */

static void bytes_of_a_file(void)
{
    uint8_t file[SIZE], again[DATA_HEADER];
    struct data_set d;
    struct data_set h;
    float x[FEATURES];
    int32_t label;
    make_good(file);
    CHECK_OK(open_bytes(file, SIZE));
    CHECK_OK(data_header_get("good", file, SIZE, &h));
    CHECK(h.kind == DATA_ROWS && h.height == 2 && h.width == 1);
    data_header_put(&h, again);
    CHECK(memcmp(file, again, DATA_HEADER) == 0);
    CHECK_OK(data_open("mutant.rows", &fits, false, &d));
    CHECK(d.kind == DATA_ROWS && d.samples == ROWS && d.inputs == FEATURES && d.targets == 1);
    CHECK_STR(d.tokenizer, "rows");
    CHECK_OK(data_sample_plain(&d, 0, x, &label));
    CHECK(x[0] == 1 && x[1] == -0.5F && label == 3);
    CHECK_OK(data_sample_plain(&d, 1, x, &label));
    CHECK(x[0] == 0 && x[1] == 0x1p-126F && label == 0);
    CHECK_OK(data_sample_plain(&d, 2, x, &label));
    CHECK(x[0] == 1e30F && x[1] == 0.1F && label == 1);
    data_close(&d);
}

/* Every field at every edge, with a header hash that is right again. */
static void fields_at_their_edges(void)
{
    static const uint64_t edges[] = {
        0, 1, 2, 3, 4, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, 0x100000001, 1 << 24,
        (1 << 24) + 1, (1ull << 42) + 1, INT64_MAX, 1ull << 63, UINT64_MAX - 63, UINT64_MAX};
    static const struct { int at, bytes; } field[] = {{8, 4}, {12, 4}, {16, 8}, {24, 8}, {48, 4},
                                                      {52, 4}, {56, 8}, {112, 8}};
    uint8_t good[SIZE], bad[SIZE];
    make_good(good);
    for (size_t k = 0; k < sizeof field / sizeof *field; k++)
        for (size_t e = 0; e < sizeof edges / sizeof *edges; e++) {
            memcpy(bad, good, SIZE);
            put_le(bad + field[k].at, edges[e], field[k].bytes);
            put_sum(bad);
            if (memcmp(bad, good, SIZE) != 0)
                CHECK_ERR(open_bytes(bad, SIZE), ERR_DATA, "mutant.rows");
        }
    for (size_t e = 0; e < sizeof edges / sizeof *edges; e++) { /* of 0 to 3, labels lie beyond */
        memcpy(bad, good, SIZE);
        put_le(bad + 40, edges[e], 8);
        put_sum(bad);
        enum err want = edges[e] == 0 || edges[e] > INT32_MAX ? ERR_DATA
                        : edges[e] == CLASSES                 ? ERR_OK
                                                              : ERR_TOKEN;
        CHECK_INT(open_bytes(bad, SIZE), want);
    }
    memcpy(bad, good, SIZE); /* features and shape that agree, and a size that wraps */
    put_le(bad + 16, 1 << 24, 8);
    put_le(bad + 48, 1 << 12, 4);
    put_le(bad + 52, 1 << 12, 4);
    put_le(bad + 24, (1ull << 62) / ((1 << 24) + 1), 8);
    put_sum(bad);
    CHECK_ERR(open_bytes(bad, SIZE), ERR_DATA, "rows of 67108868 bytes");
}

static void cut_grown_or_flipped(void)
{
    uint8_t file[SIZE + 16] = {0};
    make_good(file);
    for (int n = 0; n < SIZE + 16; n++)
        if (n != SIZE)
            CHECK_ERR(open_bytes(file, n), ERR_DATA, "mutant.rows");
    CHECK_ERR(open_bytes(file, SIZE - 1), ERR_DATA,
              "says 3 rows of 12 bytes behind a header of 128, the file has 163 bytes");
    for (int bit = 0; bit < 8 * SIZE; bit++) {
        file[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        enum err err = open_bytes(file, SIZE);
        test_check(err == ERR_DATA || err == ERR_TOKEN, __FILE__, __LINE__, "bit %d: %d", bit,
                   (int)err);
        file[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    CHECK_OK(open_bytes(file, SIZE));
}

/* Values against their rule in a file whose hashes are right: at its opening, and when a sample is
 * read of one that was not looked at. */
static void values_against_their_rule(void)
{
    static const struct {
        int row, column;
        uint32_t bits;
        enum err err;
        const char *part;
    } bad[] = {
        {1, 0, 0x7f800000, ERR_DATA, "feature 0 of row 1 of mutant.rows is inf"},
        {2, 1, 0xff800000, ERR_DATA, "feature 1 of row 2 of mutant.rows is -inf"},
        {1, 1, 0x7fc00000, ERR_DATA, "feature 1 of row 1 of mutant.rows is"},
        {1, 1, 0x7f800001, ERR_DATA, "feature 1 of row 1"},
        {1, 2, CLASSES, ERR_TOKEN, "row 1 of mutant.rows has label 4, its 4 classes end at lab"},
        {2, 2, UINT32_MAX, ERR_TOKEN, "row 2 of mutant.rows has label -1"},
        {0, 2, 0x80000000, ERR_TOKEN, "row 0 of mutant.rows has label -2147483648"},
    };
    uint8_t file[SIZE];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct data_set d;
        float x[FEATURES];
        int32_t label;
        make_good(file);
        put_le(file + DATA_HEADER + ROW * bad[i].row + 4 * bad[i].column, bad[i].bits, 4);
        put_le(file + 32, data_hash(file + DATA_HEADER, SIZE - DATA_HEADER), 8);
        put_sum(file);
        CHECK_ERR(open_bytes(file, SIZE), bad[i].err, bad[i].part);
        CHECK_OK(data_open("mutant.rows", &fits, false, &d));
        for (int r = 0; r < ROWS; r++)
            CHECK_INT(data_sample_plain(&d, r, x, &label), r == bad[i].row ? bad[i].err : ERR_OK);
        data_close(&d);
    }
}

/* A model that reads something else. */
static void other_models_refuse(void)
{
    static const struct { struct data_want want; enum err err; const char *part; } c[] = {
        {{.kind = DATA_ROWS, .features = 3, .classes = 4}, ERR_DATA,
         "rows of 2 features, the model reads 3"},
        {{.kind = DATA_ROWS, .features = 2, .classes = 3}, ERR_TOKEN,
         "4 classes, the model tells 3"},
        {{.kind = DATA_TOKENS, .seq = 1, .vocab = 300}, ERR_DATA,
         "is a row file, and the model reads tokens"},
    };
    uint8_t file[SIZE];
    struct data_set d;
    make_good(file);
    CHECK_OK(open_bytes(file, SIZE));
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        CHECK_ERR(data_open("mutant.rows", &c[i].want, true, &d), c[i].err, c[i].part);
    CHECK_OK(data_open("mutant.rows", &(struct data_want){.kind = DATA_ROWS, .features = 2,
                                                          .classes = 5}, true, &d));
    data_close(&d);
    CHECK_INT(plait_data_random("some.tok", 7, 50, 1), 0);
    CHECK_ERR(data_open("some.tok", &fits, true, &d), ERR_DATA, "is a token file, and the model "
                                                                "reads rows");
    struct plait_config *k;
    CHECK_INT(plait_config_new(&k), 0);
    CHECK_INT(plait_config_set(k, "data.train=mutant.rows"), 0);
    CHECK_INT(plait_config_check(k, 0, NULL), PLAIT_DATA);
    CHECK(strstr(plait_error(), "data.train: mutant.rows is a row file") != NULL);
    plait_config_free(k);
}

/* Random headers: whatever is accepted keeps every rule. */
static void random_headers(void)
{
    uint8_t good[SIZE], bad[SIZE];
    int accepted = 0;
    make_good(good);
    for (int round = 0; round < 150000; round++) {
        struct data_set h;
        int64_t size = SIZE;
        memcpy(bad, good, SIZE);
        for (int64_t n = test_range(1, 3); n-- > 0;)
            bad[test_range(8, 119)] = (uint8_t)test_range(0, 5);
        if (test_random() % 8)
            put_sum(bad);
        if (test_random() % 4 == 0)
            size = test_range(0, SIZE);
        if (data_header_get("fuzz", size ? bad : NULL, size, &h) != ERR_OK)
            continue;
        accepted++;
        CHECK(h.kind == DATA_ROWS && h.classes >= 1 && h.classes <= INT32_MAX);
        CHECK(h.features >= 1 && (int64_t)h.height * h.width == h.features);
        CHECK(h.count >= 1 && DATA_HEADER + h.count * 4 * (h.features + 1) == size);
    }
    CHECK(accepted > 100);
}

/* ---- drawn rows, and their order ---- */

/* An epoch has each row once, in the order of data_permute; each read gives the same. */
static void order_of_samples(void)
{
    enum { N = 37, F = 5 };
    struct data_set d;
    CHECK_INT(plait_data_random_rows("order.rows", F, 3, N, 9), 0);
    CHECK_OK(data_open("order.rows", &(struct data_want){.kind = DATA_ROWS, .features = F,
                                                         .classes = 3}, true, &d));
    CHECK_INT(d.samples, N);
    for (int64_t index = 0; index < 3 * N; index++) {
        float x[F], y[F];
        int32_t a, b;
        CHECK_OK(data_sample(&d, 5, index, x, &a));
        CHECK_OK(data_sample_plain(&d, data_permute(5, index / N, N, index % N), y, &b));
        CHECK(memcmp(x, y, sizeof x) == 0 && a == b);
    }
    data_close(&d);
}

/* The seed fixes the file; labels come about equally often, rows lie around the centre of theirs,
 * and centres as far apart as data.h says. */
static void drawn_rows(void)
{
    enum { N = 6000, F = 64, C = 4 };
    static double mean[C][F];
    int n[C] = {0};
    struct data_set d, e;
    double centres = 0, noise = 0;
    CHECK_INT(plait_data_random_rows("a.rows", F, C, N, 7), 0);
    CHECK_INT(plait_data_random_rows("b.rows", F, C, N, 7), 0);
    CHECK_OK(data_open("a.rows", NULL, true, &d));
    CHECK_OK(data_open("b.rows", NULL, true, &e));
    CHECK(d.hash == e.hash && d.classes == C && d.features == F && d.height == 1);
    data_close(&e);
    CHECK_INT(plait_data_random_rows("b.rows", F, C, N, 8), 0);
    CHECK_OK(data_open("b.rows", NULL, true, &e));
    CHECK(d.hash != e.hash);
    data_close(&e);
    for (int r = 0; r < 2 * N; r++) { /* once for the means, once for what is around them */
        float x[F];
        int32_t c;
        CHECK_OK(data_sample_plain(&d, r % N, x, &c));
        n[c] += r < N;
        for (int f = 0; f < F; f++) {
            mean[c][f] += r < N ? (double)x[f] : 0;
            noise += r < N ? 0 : pow((double)x[f] - mean[c][f] / n[c], 2) / N / F;
        }
    }
    for (int c = 0; c < C; c++) {
        CHECK_NEAR((double)n[c], N / 4.0, 5 * 34.0); /* five standard deviations */
        for (int f = 0; f < F; f++) /* against the next class, whose centre is another */
            centres += pow(mean[c][f] / n[c] - mean[(c + 1) % C][f] / n[(c + 1) % C], 2);
    }
    CHECK_NEAR(centres / (C * F), 2 * (0.0625 + 4.0 / N), 0.05);
    CHECK_NEAR(noise, 1, 0.02);
    data_close(&d);
    CHECK_INT(plait_data_random_rows("", 1, 1, 1, 1), PLAIT_CONFIG);
    CHECK_INT(plait_data_random_rows("c.rows", 0, 1, 1, 1), PLAIT_CONFIG);
    CHECK_INT(plait_data_random_rows("c.rows", (1 << 24) + 1, 1, 1, 1), PLAIT_CONFIG);
    CHECK_INT(plait_data_random_rows("c.rows", 1, 0, 1, 1), PLAIT_CONFIG);
    CHECK_INT(plait_data_random_rows("c.rows", 1, 1, 0, 1), PLAIT_CONFIG);
    CHECK_INT(plait_data_random_rows("c.rows", 1 << 24, 1, INT64_MAX >> 20, 1), PLAIT_CONFIG);
    CHECK(!fs_exists("c.rows"));
}

static const struct test_case cases[] = {
    {"bytes_of_a_file", bytes_of_a_file},
    {"fields_at_their_edges", fields_at_their_edges},
    {"cut_grown_or_flipped", cut_grown_or_flipped},
    {"values_against_their_rule", values_against_their_rule},
    {"other_models_refuse", other_models_refuse},
    {"random_headers", random_headers},
    {"order_of_samples", order_of_samples},
    {"drawn_rows", drawn_rows},
};
TEST_MAIN(cases)
