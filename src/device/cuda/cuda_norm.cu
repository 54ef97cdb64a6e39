/* SPDX-License-Identifier: Apache-2.0
 *
 * LayerNorm (Ba, Kiros and Hinton 2016) and RMSNorm (Zhang and Sennrich 2019), alone or behind the
 * residual that makes their input, and their gradient. Bound by memory: each operand is read once
 * and each result written once.
 *
 * A row that is a whole number of 16-byte chunks, up to ROW_MOST elements, stays in registers as it
 * was read, from the mean to the variance around it to the result. A group of G threads takes a
 * row, K chunks a thread: a warp for short rows, which then needs no barrier, else a block. Other
 * rows, and pointers that do not stand on 16 bytes, go through kernels with suffix _plain, which
 * read a row again for each pass; the caches hold it.
 *
 * The gradients of w and b are sums over all rows. In the gradient kernel a thread has the same
 * columns in all rows that its group takes, so their sums are its own registers; at the end a block
 * leaves its sums in the workspace and cuda_columns_add adds those in the order of the blocks. In
 * the plain path a kernel of its own walks the columns, before dx is written, which may be x.
 */
#include "device/cuda/cuda_math.cuh"

enum {
    NORM_THREADS = 128,       /* of a block that holds rows in registers */
    ROW_MOST = 8192,          /* elements of a row there */
    PLAIN_THREADS = 256,
    PLAIN_MOST = 1 << 30,     /* blocks of a grid; beyond, they step over the rest */
    SUMS_WIDE = 32,           /* threads of a block of norm_sums_plain along the columns, */
    SUMS_HIGH = 8,            /* and along the rows */
    SUMS_PER_SM = 8,
};

/* The sum over the group of a thread. shared: as cuda_block_sum has it. */
template <int G> static __device__ __forceinline__ float group_sum(float v, float *shared)
{
    return cuda_block_sum<G / 32>(v, shared);
}

/* What a norm kernel is given. r.y is NULL without a residual; else it is a.x. */
struct norm_work {
    struct norm a;
    struct residual r;
    struct cuda_drop drop;
};

/* Where the values of a row come from. */
enum { FROM_X, FROM_SUM, FROM_DROPPED };

/* K chunks of the row, as they are in memory, chunk k at `lane` + k G; zero beyond the row. */
template <int G, int K> static __device__ __forceinline__ void row_load(const void *from,
                                                                        int64_t first, int chunks,
                                                                        int lane, uint4 (&raw)[K])
{
    const uint4 *at = static_cast<const uint4 *>(from) + first;
#pragma unroll
    for (int k = 0; k < K; k++) {
        int i = lane + k * G;
        raw[k] = make_uint4(0u, 0u, 0u, 0u);
        if (i < chunks)
            raw[k] = at[i];
    }
}

/* raw = x + drop(f + bias), rounded to T, written to y: the arithmetic of cuda_residual. */
template <typename T, int G, int K, bool DROP>
static __device__ __forceinline__ void row_residual(const struct norm_work &w, int64_t first,
                                                    int chunks, int lane, uint4 (&raw)[K])
{
    constexpr int N = cuda_lanes<T>;
    uint4 f[K];
    row_load<G>(w.r.f, first, chunks, lane, f);
    if (w.r.x)
        row_load<G>(w.r.x, first, chunks, lane, raw);
#pragma unroll
    for (int k = 0; k < K; k++) {
        int i = lane + k * G;
        float v[N], more[N];
        if (i >= chunks) {
            raw[k] = make_uint4(0u, 0u, 0u, 0u);
            continue;
        }
        cuda_unpack(f[k], v);
        if (w.r.bias) {
            cuda_get_fixed(w.r.bias, i, more);
            cuda_add_to(v, more);
        }
        if (DROP)
            cuda_drop_apply(w.drop, w.drop.first + (first + i) * N, v);
        if (w.r.x) {
            cuda_unpack(raw[k], more);
            cuda_add_to(v, more);
        }
        raw[k] = cuda_pack(v);
        static_cast<uint4 *>(w.r.y)[first + i] = raw[k];
    }
}

