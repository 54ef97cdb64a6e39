/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast links and memory are, as the user says it, for plans (mesh/caps.h).
 */
#ifndef PLAIT_CONFIG_LINKS_H
#define PLAIT_CONFIG_LINKS_H

#include "mesh/caps.h"

/* latency, bandwidth: "N", of all axes; "AXIS=N,AXIS=N" of these; or "N,AXIS=N" of these and of all
 * others; NULL or an axis without one: 0. area: what messages begin with. Errors: ERR_CONFIG. */
enum err links_read(const char *area, const char *latency, const char *bandwidth, double memory,
                    struct caps *out);

#endif
