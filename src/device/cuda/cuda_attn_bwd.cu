/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention's gradient on Hopper for heads of 64 in bf16: as many heads of keys as of queries, as
 * many keys as queries, no dropout. What it computes is in src/device/ref/ref_ops.c. A thread
 * block holds 128 keys and iterates over blocks of 128 queries; one warp loads, two warpgroups
 * compute; dq is summed in the workspace in one order, so every run gives the same bits. From Dao
 * et al. 2022, Dao 2023 and Shah et al. 2024 (FlashAttention-3); the pipeline of its matmuls and
 * its floor in cycles: docs/design/attention-gradient.md. The pieces are in cuda_attn_bwd_tile.cuh.
 */
#include "device/cuda/cuda_attn_bwd_tile.cuh"

#include <cudaTypedefs.h>

/* Threads: a warpgroup that loads, two that compute. Registers: of a thread of either. */
enum { THREADS = 384, COMPUTE = 256, LOADS_REGS = 24, COMPUTE_REGS = 240, STAGES = 3 };
enum { TILE_BYTES = BWD_TILE * 2, STATS_BYTES = 2 * BWD_ROWS * 4 };

struct params {
    CUtensorMap q, k, v, do_;
    struct bwd_share share;
    const float *stats;     /* (pairs, blocks, 2, 128): log-sum-exps in bits, deltas */
    float *slots;           /* (ctas, blocks, 128, 64), as the threads hold it */
    bf16 *dq, *dk, *dv;
    int64_t ldq, ldk, ldv;
    int t, heads;
    float scale, bits;      /* bits: scale / ln 2 */
};

/* Shared memory of a block. */
struct __align__(1024) smem {
    bf16 k[2][BWD_TILE], v[BWD_TILE];
    bf16 q[STAGES][BWD_TILE], do_[STAGES][BWD_TILE];
    bf16 ds[2][2][BWD_TILE]; /* buffer, half of the keys: (queries, 64 keys) */
    float stats[STAGES][2][BWD_ROWS];
    uint64_t full[STAGES], empty[STAGES], k_full[2], k_empty[2], v_full, v_empty;
    uint64_t ds_full[2], ds_empty[2];
};
enum { SMEM_BYTES = sizeof(struct smem) + 1024 };
static_assert(SMEM_BYTES <= 232448, "shared memory of a block on Hopper");

/* Where one stands in a ring of N buffers; parity: of the phase in which the buffer gets full. */
template <int N> struct ring {
    int i;
    uint32_t parity;
    __device__ void step(void)
    {
        i++;
        if (i == N) {
            i = 0;
            parity ^= 1;
        }
    }
};

/* ---- the warp that loads ---- */

static __device__ __forceinline__ int4 box_of(const struct params *a, int item, int block)
{
    int pair = bwd_pair(&a->share, item);
    return make_int4(0, block * BWD_ROWS, pair % a->heads, pair / a->heads);
}

static __device__ void load_queries(const struct params *a, struct smem *m, struct bwd_at at,
                                    struct ring<STAGES> r)
{
    uint32_t full = hopper_shared(&m->full[r.i]);
    int4 box = box_of(a, at.item, at.query);
    int64_t pair = bwd_pair(&a->share, at.item), block = pair * a->share.blocks + at.query;
    uint64_t policy = at.query == at.key ? cache_first_to_go() : cache_as_ever();
    barrier_wait(hopper_shared(&m->empty[r.i]), r.parity ^ 1);
    barrier_expect(full, 2 * TILE_BYTES + STATS_BYTES);
    copy_box(hopper_shared(m->q[r.i]), &a->q, full, box, policy);
    copy_bytes(hopper_shared(m->stats[r.i]), a->stats + block * 2 * BWD_ROWS, STATS_BYTES, full);
    copy_box(hopper_shared(m->do_[r.i]), &a->do_, full, box, policy);
}

