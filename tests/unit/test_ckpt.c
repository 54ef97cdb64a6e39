/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors: exact bytes, round trips, every rule of the format broken once, fuzz, full disks.
 * Names and config.json are the matter of test_hf.c.
 */
#include "ckpt/ckpt.h"
#include "test.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIR_NAME "ckpt"

static struct safet_entry entry(const char *name, enum safet_type type, int nd, int64_t a,
                                int64_t b)
{
    struct safet_entry e = {.type = type, .nd = nd, .shape = {a, b}};
    snprintf(e.name, sizeof e.name, "%s", name);
    return e;
}

/* A file in memory: length, header, `data` zero bytes. */
static int64_t make(uint8_t **out, const char *header, int64_t n, int64_t data)
{
    uint8_t *p;
    CHECK_OK(mem_new(8 + n + data, 1, "a test file", &p));
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)((uint64_t)n >> (8 * i));
    memcpy(p + 8, header, (size_t)n);
    *out = p;
    return 8 + n + data;
}

static enum err open_header(const char *header, int64_t data)
{
    struct safet_file f;
    uint8_t *p;
    int64_t size = make(&p, header, (int64_t)strlen(header), data);
    enum err err = safet_open_bytes(&f, "test", p, size);
    if (err == ERR_OK)
        safet_close(&f);
    mem_free(p);
    return err;
}

static void test_write_bytes(void)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"b\\\"\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[24,30]},"
        "\"c\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[30,32]},"
        "\"s\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[32,34]}}";
    struct safet_entry e[] = {entry("a", SAFET_F32, 2, 2, 3), entry("b\"", SAFET_BF16, 1, 3, 0),
                              entry("c", SAFET_BF16, 1, 1, 0), entry("s", SAFET_BF16, 0, 0, 0)};
    struct safet_writer w;
    struct fs_map m;
    const char *path = DIR_NAME "/bytes.safetensors";
    CHECK_OK(fs_make_dirs(DIR_NAME));
    CHECK_OK(safet_create(&w, path, false, e, 4, NULL));
    for (uint8_t i = 0; i < 34; i++)
        CHECK_OK(safet_write(&w, &i, 1));
    CHECK_OK(safet_commit(&w));
    CHECK_INT(e[2].begin, 30);
    CHECK_INT(e[3].begin, 32); /* rank 0: one number */
    CHECK_INT(e[3].end, 34);
    CHECK_OK(fs_map_open(&m, path, ERR_CHECKPOINT));
    uint64_t n = 0;
    memcpy(&n, m.data, 8); /* tests run on little-endian machines */
    CHECK(n % 8 == 0 && m.size == 8 + (int64_t)n + 34);
    CHECK(memcmp(m.data + 8, header, sizeof header - 1) == 0);
    CHECK(m.data[8 + n - 1] == ' ' || m.data[8 + n - 1] == '}');
    for (int i = 0; i < 34; i++)
        CHECK_INT(m.data[8 + n + (uint64_t)i], i);
    fs_map_close(&m);
}

/* What the reference writer makes of {"a": f32[2,3], "b": bf16[3]}; ours makes the same bytes. */
static void test_read_reference(void)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[24,30]}}";
    struct safet_file f = {0};
    uint8_t *p;
    CHECK_INT(strlen(header), 144);
    int64_t size = make(&p, header, 144, 30);
    CHECK_OK(safet_open_bytes(&f, "reference", p, size));
    CHECK_INT(f.n, 2);
    CHECK_INT(f.bytes, 30);
    CHECK(f.data == p + 152);
    const struct safet_entry *a = safet_find(f.entry, f.n, "a"), *b = safet_find(f.entry, f.n, "b");
    CHECK(a && a->type == SAFET_F32 && a->nd == 2 && a->shape[0] == 2 && a->shape[1] == 3);
    CHECK(b && b->type == SAFET_BF16 && b->nd == 1 && b->begin == 24 && b->end == 30);
    CHECK(!safet_find(f.entry, f.n, "c") && !safet_find(f.entry, f.n, ""));
    CHECK(!safet_find(f.entry, f.n, "__metadata__"));
    safet_close(&f);
    safet_close(&f); /* idempotent */
    struct safet_entry e[] = {entry("a", SAFET_F32, 2, 2, 3), entry("b", SAFET_BF16, 1, 3, 0)};
    struct safet_writer w;
    CHECK_OK(fs_make_dirs(DIR_NAME));
    CHECK_OK(safet_create(&w, DIR_NAME "/reference.safetensors", false, e, 2, NULL));
    CHECK_OK(safet_write(&w, p + 152, 30));
    CHECK_OK(safet_commit(&w));
    CHECK_OK(safet_open(&f, DIR_NAME "/reference.safetensors"));
    CHECK(f.map.size == size && memcmp(f.map.data, p, (size_t)size) == 0);
    safet_close(&f);
    mem_free(p);
}

