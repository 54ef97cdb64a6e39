/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows by token and by position. Reading is a copy of rows, a warp a row, 16 bytes a lane where
 * the row length and the addresses allow it.
 *
 * The gradient of a table adds rows of dy that name the same token. Adding floats as they come
 * would give other bits in each run, so the rows are put in order first: pairs (token, row) are
 * sorted by token (a stable radix sort, over the bits that a token can have), and each token's rows
 * are then added in the order of the rows. Texts repeat few tokens very often, and one block for
 * each token would leave one of them with most of the work; so the sorted list is cut in pieces of
 * one length. What lies in a piece whole is added to the table at once. What a cut goes through is
 * left as a partial sum of each piece, and a second kernel adds those in the order of the pieces.
 */
#include "device/cuda/cuda_scalar.cuh"

extern "C" {
#include "device/cuda/cuda_local.h"
#include "device/cuda/cuda_sort.h"
}

enum { WARPS = 8, COLUMN_THREADS = 128, PIECE_MIN = 32 };

static bool aligned(const void *p, int64_t bytes) { return (uintptr_t)p % (uint64_t)bytes == 0; }

/* Blocks of a launch with one warp a row. */
static enum err row_blocks(const char *who, int64_t n, unsigned *out)
{
    int64_t blocks = (n + WARPS - 1) / WARPS;
    if (blocks > INT32_MAX)
        FAIL(ERR_CONFIG, "%s: %lld rows in one call; use at most %lld", who, (long long)n,
             (long long)INT32_MAX * WARPS);
    *out = (unsigned)blocks;
    return ERR_OK;
}

/* Rows of `words` words of type W. */
template <typename W>
static __global__ void embed_rows(W *out, const W *w, const int32_t *token, int64_t n,
                                  int64_t words, int64_t v0, int64_t rows)
{
    int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (r >= n)
        return;
    int64_t local = token[r] - v0;
    bool here = local >= 0 && local < rows;
    for (int64_t i = threadIdx.x; i < words; i += 32)
        out[r * words + i] = here ? w[local * words + i] : W{};
}

extern "C" enum err cuda_embed(struct dev *d, const struct embed *a)
{
    struct cuda *cu = cuda_of(d);
    dim3 block(32, WARPS);
    int64_t bytes = a->c * (cu->bf16 ? 2 : 4);
    unsigned blocks;
    if (a->n == 0 || a->c == 0)
        return ERR_OK;
    TRY(row_blocks("embed", a->n, &blocks));
    if (bytes % 16 == 0 && aligned(a->out, 16) && aligned(a->w, 16))
        embed_rows<<<blocks, block, 0, cu->stream>>>((uint4 *)a->out, (const uint4 *)a->w, a->token,
                                                     a->n, bytes / 16, a->v0, a->rows);
    else if (cu->bf16)
        embed_rows<<<blocks, block, 0, cu->stream>>>((uint16_t *)a->out, (const uint16_t *)a->w,
                                                     a->token, a->n, a->c, a->v0, a->rows);
    else
        embed_rows<<<blocks, block, 0, cu->stream>>>((uint32_t *)a->out, (const uint32_t *)a->w,
                                                     a->token, a->n, a->c, a->v0, a->rows);
    CUDA_LAUNCHED("embed");
    return ERR_OK;
}

/* Row r of tokens to sort: a token that is not here goes behind all others. */
static __global__ void token_pairs(uint32_t *key, uint32_t *row, const int32_t *token, int64_t n,
                                   int64_t v0, int64_t rows)
{
    int64_t r = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n)
        return;
    int64_t local = token[r] - v0;
    key[r] = (uint32_t)(local >= 0 && local < rows ? local : rows);
    row[r] = (uint32_t)r;
}

/* The sorted list and its pieces. */
struct pieces {
    const uint32_t *key, *row; /* (n) sorted by key, rows rising within a key */
    float *head, *tail;        /* (count, c): sums of what began before, of what goes on after */
    int64_t n, c, each;        /* each: pairs in a piece */
    int64_t rows;              /* keys of this and above are nobody's */
};

