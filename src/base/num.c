/* SPDX-License-Identifier: Apache-2.0
 *
 * Types, checked sizes, Philox. The generator is ten rounds of two 32x32 -> 64 multiplications;
 * the constants are those of the paper (Salmon et al., SC 2011, section 4.4).
 */
#include "base/num.h"

#include <float.h>

int64_t dtype_size(enum dtype dt)
{
    static const int64_t size[DT_COUNT] = {8, 4, 2, 4};
    return size[dt];
}

const char *dtype_name(enum dtype dt)
{
    static const char *const name[DT_COUNT] = {"f64", "f32", "bf16", "i32"};
    return name[dt];
}

double dtype_most(enum dtype dt)
{
    /* bf16: its largest and less than half a unit */
    return dt == DT_F64 ? DBL_MAX : dt == DT_F32 ? (double)FLT_MAX : 0x1.fefffep127;
}

/* All are looked at without a branch first, which compilers make vectors of. */
#define WITHIN(name, type, size)                         \
    int64_t name(const type *p, int64_t n, type most)    \
    {                                                    \
        int64_t i = 0, beyond = 0;                       \
        for (int64_t k = 0; k < n; k++)                  \
            beyond |= !(size(p[k]) <= most);             \
        while (beyond && i < n && size(p[i]) <= most)    \
            i++;                                         \
        return beyond ? i : n;                           \
    }
WITHIN(num_within_f32, float, fabsf)
WITHIN(num_within_f64, double, fabs)

bool num_mul(int64_t a, int64_t b, int64_t *out)
{
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &a))
        return false;
    *out = a;
    return true;
}

bool num_add(int64_t a, int64_t b, int64_t *out)
{
    if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &a))
        return false;
    *out = a;
    return true;
}

bool num_round_up(int64_t a, int64_t to, int64_t *out)
{
    if (to <= 0 || !num_add(a, to - 1, &a))
        return false;
    *out = a / to * to;
    return true;
}

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = h >> 10 & 31, fraction = h & 1023u, u;
    float f;
    if (exponent == 0) { /* zero and subnormals: fraction * 2^-24, which f32 holds exactly */
        f = (float)fraction * 0x1p-24f;
        return sign ? -f : f;
    }
    u = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
    memcpy(&f, &u, sizeof f);
    return f;
}

uint16_t f16_from_f32(float f)
{
    enum { NORMAL = 0x38800000, BEYOND = 0x477ff000, INFINITE = 0x7f800000 }; /* 2^-14, 65520 */
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > INFINITE)
        return (uint16_t)(sign | 0x7e00);
    if (size >= BEYOND)
        return (uint16_t)(sign | 0x7c00);
    if (size < NORMAL) /* multiples of 2^-24 */
        return (uint16_t)(sign | (uint32_t)lrintf(fabsf(f) * 0x1p24f));
    size += 0xfff + (size >> 13 & 1);
    return (uint16_t)(sign | ((size - 0x38000000) >> 13));
}

struct philox philox4x32(const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (struct philox){{c0, c1, c2, c3}};
}

static struct philox draw(uint64_t seed, uint64_t stream, int64_t index)
{
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)((uint64_t)index >> 32), (uint32_t)stream,
                           (uint32_t)(stream >> 32)};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    return philox4x32(counter, key);
}

enum { QUADS = 32 }; /* draws of a row */

/* word[i][q] = draw(seed, stream, first + q).v[i]: the rounds outside and the counters inside, so
 * that a compiler has vectors to work on. */
static void draw_row(uint64_t seed, uint64_t stream, int64_t first, uint32_t word[4][QUADS])
{
    uint32_t *c0 = word[0], *c1 = word[1], *c2 = word[2], *c3 = word[3];
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int q = 0; q < QUADS; q++) {
        c0[q] = (uint32_t)(first + q);
        c1[q] = (uint32_t)((uint64_t)(first + q) >> 32);
        c2[q] = (uint32_t)stream;
        c3[q] = (uint32_t)(stream >> 32);
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (int q = 0; q < QUADS; q++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[q], p1 = (uint64_t)0xCD9E8D57u * c2[q];
            c0[q] = (uint32_t)(p1 >> 32) ^ c1[q] ^ k0;
            c1[q] = (uint32_t)p1;
            c2[q] = (uint32_t)(p0 >> 32) ^ c3[q] ^ k1;
            c3[q] = (uint32_t)p0;
        }
}

/* Two normals of two words. */
static void normal_pair(uint32_t a, uint32_t b, double out[2])
{
    double radius = sqrt(-2.0 * log(philox_unit(a)));
    double angle = 2.0 * 3.14159265358979323846 * philox_unit(b);
    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

double num_normal(uint64_t seed, uint64_t stream, int64_t index)
{
    struct philox r = draw(seed, stream, index / 4);
    int64_t half = index % 4 / 2 * 2;
    double pair[2];
    normal_pair(r.v[half], r.v[half + 1], pair);
    return pair[index % 2];
}

void num_normals(uint64_t seed, uint64_t stream, int64_t first, int64_t n, double *out)
{
    uint32_t word[4][QUADS];
    double quad[4];
    int64_t end = first + n;
    for (int64_t q = first / 4, row = q; q * 4 < end; q++) {
        if ((q - row) % QUADS == 0)
            draw_row(seed, stream, q, word);
        int64_t at = (q - row) % QUADS;
        normal_pair(word[0][at], word[1][at], quad);
        normal_pair(word[2][at], word[3][at], quad + 2);
        for (int64_t i = num_max(q * 4, first); i < num_min(q * 4 + 4, end); i++)
            out[i - first] = quad[i % 4];
    }
}

double num_uniform(uint64_t seed, uint64_t stream, int64_t index)
{
    return philox_unit(draw(seed, stream, index).v[0]);
}

uint64_t num_hash(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 0x100000001b3u;
    return h;
}

bool num_drop_kept(uint64_t seed, uint32_t stream, uint32_t step, int64_t index, uint32_t threshold)
{
    return draw(seed, (uint64_t)step << 32 | stream, index / 4).v[index % 4] >= threshold;
}