/* One thread. V has one buffer, so it is waited for last: its last reader is early. A block of keys
 * is read once, one of queries by this block of threads for the last time on the diagonal: the L2
 * is then told to let go of it, for the sums of dq are to stay there. */
[[maybe_unused]] static __device__ void load_all(const struct params *a, struct smem *m)
{
    struct ring<STAGES> r = {0, 0};
    struct ring<2> k = {0, 0};
    struct ring<1> v = {0, 0};
    struct bwd_at at = bwd_begin(&a->share, blockIdx.x);
    const uint64_t once = cache_first_to_go();
    for (; at.item < a->share.items; at = bwd_next(&a->share, at)) {
        bool row = at.query == at.key;
        uint32_t full = hopper_shared(&m->k_full[k.i]);
        if (row) {
            barrier_wait(hopper_shared(&m->k_empty[k.i]), k.parity ^ 1);
            barrier_expect(full, TILE_BYTES);
            copy_box(hopper_shared(m->k[k.i]), &a->k, full, box_of(a, at.item, at.key),
                     once);
            k.step();
        }
        load_queries(a, m, at, r);
        r.step();
        if (row) {
            full = hopper_shared(&m->v_full);
            barrier_wait(hopper_shared(&m->v_empty), v.parity ^ 1);
            barrier_expect(full, TILE_BYTES);
            copy_box(hopper_shared(m->v), &a->v, full, box_of(a, at.item, at.key),
                     once);
            v.step();
        }
    }
}

/* ---- results ---- */

/* A pair's matrix: rows of its sequence, columns of its head. */
static __device__ __forceinline__ bf16 *matrix_of(const struct params *a, bf16 *base, int64_t ld,
                                                  int pair)
{
    return base + (int64_t)(pair / a->heads) * a->t * ld + pair % a->heads * BWD_D;
}

/* Where the sums of a thread of this warpgroup's 64 queries of block at.query lie. */
static __device__ __forceinline__ float *slot_of(const struct params *a, struct bwd_at at)
{
    int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
    return a->slots + ((int64_t)blockIdx.x * a->share.blocks + at.query) * BWD_TILE +
           group * (BWD_TILE / 2) + thread * 4;
}

/* dq of those queries. When the block closes, what came before is in it: continue_queries. */
static __device__ __forceinline__ void finish_queries(const struct params *a, struct bwd_at at,
                                                      const float (&dq)[32])
{
    if (bwd_closes(&a->share, at)) {
        bf16 *to = matrix_of(a, a->dq, a->ldq, bwd_pair(&a->share, at.item));
        int row = at.query * BWD_ROWS + (threadIdx.x / 128 - 1) * 64;
        write_rows(to, a->ldq, dq, a->scale, row, a->t);
    } else if (bwd_opens(at)) {
        slot_write(slot_of(a, at), dq);
    } else {
        slot_add(slot_of(a, at), dq);
    }
}

/* Does the matmul of a block go on from sums that lie in the slot? They are then fetched. */
static __device__ __forceinline__ bool continue_queries(const struct params *a, struct bwd_at at,
                                                        float (&dq)[32])
{
    bool more = bwd_closes(&a->share, at) && !bwd_opens(at);
    if (more)
        slot_read(slot_of(a, at), dq);
    return more;
}

static __device__ __forceinline__ void finish_keys(const struct params *a, struct bwd_at at,
                                                   const float (&dk)[32], const float (&dv)[32])
{
    int row = at.key * BWD_ROWS + (threadIdx.x / 128 - 1) * 64;
    int pair = bwd_pair(&a->share, at.item);
    write_rows(matrix_of(a, a->dk, a->ldk, pair), a->ldk, dk, a->scale, row, a->t);
    write_rows(matrix_of(a, a->dv, a->ldv, pair), a->ldv, dv, 1, row, a->t);
}

/* ---- the warpgroups that compute ---- */

/* This warp is through with a buffer. */
static __device__ __forceinline__ void release(uint64_t *empty)
{
    if (threadIdx.x % 32 == 0)
        barrier_arrive(hopper_shared(empty));
}