/* Sum over a thread's chunks of x, or of (x - mean)^2. */
template <typename T, int G, int K, bool SQUARE>
static __device__ __forceinline__ float row_moment(const uint4 (&raw)[K], float mean, int chunks,
                                                   int lane)
{
    constexpr int N = cuda_lanes<T>;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < K; k++) {
        float v[N];
        if (lane + k * G >= chunks)
            continue;
        cuda_unpack(raw[k], v);
#pragma unroll
        for (int e = 0; e < N; e++) {
            float far = v[e] - mean;
            sum = SQUARE ? __fmaf_rn(far, far, sum) : sum + v[e];
        }
    }
    return sum;
}

/* y of a thread's chunks. */
template <typename T, int G, int K>
static __device__ __forceinline__ void row_result(const struct norm &a, int64_t first, int chunks,
                                                  float2 stat, const uint4 (&raw)[K])
{
    constexpr int N = cuda_lanes<T>;
    int lane = threadIdx.x % G;
#pragma unroll
    for (int k = 0; k < K; k++) {
        int i = lane + k * G;
        float v[N], w[N], b[N] = {};
        if (i >= chunks)
            continue;
        cuda_unpack(raw[k], v);
        cuda_get_fixed(a.w, i, w);
        if (a.b)
            cuda_get_fixed(a.b, i, b);
#pragma unroll
        for (int e = 0; e < N; e++)
            v[e] = __fmaf_rn((v[e] - stat.x) * stat.y, w[e], b[e]);
        static_cast<uint4 *>(a.y)[first + i] = cuda_pack(v);
    }
}

/* A group of G threads takes one row, thread `lane` of it the chunks lane, lane + G, ... */
template <typename T, int G, int K, int FROM> static __global__ void __launch_bounds__(NORM_THREADS)
    norm_kernel(struct norm_work w)
{
    __shared__ float part[2][NORM_THREADS / 32];
    const struct norm &a = w.a;
    int64_t row = (int64_t)blockIdx.x * (NORM_THREADS / G) + threadIdx.x / G;
    int lane = threadIdx.x % G, chunks = (int)(a.c / cuda_lanes<T>);
    int64_t first = row * chunks;
    uint4 raw[K];
    if (row >= a.n) /* all of a group, and a group that shares a barrier is a block */
        return;
    if constexpr (FROM == FROM_X)
        row_load<G>(a.x, first, chunks, lane, raw);
    else
        row_residual<T, G, K, FROM == FROM_DROPPED>(w, first, chunks, lane, raw);
    float mean = 0.0f;
    if (!a.rms)
        mean = group_sum<G>(row_moment<T, G, K, false>(raw, 0.0f, chunks, lane), part[0]) /
               (float)a.c;
    float square = group_sum<G>(row_moment<T, G, K, true>(raw, mean, chunks, lane), part[1]);
    float rstd = cuda_rstd(square, (float)a.c, (float)a.eps);
    row_result<T, G, K>(a, first, chunks, make_float2(mean, rstd), raw);
    if (lane == 0) {
        static_cast<float *>(a.rstd)[row] = rstd;
        if (a.mean)
            static_cast<float *>(a.mean)[row] = mean;
    }
}

/* A block takes a row at a time. */
template <typename T> static __global__ void __launch_bounds__(PLAIN_THREADS)
    norm_plain(struct norm a)
{
    __shared__ float part[2][PLAIN_THREADS / 32];
    const T *w = static_cast<const T *>(a.w), *b = static_cast<const T *>(a.b);
    for (int64_t r = blockIdx.x; r < a.n; r += gridDim.x) {
        const T *x = static_cast<const T *>(a.x) + r * a.c;
        T *y = static_cast<T *>(a.y) + r * a.c;
        float sum = 0.0f, mean = 0.0f, square = 0.0f;
        if (!a.rms) {
            for (int64_t i = threadIdx.x; i < a.c; i += PLAIN_THREADS)
                sum += to_f32(x[i]);
            mean = cuda_block_sum<PLAIN_THREADS / 32>(sum, part[0]) / (float)a.c;
        }
        for (int64_t i = threadIdx.x; i < a.c; i += PLAIN_THREADS) {
            float far = to_f32(x[i]) - mean;
            square = __fmaf_rn(far, far, square);
        }
        square = cuda_block_sum<PLAIN_THREADS / 32>(square, part[1]);
        float rstd = cuda_rstd(square, (float)a.c, (float)a.eps);
        for (int64_t i = threadIdx.x; i < a.c; i += PLAIN_THREADS) {
            float shift = b ? to_f32(b[i]) : 0.0f;
            from_f32(y + i, __fmaf_rn((to_f32(x[i]) - mean) * rstd, to_f32(w[i]), shift));
        }
        if (threadIdx.x == 0) {
            static_cast<float *>(a.rstd)[r] = rstd;
            if (a.mean)
                static_cast<float *>(a.mean)[r] = mean;
        }
        __syncthreads(); /* part is free again */
    }
}

