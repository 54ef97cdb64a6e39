/* SPDX-License-Identifier: Apache-2.0
 *
 * The walk of attention's gradient on Hopper without a GPU: every block of queries against every
 * block of keys that it sees, once; sums of dq opened once, by the first that comes, and closed by
 * the last; shares even; slots apart. And the places of the scores' gradients in shared memory,
 * written as stmatrix does and read as a matmul's swizzled tile is.
 */
#include "device/cuda/cuda_attn_bwd.h"

#include "base/mem.h"
#include "test.h"

#include <string.h>

enum { SHAPES = 60, BLOCKS_MOST = 20, PAIRS_MOST = 800 };

/* Of a block of queries of an item: how many keys have come, whether it opened and closed. */
struct sums {
    int came, opened, closed;
};

/* One item's walk. met: (blocks, blocks) of its pair. */
static struct bwd_at walk(const struct bwd_share *s, struct bwd_at at, int *met, int *steps)
{
    struct sums sums[BLOCKS_MOST] = {{0}};
    int item = at.item, key = -1;
    while (at.item == item) {
        struct sums *q = &sums[at.query];
        CHECK(at.key >= 0 && at.key <= at.query && at.query < s->blocks && at.key >= key);
        CHECK(bwd_opens(at) == (q->came == 0));
        CHECK(q->closed == 0);
        q->came++;
        q->opened += bwd_opens(at);
        q->closed += bwd_closes(s, at);
        met[at.query * s->blocks + at.key]++;
        key = at.key;
        ++*steps;
        at = bwd_next(s, at);
    }
    for (int q = 0; q < s->blocks; q++) {
        CHECK(q >= bwd_key(bwd_parts(s, item), item < s->full ? 0 : (item - s->full) % s->parts, 0)
                  ? sums[q].opened == 1
                  : sums[q].came == 0);
        CHECK(sums[q].closed == (item < s->full));
    }
    return at;
}

static void check_share(int64_t pairs, int64_t t, int sms)
{
    struct bwd_share s = bwd_share_of(pairs, t, sms);
    int64_t most = 0, square = (int64_t)s.blocks * s.blocks, whole = square / 2 + s.blocks;
    int *met;
    CHECK_OK(mem_new(pairs * square, sizeof *met, "blocks met", &met));
    CHECK(s.ctas >= 1 && s.ctas <= sms && s.ctas <= BWD_MOST && s.ctas <= s.items);
    CHECK(s.parts >= 1 && s.parts <= s.blocks);
    CHECK(s.parts == 1 || (s.full % s.ctas == 0 && s.items - s.full <= s.ctas) || s.full == 0);
    for (int c = 0; c < s.ctas; c++) {
        int steps = 0;
        struct bwd_at at = bwd_begin(&s, c);
        while (at.item < s.items) {
            CHECK(at.item < s.full || s.parts == 1 || at.item - s.full == c);
            at = walk(&s, at, met + bwd_pair(&s, at.item) * square, &steps);
        }
        most = num_max(most, steps);
    }
    for (int64_t i = 0; i < pairs * square; i++)
        CHECK(met[i] == (i % s.blocks <= i / s.blocks % s.blocks));
    /* no block of threads has more than a whole pair above the mean */
    CHECK(most <= pairs * (square + s.blocks) / 2 / s.ctas + whole);
    CHECK_NEAR(bwd_even(&s, sms),
               (double)(pairs * (square + s.blocks) / 2) / (double)(num_min(sms, BWD_MOST) * most),
               1e-12);
    CHECK(4 * (bwd_stats(pairs, t) + s.ctas * bwd_slot(t)) <= bwd_bytes(pairs, t));
    mem_free(met);
}

static void test_walk(void)
{
    check_share(768, 1024, 132);
    check_share(400, 1024, 132);
    check_share(1, 1, 132);
    check_share(4, 1024, 132);
    check_share(133, 256, 132);
    check_share(131, 2048, 132);
    for (int i = 0; i < SHAPES; i++)
        check_share(test_range(1, PAIRS_MOST), test_range(1, BLOCKS_MOST * BWD_ROWS),
                    (int)test_range(1, 160));
}

/* The last round of 16 x 25 heads is 4 pairs: cut into 8 parts each, 116 blocks at most and not 144
 * of 109 that are a mean share. */
static void test_even(void)
{
    struct bwd_share s = bwd_share_of(400, 1024, 132);
    CHECK(s.full == 396 && s.parts == 8 && s.items == 396 + 32 && s.ctas == 132);
    s = bwd_share_of(768, 1024, 132);
    CHECK(s.full == 768 && s.parts == 1 && s.items == 768);
}

/* Element (row, col) of a matmul's tile of bf16 with 128-byte swizzle: address bits 4 to 6 are
 * those of the plain layout, turned by bits 7 to 9. */
static int swizzled(int row, int col)
{
    int plain = row * 128 + col * 2;
    return plain ^ (plain >> 3 & 0x70);
}

/* Each lane holds, of 8 queries j and half h of its warp's 16 keys, key 16 w + l/4 + 8 h against
 * queries 8 j + 2 (l%4) and the next. stmatrix with .trans: element (r, c) of a matrix, in lane
 * 4 r + c/2, goes to byte 2 r of the row that lane 8 m + c names. */
static void test_store(void)
{
    static int16_t tile[BWD_TILE];
    memset(tile, 0xff, sizeof tile);
    for (int w = 0; w < 4; w++)
        for (int step = 0; step < 8; step++)
            for (int m = 0; m < 4; m++)
                for (int r = 0; r < 8; r++)
                    for (int c = 0; c < 8; c++) {
                        int key = 16 * w + r + 8 * (m % 2), query = 8 * (2 * step + m / 2) + c;
                        int at = bwd_matrix(w, 8 * m + c) + 2048 * step + 2 * r;
                        CHECK(tile[at / 2] == -1);
                        tile[at / 2] = (int16_t)(query * 64 + key);
                    }
    for (int query = 0; query < BWD_ROWS; query++)
        for (int key = 0; key < 64; key++)
            CHECK(tile[swizzled(query, key) / 2] == query * 64 + key);
}

static const struct test_case cases[] = {
    {"every block once, sums opened and closed once", test_walk},
    {"the last round is cut", test_even},
    {"what stmatrix writes is what a matmul reads", test_store},
};
TEST_MAIN(cases)
