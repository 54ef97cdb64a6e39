/* SPDX-License-Identifier: Apache-2.0
 *
 * The one place where a reduction adds. Element i of a result is ((x0 + x1) + x2) + ... over the
 * members' elements i, in the wide type: a chain per element, so neither how elements are cut into
 * runs nor the vector width can change a bit. An accumulator is small enough to stay in the
 * first-level cache while the members' buffers stream past it.
 */
#include "comm/core/core.h"

#include <string.h>

int64_t comm_accum_elements(enum dtype dt)
{
    return dt == DT_F64 ? COMM_ACCUM_BYTES / 8 : COMM_ACCUM_BYTES / 4;
}

void comm_accum_set(struct comm_accum *t, const void *x, int64_t count, enum dtype dt)
{
    if (dt == DT_BF16) {
        const uint16_t *b = x;
        for (int64_t i = 0; i < count; i++)
            t->wide.f32[i] = bf16_to_f32(b[i]);
    } else if (count > 0) {
        memcpy(&t->wide, x, (size_t)(count * dtype_size(dt)));
    }
}

/* Each of `count` elements b of x to its a in t, of types that are known here: compilers make
 * vectors of it. */
#define EACH(member, type, from_type, value, sum, larger) \
    do {                                                  \
        type *restrict to = t->wide.member;               \
        const from_type *restrict from = x;               \
        for (int64_t i = 0; i < sums; i++) {              \
            type a = to[i], b = value(from[i]);           \
            to[i] = (sum);                                \
        }                                                 \
        for (int64_t i = 0; i < maxima; i++) {            \
            type a = to[i], b = value(from[i]);           \
            to[i] = (larger);                             \
        }                                                 \
    } while (0)
/* Of numbers with a point the larger, and a NaN of either. */
#define LARGER (b > a || isnan(b) ? b : a)
/* Wraps on overflow instead of being undefined. */
#define WRAPPED (int32_t)((uint32_t)a + (uint32_t)b)

void comm_accum_add(struct comm_accum *t, enum comm_red red, const void *x, int64_t count,
                    enum dtype dt)
{
    int64_t sums = red != COMM_MAX ? count : 0, maxima = count - sums;
    switch (dt) {
    case DT_F64: EACH(f64, double, double, , a + b, LARGER); break;
    case DT_F32: EACH(f32, float, float, , a + b, LARGER); break;
    case DT_BF16: EACH(f32, float, uint16_t, bf16_to_f32, a + b, LARGER); break;
    case DT_I32: EACH(i32, int32_t, int32_t, , WRAPPED, b > a ? b : a); break;
    case DT_COUNT: break;
    }
}

const void *comm_accum_result(struct comm_accum *t, int64_t count, enum dtype dt)
{
    if (dt != DT_BF16)
        return &t->wide;
    for (int64_t i = 0; i < count; i++)
        t->bf16[i] = bf16_from_f32(t->wide.f32[i]);
    return t->bf16;
}