/* Where a warpgroup stands: in the walk, and in the rings of buffers. */
struct stand {
    struct bwd_at at;
    struct ring<STAGES> r;
    struct ring<2> k;
    struct ring<1> v;
    struct ring<2> ds;
};

/* On to the next block, and until it is there. Behind the last the buffers stay as they are. */
static __device__ __forceinline__ void move(const struct params *a, struct smem *m, struct stand *w)
{
    w->at = bwd_next(&a->share, w->at);
    w->r.step();
    w->ds.step();
    if (w->at.query == w->at.key)
        w->k.step();
    if (w->at.item >= a->share.items)
        return;
    if (w->at.query == w->at.key)
        barrier_wait(hopper_shared(&m->k_full[w->k.i]), w->k.parity);
    barrier_wait(hopper_shared(&m->full[w->r.i]), w->r.parity);
}

/* Probabilities of the block where w stands from its scores. */
static __device__ __forceinline__ void recompute_probs(const struct params *a, const struct smem *m,
                                                       const struct stand *w, float (&s)[64],
                                                       uint32_t (&p)[32])
{
    int warp = threadIdx.x / 32 - 4; /* 16 keys each */
    if (w->at.query == w->at.key)
        mask(s, 16 * warp);
    probabilities(p, s, m->stats[w->r.i][0] + threadIdx.x % 4 * 2, a->bits);
}

/* The matmul of dq of the block where `before` stood, when all of dS is there, and what it goes on
 * from. Before the first block it is one of whatever lies there, which nobody looks at: a matmul
 * under a condition would make the compiler wait for each. */
static __device__ __forceinline__ void ask_queries(struct smem *m, const struct stand *before,
                                                   float (&dq)[32], bool more)
{
    const uint32_t own = (threadIdx.x / 128 - 1) * (TILE_BYTES / 2);
    if (before->at.item >= 0)
        barrier_wait(hopper_shared(&m->ds_full[before->ds.i]), before->ds.parity);
    matmul_queries(dq, hopper_shared(m->ds[before->ds.i]) + own,
                    hopper_shared(m->k[before->k.i]), more);
}

/* It is done: buffers go back. The loading warp may need them for the next block. */
static __device__ __forceinline__ void release_queries(const struct params *a, struct smem *m,
                                                       const struct stand *before)
{
    if (before->at.item < 0)
        return;
    release(&m->ds_empty[before->ds.i]);
    if (before->at.query == a->share.blocks - 1)
        release(&m->k_empty[before->k.i]);
}

/* dS of a block to shared memory, for both warpgroups. */
static __device__ __forceinline__ void publish_ds(struct smem *m, struct ring<2> r, int half,
                                                  const uint32_t (&ds)[32])
{
    uint32_t to = bwd_matrix(threadIdx.x / 32 % 4, threadIdx.x % 32) + half * TILE_BYTES;
    barrier_wait(hopper_shared(&m->ds_empty[r.i]), r.parity ^ 1);
    store_turned(hopper_shared(m->ds[r.i]) + to, ds);
    stores_seen();
    __syncwarp();
    release(&m->ds_full[r.i]);
}

/* The walk of a warpgroup, half `half` of the keys. On entry of a turn its probabilities are there.
 * dS is made while dq of the block before is under way, probabilities of the next while dk is; dq
 * comes a block late, so that the two warpgroups need not keep step. It is put away behind the
 * fence of publish_ds, which would wait for it. At the end scores are asked for that nobody reads,
 * of what lies in the buffers.
 * long: the order of the matmuls is one piece */
