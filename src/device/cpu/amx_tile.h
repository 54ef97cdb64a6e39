/* SPDX-License-Identifier: Apache-2.0
 *
 * The eight tile registers of AMX (Intel's manual, volume 1, chapter 18), all configured alike:
 * 16 rows of 64 bytes. A tile holds 16 x 16 f32 of C, or 16 rows of 32 bf16 of A, or 32 rows of B
 * as 16 rows of pairs: element (k, j) of B stands in row k/2 at 2 j + k%2. tile_dot adds the
 * matrix product of a tile of A and one of B to one of C.
 *
 * The instructions name registers in their encoding, so these are macros over literal numbers. With
 * AMX_EMULATED they are plain C on an array instead: the walk over tiles is tested on processors
 * that have none.
 */
#ifndef PLAIT_DEVICE_CPU_AMX_TILE_H
#define PLAIT_DEVICE_CPU_AMX_TILE_H

#include "base/num.h"

enum { TILE = 16, TILE_K = 32, TILE_BYTES = 1024 };

#if defined(AMX_EMULATED)

static _Thread_local float tiles[8][TILE][TILE];

static inline void tiles_open(void)
{
    memset(tiles, 0, sizeof tiles);
}

static inline void tiles_close(void)
{
}

static inline void tiles_see(const void *p)
{
    (void)p;
}

static inline void tile_move(int t, char *p, int64_t stride, bool load)
{
    for (int i = 0; i < TILE; i++) {
        if (load)
            memcpy(tiles[t][i], p + i * stride, 64);
        else
            memcpy(p + i * stride, tiles[t][i], 64);
    }
}

static inline float tile_half(int t, int row, int column)
{
    uint16_t x;
    memcpy(&x, (const char *)tiles[t][row] + 2 * column, sizeof x);
    return bf16_to_f32(x);
}

static inline void tile_dot_slow(int c, int a, int b)
{
    for (int i = 0; i < TILE; i++)
        for (int k = 0; k < TILE_K; k++)
            for (int j = 0; j < TILE; j++)
                tiles[c][i][j] += tile_half(a, i, k) * tile_half(b, k / 2, 2 * j + k % 2);
}

#define tile_zero(t) memset(tiles[t], 0, sizeof tiles[t])
#define tile_load(t, p, stride) tile_move(t, (char *)(uintptr_t)(p), stride, true)
#define tile_store(t, p, stride) tile_move(t, (char *)(p), stride, false)
#define tile_dot(c, a, b) tile_dot_slow(c, a, b)

#else
#include <immintrin.h>

/* Compilers do not know that tile instructions read memory (gcc 12's names none): what was written
 * is in its place after this. */
static inline void tiles_see(const void *p)
{
    __asm__ volatile("" : : "r"(p) : "memory");
}

static inline void tiles_open(void)
{
    struct { uint8_t palette, start, zero[14]; uint16_t bytes[16]; uint8_t rows[16]; } config;
    memset(&config, 0, sizeof config);
    config.palette = 1;
    for (int t = 0; t < 8; t++) {
        config.bytes[t] = 64;
        config.rows[t] = TILE;
    }
    tiles_see(&config);
    _tile_loadconfig(&config);
}

static inline void tiles_close(void)
{
    _tile_release();
}

#define tile_zero(t) _tile_zero(t)
#define tile_load(t, p, stride) _tile_loadd(t, p, stride)
#define tile_store(t, p, stride) _tile_stored(t, p, stride)
#define tile_dot(c, a, b) _tile_dpbf16ps(c, a, b)
#endif

#endif