/* Random tensors, written in random pieces from the front, or from behind to their places, come
 * back. */
static void test_round_trip(void)
{
    const char *path = DIR_NAME "/round.safetensors";
    CHECK_OK(fs_make_dirs(DIR_NAME));
    for (int round = 0; round < 25; round++) {
        struct safet_entry e[40];
        struct safet_writer w;
        struct safet_file f;
        int n = (int)test_range(0, 40);
        uint8_t *data;
        for (int i = 0; i < n; i++) {
            char name[32];
            snprintf(name, sizeof name, "t.%d.\xc3\xa9", (i * 7 + 3) % 41);
            e[i] = entry(name,
                         i < n / 2       ? SAFET_F64
                         : i < n * 3 / 4 ? SAFET_I32
                                         : SAFET_BF16,
                         (int)test_range(0, 2), test_range(0, 9), test_range(0, 9));
        }
        CHECK_OK(safet_create(&w, path, false, e, n, NULL));
        CHECK_OK(mem_new(w.total + 1, 1, "test data", &data));
        for (int64_t i = 0; i < w.total; i++)
            data[i] = (uint8_t)test_random();
        bool places = test_range(0, 1);
        for (int64_t at = 0, part; at < w.total; at += part) {
            part = test_range(0, w.total - at);
            int64_t place = w.total - at - part;
            CHECK_OK(places ? safet_write_at(&w, place, data + place, part)
                            : safet_write(&w, data + at, part));
        }
        CHECK_OK(safet_commit(&w));
        CHECK_OK(safet_open(&f, path));
        CHECK_INT(f.n, n);
        CHECK(f.bytes == w.total && memcmp(f.data, data, (size_t)w.total) == 0);
        for (int i = 0; i < n; i++) {
            const struct safet_entry *got = safet_find(f.entry, f.n, e[i].name);
            CHECK(got && got->type == e[i].type && got->nd == e[i].nd && got->begin == e[i].begin &&
                  got->end == e[i].end);
        }
        safet_close(&f);
        mem_free(data);
    }
}

#define T(name, dtype, shape, offsets)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define A T("a", "F32", "[1]", "[0,4]")
#define B T("b", "F32", "[1]", "[4,8]")

