/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys by their names elsewhere, for options_table.
 */
#ifndef PLAIT_CONFIG_OPTIONS_ALIAS_H
#define PLAIT_CONFIG_OPTIONS_ALIAS_H

#include "base/conf.h"

extern const struct conf_alias options_alias[];     /* names NULL ends it */
extern const struct conf_retired options_retired[]; /* key NULL ends it */

#endif
