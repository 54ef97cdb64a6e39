/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of bf16 on AMX tiles. The walk is that of simd_gemm.h (Goto & van de Geijn 2008) with
 * other sizes, because the tiles multiply so fast that the caches feeding them decide:
 *
 *     piece of C                 of one thread
 *       B: KO rows of k x cols   packed once, 1.5 MiB: stays in the second cache
 *         A: 32 rows x KI of k   packed for each sweep, 32 KiB: stays in the first
 *           sweep                32 x 32 of C at a time, in four tiles, along the packed B
 *
 * While a sweep runs, the lines of the next block of A and of C are asked for. C is gathered in f32
 * in scratch, filled up to whole tiles, so that no edge is met inside; when the last of k is added,
 * the valid part goes through gemm_finish (C as it was, bias, activation, rounding) while the cache
 * holds it. Where all of k is packed at once, which is so up to K_WHOLE, only 32 rows are gathered.
 *
 * Each element of C is summed along k in one order that depends on k alone: the bits depend neither
 * on the number of threads nor on the rows and columns beside it.
 */
#ifndef PLAIT_DEVICE_CPU_AMX_GEMM_H
#define PLAIT_DEVICE_CPU_AMX_GEMM_H

#include "device/cpu/amx_tile.h"
#include "device/cpu/cpu_impl.h"

enum {
    AMX_SIDE = 2 * TILE,        /* rows and columns of C in a step of a sweep */
    AMX_KI = 512,               /* of k, in a sweep */
    AMX_KO = 512,               /* of k, in packed B where k is not whole */
    AMX_K_WHOLE = 1024,         /* k up to here is packed at once */
    AMX_COLS = 1024,            /* of a piece, at most */
    AMX_B_HALVES = 1024 * 768,  /* bf16 of packed B */
    AMX_C_FLOATS = 768 * 384,   /* of C gathered */
    AMX_A_FLOATS = AMX_SIDE * AMX_KI / 2,
    AMX_PACK_COST = 120,        /* packing an element takes as long as this many products */
};
_Static_assert(AMX_A_FLOATS + AMX_B_HALVES / 2 + AMX_C_FLOATS <= CPU_SCRATCH_FLOATS,
               "the blocks fit a thread's scratch");
_Static_assert(AMX_SIDE * AMX_COLS <= AMX_C_FLOATS, "32 rows of a piece fit the gathered C");

/* The task: pieces of `w`. */
struct amx_job {
    const struct cpu_gemm *w;
    void (*finish)(const struct cpu_gemm *w, struct cpu_target from, const int64_t i[2],
                   const int64_t j[2]);
};

/* 16 pairs of bf16. The only type name of its own: compilers know vectors by typedef alone. */
typedef uint32_t pairs __attribute__((vector_size(64)));
typedef uint16_t halves __attribute__((vector_size(32)));
typedef uint16_t halves2 __attribute__((vector_size(64)));

/* ---- packing ---- */

/* Element (i, p) of an operand, i a row of A or a column of B, p along k, stands at i * ld + p, or
 * at p * ld + i when `along` (neighbours in i are neighbours). */
struct amx_operand {
    const uint16_t *p;
    int64_t ld;
    bool along;
};

/* 16 x 16 in place: log2(16) perfect shuffles. */
static inline __attribute__((always_inline)) void amx_transpose(pairs r[TILE])
{
    for (int step = 1; step < TILE; step *= 2) {
        pairs to[TILE];
        for (int i = 0; i < TILE / 2; i++) {
            pairs a = r[i], b = r[i + TILE / 2];
            to[2 * i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                                22, 7, 23);
            to[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                                    29, 14, 30, 15, 31);
        }
        for (int i = 0; i < TILE; i++)
            r[i] = to[i];
    }
}

/* Rows of 32 along k: r[i] is 16 pairs of row i. */
static inline __attribute__((always_inline)) void amx_rows(pairs r[TILE],
                                                           const struct amx_operand *x)
{
    for (int i = 0; i < TILE; i++)
        memcpy(&r[i], x->p + i * x->ld, sizeof r[i]);
}

/* Columns of 32 along k: r[p] is pair p of 16 neighbours. */
static inline __attribute__((always_inline)) void amx_pairs(pairs r[TILE],
                                                            const struct amx_operand *x)
{
    for (int p = 0; p < TILE; p++) {
        halves a, b;
        memcpy(&a, x->p + 2 * p * x->ld, sizeof a);
        memcpy(&b, x->p + (2 * p + 1) * x->ld, sizeof b);
        halves2 ab = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22,
                                             7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29,
                                             14, 30, 15, 31);
        memcpy(&r[p], &ab, sizeof ab);
    }
}

