/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers that everything rests on, beyond what test_base.c holds of them (known answers of
 * Philox, the normal distribution, ties of bf16): types, rounding up, edges of bf16, uniform
 * numbers, hashes, and the mask of dropout, which each device has to reproduce.
 */
#include "test.h"

#include "base/num.h"

static void types_have_size_and_name(void)
{
    CHECK_INT(dtype_size(DT_F64), 8);
    CHECK_INT(dtype_size(DT_F32), 4);
    CHECK_INT(dtype_size(DT_BF16), 2);
    CHECK_INT(dtype_size(DT_I32), 4);
    CHECK_STR(dtype_name(DT_F64), "f64");
    CHECK_STR(dtype_name(DT_F32), "f32");
    CHECK_STR(dtype_name(DT_BF16), "bf16");
    CHECK_STR(dtype_name(DT_I32), "i32");
}

static void sizes_round_up(void)
{
    int64_t out = -5;
    CHECK(num_round_up(0, 64, &out) && out == 0);
    CHECK(num_round_up(1, 64, &out) && out == 64);
    CHECK(num_round_up(64, 64, &out) && out == 64);
    CHECK(num_round_up(65, 64, &out) && out == 128);
    CHECK(num_round_up(INT64_MAX - 63, 64, &out) && out == INT64_MAX - 63);
    out = -5;
    CHECK(!num_round_up(INT64_MAX - 62, 64, &out) && out == -5);
    CHECK(!num_round_up(1, 0, &out) && !num_round_up(1, -2, &out) && !num_round_up(-1, 4, &out));
    CHECK(out == -5);
    CHECK_INT(num_ceil_div(0, 7), 0);
    CHECK_INT(num_ceil_div(7, 7), 1);
    CHECK_INT(num_ceil_div(8, 7), 2);
}

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* bf16 of x by search: the nearest of the two neighbours, the even one in a tie. */
static uint16_t nearest(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    uint16_t low = (uint16_t)(u >> 16), high = (uint16_t)(low + 1);
    double down = bf16_to_f32(low), up = bf16_to_f32(high);
    if (isinf(up)) /* where the next value would stand, were the exponent not used up */
        up = copysign(0x1p128, up);
    double below = fabs((double)x - down), above = fabs(up - (double)x);
    return below < above || (below == above && low % 2 == 0) ? low : high;
}

static void bf16_is_the_nearest_value(void)
{
    for (int i = 0; i < 200000; i++) {
        uint32_t u = (uint32_t)test_random();
        if (i % 4 == 0) /* ties, and their neighbours */
            u = (u & 0xffff0000u) | (uint32_t)(0x7fff + i / 4 % 3);
        float x = from_bits(u);
        if (isfinite(x))
            CHECK_INT(bf16_from_f32(x), nearest(x));
    }
}

static void bf16_keeps_what_is_not_a_number(void)
{
    CHECK_INT(bf16_from_f32(-0.0f), 0x8000);
    CHECK_INT(bf16_from_f32(-INFINITY), 0xff80);
    CHECK_INT(bf16_from_f32(-1.00390625f), 0xbf80);  /* -1 - 2^-8, a tie: to even */
    CHECK_INT(bf16_from_f32(from_bits(1)), 0);       /* far below the smallest */
    CHECK_INT(bf16_from_f32(from_bits(0x8001)), 1);  /* just above half of it */
    for (uint32_t payload = 1; payload < 0x800000; payload = payload * 3 + 1) {
        CHECK(isnan(bf16_to_f32(bf16_from_f32(from_bits(0x7f800000u | payload)))));
        CHECK(isnan(bf16_to_f32(bf16_from_f32(from_bits(0xff800000u | payload)))));
    }
}

