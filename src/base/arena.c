/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces of one block, handed out one behind the other, and guards between them. The plan of memory
 * and the executor take sizes from one table, so a size that is too small there is too small
 * everywhere and no sum shows it: what is written behind a piece lands in its neighbour, and the
 * numbers are wrong or happen not to be. So where guards are on, ARENA_GUARD bytes lie behind every
 * piece and are looked at between steps. They are 0xff, which is NaN to whoever reads them as
 * floats. AddressSanitizer is told of them, too, and stops where they are touched.
 */
#include "base/mem.h"

#include "base/num.h"

#if defined(__SANITIZE_ADDRESS__)
#define GUARD_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GUARD_ASAN 1
#endif
#endif

#ifdef GUARD_ASAN
#include <sanitizer/asan_interface.h>
#define CLOSE(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define OPEN(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define CLOSE(p, n) ((void)(p), (void)(n))
#define OPEN(p, n) ((void)(p), (void)(n))
#endif

/* Poison is NaN, too, and another, so that guards see it copied over them. */
enum { PATTERN = 0xff, POISON = 0x7f };

struct piece {
    char *p;            /* borrowed from the arena's block */
    int64_t at, bytes;  /* of `used` before it; as asked for */
    const char *name;   /* borrowed */
};

struct arena_guards {
    struct piece *piece; /* owned; [n] */
    int n;
};

int64_t arena_guarded_bytes(int64_t bytes)
{
    return bytes + bytes / ARENA_ALIGN * ARENA_GUARD; /* no piece is shorter than ARENA_ALIGN */
}

/* Behind a piece, up to where the next may begin. */
static int64_t guard_bytes(const struct piece *p)
{
    return arena_round(p->bytes) - p->bytes + ARENA_GUARD;
}

enum err arena_guard(struct arena *a)
{
    ENSURE(a->used == 0 && !a->guards);
    return mem_new(1, sizeof *a->guards, "the guards of an arena", &a->guards);
}

void arena_unguard(struct arena *a)
{
    if (!a->guards)
        return;
    OPEN(a->base, (size_t)arena_guarded_bytes(a->size));
    mem_free(a->guards->piece);
    mem_free(a->guards);
    a->guards = NULL;
}

void arena_over(struct arena *a, void *base, int64_t bytes, const char *name)
{
    *a = (struct arena){.base = base, .size = bytes, .name = name};
}

enum err arena_take(struct arena *a, int64_t bytes, const char *name, void *out)
{
    int64_t left = a->size - a->used; /* a multiple of ARENA_ALIGN in a planned arena */
    if (bytes < 0 || bytes > left || arena_round(bytes) > left)
        FAIL(ERR_INTERNAL, "memory: the plan gives %s %lld bytes, %lld are used and %lld more are "
                           "asked for (%s)", a->name, (long long)a->size, (long long)a->used,
             (long long)bytes, name);
    char *p = a->base + a->used;
    struct arena_guards *g = bytes > 0 ? a->guards : NULL;
    if (g) {
        TRY(mem_more(g->n, sizeof *g->piece, "guards", &g->piece));
        struct piece *made = &g->piece[g->n];
        p += (int64_t)g->n++ * ARENA_GUARD;
        *made = (struct piece){p, a->used, bytes, name};
        memset(p + bytes, PATTERN, (size_t)guard_bytes(made));
        CLOSE(p + bytes, (size_t)guard_bytes(made));
    }
    memcpy(out, &p, sizeof p);
    a->used += arena_round(bytes);
    return ERR_OK;
}

/* Bytes up to the last one of the guard that was written; 0: none was. */
static int64_t written(const struct piece *p)
{
    int64_t n = guard_bytes(p);
    const unsigned char *guard = (const unsigned char *)p->p + p->bytes;
    OPEN(guard, (size_t)n);
    while (n > 0 && guard[n - 1] == PATTERN)
        n--;
    CLOSE(guard, (size_t)guard_bytes(p));
    return n;
}

enum err arena_check(const struct arena *a)
{
    for (int i = 0; a->guards && i < a->guards->n; i++) {
        const struct piece *p = &a->guards->piece[i];
        int64_t over = written(p);
        if (over > 0)
            FAIL(ERR_INTERNAL, "memory: %s: %lld bytes%s were written behind the %lld of \"%s\" "
                               "(piece %d of %d)", a->name, (long long)over,
                 over == guard_bytes(p) ? " or more" : "", (long long)p->bytes, p->name, i + 1,
                 a->guards->n);
    }
    return ERR_OK;
}

void arena_poison(const struct arena *a, const void *piece)
{
    for (int i = 0; a->guards && piece && i < a->guards->n; i++) {
        const struct piece *p = &a->guards->piece[i];
        if (p->p != piece)
            continue;
        memset(p->p, PATTERN, (size_t)p->bytes);
        for (int64_t k = 1; k < p->bytes; k += 2)
            p->p[k] = POISON;
    }
}
