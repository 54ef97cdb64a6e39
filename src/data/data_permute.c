/* SPDX-License-Identifier: Apache-2.0
 *
 * A shuffle that is computed, not stored. A Feistel network over 2h bits is a permutation of [0,
 * 4^h) whatever its round function is, because each round can be undone (Luby and Rackoff, "How to
 * construct pseudorandom permutations from pseudorandom functions", 1988). With the smallest h >=
 * 3 such that 4^h >= S, walking along the cycle until the value falls below S makes it a
 * permutation of [0, S): the walk from i < S meets a value below S at the latest at i itself, and
 * two walks cannot meet the same one first (Black and Rogaway, "Ciphers with arbitrary finite
 * domains", 2002). Above 16 samples the domain is below 4 S, so fewer than four steps are walked
 * on average.
 *
 * Eight rounds and h >= 3 because small domains want them: with four rounds, or with h = 2, some
 * orders of five samples come far more often than others (chi-square above 230 where 119 is
 * expected); with both it is what chance gives.
 *
 * So there is no memory, random state or index file, and a resumed run starts anywhere at once.
 */
#include "data/data.h"

#include "base/num.h"

enum { ROUNDS = 8, HALF_MIN = 3 };

/* One pass of the network; halves of `half` bits, 3..32. */
static uint64_t feistel(uint64_t key, uint64_t epoch, int half, uint64_t x)
{
    const uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    const uint32_t mask = (uint32_t)(UINT32_MAX >> (32 - half));
    uint32_t left = (uint32_t)(x >> half) & mask, right = (uint32_t)x & mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t counter[4] = {right, round, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
        uint32_t next = left ^ (philox4x32(counter, k).v[0] & mask);
        left = right;
        right = next;
    }
    return (uint64_t)left << half | right;
}

int64_t data_permute(uint64_t seed, int64_t epoch, int64_t samples, int64_t i)
{
    ENSURE(samples > 0 && i >= 0 && i < samples);
    /* The name keeps these draws apart from those of weights and dropout under the same seed. */
    uint64_t key = seed ^ num_hash("data.permute"), x = (uint64_t)i;
    int half = HALF_MIN;
    while (half < 32 && (uint64_t)1 << (2 * half) < (uint64_t)samples)
        half++;
    do
        x = feistel(key, (uint64_t)epoch, half, x);
    while (x >= (uint64_t)samples);
    return (int64_t)x;
}
