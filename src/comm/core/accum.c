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

static void sum_f64(double *restrict t, const double *restrict x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        t[i] += x[i];
}

static void sum_f32(float *restrict t, const float *restrict x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        t[i] += x[i];
}

static void sum_bf16(float *restrict t, const uint16_t *restrict x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        t[i] += bf16_to_f32(x[i]);
}

/* Wraps on overflow instead of being undefined. */
static void sum_i32(int32_t *restrict t, const int32_t *restrict x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        t[i] = (int32_t)((uint32_t)t[i] + (uint32_t)x[i]);
}

static void accum_sum(struct comm_accum *t, const void *x, int64_t count, enum dtype dt)
{
    switch (dt) {
    case DT_F64: sum_f64(t->wide.f64, x, count); break;
    case DT_F32: sum_f32(t->wide.f32, x, count); break;
    case DT_BF16: sum_bf16(t->wide.f32, x, count); break;
    case DT_I32: sum_i32(t->wide.i32, x, count); break;
    case DT_COUNT: break;
    }
}

static float max_f32(float a, float b)
{
    return b > a || b != b ? b : a; /* keeps a when a is NaN */
}

static void accum_max(struct comm_accum *t, const void *x, int64_t count, enum dtype dt)
{
    const double *d = x;
    const float *f = x;
    const uint16_t *b = x;
    const int32_t *n = x;
    switch (dt) {
    case DT_F64:
        for (int64_t i = 0; i < count; i++)
            t->wide.f64[i] = d[i] > t->wide.f64[i] || d[i] != d[i] ? d[i] : t->wide.f64[i];
        break;
    case DT_F32:
        for (int64_t i = 0; i < count; i++)
            t->wide.f32[i] = max_f32(t->wide.f32[i], f[i]);
        break;
    case DT_BF16:
        for (int64_t i = 0; i < count; i++)
            t->wide.f32[i] = max_f32(t->wide.f32[i], bf16_to_f32(b[i]));
        break;
    case DT_I32:
        for (int64_t i = 0; i < count; i++)
            t->wide.i32[i] = n[i] > t->wide.i32[i] ? n[i] : t->wide.i32[i];
        break;
    case DT_COUNT:
        break;
    }
}

void comm_accum_add(struct comm_accum *t, enum comm_red red, const void *x, int64_t count,
                    enum dtype dt)
{
    if (red == COMM_MAX)
        accum_max(t, x, count, dt);
    else
        accum_sum(t, x, count, dt);
}

const void *comm_accum_result(struct comm_accum *t, int64_t count, enum dtype dt)
{
    if (dt != DT_BF16)
        return &t->wide;
    for (int64_t i = 0; i < count; i++)
        t->bf16[i] = bf16_from_f32(t->wide.f32[i]);
    return t->bf16;
}
