/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory: zeroed, aligned, named in its errors; the allocation that a fault test names fails
 * and nothing that was there is touched. Arenas beyond what test_base.c holds of them.
 */
#include "test.h"

#include "base/mem.h"
#include <stdio.h>
#include <stdlib.h>

/* Allocations are counted while PLAIT_FAIL_ALLOC is set; this many have been. */
static long counted;

/* Lets the k-th allocation from now fail. */
static void fail_at(long k)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", counted + k);
    CHECK(setenv("PLAIT_FAIL_ALLOC", text, 1) == 0);
}

static enum err new_counted(int64_t n, size_t size, const char *name, void *out)
{
    counted++;
    return mem_new(n, size, name, out);
}

static void memory_is_zero_and_aligned(void)
{
    unsigned char *x[20];
    for (int i = 0; i < 20; i++) {
        int64_t n = i * 37;
        CHECK_OK(mem_new(n, 3, "bytes", &x[i]));
        CHECK_INT((uintptr_t)x[i] % ARENA_ALIGN, 0);
        for (int64_t b = 0; b < 3 * n; b++)
            CHECK(x[i][b] == 0);
        memset(x[i], 0xff, (size_t)(3 * n));
        for (int j = 0; j < i; j++)
            CHECK(x[i] != x[j]);
    }
    for (int i = 0; i < 20; i++)
        mem_free(x[i]);
    mem_free(NULL);
}

static void growing_keeps_and_zeroes(void)
{
    int32_t *x = NULL;
    CHECK_OK(mem_grow(0, 5, sizeof *x, "numbers", &x));
    for (int i = 0; i < 5; i++)
        x[i] = i + 1;
    CHECK_OK(mem_grow(5, 100, sizeof *x, "numbers", &x));
    for (int i = 0; i < 100; i++)
        CHECK_INT(x[i], i < 5 ? i + 1 : 0);
    CHECK_OK(mem_grow(100, 2, sizeof *x, "numbers", &x));
    CHECK(x[0] == 1 && x[1] == 2);
    mem_free(x);
}

static void a_failed_growth_changes_nothing(void)
{
    int32_t *x = NULL, *before;
    CHECK_OK(mem_new(4, sizeof *x, "numbers", &x));
    x[3] = 42;
    before = x;
    fail_at(1);
    counted++;
    CHECK_ERR(mem_grow(4, 1000, sizeof *x, "numbers", &x), ERR_MEMORY, "4032 bytes for numbers");
    unsetenv("PLAIT_FAIL_ALLOC");
    CHECK(x == before && x[3] == 42);
    CHECK_ERR(mem_grow(4, INT64_MAX, sizeof *x, "numbers", &x), ERR_MEMORY, "beyond 64 bits");
    CHECK(x == before && x[3] == 42);
    mem_free(x);
}

/* Three allocations of one function: whichever fails, the others are given back (ASan looks). */
static enum err make_three(char *out[3])
{
    enum err err;
    char *a = NULL, *b = NULL, *c = NULL;
    TRY_OR(out_free, new_counted(1, 10, "the first", &a));
    TRY_OR(out_free, new_counted(1, 10, "the second", &b));
    TRY_OR(out_free, new_counted(1, 10, "the third", &c));
    out[0] = a;
    out[1] = b;
    out[2] = c;
    return ERR_OK;
out_free:
    mem_free(a);
    mem_free(b);
    mem_free(c);
    return err;
}

static void the_named_allocation_fails(void)
{
    static const char *const name[] = {"the first", "the second", "the third"};
    char *x[3] = {NULL, NULL, NULL};
    for (int k = 1; k <= 3; k++) {
        fail_at(k);
        CHECK_ERR(make_three(x), ERR_MEMORY, name[k - 1]);
        CHECK(strstr(err_trace(), "test_mem.c") != NULL);
        CHECK(x[0] == NULL);
    }
    fail_at(4);
    CHECK_OK(make_three(x));
    for (int i = 0; i < 3; i++)
        mem_free(x[i]);
    unsetenv("PLAIT_FAIL_ALLOC");
}

static void strings_are_copies(void)
{
    char from[] = "braid", *copy = NULL;
    CHECK_OK(mem_string(from, &copy));
    from[0] = 'B';
    CHECK_STR(copy, "braid");
    mem_free(copy);
    CHECK_OK(mem_string("", &copy));
    CHECK_STR(copy, "");
    mem_free(copy);
    fail_at(1);
    counted++;
    copy = from;
    CHECK_ERR(mem_string("x", &copy), ERR_MEMORY, "a string");
    CHECK(copy == from);
    unsetenv("PLAIT_FAIL_ALLOC");
}

