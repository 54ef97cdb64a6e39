/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of a stage's layers. Segments: what an instruction may name (sched/sched_segment.c), as its
 * last backward is cut, or all of them where each segment is recomputed by itself. Sums: whose
 * gradients data ranks sum as one, as soon as that backward is through the segment with the first
 * of their layers. What a rank owns where updates are shared follows the sums. Where nothing is
 * recomputed so, the two are the same. Pure but for memory.
 */
#ifndef PLAIT_PLAN_SEGMENTS_H
#define PLAIT_PLAN_SEGMENTS_H

#include "model/model.h"
#include "sched/sched.h"

/* On GPUs a sum is so long that what a message costs besides its bytes does not count. Sums by NCCL
 * take SMs from GEMMs that were cut to fill all of them, so few long ones disturb less than many;
 * sums by copies disturb little, and the sooner they begin, the less is left behind backward. */
enum { SEGMENT_BYTES_COPIES = 64 << 20, SEGMENT_BYTES_NCCL = 256 << 20 };

enum { SEGMENTS_SQRT = -1 };

struct segments {
    int n, sums;      /* 1 or more */
    int *first, *sum; /* owned; [n], [sums] first layer of each, of the stage's own, from 0,
                         rising */
};

struct segments_args {
    const struct model *model;
    struct model_split split;
    int64_t bytes;    /* that a sum's gradients have at least, but for the first; 0: each layer with
                         parameters is one */
    int64_t element;  /* bytes of a gradient */
    int num_shards;   /* data ranks that shard the optimizer; 1: none */
    int every;        /* blocks of a segment that is recomputed by itself; SEGMENTS_SQRT: the root
                         of the stage's; 0: none is */
};
/* Do ranks of this layout hold gradients that must be summed? */
bool segments_summed(const struct model *a, const struct model_split *split, int dp);
/* Those of each stage, [stages]. Errors: ERR_MEMORY. Released by segments_free. */
enum err segments_make(const struct segments_args *a, const struct model_stage *cut, int stages,
                       struct segments **out);
void segments_free(struct segments *s, int stages);
/* The training list cut by them, where data ranks shard the optimizer with these in segments,
 * too, and proved again: slots stay as they are, so of the report the hash alone is new, and with
 * recompute (sched_segment) what is kept in full. Errors: of sched_segment and sched_check. */
enum err segments_cut(const struct segments *s, bool recompute, bool shared, struct sched *list,
                      struct sched_report *report);
/* Which layer of a stage whose segments are recomputed lends its buffers to each, [layers]: those
 * of one type in the same block of their segments have one's, for one segment at a time has any.
 * What is of no block has its own. Errors: ERR_MEMORY. */
enum err segments_lenders(const struct segments *s, const struct model *a,
                          const struct model_stage *st, int *lender);
/* The layers of a segment of a stage of so many, all of them for seg 0: *first .. *end - 1. */
void segments_range(const struct segments *s, int layers, int seg, int *first, int *end);
/* Is this the first layer of a segment? s NULL: of the stage. */
bool segments_begin(const struct segments *s, int layer);

#endif
