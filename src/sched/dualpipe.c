/* SPDX-License-Identifier: Apache-2.0
 *
 * DualPipe: microbatches enter at both ends of the pipeline, half each way, and each rank holds a
 * stage of either direction, so the parameters are held twice (DeepSeek-AI, "DeepSeek-V3 technical
 * report", 2024). A forward of one direction and a backward of the other run as one overlapped
 * action. sched_twoway.c has the order; here stands who is near and far on which rank.
 *
 *     rank 0  F0 F1 F2 F4 I4 W4 F5 F3&B5 F6&B0 B6 F7&B1 B7 I2 W2 I3 W3     0 to 3 go down,
 *     rank 1  F0 F4 F1 F5 F2 B4 F6&B0 F3&B5 F7&B1 B6 B2 I7 I3 W7 W3        4 to 7 up
 *     rank 2  as rank 1 with the directions exchanged
 *     rank 3  as rank 0
 *
 * Bubble (p / 2 - 1)(tov + tb - 3 tw) for m even and at least 2 p; p + 1 activations. The ranks
 * meet in the middle of the pipeline, which has to lie between two of them: p is even. Any m will
 * do; an odd one gives the way down one more.
 */
#include "sched/sched_build.h"

static enum err make(const struct sched_shape *shape, struct sched *out)
{
    struct sched_build b;
    int p = shape->p, down = shape->m - shape->m / 2;
    TRY(sched_shape_even("dualpipe", shape));
    sched_build_open(&b, "dualpipe", shape);
    sched_build_mirror(&b);
    for (int rank = 0; rank < p; rank++) {
        struct sched_twoway_side lane[2] = {{rank, 0, down}, {p - 1 - rank, down, shape->m / 2}};
        int near = rank >= p / 2; /* the direction that enters on this side */
        sched_build_rank(&b);
        sched_twoway_write(&b, &(struct sched_twoway){
            .h = p / 2, .q = lane[near].stage, .side = {lane[near], lane[1 - near]}});
    }
    return sched_build_done(&b, out);
}

const struct sched_kind sched_dualpipe = {
    .name = "dualpipe",
    .doc = "from both ends, forwards overlap backwards; parameters held twice, p even",
    .make = make,
};