[[maybe_unused]] static __device__ __forceinline__ void compute(const struct params *a,
                                                                struct smem *m, int half)
{
    float dk[32] = {}, dv[32] = {}, dq[32] = {}, s[64], dp[64];
    uint32_t p[32], ds[32];
    struct stand w = {bwd_begin(&a->share, blockIdx.x), {0, 0}, {0, 0}, {0, 0}, {0, 0}};
    struct stand before = w;
    const uint32_t own = half * (TILE_BYTES / 2);
    bool more = false;
    before.at.item = -1;
    barrier_wait(hopper_shared(&m->k_full[0]), 0);
    barrier_wait(hopper_shared(&m->full[0]), 0);
    matmul_scores(s, hopper_shared(m->k[0]) + own, hopper_shared(m->q[0]));
    wgmma_wait<0>();
    held(s);
    recompute_probs(a, m, &w, s, p);
    while (w.at.item < a->share.items) {
        struct stand now = w;
        bool fresh = w.at.query == w.at.key, last = w.at.query == a->share.blocks - 1;
        if (fresh) {
            barrier_wait(hopper_shared(&m->v_full), w.v.parity);
            w.v.step();
        }
        matmul_scores(dp, hopper_shared(m->v) + own, hopper_shared(m->do_[w.r.i]));
        matmul_keys(dv, p, hopper_shared(m->do_[w.r.i]), !fresh);
        ask_queries(m, &before, dq, more);
        wgmma_wait<1>();
        held(dp);
        held(dv);
        if (last)
            release(&m->v_empty);
        score_grads(ds, p, dp, m->stats[w.r.i][1] + threadIdx.x % 4 * 2);
        publish_ds(m, w.ds, half, ds);
        wgmma_wait<0>();
        held(dq);
        release_queries(a, m, &before);
        move(a, m, &w);
        matmul_scores(s, hopper_shared(m->k[w.k.i]) + own, hopper_shared(m->q[w.r.i]));
        if (before.at.item >= 0)
            finish_queries(a, before.at, dq);
        more = continue_queries(a, now.at, dq);
        matmul_keys(dk, ds, hopper_shared(m->q[now.r.i]), !fresh);
        wgmma_wait<1>();
        held(s);
        recompute_probs(a, m, &w, s, p);
        wgmma_wait<0>();
        held(dk);
        release(&m->empty[now.r.i]);
        if (last)
            finish_keys(a, now.at, dk, dv);
        before = now;
    }
    ask_queries(m, &before, dq, more);
    wgmma_wait<0>();
    held(dq);
    finish_queries(a, before.at, dq);
}

[[maybe_unused]] static __device__ void open_barriers(struct smem *m)
{
    for (int i = 0; i < STAGES; i++) {
        barrier_init(hopper_shared(&m->full[i]), 1);
        barrier_init(hopper_shared(&m->empty[i]), COMPUTE / 32);
    }
    for (int i = 0; i < 2; i++) {
        barrier_init(hopper_shared(&m->k_full[i]), 1);
        barrier_init(hopper_shared(&m->k_empty[i]), COMPUTE / 32);
        barrier_init(hopper_shared(&m->ds_full[i]), COMPUTE / 32);
        barrier_init(hopper_shared(&m->ds_empty[i]), COMPUTE / 32);
    }
    barrier_init(hopper_shared(&m->v_full), 1);
    barrier_init(hopper_shared(&m->v_empty), COMPUTE / 32);
    barrier_inits_seen();
}

static __global__ void __launch_bounds__(THREADS, 1)
    attend_bwd(const __grid_constant__ struct params params)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char memory[];
    struct smem *m = (struct smem *)(memory + (-hopper_shared(memory) & 1023));
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0)
        open_barriers(m);
    __syncthreads();
    if (group == 0) {
        registers_give<LOADS_REGS>();
        if (threadIdx.x == 0)
            load_all(&params, m);
    } else {
        registers_take<COMPUTE_REGS>();
        compute(&params, m, group - 1);
    }
#else
    __trap(); /* never launched: takes() says no, and nothing above is used */
#endif
}

/* ---- before and behind ---- */