/* to[0..W-1] += sum, or = sum where `first` writes a partial sum. */
template <int W> __device__ static void put(float *to, const float *sum, bool add)
{
    pack<float, W> x = {};
    if (add)
        x = *(const pack<float, W> *)to;
    for (int i = 0; i < W; i++)
        x.v[i] += sum[i];
    *(pack<float, W> *)to = x;
}

/* One piece (blockIdx.x), W columns a thread. */
template <typename T, int W>
static __global__ void __launch_bounds__(COLUMN_THREADS) sum_pieces(struct pieces p, float *dw,
                                                                    const T *dy)
{
    int64_t piece = blockIdx.x, from = piece * p.each, to = min(from + p.each, p.n);
    int64_t col = ((int64_t)blockIdx.y * COLUMN_THREADS + threadIdx.x) * W;
    if (col >= p.c)
        return;
    float sum[W] = {};
    bool before = from > 0 && p.key[from - 1] == p.key[from];
    for (int64_t i = from; i < to; i++) {
        uint32_t key = p.key[i];
        if (key >= p.rows)
            return; /* and so are all that follow */
        pack<T, W> x = *(const pack<T, W> *)(dy + (int64_t)p.row[i] * p.c + col);
        for (int e = 0; e < W; e++)
            sum[e] += to_f32(x.v[e]);
        bool goes_on = i + 1 < p.n && p.key[i + 1] == key;
        if (goes_on && i + 1 < to)
            continue;
        if (before)
            put<W>(p.head + piece * p.c + col, sum, false);
        else if (goes_on)
            put<W>(p.tail + piece * p.c + col, sum, false);
        else
            put<W>(dw + (int64_t)key * p.c + col, sum, true);
        before = false;
        for (int e = 0; e < W; e++)
            sum[e] = 0;
    }
}