template <typename T, int G, int K> static void norm_launch(struct cuda *c,
                                                            const struct norm_work *w)
{
    unsigned grid = (unsigned)num_ceil_div(w->a.n, NORM_THREADS / G);
    if (!w->r.y)
        norm_kernel<T, G, K, FROM_X><<<grid, NORM_THREADS, 0, c->stream>>>(*w);
    else if (w->r.drop.p != 0)
        norm_kernel<T, G, K, FROM_DROPPED><<<grid, NORM_THREADS, 0, c->stream>>>(*w);
    else
        norm_kernel<T, G, K, FROM_SUM><<<grid, NORM_THREADS, 0, c->stream>>>(*w);
}

/* Up to 128 chunks (1024 of bf16) a warp, then a block: with eight a thread few rows are in flight.
 * Every row that fits has its line: row_fits bounds the chunks, by 1024 of bf16 and 2048 of f32. */
template <typename T> static enum err norm_wide(struct cuda *c, const struct norm_work *w)
{
    int64_t chunks = w->a.c / cuda_lanes<T>;
    if (chunks <= 32 * 4)
        norm_launch<T, 32, 4>(c, w);
    else if (chunks <= 128 * 2)
        norm_launch<T, 128, 2>(c, w);
    else if (chunks <= 128 * 4)
        norm_launch<T, 128, 4>(c, w);
    else if (chunks <= 128 * 8)
        norm_launch<T, 128, 8>(c, w);
    else if constexpr (cuda_lanes<T> * 128 * 8 < ROW_MOST)
        norm_launch<T, 128, 16>(c, w);
    CUDA_LAUNCHED("norm");
    return ERR_OK;
}

/* Can rows of c elements stay in registers? */
template <typename T> static bool row_fits(int64_t n, int64_t c)
{
    return c % cuda_lanes<T> == 0 && c <= ROW_MOST && n <= INT32_MAX;
}

template <typename T> static bool norm_fits(const struct norm *a)
{
    return row_fits<T>(a->n, a->c) && cuda_aligned(a->x) && cuda_aligned(a->y) &&
           cuda_aligned(a->w) && cuda_aligned(a->b);
}

template <typename T> static enum err norm_as(struct cuda *c, const struct norm *a)
{
    if (norm_fits<T>(a)) {
        struct norm_work w = {};
        w.a = *a;
        return norm_wide<T>(c, &w);
    }
    norm_plain<T><<<cuda_blocks(a->n, 1, PLAIN_MOST), PLAIN_THREADS, 0, c->stream>>>(*a);
    CUDA_LAUNCHED("norm");
    return ERR_OK;
}

extern "C" enum err cuda_norm(struct dev *d, const struct norm *a)
{
    struct cuda *c = cuda_of(d);
    if (a->n == 0 || a->c == 0)
        return ERR_OK;
    return c->bf16 ? norm_as<bf16>(c, a) : norm_as<float>(c, a);
}

template <typename T> static bool residual_norm_fits(const struct residual *a, const struct norm *b)
{
    return norm_fits<T>(b) && cuda_aligned(a->x) && cuda_aligned(a->f) && cuda_aligned(a->bias);
}

