/* SPDX-License-Identifier: Apache-2.0
 *
 * Instructions of compute capability 9.0a as functions: barriers in shared memory that count bytes,
 * the copy engine, matmuls of a warpgroup. Only what the kernels use; PTX ISA 8.x, chapters
 * "mbarrier", "cp.async.bulk" and "wgmma".
 *
 * A matmul of a warpgroup runs behind the program: what it reads and writes may be touched only
 * when wgmma_wait has said so. The compiler does not know that, so registers go through `held`
 * behind the wait, which it takes for a change.
 */
#ifndef PLAIT_DEVICE_CUDA_HOPPER_CUH
#define PLAIT_DEVICE_CUDA_HOPPER_CUH

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

/* The address of something in shared memory, as instructions take it. */
static __device__ __forceinline__ uint32_t hopper_shared(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- barriers in shared memory ---- */

static __device__ __forceinline__ void barrier_init(uint32_t bar, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}

/* Behind all barrier_init, before the block's own barrier. */
static __device__ __forceinline__ void barrier_inits_seen(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* Arrives, and the phase is over when that many bytes have come as well. */
static __device__ __forceinline__ void barrier_expect(uint32_t bar, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}

/* Until the phase of this parity is over. A fresh barrier's phase of parity 1 is. */
static __device__ __forceinline__ void barrier_wait(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}\n" ::"r"(bar), "r"(parity)
                 : "memory");
}

/* ---- the copy engine ---- */

/* How the L2 treats what is read: as ever, or as the first to go. */
static __device__ __forceinline__ uint64_t cache_as_ever(void)
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

static __device__ __forceinline__ uint64_t cache_first_to_go(void)
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* A box of a matrix of four extents to shared memory; its bytes count at `bar`. */
static __device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *map, uint32_t bar,
                                                int4 at, uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to), "l"(map),
                 "r"(bar), "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.w), "l"(policy)
                 : "memory");
}

/* Plain bytes, a multiple of 16, both ends on 16. */
static __device__ __forceinline__ void copy_bytes(uint32_t to, const void *from, int bytes,
                                                  uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

/* What this thread has stored in shared memory is seen by the copy engine and by matmuls of those
 * who meet it in a barrier behind this. */
static __device__ __forceinline__ void stores_seen(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- registers between warpgroups ---- */

template <int N> static __device__ __forceinline__ void registers_take(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ __forceinline__ void registers_give(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- matmuls of a warpgroup ---- */

/* A tile of shared memory with rows of 128 bytes, swizzled, groups of 8 rows one behind another.
 * Rows are those of the result, 64 of the summed index in each; or, where the instruction
 * transposes, rows are the summed index, with 64 of the result's. `bytes` further on in it: the
 * address stands in the low bits in units of 16, so one addition does (shared memory ends below
 * 2^18, its 14 bits). */
static __device__ __forceinline__ uint64_t wgmma_tile(uint32_t at)
{
    return ((uint64_t)0x40000040u << 32) | (0x400000u | (at & 0x3ffffu) >> 4);
}

static __device__ __forceinline__ uint64_t wgmma_further(uint64_t tile, int bytes)
{
    return (tile & 0xffffffff00000000u) | ((uint32_t)tile + (uint32_t)bytes / 16);
}

/* Before the first matmul that reads or writes registers touched since. */
static __device__ __forceinline__ void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until at most N of the groups committed last are under way. */
template <int N> static __device__ __forceinline__ void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

template <int N> static __device__ __forceinline__ void held(float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(x[i])::"memory");
}

#define WGMMA_8(c, d, i)                                                                           \
    c((d)[i]), c((d)[i + 1]), c((d)[i + 2]), c((d)[i + 3]), c((d)[i + 4]), c((d)[i + 5]),          \
        c((d)[i + 6]), c((d)[i + 7])
#define WGMMA_32(c, d, i)                                                                          \
    WGMMA_8(c, d, i), WGMMA_8(c, d, i + 8), WGMMA_8(c, d, i + 16), WGMMA_8(c, d, i + 24)
#define WGMMA_R32                                                                                  \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"   \
    "%25,%26,%27,%28,%29,%30,%31"
#define WGMMA_R64                                                                                  \
    WGMMA_R32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,"  \
              "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA_NEW "=f"
#define WGMMA_OLD "+f"

/* d (64, 128) = a (64, 16) b (128, 16)^T; then d += the same. */
static __device__ __forceinline__ void wgmma_128_new(float (&d)[64], uint64_t a, uint64_t b)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.u32 add, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WGMMA_R64 "}, %64, "
                 "%65, add, 1, 1, 0, 0;\n}\n"
                 : WGMMA_32(WGMMA_NEW, d, 0), WGMMA_32(WGMMA_NEW, d, 32)
                 : "l"(a), "l"(b));
}

static __device__ __forceinline__ void wgmma_128_add(float (&d)[64], uint64_t a, uint64_t b)
{
    asm volatile("{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WGMMA_R64 "}, %64, "
                 "%65, add, 1, 1, 0, 0;\n}\n"
                 : WGMMA_32(WGMMA_OLD, d, 0), WGMMA_32(WGMMA_OLD, d, 32)
                 : "l"(a), "l"(b));
}

/* d (64, 64) = [d +] a (64, 16) b (16, 64). */
static __device__ __forceinline__ void wgmma_64(float (&d)[32], uint64_t a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.s32 add, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" WGMMA_R32 "}, %32, "
                 "%33, add, 1, 1, 0, 1;\n}\n"
                 : WGMMA_32(WGMMA_OLD, d, 0)
                 : "l"(a), "l"(b), "r"(add));
}

/* d (64, 64) = [d +] a (64, 16) b (16, 64), a in registers: lane l has of rows l/4 and l/4 + 8 of
 * its warp's 16 the elements at 2 (l%4) and behind, then those 8 further on. */
static __device__ __forceinline__ void wgmma_64_from(float (&d)[32], const uint32_t *a, uint64_t b,
                                                     int add)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.s32 add, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" WGMMA_R32 "}, "
                 "{%32,%33,%34,%35}, %36, add, 1, 1, 1;\n}\n"
                 : WGMMA_32(WGMMA_OLD, d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

#endif
