/* SPDX-License-Identifier: Apache-2.0
 *
 * The order that DualPipe and DualPipeV share (DeepSeek-AI, "DeepSeek-V3 technical report", 2024).
 * Microbatches meet every rank twice: on their near stage, q hops behind an input, and on their far
 * stage, q hops before an output; there are h ranks up to where the hops end. The rank writes
 *
 *     1  forwards of the near stage, as many as its first far microbatch leaves time for
 *     2  near and far forwards in turn
 *     3  far backwards in halves, each with its weight half at once, and a far forward
 *     4  pairs: a near forward with a far backward, a far forward with a near backward
 *     5  far backwards, each with a pair of far forward and near backward
 *     6  the last backwards; from the middle on in halves, so that the gradient leaves earlier
 *     7  near backwards in halves, between weight halves that were left over
 *     8  weight halves
 *
 * Weight halves wait in a queue. In a pair communication of the one hides behind computing of the
 * other, which is what the schedule is for.
 *
 * The counts below need 2 h microbatches of either kind. With fewer the list is written as for 2 h
 * and the cells of those that are not there are left out: what is left obeys the same order, and a
 * pair that loses a half is an ordinary instruction.
 */
#include "sched/sched_build.h"

#include "base/mem.h"
#include "base/num.h"

struct writer {
    struct sched_build *b;
    const struct sched_twoway *t;
    int f[2], d[2];    /* next forward and next backward, near and far */
    struct half { int side, nth; } *queue; /* owned; weight halves */
    int head, tail;
};

/* Is microbatch nth of a side there? */
static bool there(const struct writer *w, int side, int nth)
{
    return nth < w->t->side[side].count;
}

static void add(struct writer *w, enum sched_op op, int side, int nth)
{
    const struct sched_twoway_side *s = &w->t->side[side];
    if (there(w, side, nth))
        sched_build_add(w->b, op, s->stage, s->first + nth);
}

static void forward(struct writer *w, int side)
{
    add(w, SCHED_F, side, w->f[side]++);
}

static void backward(struct writer *w, int side, bool halves)
{
    int nth = w->d[side]++;
    add(w, halves ? SCHED_I : SCHED_B, side, nth);
    if (halves)
        w->queue[w->tail++] = (struct half){side, nth};
}

static void weight(struct writer *w)
{
    struct half next = w->queue[w->head++];
    add(w, SCHED_W, next.side, next.nth);
}

/* A forward of `side` with a backward of the other. */
static void pair(struct writer *w, int side)
{
    const struct sched_twoway_side *s = &w->t->side[side];
    if (there(w, side, w->f[side]) && there(w, 1 - side, w->d[1 - side]))
        sched_build_add(w->b, SCHED_OVERLAP_F_B, s->stage, s->first + w->f[side]);
    forward(w, side);
    backward(w, 1 - side, false);
}

enum { NEAR, FAR };

void sched_twoway_write(struct sched_build *b, const struct sched_twoway *t)
{
    struct writer w = {.b = b, .t = t};
    int most = (int)num_max(t->side[NEAR].count, t->side[FAR].count);
    int n = (int)num_max(most, 2 * t->h), after = t->h - t->q - 1;
    if (b->err == ERR_OK)
        b->err = mem_new(2 * (int64_t)n, sizeof *w.queue, "schedule weight halves", &w.queue);
    if (b->err != ERR_OK)
        return;
    for (int i = 0; i < 2 * after; i++)
        forward(&w, NEAR);
    for (int i = 0; i <= t->q; i++) {
        forward(&w, NEAR);
        forward(&w, FAR);
    }
    for (int i = 0; i < after; i++) {
        backward(&w, FAR, true);
        weight(&w);
        forward(&w, FAR);
    }
    for (int i = 0; i < n - 2 * t->h + t->q + 1; i++) {
        if (i == 0 && after == 0) { /* in the middle the first pair would need its own forward */
            forward(&w, NEAR);
            backward(&w, FAR, false);
        } else {
            pair(&w, NEAR);
        }
        pair(&w, FAR);
    }
    for (int i = 0; i < after; i++) {
        backward(&w, FAR, false);
        pair(&w, FAR);
    }
    for (int i = 0; i < 2 * (t->q + 1); i++) /* far and near in turn; the second half in halves */
        backward(&w, i % 2 == 0 ? FAR : NEAR, i > t->q);
    for (int i = 0; i < after; i++) {
        weight(&w);
        backward(&w, NEAR, true);
    }
    while (w.head < w.tail)
        weight(&w);
    mem_free(w.queue);
}
