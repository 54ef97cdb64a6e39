/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory plan against a device that has memory of its own: before step 0 it must fit what is
 * free there, and at the end it is printed beside what was used. Of devices that share the host's
 * memory see host.h.
 */
#ifndef PLAIT_SETUP_ROOM_H
#define PLAIT_SETUP_ROOM_H

#include "setup/setup.h"

/* Does what `rank` will take of its device fit the `left` bytes of `all` that are free when the
 * device is open, and so has what it takes for itself? all 0: it is no question. Pure. Errors:
 * ERR_MEMORY, with what needs what. */
enum err room_check(const struct setup *s, int rank, int64_t left, int64_t all);

/* A line for each rank: bytes planned, and used[rank], what is gone of its device's since it was
 * opened, its own included, or of a shared one what it counted. */
void room_table(const struct setup *s, const double *used, struct text *out);

#endif
