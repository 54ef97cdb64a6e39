/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints, fed with damage: the index in bytes, numbers, items and members; shards in bytes.
 * `make fuzz` runs many inputs under AddressSanitizer and UndefinedBehaviorSanitizer, `make test` a
 * few thousand (PLAIT_FUZZ=N sets how many).
 *
 * What is held, besides no crash:
 *
 *     a refusal is ERR_CHECKPOINT with a message
 *     what is read is what was written, whatever the index has become: boxes are bound to names of
 *         shards and bytes to hashes, so damage cannot move values
 */
#include "saved.h"

#include "base/mem.h"
#include "base/num.h"
#include "ckpt/state_local.h"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { INPUTS = 3000, SHARD_EVERY = 4, ROUND = 500, EXTRA = 4096 };
#define DIR_NAME "fuzz_state"

static struct { int64_t inputs, refused, opened, read; } count;

struct input {
    char *s; /* owned */
    int64_t n, room;
};

/* ---- damage ---- */

static void replace(struct input *x, int64_t at, int64_t end, const char *with, int64_t n)
{
    if (x->n - (end - at) + n > x->room)
        return;
    memmove(x->s + at + n, x->s + end, (size_t)(x->n - end));
    memcpy(x->s + at, with, (size_t)n);
    x->n += n - (end - at);
}

static void damage_byte(struct input *x)
{
    static const char alphabet[] = "0123456789\"{}[],:\\ -+.eunltrfas\n\xff\x1b/";
    int64_t at = test_range(0, x->n);
    char c = alphabet[test_range(0, (int64_t)sizeof alphabet - 1)]; /* its NUL too */
    replace(x, at, num_min(x->n, at + test_range(0, 1)), &c, test_range(0, 3) > 0);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void damage_number(struct input *x)
{
    static const char *const number[] = {
        "0", "1", "2", "3", "4", "5", "6", "7", "8", "12", "00", "-1", "1.5", "1e3", "65536",
        "2147483647", "2147483648", "4294967296", "9007199254740991", "9007199254740992",
        "9223372036854775807", "18446744073709551615", "18446744073709551616", "NaN", "null", ""};
    int most = (int)(sizeof number / sizeof *number) - 1;
    int64_t at = test_range(0, x->n), end;
    while (at < x->n && !is_digit(x->s[at]))
        at++;
    while (at > 0 && is_digit(x->s[at - 1]))
        at--;
    for (end = at; end < x->n && is_digit(x->s[end]);)
        end++;
    const char *with = number[test_range(0, test_range(0, 1) ? 9 : most)];
    replace(x, at, end, with, (int64_t)strlen(with));
}

/* From a random separator to the next: in lines chunks, else items and members. */
static void choose(const struct input *x, const char *ends, int64_t *at, int64_t *end)
{
    *at = *end = test_range(0, x->n);
    while (*at > 0 && !strchr(ends, x->s[*at - 1]))
        --*at;
    while (*end < x->n && !strchr(ends, x->s[*end]))
        ++*end;
}

/* A piece is removed, doubled, or takes another's place. */
static void damage_piece(struct input *x, const char *ends)
{
    char piece[1024];
    int64_t at, end, to, last;
    choose(x, ends, &at, &end);
    int64_t n = num_min(end - at, (int64_t)sizeof piece), kind = test_range(0, 3);
    memcpy(piece, x->s + at, (size_t)n);
    choose(x, ends, &to, &last);
    if (kind == 0)
        replace(x, at, num_min(x->n, end + 1), "", 0);
    else if (kind == 1)
        replace(x, to, to, piece, n);
    else
        replace(x, to, last, piece, n);
}

/* Two chunks change hashes, or boxes, or all but these. */
static void damage_pair(struct input *x)
{
    int64_t at[2], end[2];
    for (int i = 0; i < 2; i++)
        choose(x, "\n", &at[i], &end[i]);
    int64_t width = test_range(1, 40), a = end[0] - width, b = end[1] - width;
    if (a < at[0] || b < at[1] || labs(a - b) < width)
        return;
    for (int64_t i = 0; i < width; i++) {
        char c = x->s[a + i];
        x->s[a + i] = x->s[b + i];
        x->s[b + i] = c;
    }
}

static void damage(struct input *x)
{
    switch (test_range(0, 9)) {
    case 0: case 1: damage_byte(x); break;
    case 2: case 3: case 4: damage_number(x); break;
    case 5: damage_piece(x, "\n"); break;
    case 6: damage_piece(x, "[]{},"); break;
    case 7: damage_pair(x); break;
    case 8: damage_piece(x, ",\n"); break;
    default: x->n = test_range(0, 9) ? x->n : test_range(0, x->n); break;
    }
}

/* ---- what is held ---- */

static void check_refused(enum err err)
{
    CHECK_INT(err, ERR_CHECKPOINT);
    CHECK(err_text()[0] != '\0');
    count.refused++;
}

/* Every tensor that both know and that has the shape it had. */
static enum err read_back(const struct saved *s, const struct state_index *x)
{
    static double out[1 << 13];
    for (int i = 0; i < s->tensors * STATE_KINDS; i++) {
        const struct safet_entry *t = &s->tensor[i / STATE_KINDS];
        const struct safet_entry *same = safet_find(x->tensor, x->tensors, t->name);
        int64_t n = t->shape[0] * t->shape[1];
        struct state_want w = {t->name, (enum state_kind)(i % STATE_KINDS),
                               {{0, 0}, {t->shape[0], t->shape[1]}}, false};
        if (!same || memcmp(same->shape, t->shape, sizeof t->shape) != 0)
            continue;
        TRY(state_read(x, &w, SAFET_F64, out));
        CHECK(memcmp(out, s->value[w.kind][i / STATE_KINDS], (size_t)n * sizeof *out) == 0);
    }
    count.read++;
    return ERR_OK;
}

/* An index that lies in memory, with the shards of the folder. Most get a hash that is right, so
 * that the rules behind it are met. */
static void feed_index(const struct saved *s, const struct input *in)
{
    struct state_index x = {0};
    int64_t n = in->n;
    char *sealed = test_range(0, 9) ? saved_sealed(in->s, in->n, &n) : NULL;
    struct fs_map m = {(const uint8_t *)(sealed ? sealed : in->s), n};
    CHECK_OK(mem_string(DIR_NAME, &x.dir));
    CHECK_OK(mem_string(DIR_NAME "/index.json", &x.path));
    enum err err = state_index_parse(&x, &m);
    count.opened += err == ERR_OK;
    if (err == ERR_OK)
        err = read_back(s, &x);
    if (err != ERR_OK)
        check_refused(err);
    state_index_close(&x);
    mem_free(sealed);
    count.inputs++;
}

static void put_file(const char *path, const char *p, int64_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, p, (size_t)n) == n);
    CHECK(close(fd) == 0);
}

