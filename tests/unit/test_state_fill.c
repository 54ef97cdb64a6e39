/* SPDX-License-Identifier: Apache-2.0
 *
 * Shards with chunks of many strips and of a few bytes: whoever turns, hashes and writes them, and
 * however many do, the file has the numbers in the tensors' orientation and the index the hashes of
 * its bytes. What fails first in the file's order is said, and ends it, wherever the others are.
 * Copies that turn are held against one by elements.
 */
#include "ckpt/state_local.h"
#include "test.h"

#include "base/fs_sys.h"
#include "base/mem.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#define DIR_NAME "fill"
enum { CHUNKS = 7 };

struct shard {
    struct state_chunk chunk[CHUNKS];
    struct state_source from[CHUNKS];
    char *memory[CHUNKS]; /* owned */
};

static double value_at(int chunk, int64_t row, int64_t col)
{
    return (double)(chunk * 1000003 + row * 4099 + col);
}

/* Chunk i, its numbers lying in memory as `from` says. */
static void make_chunk(struct shard *s, int i, enum safet_type type, const int64_t n[2],
                       bool turned)
{
    struct state_chunk *c = &s->chunk[i];
    *c = (struct state_chunk){.nd = 2, .shape = {n[0], n[1]}, .box = {{0, 0}, {n[0], n[1]}}};
    snprintf(c->tensor, sizeof c->tensor, "t%d", i);
    CHECK_OK(mem_new(n[0] * n[1], (size_t)safet_type_size(type), "numbers", &s->memory[i]));
    for (int64_t r = 0; r < n[0]; r++)
        for (int64_t col = 0; col < n[1]; col++) {
            int64_t at = turned ? col * n[0] + r : r * n[1] + col;
            if (type == SAFET_F64)
                ((double *)(void *)s->memory[i])[at] = value_at(i, r, col);
            else
                ((float *)(void *)s->memory[i])[at] = (float)value_at(i, r, col);
        }
    s->from[i] = (struct state_source){s->memory[i], turned};
}

/* One of them takes many strips; the rest are of any size. */
static void make(struct shard *s, enum safet_type type)
{
    int large = (int)test_range(0, CHUNKS - 1);
    *s = (struct shard){.chunk = {{.nd = 0}}};
    for (int i = 0; i < CHUNKS; i++) {
        int64_t most = test_range(0, 1) ? 40 : 700;
        int64_t n[2] = {test_range(1, most), test_range(1, most)};
        if (i == large)
            n[0] = test_range(2900, 3100), n[1] = 24000000 / safet_type_size(type) / n[0];
        make_chunk(s, i, type, n, i == large || test_range(0, 1));
    }
}

static void drop(struct shard *s)
{
    for (int i = 0; i < CHUNKS; i++)
        mem_free(s->memory[i]);
}

static enum err write_it(const struct shard *s, enum safet_type type, struct state_shard *w,
                         const atomic_bool *given_up)
{
    struct state_save save = {DIR_NAME, 1, "run", type, 0};
    TRY(state_shard_create(w, &save, "a.safetensors", s->chunk, CHUNKS));
    enum err err = state_shard_fill(w, s->from, (int)test_range(0, STATE_HELPERS + 1), given_up);
    return err == ERR_OK ? safet_commit(&w->file) : err;
}

static void check_chunk(const struct safet_file *f, int i, const struct state_chunk *c)
{
    const struct safet_entry *e = safet_find(f->entry, f->n, c->tensor);
    int64_t wrong = 0, cols = c->box.n[1];
    CHECK(e != NULL);
    for (int64_t k = 0; e && k < state_box_elements(&c->box); k++) {
        const void *at = f->data + e->begin + k * safet_type_size(e->type);
        double want = value_at(i, k / cols, k % cols);
        wrong += e->type == SAFET_F64 ? *(const double *)at != want
                                      : *(const float *)at != (float)want;
    }
    CHECK_INT(wrong, 0);
    CHECK(e && XXH3_64bits(f->data + e->begin, (size_t)(e->end - e->begin)) == c->hash);
}

/* None, one of one number, one of many strips and a last one that fits a strip: each thread finds
 * what there is for it. */
