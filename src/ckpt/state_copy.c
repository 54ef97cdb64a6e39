/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of rectangles between row-major and transposed, and between types of numbers. What lies
 * alike in both is memcpy, of the whole where the rows touch. What is turned goes by squares, of
 * f32 such that each line of memory is used up on both sides, 4 x 4 numbers in registers.
 *
 * Elements are read and written bytewise: a tensor of a foreign file may stand unaligned.
 */
#include "ckpt/state_local.h"

#include <string.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

enum { SQUARE = 8, LINE = 16 };

/* n[0] x n[1] elements by the types, to rows that are tr elements apart; AT: where (r, c) is; RAW:
 * how one lies in memory. */
#define COPY(TO, RAW, VALUE, AT)                                                                   \
    for (int64_t r = 0; r < n[0]; r++)                                                             \
        for (int64_t c = 0; c < n[1]; c++) {                                                       \
            RAW v;                                                                                 \
            memcpy(&v, from + (AT) * (int64_t)sizeof v, sizeof v);                                 \
            TO w = (TO)(VALUE);                                                                    \
            memcpy(to + (r * tr + c) * (int64_t)sizeof w, &w, sizeof w);                           \
        }
#define COPY_TO(TO, AT)                                                                            \
    switch (b->type) {                                                                             \
    case SAFET_F64: COPY(TO, double, v, AT) break;                                                 \
    case SAFET_F32: COPY(TO, float, v, AT) break;                                                  \
    case SAFET_F16: COPY(TO, uint16_t, f16_to_f32(v), AT) break;                                   \
    case SAFET_BF16: COPY(TO, uint16_t, bf16_to_f32(v), AT) break;                                 \
    default: err_bug(__FILE__, __LINE__, "a type that is not read");                               \
    }

/* Any two; a loop of its own for what lies along rows, which compilers make wide. */
static void convert(const struct state_span *a, const struct state_span *b, const int64_t n[2])
{
    int64_t tr = a->step[0], fr = b->step[0], fc = b->step[1];
    uint8_t *to = a->p;
    const uint8_t *from = b->p;
    if (a->type == SAFET_F64 && fc == 1)
        COPY_TO(double, r * fr + c)
    else if (a->type == SAFET_F64)
        COPY_TO(double, r * fr + c * fc)
    else if (fc == 1)
        COPY_TO(float, r * fr + c)
    else
        COPY_TO(float, r * fr + c * fc)
}

/* The span from element (r, c) on. */
static struct state_span behind(const struct state_span *s, int64_t r, int64_t c)
{
    struct state_span out = *s;
    out.p += (r * s->step[0] + c * s->step[1]) * safet_type_size(s->type);
    return out;
}

static void turn(const struct state_span *a, const struct state_span *b, const int64_t n[2])
{
    for (int64_t r = 0; r < n[0]; r += SQUARE)
        for (int64_t c = 0; c < n[1]; c += SQUARE) {
            struct state_span to = behind(a, r, c), from = behind(b, r, c);
            int64_t size[2] = {num_min(SQUARE, n[0] - r), num_min(SQUARE, n[1] - c)};
            convert(&to, &from, size);
        }
}

/* The same of f32, in fewer instructions: 4 x 4 numbers at a time. */
static void turn_f32(const struct state_span *a, const struct state_span *b, const int64_t n[2])
{
    int64_t whole[2] = {0, 0};
#ifdef __SSE__
    int64_t tr = a->step[0], fs = b->step[1];
    whole[0] = n[0] / LINE * LINE;
    whole[1] = n[1] / LINE * LINE;
    for (int64_t r0 = 0; r0 < whole[0]; r0 += LINE)
        for (int64_t c0 = 0; c0 < whole[1]; c0 += LINE)
            for (int64_t r = r0; r < r0 + LINE; r += 4)
                for (int64_t c = c0; c < c0 + LINE; c += 4) {
                    __m128 v[4];
                    for (int64_t i = 0; i < 4; i++)
                        v[i] = _mm_loadu_ps((const void *)(b->p + (r + (c + i) * fs) * 4));
                    _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]);
                    for (int64_t i = 0; i < 4; i++)
                        _mm_storeu_ps((void *)(a->p + ((r + i) * tr + c) * 4), v[i]);
                }
#endif
    const int64_t right[2] = {whole[0], n[1] - whole[1]}, below[2] = {n[0] - whole[0], n[1]};
    struct state_span to = behind(a, 0, whole[1]), from = behind(b, 0, whole[1]);
    turn(&to, &from, right);
    to = behind(a, whole[0], 0);
    from = behind(b, whole[0], 0);
    turn(&to, &from, below);
}

void state_copy(const struct state_span *to, const struct state_span *from, const int64_t n[2])
{
    struct state_span a = *to, b = *from;
    int64_t size[2] = {n[0], n[1]}, bytes = safet_type_size(to->type);
    if (a.step[1] != 1) { /* the same with rows and columns called the other way round */
        a = (struct state_span){to->p, to->type, {to->step[1], to->step[0]}};
        b = (struct state_span){from->p, from->type, {from->step[1], from->step[0]}};
        size[0] = n[1];
        size[1] = n[0];
    }
    ENSURE(a.step[1] == 1 && (b.step[1] == 1 || b.step[0] == 1));
    if (b.step[1] != 1 && a.type == SAFET_F32 && b.type == SAFET_F32)
        turn_f32(&a, &b, size);
    else if (b.step[1] != 1)
        turn(&a, &b, size);
    else if (a.type != b.type)
        convert(&a, &b, size);
    else if (a.step[0] == size[1] && b.step[0] == size[1])
        memcpy(a.p, b.p, (size_t)(size[0] * size[1] * bytes));
    else
        for (int64_t r = 0; r < size[0]; r++)
            memcpy(a.p + r * a.step[0] * bytes, b.p + r * b.step[0] * bytes,
                   (size_t)(size[1] * bytes));
}

void state_take(const struct state_want *w, enum safet_type type, void *out,
                const struct state_part *from, const struct state_box *rows)
{
    const struct state_box *b = &w->box, *have = &from->box;
    struct state_box both;
    if (!state_meet(rows, b, &both))
        return;
    struct state_span to = {out, type, {b->n[1], 1}};
    struct state_span source = {(uint8_t *)(uintptr_t)from->data, from->type, {have->n[1], 1}};
    if (w->transposed)
        to.step[0] = 1, to.step[1] = b->n[0];
    to = behind(&to, both.at[0] - b->at[0], both.at[1] - b->at[1]);
    source = behind(&source, both.at[0] - have->at[0], both.at[1] - have->at[1]);
    state_copy(&to, &source, both.n);
}