/* The first shard is damaged: the index is good. */
static void feed_shard(const struct saved *s)
{
    static const char path[] = DIR_NAME "/rank-00000.safetensors";
    struct state_index x;
    struct fs_map m;
    struct input in = {0};
    CHECK_OK(fs_map_open(&m, path, ERR_CHECKPOINT));
    in.room = m.size + EXTRA;
    CHECK_OK(mem_new(in.room, 1, "an input", &in.s));
    in.n = m.size;
    memcpy(in.s, m.data, (size_t)m.size);
    fs_map_close(&m);
    char *good;
    CHECK_OK(mem_new(in.n, 1, "a good file", &good));
    int64_t n = in.n;
    memcpy(good, in.s, (size_t)n);
    for (int64_t i = test_range(1, 3); i > 0; i--)
        test_range(0, 1) ? damage_byte(&in) : damage_number(&in);
    put_file(path, in.s, in.n);
    enum err err = state_index_open(&x, DIR_NAME);
    if (err == ERR_OK) {
        count.opened++;
        err = read_back(s, &x);
        state_index_close(&x);
    }
    if (err != ERR_OK)
        check_refused(err);
    put_file(path, good, n);
    mem_free(good);
    mem_free(in.s);
    count.inputs++;
}

/* Inputs from one checkpoint. */
static void feed(enum model_kind kind, int64_t inputs)
{
    struct saved s;
    struct input in = {0};
    CHECK_OK(fs_make_dirs(DIR_NAME));
    saved_make(&s, kind, test_range(0, 1) ? SAFET_F32 : SAFET_F64);
    saved_cut(&s, (int)test_range(1, 3), test_range(0, 1));
    CHECK_OK(saved_write(&s, DIR_NAME, -1));
    char *text = saved_index(DIR_NAME);
    int64_t n = (int64_t)strlen(text);
    in.room = n + EXTRA;
    CHECK_OK(mem_new(in.room, 1, "an input", &in.s));
    for (int64_t i = 0; i < inputs; i++) {
        if (i % SHARD_EVERY == 0) {
            feed_shard(&s);
            continue;
        }
        memcpy(in.s, text, (size_t)n);
        in.n = n;
        for (int64_t j = i == 1 ? 0 : test_range(1, 3); j > 0; j--)
            damage(&in);
        feed_index(&s, &in);
    }
    mem_free(in.s);
    mem_free(text);
    saved_free(&s);
    CHECK_OK(state_remove(DIR_NAME));
}

static void test_damage(void)
{
    const char *wish = getenv("PLAIT_FUZZ");
    int64_t inputs = INPUTS;
    if (wish && (!text_to_int(wish, &inputs) || inputs < 1)) {
        test_check(false, __FILE__, __LINE__, "PLAIT_FUZZ is %s; use 1 or more inputs", wish);
        return;
    }
    for (int64_t left = inputs; left > 0; left -= ROUND)
        feed(left / ROUND % 2 ? MODEL_GPT : MODEL_LLAMA, num_min(ROUND, left));
    printf("     %lld inputs: %lld refused, %lld opened, %lld read\n", (long long)count.inputs,
           (long long)count.refused, (long long)count.opened, (long long)count.read);
    CHECK(inputs < INPUTS || count.read > 0);
    CHECK(inputs < INPUTS || count.opened > count.read); /* some are found when they are read */
}

static const struct test_case cases[] = {{"damage", test_damage}};
TEST_MAIN(cases)