static void test_few(void)
{
    struct state_save save = {DIR_NAME, 1, "run", SAFET_F64, 0};
    CHECK_OK(fs_make_dirs(DIR_NAME));
    for (int n = 0; n <= 3; n++)
        for (int helpers = 0; helpers <= STATE_HELPERS; helpers++) {
            struct shard s = {.chunk = {{.nd = 0}}};
            struct state_shard w = {.n = 0};
            struct safet_file f;
            for (int i = 0; i < n; i++)
                make_chunk(&s, i, SAFET_F64, (int64_t[]){i == 1 ? 500 : 1, i == 0 ? 1 : 100},
                           helpers % 2);
            CHECK_OK(state_shard_create(&w, &save, "a.safetensors", s.chunk, n));
            CHECK_OK(state_shard_fill(&w, s.from, helpers, NULL));
            CHECK_OK(safet_commit(&w.file));
            CHECK_OK(safet_open(&f, DIR_NAME "/a.safetensors"));
            CHECK_INT(f.n, n);
            for (int i = 0; i < n; i++)
                check_chunk(&f, i, &w.chunk[i]);
            safet_close(&f);
            state_shard_close(&w);
            drop(&s);
        }
}

static void test_strips(void)
{
    CHECK_OK(fs_make_dirs(DIR_NAME));
    for (int k = 0; k < 4; k++) {
        enum safet_type type = k % 2 ? SAFET_F64 : SAFET_F32;
        struct shard s;
        struct state_shard w = {.n = 0};
        struct safet_file f;
        make(&s, type);
        CHECK_OK(write_it(&s, type, &w, NULL));
        CHECK_OK(safet_open(&f, DIR_NAME "/a.safetensors"));
        for (int i = 0; i < CHUNKS; i++)
            check_chunk(&f, i, &w.chunk[i]);
        safet_close(&f);
        state_shard_close(&w);
        drop(&s);
    }
}

/* ---- what is not finite ---- */

static void put_number(struct shard *s, enum safet_type type, int i, int64_t at, double value)
{
    if (type == SAFET_F64)
        ((double *)(void *)s->memory[i])[at] = value;
    else
        ((float *)(void *)s->memory[i])[at] = (float)value;
}

/* Where element `at` of the memory of chunk i is in its tensor. */
static void place_of(const struct shard *s, int i, int64_t at, char out[64])
{
    int64_t rows = s->chunk[i].box.n[0], cols = s->chunk[i].box.n[1];
    bool turned = s->from[i].transposed;
    int64_t row = turned ? at % rows : at / cols, col = turned ? at / rows : at % cols;
    snprintf(out, 64, " at [%lld, %lld]", (long long)row, (long long)col);
}

/* What has no name yet, too. */
static void check_gone(void)
{
    struct fs_folder f;
    CHECK(fs_folder_open(&f, DIR_NAME));
    for (const char *name; (name = fs_folder_next(&f));)
        test_check(!strstr(name, "b.safetensors"), __FILE__, __LINE__, "%s is left", name);
    fs_folder_close(&f);
}

/* By so many helpers; whatever comes of it, it is not committed. */
static enum err fill_by(const struct shard *s, enum safet_type type, double most, int helpers)
{
    struct state_save save = {DIR_NAME, 1, "run", type, most};
    struct state_shard w = {.n = 0};
    CHECK_OK(state_shard_create(&w, &save, "b.safetensors", s->chunk, CHUNKS));
    enum err err = state_shard_fill(&w, s->from, helpers, NULL);
    state_shard_close(&w);
    check_gone();
    return err;
}

static enum err fill(const struct shard *s, enum safet_type type, double most)
{
    return fill_by(s, type, most, (int)test_range(0, STATE_HELPERS));
}