/* Legal headers that a hasty reader refuses. */
static void test_legal(void)
{
    static const struct {
        const char *header;
        int64_t data;
    } good[] = {
        {"{}", 0},
        {"{ }  \n", 0},
        {"{" B "," A "}", 8}, /* any order in the header */
        {"{" A ",\"__metadata__\":{}}", 4},
        {"{\"__metadata__\":{\"k\":\"v\",\"\":\"\\u00e9\\n\"}," A "}", 4},
        {"{" T("t", "F32", "[10,0,100]", "[0,0]") "}", 0},
        {"{" T("s", "F64", "[]", "[0,8]") "}", 8},
        {"{" T("z", "F32", "[0]", "[4,4]") "," A "}", 4},
        {"{" T("z", "F32", "[0]", "[0,0]") "," A "," T("y", "F32", "[7,0]", "[0,0]") "}", 4},
        {"{ \"a\" :\t{ \"data_offsets\" : [ 0 , 4 ] , \"shape\":[1],\"dtype\":\"F32\" } }", 4},
        {"{" T("\\u0061\\u20ac\\ud83d\\ude00", "I32", "[1,1,1,1]", "[0,4]") "}", 4},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_OK(open_header(good[i].header, good[i].data));
}

static const struct broken {
    const char *header;
    int64_t data;
    const char *say;
} broken[] = {
    /* the frame */
    {"[]", 0, "no opening brace"},
    {" {}", 0, "no opening brace"},
    {"{", 0, "at least 10"},
    {"{" A, 4, "no comma"},
    {"{" A "}}", 4, "something behind the object"},
    {"{" A "} x", 4, "something behind the object"},
    {"{" A " " B "}", 8, "no comma"},
    {"{" A ",}", 4, "no key"},
    {"{," A "}", 4, "no key"},
    {"{\"a\" 1}", 4, "no colon"},
    {"{\"a\":}", 4, "no value"},
    {"{a:1}", 4, "no key"},
    {"{\"a", 4, "does not end"},
    {"{\"a\":[1", 4, "not closed"},
    {"{\"a\":[}", 4, "no comma"},
    {"{\xff\xff}", 0, "no UTF-8 at byte 9"},
    {"{\"\xc0\x80\":1}", 0, "no UTF-8"},
    {"{\"\xed\xa0\x80\":1}", 0, "no UTF-8"},
    {"{\"\xf4\x90\x80\x80\":1}", 0, "no UTF-8"},
    {"{\"\xe2\x82\":1}", 0, "no UTF-8"},
    /* names */
    {"{" T("", "F32", "[1]", "[0,4]") "}", 4, "an empty name"},
    {"{" A "," A "}", 4, "begins at byte 0"},
    {"{" T("z", "F32", "[0]", "[0,0]") "," T("z", "F32", "[0]", "[0,0]") "}", 0, "two tensors"},
    {"{" T("a", "F32", "[0]", "[0,0]") "," T("\\u0061", "F32", "[1]", "[0,4]") "}", 4,
     "two tensors named a"},
    {"{" T("a\\u0000", "F32", "[1]", "[0,4]") "}", 4, "a NUL in a string"},
    {"{" T("a\\u000a", "F32", "[1]", "[0,4]") "}", 4, "a control character in a name"},
    {"{" T("a\n", "F32", "[1]", "[0,4]") "}", 4, "a control character in a string"},
    {"{" T("a\\x", "F32", "[1]", "[0,4]") "}", 4, "an unknown escape"},
    {"{" T("a\\u00g0", "F32", "[1]", "[0,4]") "}", 4, "four hexadecimal digits"},
    {"{" T("\\ud800", "F32", "[1]", "[0,4]") "}", 4, "not JSON"},
    /* metadata */
    {"{\"__metadata__\":1}", 0, "no object"},
    {"{\"__metadata__\":[]}", 0, "no object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "no string"},
    {"{\"__metadata__\":{\"a\":{}}}", 0, "no string"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice"},
    /* fields */
    {"{\"a\":1}", 4, "no object"},
    {"{\"a\":[[0]]}", 4, "no object"},
    {"{\"a\":{}}", 4, "lacks one of"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "lacks one of"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "twice"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"x\":1,\"data_offsets\":[0,4]}}", 4, "none of"},
    {"{\"a\":{\"Dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "none of"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,[[4]]]}}", 4, "too deep"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]],\"data_offsets\":[0,4]}}", 4, "behind"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1},\"data_offsets\":[0,4]]}", 4, "no JSON"},
    {"{" T("a", "F16", "[2]", "[0,3]") "}", 3, "its shape and dtype take 4"},
    {"{" T("a", "F4_E2M1", "[2]", "[0,1]") "}", 1, "dtype F4_E2M1, which plait does not know"},
    {"{" T("a", "F4", "[8]", "[0,4]") "}", 4, "dtype F4,"},
    {"{" T("a", "f32", "[1]", "[0,4]") "}", 4, "dtype f32,"},
    {"{\"a\":{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no string"},
    {"{" T("a", "F32", "1", "[0,4]") "}", 4, "its shape is no list"},
    {"{" T("a", "F32", "[1,1,1,1,1]", "[0,4]") "}", 4, "more than 4 extents"},
    {"{" T("a", "F32", "[1]", "[0]") "}", 4, "two whole numbers"},
    {"{" T("a", "F32", "[1]", "[0,4,4]") "}", 4, "two whole numbers"},
    {"{" T("a", "F32", "[1]", "4") "}", 4, "two whole numbers"},
    {"{" T("a", "F32", "[\"1\"]", "[0,4]") "}", 4, "no whole number"},
    {"{" T("a", "F32", "[true]", "[0,4]") "}", 4, "digits alone"},
    {"{" T("a", "F32", "[null]", "[0,4]") "}", 4, "no whole number"},
    /* numbers */
    {"{" T("a", "F32", "[-1]", "[0,4]") "}", 4, "digits alone"},
    {"{" T("a", "F32", "[1.0]", "[0,4]") "}", 4, "digits alone"},
    {"{" T("a", "F32", "[1e0]", "[0,4]") "}", 4, "digits alone"},
    {"{" T("a", "F32", "[01]", "[0,4]") "}", 4, "digits alone"},
    {"{" T("a", "F32", "[1]", "[00,4]") "}", 4, "digits alone"},
    {"{" T("a", "F32", "[9007199254740992]", "[0,4]") "}", 4, "no whole number"},
    {"{" T("a", "F32", "[9007199254740993]", "[0,4]") "}", 4, "no whole number"},
    {"{" T("a", "F32", "[18446744073709551616]", "[0,4]") "}", 4, "no whole number"},
    {"{" T("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "more than 2^63"},
    {"{" T("a", "F32", "[4611686018427387905]", "[0,4]") "}", 4, "no whole number"},
    {"{" T("a", "F32", "[2147483648,2147483648,0]", "[0,0]") "}", 0, "more than 2^63"},
    {"{" T("a", "F32", "[1]", "[0,9007199254740992]") "}", 4, "two whole numbers"},
    {"{" T("a", "F32", "[1]", "[18446744073709551612,0]") "}", 4, "two whole numbers"},
    /* places */
    {"{" T("a", "F32", "[1]", "[4,0]") "}", 4, "bytes 4 to 0"},
    {"{" T("a", "F32", "[2]", "[0,8]") "}", 4, "bytes 0 to 8, the file has 4"},
    {"{" T("a", "F32", "[2]", "[0,4]") "}", 4, "has 4 bytes, its shape and dtype take 8"},
    {"{" T("a", "F32", "[0]", "[0,4]") "}", 4, "take 0"},
    {"{" B "}", 8, "begins at byte 4"},
    {"{" A "," T("b", "F32", "[1]", "[2,6]") "}", 6, "begins at byte 2"},
    {"{" A "," T("b", "F32", "[1]", "[5,9]") "}", 9, "begins at byte 5"},
    {"{" T("z", "F32", "[0]", "[2,2]") "," A "}", 4, "begins at byte 2"},
    {"{" A "}", 5, "end at byte 4, its data at byte 5"},
    {"{}", 1, "end at byte 0"},
};

static void test_broken(void)
{
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        CHECK_ERR(open_header(broken[i].header, broken[i].data), ERR_CHECKPOINT, broken[i].say);
        if (!strstr(err_text(), broken[i].say))
            fprintf(stderr, "  header: %s\n", broken[i].header);
    }
}

/* Long names and entries: the limits themselves, and one more. */
static void test_limits(void)
{
    char header[8192];
    for (int n = 126; n <= 129; n++) {
        snprintf(header, sizeof header, "{" T("%0*d", "F32", "[1]", "[0,4]") "}", n, 0);
        if (n < 128)
            CHECK_OK(open_header(header, 4));
        else
            CHECK_ERR(open_header(header, 4), ERR_CHECKPOINT, "longer than 127");
    }
    snprintf(header, sizeof header, "{" T("a", "F32", "[%*d]", "[0,4]") "}", 5000, 1);
    CHECK_ERR(open_header(header, 4), ERR_CHECKPOINT, "longer than 4096");
    snprintf(header, sizeof header, "{" T("a", "F32", "[%*d]", "[0,4]") "}", 4000, 1);
    CHECK_OK(open_header(header, 4));
}

/* The length in front of the header at its edges, then the file cut at every byte. */
static void test_frame(void)
{
    static const uint64_t edge[] = {
        0,         1,         2,         0x7fffffff, 0x80000000,     0xffffffff, 0x100000000,
        100000000, 100000001, INT64_MAX, 1ull << 63, UINT64_MAX - 7, UINT64_MAX};
    static const char header[] = "{" A "," B "}";
    struct safet_file f;
    uint8_t *p;
    int64_t n = (int64_t)sizeof header - 1, size = make(&p, header, n, 8);
    for (int64_t cut = 0; cut < size; cut++)
        CHECK_ERR(safet_open_bytes(&f, "cut", cut ? p : NULL, cut), ERR_CHECKPOINT, "cut");
    for (int64_t k = -20; k < 20; k++) {
        p[0] = (uint8_t)(n + k);
        if (k)
            CHECK_ERR(safet_open_bytes(&f, "moved", p, size), ERR_CHECKPOINT, "moved");
        else
            CHECK_OK(safet_open_bytes(&f, "moved", p, size));
        if (!k)
            safet_close(&f);
    }
    for (size_t k = 0; k < sizeof edge / sizeof *edge; k++) {
        for (int i = 0; i < 8; i++)
            p[i] = (uint8_t)(edge[k] >> (8 * i));
        CHECK_ERR(safet_open_bytes(&f, "edge", p, size), ERR_CHECKPOINT, "edge");
    }
    mem_free(p);
}

/* One to three bytes or spans of a header at random. */
static void mutate(uint8_t *p, int64_t n)
{
    static const char letters[] = "{}[]\",:0123456789\\u aF\xc3\xa9-.e\n";
    for (int64_t k = test_range(1, 3); k-- > 0;) {
        int64_t at = test_range(0, n - 1), to = test_range(0, n - 1), span = test_range(1, 12);
        if (test_random() % 3)
            p[at] = (uint8_t)letters[test_range(0, (int64_t)sizeof letters - 2)];
        else
            memmove(p + at, p + to, (size_t)num_min(span, n - num_max(at, to)));
    }
}

/* Header bytes at random: no crash, and what is accepted keeps the law. */
static void test_fuzz(void)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"}," A "," B
        "," T("c\\u00e9", "BF16", "[2,3]", "[8,20]") "," T("d", "F64", "[]", "[20,28]") "}   ";
    int64_t n = (int64_t)sizeof header - 1;
    int accepted = 0;
    uint8_t *good, *bad;
    int64_t size = make(&good, header, n, 28);
    CHECK_OK(mem_new(size, 1, "a mutant", &bad));
    CHECK_OK(open_header(header, 28));
    for (int round = 0; round < 120000; round++) {
        struct safet_file f;
        memcpy(bad, good, (size_t)size);
        if (round % 4 == 0) { /* gently: a digit for a digit, a letter for a letter */
            uint8_t *c = bad + test_range(8, 8 + n - 1);
            *c = (uint8_t)(*c >= '0' && *c <= '9'   ? '0' + test_range(0, 9)
                           : *c >= 'a' && *c <= 'z' ? 'a' + test_range(0, 25)
                                                    : *c);
        } else {
            mutate(bad + 8, n);
        }
        if (round % 16 == 1)
            bad[test_range(0, 7)] ^= (uint8_t)(1u << test_range(0, 7));
        if (safet_open_bytes(&f, "fuzz", bad, size) != ERR_OK)
            continue;
        accepted++;
        int64_t sum = 0;
        for (int i = 0; i < f.n; i++) {
            const struct safet_entry *e = &f.entry[i];
            CHECK(e->begin >= 0 && e->begin <= e->end && e->end <= f.bytes);
            CHECK(e->nd >= 0 && e->nd <= 4 && safet_find(f.entry, f.n, e->name) == e);
            sum += e->end - e->begin;
        }
        CHECK_INT(sum, f.bytes);
        safet_close(&f);
    }
    test_check(accepted > 1000, __FILE__, __LINE__, "%d accepted",
               accepted); /* renamed tensors and the like are legal */
    mem_free(good);
    mem_free(bad);
}