/* n of 16 and k of 32 are there; the rest of the tile is zero. */
static void amx_edge(uint16_t to[TILE][TILE_K], const struct amx_operand *x, int64_t n, int64_t k)
{
    memset(to, 0, TILE_BYTES);
    for (int64_t i = 0; i < n; i++)
        for (int64_t p = 0; p < k; p++)
            to[i][p] = x->p[x->along ? p * x->ld + i : i * x->ld + p];
}

/* One tile of A (rows of 32 along k) or of B (rows of pairs). */
static inline __attribute__((always_inline)) void amx_pack_tile(char *to,
                                                                const struct amx_operand *from,
                                                                const int64_t size[2], bool of_b)
{
    pairs r[TILE];
    uint16_t edge[TILE][TILE_K];
    struct amx_operand x = *from;
    if (size[0] < TILE || size[1] < TILE_K) {
        amx_edge(edge, from, num_min(size[0], TILE), num_min(size[1], TILE_K));
        x = (struct amx_operand){edge[0], TILE_K, false};
    }
    if (x.along)
        amx_pairs(r, &x);
    else
        amx_rows(r, &x);
    if (x.along != of_b)
        amx_transpose(r);
    memcpy(to, r, sizeof r);
}

/* [i[0], i[1]) and k in [k[0], k[1]): for each 32 of i, for each 32 of k, two tiles. What lies
 * beyond i[1] or k[1] is zero. */
static void amx_pack(char *to, const struct amx_operand *x, const int64_t i[2], const int64_t k[2],
                     bool of_b)
{
    for (int64_t r = i[0]; r < i[1]; r += AMX_SIDE) {
        for (int64_t p = k[0]; p < k[1]; p += TILE_K) {
            for (int64_t s = r; s < r + AMX_SIDE; s += TILE, to += TILE_BYTES) {
                const int64_t size[2] = {num_max(0, i[1] - s), k[1] - p};
                struct amx_operand at = *x;
                if (size[0] > 0)
                    at.p += x->along ? p * x->ld + s : s * x->ld + p;
                if (of_b)
                    amx_pack_tile(to, &at, size, true);
                else
                    amx_pack_tile(to, &at, size, false);
            }
        }
    }
}

/* Memory that will be needed: rows of `bytes`, `ld` bytes apart. `p` moves on as they are asked
 * for: `at` of this row's bytes are done, `portion` lines are asked for at a time. */
struct amx_lines {
    const char *p;
    int64_t rows, bytes, ld, at, portion;
};
enum { LINE = 64 };

/* Rows i and k of an operand. */
static struct amx_lines amx_operand_lines(const struct amx_operand *x, const int64_t i[2],
                                          const int64_t k[2])
{
    int64_t ni = i[1] - i[0], nk = k[1] - k[0];
    const uint16_t *p = x->p + (x->along ? k[0] * x->ld + i[0] : i[0] * x->ld + k[0]);
    return (struct amx_lines){.p = (const char *)p, .rows = x->along ? nk : ni,
                              .bytes = 2 * (x->along ? ni : nk), .ld = 2 * x->ld};
}

/* Asks for the next portion, into the second cache; to be read, or read and written. */
static inline __attribute__((always_inline)) void amx_ask(struct amx_lines *x, bool to_write)
{
    for (int64_t n = x->portion; n > 0 && x->rows > 0; n--) {
        if (to_write)
            __builtin_prefetch(x->p + x->at, 1, 2);
        else
            __builtin_prefetch(x->p + x->at, 0, 2);
        x->at += LINE;
        if (x->at >= x->bytes) {
            x->p += x->ld;
            x->rows--;
            x->at = 0;
        }
    }
}

/* ---- the walk ---- */

/* 32 x 32 of C over `steps` x 32 of k: written, or added to what is there. */
static inline void amx_step(int64_t steps, const char *a, const char *b, struct cpu_target to)
{
    int64_t stride = to.ld * 4;
    float *below = to.c + TILE * to.ld;
    tiles_see(a);
    if (to.add) {
        tile_load(0, to.c, stride);
        tile_load(1, to.c + TILE, stride);
        tile_load(2, below, stride);
        tile_load(3, below + TILE, stride);
    } else {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
    }
    for (int64_t k = 0; k < steps; k++, a += 2 * TILE_BYTES, b += 2 * TILE_BYTES) {
        tile_load(4, a, 64);
        tile_load(6, b, 64);
        tile_load(5, a + TILE_BYTES, 64);
        tile_load(7, b + TILE_BYTES, 64);
        tile_dot(0, 4, 6);
        tile_dot(2, 5, 6);
        tile_dot(1, 4, 7);
        tile_dot(3, 5, 7);
    }
    tile_store(0, to.c, stride);
    tile_store(1, to.c + TILE, stride);
    tile_store(2, below, stride);
    tile_store(3, below + TILE, stride);
}

