/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles of our own attention (cuda_attn_own.cu): the shapes of shared memory, how tiles get there,
 * the two matmuls of a warp in bf16 and f32, and which probabilities dropout keeps.
 */
#ifndef PLAIT_DEVICE_CUDA_ATTN_TILE_CUH
#define PLAIT_DEVICE_CUDA_ATTN_TILE_CUH

#include "device/cuda/cuda_scalar.cuh"

extern "C" {
#include "device/cuda/cuda_local.h"
}

enum pass { FORWARD, DQ, DKV };
enum { WARPS = 4, THREADS = 32 * WARPS, ROWS = 16 * WARPS };

/* What the kernel is given. `own` and `pass` matrices by the table above; ct. */
struct params {
    const void *a, *b, *x, *y;         /* b: none in FORWARD */
    int64_t lda, ldb, ldx, ldy;
    void *out, *out2;                  /* o; dq; dk and dv */
    int64_t ldout, ldout2;
    float *lse;                        /* (b*tq, heads): written by FORWARD, else read */
    const float *delta;                /* (b*tq, heads) */
    int64_t tq, tk, heads, kv_heads, d;
    int64_t tiles;                     /* of own rows, in a sequence */
    float scale;
    bool wide;                         /* 16-byte accesses */
    float inv_keep;                    /* 1/(1-p) */
    uint32_t threshold;                /* of dropout; 0: none */
    uint64_t seed;
    const uint32_t *step;              /* NULL: 0 */
    uint32_t stream;
    int64_t row0, heads_total, head0;
};

/* Length of a row in shared memory, accumulated columns and how many blocks share them, rows of a
 * passing tile, its buffers. */
template <typename T, int D> struct shape {
    static constexpr bool F32 = sizeof(T) == 4;
    static constexpr int PAD = 16 / sizeof(T);
    static constexpr int LD = D + PAD;
    static constexpr int OUT = D < 128 ? D : 128;
    static constexpr int PARTS = D / OUT;
    static constexpr int N = F32 && D > 128 ? 32 : 64;
    static constexpr int BUFFERS = F32 && D > 128 ? 1 : 2;
    static constexpr int BLOCKS = D > 128 ? 1 : F32 || D > 64 ? 2 : 3; /* of an SM */
    static constexpr int LDP = N + 4; /* of P in shared memory, f32 only */
    static constexpr int OWN = ROWS * LD, TILE = N * LD; /* elements */
};

template <typename T, int D, enum pass PASS> static constexpr int shared_bytes()
{
    using s = shape<T, D>;
    int own = PASS == FORWARD ? 1 : 2;
    return (own * s::OWN + 2 * s::BUFFERS * s::TILE) * (int)sizeof(T) +
           (s::F32 ? ROWS * s::LDP * 4 : 0) + (PASS == DKV ? 2 * s::BUFFERS * s::N * 4 : 0);
}

__device__ static inline uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Rows row0.. of a matrix into shared memory, zeros where there is no such row or column. */
template <typename T, int D, int N>
__device__ static void load_tile(T *to, const T *from, int64_t ld, int64_t row0, int64_t rows,
                                 int64_t d, bool wide)
{
    constexpr int LD = shape<T, D>::LD, W = 16 / sizeof(T), PACKS = D / W;
    if (wide) {
#pragma unroll 4
        for (int i = threadIdx.x; i < N * PACKS; i += THREADS) {
            int r = i / PACKS, c = i % PACKS * W;
            bool there = row0 + r < rows && c < d;
            const T *p = there ? from + (row0 + r) * ld + c : from;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                             shared_at(to + r * LD + c)),
                         "l"(p), "r"(there ? 16 : 0)
                         : "memory");
        }
    } else {
        for (int i = threadIdx.x; i < N * D; i += THREADS) {
            int r = i / D, c = i % D;
            bool there = row0 + r < rows && c < d;
            to[r * LD + c] = there ? from[(row0 + r) * ld + c] : T(0.0f);
        }
    }
}

__device__ static inline void copies_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int LEFT> __device__ static inline void copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

__device__ static inline void mma(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ static inline void load_matrices(uint32_t *r, const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_at(p))
                 : "memory");
}

__device__ static inline void load_matrices_t(uint32_t *r, const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_at(p))
                 : "memory");
}

