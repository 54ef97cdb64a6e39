/* SPDX-License-Identifier: Apache-2.0
 *
 * What the implementations of the chapters of plait.h share.
 */
#ifndef PLAIT_RUN_API_H
#define PLAIT_RUN_API_H

#include "plait.h"
#include "run/options.h"

struct plait_config { struct options options; };

#endif
