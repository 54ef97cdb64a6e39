/* SPDX-License-Identifier: Apache-2.0
 *
 * One forward, one backward over slices of sequences (Sun et al., "Seq1F1B: efficient
 * sequence-level pipeline parallelism for large language model training", 2024). Each microbatch
 * is cut along the tokens into k slices, and what a rank does at a time is a slice: unit =
 * microbatch * k + slice. Attention is causal: a slice needs the keys and values of the slices
 * before it, and its backward adds to their gradients. So the forwards of a microbatch run slice 0
 * first, and its backwards slice k - 1 first.
 *
 *     p 2, k 2   rank 0  F0 F1 F2 B1 F3 B0 B3 B2
 *                rank 1  .. F0 F1 B1 F2 B0 F3 B3 B2
 *
 * A rank begins with k - 1 more forwards than 1F1B, since its first backward is that of a last
 * slice. With equal slices the bubble is a k-th of 1F1B's and a rank keeps p - r + k - 1 slices;
 * later slices see more keys, so equal times want unequal slices. With k 1 it is 1F1B.
 */
#include "sched/sched_build.h"

#include "base/num.h"
#include "base/text.h"

static enum err make_sliced(const struct sched_shape *shape, int k, struct sched *out)
{
    struct sched_build b;
    int most = SCHED_MAX_MB / shape->m;
    if (k < 1 || k > most)
        FAIL(ERR_CONFIG, "schedule seq1f1b: %d microbatch%s of %d slices, and units are counted "
                         "from 1 to %d; use 1 to %d slice%s", shape->m, text_plural(shape->m, "es"),
             k, SCHED_MAX_MB, most, text_plural(most, "s"));
    int units = shape->m * k;
    sched_build_open(&b, "seq1f1b", &(struct sched_shape){.p = shape->p, .m = units, .v = 1});
    b.s.slices = k;
    for (int rank = 0; rank < shape->p; rank++) {
        int warm = (int)num_min(shape->p - 2 - rank + k, units);
        sched_build_rank(&b);
        for (int unit = 0; unit < warm; unit++)
            sched_build_add(&b, SCHED_F, rank, unit);
        for (int n = 0; n < units; n++) {
            if (warm + n < units)
                sched_build_add(&b, SCHED_F, rank, warm + n);
            sched_build_add(&b, SCHED_B, rank, n / k * k + k - 1 - n % k);
        }
    }
    return sched_build_done(&b, out);
}

static enum err make(const struct sched_shape *shape, struct sched *out)
{
    (void)shape;
    (void)out;
    FAIL(ERR_CONFIG, "schedule seq1f1b: no number of slices is given to cut each microbatch into; "
                     "use `plait sim --slices`, or 1f1b, as training does not slice");
}

const struct sched_kind sched_seq1f1b = {
    .name = "seq1f1b",
    .doc = "1f1b over slices of sequences; plait sim only",
    .make = make,
    .make_sliced = make_sliced,
};
