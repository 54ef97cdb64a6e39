/* SPDX-License-Identifier: Apache-2.0
 *
 * Processor features by cpuid. A feature counts only when the kernel also saves its registers on a
 * context switch, which XCR0 tells: bits 1-2 for AVX, 5-7 for AVX-512, 17-18 for AMX tiles (Intel
 * SDM volume 1, chapter 13). Other architectures name themselves and claim nothing.
 */
#include "config/machine.h"

#include <stdbool.h>
#include <string.h>
#include <sys/utsname.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

void machine_processor(struct text *out)
{
    unsigned r[12];
    char name[sizeof r + 1];
    for (unsigned i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002u + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3])) {
            text_add(out, "x86-64");
            return;
        }
    memcpy(name, r, sizeof r);
    name[sizeof r] = '\0';
    size_t from = strspn(name, " "), end = strlen(name);
    while (end > from && name[end - 1] == ' ')
        end--;
    text_add(out, "%.*s", (int)(end - from), name + from);
}

__attribute__((target("xsave"))) static unsigned long long saved_state(void)
{
    return _xgetbv(0);
}

void machine_features(struct text *out)
{
    unsigned a = 0, b = 0, c = 0, d = 0, a1 = 0, ignore = 0;
    unsigned long long saved = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_OSXSAVE))
        saved = saved_state();
    b = d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1)
        __get_cpuid_count(7, 1, &a1, &ignore, &ignore, &ignore);
    bool avx = (saved & 0x6) == 0x6, avx512 = avx && (saved & 0xe0) == 0xe0;
    bool tiles = (saved & 0x60000) == 0x60000;
    const struct { const char *name; bool has; } feature[] = {
        {"avx2", avx && (b >> 5 & 1)},
        {"avx512", avx512 && (b >> 16 & 1)},
        {"avx512-bf16", avx512 && (a1 >> 5 & 1)},
        {"amx-bf16", tiles && (d >> 22 & 1) && (d >> 24 & 1)},
    };
    for (size_t i = 0; i < sizeof feature / sizeof *feature; i++)
        text_add(out, "%s%s %s", i ? ", " : "", feature[i].name, feature[i].has ? "yes" : "no");
}

#else

void machine_processor(struct text *out)
{
    struct utsname u;
    text_add(out, "%s", uname(&u) == 0 ? u.machine : "unknown");
}

void machine_features(struct text *out)
{
    text_add(out, "not asked for on this architecture");
}

#endif
