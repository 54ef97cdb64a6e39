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

/* Give back; NULL is fine. Local. */
void mem_free(void *p);

/* Copy of a string. Errors: ERR_MEMORY. Released by mem_free. Local. */
enum err mem_string(const char *s, char **out);

/* A bump allocator over one block, for memory that is planned beforehand. Not thread-safe.
 * arena_take hands out 64-byte aligned pieces and fails when the plan did not hold. */
struct arena {
    char *base; /* owned when owned is set, else borrowed */
    int64_t size, used, peak; /* bytes */
    const char *name;
    bool owned;
};
enum { ARENA_ALIGN = 64 };

/* Bytes that a piece of `bytes` takes in an arena (rounded up to ARENA_ALIGN). */
int64_t arena_round(int64_t bytes);
enum err arena_open(struct arena *a, int64_t bytes, const char *name);
/* An arena over memory somebody else owns (a device's, say). */
void arena_over(struct arena *a, void *base, int64_t bytes, const char *name);
/* Errors: ERR_INTERNAL when the piece does not fit: the memory plan is wrong. */
enum err arena_take(struct arena *a, int64_t bytes, void *out);
void arena_close(struct arena *a);

#endif
