/* SPDX-License-Identifier: Apache-2.0
 *
 * Plays a lowered, checked schedule on a clock. Event simulation in time linear in instructions:
 * each rank runs its list in order; F waits for its receive, a send leaves when its producer ends
 * and arrives after the link's time; sending never blocks computing.
 */
#ifndef PLAIT_SIM_SIM_H
#define PLAIT_SIM_SIM_H

#include "arch/arch.h"
#include "base/err.h"
#include "base/text.h"
#include "mesh/mesh.h"
#include "sched/sched.h"

struct sim_cost {
    double tf, tb, ti, tw; /* time of one F, B, I, W of a stage, any unit */
    double latency;        /* of a message between ranks, same unit */
    const double *stage_scale; /* borrowed; [stages] multiplies the times; NULL: all 1 */
    double tov;            /* of a pair, its F and B overlapped; 0: tf + tb. Of two stages whose
                              scales differ: the same share of the sum of their times */
};

struct sim_event { double start, end; };

struct sim_result {
    int p;
    double makespan;       /* end of the last compute instruction */
    double cost;           /* max over ranks of (last end - first start) */
    double *busy, *first, *last; /* owned; [p] */
    double bubble_fraction; /* 1 - sum(busy) / (p * makespan) */
    int *peak;             /* owned; [p] peak activations in (stage, mb) units */
    int64_t actions;       /* compute instructions played, a pair as one */
    struct sim_event *event; /* owned; [instructions of the schedule], NULL unless asked for; OV and
                                its two halves have the same */
};
enum err sim_run(const struct sched *s, const struct sched_report *r, const struct sim_cost *c,
                 bool keep_events, struct sim_result *out);
void sim_result_free(struct sim_result *r);

/* Pictures and data of a result (sim_report.c).
 *
 * Gantt: a row a rank, time from left to right, idle time as dots; needs events. width: columns of
 * the terminal, the picture is made to fit; 0: one column for the shortest instruction. color: ANSI
 * colours. */
void sim_gantt(const struct sched *s, const struct sim_result *r, int width, bool color,
               struct text *out);
/* JSON with keys schedule, p, m, v, makespan, cost, bubble_fraction, peak_activations (a number a
 * rank), actions (how many); with events also timeline, the actions with rank, start and end. */
void sim_json(const struct sched *s, const struct sim_result *r, struct text *out);
/* A readable summary table. */
void sim_summary(const struct sched *s, const struct sim_result *r, struct text *out);

#endif
