/* SPDX-License-Identifier: Apache-2.0
 *
 * What the users of tiles share: operands packed into tiles, and a block of 32 x 32 results from
 * them. A block takes four tiles of sums, so that each tile of an operand that is loaded meets two
 * of the other. Packing transposes, pairs and fills up with zeros, so the block sees whole tiles:
 *
 *     left operand   for each 32 rows, for each 32 of k: two tiles, of 16 rows each
 *     right operand  for each 32 columns, for each 32 of k: two tiles, of 16 columns each
 */
#ifndef PLAIT_DEVICE_CPU_AMX_BLOCK_H
#define PLAIT_DEVICE_CPU_AMX_BLOCK_H

#include "device/cpu/amx_tile.h"
#include "device/cpu/cpu_impl.h"

enum {
    AMX_SIDE = 2 * TILE,             /* rows and columns of a block */
    AMX_STEP_BYTES = 2 * TILE_BYTES, /* of an operand, for 32 of k */
};

/* n filled up to whole blocks. */
static inline int64_t amx_filled(int64_t n)
{
    return num_ceil_div(n, AMX_SIDE) * AMX_SIDE;
}

/* 16 pairs of bf16. The only type name of its own: compilers know vectors by typedef alone. */
typedef uint32_t pairs __attribute__((vector_size(64)));
typedef uint16_t halves __attribute__((vector_size(32)));
typedef uint16_t halves2 __attribute__((vector_size(64)));

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
static inline void amx_pack(char *to, const struct amx_operand *x, const int64_t i[2],
                            const int64_t k[2], bool of_b)
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
    for (int64_t k = 0; k < steps; k++, a += AMX_STEP_BYTES, b += AMX_STEP_BYTES) {
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

#endif