/* Log-sum-exps in bits and deltas = sum do o, of a block of rows of a pair; rows that are not there
 * get a log-sum-exp of +inf, so that their probabilities are 0. Eight lanes a row, 16 bytes each.
 * Grid (heads, blocks, sequences), 256 threads. Bound by memory: o and do once. */
static __global__ void __launch_bounds__(256)
row_stats(float *to, const float *lse, const bf16 *o, const bf16 *do_, int64_t ld, int t)
{
    int heads = gridDim.x, lane = threadIdx.x % 8;
    int64_t pair = (int64_t)blockIdx.z * heads + blockIdx.x;
    float *out = to + (pair * gridDim.y + blockIdx.y) * 2 * BWD_ROWS;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int local = i * 32 + threadIdx.x / 8, row = blockIdx.y * BWD_ROWS + local;
        int64_t at = (int64_t)blockIdx.z * t + row;
        bool there = row < t;
        float x[8] = {}, y[8] = {}, sum = 0;
        if (there) {
            cuda_get(o + at * ld + blockIdx.x * BWD_D + 8 * lane, x);
            cuda_get(do_ + at * ld + blockIdx.x * BWD_D + 8 * lane, y);
        }
#pragma unroll
        for (int e = 0; e < 8; e++)
            sum = fmaf(x[e], y[e], sum);
#pragma unroll
        for (int by = 4; by > 0; by /= 2)
            sum += __shfl_xor_sync(~0u, sum, by);
        if (lane == 0) {
            out[local] = there ? lse[at * heads + blockIdx.x] * 1.44269504f : INFINITY;
            out[BWD_ROWS + local] = sum;
        }
    }
}

/* dq of pairs that were cut into parts: their slots, part by part. Grid (blocks, pairs), threads as
 * the two warpgroups that compute. */
static __global__ void __launch_bounds__(COMPUTE)
    add_parts(const __grid_constant__ struct params params)
{
    const struct params *a = &params;
    int block = blockIdx.x, group = threadIdx.x / 128, pair = a->share.full + blockIdx.y;
    float x[32] = {}, more[32];
    for (int part = 0; part < min(a->share.parts, block + 1); part++) {
        int64_t slot = blockIdx.y * a->share.parts + part;
        const float *at = a->slots + (slot * a->share.blocks + block) * BWD_TILE +
                          group * (BWD_TILE / 2) + threadIdx.x % 128 * 4;
        slot_read(at, more);
#pragma unroll
        for (int i = 0; i < 32; i++)
            x[i] += more[i];
    }
    write_rows(matrix_of(a, a->dq, a->ldq, pair), a->ldq, x, a->scale,
               block * BWD_ROWS + group * 64, a->t);
}

/* ---- the host's side ---- */

/* A matrix of the caller's as the copy engine is told of it: boxes are 128 rows of a head, rows
 * behind a sequence's end are zeros. */
static enum err map_of(CUtensorMap *map, const struct attn *a, const void *base, int64_t ld)
{
    static thread_local PFN_cuTensorMapEncodeTiled_v12000 encode; /* ranks are threads */
    cudaDriverEntryPointQueryResult found;
    if (!encode) {
        void *fn = NULL;
        CUDA_TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000,
                                                  cudaEnableDefault, &found));
        if (found != cudaDriverEntryPointSuccess)
            FAIL(ERR_INTERNAL, "cuda: the driver knows no tensor maps, which GPUs of compute "
                               "capability 9.0 have; install one of CUDA 12 or later");
        encode = (PFN_cuTensorMapEncodeTiled_v12000)fn;
    }
    const cuuint64_t dims[] = {BWD_D, (cuuint64_t)a->tq, (cuuint64_t)a->heads,
                               (cuuint64_t)a->b};
    const cuuint64_t strides[] = {(cuuint64_t)ld * 2, BWD_D * 2, (cuuint64_t)(a->tq * ld) * 2};
    const cuuint32_t box[] = {BWD_D, BWD_ROWS, 1, 1}, step[] = {1, 1, 1, 1};
    CUresult r = encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)base, dims, strides, box,
                        step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r != CUDA_SUCCESS)
        FAIL(ERR_INTERNAL, "cuda: the driver refuses a map of %lld x %lld rows of %lld elements "
                           "(error %d)", (long long)a->b, (long long)a->tq, (long long)ld, (int)r);
    return ERR_OK;
}

