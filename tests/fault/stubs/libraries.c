/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaded before the vendor's libraries (LD_PRELOAD): each says the version of its variable, or
 * where that is not set, its own.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

SHOWN size_t cudnnGetVersion(void);
SHOWN size_t cublasLtGetVersion(void);
SHOWN int ncclGetVersion(int *version);

/* The function of this name that would have been called. */
static void next(const char *name, void *function)
{
    void *p = dlsym(RTLD_NEXT, name);
    if (!p)
        abort();
    memcpy(function, &p, sizeof p);
}

static size_t version(const char *variable, const char *name)
{
    const char *value = getenv(variable);
    size_t (*real)(void);
    if (value)
        return (size_t)strtol(value, NULL, 10);
    next(name, &real);
    return real();
}

size_t cudnnGetVersion(void)
{
    return version("STUB_CUDNN", "cudnnGetVersion");
}

size_t cublasLtGetVersion(void)
{
    return version("STUB_CUBLASLT", "cublasLtGetVersion");
}

int ncclGetVersion(int *out)
{
    const char *value = getenv("STUB_NCCL");
    int (*real)(int *);
    if (!value) {
        next("ncclGetVersion", &real);
        return real(out);
    }
    *out = (int)strtol(value, NULL, 10);
    return 0;
}
