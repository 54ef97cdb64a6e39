/* SPDX-License-Identifier: Apache-2.0
 *
 * Host allocation in one place: checked sizes, names, a counter that lets a test make the k-th
 * allocation fail.
 */
#include "base/mem.h"

#include "base/num.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum err mem_new(int64_t n, size_t size, const char *name, void *out)
{
    static atomic_long allocations;
    const char *k = getenv("PLAIT_FAIL_ALLOC"); /* which one a fault test wants to fail */
    int64_t bytes;
    if (n < 0 || !num_mul(n, (int64_t)size, &bytes) || !num_round_up(bytes, ARENA_ALIGN, &bytes))
        FAIL(ERR_MEMORY, "memory: %s of %lld x %zu bytes is beyond 64 bits", name, (long long)n,
             size);
    if (bytes == 0)
        bytes = ARENA_ALIGN;
    bool fails = k && atomic_fetch_add(&allocations, 1) + 1 == strtol(k, NULL, 10);
    void *p = fails ? NULL : aligned_alloc(ARENA_ALIGN, (size_t)bytes);
    if (!p)
        FAIL(ERR_MEMORY, "memory: %lld bytes for %s are not to be had; use a smaller model, "
                         "microbatch or more ranks", (long long)bytes, name);
    memset(p, 0, (size_t)bytes);
    memcpy(out, &p, sizeof p);
    return ERR_OK;
}

enum err mem_grow(int64_t old_n, int64_t n, size_t size, const char *name, void *inout)
{
    void *old, *p;
    memcpy(&old, inout, sizeof old);
    TRY(mem_new(n, size, name, &p));
    int64_t keep = old_n < n ? old_n : n;
    if (old && keep > 0)
        memcpy(p, old, (size_t)keep * size);
    mem_free(old);
    memcpy(inout, &p, sizeof p);
    return ERR_OK;
}

enum err mem_more(int64_t n, size_t size, const char *name, void *inout)
{
    enum { LEAST = 16 };
    bool full = n == 0 || (n >= LEAST && (n & (n - 1)) == 0);
    return full ? mem_grow(n, num_max(LEAST, 2 * n), size, name, inout) : ERR_OK;
}

void mem_free(void *p)
{
    free(p);
}

enum err mem_string(const char *s, char **out)
{
    char *p;
    TRY(mem_new((int64_t)strlen(s) + 1, 1, "a string", &p));
    memcpy(p, s, strlen(s));
    *out = p;
    return ERR_OK;
}