static bool fits(const void *p, int64_t ld)
{
    return cuda_aligned(p) && ld % 8 == 0;
}

/* Can these kernels take the call? */
static bool takes(const struct cuda *c, const struct attn_grad *g)
{
    const struct attn *a = &g->f;
    int64_t pairs = a->b * a->heads;
#ifndef PLAIT_HAVE_SM90A
    return false;
#endif
    return c->sm90 && c->bf16 && a->d == BWD_D && a->tq == a->tk && a->heads == a->kv_heads &&
           a->drop.p == 0 && a->scale > 0 && a->b < 65536 && pairs > 0 &&
           num_ceil_div(a->tq, BWD_ROWS) * BWD_ROWS < INT32_MAX / pairs && fits(a->q, a->ldq) &&
           fits(a->k, a->ldk) && fits(a->v, a->ldv) && fits(a->o, a->ldo) && fits(g->do_, a->ldo) &&
           fits(g->dq, a->ldq) && fits(g->dk, a->ldk) && fits(g->dv, a->ldv) &&
           bwd_bytes(pairs, a->tq) <= c->work_bytes;
}

static enum err params_of(struct cuda *c, const struct attn_grad *g, struct params *params)
{
    const struct attn *a = &g->f;
    int64_t pairs = a->b * a->heads;
    *params = (struct params){};
    TRY(map_of(&params->q, a, a->q, a->ldq));
    TRY(map_of(&params->k, a, a->k, a->ldk));
    TRY(map_of(&params->v, a, a->v, a->ldv));
    TRY(map_of(&params->do_, a, g->do_, a->ldo));
    params->share = bwd_share_of(pairs, a->tq, c->sms);
    params->stats = (float *)c->work;
    params->slots = (float *)c->work + bwd_stats(pairs, a->tq);
    params->dq = (bf16 *)g->dq;
    params->dk = (bf16 *)g->dk;
    params->dv = (bf16 *)g->dv;
    params->ldq = a->ldq;
    params->ldk = a->ldk;
    params->ldv = a->ldv;
    params->t = (int)a->tq;
    params->heads = (int)a->heads;
    params->scale = (float)a->scale;
    params->bits = (float)(a->scale * 1.4426950408889634);
    return ERR_OK;
}

extern "C" enum err cuda_attn_bwd(struct cuda *c, const struct attn_grad *g, bool *done)
{
    const struct attn *a = &g->f;
    struct params params;
    *done = takes(c, g);
    if (!*done)
        return ERR_OK;
    TRY(params_of(c, g, &params));
    dim3 rows((unsigned)a->heads, (unsigned)params.share.blocks, (unsigned)a->b);
    row_stats<<<rows, 256, 0, c->stream>>>((float *)c->work, (const float *)a->lse,
                                           (const bf16 *)a->o, (const bf16 *)g->do_, a->ldo,
                                           params.t);
    CUDA_LAUNCHED("attention's gradient: sums of rows");
    CUDA_TRY(cudaFuncSetAttribute((const void *)attend_bwd,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES));
    attend_bwd<<<(unsigned)params.share.ctas, THREADS, SMEM_BYTES, c->stream>>>(params);
    CUDA_LAUNCHED("attention's gradient");
    if (params.share.full < params.share.pairs) {
        dim3 blocks((unsigned)params.share.blocks,
                    (unsigned)(params.share.pairs - params.share.full));
        add_parts<<<blocks, COMPUTE, 0, c->stream>>>(params);
        CUDA_LAUNCHED("attention's gradient: parts");
    }
    return ERR_OK;
}
