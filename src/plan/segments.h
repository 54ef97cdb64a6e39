/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments of a stage: runs of its layers whose gradients are summed over data ranks as one, as
 * soon as its last backward is through them (sched/sched_segment.c). What a rank owns where updates
 * are shared follows them, too. Pure but for memory.
 */
#ifndef PLAIT_PLAN_SEGMENTS_H
#define PLAIT_PLAN_SEGMENTS_H

#include "model/model.h"
#include "sched/sched.h"

/* On GPUs a sum is so long that what a message costs besides its bytes does not count. Sums by NCCL
 * take SMs from GEMMs that were cut to fill all of them, so few long ones disturb less than many;
 * sums by copies disturb little, and the sooner they begin, the less is left behind backward. */
enum { SEGMENT_BYTES_COPIES = 64 << 20, SEGMENT_BYTES_NCCL = 256 << 20 };

struct segments {
    int n;      /* 1 or more */
    int *first; /* owned; [n] first layer of each, of the stage's own, from 0; rising */
};

struct segments_args {
    const struct model *model;
    struct model_split split;
    int64_t bytes;    /* that a segment's gradients have at least, but for the first; 0: each layer
                         with parameters is one */
    int64_t element;  /* bytes of a gradient */
    int shares;       /* data ranks that share the updates; 1: none */
};
/* Do ranks of this layout hold gradients that must be summed? */
bool segments_summed(const struct model *a, const struct model_split *split, int dp);
/* Those of each stage, [stages]. Errors: ERR_MEMORY. Released by segments_free. */
enum err segments_make(const struct segments_args *a, const struct model_stage *cut, int stages,
                       struct segments **out);
void segments_free(struct segments *s, int stages);
/* The training list cut by them, and proved again: what is kept of microbatches stays, so of the
 * report the hash alone is new. Errors: those of sched_segment and sched_check. */
enum err segments_cut(const struct segments *s, struct sched *list, struct sched_report *report);

#endif
