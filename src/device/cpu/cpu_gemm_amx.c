/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_gemm.h on the processor's own tiles. Tile data make the state of a thread 8 KiB larger, so
 * Linux gives them to a process only when asked (since 5.16), and then to all its threads.
 */
#include "device/cpu/cpu_amx.h"

#if defined(PLAIT_HAVE_AMX)
#include "device/cpu/amx_gemm.h"
#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ASK_FOR_STATE = 0x1023 /* ARCH_REQ_XCOMP_PERM */, TILE_DATA = 18 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool lent;

static void ask(void)
{
    enum { SAVED_BY_SYSTEM = 1 << 27, AVX512F = 1 << 16, TILES = 1 << 24, BF16 = 1 << 22,
           AVX512_BF16 = 1 << 5 };
    unsigned a, b, c, d, zmm = 0xe6, tiles = 3u << 17, state, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & SAVED_BY_SYSTEM))
        return;
    __asm__("xgetbv" : "=a"(state), "=d"(high) : "c"(0));
    if ((state & (zmm | tiles)) != (zmm | tiles) || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return;
    if (!(b & AVX512F) || !(d & TILES) || !(d & BF16) || !__get_cpuid_count(7, 1, &a, &b, &c, &d))
        return;
    if (a & AVX512_BF16)
        lent = syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) == 0;
}

bool cpu_amx_has(void)
{
    pthread_once(&once, ask);
    return lent;
}

void cpu_amx_gemm(struct cpu *p, struct cpu_gemm *w)
{
    struct amx_params params = {.w = w, .finish = p->simd->gemm_finish};
    amx_cut(&params, p->dev.threads);
    cpu_pool_run(p->pool, amx_pieces, &params, num_ceil_div(w->g->m, w->rows) * w->across, 1);
}
#else

bool cpu_amx_has(void)
{
    return false;
}

void cpu_amx_gemm(struct cpu *p, struct cpu_gemm *w)
{
    (void)p;
    (void)w;
}
#endif
