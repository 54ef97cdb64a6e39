/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints on disk: boxes against brute force, round trips over random cuts of random models,
 * files that are whole or not there, how long many chunks take. Damage is the matter of
 * test_state_hostile.c.
 */
#include "saved.h"

#include "base/mem.h"
#include "ckpt/state_local.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define DIR_NAME "state"

static int entries(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* ---- boxes ---- */

/* Every range of arrays of up to 7 columns and 5 rows: at most three boxes, which hold the elements
 * from first to last in their order. */
static void test_boxes(void)
{
    for (int64_t cols = 1; cols <= 7; cols++)
        for (int64_t from = 0; from <= 5 * cols; from++)
            for (int64_t to = from; to <= 5 * cols; to++) {
                struct state_box b[3];
                int64_t at = from;
                int n = state_boxes(cols, from, to, b);
                if (!CHECK(n <= 3 && (n > 0) == (to > from)))
                    return;
                for (int i = 0; i < n; i++)
                    for (int64_t r = 0; r < b[i].n[0]; r++)
                        for (int64_t c = 0; c < b[i].n[1]; c++)
                            at += at == (b[i].at[0] + r) * cols + b[i].at[1] + c ? 1 : 1000;
                if (!CHECK(at == to))
                    return;
            }
    struct state_box b[3];
    CHECK_INT(state_boxes((int64_t)1 << 40, 5, ((int64_t)1 << 41) + 3, b), 3);
    CHECK_INT(b[1].n[0], 1);
    CHECK_INT(b[2].n[1], 3);
}

static int cut_square(struct state_box *out, int n, struct state_box b)
{
    int axis = (int)test_range(0, 1);
    if (b.n[axis] < 2 || n > 20 || test_range(0, 3) == 0) {
        out[n] = b;
        return n + 1;
    }
    struct state_box rest = b;
    b.n[axis] = test_range(1, b.n[axis] - 1);
    rest.at[axis] += b.n[axis];
    rest.n[axis] -= b.n[axis];
    return cut_square(out, cut_square(out, n, b), rest);
}

static bool covers_once(const int64_t shape[2], const struct state_box *b, int n)
{
    int count[12][12] = {{0}};
    bool once = true;
    for (int i = 0; i < n; i++)
        for (int64_t r = 0; r < b[i].n[0]; r++)
            for (int64_t c = 0; c < b[i].n[1]; c++)
                count[b[i].at[0] + r][b[i].at[1] + c]++;
    for (int64_t r = 0; r < shape[0]; r++)
        for (int64_t c = 0; c < shape[1]; c++)
            once = once && count[r][c] == 1;
    return once;
}

static void damage_box(struct state_box *b, const int64_t shape[2])
{
    int axis = (int)test_range(0, 1);
    if (test_range(0, 1))
        b->at[axis] = test_range(0, shape[axis] - b->n[axis]);
    else
        b->n[axis] = test_range(1, shape[axis] - b->at[axis]);
}

static enum state_tiling tile(const int64_t shape[2], const struct state_box *box, int n,
                              struct state_corner *corner, int64_t *got)
{
    struct state_piece piece[64] = {{.box = {{0, 0}, {0, 0}}}};
    for (int i = 0; i < n; i++)
        piece[i].box = box[i];
    return state_tile(shape, piece, n, corner, got);
}

/* Tilings and what one to three moved, grown, shrunk, doubled or missing boxes make of them. */
static void test_tiling(void)
{
    int64_t tiles = 0, misfits = 0, got;
    for (int round = 0; round < 20000; round++) {
        struct state_box b[64];
        struct state_corner corner[256];
        int64_t shape[2] = {test_range(1, 12), test_range(1, 12)};
        int n = cut_square(b, 0, (struct state_box){{0, 0}, {shape[0], shape[1]}});
        for (int64_t i = test_range(0, 3); i > 0 && n > 0; i--) {
            int64_t kind = test_range(0, 9);
            if (kind == 0)
                n--;
            else if (kind == 1 && n < 60)
                b[n++] = b[0];
            else
                damage_box(&b[test_range(0, n - 1)], shape);
        }
        enum state_tiling t = tile(shape, b, n, corner, &got);
        bool once = covers_once(shape, b, n);
        tiles += once;
        misfits += t == STATE_MISFIT;
        if (!CHECK(once == (t == STATE_TILES)))
            return;
        if (t == STATE_MISFIT)
            CHECK(corner[0].at[0] <= shape[0] && corner[0].at[1] <= shape[1]);
    }
    CHECK(tiles > 4000 && misfits > 500);
    /* A pinwheel, which no row of cuts makes. */
    static const int64_t square[2] = {3, 3};
    struct state_corner corner[20];
    struct state_box pin[5] = {{{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}},
                               {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
    CHECK(tile(square, pin, 5, corner, &got) == STATE_TILES);
    CHECK(tile(square, pin, 4, corner, &got) == STATE_TOO_LITTLE && got == 8);
    pin[4].at[0] = 0;
    CHECK(tile(square, pin, 5, corner, &got) == STATE_MISFIT);
}

/* ---- round trips ---- */

static void check_head(const struct state_head *a, const struct state_head *b)
{
    CHECK(a->step == b->step && a->type == b->type && a->seed == b->seed);
    CHECK_STR(a->run, b->run);
    CHECK_STR(a->config, b->config);
    CHECK_STR(a->notes, b->notes);
    CHECK(a->data_hash == b->data_hash && a->valid_hash == b->valid_hash);
    CHECK_STR(a->tokenizer, b->tokenizer);
    CHECK(a->tokenizer_hash == b->tokenizer_hash && a->warmup == b->warmup);
    CHECK(a->decay == b->decay && a->steps == b->steps && a->within == b->within);
    CHECK(a->loss == b->loss || (isnan(a->loss) && isnan(b->loss)));
    CHECK(isnan(a->valid_loss) && isnan(b->valid_loss));
    CHECK_INT(a->world, b->world);
    CHECK_STR(a->layout, b->layout);
    const struct model *x = &a->model, *y = &b->model;
    CHECK(x->kind == y->kind && x->layers == y->layers && x->hidden == y->hidden);
    CHECK(x->heads == y->heads && x->kv_heads == y->kv_heads && x->head_dim == y->head_dim);
    CHECK(x->ffn == y->ffn && x->vocab == y->vocab && x->seq == y->seq && x->tied == y->tied);
    CHECK(x->dropout == y->dropout && x->norm_eps == y->norm_eps);
    CHECK(x->rope_theta == y->rope_theta && x->init_std == y->init_std);
}

static void round_trip(int round)
{
    struct saved s;
    struct state_index x;
    char dir[64];
    snprintf(dir, sizeof dir, DIR_NAME "/round-%d", round);
    CHECK_OK(fs_make_dirs(dir));
    saved_make(&s, round % 2 ? MODEL_GPT : MODEL_LLAMA, round / 2 % 2 ? SAFET_F64 : SAFET_F32);
    saved_cut(&s, (int)test_range(1, SAVED_RANKS), round / 4 % 2);
    CHECK_OK(saved_write(&s, dir, -1));
    saved_check(&s, dir, 0);
    saved_check(&s, dir, 60);
    CHECK_OK(state_index_open(&x, dir));
    check_head(&x.head, &s.head);
    state_index_close(&x);
    state_index_close(&x);
    saved_free(&s);
}

static void test_round_trips(void)
{
    for (int round = 0; round < 32; round++)
        round_trip(round);
}

/* What no round trip of random values meets. */
static void test_extremes(void)
{
    struct saved s;
    struct state_index x;
    CHECK_OK(fs_make_dirs(DIR_NAME "/extremes"));
    saved_make(&s, MODEL_GPT, SAFET_F32);
    saved_cut(&s, 2, true);
    s.head.step = ((int64_t)1 << 53) - 1;
    s.head.seed = UINT64_MAX;
    s.head.data_hash = UINT64_MAX;
    s.head.loss = 1.7976931348623157e308;
    s.head.valid_loss = NAN;
    s.head.model.norm_eps = 4.9406564584124654e-324;
    s.head.model.rope_theta = 0;
    s.head.config = "\t\"\\\x7f\n\xf0\x9f\x98\x80";
    s.head.notes = "";
    memset(s.head.run, 'r', sizeof s.head.run - 1);
    CHECK_OK(saved_write(&s, DIR_NAME "/extremes", -1));
    CHECK_OK(state_index_open(&x, DIR_NAME "/extremes"));
    check_head(&x.head, &s.head);
    struct state_want want = {"transformer.wte.weight", STATE_M, {{0, 0}, {1, 1}}, false};
    double v;
    CHECK_OK(state_read(&x, &want, SAFET_F64, &v));
    want.box.at[0] = s.head.model.vocab;
    CHECK_ERR(state_read(&x, &want, SAFET_F64, &v), ERR_INTERNAL, "are wanted");
    want.box.n[0] = 0;
    CHECK_OK(state_read(&x, &want, SAFET_F64, &v));
    want.box = (struct state_box){{0, 0}, {1, INT64_MAX}};
    CHECK_ERR(state_read(&x, &want, SAFET_F64, &v), ERR_INTERNAL, "are wanted");
    want.tensor = "transformer.wte";
    CHECK_ERR(state_read(&x, &want, SAFET_F64, &v), ERR_INTERNAL, "transformer.wte");
    state_index_close(&x);
    saved_free(&s);
}

static void *reads(void *arg)
{
    const struct state_index *x = arg;
    for (int i = 0; i < x->tensors * STATE_KINDS; i++) {
        const struct safet_entry *t = &x->tensor[i / STATE_KINDS];
        struct state_want w = {t->name, (enum state_kind)(i % STATE_KINDS),
                               {{0, 0}, {t->shape[0], t->shape[1]}}, false};
        double *out;
        CHECK_OK(mem_new(t->shape[0] * t->shape[1], sizeof *out, "a tensor", &out));
        CHECK_OK(state_read(x, &w, SAFET_F64, out));
        mem_free(out);
    }
    return NULL;
}

/* Several threads have one index. */
static void test_threads(void)
{
    enum { THREADS = 4 };
    struct saved s;
    struct state_index x;
    pthread_t thread[THREADS];
    CHECK_OK(fs_make_dirs(DIR_NAME "/threads"));
    saved_make(&s, MODEL_LLAMA, SAFET_F32);
    saved_cut(&s, SAVED_RANKS, true);
    CHECK_OK(saved_write(&s, DIR_NAME "/threads", -1));
    CHECK_OK(state_index_open(&x, DIR_NAME "/threads"));
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&thread[i], NULL, reads, &x), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    state_index_close(&x);
    saved_free(&s);
}

/* ---- what cannot be written ---- */

static void test_refused(void)
{
    struct saved s;
    struct state_shard w;
    struct state_save save = {DIR_NAME "/refused", 1, "run", SAFET_F32, 0};
    struct state_chunk c = {.tensor = "t", .nd = 2, .shape = {2, 3}, .box = {{0, 0}, {2, 3}}};
    struct state_chunk two[2];
    CHECK_OK(fs_make_dirs(DIR_NAME "/refused"));
    saved_make(&s, MODEL_GPT, SAFET_F32);
    saved_cut(&s, 3, false);
    int empty = entries(DIR_NAME "/refused");
    for (int i = 0; i < s.chunks; i += 5) { /* a hole, wherever it is */
        CHECK_ERR(saved_write(&s, save.dir, i), ERR_INTERNAL, "is not put in place");
        CHECK(!fs_exists(DIR_NAME "/refused/index.json"));
    }
    CHECK_INT(entries(DIR_NAME "/refused"), empty + 3);
    for (int i = 0; i < 2; i++) {
        struct state_chunk bad = c;
        bad.box.n[i] = 0;
        CHECK_ERR(state_shard_create(&w, &save, "a", &bad, 1), ERR_INTERNAL, "empty or not within");
        bad.box.n[i] = bad.shape[i] + 1;
        CHECK_ERR(state_shard_create(&w, &save, "a", &bad, 1), ERR_INTERNAL, "empty or not within");
        bad = c;
        bad.box.at[i] = -1;
        CHECK_ERR(state_shard_create(&w, &save, "a", &bad, 1), ERR_INTERNAL, "empty or not within");
    }
    two[0] = two[1] = c;
    CHECK_ERR(state_shard_create(&w, &save, "a", two, 2), ERR_INTERNAL, "two tensors are named t");
    CHECK_OK(state_shard_create(&w, &save, "a", &c, 1));
    struct state_source from = {(float[6]){0}, false};
    atomic_bool gone = true;
    CHECK_ERR(state_shard_fill(&w, &from, 1, &gone), ERR_PEER, "shard a is given up");
    CHECK_ERR(safet_commit(&w.file), ERR_INTERNAL, "0 bytes of tensors are written, the entries");
    state_shard_close(&w);
    CHECK_OK(state_shard_create(&w, &save, "a", &c, 1));
    CHECK_OK(state_shard_fill(&w, &from, 1, NULL));
    CHECK_ERR(state_shard_fill(&w, &from, 1, NULL), ERR_INTERNAL, "shard a is filled twice");
    state_shard_close(&w);
    state_shard_close(&w);
    CHECK_INT(entries(DIR_NAME "/refused"), empty + 3);
    saved_free(&s);
}

/* ---- whole or not there ---- */

static const struct fs_ops *real_ops;
static atomic_int calls; /* by several threads */
static int fail_at, fail_code;

static bool fails(void)
{
    errno = fail_code;
    return atomic_fetch_add(&calls, 1) + 1 == fail_at;
}

static int bad_open(const char *path, int flags, unsigned mode)
{
    return fails() ? -1 : real_ops->open(path, flags, mode);
}

static int64_t bad_write(int fd, const void *p, int64_t n, int64_t at)
{
    return fails() ? -1 : real_ops->write(fd, p, n, at);
}

static int bad_fsync(int fd)
{
    return fails() ? -1 : real_ops->fsync(fd);
}

static int bad_close(int fd)
{
    bool fail = fails();
    int done = real_ops->close(fd);
    errno = fail_code;
    return fail ? -1 : done;
}

static int bad_rename(const char *from, const char *to)
{
    return fails() ? -1 : real_ops->rename(from, to);
}

static int bad_unlink(const char *path)
{
    return fails() ? -1 : real_ops->unlink(path);
}

static struct fs_ops bad_ops(void)
{
    struct fs_ops ops = *fs_ops;
    ops.open = bad_open;
    ops.write = bad_write;
    ops.fsync = bad_fsync;
    ops.close = bad_close;
    ops.rename = bad_rename;
    ops.unlink = bad_unlink;
    return ops;
}

/* Each file call of a save fails once: the save says so, or is whole; there is a checkpoint only if
 * it is. The next save into what is left over works. */
static void test_calls_fail(void)
{
    static const int code[] = {ENOSPC, EIO, EDQUOT};
    struct saved s;
    int failures = 0;
    saved_make(&s, MODEL_LLAMA, SAFET_F32);
    saved_cut(&s, 3, false);
    for (int i = 0; i < 3; i++) {
        enum err err = ERR_STORAGE;
        bool reached = true;
        fail_code = code[i];
        for (fail_at = 1; reached && fail_at < 1000; fail_at++) {
            CHECK_OK(state_remove(DIR_NAME "/calls"));
            CHECK_OK(fs_make_dirs(DIR_NAME "/calls"));
            real_ops = fs_ops;
            struct fs_ops ops = bad_ops();
            fs_ops = &ops;
            calls = 0;
            err = saved_write(&s, DIR_NAME "/calls", -1);
            fs_ops = real_ops;
            reached = calls >= fail_at;
            failures += err != ERR_OK;
            CHECK(err == ERR_OK || err == ERR_STORAGE);
            if (err == ERR_OK || fs_exists(DIR_NAME "/calls/index.json"))
                saved_check(&s, DIR_NAME "/calls", 10);
        }
        CHECK_OK(err);
    }
    CHECK(failures >= 3 * 4 * 5); /* open, write, fsync, rename, fsync, of 3 shards and an index */
    CHECK_OK(saved_write(&s, DIR_NAME "/calls", -1));
    saved_check(&s, DIR_NAME "/calls", 0);
    saved_free(&s);
}

/* A removal that fails at any call leaves a checkpoint that is whole or none, and can be done
 * again. */
static void test_removal_fails(void)
{
    struct saved s;
    bool reached = true;
    saved_make(&s, MODEL_LLAMA, SAFET_F32);
    saved_cut(&s, 3, false);
    fail_code = EIO;
    for (fail_at = 1; reached && fail_at < 100; fail_at++) {
        CHECK_OK(fs_make_dirs(DIR_NAME "/gone"));
        CHECK_OK(saved_write(&s, DIR_NAME "/gone", -1));
        real_ops = fs_ops;
        struct fs_ops ops = bad_ops();
        fs_ops = &ops;
        calls = 0;
        enum err err = state_remove(DIR_NAME "/gone");
        fs_ops = real_ops;
        reached = calls >= fail_at;
        CHECK(err == ERR_OK || err == ERR_STORAGE);
        if (fs_exists(DIR_NAME "/gone/index.json"))
            saved_check(&s, DIR_NAME "/gone", 0);
        CHECK_OK(state_remove(DIR_NAME "/gone"));
        CHECK(!fs_exists(DIR_NAME "/gone"));
    }
    CHECK(fail_at > 5);
    saved_free(&s);
}

/* Write and read; its code. */
static int write_and_read(void *arg)
{
    static float out[1 << 14];
    const struct saved *s = arg;
    struct state_index x = {0};
    enum err err = saved_write(s, DIR_NAME "/alone", -1);
    if (err == ERR_OK)
        err = state_index_open(&x, DIR_NAME "/alone");
    for (int i = 0; err == ERR_OK && i < x.tensors; i++) {
        struct state_want w = {x.tensor[i].name, STATE_V,
                               {{0, 0}, {x.tensor[i].shape[0], x.tensor[i].shape[1]}}, true};
        err = state_read(&x, &w, SAFET_F32, out);
    }
    state_index_close(&x);
    return (int)err;
}

static void test_no_memory(void)
{
    struct saved s;
    int k = 1, code;
    CHECK_OK(fs_make_dirs(DIR_NAME "/alone"));
    saved_make(&s, MODEL_GPT, SAFET_F32);
    saved_cut(&s, 2, true);
    while ((code = test_without_memory(k, write_and_read, &s)) == ERR_MEMORY && k < 1000)
        k += k < 60 ? 1 : 5;
    CHECK_INT(code, ERR_OK);
    CHECK(k > 50);
    saved_free(&s);
}

/* ---- lists ---- */

static void put(const char *path)
{
    CHECK_OK(fs_put(path, "{}", 2));
}

static void test_list(void)
{
    struct state_found *found;
    int n;
    char dir[FS_PATH];
    CHECK_OK(state_list(DIR_NAME "/none", false, &found, &n));
    CHECK_INT(n, 0);
    mem_free(found);
    CHECK_STR(state_dir(dir, DIR_NAME "/run", 10), DIR_NAME "/run/checkpoints/step-10");
    static const char *const name[] = {
        "step-0", "step-10", "step-9", "step-200", "step-07", "step-", "step--1", "step-1x",
        "step-1e3", "steps-3", "best", "step-9007199254740991", "step-9007199254740992",
        "step-99999999999999999999"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char path[128];
        snprintf(path, sizeof path, DIR_NAME "/run/checkpoints/%s", name[i]);
        CHECK_OK(fs_make_dirs(path));
        snprintf(path, sizeof path, DIR_NAME "/run/checkpoints/%s/index.json", name[i]);
        if (i % 2 == 0)
            put(path);
    }
    /* one whose index is a link is not left over of a save: nothing may remove it as such */
    CHECK_OK(fs_make_dirs(DIR_NAME "/run/checkpoints/step-8"));
    CHECK(symlink("nowhere", DIR_NAME "/run/checkpoints/step-8/index.json") == 0);
    CHECK_OK(state_list(DIR_NAME "/run", false, &found, &n));
    static const struct state_found want[] = {
        {9007199254740991, false}, {200, false}, {10, false}, {9, true}, {8, true}, {0, true}};
    CHECK_INT(n, 6);
    for (int i = 0; i < n && i < 6; i++)
        CHECK(found[i].step == want[i].step && found[i].whole == want[i].whole);
    mem_free(found);
    for (int i = 300; i < 340; i++) {
        char path[128];
        snprintf(path, sizeof path, DIR_NAME "/run/checkpoints/step-%d", i);
        CHECK_OK(fs_make_dirs(path));
    }
    CHECK_OK(state_list(DIR_NAME "/run", false, &found, &n));
    CHECK_INT(n, 46);
    for (int i = 1; i < n; i++)
        CHECK(found[i - 1].step > found[i].step);
    mem_free(found);
    CHECK_OK(fs_make_dirs(DIR_NAME "/odd"));
    put(DIR_NAME "/odd/checkpoints");
    CHECK_ERR(state_list(DIR_NAME "/odd", false, &found, &n), ERR_CHECKPOINT, "cannot be read");
}

/* What is not a save's stays, and so does its folder. */
static void test_remove(void)
{
    static const char *const name[] = {
        "rank-00000.safetensors", "rank-12345678.safetensors", "index.json", "index.json.tmp.12.0",
        "rank-00001.safetensors.tmp.12.3", "notes.txt", "index.json2", "rank-00000.safetensors2",
        "model.safetensors"};
    char path[128];
    CHECK_OK(state_remove(DIR_NAME "/remove"));
    CHECK_OK(fs_make_dirs(DIR_NAME "/remove"));
    for (int i = 0; i < 9; i++) {
        snprintf(path, sizeof path, DIR_NAME "/remove/%s", name[i]);
        put(path);
    }
    CHECK_OK(state_remove(DIR_NAME "/remove"));
    for (int i = 0; i < 9; i++) {
        snprintf(path, sizeof path, DIR_NAME "/remove/%s", name[i]);
        CHECK(fs_exists(path) == (i >= 5));
        (void)unlink(path);
    }
    CHECK_OK(state_remove(DIR_NAME "/remove"));
    CHECK(!fs_exists(DIR_NAME "/remove"));
    put(DIR_NAME "/remove");
    CHECK_ERR(state_remove(DIR_NAME "/remove"), ERR_STORAGE, "remove");
}

static const struct test_case cases[] = {
    {"boxes", test_boxes},
    {"tiling", test_tiling},
    {"round trips", test_round_trips},
    {"extremes", test_extremes},
    {"threads", test_threads},
    {"refused", test_refused},
    {"calls fail", test_calls_fail},
    {"removal fails", test_removal_fails},
    {"no memory", test_no_memory},
    {"list", test_list},
    {"remove", test_remove},
};
TEST_MAIN(cases)