static void units_are_inside_the_interval(void)
{
    CHECK(philox_unit(0) > 0 && philox_unit(UINT32_MAX) < 1);
    CHECK_NEAR(philox_unit(0x80000000u), 0.5, 0x1p-32);
    double sum = 0, square = 0;
    enum { N = 100000 };
    for (int64_t i = 0; i < N; i++) {
        double x = num_uniform(3, 4, i);
        sum += x;
        square += x * x;
    }
    CHECK_NEAR(sum / N, 0.5, 0.005);
    CHECK_NEAR(square / N, 1.0 / 3, 0.005);
    CHECK(num_uniform(3, 4, 1) != num_uniform(3, 4, ((int64_t)1 << 32) + 1));
    CHECK(num_uniform(3, 4, 1) != num_uniform(3, ((uint64_t)1 << 32) + 4, 1));
    CHECK(num_uniform(3, 4, 1) != num_uniform(((uint64_t)1 << 32) + 3, 4, 1));
}

/* Every number of f16 is itself, and what lies between two goes to the nearer, the even one in a
 * tie; so up to 65520, which would be the next one. */
static void f16_is_the_nearest_value(void)
{
    int bad = 0;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float low = f16_to_f32((uint16_t)h), high = f16_to_f32((uint16_t)(h + 1));
        high = h == 0x7bff ? 65536 : high;
        float half = low + (high - low) / 2;
        uint16_t even = (uint16_t)(h + (h & 1));
        bad += f16_from_f32(low) != h || f16_from_f32(-low) != (h | 0x8000);
        bad += f16_from_f32(half) != even || f16_from_f32(-half) != (even | 0x8000);
        bad += f16_from_f32(nextafterf(half, 0)) != h;
        bad += f16_from_f32(nextafterf(half, high)) != h + 1;
    }
    CHECK_INT(bad, 0);
    CHECK_INT(f16_from_f32(1e30f), 0x7c00);
    CHECK_INT(f16_from_f32(-INFINITY), 0xfc00);
    CHECK_INT(f16_from_f32(from_bits(1)), 0);
    CHECK(isnan(f16_to_f32(f16_from_f32(from_bits(0x7f800001u)))));
    CHECK(isnan(f16_to_f32(f16_from_f32(from_bits(0xffffffffu)))));
}

static void f16_has_infinities(void)
{
    CHECK(f16_to_f32(0x7c00) == INFINITY && f16_to_f32(0xfc00) == -INFINITY);
    CHECK(isnan(f16_to_f32(0x7c01)) && isnan(f16_to_f32(0xfe00)));
    CHECK(f16_to_f32(0x7bff) == 65504 && f16_to_f32(0xc500) == -5 && f16_to_f32(1) == 0x1p-24f);
}

/* Known answers of Philox 4x32-10 (Random123): the first word of counter and key of zeros is
 * 6627e8d5, of ones 408f276d; a uniform number is in the middle of its word's interval. Normals of
 * a run are those drawn one by one, whatever bits seed, stream and index have. */
static void draws_are_philoxs(void)
{
    double run[5];
    CHECK_NEAR(num_uniform(0, 0, 0), (0x6627e8d5 + 0.5) / 4294967296.0, 0);
    CHECK_NEAR(num_uniform(UINT64_MAX, UINT64_MAX, -1), (0x408f276d + 0.5) / 4294967296.0, 0);
    for (int64_t i = 0; i < 64; i++) {
        uint64_t seed = test_random(), stream = test_random();
        int64_t first = test_range(0, i % 2 ? 1000 : INT64_MAX / 2);
        num_normals(seed, stream, first, 5, run);
        for (int k = 0; k < 5; k++)
            CHECK_NEAR(run[k], num_normal(seed, stream, first + k), 0);
    }
}

/* Published vectors of FNV-1a with 64 bits. */
static void hashes_are_fnv(void)
{
    CHECK(num_hash("") == 0xcbf29ce484222325u);
    CHECK(num_hash("a") == 0xaf63dc4c8601ec8cu);
    CHECK(num_hash("foobar") == 0x85944171f73967e8u);
}

