/* SPDX-License-Identifier: Apache-2.0
 *
 * For sched_check*.c alone: what the rules share. Each rule is one function that may take the rules
 * before it as proved, and that ends with sched_broken where the schedule breaks it.
 */
#ifndef PLAIT_SCHED_SCHED_CHECK_H
#define PLAIT_SCHED_SCHED_CHECK_H

#include "sched/sched_build.h"

enum { SCHED_UNIT_OPS = SCHED_RECV_B + 1 }; /* instructions that name a (stage, mb) */

struct sched_checker {
    const struct sched *s;       /* borrowed */
    struct sched_report *report; /* borrowed; peaks and hashes go here */
    enum sched_rule rule;        /* being proved */
    const char *rule_name;
    int64_t units;               /* stages * m; a unit is stage * m + mb */
    /* owned; [units] for each op: 1 + place in its rank's list, of what is cut that of the last
     * segment; 0 when it is nowhere */
    uint32_t *at[SCHED_UNIT_OPS];
    uint32_t *reduce;  /* owned; [replicas * stages] the same for REDUCE */
    uint32_t *merge;   /* owned; [replicas * stages] the same for REPLICA_REDUCE */
    uint32_t *step, *norm; /* owned; [p] the same for STEP, NORM */
    uint32_t tied[2];  /* the same for EMBED_REDUCE of the first and the last stage */
    struct sched_channels channels;
};

/* The error of the rule being proved: rank, place and instruction, then what is wrong and what
 * would mend it. Returns ERR_CONFIG. */
enum err sched_broken(const struct sched_checker *c, int rank, int64_t i, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* V1 V2 V3 V4 (sched_check_compute.c) */
enum err sched_check_coverage(struct sched_checker *c);
enum err sched_check_placement(struct sched_checker *c);
enum err sched_check_order(struct sched_checker *c);
enum err sched_check_cycle(struct sched_checker *c);
/* V5 V6 V7 (sched_check_comm.c) */
enum err sched_check_pairing(struct sched_checker *c);
enum err sched_check_channel(struct sched_checker *c);
enum err sched_check_deadlock(struct sched_checker *c);
/* V8 (sched_check_ledger.c) */
enum err sched_check_ledger(struct sched_checker *c);
/* For a program that is proved: ring and, forward only, stage_peak of the report, by what messages
 * need to leave from. Errors: ERR_MEMORY. */
enum err sched_check_buffers(struct sched_checker *c);
/* V9 (sched_check_sums.c) */
enum err sched_check_reduction(struct sched_checker *c);
/* V10 V13 (sched_check_weights.c) */
enum err sched_check_step(struct sched_checker *c);
enum err sched_check_weights(struct sched_checker *c);

/* What instruction `in` waits for: `rank` must have run `count` instructions of its list, the last
 * of which is `on`. False: it waits for nothing. */
struct sched_need { int rank; uint32_t count; struct sched_instr on; };
typedef bool (*sched_need_fn)(const struct sched_checker *c, const struct sched_instr *in,
                              struct sched_need *out);
/* Walks all ranks under these needs; where they do not all end, the circle is the error
 * (sched_check_walk.c). */
enum err sched_check_walk(const struct sched_checker *c, sched_need_fn need, const char *what);

static inline int64_t sched_unit(const struct sched *s, int stage, int mb)
{
    return (int64_t)stage * s->m + mb;
}
/* Place of the instruction that makes the input gradient: B or I. */
static inline uint32_t sched_check_dgrad(const struct sched_checker *c, int64_t unit)
{
    return c->at[SCHED_B][unit] ? c->at[SCHED_B][unit] : c->at[SCHED_I][unit];
}

/* Place of the instruction that makes the weight gradient: B or W. */
static inline uint32_t sched_check_wgrad(const struct sched_checker *c, int64_t unit)
{
    return c->at[SCHED_B][unit] ? c->at[SCHED_B][unit] : c->at[SCHED_W][unit];
}

static inline bool sched_makes_weights(struct sched_instr in)
{
    return in.op == SCHED_B || in.op == SCHED_W;
}
/* The stage whose result computing uses, or a receive brings; -1: none. */
static inline int sched_input_of(const struct sched *s, struct sched_instr in)
{
    if (in.op == SCHED_F || in.op == SCHED_RECV_F)
        return in.stage - 1;
    bool backward = in.op == SCHED_B || in.op == SCHED_I || in.op == SCHED_RECV_B;
    return backward && in.stage + 1 < s->stages ? in.stage + 1 : -1;
}

#endif
