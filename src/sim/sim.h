/* SPDX-License-Identifier: Apache-2.0
 *
 * Plays a lowered, checked schedule on a clock. Event simulation in time linear in instructions:
 * each rank runs its list in order; F waits for its receive, a send leaves when its producer ends
 * and arrives after the link's time; sending never blocks computing.
 */
#ifndef PLAIT_SIM_SIM_H
#define PLAIT_SIM_SIM_H

#include "model/model.h"
#include "base/err.h"
#include "base/text.h"
#include "draw/draw.h"
#include "mesh/mesh.h"
#include "sched/sched.h"

/* What actions and messages cost, any unit of time. A message leaves when its action ends and the
 * link is free; it occupies the link for bytes / bandwidth and is there `latency` after that. Each
 * ordered pair of ranks has a link of its own (full duplex). */
struct sim_inside { double all, exposed; };
struct sim_cost {
    double tf, tb, ti, tw, tr; /* time of one F, B, I, W, R of a stage */
    double latency;        /* of a message between ranks */
    double fetch;          /* that a receive takes at least, also of a message sent long before:
                              where both ends must come to it before anything moves */
    const double *stage_scale; /* borrowed; [stages] multiplies the times; NULL: all 1 */
    const double *recompute_scale; /* borrowed; [stages] that of R, where a stage does not do all of
                                      its forward again; NULL: stage_scale */
    double tov;            /* of a pair, its F and B overlapped; 0: tf + tb. Of two stages whose
                              times differ: the same share of the sum of their times */
    /* borrowed; [stages] times of F, B, I, W, R of each stage, as measured, instead of all above
     * but the latency; NULL: none */
    const double (*stage_time)[SCHED_COMPUTE_OPS];
    /* borrowed; [instructions] of what ends the step its time; of a message, where `bytes` is 0,
     * the time that it occupies its link; of a segment of an action its share of the stage's. Sums
     * and gathers (REDUCE, GATHER) run one after the other beside the rank's actions, WAIT lasts
     * until all of them are through, EMBED_REDUCE and REPLICA_REDUCE begin when both ranks have
     * come, NORM when all have. NULL: all of these are instants, and segments equal */
    const double *each;
    bool overlaps; /* else sums and gathers are all done in the WAIT behind them */
    /* borrowed; [instructions] collectives inside an action, beside its own time: what they take,
     * and what of that nothing hides, which the action takes longer. NULL: none */
    const struct sim_inside *inside;
    double bytes;     /* of a message; 0: of each its own, as `each` has it */
    double bandwidth; /* bytes in a unit of time; 0: messages occupy no link */
};

struct sim_event { double start, end; };

struct sim_result {
    int p;
    double makespan;       /* end of the last compute instruction */
    double cost;           /* max over ranks of (last end - first start) */
    /* Of what ends the step, 0 without sim_cost.each: the end of the last instruction; and [p],
     * time of a rank's sums and gathers, and what of it WAIT had to wait for; in
     * EMBED_REDUCE, REPLICA_REDUCE and NORM, with waiting for the others; of STEP or UPDATE */
    double step;
    double *sums, *exposed, *meeting, *updating;
    double *busy, *first, *last; /* owned; [p]; with it all that is [p] here */
    /* [p] by sim_cost.inside: what collectives inside a rank's actions take; of busy */
    double *inside, *inside_exposed;
    /* [p] idle time before the last action: until the input was made, and until its message
     * was there; time in which a rank's links are occupied, beside computing or not */
    double *waiting, *message, *sending;
    double bubble_fraction; /* 1 - sum(busy) / (p * makespan) */
    double bubble_rate;     /* 1 - sum(busy) / (p * cost): Qi et al., 2023 */
    const int *peak;       /* borrowed from the report; [p] peak activations in (stage, mb) units */
    const int *full_peak;  /* the same; of those kept in full */
    int64_t actions;       /* compute instructions played, a pair as one */
    struct sim_event *event; /* owned; [instructions of the schedule], NULL unless asked for;
                                OVERLAP_F_B and its two halves have the same */
};
enum err sim_run(const struct sched *s, const struct sched_report *r, const struct sim_cost *c,
                 bool keep_events, struct sim_result *out);
void sim_result_free(struct sim_result *r);

/* Which of a microbatch's two ways an action or a message goes: 0 forward, 1 back. */
static inline int sim_way(int op)
{
    return op == SCHED_F || op == SCHED_SEND_F || op == SCHED_RECV_F ? 0 : 1;
}
/* Time that the message at i occupies its link. */
double sim_wire(const struct sim_cost *c, int64_t i);
/* Times of actions of each stage, [stages], from whichever of the costs. */
void sim_times(const struct sched *s, const struct sim_cost *c, double (*time)[SCHED_COMPUTE_OPS]);

/* A bubble is told in two ways. `share`: idle time of all ranks as a share of the step's, 0 to 1
 * (bubble_fraction, bubble_rate). Over ideal: the same idle time over the time of work, which is
 * what a step would take if no rank stood still: share / (1 - share); for 1f1b with equal costs
 * (p - 1) / m. A share of 1 (no work beside the idle time) has none: INFINITY. */
double sim_over_ideal(double share);
/* "27.3 % of the step (37.5 % over ideal time)", with so many decimals, into buf, which is
 * returned. */
enum { SIM_BUBBLE_MAX = 96 };
const char *sim_bubble_words(double share, int decimals, char buf[SIM_BUBBLE_MAX]);

/* JSON with keys schedule, p, m, v, makespan, cost, bubble_fraction, bubble_rate, both also over
 * ideal time (bubble_over_ideal, rate_over_ideal; null where there is none); by rank busy, waiting,
 * message, sending, peak_activations, peak_full; where its end has costs step, and by rank sums,
 * exposed, meeting, updating; where actions have collectives inside, these: inside, and what of it
 * is exposed, inside_exposed; actions (how many); passed_over, the actions of a
 * file that were, where any was; with events also timeline, the actions with rank, start, end. */
void sim_json(const struct sched *s, const struct sim_result *r, struct text *out);
/* A readable summary table. */
void sim_summary(const struct sched *s, const struct sim_result *r, struct text *out);

/* ---- pictures (sim_picture.c) ---- */

/* What time and memory over time are counted in. */
struct sim_bytes {
    double scale;         /* of time, to the unit of the picture; 0: 1 */
    double activation;    /* no bytes below: what one activation counts */
    const int64_t *fixed; /* borrowed; [p] a rank's memory without activations; NULL: no bytes */
    const int64_t *slot;  /* borrowed; [stages] of an activation, from when it is received */
    const int64_t *save;  /* borrowed; [stages] of what its forward saves beside, from then on */
    const int64_t *keep;  /* borrowed; [stages] what is kept between I and W */
};

struct sim_picture {
    struct draw_chart chart; /* points into the rest */
    struct draw_span *span;
    struct draw_message *message;
    struct draw_comm *comm;
    struct draw_curve *memory;
    struct draw_point *point;
    char title[96], facts[384];
};

/* The result must have events. bytes NULL: the same time, memory in activations of a (stage,
 * microbatch). Errors: ERR_MEMORY. Released by sim_picture_free, also after an error. */
enum err sim_picture_make(const struct sched *s, const struct sim_result *r,
                          const struct sim_cost *cost, const struct sim_bytes *bytes,
                          struct sim_picture *out);
void sim_picture_free(struct sim_picture *p);

#endif