extern "C" enum err cuda_residual_norm(struct dev *d, const struct residual_norm *both)
{
    struct cuda *c = cuda_of(d);
    const struct residual *a = &both->residual;
    const struct norm *b = &both->norm;
    struct norm_work w = {*b, *a, cuda_drop_of(&a->drop, a->c)};
    if (a->n == 0 || a->c == 0)
        return ERR_OK;
    if (c->bf16 && residual_norm_fits<bf16>(a, b))
        return norm_wide<bf16>(c, &w);
    if (!c->bf16 && residual_norm_fits<float>(a, b))
        return norm_wide<float>(c, &w);
    TRY(cuda_residual(d, a));
    return cuda_norm(d, b);
}

/* The chunks of one row that a thread of the gradient holds, and what its sums have so far. */
template <int K> struct row_grad {
    uint4 x[K], dy[K], d[K];
};
template <int K, int N> struct column_sums {
    float w[K][N], b[K][N];
};

/* Sums of g and of g xhat over a thread's chunks; adds to those of the columns. */
template <typename T, int G, int K>
static __device__ __forceinline__ float2 grad_moments(const struct norm_grad &a,
                                                      const struct row_grad<K> &row, float2 stat,
                                                      struct column_sums<K, cuda_lanes<T>> &cols)
{
    constexpr int N = cuda_lanes<T>;
    int lane = threadIdx.x % G, chunks = (int)(a.c / N);
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int k = 0; k < K; k++) {
        float x[N], dy[N], w[N];
        if (lane + k * G >= chunks)
            continue;
        cuda_unpack(row.x[k], x);
        cuda_unpack(row.dy[k], dy);
        cuda_get_fixed(a.w, lane + k * G, w);
#pragma unroll
        for (int e = 0; e < N; e++) {
            float xhat = (x[e] - stat.x) * stat.y, g = dy[e] * w[e];
            sum.x += g;
            sum.y = __fmaf_rn(g, xhat, sum.y);
            cols.w[k][e] = __fmaf_rn(dy[e], xhat, cols.w[k][e]);
            cols.b[k][e] += dy[e];
        }
    }
    return sum;
}

/* dx of a thread's chunks. avg: of g and of g xhat. */
template <typename T, int G, int K>
static __device__ __forceinline__ void grad_result(const struct norm_grad &a,
                                                   const struct row_grad<K> &row, float2 stat,
                                                   float2 avg, int64_t first)
{
    constexpr int N = cuda_lanes<T>;
    int lane = threadIdx.x % G, chunks = (int)(a.c / N);
#pragma unroll
    for (int k = 0; k < K; k++) {
        int i = lane + k * G;
        float x[N], dy[N], w[N], d[N];
        if (i >= chunks)
            continue;
        cuda_unpack(row.x[k], x);
        cuda_unpack(row.dy[k], dy);
        cuda_unpack(row.d[k], d);
        cuda_get_fixed(a.w, i, w);
#pragma unroll
        for (int e = 0; e < N; e++) {
            float xhat = (x[e] - stat.x) * stat.y, g = dy[e] * w[e];
            x[e] = __fmaf_rn(stat.y, g - avg.x - xhat * avg.y, d[e]);
        }
        static_cast<uint4 *>(a.dx)[first + i] = cuda_pack(x);
    }
}

/* to (c) = the sums of a block: with G = 32 of its warps, added in order through `shared`
 * (NORM_THREADS / 32 rows of K 32 N floats); else each thread has its columns to itself. */
template <typename T, int G, int K>
static __device__ __forceinline__ void grad_leave(float *to, int64_t c,
                                                  const float (&sum)[K][cuda_lanes<T>],
                                                  float *shared)
{
    constexpr int N = cuda_lanes<T>, WIDE = K * G * N;
    int lane = threadIdx.x % G;
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int e = 0; e < N; e++) {
            int col = (lane + k * G) * N + e;
            if (G == 32)
                shared[threadIdx.x / 32 * WIDE + col] = sum[k][e];
            else if (col < c)
                to[col] = sum[k][e];
        }
    if (G != 32)
        return;
    __syncthreads();
    for (int col = threadIdx.x; col < c; col += NORM_THREADS) {
        float whole = shared[col];
        for (int warp = 1; warp < NORM_THREADS / 32; warp++)
            whole += shared[warp * WIDE + col];
        to[col] = whole;
    }
    __syncthreads();
}

