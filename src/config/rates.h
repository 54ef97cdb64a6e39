/* SPDX-License-Identifier: Apache-2.0
 *
 * The course of a run's learning rate: the lengths of warm-up and decay that its configuration
 * comes to, and what is said where they are not those that were asked for. A run that goes on keeps
 * the lengths of its checkpoint (resume.c).
 */
#ifndef PLAIT_CONFIG_RATES_H
#define PLAIT_CONFIG_RATES_H

#include "optim/optim.h"
#include "config/options.h"

/* Of a new run. */
struct lr rates_planned(const struct options *o);
/* A course that the run is too short for, with the lengths in effect; a line each. */
void rates_warn(const struct options *o, const struct lr *in_effect, struct text *out);

#endif
