/* SPDX-License-Identifier: Apache-2.0
 *
 * DualPipeV, DualPipe cut in half (DeepSeek-AI, "DualPipe", 2025). There ranks r and p - 1 - r do
 * the same in mirror image; here one of them goes, and the other keeps both of its stages as stages
 * r and 2 p - 1 - r of one pipeline, a V: microbatches come in at rank 0, turn at rank p - 1 and go
 * out at rank 0. The parameters are held once. The order is sched_twoway.c's, the way in near and
 * the way back far.
 *
 *     rank 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3&3B1 3F2&0B0 3B2 3F3&0B1 3B3 0I2 0W2 0I3 0W3
 *     rank 1  1F0 2F0 1F1 2F1 1F2 2B0 2F2&1B0 1F3&2B1 2F3&1B1 2B2 1B2 2I3 1I3 2W3 1W3
 *
 * Bubble (p - 1)(tov + tb - 3 tw) in times of a chunk, for m at least 2 p; 2 p + 1 activations of a
 * chunk. Any m will do.
 */
#include "sched/sched_build.h"

static enum err make(const struct sched_shape *shape, struct sched *out)
{
    struct sched_build b;
    sched_build_open(&b, "dualpipev", shape);
    sched_build_zigzag(&b);
    for (int rank = 0; rank < shape->p; rank++) {
        sched_build_rank(&b);
        sched_twoway_write(&b, &(struct sched_twoway){
            .h = shape->p, .q = rank,
            .side = {{rank, 0, shape->m}, {2 * shape->p - 1 - rank, 0, shape->m}}});
    }
    return sched_build_done(&b, out);
}

const struct sched_kind sched_dualpipev = {
    .name = "dualpipev",
    .doc = "a V of two chunks a rank, forwards overlap backwards",
    .chunks = 2,
    .make = make,
};
