/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the parameter registry share.
 */
#ifndef PLAIT_PARAM_PARAM_LOCAL_H
#define PLAIT_PARAM_PARAM_LOCAL_H

#include "param/param.h"

/* Type of the master weights: without a store of their own they are the weights. */
enum dtype param_master_type(const struct param_store *s);
/* Has this rank only its share of the master weights? */
bool param_share_apart(const struct param_store *s);
/* out[i] = from[i] in type dt, which is of numbers with a point. */
void param_from_double(void *out, const double *from, enum dtype dt, int64_t n);

#endif
