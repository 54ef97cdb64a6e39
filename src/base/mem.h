/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory. malloc is called in mem.c only; every allocation has a name, which the message of
 * a failed one repeats. Sizes are checked 64-bit products. Memory is zeroed and 64-byte aligned.
 *
 * PLAIT_FAIL_ALLOC=k (fault tests) makes the k-th allocation of the process fail.
 */
#ifndef PLAIT_BASE_MEM_H
#define PLAIT_BASE_MEM_H

#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

/* Allocate n elements of `size` bytes, zeroed, 64-byte aligned; n may be 0 (gives a unique
 * pointer). `out` is written only on success. Errors: ERR_MEMORY. Local. */
enum err mem_new(int64_t n, size_t size, const char *name, void *out);

/* Resize to n elements, keeping the first min(old_n, n); new ones are zero. `inout` points at the
 * pointer. Errors: ERR_MEMORY, and then the old block is untouched. Local. */
enum err mem_grow(int64_t old_n, int64_t n, size_t size, const char *name, void *inout);

/* Room for one more behind n elements that were all added so, in blocks of twice the size before.
 * Errors: ERR_MEMORY, and then the old block is untouched. Local. */
enum err mem_more(int64_t n, size_t size, const char *name, void *inout);

/* Give back; NULL is fine. Local. */
void mem_free(void *p);

/* Copy of a string. Errors: ERR_MEMORY. Released by mem_free. Local. */
enum err mem_string(const char *s, char **out);

/* A bump allocator over one block, for memory that is planned beforehand. Not thread-safe.
 * arena_take hands out 64-byte aligned pieces and fails when the plan did not hold. */
struct arena {
    char *base; /* borrowed: a device's, say */
    int64_t size, used; /* bytes */
    const char *name;
    struct arena_guards *guards; /* owned; NULL: none */
};
enum { ARENA_ALIGN = 64, ARENA_GUARD = 64 };

/* Bytes that a piece of `bytes` takes in an arena (rounded up to ARENA_ALIGN). */
static inline int64_t arena_round(int64_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}
void arena_over(struct arena *a, void *base, int64_t bytes, const char *name);
/* name: of the piece, for messages; it outlives the arena. Errors: ERR_INTERNAL when the piece does
 * not fit: the memory plan is wrong. */
enum err arena_take(struct arena *a, int64_t bytes, const char *name, void *out);

/* ---- guards: what is written behind a piece is found ----
 * Bytes of a block with room for `bytes` of pieces and a guard behind each. */
int64_t arena_guarded_bytes(int64_t bytes);
/* Guards behind all pieces of an arena over such a block, which the host can write; `size` stays
 * that of the plan. Before the first piece. Errors: ERR_MEMORY. Local. */
enum err arena_guard(struct arena *a);
void arena_unguard(struct arena *a); /* idempotent; the pieces stay */
/* Was anything written behind a piece? Without guards nothing is looked at. Errors: ERR_INTERNAL
 * with arena, piece and how many bytes. Local. */
enum err arena_check(const struct arena *a);
/* Fill a piece, which begins there, with NaN to who reads what is none of his, another than that of
 * the guards. Of an arena without guards, and of what is no piece, nothing is touched. */
void arena_poison(const struct arena *a, const void *piece);

#endif