/* Wherever it stands: its tensor and place are named, and no file is left. */
static void test_finite(void)
{
    static const double values[] = {NAN, -NAN, INFINITY, -INFINITY};
    CHECK_OK(fs_make_dirs(DIR_NAME));
    for (int k = 0; k < 24; k++) {
        enum safet_type type = k % 2 ? SAFET_F64 : SAFET_F32;
        int i = (int)test_range(0, CHUNKS - 1);
        char place[64], name[64];
        struct shard s;
        make(&s, type);
        int64_t n = state_box_elements(&s.chunk[i].box);
        int64_t at = k % 3 == 0 ? 0 : k % 3 == 1 ? n - 1 : test_range(0, n - 1);
        s.chunk[i].kind = (enum state_kind)test_range(0, STATE_KINDS - 1);
        put_number(&s, type, i, at, values[test_range(0, 3)]);
        place_of(&s, i, at, place);
        bool moment = s.chunk[i].kind != STATE_WEIGHT;
        snprintf(name, sizeof name, "%s%st%d is ", moment ? state_kind_name[s.chunk[i].kind] : "",
                 moment ? "." : "", i);
        enum err err = fill(&s, type, 0);
        CHECK_ERR(err, ERR_NONFINITE, place);
        CHECK_ERR(err, ERR_NONFINITE, name);
        put_number(&s, type, i, at, k % 2 ? 1.7976931348623157e308 : 3.402823466e38);
        CHECK_OK(fill(&s, type, 0));
        drop(&s);
    }
}

/* Of several the one that stands first, whoever meets it and when. */
static void test_first(void)
{
    CHECK_OK(fs_make_dirs(DIR_NAME));
    for (int k = 0; k < 60; k++) {
        int first = CHUNKS;
        int64_t first_at = 0;
        char place[64], name[32];
        struct shard s;
        make(&s, SAFET_F32);
        for (int n = 0; n < 3; n++) {
            int i = (int)test_range(0, CHUNKS - 1);
            int64_t at = test_range(0, state_box_elements(&s.chunk[i].box) - 1);
            put_number(&s, SAFET_F32, i, at, NAN);
            if (i < first) {
                first = i;
                first_at = at;
            } else if (i == first) { /* one of a chunk: of two its orientation says the first */
                put_number(&s, SAFET_F32, i, at, 0);
                put_number(&s, SAFET_F32, i, first_at, NAN);
            }
        }
        place_of(&s, first, first_at, place);
        snprintf(name, sizeof name, "t%d is nan", first);
        enum err err = fill(&s, SAFET_F32, 0);
        CHECK_ERR(err, ERR_NONFINITE, name);
        CHECK_ERR(err, ERR_NONFINITE, place);
        drop(&s);
    }
}

/* The limit of the type that is computed with is that of weights. */
static void test_limit(void)
{
    double most = dtype_most(DT_BF16);
    struct shard s;
    CHECK_OK(fs_make_dirs(DIR_NAME));
    make(&s, SAFET_F32);
    put_number(&s, SAFET_F32, 3, 0, -most);
    CHECK_OK(fill(&s, SAFET_F32, most));
    put_number(&s, SAFET_F32, 3, 0, -3.4e38);
    CHECK_ERR(fill(&s, SAFET_F32, most), ERR_NONFINITE, "infinite in the type");
    s.chunk[3].kind = STATE_V;
    CHECK_OK(fill(&s, SAFET_F32, most));
    drop(&s);
}

static const struct fs_ops *real_ops;
static atomic_int left; /* calls that are good */

static int64_t bad_write(int fd, const void *p, int64_t n, int64_t at)
{
    errno = ENOSPC;
    return atomic_fetch_sub(&left, 1) == 0 ? -1 : real_ops->write(fd, p, n, at);
}

static void test_fails(void)
{
    struct shard s;
    struct fs_ops bad = *fs_ops;
    enum err err = ERR_STORAGE;
    CHECK_OK(fs_make_dirs(DIR_NAME));
    real_ops = fs_ops;
    bad.write = bad_write;
    fs_ops = &bad;
    make(&s, SAFET_F32);
    for (int n = 0; err != ERR_OK && n < 1000; n += 1 + n / 8) {
        struct state_shard w = {.n = 0};
        left = n;
        err = write_it(&s, SAFET_F32, &w, NULL);
        if (err != ERR_OK)
            CHECK_ERR(err, ERR_STORAGE, "no space left");
        state_shard_close(&w);
        CHECK(n > 5 || err != ERR_OK); /* there are more than ten writes */
    }
    CHECK_OK(err);
    fs_ops = real_ops;
    drop(&s);
}

