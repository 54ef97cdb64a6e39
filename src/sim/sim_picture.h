/* SPDX-License-Identifier: Apache-2.0
 *
 * From a played schedule to what draw/ draws: spans, messages, memory over time.
 */
#ifndef PLAIT_SIM_SIM_PICTURE_H
#define PLAIT_SIM_SIM_PICTURE_H

#include "draw/draw.h"
#include "sim/sim.h"

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
