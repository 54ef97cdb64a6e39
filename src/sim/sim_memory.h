/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of a rank by kind, before anything is allocated. The executor allocates exactly these
 * numbers and stops if its own layout does not use each of them up, so prediction equals fact. What
 * the device takes for itself, "library", is no part of the executor's, nor is what NCCL takes,
 * "transport", which is known from measurements only.
 */
#ifndef PLAIT_SIM_SIM_MEMORY_H
#define PLAIT_SIM_SIM_MEMORY_H

#include "arch/arch.h"
#include "base/text.h"
#include "sched/sched.h"

enum memory_kind {
    MEMORY_WEIGHTS, MEMORY_MASTER, MEMORY_GRADS, MEMORY_OPTIM, MEMORY_SHADOW, MEMORY_ACTIVATIONS,
    MEMORY_WORK, MEMORY_COMM, MEMORY_DATA, MEMORY_LIBRARY,
    MEMORY_TRANSPORT, MEMORY_KINDS
};
const char *sim_memory_name(enum memory_kind k);

/* copy: of the host's memory, what checkpoints are copied to; no part of the total where the device
 * has memory of its own. */
struct sim_memory { int64_t bytes[MEMORY_KINDS], copy; };
int64_t sim_memory_total(const struct sim_memory *m);

/* One data-parallel replica's cut, as all ranks know it. */
struct sim_memory_args {
    const struct arch *arch;
    struct arch_split split;
    const struct sched *sched;          /* lowered and checked */
    const struct sched_report *report;
    const struct arch_stage *cut;       /* [stages] */
    int64_t samples;                    /* of a full microbatch */
    int64_t share;                      /* samples of a step on one data-parallel rank */
    struct dtypes types;
    int64_t scratch;                    /* bytes the transport stages with on this rank */
    int64_t library;                    /* bytes the device takes for itself: workspace */
    int64_t transport;                  /* bytes of the device that its transport takes, about */
    int shares;                         /* data ranks that share the updates; 0 or 1: none */
    int copiers;                        /* data ranks that copy a part of a checkpoint each; 0: none
                                           is copied */
    bool training;
    bool splits;                        /* sim_memory_splits(sched): then keep sets count */
};
/* Does the schedule split backward in I and W? Linear in its instructions. */
bool sim_memory_splits(const struct sched *s);
/* Mark in the cut which stages stand on one rank with the embed, as the schedule places them. */
void sim_memory_place(const struct sched *s, struct arch_stage *cut);

/* Memory of pipeline rank `pp`. */
void sim_memory_plan(const struct sim_memory_args *a, int pp, struct sim_memory *out);

#endif