/* First of the pieces after `piece` that does not begin with `key`. */
__device__ static int64_t end_of_run(const struct pieces *p, int64_t piece, uint32_t key)
{
    int64_t low = piece + 1, high = (p->n + p->each - 1) / p->each;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (p->key[middle * p->each] == key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The run of one token that begins in piece blockIdx.x and goes on after it, if there is one. */
template <int W>
static __global__ void __launch_bounds__(COLUMN_THREADS) join_pieces(struct pieces p, float *dw)
{
    int64_t piece = blockIdx.x, from = piece * p.each, next = from + p.each;
    int64_t col = ((int64_t)blockIdx.y * COLUMN_THREADS + threadIdx.x) * W;
    if (col >= p.c || next >= p.n)
        return;
    uint32_t key = p.key[next - 1];
    bool begins = p.key[from] != key || from == 0 || p.key[from - 1] != key;
    if (key >= p.rows || p.key[next] != key || !begins)
        return;
    int64_t end = end_of_run(&p, piece, key);
    pack<float, W> sum = *(const pack<float, W> *)(p.tail + piece * p.c + col);
#pragma unroll 8
    for (int64_t i = piece + 1; i < end; i++) {
        pack<float, W> x = *(const pack<float, W> *)(p.head + i * p.c + col);
        for (int e = 0; e < W; e++)
            sum.v[e] += x.v[e];
    }
    put<W>(dw + (int64_t)key * p.c + col, sum.v, true);
}

template <typename T, int W>
static enum err sum_rows(struct cuda *cu, const struct pieces *p, float *dw, const T *dy)
{
    int64_t across = (p->c + (int64_t)COLUMN_THREADS * W - 1) / ((int64_t)COLUMN_THREADS * W);
    if (across > 65535)
        FAIL(ERR_CONFIG, "embed_grad: rows of %lld elements; use at most %lld", (long long)p->c,
             65535LL * COLUMN_THREADS);
    dim3 grid((unsigned)((p->n + p->each - 1) / p->each), (unsigned)across);
    sum_pieces<T, W><<<grid, COLUMN_THREADS, 0, cu->stream>>>(*p, dw, dy);
    CUDA_LAUNCHED("embed_grad: pieces");
    join_pieces<W><<<grid, COLUMN_THREADS, 0, cu->stream>>>(*p, dw);
    CUDA_LAUNCHED("embed_grad: runs over several pieces");
    return ERR_OK;
}

static int bits_of(int64_t x)
{
    int bits = 1;
    while (x >> bits)
        bits++;
    return bits;
}

static int64_t up(int64_t x) { return (x + 255) / 256 * 256; }

/* Sorts into p->key and p->row. What is left of the workspace takes the partial sums; pieces grow
 * until these fit. */
static enum err sort_tokens(struct cuda *cu, const int32_t *token, int64_t v0, struct pieces *p)
{
    size_t need;
    int64_t list = up(p->n * (int64_t)sizeof(uint32_t)), sums;
    int bits = bits_of(p->rows);
    uint32_t *lists[4];
    char *work;
    CUDA_TRY(cuda_sort_bytes((int)p->n, bits, &need));
    int64_t fixed = 4 * list + up((int64_t)need);
    for (p->each = PIECE_MIN;; p->each *= 2) {
        sums = up((p->n + p->each - 1) / p->each * p->c * (int64_t)sizeof(float));
        if (fixed + 2 * sums <= cu->work_bytes || p->each >= p->n)
            break;
    }
    TRY(cuda_work(cu, fixed + 2 * sums, "embed_grad", (void **)&work));
    for (int i = 0; i < 4; i++)
        lists[i] = (uint32_t *)(work + i * list);
    token_pairs<<<(unsigned)((p->n + 255) / 256), 256, 0, cu->stream>>>(lists[0], lists[1], token,
                                                                        p->n, v0, p->rows);
    CUDA_LAUNCHED("embed_grad: pairs");
    struct cuda_sort sort = {lists[0], lists[1], lists[2], lists[3], (int)p->n, bits};
    CUDA_TRY(cuda_sort_pairs(&sort, work + 4 * list, need, cu->stream));
    p->key = lists[2];
    p->row = lists[3];
    p->head = (float *)(work + fixed);
    p->tail = (float *)(work + fixed + sums);
    return ERR_OK;
}

extern "C" enum err cuda_embed_grad(struct dev *d, const struct embed_grad *a)
{
    struct cuda *cu = cuda_of(d);
    struct pieces p = {};
    bool wide;
    if (a->n == 0 || a->c == 0 || a->rows == 0)
        return ERR_OK;
    if (a->n > INT32_MAX || a->rows >= UINT32_MAX)
        FAIL(ERR_CONFIG, "embed_grad: %lld rows of %lld tokens; use at most %lld of each",
             (long long)a->n, (long long)a->rows, (long long)INT32_MAX);
    p.n = a->n;
    p.c = a->c;
    p.rows = a->rows;
    TRY(sort_tokens(cu, a->token, a->v0, &p));
    wide = a->c % 4 == 0 && aligned(a->dw, 16) && aligned(a->dy, cu->bf16 ? 8 : 16);
    if (cu->bf16 && wide)
        return sum_rows<__nv_bfloat16, 4>(cu, &p, (float *)a->dw, (const __nv_bfloat16 *)a->dy);
    if (cu->bf16)
        return sum_rows<__nv_bfloat16, 1>(cu, &p, (float *)a->dw, (const __nv_bfloat16 *)a->dy);
    if (wide)
        return sum_rows<float, 4>(cu, &p, (float *)a->dw, (const float *)a->dy);
    return sum_rows<float, 1>(cu, &p, (float *)a->dw, (const float *)a->dy);
}

/* x[r] += w[(row0 + r) % t]: packs of W elements, `packs` a row. */
template <typename T, int W>
static __global__ void pos_add_rows(pack<T, W> *x, const pack<T, W> *w, int64_t n, int64_t packs,
                                    int64_t t, int64_t row0)
{
    int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (r >= n)
        return;
    int64_t pos = (row0 + r) % t;
    for (int64_t i = threadIdx.x; i < packs; i += 32) {
        pack<T, W> a = x[r * packs + i], b = w[pos * packs + i];
        for (int e = 0; e < W; e++)
            from_f32(&a.v[e], to_f32(a.v[e]) + to_f32(b.v[e]));
        x[r * packs + i] = a;
    }
}

template <typename T, int W>
static void pos_add_launch(struct cuda *cu, unsigned blocks, void *x, const void *w, int64_t n,
                           int64_t c, int64_t t, int64_t row0)
{
    pos_add_rows<T, W><<<blocks, dim3(32, WARPS), 0, cu->stream>>>(
        (pack<T, W> *)x, (const pack<T, W> *)w, n, c / W, t, row0);
}

extern "C" enum err cuda_pos_add(struct dev *d, const struct pos_add *a)
{
    struct cuda *cu = cuda_of(d);
    bool wide = a->c % (cu->bf16 ? 8 : 4) == 0 && aligned(a->x, 16) && aligned(a->w, 16);
    unsigned blocks;
    if (a->n == 0 || a->c == 0)
        return ERR_OK;
    TRY(row_blocks("pos_add", a->n, &blocks));
    if (cu->bf16 && wide)
        pos_add_launch<__nv_bfloat16, 8>(cu, blocks, a->x, a->w, a->n, a->c, a->t, a->row0);
    else if (cu->bf16)
        pos_add_launch<__nv_bfloat16, 1>(cu, blocks, a->x, a->w, a->n, a->c, a->t, a->row0);
    else if (wide)
        pos_add_launch<float, 4>(cu, blocks, a->x, a->w, a->n, a->c, a->t, a->row0);
    else
        pos_add_launch<float, 1>(cu, blocks, a->x, a->w, a->n, a->c, a->t, a->row0);
    CUDA_LAUNCHED("pos_add");
    return ERR_OK;
}

/* One thread a position and W columns: every t-th row from the first that stands there. */
template <typename T, int W>
static __global__ void __launch_bounds__(COLUMN_THREADS) pos_sum(float *dw, const T *dy, int64_t n,
                                                                 int64_t c, int64_t t, int64_t row0)
{
    int64_t packs = c / W, at = (int64_t)blockIdx.x * COLUMN_THREADS + threadIdx.x;
    if (at >= t * packs)
        return;
    int64_t pos = at / packs, col = at % packs * W, first = pos - row0 % t;
    float sum[W] = {};
    first += first < 0 ? t : 0;
    if (first >= n)
        return;
#pragma unroll 4
    for (int64_t r = first; r < n; r += t) {
        pack<T, W> x = *(const pack<T, W> *)(dy + r * c + col);
        for (int e = 0; e < W; e++)
            sum[e] += to_f32(x.v[e]);
    }
    put<W>(dw + pos * c + col, sum, true);
}

extern "C" enum err cuda_pos_grad(struct dev *d, const struct pos_grad *a)
{
    struct cuda *cu = cuda_of(d);
    bool wide = a->c % 4 == 0 && aligned(a->dw, 16) && aligned(a->dy, cu->bf16 ? 8 : 16);
    int64_t blocks = (a->t * (a->c / (wide ? 4 : 1)) + COLUMN_THREADS - 1) / COLUMN_THREADS;
    if (a->n == 0 || a->c == 0)
        return ERR_OK;
    if (blocks > INT32_MAX)
        FAIL(ERR_CONFIG, "pos_grad: a table of %lld x %lld; use at most %lld elements",
             (long long)a->t, (long long)a->c, (long long)INT32_MAX * COLUMN_THREADS);
    if (cu->bf16 && wide)
        pos_sum<__nv_bfloat16, 4><<<(unsigned)blocks, COLUMN_THREADS, 0, cu->stream>>>(
            (float *)a->dw, (const __nv_bfloat16 *)a->dy, a->n, a->c, a->t, a->row0);
    else if (cu->bf16)
        pos_sum<__nv_bfloat16, 1><<<(unsigned)blocks, COLUMN_THREADS, 0, cu->stream>>>(
            (float *)a->dw, (const __nv_bfloat16 *)a->dy, a->n, a->c, a->t, a->row0);
    else if (wide)
        pos_sum<float, 4><<<(unsigned)blocks, COLUMN_THREADS, 0, cu->stream>>>(
            (float *)a->dw, (const float *)a->dy, a->n, a->c, a->t, a->row0);
    else
        pos_sum<float, 1><<<(unsigned)blocks, COLUMN_THREADS, 0, cu->stream>>>(
            (float *)a->dw, (const float *)a->dy, a->n, a->c, a->t, a->row0);
    CUDA_LAUNCHED("pos_grad");
    return ERR_OK;
}