/* Row r of what the gradient reads, and its mean and 1 / deviation. */
template <typename T, int G, int K>
static __device__ __forceinline__ void grad_load(const struct norm_grad &a, int64_t r,
                                                 struct row_grad<K> &row, float2 &stat)
{
    int lane = threadIdx.x % G, chunks = (int)(a.c / cuda_lanes<T>);
    int64_t first = r * chunks;
    row_load<G>(a.x, first, chunks, lane, row.x);
    row_load<G>(a.dy, first, chunks, lane, row.dy);
    row_load<G>(a.d, first, a.d ? chunks : 0, lane, row.d);
    stat = make_float2(a.rms ? 0.0f : static_cast<const float *>(a.mean)[r],
                       static_cast<const float *>(a.rstd)[r]);
}

/* Groups step over the rows by the whole grid; AHEAD: a row is read before the one ahead of it is
 * summed, where registers hold both. part (blocks, 2, c): sums of dy xhat, then of dy. A block that
 * shares barriers is one group, so all its threads make the same number of steps; its shared sums
 * alternate between two places, which saves a barrier between one row and the next. */
template <typename T, int G, int K, bool AHEAD>
static __global__ void __launch_bounds__(G < NORM_THREADS ? NORM_THREADS : G)
    norm_grad_kernel(struct norm_grad a, float *part)
{
    constexpr int N = cuda_lanes<T>, ROWS = G < NORM_THREADS ? NORM_THREADS / G : 1;
    __shared__ float sums[2][2][G / 32];
    __shared__ float shared[G == 32 ? NORM_THREADS * K * N : 1];
    struct column_sums<K, N> cols = {};
    int chunks = (int)(a.c / N), place = 0;
    int64_t step = (int64_t)gridDim.x * ROWS, begin = (int64_t)blockIdx.x * ROWS + threadIdx.x / G;
    struct row_grad<K> row, next;
    float2 stat, stat_next;
    if (AHEAD && begin < a.n)
        grad_load<T, G, K>(a, begin, next, stat_next);
    for (int64_t r = begin; r < a.n; r += step) {
        if (!AHEAD)
            grad_load<T, G, K>(a, r, next, stat_next);
        row = next;
        stat = stat_next;
        if (AHEAD && r + step < a.n)
            grad_load<T, G, K>(a, r + step, next, stat_next);
        float2 sum = grad_moments<T, G, K>(a, row, stat, cols);
        float2 avg = make_float2(cuda_warp_sum(sum.x), cuda_warp_sum(sum.y));
        if (G > 32) {
            if (threadIdx.x % 32 == 0) {
                sums[place][0][threadIdx.x / 32] = avg.x;
                sums[place][1][threadIdx.x / 32] = avg.y;
            }
            __syncthreads();
            avg = make_float2(0.0f, 0.0f);
#pragma unroll
            for (int warp = 0; warp < G / 32; warp++) {
                avg.x += sums[place][0][warp];
                avg.y += sums[place][1][warp];
            }
            place ^= 1;
        }
        avg.x = a.rms ? 0.0f : avg.x / (float)a.c;
        avg.y /= (float)a.c;
        grad_result<T, G, K>(a, row, stat, avg, r * chunks);
    }
    float *to = part + (int64_t)blockIdx.x * 2 * a.c;
    grad_leave<T, G, K>(to, a.c, cols.w, shared);
    if (a.db)
        grad_leave<T, G, K>(to + a.c, a.c, cols.b, shared);
}

/* dw and db: the sums of `rows` blocks, by one launch where db lies behind dw. */
static enum err grad_columns(struct cuda *c, const struct norm_grad *a, const float *part,
                             int64_t rows)
{
    float *dw = static_cast<float *>(a->dw), *db = static_cast<float *>(a->db);
    bool behind = db == dw + a->c;
    struct cuda_columns w = {dw, part, rows, behind ? 2 * a->c : a->c, 2 * a->c, true};
    struct cuda_columns b = {db, part + a->c, rows, a->c, 2 * a->c, true};
    TRY(cuda_columns_add(c, &w));
    return db && !behind ? cuda_columns_add(c, &b) : ERR_OK;
}