/* ---- a write fails beside others ---- */

enum { FIRST_STRIPS = 12 };
static atomic_int behind; /* writes of the first chunk that come when another's has failed */
static atomic_bool met;

/* The first chunk waits until a later one has failed. */
static int64_t late_write(int fd, const void *p, int64_t n, int64_t at)
{
    if (at >= FIRST_STRIPS * (256 << 10)) {
        atomic_store(&met, true);
        errno = EFBIG;
        return -1;
    }
    for (int i = 0; i < 2000 && !atomic_load(&met); i++)
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    atomic_fetch_add(&behind, 1);
    return real_ops->write(fd, p, n, at);
}

/* No more is written, but what stands in front is looked at: that it is not finite counts more. */
static void test_beside(void)
{
    struct fs_ops ops = *fs_ops;
    CHECK_OK(fs_make_dirs(DIR_NAME));
    real_ops = fs_ops;
    ops.write = late_write;
    for (int k = 0; k < 6; k++) {
        struct shard s = {.chunk = {{.nd = 0}}};
        for (int i = 0; i < CHUNKS; i++)
            make_chunk(&s, i, SAFET_F32, (int64_t[]){256, i == 0 ? 256 * FIRST_STRIPS : 300},
                       test_range(0, 1));
        if (k % 2)
            put_number(&s, SAFET_F32, 0, state_box_elements(&s.chunk[0].box) - 1, INFINITY);
        atomic_store(&met, false);
        atomic_store(&behind, 0);
        fs_ops = &ops;
        enum err err = fill_by(&s, SAFET_F32, 0, 1 + k);
        fs_ops = real_ops;
        if (k % 2)
            CHECK_ERR(err, ERR_NONFINITE, "t0 is inf at [255, 3071]");
        else
            CHECK_ERR(err, ERR_STORAGE, "cannot write " DIR_NAME "/b.safetensors");
        CHECK(atomic_load(&met) && atomic_load(&behind) < FIRST_STRIPS / 2);
        drop(&s);
    }
}

/* ---- threads that cannot be started ---- */

static atomic_int startable = -1; /* threads; negative: any number */

/* In front of the C library's. */
int pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*body)(void *), void *arg)
{
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    if (atomic_load(&startable) >= 0 && atomic_fetch_sub(&startable, 1) == 0)
        return EAGAIN;
    return next(out, attr, body, arg);
}

/* Those that are there end, and nothing stays of them. */
static void test_no_thread(void)
{
    struct shard s;
    CHECK_OK(fs_make_dirs(DIR_NAME));
    make(&s, SAFET_F32);
    put_number(&s, SAFET_F32, 0, 0, NAN); /* is no matter then */
    for (int n = 0; n < CHUNKS - 1; n++) {
        atomic_store(&startable, n);
        CHECK_ERR(fill_by(&s, SAFET_F32, 0, CHUNKS - 1), ERR_MEMORY,
                  "no thread to write a checkpoint");
        CHECK_INT(atomic_load(&startable), -1); /* none is tried behind it */
    }
    drop(&s);
}

/* ---- given up, and watched ---- */

static atomic_bool given_up;
static atomic_int writes;

static int64_t last_write(int fd, const void *p, int64_t n, int64_t at)
{
    if (atomic_fetch_add(&writes, 1) == 3)
        atomic_store(&given_up, true);
    return real_ops->write(fd, p, n, at);
}

/* Nothing more is written, but what is under way; and nothing at all where it is from the start. */
static void test_given_up(void)
{
    struct shard s;
    struct fs_ops ops = *fs_ops;
    CHECK_OK(fs_make_dirs(DIR_NAME));
    real_ops = fs_ops;
    ops.write = last_write;
    fs_ops = &ops;
    make(&s, SAFET_F32);
    for (int from_start = 0; from_start < 2; from_start++) {
        struct state_shard w = {.n = 0};
        atomic_store(&given_up, from_start);
        atomic_store(&writes, 0);
        CHECK_ERR(write_it(&s, SAFET_F32, &w, &given_up), ERR_PEER,
                  "ckpt: shard a.safetensors is given up");
        CHECK(atomic_load(&writes) <= (from_start ? 0 : 4 + STATE_HELPERS));
        state_shard_close(&w);
    }
    fs_ops = real_ops;
    drop(&s);
}

