/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of rectangles between row-major and transposed, and between types of numbers. What lies
 * alike in both is memcpy, of the whole where the rows touch. Where columns are apart on one side
 * the copy goes by squares that fit into the first cache, so that each line of memory is fetched
 * once.
 *
 * Elements are read and written bytewise: a tensor of a foreign file may stand unaligned.
 */
#include "ckpt/state_local.h"

#include <string.h>

enum { SQUARE = 32 };

/* One copy of n[0] x n[1] elements, by the types; RAW is how one lies in memory. */
#define COPY(TO, RAW, VALUE)                                                                       \
    for (int64_t r = 0; r < n[0]; r++)                                                             \
        for (int64_t c = 0; c < n[1]; c++) {                                                       \
            RAW v;                                                                                 \
            memcpy(&v, from + (size_t)(r * fr + c * fc) * sizeof v, sizeof v);                     \
            TO w = (TO)(VALUE);                                                                    \
            memcpy(to + (size_t)(r * tr + c * tc) * sizeof w, &w, sizeof w);                       \
        }
#define COPY_TO(TO)                                                                                \
    switch (b->type) {                                                                             \
    case SAFET_F64: COPY(TO, double, v) break;                                                     \
    case SAFET_F32: COPY(TO, float, v) break;                                                      \
    case SAFET_F16: COPY(TO, uint16_t, f16_to_f32(v)) break;                                       \
    case SAFET_BF16: COPY(TO, uint16_t, bf16_to_f32(v)) break;                                     \
    default: err_bug(__FILE__, __LINE__, "a type that is not read");                               \
    }

static void copy_square(const struct state_span *a, const struct state_span *b, const int64_t n[2])
{
    int64_t tr = a->step[0], tc = a->step[1], fr = b->step[0], fc = b->step[1];
    uint8_t *to = a->p;
    const uint8_t *from = b->p;
    if (a->type == SAFET_F64)
        COPY_TO(double)
    else
        COPY_TO(float)
}

static void copy_rows(const struct state_span *to, const struct state_span *from,
                      const int64_t n[2])
{
    int64_t size = safet_type_size(to->type), rows = n[0], cols = n[1];
    if (to->step[0] == cols && from->step[0] == cols) {
        cols *= rows;
        rows = 1;
    }
    for (int64_t r = 0; r < rows; r++)
        memcpy(to->p + r * to->step[0] * size, from->p + r * from->step[0] * size,
               (size_t)(cols * size));
}

void state_copy(const struct state_span *to, const struct state_span *from, const int64_t n[2])
{
    bool rows = to->step[1] == 1 && from->step[1] == 1;
    int64_t a = safet_type_size(to->type), b = safet_type_size(from->type);
    if (rows && to->type == from->type) {
        copy_rows(to, from, n);
        return;
    }
    int64_t side[2] = {rows ? 1 : SQUARE, rows ? n[1] : SQUARE};
    for (int64_t r = 0; r < n[0]; r += side[0])
        for (int64_t c = 0; c < n[1]; c += side[1]) {
            struct state_span x = *to, y = *from;
            x.p += (r * to->step[0] + c * to->step[1]) * a;
            y.p += (r * from->step[0] + c * from->step[1]) * b;
            int64_t piece[2] = {num_min(side[0], n[0] - r), num_min(side[1], n[1] - c)};
            copy_square(&x, &y, piece);
        }
}
