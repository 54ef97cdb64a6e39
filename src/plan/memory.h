/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of a rank by kind, before anything is allocated: the list of its buffers added up. What the
 * device takes for itself, "library", is no part of the list, nor is what NCCL takes, "transport",
 * which is known from measurements only. Pure.
 */
#ifndef PLAIT_PLAN_MEMORY_H
#define PLAIT_PLAN_MEMORY_H

#include "plan/buffers.h"

/* copy: of the host's memory, what checkpoints are copied to; no part of the total where the device
 * has memory of its own. */
struct memory { int64_t bytes[MEMORY_KINDS], copy; };
const char *memory_name(enum memory_kind k);
int64_t memory_total(const struct memory *m);

struct memory_args {
    struct buffers_args buffers;
    int64_t scratch;   /* bytes that the transport stages with on this rank */
    int64_t library;   /* bytes that the device takes for itself: workspace */
    int64_t transport; /* bytes of the device that its transport takes, about */
    int copiers;       /* data ranks that copy a part of a checkpoint each; 0: none is copied */
};
/* Memory of pipeline rank `pp`. Errors: ERR_MEMORY. */
enum err memory_plan(const struct memory_args *a, int pp, struct memory *out);

/* Bytes of one slot, save set and keep set of its own of a stage, for what is played on a clock. */
struct stage_bytes { int64_t slot, saves, keep; };
/* Of the stages of the first replica that pipeline rank pp holds, into out[stages].
 * Errors: ERR_MEMORY. */
enum err memory_stages(const struct buffers_args *a, int pp, struct stage_bytes *out);

#endif
