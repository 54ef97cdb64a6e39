/* SPDX-License-Identifier: Apache-2.0
 *
 * For zb_1p.c and zb_2p.c: an order made for given costs under a limit of memory (sched_auto.c).
 */
#ifndef PLAIT_SCHED_SCHED_AUTO_H
#define PLAIT_SCHED_SCHED_AUTO_H

#include "sched/sched_build.h"

struct sched_auto {
    const char *name;
    const struct sched_shape *shape;
    const struct sched_cost *cost; /* NULL: those of sched_kind.make_for */
    double limit;                  /* when the cost has none: activations a rank */
};
/* Errors: ERR_CONFIG for a cost that is none. */
enum err sched_auto_make(const struct sched_auto *a, struct sched *out);

#endif
