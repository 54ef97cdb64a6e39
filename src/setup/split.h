/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.split: the layers at which stages begin, by their names.
 */
#ifndef PLAIT_SETUP_SPLIT_H
#define PLAIT_SETUP_SPLIT_H

#include "config/options.h"

/* The stages of training as parallel.split's n names have them, as many as the layout has, into
 * out[n + 1]. They follow each other in the order of the pipeline, wherever the schedule places
 * them. Errors: ERR_CONFIG with the key, the name, and the nearest one; ERR_MEMORY. Local. */
enum err split_cut(const struct options *o, const struct model *a, struct model_stage *out);

#endif