/* s (16, N) = a (16, D) b (N, D)^T, of one warp; a and b in shared memory. */
template <int D, int N>
__device__ static void mma_nt(float (*s)[4], const __nv_bfloat16 *a, const __nv_bfloat16 *b)
{
    constexpr int LD = shape<__nv_bfloat16, D>::LD;
    int l = threadIdx.x % 32;
    a += l % 16 * LD + l / 16 * 8;
    b += (l / 16 * 8 + l % 8) * LD + l / 8 % 2 * 8;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
        s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t ra[4], rb[4];
        load_matrices(ra, a + k);
#pragma unroll
        for (int j = 0; j < N / 16; j++) {
            load_matrices(rb, b + 16 * j * LD + k);
            mma(s[2 * j], ra, rb[0], rb[1]);
            mma(s[2 * j + 1], ra, rb[2], rb[3]);
        }
    }
}

template <int D, int N>
__device__ static void mma_nt(float (*s)[4], const float *a, const float *b)
{
    constexpr int LD = shape<float, D>::LD;
    int l = threadIdx.x % 32;
    a += l / 4 * LD;
    b += l % 4 * 2 * LD;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
        s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
#pragma unroll 2
    for (int k = 0; k < D; k += 4) {
        float4 a0 = *(const float4 *)(a + k), a1 = *(const float4 *)(a + 8 * LD + k);
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float4 x = *(const float4 *)(b + (8 * j + e) * LD + k);
                s[j][e] += a0.x * x.x;
                s[j][e] += a0.y * x.y;
                s[j][e] += a0.z * x.z;
                s[j][e] += a0.w * x.w;
                s[j][2 + e] += a1.x * x.x;
                s[j][2 + e] += a1.y * x.y;
                s[j][2 + e] += a1.z * x.z;
                s[j][2 + e] += a1.w * x.w;
            }
        }
    }
}

__device__ static inline uint32_t pack2(float low, float high)
{
    __nv_bfloat162 x = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&x;
}

/* acc (16, OUT) += p (16, N) b (N, OUT), of one warp: p in registers, b in shared memory.
 * scratch: (16, LDP) of this warp, f32 only. */
template <int D, int N>
__device__ static void mma_nn(float (*acc)[4], const float (*p)[4], const __nv_bfloat16 *b,
                                  float *scratch)
{
    using s = shape<__nv_bfloat16, D>;
    int l = threadIdx.x % 32;
    (void)scratch;
    b += l % 16 * s::LD + l / 16 * 8;
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        const float *p0 = p[2 * k], *p1 = p[2 * k + 1];
        uint32_t a[4] = {pack2(p0[0], p0[1]), pack2(p0[2], p0[3]), pack2(p1[0], p1[1]),
                         pack2(p1[2], p1[3])};
#pragma unroll
        for (int j = 0; j < s::OUT / 16; j++) {
            uint32_t rb[4];
            load_matrices_t(rb, b + 16 * k * s::LD + 16 * j);
            mma(acc[2 * j], a, rb[0], rb[1]);
            mma(acc[2 * j + 1], a, rb[2], rb[3]);
        }
    }
}

template <int D, int N>
__device__ static void mma_nn(float (*acc)[4], const float (*p)[4], const float *b,
                                  float *scratch)
{
    using s = shape<float, D>;
    int l = threadIdx.x % 32, g = l / 4, q = l % 4;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        *(float2 *)(scratch + g * s::LDP + 8 * j + 2 * q) = make_float2(p[j][0], p[j][1]);
        *(float2 *)(scratch + (g + 8) * s::LDP + 8 * j + 2 * q) = make_float2(p[j][2], p[j][3]);
    }
    __syncwarp();
#pragma unroll 1
    for (int k = 0; k < N; k += 4) {
        float4 v0 = *(const float4 *)(scratch + g * s::LDP + k);
        float4 v1 = *(const float4 *)(scratch + (g + 8) * s::LDP + k);
        float a0[4] = {v0.x, v0.y, v0.z, v0.w}, a1[4] = {v1.x, v1.y, v1.z, v1.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < s::OUT / 16; j++) {
                float4 x = *(const float4 *)(b + (k + i) * s::LD + 16 * j + 4 * q);
                acc[2 * j][0] += a0[i] * x.x;
                acc[2 * j][1] += a0[i] * x.y;
                acc[2 * j + 1][0] += a0[i] * x.z;
                acc[2 * j + 1][1] += a0[i] * x.w;
                acc[2 * j][2] += a1[i] * x.x;
                acc[2 * j][3] += a1[i] * x.y;
                acc[2 * j + 1][2] += a1[i] * x.z;
                acc[2 * j + 1][3] += a1[i] * x.w;
            }
        }
    }
}