static void arenas_over_borrowed_memory(void)
{
    _Alignas(64) static char block[256];
    struct arena a;
    char *x = NULL, *y = NULL;
    CHECK_INT(arena_round(0), 0);
    CHECK_INT(arena_round(1), 64);
    CHECK_INT(arena_round(64), 64);
    arena_over(&a, block, sizeof block, "a block");
    CHECK_OK(arena_take(&a, 64, "x", &x));
    CHECK_OK(arena_take(&a, 0, "y", &y));
    CHECK(x == block && y == block + 64);
    CHECK_OK(arena_take(&a, 192, "y", &y));
    CHECK(a.used == 256);
    char *kept = y;
    CHECK_ERR(arena_take(&a, 1, "y", &y), ERR_INTERNAL,
              "256 are used and 1 more are asked for (y)");
    CHECK(y == kept && a.used == 256);
}

#if defined(__clang__) || __GNUC__ >= 8
#define UNSEEN __attribute__((no_sanitize("address"))) /* or the sanitizer would stop it at once */
#else
#define UNSEEN
#endif

/* n bytes behind a piece, in no call that a sanitizer knows. */
static UNSEEN void overrun(volatile char *end, int64_t n, char byte)
{
    for (int64_t i = 0; i < n; i++)
        end[i] = byte;
}

/* Of three pieces of drawn lengths one is overrun by a drawn number of bytes: it is named, with the
 * number, and when nothing is overrun nothing is said. */
static void guards_name_what_was_overrun(void)
{
    static const char *const name[] = {"first", "second", "third"};
    for (int round = 0; round < 200; round++) {
        struct arena a;
        char *block, *piece[3], said[200];
        int64_t bytes[3], all = 0;
        for (int i = 0; i < 3; i++) {
            bytes[i] = test_range(1, 200);
            all += arena_round(bytes[i]);
        }
        CHECK_OK(mem_new(arena_guarded_bytes(all), 1, "a block", &block));
        arena_over(&a, block, all, "buffers");
        CHECK_OK(arena_guard(&a));
        for (int i = 0; i < 3; i++) {
            CHECK_OK(arena_take(&a, bytes[i], name[i], &piece[i]));
            memset(piece[i], 1, (size_t)bytes[i]);
        }
        CHECK(a.used == all && piece[2] + bytes[2] <= block + arena_guarded_bytes(all));
        CHECK_OK(arena_check(&a));
        int which = (int)test_range(0, 2);
        int64_t over = test_range(1, ARENA_GUARD - 1);
        overrun(piece[which] + bytes[which], over, 0x55);
        snprintf(said, sizeof said, "buffers: %lld bytes were written behind the %lld of \"%s\" "
                 "(piece %d of 3)", (long long)over, (long long)bytes[which], name[which],
                 which + 1);
        CHECK_ERR(arena_check(&a), ERR_INTERNAL, said);
        arena_unguard(&a);
        mem_free(block);
    }
}

/* Poison fills a piece and nothing else; all of it is NaN, and seen where it is copied too far. */
static void poison_fills_a_piece(void)
{
    _Alignas(64) static char block[1024];
    struct arena a;
    char *x, *z;
    float f[5];
    arena_over(&a, block, 256, "a block");
    CHECK_OK(arena_guard(&a));
    CHECK_OK(arena_take(&a, 64, "x", &x));
    CHECK_OK(arena_take(&a, 20, "z", &z));
    memset(x, 1, 64);
    memset(z, 1, 20);
    CHECK_OK(arena_check(&a));
    arena_poison(&a, z + 1); /* no piece begins here */
    CHECK(z[0] == 1 && z[1] == 1);
    arena_poison(&a, z);
    memcpy(f, z, sizeof f);
    CHECK(isnan(f[0]) && isnan(f[4]) && x[63] == 1);
    CHECK_OK(arena_check(&a));
    for (int i = 0; i < 8; i++)
        overrun(z + 20 + i, 1, z[i]);
    CHECK_ERR(arena_check(&a), ERR_INTERNAL, "8 bytes were written behind the 20 of \"z\"");
    arena_unguard(&a);
}

static const struct test_case cases[] = {
    {"guards name what was overrun", guards_name_what_was_overrun},
    {"guards stand after a rewind", poison_fills_a_piece},
    {"memory is zero and aligned", memory_is_zero_and_aligned},
    {"growing keeps and zeroes", growing_keeps_and_zeroes},
    {"a failed growth changes nothing", a_failed_growth_changes_nothing},
    {"the named allocation fails", the_named_allocation_fails},
    {"strings are copies", strings_are_copies},
    {"arenas over borrowed memory", arenas_over_borrowed_memory},
};
TEST_MAIN(cases)