/* A piece of C at work: its columns, and the block of k that is packed. */
struct amx_piece {
    const struct amx_job *job;
    struct amx_operand a, b;
    int64_t j[2], k[2];
    int64_t ki;      /* of k, in a sweep */
    int64_t ld;      /* of gathered C: the columns filled up */
    char *block;     /* of A */
    char *panel;     /* of B */
    float *gathered; /* C */
};

/* What comes after the sweep of rows i and k: the next block of A. */
static struct amx_lines amx_next(const struct amx_piece *p, const int64_t i[2], const int64_t k[2])
{
    int64_t m = p->job->w->g->m, next_i[2] = {i[0], i[1]};
    int64_t next_k[2] = {k[1], num_min(k[1] + p->ki, p->k[1])};
    if (k[1] == p->k[1]) {
        next_i[0] = num_min(i[1], m);
        next_i[1] = num_min(i[1] + AMX_SIDE, m);
        next_k[0] = p->k[0];
        next_k[1] = num_min(p->k[0] + p->ki, p->k[1]);
    }
    return amx_operand_lines(&p->a, next_i, next_k);
}

/* Where rows i of a finished piece will go. */
static struct amx_lines amx_goal(const struct amx_piece *p, const int64_t i[2])
{
    const struct cpu_gemm *w = p->job->w;
    int64_t size = w->half_c ? 2 : 4;
    return (struct amx_lines){.p = (const char *)w->g->c + (i[0] * w->ldc + p->j[0]) * size,
                              .rows = i[1] - i[0], .bytes = (p->j[1] - p->j[0]) * size,
                              .ld = w->ldc * size};
}

/* The sweep of rows i over k of packed B that begins at `at`. Meanwhile memory is asked for that
 * comes next: a block of A, and C before its last sweep. */
static void amx_sweep(const struct amx_piece *p, const int64_t i[2], int64_t at,
                      struct cpu_target to)
{
    int64_t k[2] = {at, num_min(at + p->ki, p->k[1])}, steps = num_ceil_div(k[1] - k[0], TILE_K);
    struct amx_lines next = amx_next(p, i, k), goal = amx_goal(p, i);
    int64_t parts = p->ld / AMX_SIDE;
    bool last = k[1] == p->job->w->g->k;
    next.portion = num_ceil_div(next.rows * num_ceil_div(next.bytes, LINE), parts);
    goal.portion = last ? num_ceil_div(goal.rows * num_ceil_div(goal.bytes, LINE), parts) : 0;
    const char *b = p->panel + (k[0] - p->k[0]) * p->ld * 2;
    amx_pack(p->block, &p->a, i, k, false);
    for (int64_t j = 0; j < p->ld; j += AMX_SIDE, b += steps * 2 * TILE_BYTES) {
        amx_ask(&next, false);
        amx_ask(&goal, true);
        amx_step(steps, p->block, b, (struct cpu_target){to.c + j, to.ld, to.add});
    }
}

/* B of [k[0], k[1]), sweep by sweep of k, each as amx_pack leaves it. */
static void amx_pack_panel(const struct amx_piece *p)
{
    char *to = p->panel;
    for (int64_t k = p->k[0]; k < p->k[1]; k += p->ki) {
        int64_t part[2] = {k, num_min(k + p->ki, p->k[1])};
        amx_pack(to, &p->b, p->j, part, true);
        to += num_ceil_div(part[1] - part[0], TILE_K) * TILE_K * p->ld * 2;
    }
}

/* What was C is added to the products gathered for rows i. */
static void amx_accumulate(const struct amx_piece *p, const int64_t i[2], struct cpu_target from)
{
    const struct cpu_gemm *w = p->job->w;
    for (int64_t r = i[0]; r < i[1]; r++, from.c += from.ld) {
        const float *c = (const float *)w->g->c + r * w->ldc + p->j[0];
        for (int64_t j = 0; j < p->j[1] - p->j[0]; j++)
            from.c[j] += c[j];
    }
}

