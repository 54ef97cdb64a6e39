/* SPDX-License-Identifier: Apache-2.0
 *
 * Who does what in attention's gradient on Hopper (cuda_attn_bwd.cu), and where things lie: plain
 * integers, so that a test without a GPU can walk the same walk.
 *
 * Blocks are of 128 rows. The unit of work is a pair: one head of one sequence. A block of threads
 * takes the keys of a pair block by block, upwards, and for each the queries from the diagonal on.
 * So the sums of dq that one block of threads makes have one order. When pairs do not come out even
 * on the SMs, those of the last round are cut into parts: part p of P has the blocks of
 * keys p, 2P-1-p, 2P+p, ..., to and fro, which evens out the triangle. Their sums are added behind.
 */
#ifndef PLAIT_DEVICE_CUDA_ATTN_BWD_H
#define PLAIT_DEVICE_CUDA_ATTN_BWD_H

#include "base/num.h"

#ifdef __CUDACC__
#define BWD_BOTH __host__ __device__
#else
#define BWD_BOTH
#endif

/* BWD_MOST: blocks of threads at most, one an SM (an H100 or H200 has 132). It bounds
 * the workspace. */
enum { BWD_ROWS = 128, BWD_D = 64, BWD_MOST = 132, BWD_TILE = BWD_ROWS * BWD_D };

/* How pairs are shared out. Item i < full is pair i; above, each of the last `pairs - full` pairs
 * is `parts` items. Block of threads c has items c, c + ctas, ... */
struct bwd_share {
    int pairs, blocks;              /* blocks: of rows in a sequence */
    int full, parts, items, ctas;
};

/* pairs * t fits in 31 bits; sms at least 1. */
static inline struct bwd_share bwd_share_of(int64_t pairs, int64_t t, int sms)
{
    struct bwd_share s = {(int)pairs, (int)num_ceil_div(t, BWD_ROWS), 0, 1, 0, 0};
    int most = sms < BWD_MOST ? sms : BWD_MOST, tail = s.pairs % most;
    s.full = s.pairs - tail;
    if (tail > 0)
        s.parts = (int)num_min(most / tail, s.blocks);
    if (s.parts == 1)
        s.full = s.pairs;
    s.items = s.full + (s.pairs - s.full) * s.parts;
    s.ctas = s.items < most ? s.items : most;
    return s;
}

/* Floats of workspace: log-sum-exps and deltas (pairs, blocks, 2, 128), then a slot for each block
 * of threads with the sums of dq of the pair it is at (blocks, 128, 64). */
static inline int64_t bwd_stats(int64_t pairs, int64_t t)
{
    return pairs * num_ceil_div(t, BWD_ROWS) * 2 * BWD_ROWS;
}

static inline int64_t bwd_slot(int64_t t)
{
    return num_ceil_div(t, BWD_ROWS) * BWD_TILE;
}

/* Most that any device takes, bytes. */
static inline int64_t bwd_bytes(int64_t pairs, int64_t t)
{
    return 4 * (bwd_stats(pairs, t) + BWD_MOST * bwd_slot(t));
}

/* A place on the walk: block `query` of queries against block `key` of keys, the turn-th of its
 * part. */
struct bwd_at {
    int item, turn, key, query;
};

static inline BWD_BOTH int bwd_parts(const struct bwd_share *s, int item)
{
    return item < s->full ? 1 : s->parts;
}

static inline BWD_BOTH int bwd_pair(const struct bwd_share *s, int item)
{
    return item < s->full ? item : s->full + (item - s->full) / s->parts;
}

/* Block of keys of a part's turn; not below `blocks` when there is none. */
static inline BWD_BOTH int bwd_key(int parts, int part, int turn)
{
    return turn * parts + (turn % 2 == 0 ? part : parts - 1 - part);
}

static inline BWD_BOTH struct bwd_at bwd_begin(const struct bwd_share *s, int item)
{
    struct bwd_at at = {item, 0, 0, 0};
    if (item >= s->full)
        at.key = at.query = bwd_key(s->parts, (item - s->full) % s->parts, 0);
    return at;
}

/* The place behind `at`; its item is not below `items` at the end. */
static inline BWD_BOTH struct bwd_at bwd_next(const struct bwd_share *s, struct bwd_at at)
{
    if (++at.query < s->blocks)
        return at;
    at.turn++;
    if (at.item < s->full)
        at.key = at.turn;
    else
        at.key = bwd_key(s->parts, (at.item - s->full) % s->parts, at.turn);
    if (at.key >= s->blocks)
        return bwd_begin(s, at.item + s->ctas);
    at.query = at.key;
    return at;
}

/* Of the time that all SMs have until the last is done, the part that they work: how
 * evenly pairs are shared out. */
static inline double bwd_even(const struct bwd_share *s, int sms)
{
    int64_t whole = (int64_t)s->blocks * (s->blocks + 1) / 2, longest = 0;
    for (int p = 0; s->parts > 1 && p < s->parts; p++) {
        int64_t steps = 0;
        for (int turn = 0, key; (key = bwd_key(s->parts, p, turn)) < s->blocks; turn++)
            steps += s->blocks - key;
        longest = num_max(longest, steps);
    }
    longest += num_ceil_div(s->full, s->ctas) * whole;
    return (double)s->pairs * (double)whole / ((double)num_min(sms, BWD_MOST) * (double)longest);
}

/* Nothing has been added to this block's dq before; nothing will be after. The last is asked of
 * whole pairs alone. */
static inline BWD_BOTH bool bwd_opens(struct bwd_at at) { return at.turn == 0; }
static inline BWD_BOTH bool bwd_closes(const struct bwd_share *s, struct bwd_at at)
{
    return at.item < s->full && at.query == at.key;
}

/* ---- shared memory ---- */

/* Tiles of shared memory have rows of 64 bf16, 128 bytes. Chunk c of 16 bytes of row r lies where
 * the copy engine's 128-byte swizzle has it, r from the start of a tile on 1024 bytes. */
static inline BWD_BOTH int bwd_chunk(int row, int chunk)
{
    return row * 128 + ((chunk ^ (row & 7)) << 4);
}

/* Where a lane of a warp (of 4) says the row of its 8x8 matrix is that stmatrix writes transposed:
 * matrices are (keys 16 warp + 8 (m % 2), queries 8 (m / 2)), m = lane / 8, the tile is (queries,
 * 64 keys). The next two blocks of 8 queries are 2048 bytes on. */
static inline BWD_BOTH int bwd_matrix(int warp, int lane)
{
    return bwd_chunk(8 * (lane >> 4) + (lane & 7), 2 * warp + ((lane >> 3) & 1));
}

#endif
