/* SPDX-License-Identifier: Apache-2.0
 *
 * Number types, checked 64-bit arithmetic, and the counter-based random numbers of the engine.
 *
 * Randomness has no state: every draw is a pure function of (seed, stream, global index), so that
 * no split of a model or batch can change it. Philox4x32-10: Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011.
 */
#ifndef PLAIT_BASE_NUM_H
#define PLAIT_BASE_NUM_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum dtype { DT_F64, DT_F32, DT_BF16, DT_I32, DT_COUNT };

/* Bytes of one element. */
int64_t dtype_size(enum dtype dt);
/* "f64", "f32", "bf16", "i32". */
const char *dtype_name(enum dtype dt);
/* The largest number that is still finite when it is rounded to f64, from f32 to f32 or bf16. */
double dtype_most(enum dtype dt);

/* What a device computes in: operands; sums, statistics, gradients and master weights; the head's
 * logits (where they are not `at`, their gradient takes their place). chunk: bytes of logits that
 * the head makes at once. */
struct dtypes {
    enum dtype ct, at, logits;
    int64_t chunk;
};

/* Checked arithmetic on non-negative 64-bit sizes; false (and *out untouched) on overflow. */
bool num_mul(int64_t a, int64_t b, int64_t *out);
bool num_add(int64_t a, int64_t b, int64_t *out);
bool num_round_up(int64_t a, int64_t to, int64_t *out);
static inline int64_t num_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t num_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t num_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* How many of the n numbers stand before the first that is not finite, or above `most` in absolute
 * value; n: all are within. */
int64_t num_within_f32(const float *p, int64_t n, float most);
int64_t num_within_f64(const double *p, int64_t n, double most);

/* For numbers that are printed: a NaN prints as "nan", whatever its sign bit. */
static inline double num_unsigned_nan(double x) { return isnan(x) ? (double)NAN : x; }

/* bf16 is the upper half of f32, rounded to nearest even; NaN stays NaN. */
static inline float bf16_to_f32(uint16_t b)
{
    uint32_t u = (uint32_t)b << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline uint16_t bf16_from_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* Number i of an array of dt, a type with a point; and a number to its place, rounded. */
static inline double dtype_get(const void *p, enum dtype dt, int64_t i)
{
    return dt == DT_F64   ? ((const double *)p)[i]
           : dt == DT_F32 ? (double)((const float *)p)[i]
                          : (double)bf16_to_f32(((const uint16_t *)p)[i]);
}
static inline void dtype_put(void *p, enum dtype dt, int64_t i, double x)
{
    if (dt == DT_F64)
        ((double *)p)[i] = x;
    else if (dt == DT_F32)
        ((float *)p)[i] = (float)x;
    else
        ((uint16_t *)p)[i] = bf16_from_f32((float)x);
}

/* IEEE half precision: every value is one of f32's, infinities and NaN too. */
float f16_to_f32(uint16_t h);
/* Rounded to nearest even; infinite from 65520 on. */
uint16_t f16_from_f32(float f);

struct philox { uint32_t v[4]; };

/* Ten rounds of Philox4x32 of the 128-bit counter under the 64-bit key. */
struct philox philox4x32(const uint32_t counter[4], const uint32_t key[2]);

/* Uniform double in (0, 1) from 32 bits: (u + 0.5) / 2^32. */
static inline double philox_unit(uint32_t u) { return ((double)u + 0.5) * (1.0 / 4294967296.0); }

/* Standard normal number `index` of (seed, stream), a pure function, the same on every layout.
 * Box-Muller: one Philox call at index / 4 gives four uniforms and hence four normals. `stream`
 * names what is drawn (a hash of a parameter name, say). */
double num_normal(uint64_t seed, uint64_t stream, int64_t index);
/* Numbers first .. first + n - 1 of the same sequence, faster. */
void num_normals(uint64_t seed, uint64_t stream, int64_t first, int64_t n, double *out);

/* Uniform in (0,1) number `index` of (seed, stream). */
double num_uniform(uint64_t seed, uint64_t stream, int64_t index);

/* 64-bit mixing hash of a string (FNV-1a), for stream names. Not for files: those use xxHash. */
uint64_t num_hash(const char *s);

/* Mask of dropout: is element `index` kept? One Philox call serves four neighbouring elements:
 * counter = (index / 4 low, index / 4 high, stream, step), key = seed; word index % 4 is compared
 * with threshold = p * 2^32 (kept when word >= threshold). Devices must reproduce this exactly. */
static inline uint32_t num_drop_threshold(double p) { return (uint32_t)(p * 4294967296.0); }
bool num_drop_kept(uint64_t seed, uint32_t stream, uint32_t step, int64_t index,
                   uint32_t threshold);

#endif
