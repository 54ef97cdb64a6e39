/* SPDX-License-Identifier: Apache-2.0
 *
 * Every buffer of a rank, in one list: its kind, bytes and name, and what it is for. The plan of
 * memory adds the list up, and the executor takes what it lists, so bytes planned are bytes taken.
 * Sizes come from the layers (model.h), counts from the check of the schedule. Pure.
 */
#ifndef PLAIT_PLAN_BUFFERS_H
#define PLAIT_PLAN_BUFFERS_H

#include "model/model.h"
#include "plan/segments.h"
#include "sched/sched.h"

enum memory_kind {
    MEMORY_WEIGHTS, MEMORY_MASTER, MEMORY_GRADS, MEMORY_OPTIM, MEMORY_ACTIVATIONS,
    MEMORY_WORK, MEMORY_COMM, MEMORY_DATA, MEMORY_LIBRARY, MEMORY_TRANSPORT, MEMORY_KINDS
};

enum buffer_what {
    BUFFER_W, BUFFER_MASTER, BUFFER_GRAD, BUFFER_M, BUFFER_V, /* a stage's store */
    BUFFER_SLOT,      /* what a layer saves that stays in a slot; id: enum model_save */
    BUFFER_OUT,       /* a slot's output */
    BUFFER_SAVE,      /* what it saves besides, in a save set; id: enum model_save */
    BUFFER_KEEP,      /* what I leaves for W, in a keep set; id: enum model_keep */
    BUFFER_WORK, BUFFER_WORK_KEEP, /* scratch of the rank; id: enum model_work, enum model_keep */
    BUFFER_GRAD_SEND, /* gradients on their way to the stage before */
    BUFFER_INPUT, BUFFER_TARGETS, BUFFER_LOSS, BUFFER_SCALARS, BUFFER_ROPE
};

struct buffer {
    enum memory_kind kind;
    enum buffer_what what;
    const char *name;
    int64_t bytes;  /* of one, not rounded to the arena's alignment; above 0 */
    int count;      /* how many of them: one a slot, a set, a message */
    int stage_replica;    /* of the schedule; of what the rank shares -1 */
    int layer, id;  /* layer of the stage, from 0 (of a BUFFER_SAVE that several have the one that
                       lends it, segments_lenders); which of its buffers */
};

struct buffers_args {
    const struct model *model;
    struct model_split split;
    const struct sched *sched;         /* lowered and checked */
    const struct sched_report *report;
    const struct model_stage *cut;      /* [stages] */
    int64_t samples, step_samples;     /* of a full microbatch; of a step on one data rank */
    struct dtypes types;
    int num_shards;                    /* data ranks that shard the optimizer; 1: none */
    bool training;
    bool splits;                       /* the schedule has I and W: keep sets for microbatches */
    const struct segments *recompute;  /* [stages] that are recomputed by segments; NULL: none */
};

/* Calls fn for each buffer of pipeline rank pp, in the order in which a rank takes them; an error
 * of its ends the walk and is returned. */
typedef enum err buffer_fn(void *arg, const struct buffer *b);
enum err buffers_each(const struct buffers_args *a, int pp, buffer_fn *fn, void *arg);

/* Mark in the cut which stages stand on one rank with the embed, as the schedule places them. */
void buffers_place(const struct sched *s, struct model_stage *cut);

/* ---- the plan of memory: bytes of a rank by kind, before anything is allocated ----
 * The list of its buffers added up. What the device takes for itself, "library", is no part of the
 * list, nor is what NCCL takes, "transport", which is known from measurements only. */

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
enum err memory_plan(const struct memory_args *m, int pp, struct memory *out);

/* Bytes of one slot, save set and keep set of its own of a stage, for what is played on a clock. */
struct stage_bytes { int64_t slot, saves, keep; };
/* Of the stages of the first replica that pipeline rank pp holds, into out[stages].
 * Errors: ERR_MEMORY. */
enum err memory_stages(const struct buffers_args *a, int pp, struct stage_bytes *out);

#endif