/* Headers that cost a careless reader its memory, its stack or its afternoon. */
static void test_large(void)
{
    enum { N = 100000, DEEP = 4000000 };
    struct text t = {0};
    struct safet_file f;
    char *header;
    uint8_t *p;
    text_add(&t, "{");
    for (int i = 0; i < N; i++)
        text_add(&t, "%s\"layers.%d\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                 i ? "," : "", (int)((int64_t)i * 7919 % N), 2 * i, 2 * i + 2);
    text_add(&t, "}");
    int64_t n = t.len;
    CHECK_OK(text_done(&t, &header));
    int64_t size = make(&p, header, n, 2 * N);
    double from = log_now();
    CHECK_OK(safet_open_bytes(&f, "large", p, size));
    double took = log_now() - from;
    CHECK_INT(f.n, N);
    CHECK(safet_find(f.entry, f.n, "layers.99999") != NULL);
    test_check(took < 20.0, __FILE__, __LINE__, "%d tensors took %g s", N, took);
    safet_close(&f);
    mem_free(p);
    mem_free(header);
    static const char *const head[] = {"{\"a\":", "{\"a\":{\"b\":", "{\"__metadata__\":", "{"};
    static const char fill[] = {'[', '{', '[', '"'};
    for (int k = 0; k < 4; k++) {
        text_add(&t, "%s", head[k]);
        text_add_char(&t, fill[k], DEEP);
        n = t.len;
        CHECK_OK(text_done(&t, &header));
        size = make(&p, header, n, 0);
        CHECK_ERR(safet_open_bytes(&f, "deep", p, size), ERR_CHECKPOINT, "deep");
        mem_free(p);
        mem_free(header);
    }
}

static void test_no_files(void)
{
    struct safet_file f;
    CHECK_OK(fs_make_dirs(DIR_NAME));
    CHECK_ERR(safet_open(&f, DIR_NAME "/none"), ERR_CHECKPOINT, "none");
    CHECK_ERR(safet_open(&f, DIR_NAME), ERR_CHECKPOINT, "folder");
    CHECK_ERR(safet_open(&f, "/dev/zero"), ERR_CHECKPOINT, "/dev/zero");
}

/* ---- the writer's own rules ---- */

static void test_writer_rules(void)
{
    const char *path = DIR_NAME "/rules.safetensors";
    struct safet_entry e[2] = {entry("a", SAFET_F32, 1, 2, 0), entry("a", SAFET_F32, 1, 2, 0)};
    struct safet_writer w = {0};
    char byte[16] = {0};
    CHECK_OK(fs_make_dirs(DIR_NAME));
    int flags = fcntl(0, F_GETFD);
    safet_abandon(&w); /* never made: descriptor 0 stays as it is */
    CHECK_INT(fcntl(0, F_GETFD), flags);
    unlink(path);
    CHECK_ERR(safet_create(&w, path, false, e, 2, NULL), ERR_INTERNAL, "two tensors are named a");
    safet_abandon(&w);
    e[1].name[0] = '\0';
    CHECK_ERR(safet_create(&w, path, false, e, 2, NULL), ERR_INTERNAL, "no legal name");
    snprintf(e[1].name, sizeof e[1].name, "\xff");
    CHECK_ERR(safet_create(&w, path, false, e, 2, NULL), ERR_INTERNAL, "no legal name");
    memset(e[1].name, 'x', sizeof e[1].name);
    CHECK_ERR(safet_create(&w, path, false, e, 2, NULL), ERR_INTERNAL, "no legal name");
    e[0] = entry("a", SAFET_BF16, 1, 1, 0);
    e[1] = entry("b", SAFET_F32, 1, 1, 0);
    CHECK_ERR(safet_create(&w, path, false, e, 2, NULL), ERR_INTERNAL, "write wider types first");
    e[1] = entry("b", SAFET_BF16, 2, (int64_t)1 << 40, (int64_t)1 << 40);
    CHECK_ERR(safet_create(&w, path, false, e, 2, NULL), ERR_INTERNAL, "beyond 2^53");
    e[1] = entry("b", SAFET_BF16, 1, -1, 0);
    CHECK_ERR(safet_create(&w, path, false, e, 2, NULL), ERR_INTERNAL, "not legal");
    e[1] = entry("b", SAFET_BF16, 1, 3, 0);
    CHECK_OK(safet_create(&w, path, false, e, 2, NULL));
    CHECK_OK(safet_write(&w, byte, 7));
    CHECK_ERR(safet_write(&w, byte, 2), ERR_INTERNAL, "7 bytes of tensors are written and 2 more");
    CHECK_ERR(safet_write_at(&w, 7, byte, 2), ERR_INTERNAL, "2 bytes are given for byte 7");
    CHECK_ERR(safet_write_at(&w, -1, byte, 2), ERR_INTERNAL, "2 bytes are given for byte -1");
    CHECK_ERR(safet_commit(&w), ERR_INTERNAL, "the entries take 8");
    safet_abandon(&w);
    CHECK(!fs_exists(path));
    CHECK_OK(safet_create(&w, path, false, e, 2, NULL));
    safet_abandon(&w);
    safet_abandon(&w);
    CHECK(!fs_exists(path));
}

static const struct fs_ops *real_ops;
static int calls, fail_at;

static bool fails(void)
{
    errno = ENOSPC;
    return ++calls == fail_at;
}

static int bad_open(const char *path, int flags, unsigned mode)
{
    return (flags & O_CREAT) && fails() ? -1 : real_ops->open(path, flags, mode);
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

static enum err write_all(const char *path)
{
    static uint8_t data[5 << 20];
    struct safet_entry e[2] = {entry("a", SAFET_F32, 2, 1 << 10, 1 << 10),
                               entry("b", SAFET_BF16, 1, 1 << 19, 0)};
    struct safet_writer w;
    enum err err;
    TRY(safet_create(&w, path, false, e, 2, NULL));
    for (int64_t at = 0; at < w.total; at += 1 << 18)
        TRY_OR(out_file, safet_write(&w, data + at, 1 << 18));
    TRY_OR(out_file, safet_commit(&w));
out_file:
    safet_abandon(&w);
    return err;
}

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

/* ENOSPC at every call that changes the disk: the old file stands, nothing is left beside it. */
static void test_full_disk(void)
{
    const char *path = DIR_NAME "/full.safetensors";
    struct safet_file f;
    int failures = 0;
    enum err err = ERR_STORAGE;
    CHECK_OK(fs_make_dirs(DIR_NAME));
    CHECK_OK(write_all(path));
    int before = entries(DIR_NAME);
    real_ops = fs_ops;
    struct fs_ops ops = *fs_ops;
    ops.open = bad_open;
    ops.write = bad_write;
    ops.fsync = bad_fsync;
    ops.rename = bad_rename;
    fs_ops = &ops;
    for (fail_at = 1; err != ERR_OK && fail_at < 100; fail_at++) {
        calls = 0;
        err = write_all(path);
        if (err == ERR_OK)
            break;
        failures++;
        CHECK_INT(err, ERR_STORAGE);
        CHECK_INT(entries(DIR_NAME), before);
        CHECK_OK(safet_open(&f, path));
        safet_close(&f);
    }
    fs_ops = real_ops;
    CHECK_OK(err);
    CHECK(failures >= 9); /* open, 5 MiB in pieces, two flushes, rename */
}

static const struct test_case cases[] = {
    {"write these bytes", test_write_bytes},       {"read the reference file", test_read_reference},
    {"random tensors come back", test_round_trip}, {"legal headers", test_legal},
    {"every rule broken once", test_broken},       {"limits of names and entries", test_limits},
    {"length and truncation", test_frame},         {"random headers", test_fuzz},
    {"large and deep headers", test_large},        {"no file, no regular file", test_no_files},
    {"the writer's rules", test_writer_rules},     {"a full disk at every call", test_full_disk},
};
TEST_MAIN(cases)
