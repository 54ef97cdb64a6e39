/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole plan, for programs (docs/plan.md).
 */
#ifndef PLAIT_SETUP_PLAN_JSON_H
#define PLAIT_SETUP_PLAN_JSON_H

#include "base/text.h"

struct setup;

/* Errors: ERR_MEMORY. Local. */
enum err plan_json(const struct setup *s, struct text *out);

#endif
