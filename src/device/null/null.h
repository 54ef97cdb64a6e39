/* SPDX-License-Identifier: Apache-2.0
 *
 * The null device: no memory and no math.
 */
#ifndef PLAIT_DEVICE_NULL_H
#define PLAIT_DEVICE_NULL_H

#include "device/device.h"

/* Errors: ERR_CONFIG when ct is not a floating type; ERR_MEMORY. */
enum err null_open(const struct dev_args *a, struct dev **out);
void null_describe_kind(char *buf, size_t n);

#endif