/* Rows i (at most 32) over the packed block of k; finished where it is the last. */
static void amx_rows_done(const struct amx_piece *p, const int64_t i[2], float *c)
{
    const struct gemm *g = p->job->w->g;
    struct cpu_target to = {c, p->ld, false};
    for (int64_t k = p->k[0]; k < p->k[1]; k += p->ki) {
        to.add = k > 0;
        amx_sweep(p, i, k, to);
    }
    if (p->k[1] < g->k)
        return;
    if (g->accumulate)
        amx_accumulate(p, i, to);
    p->job->finish(p->job->w, to, i, p->j);
}

static int64_t amx_block_of_k(int64_t k)
{
    return k <= AMX_K_WHOLE ? num_ceil_div(k, TILE_K) * TILE_K : AMX_KO;
}

/* Rows i and columns p->j of C. */
static void amx_piece(struct amx_piece *p, const int64_t i[2])
{
    const struct gemm *g = p->job->w->g;
    int64_t block = amx_block_of_k(g->k);
    p->ki = num_ceil_div(block, num_ceil_div(block, AMX_KI) * TILE_K) * TILE_K;
    for (int64_t k = 0; k < g->k; k += block) {
        p->k[0] = k;
        p->k[1] = num_min(k + block, g->k);
        amx_pack_panel(p);
        for (int64_t r = i[0]; r < i[1]; r += AMX_SIDE) {
            const int64_t rows[2] = {r, num_min(r + AMX_SIDE, i[1])};
            bool whole = block >= g->k;
            amx_rows_done(p, rows, p->gathered + (whole ? 0 : r - i[0]) * p->ld);
        }
    }
}

/* cpu_task_fn over struct amx_job: pieces of w->rows x w->cols, row by row of pieces. */
static void amx_pieces(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct amx_job *job = arg;
    const struct cpu_gemm *w = job->w;
    struct amx_piece p = {.job = job, .a = {w->g->a, w->lda, w->g->trans_a},
                          .b = {w->g->b, w->ldb, !w->g->trans_b}, .block = (char *)scratch,
                          .panel = (char *)(scratch + AMX_A_FLOATS),
                          .gathered = scratch + AMX_A_FLOATS + AMX_B_HALVES / 2};
    tiles_open();
    for (int64_t item = first; item < last; item++) {
        int64_t i[2] = {item / w->across * w->rows, 0};
        i[1] = num_min(i[0] + w->rows, w->g->m);
        p.j[0] = item % w->across * w->cols;
        p.j[1] = num_min(p.j[0] + w->cols, w->g->n);
        p.ld = num_ceil_div(p.j[1] - p.j[0], AMX_SIDE) * AMX_SIDE;
        amx_piece(&p, i);
    }
    tiles_close();
}

/* ---- cutting ---- */

/* Time of a cut, in products of one thread: all threads take as long as the one with the most
 * pieces; each piece packs its operands. */
static double amx_cost(const struct gemm *g, int64_t threads, int64_t down, int64_t across)
{
    double m = (double)g->m, n = (double)g->n, k = (double)g->k, pieces = (double)(down * across);
    double packed = (double)across * m * k + (double)down * k * n;
    double rounds = (double)num_ceil_div(down * across, threads);
    return (m * n * k + AMX_PACK_COST * packed) * rounds / pieces;
}

/* w->rows, cols and across: the cheapest cut whose pieces fit the blocks. */
static void amx_cut(struct cpu_gemm *w, int64_t threads)
{
    const struct gemm *g = w->g;
    int64_t block = amx_block_of_k(g->k), wide = AMX_B_HALVES / block / AMX_SIDE * AMX_SIDE;
    int64_t cols = num_min(wide, AMX_COLS), rows = g->m, best[2] = {0, 0};
    double least = 0;
    if (block < g->k) {
        cols = num_min(cols, 384);
        rows = AMX_C_FLOATS / cols / AMX_SIDE * AMX_SIDE;
    }
    int64_t from[2] = {num_ceil_div(g->m, rows), num_ceil_div(g->n, cols)};
    for (int64_t across = from[1]; across < from[1] + 4 * threads; across++) {
        for (int64_t down = from[0]; down == from[0] || down * across <= 4 * threads; down++) {
            double cost = amx_cost(g, threads, down, across);
            if (best[0] && cost >= least)
                continue;
            least = cost;
            best[0] = down;
            best[1] = across;
        }
    }
    w->rows = num_ceil_div(num_ceil_div(g->m, best[0]), AMX_SIDE) * AMX_SIDE;
    w->cols = num_ceil_div(num_ceil_div(g->n, best[1]), AMX_SIDE) * AMX_SIDE;
    w->across = num_ceil_div(g->n, w->cols);
}

#endif
