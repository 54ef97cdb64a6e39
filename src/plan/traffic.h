/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank starts with others in a training step, in messages and bytes (mesh.h says how they
 * are counted): from the program its sends and sums, from the types of layers what tensor ranks do
 * inside them. A run with guards is held to it after every step (exec/exec_guard.c). Pure.
 *
 * GPUs move the same bytes; in how many messages depends there on what their transport can, which
 * the plan is told (chunked), and no run of theirs is held to it.
 */
#ifndef PLAIT_PLAN_TRAFFIC_H
#define PLAIT_PLAN_TRAFFIC_H

#include "mesh/caps.h"
#include "plan/groups.h"
#include "plan/segments.h"

struct step_traffic {
    struct traffic group[GROUP_KINDS][TRAFFIC_KINDS];
    struct traffic sent; /* to other pipeline ranks */
};

/* What ends a step, by the instruction of the program that it belongs to (place in the whole list):
 * what is started with others, and bytes of the rank's memory that are read and written. */
struct traffic_ends {
    void *arg;
    void (*said)(void *arg, int64_t i, enum group_kind g, enum traffic_kind k, int64_t bytes);
    void (*moved)(void *arg, int64_t i, int64_t bytes);
};

struct traffic_args {
    struct groups_args of;
    const struct group *group; /* [GROUP_KINDS] of this pipeline rank */
    int64_t step_samples; /* samples of a step on one data rank */
    int64_t rows;   /* of struct tp (parallel/tp.h) */
    bool chunked;
    const struct segments *segments; /* [stages] */
    const struct traffic_ends *ends; /* called with each; NULL: nobody asks */
};
/* Those of pipeline rank pp. Errors: ERR_MEMORY. */
enum err traffic_plan(const struct traffic_args *a, int pp, struct step_traffic *out);
/* What tensor ranks start in one action of these layers, added; is its microbatch short? */
void traffic_layers(const struct traffic_args *a, const struct model_stage *of, enum sched_op op,
                    bool is_short, struct model_said *said);
bool traffic_short(const struct traffic_args *a, struct sched_instr in);
/* Bytes of the message of a send. */
int64_t traffic_message_bytes(const struct traffic_args *a, struct sched_instr in);

/* The same by axis; TRAFFIC_WORLD: between ranks that differ on several. */
enum { TRAFFIC_WORLD = AXIS_COUNT, TRAFFIC_AXES };
struct axis_traffic { struct traffic kind[TRAFFIC_AXES][TRAFFIC_KINDS]; };
void traffic_by_axis(const struct step_traffic *s, const struct group g[GROUP_KINDS],
                     struct axis_traffic *out);
/* What these take, one after the other: [axis][kind]. */
void traffic_times(const struct step_traffic *s, const struct group g[GROUP_KINDS],
                   const struct caps *c, const struct mesh *m,
                   double time[TRAFFIC_AXES][TRAFFIC_KINDS]);
const char *traffic_axis_name(int axis);
/* Bytes of all of it. */
int64_t traffic_bytes(const struct axis_traffic *t);

#endif
