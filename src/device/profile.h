/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the time of a device goes, operation by operation.
 */
#ifndef PLAIT_DEVICE_PROFILE_H
#define PLAIT_DEVICE_PROFILE_H

#include "device/device.h"

struct dev_profile;

/* Times every operation of d from now on. opened: the time (log_now) since which the rank has been
 * starting up. Errors: ERR_MEMORY. */
enum err dev_profile_open(struct dev *d, double opened, struct dev_profile **out);
void dev_profile_close(struct dev_profile *p); /* before the device; NULL is fine */

/* The steps are what lies between the two, which are told the seconds that the rank has spent in
 * communication so far. NULL: nothing. */
void dev_profile_begin(struct dev_profile *p, double comm_s);
void dev_profile_end(struct dev_profile *p, double comm_s);

/* One line a group of operations with seconds, share of the steps, rates; then communication, the
 * rest of the host, the sum, and the start-up before. */
void dev_profile_table(const struct dev_profile *p, struct text *out);

#endif
