/* SPDX-License-Identifier: Apache-2.0
 *
 * The runs in a folder: plait_runs of plait.h.
 */
#ifndef PLAIT_API_RUNS_H
#define PLAIT_API_RUNS_H

#include "base/text.h"
#include "plait.h"

/* Errors: ERR_CONFIG: no such folder or format; ERR_MEMORY. Local; touches nothing. */
enum err runs_list(const struct plait_runs *a, struct text *out);

#endif