static _Thread_local bool told;

static void on_begin(void *arg, const char *path)
{
    CHECK(arg == &writes && strcmp(path, DIR_NAME "/a.safetensors") == 0);
    told = true;
}

static void on_end(void *arg)
{
    (void)arg;
    told = false;
}

static int64_t told_write(int fd, const void *p, int64_t n, int64_t at)
{
    atomic_fetch_add(&writes, !told);
    return real_ops->write(fd, p, n, at);
}

/* Each write of each thread is told to the watch of the one that calls. */
static void test_watched(void)
{
    struct shard s;
    struct state_shard w = {.n = 0};
    struct fs_ops ops = *fs_ops;
    struct fs_watch watch = {on_begin, on_end, &writes};
    CHECK_OK(fs_make_dirs(DIR_NAME));
    real_ops = fs_ops;
    ops.write = told_write;
    fs_ops = &ops;
    make(&s, SAFET_F32);
    atomic_store(&writes, 0);
    struct state_save save = {DIR_NAME, 1, "run", SAFET_F32, 0};
    CHECK_OK(state_shard_create(&w, &save, "a.safetensors", s.chunk, CHUNKS));
    (void)fs_watch_set(&watch);
    CHECK_OK(state_shard_fill(&w, s.from, STATE_HELPERS, NULL));
    (void)fs_watch_set(NULL);
    fs_ops = real_ops;
    CHECK_INT(atomic_load(&writes), 0);
    state_shard_close(&w);
    drop(&s);
}

/* ---- copies ---- */

enum { SIDE = 70 };

static double element(const struct state_span *s, int64_t r, int64_t c)
{
    int64_t at = r * s->step[0] + c * s->step[1];
    return s->type == SAFET_F64 ? ((double *)(void *)s->p)[at] : ((float *)(void *)s->p)[at];
}

static struct state_span draw_span(void *p, const int64_t n[2])
{
    struct state_span s = {p, test_range(0, 1) ? SAFET_F32 : SAFET_F64, {0, 1}};
    int64_t more = test_range(0, 2);
    s.step[0] = n[1] + more;
    if (test_range(0, 1))
        s.step[0] = 1, s.step[1] = n[0] + more;
    return s;
}

static void test_copies(void)
{
    static double from[SIDE * (SIDE + 2)], to[SIDE * (SIDE + 2)];
    for (int k = 0; k < 2000; k++) {
        int64_t n[2] = {test_range(1, SIDE), test_range(1, SIDE)}, wrong = 0, touched = 0;
        struct state_span a = draw_span(to, n), b = draw_span(from, n);
        for (int64_t i = 0; i < SIDE * (SIDE + 2); i++)
            if (b.type == SAFET_F64)
                from[i] = (double)i;
            else
                ((float *)(void *)from)[i] = (float)i;
        memset(to, 0xff, sizeof to);
        state_copy(&a, &b, n);
        for (int64_t r = 0; r < n[0]; r++)
            for (int64_t c = 0; c < n[1]; c++)
                wrong += element(&a, r, c) != element(&b, r, c);
        for (int64_t i = 0; i < SIDE * (SIDE + 2); i++)
            touched += a.type == SAFET_F64 ? to[i] == to[i]
                                           : ((float *)(void *)to)[i] == ((float *)(void *)to)[i];
        CHECK_INT(wrong, 0);
        CHECK_INT(touched, n[0] * n[1]); /* NaN stays where nothing is to be */
    }
}

static const struct test_case cases[] = {
    {"few", test_few}, {"strips", test_strips}, {"finite", test_finite}, {"first", test_first},
    {"limit", test_limit}, {"fails", test_fails}, {"beside", test_beside},
    {"no thread", test_no_thread}, {"given up", test_given_up}, {"watched", test_watched},
    {"copies", test_copies}};
TEST_MAIN(cases)