/* Word index % 4 of the Philox block (index / 4, stream, step) under the seed, and >=. */
static void the_mask_is_its_definition(void)
{
    for (int i = 0; i < 2000; i++) {
        uint64_t seed = test_random();
        uint32_t stream = (uint32_t)test_random(), step = (uint32_t)test_random();
        int64_t index = test_range(0, i % 2 ? 1000 : INT64_MAX / 2);
        uint32_t counter[4] = {(uint32_t)(index / 4), (uint32_t)((index / 4) >> 32), stream, step};
        uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
        uint32_t word = philox4x32(counter, key).v[index % 4];
        CHECK(num_drop_kept(seed, stream, step, index, word));
        CHECK(word == UINT32_MAX || !num_drop_kept(seed, stream, step, index, word + 1));
    }
}

static void the_mask_drops_its_share(void)
{
    enum { N = 100000 };
    CHECK_INT(num_drop_threshold(0), 0);
    CHECK_INT(num_drop_threshold(0.5), 0x80000000);
    CHECK_INT(num_drop_threshold(0.25), 0x40000000);
    for (int tenth = 1; tenth < 10; tenth += 4) {
        uint32_t threshold = num_drop_threshold(0.1 * tenth);
        int64_t dropped = 0, both = 0;
        bool last = false;
        for (int64_t i = 0; i < N; i++) {
            bool now = !num_drop_kept(1, 2, 3, i, threshold);
            dropped += now;
            both += now && last; /* neighbours fall independently of each other */
            last = now;
        }
        CHECK_NEAR((double)dropped / N, 0.1 * tenth, 0.01);
        CHECK_NEAR((double)both / N, 0.01 * tenth * tenth, 0.01);
    }
}

/* The largest f32 that has a bf16, and the next one, which has none. */
static void the_most_is_finite(void)
{
    float most = (float)dtype_most(DT_BF16);
    CHECK(isfinite(bf16_to_f32(bf16_from_f32(most))));
    CHECK(isinf(bf16_to_f32(bf16_from_f32(nextafterf(most, INFINITY)))));
    CHECK(dtype_most(DT_F32) == 3.40282346638528860e38 && isinf(2 * (float)dtype_most(DT_F32)));
    CHECK(isfinite(dtype_most(DT_F64)) && isinf(2 * dtype_most(DT_F64)));
}

/* Of several the first counts; the limit is within. */
static void numbers_within(void)
{
    enum { N = 300 };
    static const double beyond[] = {NAN, INFINITY, -INFINITY, 7.5, -8};
    float f[N];
    double d[N];
    for (int k = 0; k < 2000; k++) {
        int64_t n = test_range(0, N), first = n;
        for (int64_t i = 0; i < n; i++)
            d[i] = (double)test_range(-7, 7);
        for (int64_t i = test_range(0, 3); i > 0 && n > 0; i--) {
            int64_t at = test_range(0, n - 1);
            d[at] = beyond[test_range(0, 4)];
            first = num_min(first, at);
        }
        for (int64_t i = 0; i < n; i++)
            f[i] = (float)d[i];
        CHECK_INT(num_within_f64(d, n, 7), first);
        CHECK_INT(num_within_f32(f, n, 7), first);
    }
}

static const struct test_case cases[] = {
    {"the most is finite", the_most_is_finite},
    {"numbers within", numbers_within},
    {"types have size and name", types_have_size_and_name},
    {"sizes round up", sizes_round_up},
    {"bf16 is the nearest value", bf16_is_the_nearest_value},
    {"bf16 keeps what is not a number", bf16_keeps_what_is_not_a_number},
    {"units are inside the interval", units_are_inside_the_interval},
    {"f16 is the nearest value", f16_is_the_nearest_value},
    {"f16 has infinities", f16_has_infinities},
    {"draws are Philox's", draws_are_philoxs},
    {"hashes are FNV-1a", hashes_are_fnv},
    {"the mask is its definition", the_mask_is_its_definition},
    {"the mask drops its share", the_mask_drops_its_share},
};
TEST_MAIN(cases)