static enum err grad_work(struct cuda *c, int64_t blocks, int64_t cols, float **part)
{
    int64_t bytes;
    void *work;
    if (!num_mul(blocks * 2 * (int64_t)sizeof(float), cols, &bytes))
        FAIL(ERR_INTERNAL, "cuda: the gradient of a norm of %lld columns", (long long)cols);
    TRY(cuda_work(c, bytes, "the gradient of a norm", &work));
    *part = static_cast<float *>(work);
    return ERR_OK;
}

/* As many blocks as the device holds at a time: each leaves sums behind that must be added. */
template <typename T, int G, int K, bool AHEAD = false>
static enum err grad_launch(struct cuda *c, const struct norm_grad *a)
{
    constexpr int THREADS = G < NORM_THREADS ? NORM_THREADS : G;
    int held = 0;
    float *part;
    CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&held, norm_grad_kernel<T, G, K, AHEAD>,
                                                           THREADS, 0));
    unsigned grid = cuda_blocks(a->n, THREADS / G, (int64_t)c->sms * (held > 0 ? held : 1));
    TRY(grad_work(c, grid, a->c, &part));
    norm_grad_kernel<T, G, K, AHEAD><<<grid, THREADS, 0, c->stream>>>(*a, part);
    CUDA_LAUNCHED("norm gradient");
    return grad_columns(c, a, part, grid);
}

template <typename T> static enum err grad_wide(struct cuda *c, const struct norm_grad *a)
{
    int64_t chunks = a->c / cuda_lanes<T>;
    if (chunks <= 32 * 2)
        return grad_launch<T, 32, 2>(c, a);
    if (chunks <= 32 * 3)
        return grad_launch<T, 32, 3>(c, a);
    if (chunks <= 32 * 4)
        return grad_launch<T, 32, 4>(c, a);
    if (chunks <= 128 * 2)
        return grad_launch<T, 128, 2, true>(c, a);
    if (chunks <= 128 * 3)
        return grad_launch<T, 128, 3>(c, a);
    if (chunks <= 128 * 4)
        return grad_launch<T, 128, 4>(c, a);
    if constexpr (cuda_lanes<T> * 256 * 4 < ROW_MOST)
        if (chunks > 256 * 4)
            return grad_launch<T, 512, 4>(c, a);
    return grad_launch<T, 256, 4>(c, a);
}

/* dx alone; a block takes a row at a time. */
template <typename T> static __global__ void __launch_bounds__(PLAIN_THREADS)
    norm_grad_plain(struct norm_grad a)
{
    __shared__ float part[2][PLAIN_THREADS / 32];
    const T *w = static_cast<const T *>(a.w);
    for (int64_t r = blockIdx.x; r < a.n; r += gridDim.x) {
        const T *x = static_cast<const T *>(a.x) + r * a.c;
        const T *dy = static_cast<const T *>(a.dy) + r * a.c;
        const T *d = a.d ? static_cast<const T *>(a.d) + r * a.c : NULL;
        float rstd = static_cast<const float *>(a.rstd)[r], avg_g = 0.0f, avg_gx = 0.0f;
        float mean = a.rms ? 0.0f : static_cast<const float *>(a.mean)[r];
        for (int64_t i = threadIdx.x; i < a.c; i += PLAIN_THREADS) {
            float g = to_f32(dy[i]) * to_f32(w[i]);
            avg_g += g;
            avg_gx = __fmaf_rn(g, (to_f32(x[i]) - mean) * rstd, avg_gx);
        }
        avg_g = cuda_block_sum<PLAIN_THREADS / 32>(avg_g, part[0]) / (float)a.c;
        avg_gx = cuda_block_sum<PLAIN_THREADS / 32>(avg_gx, part[1]) / (float)a.c;
        if (a.rms)
            avg_g = 0.0f;
        for (int64_t i = threadIdx.x; i < a.c; i += PLAIN_THREADS) {
            float xhat = (to_f32(x[i]) - mean) * rstd;
            float g = to_f32(dy[i]) * to_f32(w[i]), more = d ? to_f32(d[i]) : 0.0f;
            from_f32(static_cast<T *>(a.dx) + r * a.c + i,
                       __fmaf_rn(rstd, g - avg_g - xhat * avg_gx, more));
        }
        __syncthreads(); /* part is free again */
    }
}

