/* SPDX-License-Identifier: Apache-2.0
 *
 * Arenas: pieces of one block, handed out one behind the other.
 */
#include "base/mem.h"

#include "base/num.h"

enum err arena_open(struct arena *a, int64_t bytes, const char *name)
{
    void *p;
    TRY(mem_new(bytes, 1, name, &p));
    *a = (struct arena){.base = p, .size = bytes, .name = name, .owned = true};
    return ERR_OK;
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
    void *p = a->base + a->used;
    if (a->guards && bytes > 0)
        TRY(arena_guard_piece(a, bytes, name, &p));
    memcpy(out, &p, sizeof p);
    a->used += arena_round(bytes);
    if (a->used > a->peak)
        a->peak = a->used;
    return ERR_OK;
}

void arena_close(struct arena *a)
{
    arena_unguard(a);
    if (a->owned)
        mem_free(a->base);
    *a = (struct arena){0};
}
