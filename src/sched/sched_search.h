/* SPDX-License-Identifier: Apache-2.0
 *
 * For zb_1p.c, zb_2p.c and zb_v.c: an order searched for given costs under a limit of memory
 * (sched_search.c), on one chunk a rank or on two in a V.
 */
#ifndef PLAIT_SCHED_SCHED_SEARCH_H
#define PLAIT_SCHED_SCHED_SEARCH_H

#include "sched/sched_build.h"

/* The list, backward in halves, whose longest rank is shortest among those that the search knows.
 * cost NULL: that of sched_kind.make_for. first: of two chunks, a list of the shape within a limit
 * of 2 p; the result when none is shorter. Errors: ERR_CONFIG for a cost that is none;
 * ERR_MEMORY. */
enum err sched_search(const struct sched_kind *kind, const struct sched_shape *shape,
                      const struct sched_cost *cost, const struct sched *first,
                      struct sched *out);

#endif
