/* SPDX-License-Identifier: Apache-2.0
 *
 * ZB-V (Qi et al., "Pipeline parallelism with controllable memory", 2024): two chunks a rank, laid
 * in a V, so that a microbatch comes back to the rank it started on. The last stage stands on rank
 * 0, whose backward can begin at once; with forward, I and W of equal length no rank idles between
 * its first and its last instruction, and each keeps 2 p activations of a chunk, as much as 1F1B
 * does. The order is closed (F, I, W of the first chunk; f, i, w of the second):
 *
 *     fill     2(p - r) - 1 times F; r times f F; p - r times f i w
 *     steady   F I W f i w, until forwards are through
 *     drain    r times I i; p - r times I W; what is left of w, then of W
 *
 *     rank 0  F0 F1 F2 f0 i0 w0 f1 i1 w1 F3 I0 W0 f2 i2 w2 I1 W1 f3 i3 w3 I2 W2 I3 W3
 *     rank 1  .. F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 w1 F3 I1 W1 f3 i2 w2 I2 i3 I3 W2 w3 W3
 *
 * It is counted for at least 2 p - 1 microbatches; with fewer, the missing ones leave holes. Made
 * for costs, the closed order is what the search (sched_search.c) begins with.
 */
#include "sched/sched_build.h"

#include "base/num.h"

/* One rank's list in writing. */
struct writer {
    struct sched_build *b;
    int stage[2];               /* of the first and the second chunk */
    int m;
    int f[2], i[2], w[2];       /* next microbatch of each, those beyond m included */
};

static void add(struct writer *k, enum sched_op op, int chunk)
{
    int *next = op == SCHED_F ? k->f : op == SCHED_I ? k->i : k->w;
    int mb = next[chunk]++;
    if (mb < k->m)
        sched_build_add(k->b, op, k->stage[chunk], mb);
}

static void add_iw(struct writer *k, int chunk)
{
    add(k, SCHED_I, chunk);
    add(k, SCHED_W, chunk);
}

static enum err make(const struct sched_shape *shape, struct sched *out)
{
    struct sched_build b;
    int p = shape->p, through = (int)num_max(2 * p - 1, shape->m);
    sched_build_open(&b, "zb-v", shape);
    sched_build_zigzag(&b);
    for (int rank = 0; rank < p; rank++) {
        struct writer k = {.b = &b, .stage = {rank, 2 * p - 1 - rank}, .m = shape->m};
        sched_build_rank(&b);
        for (int n = 0; n < 2 * (p - rank) - 1; n++)
            add(&k, SCHED_F, 0);
        for (int n = 0; n < rank; n++) {
            add(&k, SCHED_F, 1);
            add(&k, SCHED_F, 0);
        }
        for (int n = 0; n < p - rank; n++) {
            add(&k, SCHED_F, 1);
            add_iw(&k, 1);
        }
        while (k.f[1] < k.f[0] || k.f[0] < through) {
            if (k.f[0] < through)
                add(&k, SCHED_F, 0);
            add_iw(&k, 0);
            add(&k, SCHED_F, 1);
            add_iw(&k, 1);
        }
        for (int n = 0; n < rank; n++) {
            add(&k, SCHED_I, 0);
            add(&k, SCHED_I, 1);
        }
        for (int n = 0; n < p - rank; n++)
            add_iw(&k, 0);
        for (int chunk = 1; chunk >= 0; chunk--)
            while (k.w[chunk] < k.i[chunk])
                add(&k, SCHED_W, chunk);
    }
    return sched_build_done(&b, out);
}

static enum err make_for(const struct sched_shape *shape, const struct sched_cost *cost,
                         struct sched *out)
{
    struct sched closed;
    TRY(make(shape, &closed));
    enum err err = sched_search(&sched_zb_v, shape, cost, &closed, out);
    sched_free(&closed);
    return err;
}

const struct sched_kind sched_zb_v = {
    .name = "zb-v",
    .doc = "two chunks a rank in a V, no bubble when F, I, W are equal; keeps 2 p chunks' "
           "activations",
    .chunks = 2,
    .make = make,
    .limit = 2,
    .make_for = make_for,
};