/* part (blocks along y, 2, c): sums of dy xhat and dy over rows that a block steps over. A warp
 * reads neighbouring columns of a row. */
template <typename T> static __global__ void __launch_bounds__(SUMS_WIDE * SUMS_HIGH)
    norm_sums_plain(struct norm_grad a, float *part)
{
    __shared__ float shared[2][SUMS_HIGH][SUMS_WIDE];
    int64_t col = (int64_t)blockIdx.x * SUMS_WIDE + threadIdx.x;
    float w = 0.0f, b = 0.0f;
    for (int64_t r = (int64_t)blockIdx.y * SUMS_HIGH + threadIdx.y; r < a.n && col < a.c;
         r += (int64_t)gridDim.y * SUMS_HIGH) {
        float mean = a.rms ? 0.0f : static_cast<const float *>(a.mean)[r];
        float rstd = static_cast<const float *>(a.rstd)[r];
        float x = to_f32(static_cast<const T *>(a.x)[r * a.c + col]);
        float dy = to_f32(static_cast<const T *>(a.dy)[r * a.c + col]);
        w = __fmaf_rn(dy, (x - mean) * rstd, w);
        b += dy;
    }
    shared[0][threadIdx.y][threadIdx.x] = w;
    shared[1][threadIdx.y][threadIdx.x] = b;
    __syncthreads();
    if (threadIdx.y < 2 && col < a.c) {
        float whole = 0.0f;
        for (int y = 0; y < SUMS_HIGH; y++)
            whole += shared[threadIdx.y][y][threadIdx.x];
        part[((int64_t)blockIdx.y * 2 + threadIdx.y) * a.c + col] = whole;
    }
}

template <typename T> static enum err grad_plain(struct cuda *c, const struct norm_grad *a)
{
    int64_t tiles = num_ceil_div(a->c, SUMS_WIDE);
    int64_t blocks = num_min(num_max(1, c->sms * SUMS_PER_SM / tiles),
                             num_ceil_div(a->n, SUMS_HIGH));
    float *part;
    TRY(grad_work(c, blocks, a->c, &part));
    norm_sums_plain<T><<<dim3((unsigned)tiles, (unsigned)blocks), dim3(SUMS_WIDE, SUMS_HIGH), 0,
                         c->stream>>>(*a, part);
    CUDA_LAUNCHED("norm gradient, sums");
    TRY(grad_columns(c, a, part, blocks));
    norm_grad_plain<T><<<cuda_blocks(a->n, 1, PLAIN_MOST), PLAIN_THREADS, 0, c->stream>>>(*a);
    CUDA_LAUNCHED("norm gradient");
    return ERR_OK;
}

template <typename T> static enum err grad_as(struct cuda *c, const struct norm_grad *a)
{
    bool wide = row_fits<T>(a->n, a->c) && cuda_aligned(a->dx) && cuda_aligned(a->d) &&
                cuda_aligned(a->dy) && cuda_aligned(a->x) && cuda_aligned(a->w);
    return wide ? grad_wide<T>(c, a) : grad_plain<T>(c, a);
}

extern "C" enum err cuda_norm_grad(struct dev *d, const struct norm_grad *a)
{
    struct cuda *c = cuda_of(d);
    int64_t bytes = a->c * (int64_t)sizeof(float);
    if (a->n == 0)
        TRY(cuda_zeros(c, a->dw, bytes));
    if (a->n == 0 || a->c == 0)
        return a->db ? cuda_zeros(c, a->db, bytes) : ERR_OK;
    return c->bf16 ? grad_as<bf16>(c, a) : grad_as<float>(c, a);
}