/* Column of acc[j][0]; acc[j][1] is the next one, acc[j][2..3] the same, 8 rows on. */
template <typename T> __device__ static inline int acc_column(int j)
{
    int q = threadIdx.x % 4;
    return sizeof(T) == 4 ? j / 2 * 16 + 4 * q + j % 2 * 2 : 8 * j + 2 * q;
}

/* Bit i: element i of the quad is kept. */
__device__ static inline uint32_t kept_quad(const struct params *a, uint64_t quad)
{
    uint4 w = cuda_philox(a->seed, a->stream, cuda_step(a->step), quad);
    return (uint32_t)(w.x >= a->threshold) | (uint32_t)(w.y >= a->threshold) << 1 |
           (uint32_t)(w.z >= a->threshold) << 2 | (uint32_t)(w.w >= a->threshold) << 3;
}

/* Index of (query, key) of a head; `row` counts the queries of all sequences. */
__device__ static inline uint64_t drop_index(const struct params *a, int64_t row, int64_t head,
                                             int64_t key)
{
    return (uint64_t)(((a->row0 + row) * a->heads_total + a->head0 + head) * a->tk + key);
}

/* Bit 4 j + e: element e of s[j] is kept. (row, col): what s[0][0] of lane 0 is. Element by
 * element, whatever tk. */
template <int N, bool TURNED>
__device__ static uint32_t kept_each(const struct params *a, int64_t head, int64_t row, int64_t col)
{
    int l = threadIdx.x % 32;
    uint32_t kept = 0;
#pragma unroll 1
    for (int i = 0; i < N / 2; i++) {
        int64_t r = row + l / 4 + i / 2 % 2 * 8, c = col + i / 4 * 8 + l % 4 * 2 + i % 2;
        uint64_t index = drop_index(a, TURNED ? c : r, head, TURNED ? r : c);
        kept |= (kept_quad(a, index / 4) >> index % 4 & 1) << i;
    }
    return kept;
}

/* The same where tk is a multiple of 4, so that four keys in a row share one draw. Rows are
 * queries: a lane draws for one of its two rows, its neighbour for the other. */
template <int N>
__device__ static uint32_t kept_rows(const struct params *a, int64_t head, int64_t row, int64_t col)
{
    int l = threadIdx.x % 32, q = l % 4, odd = q % 2;
    uint64_t first = drop_index(a, row + l / 4 + 8 * odd, head, col + q / 2 * 4) / 4;
    uint32_t own = 0;
#pragma unroll 2
    for (int j = 0; j < N / 8; j++)
        own |= kept_quad(a, first + 2 * j) << 4 * j;
    uint32_t other = __shfl_xor_sync(~0u, own, 1);
    uint32_t low = odd ? other : own, high = odd ? own : other;
    return (low >> 2 * odd & 0x33333333u) | (high >> 2 * odd & 0x33333333u) << 2;
}

/* Rows are keys: of the four lanes that share four keys, each draws for one element of s[j]. */
template <int N>
__device__ static uint32_t kept_turned(const struct params *a, int64_t head, int64_t row,
                                       int64_t col)
{
    int l = threadIdx.x % 32, g = l / 4, q = l % 4, mine = g % 4;
    int64_t key = row + g / 4 * 4 + mine / 2 * 8, query = col + 2 * q + mine % 2;
    uint32_t own = 0, kept = 0;
#pragma unroll 2
    for (int j = 0; j < N / 8; j++)
        own |= kept_quad(a, drop_index(a, query + 8 * j, head, key) / 4) << 4 * j;
#pragma unroll
    for (int e = 0; e < 4; e++)
        kept |= (__shfl_sync(~0u, own, (g & 4 | e) * 4 + q) >> mine & 0x11111111u) << e;
    return kept;
}

/* Bits of what dropout keeps of this warp's tile. */
template <int N, bool TURNED>
__device__ static uint32_t kept_of(const struct params *a, int64_t head, int64_t row, int64_t col)
{
    if (a->threshold == 0)
        return ~0u;
    if (a->tk % 4 != 0)
        return kept_each<N, TURNED>(a, head, row, col);
    return TURNED ? kept_turned<N>(a, head, row, col) : kept_rows<N>(a, head, row, col);
}

#endif
